//! The embedded API.

//! File bytes to columns.

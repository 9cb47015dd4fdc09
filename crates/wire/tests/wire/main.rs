//! The protocols with real clients and with bytes that no client would send.

mod raw;

mod copy;
mod descriptions;
mod errors;
mod flight;
mod hostile;
mod limits;
mod messages;
mod portals;
mod tls;
mod types;

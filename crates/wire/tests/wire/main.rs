//! The protocols against real clients and against bytes no client would send.

mod raw;

mod copy;
mod errors;
mod flight;
mod hostile;
mod limits;
mod messages;
mod tls;
mod types;

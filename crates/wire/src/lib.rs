//! PostgreSQL's protocol and Flight SQL, nothing else: a [`Server`] connects clients of PostgreSQL to a
//! [`firn_session::Database`], a [`FlightServer`] those of Arrow.
//!
//! PostgreSQL's protocol is implemented by a hand-written message loop over blocking sockets, one thread per
//! connection. A short statement takes a microsecond or two: in comparison an executor's wake-up
//! is expensive, and a round trip should cost one `read` and one `write` (docs/decisions/0005). Flight SQL, for results
//! rather than round trips, uses gRPC (docs/decisions/0026). The other crates contain no protocol, and this one
//! contains no SQL except its queries of the catalog.
//!
//! ```no_run
//! let database = firn_session::Database::memory()?;
//! let server = firn_wire::Server::start(database, firn_wire::WireConfig::default())?;
//! println!("psql -h localhost -p {}", server.local_addr().port());
//! server.shutdown();
//! # Ok::<(), firn_base::Error>(())
//! ```
//!
//! Modules from the bytes upwards.

pub mod decode;
mod encode;
mod parameters;
mod rows;

mod certificate;
mod scram;
mod socket;
mod tls;

mod client;
mod connection;
mod replication;
mod server;

mod flight;

pub use certificate::channel_end_point;
pub use flight::{FlightConfig, FlightServer};
pub use replication::{ReplicationChannel, ReplicationInput, ReplicationPurpose, ReplicationService};
pub use scram::{Users, Verifier};
pub use server::{Auth, Server, WireConfig};
pub use tls::Tls;

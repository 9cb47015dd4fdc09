//! The entry: the caller is identified before any of its message is read.
//!
//! gRPC decodes the message of a call before the call's own code runs, and a message may have hundreds of megabytes.
//! So an unknown caller is refused by the headers of its call. Only a handshake is open to unknown callers, and its message
//! has a bound of its own.
//!
//! Rows leave through this module as well, since tonic would copy their messages.

use std::convert::Infallible;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use firn_base::sync::Arc;
use tonic::body::Body;
use tonic::codegen::{Service as _, http};
use tonic::{Request, Status};

use super::auth::Caller;
use super::connections::Reply;
use super::service::{Fetched, Service};
use super::state::State;
use super::status::status;

/// More than the length of any user name and password.
const MOST_HANDSHAKE_BYTES: usize = 64 << 10;

/// The prefix of the paths of all calls.
const SERVICE: &str = "/arrow.flight.protocol.FlightService/";
const HANDSHAKE: &str = "/arrow.flight.protocol.FlightService/Handshake";

/// Accepts calls of identified callers.
#[derive(Clone)]
pub(super) struct Door {
    state: Arc<State>,
    calls: FlightServiceServer<Service>,
    handshakes: FlightServiceServer<Service>,
}

impl Door {
    pub fn new(state: &Arc<State>) -> Door {
        let service = Arc::new(Service::new(state.clone()));
        let server = |most_bytes| {
            FlightServiceServer::from_arc(service.clone())
                .max_decoding_message_size(most_bytes)
                .max_encoding_message_size(usize::MAX)
        };
        Door {
            state: state.clone(),
            calls: server(state.config.max_message_bytes),
            handshakes: server(MOST_HANDSHAKE_BYTES),
        }
    }

    /// Answers a call, within the time limit that its client has set.
    pub async fn answer(self, request: http::Request<Body>) -> Result<http::Response<Reply>, Infallible> {
        if !request.uri().path().starts_with(SERVICE) {
            return Ok(Status::unimplemented("").into_http().map(Reply::Call));
        }
        let Some(longest) = timeout_of(request.headers()) else { return self.call(request).await };
        tokio::time::timeout(longest, self.call(request)).await.unwrap_or_else(|_| {
            Ok(Status::deadline_exceeded("the client's deadline has passed").into_http().map(Reply::Call))
        })
    }

    async fn call(mut self, request: http::Request<Body>) -> Result<http::Response<Reply>, Infallible> {
        if request.uri().path() == HANDSHAKE {
            return Ok(self.handshakes.call(request).await?.map(Reply::Call));
        }
        let (mut parts, body) = request.into_parts();
        let headers = Request::from_http(http::Request::from_parts(parts.clone(), ()));
        match caller(&self.state, &headers).await {
            Ok(caller) => {
                parts.extensions.insert(caller);
                let mut response = self.calls.call(http::Request::from_parts(parts, body)).await?;
                let fetched = response.extensions_mut().remove::<Fetched>();
                Ok(match fetched.and_then(|fetched| fetched.take()) {
                    Some(rows) => response.map(|_| Reply::Rows(rows)),
                    None => response.map(Reply::Call),
                })
            }
            Err(status) => Ok(status.into_http().map(Reply::Call)),
        }
    }
}

/// How long the client of a call waits for the reply (gRPC over HTTP/2, Timeout).
fn timeout_of(headers: &http::HeaderMap) -> Option<Duration> {
    let value = headers.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let number = number.parse().ok().filter(|_| number.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(3600 * number),
        "M" => Duration::from_secs(60 * number),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Identifies the caller.
async fn caller(state: &Arc<State>, request: &Request<()>) -> Result<Caller, Status> {
    let (headers, address) = (request.metadata(), request.remote_addr());
    if !Caller::needs_work(headers) {
        return Caller::identify(state, headers, address).map_err(status);
    }
    let (state, headers) = (state.clone(), headers.clone());
    let identified = tokio::task::spawn_blocking(move || Caller::identify(&state, &headers, address)).await;
    identified.map_err(|error| Status::internal(error.to_string()))?.map_err(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_say_how_long_they_wait() {
        let of = |value: &str| {
            timeout_of(&http::HeaderMap::from_iter([(
                "grpc-timeout".parse().unwrap(),
                value.parse().unwrap(),
            )]))
        };
        assert_eq!(of("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(of("3M"), Some(Duration::from_secs(180)));
        assert_eq!(of("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(of("1500m"), Some(Duration::from_millis(1500)));
        assert_eq!(of("7u"), Some(Duration::from_micros(7)));
        assert_eq!(of("0n"), Some(Duration::ZERO));
        for wrong in ["", "S", "1", "1x", "123456789S", "-1S", "1.5S"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(timeout_of(&http::HeaderMap::new()), None);
    }
}

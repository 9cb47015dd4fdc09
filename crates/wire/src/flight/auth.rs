//! Identifies the caller: a handshake or every call carries a name and a password (HTTP's `Basic`). A handshake returns a
//! token (`Bearer`) that identifies the session from then on.
//!
//! Names and passwords are those of the PostgreSQL side. The same verifiers are checked with the password itself,
//! since Flight SQL has no SCRAM.

use std::net::SocketAddr;

use arrow_flight::BasicAuth;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use prost::Message;
use tonic::metadata::MetadataMap;

use super::state::{Session, State};
use crate::server::Auth;

/// The header by which a client requests strings as Arrow views (`view`), which not every client can read.
const STRINGS_HEADER: &str = "x-firn-strings";

/// How strings and bytes are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Strings {
    /// As Utf8 and Binary, which every client reads.
    #[default]
    Plain,
    /// As Utf8View and BinaryView, as tables hold them.
    Views,
}

/// The caller, and the form of replies that it has requested.
#[derive(Clone)]
pub(super) struct Caller {
    /// The user name that it sent; `None` if it sent none and needs none.
    pub user: Option<String>,
    /// The session that its handshake began.
    pub session: Option<Arc<Session>>,
    /// Its address.
    pub address: Option<SocketAddr>,
    /// How strings are sent to it.
    pub strings: Strings,
}

/// A name and a password.
pub(super) struct Credentials {
    pub user: String,
    password: String,
}

/// The credentials of a call.
enum Shown {
    Nothing,
    Token(String),
    Password(Credentials),
}

impl Caller {
    /// Identifies the caller from the headers of a call. Checking a password takes milliseconds of computing: if
    /// [`Caller::needs_work`], call it on a thread that may block.
    pub fn identify(state: &State, headers: &MetadataMap, address: Option<SocketAddr>) -> Result<Caller> {
        let strings = match headers.get(STRINGS_HEADER).map(|value| value.as_bytes()) {
            None | Some(b"plain") => Strings::Plain,
            Some(b"view") => Strings::Views,
            Some(_) => {
                return Err(Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("invalid value of the header {STRINGS_HEADER}"),
                )
                .with_hint("It is \"plain\" or \"view\"."));
            }
        };
        let caller = Caller { user: None, session: None, address, strings };
        match (shown(headers)?, &state.config.auth) {
            (Shown::Token(token), _) => {
                let session = state.session(&token)?;
                Ok(Caller { user: Some(session.user.clone()), session: Some(session), ..caller })
            }
            (Shown::Password(credentials), auth) => {
                check(auth, &credentials)?;
                Ok(Caller { user: Some(credentials.user), ..caller })
            }
            (Shown::Nothing, Auth::Trust) => Ok(caller),
            (Shown::Nothing, Auth::Scram(_)) => Err(Error::new(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                "this server requires authentication",
            )
            .with_hint("Connect with a user name and a password.")),
        }
    }

    /// Whether two calls come from one client, as far as is known: from one session, or without one over one
    /// TCP connection.
    pub fn is_same_client(&self, other: &Caller) -> bool {
        match (&self.session, &other.session) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => {
                self.user == other.user && self.address.is_some() && self.address == other.address
            }
            _ => false,
        }
    }

    /// Whether the headers hold a password to be checked.
    pub fn needs_work(headers: &MetadataMap) -> bool {
        matches!(shown(headers), Ok(Shown::Password(_)))
    }
}

/// The name and the password of a handshake: from the headers, or from the message.
pub(super) fn credentials(headers: &MetadataMap, payload: &[u8]) -> Result<Credentials> {
    if let Shown::Password(credentials) = shown(headers)? {
        return Ok(credentials);
    }
    let basic = BasicAuth::decode(payload).map_err(|_| malformed())?;
    if basic.username.is_empty() {
        return Err(Error::new(
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            "a handshake without a user name",
        ));
    }
    Ok(Credentials { user: basic.username, password: basic.password })
}

/// 28P01 if the password is not the user's.
pub(super) fn check(auth: &Auth, credentials: &Credentials) -> Result<()> {
    match auth {
        Auth::Trust => Ok(()),
        Auth::Scram(users) => users.check_password(&credentials.user, &credentials.password),
    }
}

/// A token as it is sent.
pub(super) fn token_text(token: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(token)
}

/// A token as it was sent.
pub(super) fn token_bytes(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

fn shown(headers: &MetadataMap) -> Result<Shown> {
    let Some(value) = headers.get("authorization") else { return Ok(Shown::Nothing) };
    let value = value.to_str().map_err(|_| malformed())?;
    let (scheme, rest) = value.split_once(' ').ok_or_else(malformed)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Shown::Token(rest.trim().to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(malformed());
    }
    let rest = rest.trim();
    let decoded = STANDARD.decode(rest).or_else(|_| STANDARD_NO_PAD.decode(rest)).map_err(|_| malformed())?;
    let decoded = String::from_utf8(decoded).map_err(|_| malformed())?;
    let (user, password) = decoded.split_once(':').ok_or_else(malformed)?;
    Ok(match user {
        // Sent by clients that have no user name.
        "" => Shown::Nothing,
        user => Shown::Password(Credentials { user: user.to_owned(), password: password.to_owned() }),
    })
}

#[cold]
fn malformed() -> Error {
    Error::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "the authorization cannot be read").with_hint(
        "It is \"Basic\" with a user name and a password, or \"Bearer\" with a token of a handshake.",
    )
}

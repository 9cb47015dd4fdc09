//! SCRAM-SHA-256 (RFC 5802, RFC 7677): a client proves that it has a password, and the server that
//! it has the verifier, and neither learns anything else.
//!
//! ```text
//! client-first   n,,n=user,r=nonce
//! server-first   r=nonce+ours,s=salt,i=iterations
//! client-final   c=biws,r=nonce+ours,p=proof
//! server-final   v=signature
//! ```
//!
//! Over TLS the client may bind the conversation to the channel (RFC 5929, `tls-server-end-point`): it repeats the hash of the
//! certificate that it has been shown, under its proof. So nobody who stands between with another certificate can pass the
//! conversation on. The first letters of client-first are `p=tls-server-end-point` then; `y` means that the client could, but
//! believes that the server cannot.
//!
//! The name inside client-first is ignored, as PostgreSQL does: the start-up packet named the user.
//! For a user that does not exist the messages are the same, with a salt that is the same in every
//! attempt. So an attacker cannot list the users.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use firn_base::{Error, Result, SqlState, random};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The mechanism's name in SASL.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";
/// Its name if it is bound to the channel.
pub(crate) const BOUND_MECHANISM: &str = "SCRAM-SHA-256-PLUS";
/// How it is bound.
const BINDING_KIND: &str = "p=tls-server-end-point";

/// What the conversation may be bound to.
#[derive(Clone, Copy)]
pub(crate) enum Channel<'c> {
    /// There is no TLS, or its certificate has no hash: it cannot be bound.
    Open,
    /// To this, but the client has chosen not to.
    Unbound,
    /// To this, as the client has chosen.
    Bound(&'c [u8]),
}

/// Rounds of hashing in new verifiers: PostgreSQL's number, and RFC 7677's least.
const ITERATIONS: u32 = 4096;

type Hash = [u8; 32];

/// What the server stores of a password: enough to check it, too little to log in elsewhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    salt: Vec<u8>,
    iterations: u32,
    stored_key: Hash,
    server_key: Hash,
}

impl Verifier {
    /// The verifier of a password, with a new salt.
    pub fn from_password(password: &str) -> Verifier {
        Verifier::derive(password, random::secret_bytes::<16>().to_vec(), ITERATIONS)
    }

    fn derive(password: &str, salt: Vec<u8>, iterations: u32) -> Verifier {
        let password = normalise(password);
        let salted = salted_password(password.as_bytes(), &salt, iterations);
        Verifier {
            salt,
            iterations,
            stored_key: Sha256::digest(hmac(&salted, b"Client Key")).into(),
            server_key: hmac(&salted, b"Server Key"),
        }
    }

    /// Reads PostgreSQL's form: `SCRAM-SHA-256$iterations:salt$stored key:server key`.
    pub fn parse(text: &str) -> Option<Verifier> {
        let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
        let (parameters, keys) = rest.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        Some(Verifier {
            salt: BASE64.decode(salt).ok()?,
            iterations: iterations.parse().ok().filter(|rounds| *rounds > 0)?,
            stored_key: decode_hash(stored_key)?,
            server_key: decode_hash(server_key)?,
        })
    }
}

impl std::fmt::Display for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{MECHANISM}${}:{}${}:{}",
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(self.stored_key),
            BASE64.encode(self.server_key)
        )
    }
}

impl std::fmt::Debug for Verifier {
    /// Keeps the keys out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier(…)")
    }
}

/// The users that may connect.
#[derive(Clone, Debug)]
pub struct Users {
    verifiers: HashMap<String, Verifier>,
    /// The secret from which the salts of non-existent users are derived.
    mock_secret: Hash,
}

impl Users {
    /// Users by name.
    pub fn new(verifiers: impl IntoIterator<Item = (String, Verifier)>) -> Users {
        Users { verifiers: verifiers.into_iter().collect(), mock_secret: random::secret_bytes() }
    }

    /// Checks the password of a user, for a protocol that sends it; 28P01 if it is wrong. This takes milliseconds,
    /// and as long for a user that does not exist.
    pub(crate) fn check_password(&self, user: &str, password: &str) -> Result<()> {
        let (verifier, exists) = self.verifier(user);
        let given = Verifier::derive(password, verifier.salt.clone(), verifier.iterations);
        match bool::from(given.stored_key.ct_eq(&verifier.stored_key)) && exists {
            true => Ok(()),
            false => Err(wrong_password(user)),
        }
    }

    /// The verifier of a user, or one that no password matches.
    fn verifier(&self, user: &str) -> (Verifier, bool) {
        match self.verifiers.get(user) {
            Some(verifier) => (verifier.clone(), true),
            None => {
                let salt = hmac(&self.mock_secret, user.as_bytes())[..16].to_vec();
                let (stored_key, server_key) = ([0; 32], [0; 32]);
                (Verifier { salt, iterations: ITERATIONS, stored_key, server_key }, false)
            }
        }
    }
}

/// An authentication that waits for client-final.
pub(crate) struct Exchange {
    user: String,
    verifier: Verifier,
    exists: bool,
    client_first_bare: String,
    /// What the client must repeat: its header, and what the channel is bound to, base64.
    binding: String,
    is_bound: bool,
    nonce: String,
    server_first: String,
}

impl Exchange {
    /// Takes client-first; [`Exchange::server_first`] then returns the reply.
    pub(crate) fn begin(
        users: &Users,
        user: &str,
        client_first: &[u8],
        channel: Channel<'_>,
    ) -> Result<Exchange> {
        let nonce = BASE64.encode(random::secret_bytes::<18>());
        Exchange::begin_with_nonce(users, user, client_first, channel, &nonce)
    }

    fn begin_with_nonce(
        users: &Users,
        user: &str,
        client_first: &[u8],
        channel: Channel<'_>,
        server_nonce: &str,
    ) -> Result<Exchange> {
        let message = std::str::from_utf8(client_first).map_err(|_| malformed())?;
        let mut parts = message.splitn(3, ',');
        let binding_flag = parts.next().ok_or_else(malformed)?;
        let identity = parts.next().ok_or_else(malformed)?;
        let bare = parts.next().ok_or_else(malformed)?;
        let bound_to: &[u8] = match (binding_flag, channel) {
            (BINDING_KIND, Channel::Bound(end_point)) => end_point,
            ("n", Channel::Open | Channel::Unbound) | ("y", Channel::Open) => &[],
            ("y", Channel::Unbound) => return Err(is_withheld()),
            ("n" | "y", Channel::Bound(_)) => {
                return Err(malformed().with_detail(
                    "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel \
                     binding data.",
                ));
            }
            (kind, Channel::Bound(_)) if kind.starts_with("p=") => {
                let kind = &kind[2..];
                let message = format!("unsupported SCRAM channel-binding type \"{kind}\"");
                return Err(Error::new(SqlState::PROTOCOL_VIOLATION, message));
            }
            (kind, Channel::Open | Channel::Unbound) if kind.starts_with("p=") => {
                return Err(malformed().with_detail(
                    "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes \
                     channel binding data.",
                ));
            }
            _ => return Err(malformed()),
        };
        if !identity.is_empty() {
            return Err(Error::unsupported("a SCRAM authorization identity"));
        }
        let mut attributes = bare.split(',');
        attributes.next().and_then(|name| name.strip_prefix("n=")).ok_or_else(malformed)?;
        let client_nonce =
            attributes.next().and_then(|nonce| nonce.strip_prefix("r=")).ok_or_else(malformed)?;
        if client_nonce.is_empty() || !client_nonce.bytes().all(|byte| (0x21..0x7f).contains(&byte)) {
            return Err(malformed());
        }
        let (verifier, exists) = users.verifier(user);
        let nonce = format!("{client_nonce}{server_nonce}");
        let server_first = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
        Ok(Exchange {
            user: user.to_owned(),
            verifier,
            exists,
            client_first_bare: bare.to_owned(),
            binding: BASE64.encode([format!("{binding_flag},{identity},").as_bytes(), bound_to].concat()),
            is_bound: !bound_to.is_empty(),
            nonce,
            server_first,
        })
    }

    /// The server's first message.
    pub(crate) fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Takes client-final and returns the reply; 28P01 if the proof is invalid.
    pub(crate) fn finish(&self, client_final: &[u8]) -> Result<String> {
        let message = std::str::from_utf8(client_final).map_err(|_| malformed())?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(malformed)?;
        let proof = decode_hash(proof).ok_or_else(malformed)?;
        let mut attributes = without_proof.split(',');
        let binding =
            attributes.next().and_then(|binding| binding.strip_prefix("c=")).ok_or_else(malformed)?;
        let nonce = attributes.next().and_then(|nonce| nonce.strip_prefix("r=")).ok_or_else(malformed)?;
        if nonce != self.nonce {
            return Err(malformed().with_detail("The nonce does not match."));
        }
        if binding != self.binding {
            return Err(match self.is_bound {
                true => Error::new(
                    SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                    "SCRAM channel binding check failed",
                ),
                false => malformed().with_detail("The channel binding does not match."),
            });
        }
        let signed = format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        let signature = hmac(&self.verifier.stored_key, signed.as_bytes());
        let client_key: Hash = std::array::from_fn(|index| proof[index] ^ signature[index]);
        let key_fits = Sha256::digest(client_key).ct_eq(&self.verifier.stored_key[..]);
        if !bool::from(key_fits) || !self.exists {
            return Err(wrong_password(&self.user));
        }
        Ok(format!("v={}", BASE64.encode(hmac(&self.verifier.server_key, signed.as_bytes()))))
    }
}

fn wrong_password(user: &str) -> Error {
    Error::new(SqlState::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
}

/// Somebody between may have hidden from the client that the channel can be bound.
fn is_withheld() -> Error {
    Error::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "SCRAM channel binding negotiation error")
        .with_detail(
            "The client supports SCRAM channel binding but thinks the server does not.  However, this server does \
             support channel binding.",
        )
}

fn malformed() -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, "malformed SCRAM message")
}

fn decode_hash(text: &str) -> Option<Hash> {
    BASE64.decode(text).ok()?.try_into().ok()
}

/// HMAC (RFC 2104) over SHA-256. This function and [`salted_password`] are twenty lines of our own, because
/// the crates for them enable features of `digest` for the whole engine, which is then built twice.
fn hmac(key: &[u8], data: &[u8]) -> Hash {
    let mut block = [0; 64];
    if key.len() <= block.len() {
        block[..key.len()].copy_from_slice(key);
    } else {
        block[..32].copy_from_slice(&Sha256::digest(key));
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(data).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

/// PBKDF2 (RFC 8018) with one block of HMAC-SHA-256: `Hi` of RFC 5802.
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Hash {
    let mut latest = hmac(password, &[salt, &1u32.to_be_bytes()].concat());
    let mut result = latest;
    for _ in 1..iterations {
        latest = hmac(password, &latest);
        for (byte, more) in result.iter_mut().zip(latest) {
            *byte ^= more;
        }
    }
    result
}

/// SASLprep, so that a password typed on two keyboards is one password. One that it forbids is
/// taken as it is, as PostgreSQL and its clients do.
fn normalise(password: &str) -> std::borrow::Cow<'_, str> {
    stringprep::saslprep(password).unwrap_or(std::borrow::Cow::Borrowed(password))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, section 3.
    fn example() -> Exchange {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let users = Users::new([("user".to_owned(), Verifier::derive("pencil", salt, 4096))]);
        let client_first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        let nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        Exchange::begin_with_nonce(&users, "user", client_first, Channel::Open, nonce).unwrap()
    }

    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    #[test]
    fn the_conversation_of_rfc_7677_comes_out_byte_for_byte() {
        let exchange = example();
        assert_eq!(
            exchange.server_first(),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        assert_eq!(
            exchange.finish(CLIENT_FINAL.as_bytes()).unwrap(),
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
    }

    #[test]
    fn hmac_gives_the_values_of_rfc_4231() {
        let hex = |hash: Hash| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(hmac(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long_key = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(
            hex(hmac(&[0xaa; 131], long_key)),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn any_other_client_final_fails() {
        let exchange = example();
        for index in 0..CLIENT_FINAL.len() {
            let mut damaged = CLIENT_FINAL.as_bytes().to_vec();
            damaged[index] ^= 1;
            assert!(exchange.finish(&damaged).is_err(), "{index}");
            assert!(exchange.finish(&CLIENT_FINAL.as_bytes()[..index]).is_err(), "{index}");
        }
    }

    #[test]
    fn an_unknown_user_gets_a_constant_salt_and_is_refused() {
        let users = Users::new([]);
        let first = |user| {
            let exchange =
                Exchange::begin_with_nonce(&users, user, b"n,,n=,r=x", Channel::Open, "y").unwrap();
            exchange.server_first().to_owned()
        };
        assert_eq!(first("nobody"), first("nobody"));
        assert_ne!(first("nobody"), first("somebody"));
        let exchange =
            Exchange::begin_with_nonce(&users, "nobody", b"n,,n=,r=x", Channel::Open, "y").unwrap();
        let failure =
            exchange.finish(format!("c=biws,r=xy,p={}", BASE64.encode([0; 32])).as_bytes()).unwrap_err();
        assert_eq!(failure.state(), SqlState::INVALID_PASSWORD);
    }

    #[test]
    fn a_verifier_survives_its_text() {
        let verifier = Verifier::from_password("påss");
        assert_eq!(Verifier::parse(&verifier.to_string()), Some(verifier));
        for bad in ["", "md5abc", "SCRAM-SHA-256$4096:x", "SCRAM-SHA-256$0:YQ==$YQ==:YQ=="] {
            assert_eq!(Verifier::parse(bad), None);
        }
    }

    #[test]
    fn malformed_client_first_messages_are_refused() {
        let users = Users::new([]);
        for bad in ["", "n", "n,,", "p=tls-server-end-point,,n=,r=x", "n,,r=x", "n,,n=,r=", "n,a=b,n=,r=x"] {
            assert!(Exchange::begin(&users, "user", bad.as_bytes(), Channel::Open).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_channel_is_bound_exactly_if_both_sides_mean_the_same() {
        let users = Users::new([]);
        let begin = |first: &str, channel| {
            let begun = Exchange::begin_with_nonce(&users, "user", first.as_bytes(), channel, "y");
            begun.map(|exchange| exchange.binding).map_err(|error| error.state())
        };
        let bound = format!("{BINDING_KIND},,n=,r=x");
        let (ours, refused) = (b"hash", Err(SqlState::PROTOCOL_VIOLATION));
        let expected = BASE64.encode([&b"p=tls-server-end-point,,"[..], ours].concat());
        assert_eq!(begin(&bound, Channel::Bound(ours)), Ok(expected));
        assert_eq!(begin("p=tls-unique,,n=,r=x", Channel::Bound(ours)), refused);
        assert_eq!(begin("n,,n=,r=x", Channel::Bound(ours)), refused);
        assert_eq!(begin("y,,n=,r=x", Channel::Bound(ours)), refused);
        assert_eq!(begin(&bound, Channel::Unbound), refused);
        assert_eq!(begin(&bound, Channel::Open), refused);
        assert_eq!(begin("n,,n=,r=x", Channel::Unbound), Ok(BASE64.encode("n,,")));
        assert_eq!(begin("y,,n=,r=x", Channel::Unbound), Err(SqlState::INVALID_AUTHORIZATION_SPECIFICATION));
        assert_eq!(begin("y,,n=,r=x", Channel::Open), Ok(BASE64.encode("y,,")));
        let exchange =
            Exchange::begin_with_nonce(&users, "user", bound.as_bytes(), Channel::Bound(ours), "y").unwrap();
        let other = BASE64.encode("p=tls-server-end-point,,another");
        let last = format!("c={other},r=xy,p={}", BASE64.encode([0; 32]));
        let failure = exchange.finish(last.as_bytes()).unwrap_err();
        assert_eq!(failure.state(), SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
        assert_eq!(failure.message(), "SCRAM channel binding check failed");
    }
}

//! A client's side of TLS: what libpq's `sslmode` and its relatives ask for.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};

/// How much a client wants to be sure of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum SslMode {
    /// Nothing is encrypted.
    Disable,
    /// Encrypted, if the server can.
    #[default]
    Prefer,
    /// Encrypted, but perhaps with somebody else.
    Require,
    /// Encrypted; the server's certificate is signed by an authority.
    VerifyCa,
    /// Encrypted with whom an authority says has the name of the host.
    VerifyFull,
}

impl SslMode {
    fn parse(name: &str) -> Result<SslMode, String> {
        Ok(match name {
            "disable" => SslMode::Disable,
            "allow" | "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            _ => return Err(format!("invalid sslmode value: \"{name}\"")),
        })
    }
}

/// How a client wants its connection encrypted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Security {
    pub mode: SslMode,
    /// Certificates of the authorities that sign certificates of servers (PEM).
    roots: Option<PathBuf>,
    /// The client's own certificate, and its key (PEM).
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Security {
    /// From the parameters of a URL, which go before libpq's variables of the environment.
    pub fn read(parameters: &[(String, String)]) -> Result<Security, String> {
        let value = |name: &str| {
            let given = parameters.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
            given.or_else(|| std::env::var(format!("PG{}", name.to_uppercase())).ok())
        };
        let file = |name: &str| value(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let mode = value("sslmode").map_or(Ok(SslMode::default()), |mode| SslMode::parse(&mode))?;
        let roots = file("sslrootcert");
        // As libpq has it: who names authorities wants them to be asked.
        let mode = if mode == SslMode::Require && roots.is_some() { SslMode::VerifyCa } else { mode };
        Ok(Security { mode, roots, certificate: file("sslcert"), key: file("sslkey") })
    }

    /// Asks a server for TLS and shakes hands. Comes back with the hash of its certificate for SCRAM; with the stream as it was
    /// if there is to be no TLS.
    pub fn begin(&self, mut stream: TcpStream, host: &str) -> Result<Begun, String> {
        if self.mode == SslMode::Disable {
            return Ok(Begun::Clear(stream));
        }
        let lost = |error: io::Error| format!("the connection to the server was lost: {error}");
        let mut request = BytesMut::new();
        frontend::ssl_request(&mut request);
        stream.write_all(&request).map_err(lost)?;
        let mut answer = [0];
        stream.read_exact(&mut answer).map_err(lost)?;
        match answer[0] {
            b'S' => {}
            b'N' if self.mode == SslMode::Prefer => return Ok(Begun::Clear(stream)),
            b'N' => return Err("server does not support SSL, but SSL was required".into()),
            _ => return Err("the server sent no answer to a request for SSL".into()),
        }
        let name = match ServerName::try_from(host.to_owned()) {
            Ok(name) => name,
            Err(_) if self.mode == SslMode::VerifyFull => {
                return Err(format!("\"{host}\" is no name that a certificate can have"));
            }
            Err(_) => ServerName::from(stream.peer_addr().map_err(lost)?.ip()),
        };
        let config = self.config().map_err(|error| error.to_string())?;
        let mut tls = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).map_err(|error| format!("TLS: {error}"))?;
        }
        let server = tls.peer_certificates().and_then(|chain| chain.first());
        let end_point = server.and_then(|certificate| firn_wire::channel_end_point(certificate));
        Ok(Begun::Encrypted(Box::new(StreamOwned::new(tls, stream)), end_point))
    }

    fn config(&self) -> Result<ClientConfig, Box<dyn std::error::Error>> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier::new(self, provider.clone())?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        Ok(match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates(certificate)?;
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
                config.with_client_auth_cert(chain, key)?
            }
            (None, None) => config.with_no_client_auth(),
            _ => return Err("sslcert and sslkey belong together".into()),
        })
    }
}

/// What has come of asking for TLS.
pub enum Begun {
    Clear(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>, Option<Vec<u8>>),
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &dyn std::error::Error) -> String {
    format!("could not read \"{}\": {error}", path.display())
}

/// Checks a server's certificate as far as its client wants.
#[derive(Debug)]
struct Verifier {
    mode: SslMode,
    provider: Arc<CryptoProvider>,
    /// The authorities that sign certificates of servers.
    roots: Vec<CertificateDer<'static>>,
    /// `None` if nobody is asked.
    chains: Option<Arc<WebPkiServerVerifier>>,
}

impl Verifier {
    fn new(
        security: &Security,
        provider: Arc<CryptoProvider>,
    ) -> Result<Verifier, Box<dyn std::error::Error>> {
        let mode = security.mode;
        if mode < SslMode::VerifyCa {
            return Ok(Verifier { mode, provider, roots: Vec::new(), chains: None });
        }
        let default = || std::env::home_dir().unwrap_or_default().join(".postgresql/root.crt");
        let roots = certificates(&security.roots.clone().unwrap_or_else(default))?;
        let mut store = RootCertStore::empty();
        roots.iter().try_for_each(|root| store.add(root.clone()))?;
        let chains =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone()).build()?;
        Ok(Verifier { mode, provider, roots, chains: Some(chains) })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chains) = &self.chains else { return Ok(ServerCertVerified::assertion()) };
        if self.roots.iter().any(|root| root == certificate) {
            // A certificate that is its own authority, which the library takes for no server's.
            if self.mode == SslMode::VerifyFull {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match chains.verify_server_cert(certificate, others, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.mode == SslMode::VerifyCa => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

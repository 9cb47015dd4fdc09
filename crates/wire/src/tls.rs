//! TLS: what a server shows to its clients, and what it asks them for. One certificate serves both protocols.

use std::path::Path;

use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use crate::certificate::channel_end_point;

/// What a server shows to its clients so that they trust it, and by which clients are recognised.
#[derive(Clone)]
pub struct Tls {
    config: ServerConfig,
    end_point: Option<Arc<[u8]>>,
    asks_for_certificates: bool,
}

impl std::fmt::Debug for Tls {
    /// Keeps the key out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(…)")
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

impl Tls {
    /// From texts in PEM: the certificate with those of intermediate authorities, its private key, and the certificates of the
    /// authorities that sign certificates of clients. If these are given, every client must present a certificate.
    ///
    /// Error: F0000 if they are not such.
    pub fn new(certificate: &str, key: &str, client_authorities: Option<&str>) -> Result<Tls> {
        let provider = Arc::new(ring::default_provider());
        let verifier = match client_authorities {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(authorities) => {
                let roots = roots(authorities).map_err(|error| unusable("the authorities", &*error))?;
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .build()
                    .map_err(|error| unusable("the authorities", &error))?
            }
        };
        let own = || -> std::result::Result<_, Cause> {
            let chain = certificates(certificate)?;
            let end_point = chain.first().and_then(|own| channel_end_point(own)).map(Arc::from);
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .with_client_cert_verifier(verifier)
                .with_single_cert(chain, key)?;
            Ok((config, end_point))
        };
        let (config, end_point) = own().map_err(|error| unusable("the certificate or its key", &*error))?;
        Ok(Tls { config, end_point, asks_for_certificates: client_authorities.is_some() })
    }

    /// As [`Tls::new`], from files. Error: F0000 as well if they cannot be read.
    pub fn read(certificate: &Path, key: &Path, client_authorities: Option<&Path>) -> Result<Tls> {
        let text = |path: &Path| {
            std::fs::read_to_string(path).map_err(|error| {
                let message = format!("could not read \"{}\": {error}", path.display());
                Error::new(SqlState::CONFIG_FILE_ERROR, message)
            })
        };
        let authorities = client_authorities.map(text).transpose()?;
        Tls::new(&text(certificate)?, &text(key)?, authorities.as_deref())
    }

    /// For PostgreSQL's clients, who may name the protocol and resume no sessions, as with PostgreSQL.
    pub(crate) fn for_postgres(&self) -> Arc<ServerConfig> {
        let mut config = self.config.clone();
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Arc::new(config)
    }

    /// For clients of gRPC.
    pub(crate) fn for_grpc(&self) -> Arc<ServerConfig> {
        let mut config = self.config.clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }

    /// What SCRAM binds a channel to; `None` if the server's certificate has no such hash.
    pub(crate) fn end_point(&self) -> Option<&Arc<[u8]>> {
        self.end_point.as_ref()
    }

    /// Whether every client must show a certificate.
    pub(crate) fn asks_for_certificates(&self) -> bool {
        self.asks_for_certificates
    }
}

fn certificates(pem: &str) -> std::result::Result<Vec<CertificateDer<'static>>, Cause> {
    Ok(CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<std::result::Result<_, _>>()?)
}

fn roots(pem: &str) -> std::result::Result<RootCertStore, Cause> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

#[cold]
fn unusable(what: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    let cause = match error.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::NoCertificatesPresented) => "there is no certificate in it".to_owned(),
        _ => error.to_string(),
    };
    Error::new(SqlState::CONFIG_FILE_ERROR, format!("{what} cannot be used: {cause}"))
        .with_hint("They are PEM files, the key PKCS #8, PKCS #1 or SEC 1, without a password.")
}

//! Where backups are: a directory, or the URL of a place in an object store.

use crate::disk::ObjectDisk;
use crate::error::cause;
use firn_base::disk::{Disk, RealDisk};
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Error, Result, SqlState};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, ObjectStoreScheme, RetryConfig};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// A request that fails is repeated so often, …
const RETRIES: usize = 10;
/// … and not after this time. One that has timed out is repeated once.
const RETRY_TIME: Duration = Duration::from_secs(TRY_SECONDS + 10);
/// How long one try may take: the library's 30 seconds are too short for 8 MiB over a slow network. Requests without data are given up
/// earlier: see [`store`](crate::store).
const TRY_SECONDS: u64 = 280;

/// The disk and the directory of a place: a path, or a URL as `s3://bucket/path`. Credentials and endpoints are those of the
/// environment. Nothing is requested yet.
///
/// Error: 22023 if it is no URL of a store, has more than a host and a path, or the environment lacks something.
pub fn open(place: &Path) -> Result<(Arc<dyn Disk>, PathBuf)> {
    let Some(text) = place.to_str().filter(|text| text.contains("://")) else {
        return Ok((Arc::new(RealDisk), place.to_owned()));
    };
    let url = Url::parse(text).map_err(|error| {
        let (scheme, _) = text.split_once("://").expect("it was just looked for");
        invalid(&format!("{scheme}://…"), &error.to_string())
    })?;
    // Others may be secrets, such as a signature.
    let shown = format!("{}{}", authority(&url), url.path());
    let parsed = ObjectStoreScheme::parse(&url);
    // Before the host of a URL of Azure's stores is the container.
    let may_have_user = matches!(parsed, Ok((ObjectStoreScheme::MicrosoftAzure, _)));
    if url.password().is_some() || !url.username().is_empty() && !may_have_user {
        return Err(invalid(&shown, "it names a user; credentials are those of the environment"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid(&shown, "something follows the path; write ? and # in a path as %3F and %23"));
    }
    let (scheme, key) = parsed.map_err(|_| invalid(&shown, "FirnDB has no such kind of store"))?;
    if scheme == ObjectStoreScheme::Local {
        let path = url.to_file_path().map_err(|()| invalid(&shown, "it is no local file"))?;
        return Ok((Arc::new(RealDisk), path));
    }
    let objects = store(&scheme, &url).map_err(|error| invalid(&shown, &cause(&error)))?;
    let objects = objects.ok_or_else(|| invalid(&shown, "FirnDB has no such kind of store"))?;
    let root = root_of(&url, &key);
    let directory = PathBuf::from(format!("{root}/{key}"));
    Ok((Arc::new(ObjectDisk::new(&root, objects)?), directory))
}

/// The scheme and the host of a URL, without a user.
fn authority(url: &Url) -> String {
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

/// What of a URL precedes the path in the store.
fn root_of(url: &Url, key: &Key) -> String {
    let parts: Vec<&str> = url.path().split('/').filter(|part| !part.is_empty()).collect();
    // In a URL with https, the path begins with the bucket.
    let of_bucket = parts.len().saturating_sub(key.parts_count());
    let inner = parts[..of_bucket].iter().map(|part| format!("/{part}"));
    inner.fold(authority(url), |root, part| root + &part)
}

fn store(scheme: &ObjectStoreScheme, url: &Url) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    use_tls();
    let retry = RetryConfig {
        backoff: BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() },
        max_retries: RETRIES,
        retry_timeout: RETRY_TIME,
    };
    let (url, timeout, longest) = (url.as_str(), ClientConfigKey::Timeout, format!("{TRY_SECONDS}s"));
    Ok(match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let builder = AmazonS3Builder::from_env().with_url(url).with_retry(retry);
            Some(Arc::new(builder.with_config(AmazonS3ConfigKey::Client(timeout), longest).build()?))
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry);
            Some(Arc::new(builder.with_config(GoogleConfigKey::Client(timeout), longest).build()?))
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry);
            Some(Arc::new(builder.with_config(AzureConfigKey::Client(timeout), longest).build()?))
        }
        _ => None,
    })
}

/// Chooses the cryptography of TLS for the client of HTTP, which has none of its own: the one that the server uses.
fn use_tls() {
    static CHOSEN: OnceLock<()> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        // Another one may have been chosen before.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

#[cold]
fn invalid(url: &str, why: &str) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("\"{url}\" cannot be used: {why}"))
        .with_hint("Write s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, or a directory.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::disk::Medium;

    #[test]
    fn the_root_of_a_store_precedes_the_path_in_it() {
        for (url, root, path) in [
            ("s3://bucket/a/b", "s3://bucket", "a/b"),
            ("s3://bucket/a%20b/", "s3://bucket", "a b"),
            ("s3://bucket", "s3://bucket", ""),
            ("gs://bucket/", "gs://bucket", ""),
            ("az://container/x", "az://container", "x"),
            (
                "https://s3.eu-west-1.amazonaws.com/bucket/a/b",
                "https://s3.eu-west-1.amazonaws.com/bucket",
                "a/b",
            ),
            ("https://bucket.s3.amazonaws.com/a/b", "https://bucket.s3.amazonaws.com", "a/b"),
            ("abfss://container@account.dfs.core.windows.net/a", "abfss://account.dfs.core.windows.net", "a"),
            ("s3://key:secret@bucket/a?signature=secret#secret", "s3://bucket", "a"),
        ] {
            let url = Url::parse(url).unwrap();
            let (_, key) = ObjectStoreScheme::parse(&url).unwrap();
            assert_eq!((root_of(&url, &key).as_str(), key.as_ref()), (root, path));
        }
    }

    #[test]
    fn a_place_without_a_scheme_is_a_directory() {
        assert_eq!(open(Path::new("./backups")).unwrap().1, Path::new("./backups"));
        assert_eq!(open(Path::new("file:///var/back%20ups")).unwrap().1, Path::new("/var/back ups"));
        for place in ["ftp://host/path", "http://host/path", "memory:///path", "s3://"] {
            let error = open(Path::new(place)).unwrap_err();
            assert_eq!(error.state(), SqlState::INVALID_PARAMETER_VALUE, "{place}");
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn a_place_with_secrets_is_refused_without_showing_them() {
        for place in [
            "s3://bucket/a?X-Amz-Signature=secret",
            "s3://bucket/a#secret",
            "s3://key:secret@bucket/a",
            "s3://secret@bucket/a",
            "az://container:secret@account.blob.core.windows.net/a",
            "https://account.blob.core.windows.net/container/a?sig=secret",
            "file:///var/a?secret",
            "http://user:secret@host/a?secret",
            "s3://user:secret@[bad/a?secret",
        ] {
            let error = open(Path::new(place)).unwrap_err();
            assert_eq!(error.state(), SqlState::INVALID_PARAMETER_VALUE, "{place}");
            assert!(!format!("{error:?} {error}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn a_store_of_s3_is_opened_with_our_time_limits() {
        let (disk, directory) = open(Path::new("s3://bucket/a/b")).unwrap();
        assert_eq!((disk.medium(), directory.to_str()), (Medium::Objects, Some("s3://bucket/a/b")));
    }
}

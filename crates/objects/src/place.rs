//! Where backups are: a directory, or the URL of a place in an object store.

use crate::disk::ObjectDisk;
use firn_base::disk::{Disk, RealDisk};
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Error, Result, SqlState};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreScheme, RetryConfig};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// A request that fails is repeated so often, …
const RETRIES: usize = 10;
/// … and not after this time.
const RETRY_TIME: Duration = Duration::from_secs(20);

/// The disk and the directory of a place: a path, or a URL as `s3://bucket/path`. Credentials and endpoints are those of the
/// environment. Nothing is requested yet.
///
/// Error: 22023 if it is no URL of a store, or the environment lacks something.
pub fn open(place: &Path) -> Result<(Arc<dyn Disk>, PathBuf)> {
    let Some(text) = place.to_str().filter(|text| text.contains("://")) else {
        return Ok((Arc::new(RealDisk), place.to_owned()));
    };
    let url = Url::parse(text).map_err(|error| invalid(text, &error.to_string()))?;
    let (scheme, key) =
        ObjectStoreScheme::parse(&url).map_err(|_| invalid(text, "FirnDB has no such kind of store"))?;
    if scheme == ObjectStoreScheme::Local {
        let path = url.to_file_path().map_err(|()| invalid(text, "it is no local file"))?;
        return Ok((Arc::new(RealDisk), path));
    }
    let objects = store(&scheme, &url).map_err(|error| invalid(text, &error.to_string()))?;
    let objects = objects.ok_or_else(|| invalid(text, "FirnDB has no such kind of store"))?;
    let root = root_of(&url, &key);
    let directory = PathBuf::from(format!("{root}/{key}"));
    Ok((Arc::new(ObjectDisk::new(&root, objects)?), directory))
}

/// What of a URL precedes the path in the store.
fn root_of(url: &Url, key: &Key) -> String {
    let text = url.as_str().trim_end_matches('/');
    let bucket = text.len().saturating_sub(url.path().trim_end_matches('/').len());
    let segments = url.path_segments().map_or(0, |segments| segments.filter(|part| !part.is_empty()).count());
    // In a URL with https, the path begins with the bucket.
    let of_bucket = segments.saturating_sub(key.parts_count());
    let inner: String = url.path().split_inclusive('/').skip(1).take(of_bucket).collect();
    format!("{}{}{}", &text[..bucket], if inner.is_empty() { "" } else { "/" }, inner.trim_end_matches('/'))
}

fn store(scheme: &ObjectStoreScheme, url: &Url) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    use_tls();
    let retry = RetryConfig {
        backoff: BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() },
        max_retries: RETRIES,
        retry_timeout: RETRY_TIME,
    };
    let url = url.as_str();
    Ok(match scheme {
        ObjectStoreScheme::AmazonS3 => {
            Some(Arc::new(AmazonS3Builder::from_env().with_url(url).with_retry(retry).build()?))
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            Some(Arc::new(GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry).build()?))
        }
        ObjectStoreScheme::MicrosoftAzure => {
            Some(Arc::new(MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry).build()?))
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
}

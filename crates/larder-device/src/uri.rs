//! Devices by name: a path or URI in, an open device out.
//!
//! Role: the one list of the kinds of devices that people can name.
//!
//! Invariants: two spellings of one device have the same canonical URI, so that it can be stored
//! and compared. Symbolic links are resolved, but for block devices; ports and host names are
//! spelled out.
//!
//! It does not create devices.

use crate::{
    BlockDevice, IoError, IoErrorKind, IoOp, IoResult,
    file::{FileDevice, FileId, OpenOptions},
    nbd::{NbdDevice, OPEN_TIMEOUT},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The options of opening a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Refuse writes. A device that only allows reading opens in this mode alone.
    pub read_only: bool,
    /// Refuse to share the device with another process that asks for this, too.
    ///
    /// It applies to files and block devices only: NBD has no such notion.
    pub exclusive: bool,
    /// Bypass the page cache if the device allows it. Files and block devices only.
    pub direct: bool,
    /// The time limit of a connection to a server; [`OPEN_TIMEOUT`] by default. NBD only.
    pub timeout: Option<Duration>,
}

/// An open device and its identity.
pub struct OpenedDevice {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Its name in the one canonical form: `file:///…`, `nbd://…` or `nbd+unix:///…`.
    pub canonical_uri: String,
    /// A tag that tells it from other devices; 0 without one.
    ///
    /// It is [`FileDevice::identity`] for files and block devices, and a hash of the canonical URI
    /// for NBD.
    pub identity: u64,
    /// It is a block device.
    pub is_block_device: bool,
    /// The id of the file or block device among those present now; `None` for NBD.
    pub id: Option<FileId>,
    /// The bytes behind the last whole sector, which no request reaches.
    pub cut_bytes: u64,
}

impl std::fmt::Debug for OpenedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenedDevice({}, identity {:#x})", self.canonical_uri, self.identity)
    }
}

/// Opens a device by path or URI.
///
/// The URIs are `file:///PATH`, `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH`.
///
/// # Errors
/// The device's errors; [`IoErrorKind::Unsupported`], with a sentence, for any other scheme.
pub fn open_device(uri_or_path: &str, mode: OpenMode) -> IoResult<OpenedDevice> {
    match scheme_of(uri_or_path) {
        None => open_file(Path::new(uri_or_path), mode),
        Some("file") => {
            let path = uri_or_path.strip_prefix("file://").filter(|path| path.starts_with('/'));
            let path = path.and_then(decode).ok_or_else(|| unknown(uri_or_path))?;
            open_file(&path, mode)
        }
        Some("nbd" | "nbd+unix") => open_nbd(uri_or_path, mode),
        Some("nbds" | "nbds+unix") => {
            let detail = format!(
                "{uri_or_path} is an export over TLS, which Larder does not speak: serve it without TLS, on a Unix socket or \
                 through a tunnel (stunnel, ssh), and write nbd:// or nbd+unix://"
            );
            Err(IoError::new(IoErrorKind::Unsupported, IoOp::Open, 0, 0).with_detail(detail))
        }
        Some(_) => Err(unknown(uri_or_path)),
    }
}

fn unknown(text: &str) -> IoError {
    IoError::new(IoErrorKind::Unsupported, IoOp::Open, 0, 0).with_detail(format!(
        "\"{text}\" names no device: write a path, file:///PATH, nbd://HOST[:PORT]/EXPORT or \
         nbd+unix:///EXPORT?socket=PATH"
    ))
}

/// Returns the scheme, if the text is a URI.
///
/// A path may hold a colon; a scheme is letters, digits and a few signs before `:/`.
fn scheme_of(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    (is_scheme && rest.starts_with("//")).then_some(scheme)
}

fn decode(text: &str) -> Option<PathBuf> {
    crate::nbd::connect::percent_decode(text).map(PathBuf::from)
}

fn open_file(path: &Path, mode: OpenMode) -> IoResult<OpenedDevice> {
    let name = |error: IoError| match &error.detail {
        None => {
            let why = error.errno.map(|errno| std::io::Error::from_raw_os_error(errno).to_string());
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            error.with_detail(format!("{}{why}", path.display()))
        }
        Some(_) => error,
    };
    let given = path;
    let path = path.canonicalize().map_err(|error| name(IoError::from_std(&error, IoOp::Open, 0, 0)))?;
    let options =
        OpenOptions { direct: mode.direct, read_only: mode.read_only, exclusive: mode.exclusive, create_bytes: None };
    let device = FileDevice::open(&path, options).map_err(name)?;
    // A block device keeps its given name: /dev/disk/by-id/… survives a renumbering, its target
    // does not.
    let named = if device.is_block_device() { std::path::absolute(given).unwrap_or(path) } else { path };
    let canonical_uri = format!("file://{}", crate::nbd::connect::percent_encode(&named.to_string_lossy()));
    let (identity, is_block_device, id) = (device.identity(), device.is_block_device(), device.id());
    let cut_bytes = device.cut_bytes();
    Ok(OpenedDevice { device: Arc::new(device), canonical_uri, identity, is_block_device, id, cut_bytes })
}

fn open_nbd(uri: &str, mode: OpenMode) -> IoResult<OpenedDevice> {
    let device = NbdDevice::connect_with(uri, mode.read_only, mode.timeout.unwrap_or(OPEN_TIMEOUT))?;
    if device.info().read_only && !mode.read_only {
        return Err(IoError::new(IoErrorKind::ReadOnly, IoOp::Open, 0, 0).with_detail(format!("{uri} is read-only")));
    }
    let canonical_uri = device.canonical_uri().to_owned();
    let identity = hash(canonical_uri.as_bytes());
    let cut_bytes = device.cut_bytes();
    Ok(OpenedDevice { device, canonical_uri, identity, is_block_device: false, id: None, cut_bytes })
}

/// Hashes with 64-bit FNV-1a: it stays the same for ever, unlike the standard library's hashers.
fn hash(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_name_however_it_is_spelled() {
        let dir = std::env::temp_dir().join(format!("larder-uri-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("a disk:1");
        std::fs::write(&path, vec![0; 8192]).expect("a file");
        let mode = OpenMode::default();
        let plain = open_device(&path.to_string_lossy(), mode).expect("by path");
        let spelled = dir.join(".").join("a disk:1");
        let dotted = open_device(&spelled.to_string_lossy(), mode).expect("by another path");
        let uri = open_device(&plain.canonical_uri, mode).expect("by URI");
        assert_eq!(plain.canonical_uri, dotted.canonical_uri);
        assert_eq!(plain.canonical_uri, uri.canonical_uri);
        assert_eq!(plain.identity, uri.identity);
        assert!(plain.canonical_uri.starts_with("file:///"), "{}", plain.canonical_uri);
        assert_eq!(plain.device.info().size_bytes, 8192);
        std::fs::remove_dir_all(&dir).expect("cleaned");
    }

    #[test]
    fn unknown_schemes_and_missing_files_are_refused_in_a_sentence() {
        for text in ["s3://bucket/key", "http://host/x", "file://host/x"] {
            let error = open_device(text, OpenMode::default()).expect_err(text).to_string();
            assert!(error.contains("nbd+unix:///EXPORT?socket=PATH"), "{error}");
        }
        let error = open_device("/nowhere/at/all", OpenMode::default()).expect_err("no such file").to_string();
        assert!(error.contains("/nowhere/at/all"), "{error}");
        let error = open_device("nbd+unix:///?socket=/nowhere/s", OpenMode::default()).expect_err("no server");
        assert_eq!(error.kind, IoErrorKind::Gone);
    }

    #[test]
    fn a_hash_stays_what_it_is() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}

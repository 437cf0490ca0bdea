//! The computations on a chunk's bytes: the zero test, the fingerprint, compression and its
//! inverse.
//!
//! Invariants: pure computing; a result depends on the bytes and the options alone.
//!
//! It does not decide where a chunk goes.

#![cfg_attr(not(test), deny(clippy::expect_used))]

use larder_format::{Compression, Encoding};
use larder_types::Fingerprint;
use std::cell::RefCell;

/// The fingerprinting and compression of chunks.
#[derive(Clone)]
pub struct Codec {
    key: [u8; 32],
    compression: Compression,
    zstd_level: i32,
    fingerprints: bool,
}

/// An encoded payload.
pub struct Encoded {
    /// The encoding.
    pub encoding: Encoding,
    /// The bytes; `None` for raw, whose bytes are the chunk's own.
    pub bytes: Option<Vec<u8>>,
}

impl Encoded {
    /// Returns the bytes to store; `raw` is the content that was encoded.
    pub fn stored<'a>(&'a self, raw: &'a [u8]) -> &'a [u8] {
        self.bytes.as_deref().unwrap_or(raw)
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Codec {
    /// Returns a codec with a fingerprint key. Without `fingerprints` it computes none.
    pub fn new(key: [u8; 32], compression: Compression, zstd_level: i32, fingerprints: bool) -> Self {
        Codec { key, compression, zstd_level, fingerprints }
    }

    /// Returns the keyed BLAKE3 of a chunk, cut to 128 bits, or `None` if deduplication is off.
    pub fn fingerprint(&self, chunk: &[u8]) -> Option<Fingerprint> {
        if !self.fingerprints {
            return None;
        }
        let hash = blake3::keyed_hash(&self.key, chunk);
        let mut short = [0; 16];
        short.copy_from_slice(&hash.as_bytes()[..16]);
        Some(Fingerprint(short))
    }

    /// Compresses `data`; the result is raw if that does not make it smaller.
    pub fn encode(&self, data: &[u8]) -> Encoded {
        let raw = Encoded { encoding: Encoding::Raw, bytes: None };
        let encoding = match self.compression {
            Compression::Off => return raw,
            Compression::Lz4 => Encoding::Lz4,
            Compression::Zstd => Encoding::Zstd,
        };
        // A result that does not save at least 1/16 is kept raw: it reads back without
        // decompression and without a copy.
        let limit = data.len() - data.len() / 16;
        SCRATCH.with_borrow_mut(|scratch| {
            let bound = lz4::block::compress_bound(data.len()).unwrap_or(data.len()).max(data.len() + 4096);
            if scratch.len() < bound {
                scratch.resize(bound, 0);
            }
            let len = match encoding {
                Encoding::Lz4 => lz4::block::compress_to_buffer(data, None, false, scratch).ok(),
                _ => zstd::bulk::compress_to_buffer(data, scratch, self.zstd_level).ok(),
            };
            match len {
                Some(len) if len < limit => Encoded { encoding, bytes: Some(scratch[..len].to_vec()) },
                _ => raw,
            }
        })
    }
}

/// Decodes `stored` into `out`, which is as long as the content. Returns false if the payload does
/// not give exactly that.
pub fn decode(encoding: Encoding, stored: &[u8], out: &mut [u8]) -> bool {
    match encoding {
        Encoding::Raw => {
            let same = stored.len() == out.len();
            if same {
                out.copy_from_slice(stored);
            }
            same
        }
        Encoding::Lz4 => {
            lz4::block::decompress_to_buffer(stored, Some(out.len() as i32), out).is_ok_and(|len| len == out.len())
        }
        Encoding::Zstd => zstd::bulk::decompress_to_buffer(stored, out).is_ok_and(|len| len == out.len()),
    }
}

/// Returns whether every byte is zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Most chunks differ from zero in their first bytes; then compare by words, which the compiler
    // widens.
    let (head, words, tail) = {
        // SAFETY: any bytes are valid u64s.
        unsafe { bytes.align_to::<u64>() }
    };
    head.iter().all(|&b| b == 0)
        && words.first().is_none_or(|&w| w == 0)
        && words.chunks(64).all(|piece| piece.iter().fold(0, |all, word| all | word) == 0)
        && tail.iter().all(|&b| b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_decodes_again() {
        let text: Vec<u8> = (0..8192_u32).map(|i| (i / 7 % 11) as u8).collect();
        let noise: Vec<u8> = blake3::Hasher::new().finalize_xof_bytes(8192);
        for compression in [Compression::Off, Compression::Lz4, Compression::Zstd] {
            let codec = Codec::new([1; 32], compression, 1, true);
            for data in [&text, &noise] {
                let encoded = codec.encode(data);
                let stored = encoded.bytes.as_deref().unwrap_or(data);
                let mut out = vec![0; data.len()];
                assert!(decode(encoded.encoding, stored, &mut out) && &out == data);
                assert!(encoded.bytes.is_none() || stored.len() < data.len());
                let mut short = vec![0; data.len() - 1];
                assert!(!decode(encoded.encoding, stored, &mut short), "a wrong length is refused");
            }
            assert_eq!(codec.encode(&noise).encoding, Encoding::Raw);
        }
        assert!(Codec::new([1; 32], Compression::Off, 1, false).fingerprint(&text).is_none());
    }

    trait Xof {
        fn finalize_xof_bytes(&self, len: usize) -> Vec<u8>;
    }
    impl Xof for blake3::Hasher {
        fn finalize_xof_bytes(&self, len: usize) -> Vec<u8> {
            let mut bytes = vec![0; len];
            self.finalize_xof().fill(&mut bytes);
            bytes
        }
    }

    #[test]
    fn zero_means_every_byte() {
        let mut bytes = vec![0; 4096];
        assert!(is_zero(&bytes) && is_zero(&bytes[3..77]) && is_zero(&[]));
        for at in [0, 1, 7, 8, 511, 2048, 4095] {
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "byte {at}");
            bytes[at] = 0;
        }
    }
}

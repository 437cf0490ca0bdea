//! Chunks on their way into the cache: their content, the look for a duplicate, and their stored
//! form.
//!
//! A whole chunk is fingerprinted; content that is not known is compressed. If a metadata slot on
//! flash has to confirm that it is known, it counts as known, and the store reads that slot first.
//! This is AustereCache's deduplication path (section 3.1).
//!
//! Invariants: the computation takes the lock of the state for one look, and does not hold it
//! meanwhile.
//!
//! It does not map or store.

use crate::{segment::record::Payload, shared::Shared};
use larder_codec::{Encoded, is_zero};
use larder_core::Fingerprint;

/// The result of computing on a chunk.
pub enum Prepared {
    /// The chunk is all zeroes.
    Zero,
    /// The content was known at the computation, or likely so; it is not compressed.
    Known {
        /// The fingerprint.
        fingerprint: Fingerprint,
    },
    /// The content was not known.
    New {
        /// The fingerprint, unless deduplication is off.
        fingerprint: Option<Fingerprint>,
        /// The encoded payload.
        encoded: Encoded,
    },
}

/// The result of fingerprinting a chunk.
#[derive(Clone, Copy)]
pub(crate) enum Hashed {
    /// The chunk is all zeroes.
    Zero,
    /// The fingerprint, unless deduplication is off.
    Content(Option<Fingerprint>),
}

impl Hashed {
    pub(crate) fn content(self) -> Option<Fingerprint> {
        match self {
            Hashed::Zero => None,
            Hashed::Content(fingerprint) => fingerprint,
        }
    }
}

impl Prepared {
    /// Returns the fingerprint, if there is one.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        match self {
            Prepared::Zero => None,
            Prepared::Known { fingerprint } => Some(*fingerprint),
            Prepared::New { fingerprint, .. } => *fingerprint,
        }
    }

    /// Returns the payload to store; `chunk` is the whole chunk, padded.
    pub(crate) fn payload<'a>(&'a self, chunk: &'a [u8]) -> Payload<'a> {
        match self {
            Prepared::New { encoded, .. } => Payload::of(encoded, chunk),
            Prepared::Zero | Prepared::Known { .. } => Payload::Known(chunk),
        }
    }
}

impl Shared {
    /// Fingerprints a chunk and compresses it if its content is not known. Pure computing, except
    /// for one look at the index.
    pub fn prepare(&self, chunk: &[u8]) -> Prepared {
        let hashed = self.hash(chunk);
        let is_known = hashed.content().is_some_and(|fingerprint| self.state.lock().knows(fingerprint));
        self.prepare_hashed(chunk, hashed, is_known)
    }

    /// Fingerprints a chunk. Pure computing.
    pub(crate) fn hash(&self, chunk: &[u8]) -> Hashed {
        if !self.geometry.store.stores_zeroes() && is_zero(chunk) {
            return Hashed::Zero;
        }
        Hashed::Content(self.codec.fingerprint(self.padded(chunk, &mut Vec::new())))
    }

    /// Compresses a chunk if its content is not known. Pure computing.
    pub(crate) fn prepare_hashed(&self, chunk: &[u8], hashed: Hashed, is_known: bool) -> Prepared {
        match hashed {
            Hashed::Zero => Prepared::Zero,
            Hashed::Content(Some(fingerprint)) if is_known => Prepared::Known { fingerprint },
            Hashed::Content(fingerprint) => {
                Prepared::New { fingerprint, encoded: self.codec.encode(self.padded(chunk, &mut Vec::new())) }
            }
        }
    }

    /// Returns `chunk`, padded with zeroes if it is the volume's short last one.
    pub fn padded<'a>(&self, chunk: &'a [u8], padded: &'a mut Vec<u8>) -> &'a [u8] {
        if chunk.len() == self.geometry.chunk_bytes {
            return chunk;
        }
        padded.extend_from_slice(chunk);
        padded.resize(self.geometry.chunk_bytes, 0);
        padded
    }
}

#[cfg(test)]
mod tests;

//! Chunks on their way into the cache: what their content is, whether it is stored already, and what is stored if it is not.
//!
//! A whole chunk is fingerprinted; content that is not known is compressed. Where a metadata slot on flash has to say whether it is known, it is
//! compressed after that was read, and seldom is then: AustereCache's deduplication path (section 3.1).
//!
//! Invariants: what computes takes the lock of the state for one look, and not while it computes.
//!
//! What it does not do: map, or store.

use crate::{
    codec::{Encoded, is_zero},
    shared::Shared,
    state::State,
    state_lock::StateGuard,
};
use larder_core::{Fingerprint, design::Question};
use std::sync::Arc;

/// What computing found out about a chunk.
pub enum Prepared {
    /// It is all zeroes.
    Zero,
    /// Its content was known when it was computed; it was not compressed.
    Known {
        /// The fingerprint.
        fingerprint: Fingerprint,
    },
    /// The same, but that a metadata slot has to say so: it seldom says otherwise, and then it has to be compressed after all.
    Likely {
        /// The fingerprint.
        fingerprint: Fingerprint,
    },
    /// Its content was not known.
    New {
        /// The fingerprint, unless deduplication is off.
        fingerprint: Option<Fingerprint>,
        /// The encoded payload.
        encoded: Encoded,
    },
}

/// Whether a content is stored, as far as that can be told without reading anything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is not.
    No,
    /// A metadata slot would tell, and likely has it: of new contents one in 512, at most, has a hash that is there.
    Likely,
    /// It is.
    Yes,
}

/// What fingerprinting found out about a chunk.
#[derive(Clone, Copy)]
pub(crate) enum Hashed {
    /// It is all zeroes.
    Zero,
    /// Its fingerprint, unless deduplication is off.
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
    /// Its fingerprint, if it has one.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        match self {
            Prepared::Zero => None,
            Prepared::Known { fingerprint } | Prepared::Likely { fingerprint } => Some(*fingerprint),
            Prepared::New { fingerprint, .. } => *fingerprint,
        }
    }
}

impl Shared {
    /// Fingerprints a chunk and compresses it if its content is not known. Pure computing but for one look at the index.
    pub fn prepare(&self, chunk: &[u8]) -> Prepared {
        let hashed = self.hash(chunk);
        let known = hashed.content().map_or(Known::No, |fingerprint| self.state.lock().knows(fingerprint));
        self.prepare_hashed(chunk, hashed, known)
    }

    /// Fingerprints a chunk. Pure computing.
    pub(crate) fn hash(&self, chunk: &[u8]) -> Hashed {
        if !self.geometry.store.stores_zeroes() && is_zero(chunk) {
            return Hashed::Zero;
        }
        Hashed::Content(self.codec.fingerprint(self.padded(chunk, &mut Vec::new())))
    }

    /// Compresses a chunk if its content is not known. Pure computing.
    pub(crate) fn prepare_hashed(&self, chunk: &[u8], hashed: Hashed, known: Known) -> Prepared {
        match (hashed, known) {
            (Hashed::Zero, _) => Prepared::Zero,
            (Hashed::Content(Some(fingerprint)), Known::Yes) => Prepared::Known { fingerprint },
            (Hashed::Content(Some(fingerprint)), Known::Likely) => Prepared::Likely { fingerprint },
            (Hashed::Content(fingerprint), _) => {
                Prepared::New { fingerprint, encoded: self.codec.encode(self.padded(chunk, &mut Vec::new())) }
            }
        }
    }

    /// What `look` finds of a content, once nothing has to be read for that any more, under the lock that is given to it.
    pub(crate) async fn look_informed<R>(
        self: &Arc<Self>,
        fingerprint: &Fingerprint,
        look: impl FnOnce(StateGuard<'_, State>) -> R,
    ) -> R {
        loop {
            let slot = {
                let state = self.state.lock();
                match state.design.unread(Question::Content(fingerprint)) {
                    None => return look(state),
                    Some(slot) => slot,
                }
            };
            self.inform_of_block(&[slot]).await;
        }
    }

    /// A prepared chunk of which nothing is only likely.
    pub(crate) async fn settled(self: &Arc<Self>, chunk: &[u8], prepared: Prepared) -> Prepared {
        let Prepared::Likely { fingerprint } = prepared else { return prepared };
        let known = self.look_informed(&fingerprint, |mut state| match state.find_duplicate(&fingerprint) {
            Some(_) => Known::Yes,
            None => Known::No,
        });
        let known = known.await;
        self.prepare_hashed(chunk, Hashed::Content(Some(fingerprint)), known)
    }

    /// `chunk`, padded with zeroes where it is the volume's short last one.
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

//! The addresses of each content, on a drive that drops data by itself.
//!
//! A dropped slot loses all addresses that map to it. An address may map to a slot for which it was
//! never stored: its content was gone, or was refused, and came back through another address.
//!
//! Invariants: each address that maps to a noted slot is among those of its content. Some of them
//! may have other contents by now.
//!
//! It does not know the state of the design.

use larder_core::{Fingerprint, Lba, slotted::ChunkSlot};
use std::collections::HashMap;

/// See the module.
#[derive(Default)]
pub(super) struct ContentAddresses {
    of_content: HashMap<Fingerprint, Vec<Lba>>,
    in_slot: HashMap<ChunkSlot, Fingerprint>,
}

impl ContentAddresses {
    /// Notes that `lba` has this content, with data or without.
    pub fn note(&mut self, lba: Lba, content: &Fingerprint) {
        let addresses = self.of_content.entry(*content).or_default();
        if !addresses.contains(&lba) {
            addresses.push(lba);
        }
    }

    /// Notes that a slot has this content now.
    ///
    /// Addresses of the content before stay if the design `knows` them with it.
    pub fn stored(&mut self, slot: ChunkSlot, content: &Fingerprint, knows: impl Fn(Lba, &Fingerprint) -> bool) {
        let Some(before) = self.in_slot.insert(slot, *content).filter(|before| before != content) else { return };
        if let Some(addresses) = self.of_content.get_mut(&before) {
            addresses.retain(|&lba| knows(lba, &before));
            if addresses.is_empty() {
                self.of_content.remove(&before);
            }
        }
    }

    /// Returns the addresses that may map to a slot.
    pub fn of_slot(&self, slot: ChunkSlot) -> Vec<Lba> {
        let content = self.in_slot.get(&slot);
        content.and_then(|content| self.of_content.get(content)).cloned().unwrap_or_default()
    }
}

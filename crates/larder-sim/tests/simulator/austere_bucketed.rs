//! AustereCache as an engine runs it, against its replay.
//!
//! It runs over a metadata region and with dirty chunks apart. Hits, chunks and bytes are the same,
//! request for request, in each write policy, among collisions.

use crate::common::{Rng, for_seeds};
use larder_core::{
    Decider, Fingerprint, Lba, Lookup, NewMapping, Place, SlotId, StreamClass,
    austere::{AustereConfig, Bucketed, bucketed::BucketedConfig},
    design::{Question, Wanted},
    region::{METADATA_SLOT_BYTES, RegionEntry},
};
use larder_sim::{
    austere::AustereCache,
    cache::{Content, ReplayCache, WritePolicy},
    traffic::Traffic,
};
use std::{collections::BTreeMap, sync::Arc};

const CHUNK: u32 = 32 << 10;
const SUBCHUNK: u32 = 8 << 10;
const CHUNKS: u64 = 400;

/// The work of an engine, with one request at a time and all its work done before the next.
struct Engine {
    design: Decider<Bucketed>,
    policy: WritePolicy,
    region: BTreeMap<SlotId, Arc<RegionEntry>>,
    traffic: Traffic,
    seq: u64,
    /// True if the design looks up a hit without metadata slots, as in an engine with a shared
    /// lock.
    is_short: bool,
    /// Metadata slots that were read to look an address up.
    address_reads: u64,
}

impl Engine {
    fn new(austere: AustereConfig, policy: WritePolicy, is_short: bool) -> Engine {
        let config = BucketedConfig { austere, chunk_count: CHUNKS, exact_max: CHUNKS };
        let design = Decider::new(Box::new(Bucketed::new(config).expect("a layout")));
        Engine {
            design,
            policy,
            region: BTreeMap::new(),
            traffic: Traffic::default(),
            seq: 0,
            is_short,
            address_reads: 0,
        }
    }

    fn inform(&mut self, question: Question<'_>) {
        while let Some(slot) = self.design.unread(question) {
            self.count_region_read(question);
            self.design.tell(slot, self.region.get(&slot).cloned());
        }
    }

    fn count_region_read(&mut self, question: Question<'_>) {
        self.traffic.flash_metadata_bytes_read += u64::from(METADATA_SLOT_BYTES);
        self.address_reads += u64::from(matches!(question, Question::Address(_)));
    }

    fn lookup(&mut self, lba: Lba) -> Lookup {
        let question = Question::Address(lba);
        if self.is_short {
            let mut hit = self.design.hit(lba);
            if let (None, Some(slot)) = (hit, self.design.unread(question)) {
                self.count_region_read(question);
                let entry = self.region.get(&slot).cloned();
                hit = entry.as_ref().and_then(|entry| self.design.hit_with(lba, slot, entry));
                if hit.is_none() {
                    self.design.tell(slot, entry);
                }
            }
            if let Some(hit) = hit {
                self.design.used(&[hit.used]);
                return Lookup::Chunk { place: hit.place, duplicate: false };
            }
        }
        self.inform(question);
        self.design.lookup(lba)
    }

    fn read(&mut self, lba: Lba, content: &Content) -> bool {
        match self.lookup(lba) {
            Lookup::Chunk { place, .. } => {
                let entry = self.region.get(&place.slot).expect("it is on flash");
                assert_eq!(*entry.metadata.fingerprint(), content.fingerprint, "another content");
                self.traffic.flash_data_bytes_read += run_bytes(&place);
                true
            }
            Lookup::Miss => {
                self.insert(lba, content, false);
                false
            }
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, lba: Lba, content: &Content) {
        match self.policy {
            WritePolicy::Around => {
                self.design.unmap(lba);
            }
            WritePolicy::Through => {
                self.design.suspend(lba);
                self.insert(lba, content, false);
            }
            WritePolicy::Back => self.insert(lba, content, true),
        }
    }

    fn insert(&mut self, lba: Lba, content: &Content, is_dirty: bool) {
        self.seq += 1;
        let fingerprint = content.fingerprint;
        let place = loop {
            self.inform(Question::Content(&fingerprint));
            if let Some(place) = self.design.find_duplicate(&fingerprint) {
                self.traffic.chunks_deduplicated += 1;
                self.design.map(lba, NewMapping::Duplicate { place }, is_dirty.then_some(self.seq));
                break place;
            }
            let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len: content.stored_bytes };
            if let Some((slot, generation)) = self.design.open_slot_for(StreamClass::Clean, &wanted) {
                let stored_len = content.stored_bytes;
                let place = Place { slot, generation, offset: 0, stored_len, crc: 0, encoding: 0 };
                self.traffic.chunks_stored += 1;
                self.traffic.flash_data_bytes_written += run_bytes(&place);
                let new = NewMapping::Unique { place, fingerprint: Some(fingerprint) };
                self.design.map(lba, new, is_dirty.then_some(self.seq));
                break place;
            }
            while let Some(victim) = self.design.choose_victim(&mut |_| false) {
                self.design.evict(victim.slot).expect("nothing is dirty any more");
                self.design.release_slot(victim.slot);
                self.traffic.chunks_evicted += 1;
            }
        };
        // No crash comes: log and origin have all of it at once.
        self.design.settle(lba, true);
        self.design.committed(self.seq + 1);
        while let Some(entry) = self.design.next_changed_entry() {
            self.traffic.flash_metadata_bytes_written += u64::from(METADATA_SLOT_BYTES);
            self.region.insert(entry.place.slot, entry.clone());
            self.design.entry_written(&entry);
        }
        if is_dirty {
            // At once, so that no chunk that the indices lose stays readable.
            assert!(self.design.mark_clean(lba, self.seq), "{place:?}");
        }
    }
}

fn run_bytes(place: &Place) -> u64 {
    u64::from(place.stored_len.div_ceil(SUBCHUNK).max(1) * SUBCHUNK)
}

#[test]
fn an_engine_and_a_replay_decide_alike() {
    for_seeds(0..12, |seed| {
        for policy in [WritePolicy::Through, WritePolicy::Around, WritePolicy::Back] {
            for (bucket_slots, prefix_bits) in [(8, 2), (16, 4), (128, 16)] {
                let config = AustereConfig {
                    bucket_slots,
                    prefix_bits,
                    lba_entries: Some(256),
                    ..AustereConfig::new(2 << 20, CHUNK, true)
                };
                let mut replay = AustereCache::new(config, policy).expect("a layout");
                let mut engines = [false, true].map(|is_short| Engine::new(config, policy, is_short));
                let mut rng = Rng::new(seed);
                let mut volume: Vec<u64> = (0..CHUNKS).map(|lba| lba % 150).collect();
                for step in 0..4000 {
                    let lba = rng.below(CHUNKS);
                    let at = Lba(lba);
                    let of = |number: u64| Content {
                        fingerprint: Fingerprint(u128::from(number + 1).to_le_bytes()),
                        stored_bytes: 1 + (number * 7919 % u64::from(CHUNK)) as u32,
                    };
                    if rng.below(3) == 0 {
                        volume[lba as usize] = rng.below(300);
                        let content = of(volume[lba as usize]);
                        replay.write(at, &content);
                        engines.iter_mut().for_each(|engine| engine.write(at, &content));
                    } else {
                        let content = of(volume[lba as usize]);
                        let hits = engines.each_mut().map(|engine| engine.read(at, &content));
                        assert_eq!(hits, [replay.read(at, &content); 2], "{policy:?}, step {step}");
                    }
                    let Traffic { chunks_stored, chunks_deduplicated, chunks_evicted, .. } = replay.traffic();
                    for Engine { traffic: t, is_short, .. } in &engines {
                        assert_eq!(
                            (chunks_stored, chunks_deduplicated, chunks_evicted),
                            (t.chunks_stored, t.chunks_deduplicated, t.chunks_evicted),
                            "{policy:?}, {prefix_bits} bits, step {step}, short: {is_short}"
                        );
                    }
                }
                let a = replay.traffic();
                for Engine { traffic: b, .. } in &engines {
                    assert_eq!(a.flash_data_bytes_written, b.flash_data_bytes_written);
                    assert_eq!(a.flash_metadata_bytes_written, b.flash_metadata_bytes_written);
                    // An engine does not read a metadata slot again for a duplicate if it just read
                    // or wrote it.
                    assert!(
                        b.flash_metadata_bytes_read <= a.flash_metadata_bytes_read + a.flash_metadata_bytes_written
                    );
                }
                let [long, short] = &engines;
                // The lookup of a clean chunk reads once, unless the search for a duplicate just
                // read the slot. The long way keeps the slots that it read, so that the search for
                // a duplicate reads nothing.
                let (long, short) = (long.address_reads, short.address_reads);
                assert!(
                    long.abs_diff(short) * 50 <= long,
                    "{policy:?}: {short} or {long} lookups read a metadata slot"
                );
            }
        }
    });
}

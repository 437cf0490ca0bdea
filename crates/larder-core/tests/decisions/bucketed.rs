//! AustereCache over a metadata region and data slots, with calls as from an engine, among
//! collisions.
//!
//! There are evictions, destages and restarts. A lookup finds the content that was put, and all
//! dirty content. No slot is lost, and no run has two owners.
//!
//! The region is a table here, whose slots are written some time after their change. A restart
//! replays the log over an older checkpoint with parts of different moments. An orderly one replays
//! all of it, and a crash the committed part. A crash leaves each metadata slot with its content of
//! the last commit, or of any write since. The origin then lacks write-through data without a
//! flush, as after a failed flush. If a lookup finds unlogged content then, the origin must have
//! it.

use larder_core::{
    Decider, Fingerprint, Lba, Lookup, NewMapping, Place, SectorMap, SlotId, StreamClass,
    austere::{AustereConfig, Bucketed, bucketed::BucketedConfig},
    design::{Hit, Mapping, Persist, Question, Slots, ToldBy, Wanted},
    ranges::Run,
    region::RegionEntry,
    types::mix,
};
use std::{collections::BTreeMap, sync::Arc};

const CHUNKS: u64 = 300;
const CHUNK_BYTES: u32 = 32 << 10;

/// The data of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Content(u64),
    Part(u64),
    Zero,
}

/// A log entry with the data for a restart.
#[derive(Clone, Debug)]
enum Logged {
    Map(Lba, NewMapping, Option<Fingerprint>, Option<u64>),
    Unmap(Lba),
    Trim(Run),
    Clean(Lba, u64),
    Freed(SlotId, u32),
}

impl Logged {
    /// Returns the generation of the entry's data slot.
    fn generation(&self) -> Option<u32> {
        match self {
            Logged::Map(
                _,
                NewMapping::Unique { place, .. } | NewMapping::Duplicate { place } | NewMapping::Fragment { place, .. },
                ..,
            ) => Some(place.generation),
            _ => None,
        }
    }
}

/// The state after a commit.
#[derive(Default)]
struct Committed {
    log: usize,
    region: BTreeMap<SlotId, Arc<RegionEntry>>,
    volume: BTreeMap<Lba, (Holds, Option<u64>)>,
}

/// A clean mapping that is not logged yet.
#[derive(Clone, Copy)]
struct Unsettled {
    lba: Lba,
    new: NewMapping,
    content: Option<Fingerprint>,
    /// True if the origin may lose it.
    is_written: bool,
}

struct Checkpoint {
    pages: Vec<Vec<u8>>,
    exact: Exported,
}

/// Dirty chunks, fragments and trimmed runs of a checkpoint.
struct Exported {
    mappings: Vec<larder_core::design::ExportedMapping>,
    runs: Vec<Run>,
}

/// A checkpoint in progress, with parts of different moments.
struct Making {
    /// The log's length at its beginning.
    begun: usize,
    exact: Option<Exported>,
    pages: Option<Vec<Vec<u8>>>,
}

struct World {
    config: BucketedConfig,
    design: Decider<Bucketed>,
    /// Entries by first slot.
    region: BTreeMap<SlotId, Arc<RegionEntry>>,
    /// Generation and content of the data slots, by first slot.
    data: BTreeMap<SlotId, (u32, u64)>,
    /// The newest known generation of a data slot. Each use of a slot gets a newer one, so content
    /// of an earlier use never passes for this use's.
    newest_generation: Option<u32>,
    /// The data of each address.
    volume: BTreeMap<Lba, (Holds, Option<u64>)>,
    /// The known content of the origin.
    origin: BTreeMap<Lba, Holds>,
    log: Vec<Logged>,
    /// Clean mappings that wait for the origin.
    unsettled: Vec<Unsettled>,
    /// The last commit: log, region, and data of each address.
    committed: Committed,
    /// Metadata slots that changed and are not written yet, in order.
    outbox: Vec<SlotId>,
    /// Writes of each metadata slot since the last commit.
    since: BTreeMap<SlotId, Vec<Arc<RegionEntry>>>,
    making: Option<Making>,
    checkpoint: Option<Checkpoint>,
    /// Recently freed-ahead slots.
    freed: Vec<SlotId>,
    seq: u64,
    region_reads: u64,
    seen: BTreeMap<&'static str, u64>,
}

fn fingerprint(content: u64) -> Fingerprint {
    Fingerprint((u128::from(mix(content)) << 64 | u128::from(content)).to_le_bytes())
}

fn stored_len(content: u64) -> u32 {
    1 + (mix(content ^ 77) % u64::from(CHUNK_BYTES)) as u32
}

fn exported(design: &Decider<Bucketed>) -> Exported {
    let mappings = (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece)).collect();
    Exported { mappings, runs: design.export_runs() }
}

fn exported_pages(design: &Decider<Bucketed>) -> Vec<Vec<u8>> {
    (0..design.page_count()).map(|page| design.export_page(page)).collect()
}

impl World {
    fn new(bucket_slots: u32, prefix_bits: u32) -> World {
        let austere = AustereConfig {
            bucket_slots,
            prefix_bits,
            lba_entries: Some(256),
            ..AustereConfig::new(2 << 20, CHUNK_BYTES, true)
        };
        let config = BucketedConfig { austere, chunk_count: CHUNKS, exact_max: 200 };
        World {
            config,
            design: Decider::new(Box::new(Bucketed::new(config).expect("a layout"))),
            region: BTreeMap::new(),
            data: BTreeMap::new(),
            newest_generation: None,
            volume: BTreeMap::new(),
            origin: BTreeMap::new(),
            log: Vec::new(),
            unsettled: Vec::new(),
            committed: Committed::default(),
            outbox: Vec::new(),
            since: BTreeMap::new(),
            making: None,
            checkpoint: None,
            freed: Vec::new(),
            seq: 0,
            region_reads: 0,
            seen: BTreeMap::new(),
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_insert(0) += 1;
    }

    /// Reads the metadata that the design needs.
    fn inform(&mut self, question: Question<'_>) {
        for _ in 0..3 {
            let Some(slot) = self.design.unread(question) else { return };
            self.region_reads += 1;
            let entry = self.region.get(&slot).cloned();
            self.design.tell(slot, entry);
        }
        panic!("it asks for the same slot again and again");
    }

    /// Returns the chunk of `lba`, without a change of the design.
    fn hit(&mut self, lba: Lba) -> Option<Hit> {
        if let Some(hit) = self.design.hit(lba) {
            return Some(hit);
        }
        let slot = self.design.unread(Question::Address(lba))?;
        let entry = self.region.get(&slot)?;
        // An entry of another slot, or none, is no hit for any list.
        let other = RegionEntry { place: Place { slot: SlotId(slot.0 + 1), ..entry.place }, ..(**entry).clone() };
        assert_eq!(self.design.hit_with(lba, slot, &other), None, "{lba:?}");
        self.design.hit_with(lba, slot, entry).inspect(|_| *self.seen.entry("short way").or_insert(0) += 1)
    }

    /// Compares the design's count of cached chunks with the lookups of all addresses.
    fn count(&mut self) {
        let is_found = |lba: Lba| match self.design.peek(lba) {
            Lookup::Zero => false,
            Lookup::Chunk { .. } | Lookup::Fragment { .. } => true,
            Lookup::Miss => {
                let slot = self.design.unread(Question::Address(lba));
                let entry = slot.and_then(|slot| Some((slot, self.region.get(&slot)?)));
                entry.is_some_and(|(slot, entry)| self.design.hit_with(lba, slot, entry).is_some())
            }
        };
        let found = (0..CHUNKS).filter(|&lba| is_found(Lba(lba))).count() as u64;
        *self.seen.entry("chunks found").or_insert(0) += found;
        *self.seen.entry("chunks said").or_insert(0) += self.design.stats().mapped_chunks;
        *self.seen.entry("entries").or_insert(0) += self.design.stats().lba_index_entries;
    }

    /// Writes all changed slots, or some of them now and the rest later.
    fn write_region(&mut self, all: bool) {
        while let Some(entry) = self.design.next_changed_entry() {
            self.outbox.push(entry.place.slot);
        }
        let salt = self.seq << 8 | self.region_reads & 255;
        for (at, slot) in std::mem::take(&mut self.outbox).into_iter().enumerate() {
            if !all && mix(salt ^ (at as u64) << 40).is_multiple_of(2) {
                self.outbox.push(slot);
                continue;
            }
            let Some(entry) = self.design.entry_to_write(slot) else { continue };
            self.region.insert(slot, entry.clone());
            self.since.entry(slot).or_default().push(entry.clone());
            self.design.entry_written(&entry);
        }
    }

    fn log(&mut self, entry: Logged) {
        self.log.push(entry);
    }

    /// Commits all decisions, and writes the slots that waited for that.
    fn commit(&mut self) {
        self.write_region(true);
        self.committed = Committed { log: self.log.len(), region: self.region.clone(), volume: self.volume.clone() };
        self.since.clear();
        self.design.committed(self.seq + 1);
        self.write_region(false);
    }

    /// Flushes the origin, and logs its clean mappings.
    fn flush_origin(&mut self) {
        for Unsettled { lba, new, content, .. } in std::mem::take(&mut self.unsettled) {
            let (NewMapping::Unique { place, .. } | NewMapping::Duplicate { place }) = new else { continue };
            let is_its = content.is_some_and(|content| self.design.maps_to(lba, &place, &content));
            let is_mapped = is_its && self.design.dirty_seq(lba).is_none();
            if self.design.held_at(lba) == Some(place.slot) {
                self.design.settle(lba, is_mapped);
                self.note("settled");
                self.write_region(false);
            }
            if is_mapped {
                self.design.keep(place.slot);
                self.log(Logged::Map(lba, new, content, None));
            }
        }
    }

    /// Fails a flush of the origin, which loses its unflushed writes. Mappings that waited for it
    /// are forgotten, if they still exist.
    fn fail_origin_flush(&mut self) {
        for Unsettled { lba, new, content, is_written } in std::mem::take(&mut self.unsettled) {
            let (NewMapping::Unique { place, .. } | NewMapping::Duplicate { place }) = new else { continue };
            let is_its = content.is_some_and(|content| self.design.maps_to(lba, &place, &content));
            if is_written && self.is_clean_of(lba) {
                self.origin.remove(&lba);
                self.volume.remove(&lba);
            }
            if is_its && self.design.dirty_seq(lba).is_none() {
                if self.design.unmap(lba) {
                    self.log(Logged::Unmap(lba));
                }
            } else if self.design.held_at(lba) == Some(place.slot) {
                // As in the engine (`larder-engine/src/unflushed.rs`): it waits no longer.
                self.design.settle(lba, false);
            }
        }
        self.commit();
        assert_eq!(self.design.held_entries(), 0, "nothing waits for the log or the origin any more");
        self.note("origin flush failed");
    }

    fn is_clean_of(&self, lba: Lba) -> bool {
        self.volume.get(&lba).is_none_or(|(_, seq)| seq.is_none())
    }

    fn read(&mut self, lba: Lba) {
        let (hit, reads) = (self.hit(lba), self.region_reads);
        self.inform(Question::Address(lba));
        let peeked = self.design.peek(lba);
        let found = self.design.lookup(lba);
        assert_eq!(peeked, found, "{lba:?}");
        let place = match found {
            Lookup::Chunk { place, .. } => Some(place),
            _ => None,
        };
        // An entry that was read and told for this lookup has no short way.
        if hit.is_some() || self.region_reads > reads {
            assert_eq!(hit.map(|hit| hit.place), place, "{lba:?}: the short way and the long one differ");
        }
        if let Some(hit) = hit {
            assert_eq!((hit.used.lba, self.design.slot_of(lba)), (lba, Some(hit.used.slot)));
        }
        let holds = self.volume.get(&lba).copied();
        match (found, holds) {
            (Lookup::Miss, holds) => {
                assert!(holds.is_none_or(|(_, seq)| seq.is_none()), "{lba:?} is dirty and missed");
                self.note("miss");
            }
            (Lookup::Zero, Some((Holds::Zero, Some(_)))) => self.note("zero"),
            (Lookup::Chunk { place, .. }, Some((Holds::Content(content), seq))) => {
                assert_eq!(self.data.get(&place.slot), Some(&(place.generation, content)), "{lba:?} at {place:?}");
                self.note(if seq.is_some() { "dirty hit" } else { "hit" });
            }
            (Lookup::Fragment { place, sectors }, Some((Holds::Part(content), Some(_)))) => {
                assert_eq!(self.data.get(&place.slot), Some(&(place.generation, content)), "{lba:?} at {place:?}");
                assert!(sectors.has(content as usize % 64));
                self.note("fragment");
            }
            other => panic!("{lba:?}: {other:?}"),
        }
    }

    /// Puts content, or a part, at an address.
    fn put(&mut self, lba: Lba, holds: Holds, is_dirty: bool) {
        self.put_written(lba, holds, is_dirty, false);
    }

    /// Puts as [`World::put`]; `is_written` is true after a write of the origin without a flush.
    fn put_written(&mut self, lba: Lba, holds: Holds, is_dirty: bool, is_written: bool) {
        let (content, is_part) = match holds {
            Holds::Content(content) => (content, false),
            Holds::Part(content) => (content, true),
            Holds::Zero => unreachable!("zeroes are trimmed"),
        };
        let fingerprint = (!is_part).then(|| fingerprint(content));
        if is_dirty && !self.design.has_room(1) {
            self.destage_some(100);
        }
        for turn in 0.. {
            assert!(turn < 40, "no room for {holds:?}");
            if let Some(fingerprint) = &fingerprint {
                self.inform(Question::Content(fingerprint));
                if let Some(place) = self.design.find_duplicate(fingerprint) {
                    assert_eq!(self.data.get(&place.slot), Some(&(place.generation, content)), "a wrong duplicate");
                    self.note("duplicate");
                    let new = NewMapping::Duplicate { place };
                    return self.map(lba, new, Some(*fingerprint), (holds, is_dirty, is_written));
                }
            }
            let stored_len = stored_len(content);
            let wanted = Wanted { lba, fingerprint, stored_len };
            if let Some((slot, generation)) = self.design.open_slot_for(StreamClass::Clean, &wanted) {
                assert!(Some(generation) > self.newest_generation, "generation {generation} is used a second time");
                self.newest_generation = Some(generation);
                let slots = stored_len.div_ceil(CHUNK_BYTES / 4);
                for at in slot.0..slot.0 + slots {
                    self.data.remove(&SlotId(at));
                }
                self.data.insert(slot, (generation, content));
                let place = Place { slot, generation, offset: 0, stored_len, crc: 0, encoding: 1 };
                let mut sectors = SectorMap::EMPTY;
                sectors.set(content as usize % 64, content as usize % 64 + 1);
                let new = match is_part {
                    true => NewMapping::Fragment { place, sectors },
                    false => NewMapping::Unique { place, fingerprint },
                };
                return self.map(lba, new, fingerprint, (holds, is_dirty, is_written));
            }
            assert_eq!(self.design.free_slots(), 0);
            if !self.reuse(lba) {
                self.evict();
            }
        }
    }

    /// Frees some slots ahead in the log.
    fn free_ahead(&mut self) {
        for slot in self.design.likely_victims(8) {
            for lba in self.design.dirty_in(slot) {
                if !mix(self.seq ^ lba.0).is_multiple_of(4) {
                    self.destage(lba);
                }
            }
            if !self.outbox.contains(&slot)
                && let Some(generation) = self.design.free_ahead(slot, self.log.len() as u64)
            {
                self.log(Logged::Freed(slot, generation));
                self.freed.push(slot);
                self.note("freed ahead");
            }
        }
        self.design.check();
    }

    /// Reuses the slots in the way of the waiting record of `lba`, if all were freed ahead.
    fn reuse(&mut self, lba: Lba) -> bool {
        let slots = self.design.in_the_way(lba);
        let durable_below = self.committed.log as u64;
        let mut can_go = |slot| self.design.is_freed(slot, durable_below) && !self.outbox.contains(&slot);
        if slots.is_empty() || !slots.iter().all(|&slot| can_go(slot)) {
            return false;
        }
        self.design.reuse(&slots);
        self.note("reused");
        true
    }

    fn map(
        &mut self,
        lba: Lba,
        new: NewMapping,
        content: Option<Fingerprint>,
        (holds, is_dirty, is_written): (Holds, bool, bool),
    ) {
        self.seq += 1;
        let seq = is_dirty.then_some(self.seq);
        self.design.map(lba, new, seq);
        self.write_region(false);
        self.unsettled.retain(|unsettled| unsettled.lba != lba);
        if is_dirty {
            self.log(Logged::Map(lba, new, content, seq));
        } else {
            self.origin.insert(lba, holds);
            self.unsettled.push(Unsettled { lba, new, content, is_written });
        }
        self.volume.insert(lba, (holds, seq));
    }

    fn evict(&mut self) {
        let mut victims = Vec::new();
        while let Some(victim) = self.design.choose_victim(&mut |slot| slot.0 % 97 == 96 && victims.len() % 2 == 1) {
            victims.push(victim.slot);
        }
        for slot in victims {
            for lba in self.design.dirty_in(slot) {
                // Sometimes a slot cannot leave.
                if !mix(self.seq ^ lba.0).is_multiple_of(4) {
                    self.destage(lba);
                }
            }
            match self.design.evict(slot) {
                Some(generation) => {
                    self.log(Logged::Freed(slot, generation));
                    self.commit();
                    self.note("evicted");
                    self.design.release_slot(slot);
                }
                None => {
                    self.seq += 1;
                    self.note("spared");
                    self.design.spare_victim(slot);
                }
            }
        }
    }

    fn destage(&mut self, lba: Lba) {
        let Some(seq) = self.design.dirty_seq(lba) else { return };
        self.commit();
        assert!(self.design.mark_clean(lba, seq));
        self.log(Logged::Clean(lba, seq));
        let held = self.volume.get_mut(&lba).expect("what is dirty is known");
        assert_eq!(held.1, Some(seq));
        held.1 = None;
        let holds = held.0;
        self.origin.insert(lba, holds);
        if let Holds::Part(_) = holds {
            // The origin has all of it, with content that the model does not know.
            self.volume.remove(&lba);
            self.origin.remove(&lba);
        }
    }

    fn destage_some(&mut self, count: usize) {
        for (lba, _) in self.design.dirty_from(Lba(0), count) {
            self.destage(lba);
        }
    }

    /// Writes other content to the origin, without a flush; forgets the cached one, and may map it
    /// anew.
    fn write_through(&mut self, lba: Lba, content: Option<u64>) {
        self.forgotten(lba, |design| design.suspend(lba));
        self.unsettled.retain(|unsettled| unsettled.lba != lba);
        self.volume.remove(&lba);
        self.origin.remove(&lba);
        self.read(lba);
        if let Some(content) = content {
            self.put_written(lba, Holds::Content(content), false, true);
        }
    }

    /// Inserts the origin's content after a read miss: `content`, if the model does not know it.
    fn fill(&mut self, lba: Lba, content: u64) {
        self.inform(Question::Address(lba));
        if self.design.lookup(lba) == Lookup::Miss {
            let holds = match self.volume.get(&lba) {
                Some((holds @ Holds::Content(_), None)) => *holds,
                _ => Holds::Content(content),
            };
            // The origin may still lose it if it could before.
            let was_written = self.unsettled.iter().any(|unsettled| unsettled.lba == lba && unsettled.is_written);
            self.put_written(lba, holds, false, was_written);
        }
    }

    /// Inserts zeroes after a read miss, if the origin is unknown. They are not kept.
    fn fill_zero(&mut self, lba: Lba) {
        self.inform(Question::Address(lba));
        if self.design.lookup(lba) == Lookup::Miss && !self.volume.contains_key(&lba) {
            self.design.map(lba, NewMapping::Zero, None);
            self.note("clean zeroes");
        }
    }

    /// Forgets an address before a write of the origin. That is durable if a crash could bring it
    /// back, with all that was forgotten before.
    fn forgotten(&mut self, lba: Lba, forget: impl FnOnce(&mut Decider<Bucketed>) -> bool) {
        match forget(&mut self.design) {
            true => self.log(Logged::Unmap(lba)),
            false => self.note("nothing to forget"),
        }
        self.commit();
    }

    /// Writes the origin past the cache.
    fn unmap(&mut self, lba: Lba) {
        self.forgotten(lba, |design| design.unmap(lba));
        self.unsettled.retain(|unsettled| unsettled.lba != lba);
        self.volume.remove(&lba);
        self.origin.remove(&lba);
    }

    fn trim(&mut self, first: Lba, count: u64) {
        self.seq += 1;
        let run = Run::new(first, count, self.seq);
        self.design.trim(run);
        self.log(Logged::Trim(run));
        self.unsettled.retain(|unsettled| !(first.0..first.0 + count).contains(&unsettled.lba.0));
        (first.0..first.0 + count).for_each(|lba| {
            self.volume.insert(Lba(lba), (Holds::Zero, Some(run.seq)));
        });
    }

    fn checkpoint(&mut self) {
        self.checkpoint_begins();
        self.checkpoint_ends();
    }

    /// Begins a checkpoint; the log from here on is replayed over it, and its parts come later.
    fn checkpoint_begins(&mut self) {
        self.design.begin_export();
        self.making = Some(Making { begun: self.log.len(), exact: None, pages: None });
    }

    /// Adds the next part of the checkpoint in progress, in the order of an engine, or ends it.
    fn checkpoint_goes_on(&mut self) {
        match &mut self.making {
            Some(Making { exact: exact @ None, .. }) => *exact = Some(exported(&self.design)),
            Some(Making { pages: pages @ None, .. }) => *pages = Some(exported_pages(&self.design)),
            _ => self.checkpoint_ends(),
        }
    }

    /// Ends a checkpoint: all decisions are durable, and the log before it is dropped.
    fn checkpoint_ends(&mut self) {
        let Some(Making { begun, exact, pages }) = self.making.take() else { return };
        let exact = exact.unwrap_or_else(|| exported(&self.design));
        let pages = pages.unwrap_or_else(|| exported_pages(&self.design));
        self.flush_origin();
        self.commit();
        self.checkpoint = Some(Checkpoint { pages, exact });
        self.log.drain(..begun);
        self.committed.log = self.log.len();
        self.design.export_is_durable();
        self.note("checkpoint");
    }

    /// Restarts in order.
    fn restart(&mut self) {
        self.flush_origin();
        self.commit();
        self.write_region(true);
        self.making = None;
        let before: BTreeMap<Lba, Lookup> = (0..CHUNKS)
            .map(|lba| {
                self.inform(Question::Address(Lba(lba)));
                (Lba(lba), self.design.peek(Lba(lba)))
            })
            .collect();
        self.recover();
        let mut kept = 0;
        for (lba, was) in &before {
            self.inform(Question::Address(*lba));
            kept += u64::from(self.design.peek(*lba) == *was && *was != Lookup::Miss);
            self.read(*lba);
        }
        let found = before.values().filter(|was| **was != Lookup::Miss).count() as u64;
        *self.seen.entry("kept").or_insert(0) += kept;
        *self.seen.entry("had").or_insert(0) += found;
        self.note("restart");
    }

    /// Restarts with the durable state, and a part of the later one.
    fn crash(&mut self) {
        let Committed { log, region, volume } = std::mem::take(&mut self.committed);
        self.log.truncate(log);
        for (slot, entry) in std::mem::take(&mut self.region) {
            let mut since = self.since.remove(&slot).unwrap_or_default();
            since.extend(region.get(&slot).cloned());
            assert!(since.contains(&entry));
            let left = mix(self.seq ^ u64::from(slot.0) << 20) as usize % since.len();
            if since.len() > 2 {
                self.note("written again and again");
            }
            if region.contains_key(&slot) || !mix(self.seq ^ u64::from(slot.0) << 28).is_multiple_of(2) {
                self.region.insert(slot, since.swap_remove(left));
            }
        }
        self.since.clear();
        self.outbox.clear();
        self.making = None;
        for Unsettled { lba, is_written, .. } in std::mem::take(&mut self.unsettled) {
            if is_written && mix(self.seq ^ lba.0).is_multiple_of(2) {
                self.origin.remove(&lba);
            }
        }
        // Clean content is the origin's.
        self.volume = volume.into_iter().filter(|(_, (_, seq))| seq.is_some()).collect();
        for (lba, holds) in &self.origin {
            self.volume.entry(*lba).or_insert((*holds, None));
        }
        self.recover();
        let hits = |seen: &BTreeMap<&str, u64>| seen.get("hit").copied().unwrap_or_default();
        let before = hits(&self.seen);
        (0..CHUNKS).for_each(|lba| self.read(Lba(lba)));
        *self.seen.entry("hit after a crash").or_insert(0) += hits(&self.seen) - before;
        self.commit();
        self.note("crash");
    }

    /// Restarts with the checkpoint and the log. The first entries of the log come twice at times,
    /// as after a checkpoint beside them.
    fn recover(&mut self) {
        let mut design = Decider::new(Box::new(Bucketed::new(self.config).expect("a layout")));
        design.begin_restore(0, 0);
        if let Some(Checkpoint { pages, exact: Exported { mappings, runs } }) = &self.checkpoint {
            for mapping in mappings {
                let new = match mapping.lookup {
                    Lookup::Chunk { place, .. } => NewMapping::Unique { place, fingerprint: None },
                    Lookup::Fragment { place, sectors } => NewMapping::Fragment { place, sectors },
                    other => panic!("{other:?}"),
                };
                design.map(mapping.lba, new, mapping.dirty.then_some(0));
            }
            runs.iter().for_each(|run| design.trim(*run));
            for (page, bytes) in pages.iter().enumerate() {
                assert!(design.restore_page(page, bytes));
            }
        }
        let twice = self.log.len() * (self.seq as usize % 3) / 2;
        for entry in self.log[..twice.min(self.log.len())].iter().chain(&self.log) {
            match entry {
                Logged::Map(lba, new, content, seq) => {
                    design.map(*lba, *new, *seq);
                    if let (NewMapping::Duplicate { place }, Some(content)) = (new, content) {
                        design.restore_fingerprint(content, place, ToldBy::Log);
                    }
                }
                Logged::Unmap(lba) => design.unmap_run(*lba, 1),
                Logged::Trim(run) => design.trim(*run),
                Logged::Clean(lba, seq) => {
                    design.confirm_dirty();
                    if design.dirty_seq(*lba).is_some_and(|now| now <= *seq) {
                        let now = design.dirty_seq(*lba).unwrap_or_default();
                        design.mark_clean(*lba, now);
                    }
                }
                Logged::Freed(slot, generation) => design.restore_freed(*slot, *generation),
            }
        }
        design.end_restore();
        design.check();
        self.design = design;
        // A crash may bring lost generations back.
        self.newest_generation = self.log.iter().filter_map(Logged::generation).max();
        for (lba, (holds, seq)) in &mut self.volume {
            if seq.is_some() && *holds != Holds::Zero {
                *seq = Some(self.design.dirty_seq(*lba).expect("what was dirty is"));
            }
        }
    }
}

fn run(seed: u64, bucket_slots: u32, prefix_bits: u32) -> World {
    let mut world = World::new(bucket_slots, prefix_bits);
    for step in 0..6_000u64 {
        let bits = mix(seed << 32 | step);
        let lba = Lba((bits >> 8) % CHUNKS);
        let content = (bits >> 20) % 400;
        match bits % 64 {
            0..=15 => world.read(lba),
            16..=31 => world.put(lba, Holds::Content(content), true),
            // Only misses are inserted.
            32..=44 => world.fill(lba, content),
            45 => world.fill_zero(lba),
            46..=49 => world.put(lba, Holds::Part(content + 1000), true),
            50..=51 if world.is_clean_of(lba) => world.unmap(lba),
            // Written through: forgotten, and perhaps mapped anew.
            52..=53 if world.is_clean_of(lba) => world.write_through(lba, (bits >> 60 > 3).then_some(content)),
            54 => world.trim(lba, 1 + (bits >> 40) % 20u64.min(CHUNKS - lba.0)),
            55..=59 => world.destage_some(20),
            60 => {
                for run in world.design.export_runs() {
                    world.design.mark_run_clean(&run);
                    (run.first.0..run.first.0 + run.count).for_each(|lba| {
                        world.volume.remove(&Lba(lba));
                        world.origin.remove(&Lba(lba));
                    });
                }
                // Log entries of that are not tested here.
                world.checkpoint();
            }
            61 if bits >> 50 & 3 == 0 => world.checkpoint_begins(),
            61 => world.checkpoint_goes_on(),
            62 if bits >> 50 & 7 == 0 => world.restart(),
            62 if bits >> 50 & 7 < 4 => world.crash(),
            62 => world.commit(),
            63 if bits >> 53 & 1 == 0 => world.free_ahead(),
            63 if bits >> 50 & 3 == 0 => world.fail_origin_flush(),
            63 => world.flush_origin(),
            _ => {}
        }
        if step % 64 == 0 {
            world.design.check();
            world.count();
        }
    }
    world
}

#[test]
fn what_is_found_is_what_was_put() {
    // Short prefixes collide all the time; the paper's almost never.
    for (bucket_slots, prefix_bits) in [(8, 2), (16, 4), (128, 16)] {
        let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
        for seed in 0..16 {
            println!("seed {seed}, {bucket_slots} slots, {prefix_bits} bits");
            let world = run(seed, bucket_slots, prefix_bits);
            world.seen.iter().for_each(|(what, count)| *seen.entry(what).or_insert(0) += count);
        }
        for what in [
            "hit",
            "short way",
            "dirty hit",
            "fragment",
            "zero",
            "miss",
            "duplicate",
            "evicted",
            "spared",
            "restart",
            "crash",
            "settled",
            "hit after a crash",
            "checkpoint",
            "origin flush failed",
            "freed ahead",
            "reused",
        ] {
            assert!(seen.get(what).is_some_and(|&count| count > 50), "{prefix_bits} bits: {what}: {seen:?}");
        }
        // Entries with evicted content do not count. Some with restored content do, although its
        // metadata slot does not list the address any more. With short prefixes an entry also
        // counts if another content of its FP-hash has the place.
        let (found, said, entries) = (seen["chunks found"], seen["chunks said"], seen["entries"]);
        println!("{prefix_bits} bits: {found} chunks are found, {said} are said to be cached, of {entries} entries");
        let most = if prefix_bits == 16 { found * 115 / 100 } else { found * 2 };
        assert!((found..most).contains(&said), "{prefix_bits} bits: {seen:?}");
        // Recency without a log may differ.
        assert!(seen["kept"] * 100 >= seen["had"] * 95, "{prefix_bits} bits: {seen:?}");
    }
}

#[test]
fn a_long_trim_forgets_what_it_covers_alone() {
    let mut world = World::new(16, 16);
    (0..20).for_each(|lba| world.put(Lba(lba), Holds::Content(lba), false));
    assert!(CHUNKS - 20 > world.design.core().lba_entries_max(), "it is longer than the index");
    world.trim(Lba(20), CHUNKS - 20);
    (0..CHUNKS).for_each(|lba| world.read(Lba(lba)));
    assert_eq!((world.seen["hit"], world.seen["zero"]), (20, CHUNKS - 20));
}

/// Returns two addresses with one LBA-hash.
fn siblings(world: &World) -> (Lba, Lba) {
    let key = |lba| world.design.core().key_of_lba(Lba(lba));
    let pairs = (0..CHUNKS).flat_map(|one| (0..one).map(move |other| (one, other)));
    let (one, other) = pairs.into_iter().find(|&(one, other)| key(one) == key(other)).expect("hashes are few");
    (Lba(one), Lba(other))
}

/// A clean fragment leaves the index with the entry of its LBA-hash, which another address may
/// have. The log marks the fragment alone as clean, and a restart skips that mark if the checkpoint
/// has the fragment clean already.
#[test]
fn an_address_whose_entry_went_with_a_clean_fragment_is_not_found_after_it_was_written() {
    for content in [None, Some(6)] {
        let mut world = World::new(8, 2);
        let (fragment, lba) = siblings(&world);
        world.put(fragment, Holds::Part(1001), true);
        world.commit();
        // The checkpoint names no fragment any more, and the log from its beginning on is replayed.
        world.checkpoint_begins();
        world.fill(lba, 5);
        world.flush_origin();
        world.commit();
        world.destage(fragment);
        world.checkpoint_ends();
        world.write_through(lba, content);
        world.crash();
    }
}

/// Clean zeroes are not kept and not logged. They leave the index with the entry of their LBA-hash,
/// too.
#[test]
fn an_address_whose_entry_went_with_clean_zeroes_is_not_found_after_it_was_written() {
    for content in [None, Some(6)] {
        let mut world = World::new(8, 2);
        let (zeroes, lba) = siblings(&world);
        world.fill(lba, 5);
        world.flush_origin();
        world.commit();
        world.fill_zero(zeroes);
        world.write_through(lba, content);
        world.crash();
    }
}

/// Few addresses with few contents and fewer hashes crash every few steps. A metadata slot with an
/// address that the log does not know would let another address's entry find a lost write.
#[test]
fn a_lost_write_is_not_found_by_the_hash_of_another_address() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..48 {
        println!("seed {seed}");
        let mut world = World::new(8, 2);
        for step in 0..3000u64 {
            let bits = mix((seed + 1000) << 32 | step);
            let lba = Lba((bits >> 8) % 40);
            // Few are frequent; the others push some out.
            let content = (bits >> 20) % if bits >> 40 & 7 == 0 { 60 } else { 6 };
            match bits % 32 {
                0..=6 => world.put(lba, Holds::Content(content), true),
                7..=9 => world.put(lba, Holds::Part(content + 1000), true),
                10..=15 => world.read(lba),
                16..=21 if world.is_clean_of(lba) => world.write_through(lba, (bits >> 60 > 3).then_some(content)),
                22..=23 if world.is_clean_of(lba) => world.fill(lba, content),
                24 => world.fill_zero(lba),
                25 => world.destage_some(4),
                26 => world.trim(lba, 1),
                27 if bits >> 50 & 3 == 0 => world.fail_origin_flush(),
                27 => world.flush_origin(),
                28..=29 => world.commit(),
                30 if bits >> 50 & 3 == 0 => world.checkpoint(),
                30 if bits >> 50 & 3 == 1 => world.checkpoint_begins(),
                30 => world.checkpoint_goes_on(),
                31 => world.crash(),
                _ => {}
            }
        }
        world.seen.iter().for_each(|(what, count)| *seen.entry(what).or_insert(0) += count);
    }
    println!("{seen:?}");
    for what in [
        "duplicate",
        "fragment",
        "clean zeroes",
        "settled",
        "crash",
        "hit after a crash",
        "evicted",
        "checkpoint",
        "origin flush failed",
    ] {
        assert!(seen.get(what).is_some_and(|&count| count > 500), "{what}: {seen:?}");
    }
}

#[test]
fn what_is_spoiled_is_found_as_nothing_but_what_is_dirty() {
    for is_dirty in [false, true] {
        let mut world = World::new(16, 16);
        world.put(Lba(1), Holds::Content(5), is_dirty);
        world.put(Lba(2), Holds::Content(5), is_dirty);
        world.flush_origin();
        world.commit();
        let place = |world: &mut World, lba| {
            world.inform(Question::Address(Lba(lba)));
            match world.design.lookup(Lba(lba)) {
                Lookup::Chunk { place, .. } => Some(place),
                _ => None,
            }
        };
        let spoiled = place(&mut world, 1).expect("it is there");
        // Earlier content of the slot is different.
        world.design.spoil(&Place { generation: spoiled.generation + 1, ..spoiled });
        assert_eq!(place(&mut world, 1), Some(spoiled));
        world.design.spoil(&spoiled);
        world.write_region(true);
        for restarts in [false, true] {
            if restarts {
                world.commit();
                world.recover();
            }
            assert_eq!([1, 2].map(|lba| place(&mut world, lba)), [is_dirty.then_some(spoiled); 2]);
            world.inform(Question::Content(&fingerprint(5)));
            assert_eq!(world.design.find_duplicate(&fingerprint(5)), None);
        }
        // The content is stored anew.
        world.put(Lba(3), Holds::Content(5), true);
        let anew = place(&mut world, 3).expect("it is there");
        assert_ne!((anew.slot, anew.generation), (spoiled.slot, spoiled.generation));
    }
}

/// A duplicate is mapped to a freed-ahead slot, and then overwritten by an unlogged write. An early
/// reuse of the slot would let a crash bring back a mapping without its data.
#[test]
fn what_is_mapped_to_a_freed_slot_keeps_it() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..8 {
        println!("seed {seed}");
        let mut world = World::new(8, 4);
        let mut fresh = 10_000 * (seed + 1);
        for step in 0..60u64 {
            let bits = mix((seed + 2000) << 32 | step);
            for lba in 0..30 {
                fresh += 1;
                world.put(Lba(100 + (bits + lba) % 150), Holds::Content(fresh), true);
            }
            world.destage_some(200);
            world.commit();
            world.free_ahead();
            let freed = std::mem::take(&mut world.freed);
            let contents: Vec<u64> = freed.iter().filter_map(|slot| Some(world.data.get(slot)?.1)).collect();
            for (lba, &content) in
                contents.iter().enumerate().filter(|(lba, content)| lba % 2 == 0 && **content >= 10_000)
            {
                world.put(Lba(lba as u64), Holds::Content(content), true);
            }
            world.commit();
            for lba in 0..contents.len() as u64 {
                fresh += 1;
                world.put(Lba(lba), Holds::Content(fresh), true);
            }
            if bits & 1 == 0 {
                world.crash();
            }
            for lba in 0..contents.len() as u64 {
                world.read(Lba(lba));
            }
        }
        world.seen.iter().for_each(|(what, count)| *seen.entry(what).or_insert(0) += count);
    }
    for what in ["freed ahead", "reused", "duplicate", "crash", "dirty hit"] {
        assert!(seen.get(what).is_some_and(|&count| count > 10), "{what}: {seen:?}");
    }
}

/// Checks that only a durable log entry frees a slot ahead: it is not dirty, and no eviction takes
/// it.
#[test]
fn a_slot_is_free_ahead_by_a_durable_entry_and_nothing_else() {
    let mut world = World::new(8, 16);
    (0..200).for_each(|lba| world.put(Lba(lba), Holds::Content(lba), true));
    let likely = world.design.likely_victims(usize::MAX);
    let slot = *likely.iter().find(|slot| !world.design.dirty_in(**slot).is_empty()).expect("what is full and dirty");
    assert_eq!(world.design.free_ahead(slot, 10), None, "its chunk would be marked clean behind that entry");
    world.destage_some(200);
    world.commit();
    assert!(world.design.free_ahead(slot, 10).is_some());
    assert_eq!(world.design.free_ahead(slot, 11), None, "the log says so already");
    assert!(!world.design.is_freed(slot, 10), "that entry is not durable");
    assert!(world.design.is_freed(slot, 11));
    world.design.keep(slot);
    assert!(!world.design.is_freed(slot, u64::MAX), "it is kept");
    assert!(world.design.free_ahead(slot, 20).is_some());
    assert!(!world.design.is_freed(slot, 20), "the newer entry is not durable");
    world.design.keep_all();
    assert!(!world.design.is_freed(slot, u64::MAX), "all are kept");
    let is_begun = |slot: &SlotId| world.design.stored_runs().iter().any(|(first, _)| first == slot);
    let nothing = (0..256).map(SlotId).find(|slot| !is_begun(slot)).expect("a run takes several slots");
    assert_eq!(world.design.free_ahead(nothing, 30), None, "nothing begins there");

    let waits = |design: &mut Decider<Bucketed>, lba: &Lba| {
        let wanted = Wanted { lba: *lba, fingerprint: Some(fingerprint(lba.0 + 5000)), stored_len: CHUNK_BYTES };
        design.open_slot_for(StreamClass::Clean, &wanted).is_none()
    };
    let lba = (200..CHUNKS).map(Lba).find(|lba| waits(&mut world.design, lba)).expect("the buckets are full");
    let slots = world.design.in_the_way(lba);
    assert!(!slots.is_empty() && slots.iter().all(|&slot| world.design.free_ahead(slot, 40).is_some()));
    assert!(slots.iter().all(|&slot| world.design.is_freed(slot, 41)));
    assert_eq!(world.design.choose_victim(&mut |_| true).map(|victim| victim.slot), None);
    assert_eq!(world.design.in_the_way(lba), [], "what goes for it was looked for: those go, when they can");
    let victim = world.design.choose_victim(&mut |_| false).expect("a victim").slot;
    assert!(slots.contains(&victim));
    assert!(!world.design.is_freed(victim, u64::MAX), "it goes for another reason now");
    assert_eq!(world.design.free_ahead(victim, 50), None, "it goes in any case");
    world.design.check();
    assert!(world.design.evict(victim).is_some());
    world.design.release_slot(victim);
    world.design.check();
}

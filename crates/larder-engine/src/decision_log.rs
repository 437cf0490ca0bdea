//! The decision log: tells an embedding program the engine's events, in the order of its decisions.
//!
//! The events are the ones that a simulator cannot know by itself. An opening may give the cache a
//! sink ([`Tuning::decisions`](crate::config::Tuning::decisions)). The sink gets each [`Event`]
//! with its [`Answer`], under the lock of the state and with the decision itself. So events come in
//! the order of decisions. A test follows such a log over the simulator's executor
//! (`larder-follow`).
//!
//! For a chunk, the log has the fingerprint by the cache's own key, and the length as stored.
//!
//! Reads that hit beside each other decide nothing. Their uses are told when they are applied, in
//! that order, before any later decision. So a sink changes no path of a read.
//!
//! It is test support. Only the feature `decision-log` has sinks, and the product leaves it off.
//!
//! Invariants: without a sink an event is not even made. A sink decides nothing.
//!
//! It does not tell bytes, the origin's state, or the time of durability. It tells a fault of the
//! flash only as an event without details.

pub(crate) mod sink;

use crate::{
    decision_log::sink::LookupCause,
    geometry::Geometry,
    segment::open::Ready,
    segment::record::{NewRecord, RecordOf},
    state::State,
};
use larder_core::{
    DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SectorMap, SlotId,
    decisions::{Answer, BucketLayout, Event, NewContent, Opened, Stored},
    design::Use,
    packing::PackingRules,
    region::RegionEntry,
    slots::SlotState,
};
use larder_format::Encoding;
pub use sink::DecisionLog;
#[cfg(feature = "decision-log")]
pub use sink::Sink;

fn stored(place: &Place) -> Stored {
    Stored { bytes: place.stored_len, raw: place.encoding == Encoding::Raw.code() }
}

/// Returns whether a lookup found the wanted data: for a fragment, the sectors of the read.
fn answer_of(found: &Lookup, cause: LookupCause) -> Answer {
    match (found, cause) {
        (Lookup::Miss, _) => Answer::Miss,
        (Lookup::Zero, _) => Answer::Zero,
        (Lookup::Fragment { sectors, .. }, LookupCause::Read(first, end)) if !sectors.has_all(first, end) => {
            Answer::Miss
        }
        (Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. }, _) => Answer::Hit(place.into()),
    }
}

impl State {
    /// Notes that the cache is open from now on.
    pub(crate) fn note_opened(&self, design: &str, geometry: &Geometry, limits: DesignConfig, rules: PackingRules) {
        self.decisions.note(|| {
            let stats = self.design().stats();
            let slots = self.design().export_slots().into_iter();
            let used = slots.filter(|&(_, generation, state, _)| generation > 0 || state != SlotState::Free).count();
            let stored = self.design().stored_runs().len();
            let opened = Opened {
                design: design.to_owned(),
                chunk_bytes: geometry.chunk_bytes as u32,
                slot_bytes: rules.slot_bytes,
                sector_bytes: rules.sector_bytes,
                header_bytes: rules.header_bytes,
                entry_bytes: rules.entry_bytes,
                slot_count: limits.slot_count,
                mappings_max: limits.mappings_max,
                fp_entries_max: limits.fp_entries_max,
                first_segment: self.writer.next_seq(),
                found: stats.mapped_chunks + stats.trimmed_chunks + (used + stored) as u64,
                buckets: geometry
                    .store
                    .reads_to_decide()
                    .then_some(BucketLayout { slots: geometry.layout.bucket_slots, chunk_count: geometry.chunk_count }),
            };
            (Event::Opened(opened), Answer::Done)
        });
    }

    /// Notes a lookup of `lba`.
    #[inline]
    pub(crate) fn note_lookup(&self, lba: Lba, cause: LookupCause, found: &Lookup, held_back: bool) {
        self.decisions.note(|| {
            let event = match cause {
                LookupCause::Read(first, end) => Event::Read { lba, first: first as u16, end: end as u16, held_back },
                LookupCause::Merge => Event::Merge { lba, held_back },
            };
            (event, answer_of(found, cause))
        });
    }

    /// Notes the use of a hit that a look found, alone or beside others.
    #[inline]
    pub(crate) fn note_use(&self, hit: &Use) {
        self.decisions.note(|| (Event::Use { lba: hit.lba }, Answer::Slot(hit.slot)));
    }

    /// Notes the mapping of `lba` to `new`, with the content `fingerprint`.
    pub(crate) fn note_mapped(&self, lba: Lba, new: &NewMapping, fingerprint: Option<Fingerprint>, dirty: Option<u64>) {
        self.decisions.note(|| {
            let chunk = |stored| Event::Insert { lba, content: NewContent::Chunk { fingerprint, stored }, dirty };
            match new {
                NewMapping::Zero => (Event::Insert { lba, content: NewContent::Zero, dirty }, Answer::Done),
                NewMapping::Unique { place, .. } => (chunk(Some(stored(place))), Answer::Stored(place.into())),
                NewMapping::Duplicate { place } => (chunk(None), Answer::Hit(place.into())),
                NewMapping::Fragment { place, sectors } => {
                    (fragment(lba, *sectors, place, dirty.unwrap_or_default()), Answer::Stored(place.into()))
                }
            }
        });
    }

    /// Notes a record that did not fit.
    pub(crate) fn note_full(&self, ready: &Ready<'_>) {
        let Ready { record: NewRecord { class, of, .. }, encoding, payload, .. } = *ready;
        let fingerprint = match of {
            RecordOf::Chunk(fingerprint) => fingerprint,
            RecordOf::Fragment(_) => None,
        };
        let stored = Stored { bytes: payload.len() as u32, raw: encoding == Encoding::Raw };
        self.decisions.note(|| (Event::Full { class, fingerprint, stored }, Answer::Done));
    }

    /// Notes an event with its slot: opened, chosen, evicted or freed, or none.
    #[inline]
    pub(crate) fn note_slot(&self, event: Event, slot: Option<SlotId>) {
        self.decisions.note(|| (event, slot.map_or(Answer::NoSlot, Answer::Slot)));
    }

    /// Notes the metadata slot of `slot` as read.
    pub(crate) fn note_told(&self, slot: SlotId, entry: Option<&RegionEntry>) {
        let answer = |entry: &RegionEntry| Answer::Hit((&entry.place).into());
        self.decisions.note(|| (Event::Told { slot }, entry.map_or(Answer::Miss, answer)));
    }

    /// Notes a failure of the flash, or a damaged record.
    pub(crate) fn note_fault(&self) {
        self.decisions.note(|| (Event::Fault, Answer::Done));
    }

    /// Does one step of the cleaning of stale entries.
    pub(crate) fn sweep(&mut self) {
        let swept = self.decide().sweep();
        self.decisions.note(|| (Event::Sweep, Answer::Count(swept as u64)));
    }
}

fn fragment(lba: Lba, sectors: SectorMap, place: &Place, seq: u64) -> Event {
    Event::Fragment { lba, sectors, stored: stored(place), seq }
}

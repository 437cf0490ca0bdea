//! Insertion off the read's path: chunks of a missed read or a write-through are stored later.
//!
//! The queue is bounded in bytes; under overload insertions are dropped and counted, and no read
//! waits. A task takes an insertion and fingerprints it on a worker, which also compresses it if
//! its content is new. The task maps the chunk if its version is still the one from before the
//! bytes were read. A design may refuse a clean chunk that it would have to store.
//!
//! Invariants: a stale insertion is never mapped. A dirty mapping is never replaced by a clean one.

pub(crate) mod insertion;

use crate::{
    fill::insertion::{Insertion, Reason},
    prepare::Prepared,
    segment::record::{NewRecord, RecordOf},
    shared::Shared,
    state::State,
    state_lock::StateGuard,
};
use larder_core::{
    Fingerprint, Lba, Lookup, NewMapping, StreamClass,
    decisions::{Answer, Event},
    design::Wanted,
};
use larder_device::{SharedBuf, runtime::compute};
use std::sync::{Arc, atomic::Ordering::*};

impl State {
    /// Returns whether the bytes of a chunk in its `version` are to be mapped.
    fn wants(&self, lba: Lba, version: u32, reason: Reason) -> bool {
        !self.flash.is_failed()
            && self.versions.get(lba) == version
            && match (self.design().peek(lba), reason) {
                (Lookup::Miss, Reason::Clean | Reason::Survivor) => !self.origin_changes.forbids_clean_copy(lba),
                // The chunk becomes dirty as a whole: the origin gets it again.
                (Lookup::Fragment { .. }, Reason::CompletedFragment) => !self.origin_changes.is_changing(lba),
                _ => false,
            }
    }

    /// Returns whether the design has a clean chunk stored. A mapping of the chunk would be right.
    fn admits(&mut self, wanted: &Wanted) -> bool {
        let is_admitted = self.decide().admits(wanted);
        if !is_admitted {
            self.decisions.note(|| (Event::Refuse { wanted: *wanted }, Answer::Done));
        }
        is_admitted
    }
}

impl Shared {
    /// Offers a whole chunk (shorter only at the end of the volume) with this `version`.
    pub fn offer(self: &Arc<Self>, lba: Lba, version: u32, data: SharedBuf, reason: Reason) {
        if !self.wear_admits() {
            self.counters.insertions_refused.fetch_add(1, Relaxed);
            return;
        }
        let (begin, drain, close) = {
            let mut state = self.state.lock();
            let drain = self.drain_is_due(&state);
            let close = self.many_wait_for_records(&state);
            let full = state.insertions.is_full_with(data.len(), self.live.get().insert_queue_bytes_max);
            if full || !self.may_insert(&state) {
                self.counters.insertions_dropped.fetch_add(1, Relaxed);
                if self.log_is_crowded(&state) {
                    // Under reads alone, no other task asks for it.
                    self.signals.checkpoint_wanted.notify();
                }
                (false, drain, close)
            } else {
                let insertion = Insertion { lba, version, data, reason };
                let begin = state.insertions.push(insertion, self.tuning.insert_depth.max(1));
                (begin, drain, close)
            }
        };
        if close {
            self.request_commit(0, true);
        }
        if drain {
            self.drain();
        }
        if begin {
            self.begin_inserting();
        }
    }

    /// Begins a task that inserts until none waits.
    pub(crate) fn begin_inserting(self: &Arc<Self>) {
        let this = self.clone();
        self.spawn_counted(async move { this.insert_all().await });
    }

    async fn insert_all(self: Arc<Self>) {
        loop {
            let next = self.state.lock().insertions.next();
            let Some(insertion) = next else { break };
            let bytes = insertion.data.len();
            self.insert_one(insertion).await;
            self.state.lock().insertions.done(bytes);
        }
        self.signals.inserted.notify();
    }

    async fn insert_one(self: &Arc<Self>, insertion: Insertion) {
        let Insertion { lba, version, data, reason } = insertion;
        let (this, chunk) = (self.clone(), data.clone());
        let Ok(prepared) = compute(&*self.runtime, move || this.prepare(&chunk)).await else { return };
        let wanted = |state: &State| state.wants(lba, version, reason);
        let dirty = reason == Reason::CompletedFragment;
        let class = if dirty { StreamClass::Dirty } else { StreamClass::Clean };
        if let Prepared::Zero = prepared {
            let mut state = self.state.lock();
            if wanted(&state) && self.has_room_for_one(&state) {
                self.counters.inserted_chunks.fetch_add(1, Relaxed);
                self.counters.zero_chunks.fetch_add(1, Relaxed);
                self.map_insertion(&mut state, lba, NewMapping::Zero, None, dirty);
            } else {
                self.counters.insertions_stale.fetch_add(1, Relaxed);
            }
            return;
        }
        let (mut padded, fingerprint) = (Vec::new(), prepared.fingerprint());
        let payload = prepared.payload(self.padded(&data, &mut padded));
        let mut is_admitted = dirty;
        let stored = self
            .store(
                NewRecord { class, lba, of: RecordOf::Chunk(fingerprint), payload },
                |state, stored_len| {
                    if !wanted(state) || !self.has_room_for_one(state) {
                        self.counters.insertions_stale.fetch_add(1, Relaxed);
                        return Some(());
                    }
                    if let Some(place) = fingerprint.and_then(|known| state.find_duplicate(&known)) {
                        self.counters.inserted_chunks.fetch_add(1, Relaxed);
                        self.counters.duplicate_chunks.fetch_add(1, Relaxed);
                        self.map_insertion(state, lba, NewMapping::Duplicate { place }, fingerprint, dirty);
                        return Some(());
                    }
                    // A record that waits for a slot was admitted before.
                    is_admitted = is_admitted || state.admits(&Wanted { lba, fingerprint, stored_len: stored_len? });
                    (!is_admitted).then(|| _ = self.counters.insertions_refused.fetch_add(1, Relaxed))
                },
                |state, place| {
                    self.counters.inserted_chunks.fetch_add(1, Relaxed);
                    self.counters.chunks_stored_again.fetch_add(u64::from(reason == Reason::Survivor), Relaxed);
                    self.counters.note_stored(
                        place.stored_len,
                        self.geometry.chunk_bytes,
                        self.geometry.record_step_bytes(),
                    );
                    self.map_insertion(state, lba, NewMapping::Unique { place, fingerprint }, fingerprint, dirty);
                },
            )
            .await;
        if stored.is_err() {
            self.counters.insertions_dropped.fetch_add(1, Relaxed);
        }
    }

    fn map_insertion(
        &self,
        state: &mut StateGuard<'_, State>,
        lba: Lba,
        new: NewMapping,
        fingerprint: Option<Fingerprint>,
        dirty: bool,
    ) {
        if dirty {
            // After a failure of the flash, callers do not come here, and the chunk need not be
            // cached.
            let _ = state.map_dirty(lba, new, fingerprint);
        } else {
            state.prefetch.remove(lba);
            state.note_mapped(lba, &new, fingerprint, None);
            state.map_clean(lba, new, fingerprint);
        }
        self.keep_room(state);
    }

    /// Returns whether log and index have room for one more chunk, which is about to be mapped.
    fn has_room_for_one(&self, state: &State) -> bool {
        self.may_insert(state) && self.index_has_room(state)
    }

    /// Returns whether the index has room for one more chunk, and wakes the evictor if not.
    pub(crate) fn index_has_room(&self, state: &State) -> bool {
        let room = state.design().has_room(self.room_wanted());
        if !room {
            self.signals.evict_wanted.notify();
        }
        room
    }
}

//! Eviction of slots, and the background cleaning of stale index entries.
//!
//! In order, for a batch of victims: (1) They take no new references, and their dirty mappings are
//! destaged. (2) Under the lock the mappings of a victim die, its generation moves on, and *slot
//! freed* is logged. (3) That is committed. (4) The last reader leaves. (5) The slot is trimmed.
//! (6) It is free. A crash before (3) leaves the slot as it was. A crash after it leaves a slot
//! whose trim may be missing: it is trimmed before its next use.
//!
//! Slots that will likely have to go take (1) to (3) in the same batch
//! ([`freeing`](crate::region::freeing)). Records that are worth another life are read before (2)
//! and offered after it ([`survivors`]).
//!
//! Invariants: (3) makes durable every mapping that displaced one of this slot, so no mapping that
//! a crash would bring back is overwritten. A few slots are kept free, so that writers seldom wait.
//!
//! It does not choose; the design does.

pub(crate) mod findings;
mod survivors;

use crate::{shared::Shared, state::State, sync::either};
use larder_core::{
    Lba, SlotId, StreamClass,
    decisions::{Answer, Event},
    limits::FREED_AHEAD_MAX,
};
use larder_format::LogEntry;
use std::{
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

/// Chunks destaged at once.
const DESTAGE_MAX: usize = 256;
/// Divisor of the entries that may wait for the log. It gives the limit of entries that leave the
/// index at once.
const DROPPED_SHARE: usize = 8;
/// Wait of a request of the origin after which an eviction leaves dirty data behind. It takes clean
/// data then.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause if no slot can be evicted for now.
const PAUSE: Duration = Duration::from_millis(20);

impl Shared {
    /// Returns the number of free slots to keep ready.
    pub(crate) fn free_slots_wanted(&self) -> usize {
        self.geometry.store.free_slots_wanted(self.geometry.layout.slot_count as usize)
    }

    /// Runs the evictor's task: keeps slots free and the index in bounds until the cache closes.
    pub(crate) async fn evictor(self: Arc<Self>) {
        let mut called_at = Duration::ZERO;
        loop {
            let wanted = self.signals.evict_wanted.listen();
            if self.is_closing() {
                return;
            }
            if self.state.lock().flash.is_failed() {
                // No record is stored any more, so no slot has to go.
                self.signals.index_room.notify();
                self.room.call_all();
                wanted.await;
                continue;
            }
            self.call_now_and_then(&mut called_at);
            // Stale entries go first, because they cost no data. One shard a hold of the lock.
            let pieces = self.state.lock().design().export_pieces();
            for _ in 0..pieces {
                let mut state = self.state.lock();
                if state.design().has_room(self.room_wanted()) {
                    break;
                }
                state.sweep();
            }
            let (short, crowded, wants_ahead) = {
                let mut state = self.state.lock();
                self.drop_zeroes(&mut state, false);
                let missing = self.free_slots_wanted().saturating_sub(state.design().free_slots());
                (missing, !state.design().has_room(self.room_wanted()), state.wants_room_ahead())
            };
            if short == 0 && !crowded && !wants_ahead {
                self.evictions.note(false);
                self.signals.index_room.notify();
                match self.room.is_awaited() {
                    true => either(wanted, self.runtime.delay(PAUSE)).await,
                    false => wanted.await,
                }
                continue;
            }
            let written = self.signals.segments.listen();
            let done = self.evict_batch(self.geometry.store.evict_at_once(short, crowded)).await;
            self.signals.index_room.notify();
            // Without a waiting task the evictor does not pause either: it does not look at the
            // same slots again.
            if done == 0 && (short > 0 || crowded) {
                if crowded {
                    self.make_evictable().await;
                }
                // Slots under write cannot leave before the write is over.
                either(self.runtime.delay(PAUSE), written).await;
            }
            // Sweeping one shard a batch keeps stale duplicates from piling up.
            self.state.lock().sweep();
        }
    }

    /// Calls all records that wait for a slot, once in a [`PAUSE`].
    ///
    /// A slot that was freed ahead is of use when its last reader leaves, and no reader calls.
    fn call_now_and_then(&self, called_at: &mut Duration) {
        let now = self.runtime.now();
        if now >= *called_at + PAUSE && self.room.is_awaited() {
            *called_at = now;
            self.room.call_all();
        }
    }

    /// Makes room in a full index if no slot can be evicted.
    ///
    /// Its entries are dirty, zero, or in open slots: it destages, drops and seals them.
    async fn make_evictable(self: &Arc<Self>) {
        // One shard a hold of the lock.
        let pieces = self.state.lock().design().export_pieces();
        for _ in 0..pieces {
            self.drop_zeroes(&mut self.state.lock(), true);
        }
        let dirty = {
            let mut state = self.state.lock();
            state.decisions.note(|| (Event::Seal, Answer::Done));
            for class in [StreamClass::Clean, StreamClass::Dirty] {
                state.close_segment(class, self.geometry.flash_tag, true);
            }
            state.design().dirty_from(Lba(0), DESTAGE_MAX)
        };
        self.send_segments();
        // Dropped entries make room only for as many more.
        self.request_commit(u64::MAX, false);
        let lbas: Vec<Lba> = dirty.into_iter().map(|(lba, _)| lba).collect();
        self.destage_or_leave(lbas).await;
    }

    /// Destages these chunks to make room.
    ///
    /// When the origin does not answer, the destage goes on in the background, and clean chunks can
    /// go meanwhile. A chunk that failed, or was left behind, stays dirty, and its slot is spared.
    async fn destage_or_leave(self: &Arc<Self>, lbas: Vec<Lba>) {
        // The next destage would wait like the one that was left behind.
        if lbas.is_empty() || !self.evictions.begin_destage() {
            return;
        }
        let this = self.clone();
        let destaged = self.to_its_end(async move {
            let _ = this.destage(&lbas).await;
            this.evictions.end_destage();
            Ok(())
        });
        either(destaged, self.origin_keeps_waiting()).await;
    }

    /// Returns when a request of the origin has waited for [`PATIENCE`].
    async fn origin_keeps_waiting(&self) {
        loop {
            let age = self.origin_watch.oldest().map_or(Duration::ZERO, |oldest| oldest.age);
            let Some(left) = PATIENCE.checked_sub(age).filter(|left| !left.is_zero()) else { return };
            if self.runtime.delay(left).await.is_err() {
                return;
            }
        }
    }

    /// Drops clean zeroes: no more than may wait for the log, and few at a time. The rest comes
    /// with the next turns.
    fn drop_zeroes(&self, state: &mut State, all: bool) {
        if self.log_is_crowded(state) {
            return self.signals.checkpoint_wanted.notify();
        }
        let waiting = self.pending_entries_max().saturating_sub(state.log.len());
        let max = waiting.min(self.pending_entries_max() / DROPPED_SHARE);
        let dropped = state.decide().drop_clean_zeroes(all, max);
        state.decisions.note(|| (Event::Drop { all, max: max as u64 }, Answer::Count(dropped.len() as u64)));
        for lba in dropped {
            if !state.unlogged.remove(lba) {
                // Without this entry a crash would bring the zeroes back, over newer content of the
                // origin.
                state.log.push(LogEntry::Invalidate { lba: lba.0, chunk_count: 1 });
            }
        }
    }

    async fn evict_batch(self: &Arc<Self>, count: usize) -> usize {
        let Ok(room) = self.reserve_batch(count + FREED_AHEAD_MAX).await else { return 0 };
        let likely = self.state.lock().choose_ahead();
        let victims = self.choose_victims(count);
        // (1)
        let mut dirty: Vec<Lba> = {
            let state = self.state.lock();
            let slots = victims.iter().chain(&likely);
            slots.flat_map(|&slot| state.design().dirty_in(slot)).collect()
        };
        dirty.sort_unstable();
        for part in dirty.chunks(DESTAGE_MAX) {
            // A chunk that fails stays dirty, and its slot is spared below.
            self.destage_or_leave(part.to_vec()).await;
        }
        let survivors = self.read_survivors(&victims).await;
        // (2)
        let freed = self.end_mappings(&victims);
        let ahead = self.log_freed_ahead(&likely);
        self.offer_survivors(survivors);
        drop(room);
        self.evictions.note(!victims.is_empty() && freed.is_empty() && ahead.is_empty());
        if freed.is_empty() && ahead.is_empty() {
            return 0;
        }
        // (3)
        if !self.commit_freed().await {
            return 0;
        }
        ahead.iter().for_each(|&slot| self.room.freed(slot));
        for &slot in &freed {
            self.give_back(slot).await;
        }
        freed.len() + ahead.len()
    }

    /// Chooses slots to evict, `count` at most.
    fn choose_victims(&self, count: usize) -> Vec<SlotId> {
        let mut victims = Vec::new();
        let mut state = self.state.lock();
        while victims.len() < count {
            let Some(victim) = state.choose_victim() else { break };
            victims.push(victim);
        }
        victims
    }

    /// Ends the mappings of each victim, unless it has dirty data. Returns the freed slots.
    fn end_mappings(&self, victims: &[SlotId]) -> Vec<SlotId> {
        let mut freed = Vec::new();
        for &slot in victims {
            let mut state = self.state.lock();
            let ended = state.decide().evict(slot);
            state.note_slot(Event::Evict, ended.map(|_| slot));
            match ended {
                Some(generation) => {
                    state.log.push(LogEntry::SlotFreed { slot: slot.0, generation });
                    freed.push(slot);
                }
                None => state.decide().spare_victim(slot),
            }
        }
        freed
    }

    /// Commits the ends of slots. A failed commit is tried again; until it succeeds the slots stay
    /// retired. Returns false if none will succeed.
    async fn commit_freed(self: &Arc<Self>) -> bool {
        loop {
            let upto = self.state.lock().log.next_seq();
            if self.commit(upto).await.is_ok() {
                return true;
            }
            if self.is_closing() || self.state.lock().flash.is_failed() {
                return false;
            }
            let _ = self.runtime.delay(PAUSE).await;
        }
    }

    /// Gives a slot back for its next use, whose end is durable.
    async fn give_back(&self, slot: SlotId) {
        // (4)
        self.pins.wait_unpinned(slot).await;
        // (5): advisory; a device that cannot trim loses nothing.
        if self.geometry.store.trims_slots() {
            let slot_bytes = u64::from(self.geometry.layout.slot_bytes);
            let _ = self.flash.discard(self.geometry.flash_offset(slot, 0), slot_bytes).await;
            self.counters.slots_trimmed.fetch_add(1, Relaxed);
        }
        // (6)
        self.counters.evicted_slots.fetch_add(1, Relaxed);
        {
            let mut state = self.state.lock();
            state.decide().release_slot(slot);
            state.note_slot(Event::Release, Some(slot));
            state.forget_damage_in(slot);
        }
        self.note_room_made();
        self.room.freed(slot);
    }
}

#[cfg(test)]
pub(crate) mod tests;

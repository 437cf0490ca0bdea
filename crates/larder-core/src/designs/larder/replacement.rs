//! The choices of [`Larder`]: the contents to store, the WEU that goes, its records that stay.
//!
//! The victim is the WEU of the least value among some random sealed ones. A random few are as good
//! as all (Psounis and Prabhakar, 2001), and need no order of WEUs.
//!
//! Invariants: at most half of a WEU stays, so that each eviction frees space.

use super::{
    Larder,
    addresses::{AddressIndex, ContentNumber},
    class::Class,
    content::ContentRecord,
    contents::sample_key,
    recalling::Recalling,
};
use crate::{
    design::{RecalledSlot, Selective, Survivor, Wanted},
    slots::SlotState,
    types::{Lba, Place, SlotId},
};

/// WEUs that are looked at for a victim.
const LOOKED_AT: usize = 32;
/// Draws for each of them at most.
const DRAWS: usize = 4;
/// The share of a WEU in refused chunks after which the rent is looked at: one part in so many.
const LOOK_SHARE: u64 = 2;
/// The share of a WEU whose records may stay: one part in so many.
const KEPT_SHARE: u64 = 2;

impl Selective for Larder {
    fn is_transient(&self, lba: Lba) -> bool {
        self.index.get(lba).is_some_and(|entry| self.stays_transient(&entry))
    }

    fn retreat(&mut self, first: Lba, count: u64, may: &dyn Fn(Lba, u64) -> bool) -> (Lba, u64) {
        let last = Lba(first.0 + count - 1);
        self.index.rewrite(first);
        self.index.rewrite(last);
        let (head, tail) = (AddressIndex::run_of(first), AddressIndex::run_of(last));
        let begins = self.retreats(head, may);
        let ends = if tail == head { begins } else { self.retreats(tail, may) };
        let from = if begins { head.0 } else { first };
        let end = if ends { tail.0.0 + tail.1 } else { last.0 + 1 };
        (from, end - from.0)
    }

    fn unshare(&mut self, place: &Place) {
        if let Some(id) = self.contents.at(place) {
            self.contents.unknow(id);
            self.contents.drop_if_useless(id);
        }
    }

    fn persist_all(&mut self) {
        self.persists_all = true;
    }

    fn admits(&mut self, wanted: &Wanted) -> bool {
        let (lba, fingerprint) = (wanted.lba, wanted.fingerprint.as_ref());
        let known = fingerprint.map_or([None; 2], |known| self.contents_of(known));
        if known.into_iter().flatten().any(|id| self.contents.is_kept(id)) {
            return true;
        }
        let heat = self.index.heat(lba);
        let class = Class::live(heat.own, self.others(lba, known) > 0, heat.rate);
        if self.is_worth_storing(class, wanted.stored_len) {
            return true;
        }
        self.note_refused(wanted.stored_len);
        let key = sample_key(lba, fingerprint);
        let may_switch = self.may_switch();
        self.sample.observe(key, class, heat.is_reread, wanted.stored_len, may_switch);
        if let Some(fingerprint) = fingerprint.filter(|_| self.config.fp_entries_max > 0) {
            self.believe(lba, fingerprint);
        }
        false
    }

    fn survivors(&mut self, victim: SlotId) -> Vec<Survivor> {
        self.choose_kept(victim)
    }

    fn next_recalled(&mut self) -> Option<RecalledSlot> {
        if let Some(pages) = self.pages.take() {
            self.recalling = Some(Recalling::new(pages.bytes()));
        }
        self.recalling.as_mut()?.next_slot()
    }
}

impl Larder {
    /// Returns whether the cache was written once, so that its rules can be compared.
    pub(super) fn may_switch(&self) -> bool {
        self.written >= self.slot_bytes * u64::from(self.config.slot_count)
    }

    /// Returns whether a content of this class earns a record of this length.
    pub(super) fn is_worth_storing(&self, class: Class, stored_len: u32) -> bool {
        let (len, keeps_recent) = (f64::from(stored_len), self.sample.keeps_recent());
        let rent = self.rents.at_entry(keeps_recent) * len;
        self.sample.lives().profit(class, 0, rent) > self.sample.price() * len
    }

    fn value(&self, record: &ContentRecord) -> f64 {
        self.sample.value(record.class(), record.used_at())
    }

    /// Returns the sum of the values of a slot's records.
    fn value_in(&self, slot: SlotId) -> f64 {
        self.contents.in_slot(slot).map(|(_, content)| self.value(content)).sum()
    }

    /// Returns the sealed slot of the least value among some that `is_out` does not name.
    pub(super) fn least_valuable(&mut self, is_out: &mut dyn FnMut(SlotId) -> bool) -> Option<SlotId> {
        let count = self.slots.count();
        let mut best: Option<(SlotId, f64)> = None;
        let mut consider = |this: &Larder, slot: SlotId| {
            if this.slots.state(slot) != SlotState::Sealed || is_out(slot) {
                return false;
            }
            let value = this.value_in(slot);
            if best.is_none_or(|(_, least)| value < least) {
                best = Some((slot, value));
            }
            true
        };
        if count as usize <= LOOKED_AT * DRAWS {
            (0..count).for_each(|slot| _ = consider(self, SlotId(slot)));
            return best.map(|(slot, _)| slot);
        }
        let mut left = LOOKED_AT;
        for _ in 0..LOOKED_AT * DRAWS {
            let slot = SlotId((self.sample.draw() % u64::from(count)) as u32);
            left -= usize::from(consider(self, slot));
            if left == 0 {
                break;
            }
        }
        let found = best.map(|(slot, _)| slot);
        found.or_else(|| self.slots.oldest_but(is_out))
    }

    /// Returns the records of a victim that are to be stored again, and marks their contents.
    pub(super) fn choose_kept(&mut self, victim: SlotId) -> Vec<Survivor> {
        let keeps_recent = self.sample.keeps_recent();
        if self.rents.now(keeps_recent) == 0.0 {
            // The first victim has the rent of its own mean value.
            self.rents.note(keeps_recent, self.value_in(victim) / self.slot_bytes as f64);
        }
        let (rent, least) = (self.rents.now(keeps_recent), self.rents.for_another_life(keeps_recent));
        let by_byte = |content: &ContentRecord| self.value(content) / f64::from(content.stored_len().max(1));
        let is_worth_it = |content: &ContentRecord| {
            let len = f64::from(content.stored_len());
            let profit = self.sample.lives().profit(content.class(), self.sample.since(content.used_at()), rent * len);
            // The life tables have no say while the cache keeps the most recent.
            let earns = keeps_recent || profit > self.sample.price() * len;
            content.fingerprint().is_some() && content.refs() > 0 && by_byte(content) > least && earns
        };
        let worthy = self.contents.in_slot(victim).filter(|(_, content)| is_worth_it(content));
        let mut worthy: Vec<(f64, ContentNumber)> = worthy.map(|(id, content)| (by_byte(content), id)).collect();
        worthy.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut room = self.slot_bytes / KEPT_SHARE;
        let mut kept = Vec::new();
        for (_, id) in worthy {
            let Some((place, record)) = self.contents.place_and_record(id) else { continue };
            let len = u64::from(record.stored_len());
            let (Some(lba), Some(fingerprint)) = (record.owner(), record.fingerprint()) else { continue };
            if len <= room && self.names(lba, id) {
                room -= len;
                kept.push(Survivor { lba, place, fingerprint });
                if let Some(record) = self.contents.record_mut(id) {
                    record.keep(true);
                }
            }
        }
        kept
    }

    /// Counts refused bytes. After some of them the rent follows the present victim.
    ///
    /// Contents age. A rent that only evictions lower would refuse all chunks for ever.
    fn note_refused(&mut self, len: u32) {
        self.refused += u64::from(len);
        let keeps_recent = self.sample.keeps_recent();
        if self.refused < self.slot_bytes / LOOK_SHARE || self.rents.now(keeps_recent) == 0.0 {
            return;
        }
        self.refused = 0;
        if let Some(slot) = self.least_valuable(&mut |_| false) {
            self.rents.note(keeps_recent, self.value_in(slot) / self.slot_bytes as f64);
        }
    }

    /// Notes the end of a victim: the value that goes with it is the rent of the bytes it frees.
    pub(super) fn settle_rent(&mut self, victim: SlotId) {
        let (mut lost, mut kept) = (0.0, 0);
        for (_, content) in self.contents.in_slot(victim) {
            match content.is_kept() {
                true => kept += u64::from(content.stored_len()),
                false => lost += self.value(content),
            }
        }
        let freed = self.slot_bytes.saturating_sub(kept).max(1);
        self.refused = 0;
        self.rents.note(self.sample.keeps_recent(), lost / freed as f64);
    }
}

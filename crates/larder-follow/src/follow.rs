//! The executor of `larder-sim` follows an engine's log: [`larder_core::decisions`].
//!
//! The log has the events in their order, also the ends of operations. The executor decides on
//! hits, duplicates, the places of records, and full slots. It also decides on the segments that a
//! commit closes, the victims, and the chunks that are clean then. It does so by the steps that
//! replay traces. In a trace one step follows from the other at once. Here the engine's steps are
//! events of their own. A slot is full; the next is opened; a victim is chosen; it is evicted; its
//! slot is free. A segment is closed; its write is over. A read uses a hit.
//!
//! The contents of metadata slots are kept here as last written ([`entries`](crate::entries)).
//!
//! Invariants: no event panics, for any log. Any design of `larder-core`'s table is followed; they
//! differ in the store beneath ([`Over`]).
//!
//! It does not count the frames of the metadata log and the checkpoints, which depend on the time
//! of the engine's committer.

use crate::entries::FollowedRegion;
use larder_core::{
    DESIGNS, DesignConfig, DesignLayout, Lba, Lookup, NamedDesign, NewMapping, Over, Place, SlotId, StreamClass,
    decisions::{Answer, Event, NewContent, Opened, Stored},
    design::Leaving,
    packing::PackingRules,
    ranges::Run,
};
use larder_format::layout::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CHUNKS_MAX, SECTOR_BYTES_MAX, SECTOR_BYTES_MIN, SUBCHUNK_BYTES_MIN,
    WEU_BYTES_MAX, WEU_BYTES_MIN,
};
use larder_sim::{
    cache::WritePolicy,
    executor::{Executor, ExecutorOptions, StoreRules},
};
use std::collections::VecDeque;

/// WEUs of a cache whose log is followed, at most: 8 TiB of flash in WEUs of 2 MiB.
const WEUS_MAX: u32 = 1 << 22;
/// Slots of one chunk, at most.
///
/// 128 GiB of flash have so many slots of 8 KiB, which take some 1.5 GiB of memory to follow.
const CHUNK_SLOTS_MAX: u32 = 1 << 24;
/// The limit of log entries, which are not counted here.
const NEVER: u64 = u64::MAX;

/// See the module.
pub struct Follower {
    steps: Executor,
    /// Number of the next segment that is closed, or metadata slot that changes.
    next_segment: u64,
    /// Segments whose write is not over, and metadata slots that changed: number, slot, bytes of
    /// data.
    in_flight: Vec<(u64, SlotId, u64)>,
    region: FollowedRegion,
    /// Slots that were chosen, and not evicted yet.
    victims: VecDeque<SlotId>,
    /// Slots that were evicted, and are not free yet.
    evicted: VecDeque<SlotId>,
}

fn within<T: PartialOrd + std::fmt::Display>(what: &str, value: T, least: T, most: T) -> Result<T, String> {
    if (&least..=&most).contains(&&value) {
        Ok(value)
    } else {
        Err(format!("{what} is {value}; it is from {least} to {most}"))
    }
}

/// Returns the design of this name, whose log can be followed.
fn followed(name: &str) -> Result<&'static NamedDesign, String> {
    DESIGNS.iter().find(|design| design.name == name).ok_or_else(|| {
        let names: Vec<&str> = DESIGNS.iter().map(|design| design.name).collect();
        format!("no log of the design {name:?} can be followed; those of {} can", names.join(", "))
    })
}

/// Returns the division of that cache's flash.
fn layout_of(opened: &Opened, over: &Over) -> Result<DesignLayout, String> {
    let Opened { chunk_bytes, slot_bytes, .. } = *opened;
    let (bucket_slots, chunk_count) = match over {
        // Elsewhere there are no buckets, and the size of the volume is not needed.
        Over::Weus(_) | Over::Slots(_) => (0, 0),
        Over::Buckets(_) => {
            let buckets = opened.buckets.ok_or("the log does not say how many slots a bucket has")?;
            (buckets.slots, within("the number of chunks", buckets.chunk_count, 1, CHUNKS_MAX)?)
        }
    };
    Ok(DesignLayout { chunk_bytes, slot_bytes, bucket_slots, chunk_count })
}

/// Returns the executor's options for the cache that a log begins with.
fn options_of(opened: &Opened, over: &Over) -> Result<ExecutorOptions, String> {
    let one_record = !matches!(over, Over::Weus(_));
    let chunk_bytes = within("the size of a chunk", opened.chunk_bytes, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)?;
    let slot_bytes = match over {
        Over::Weus(_) => (WEU_BYTES_MIN, WEU_BYTES_MAX),
        Over::Slots(_) => (chunk_bytes, chunk_bytes),
        Over::Buckets(_) => (SUBCHUNK_BYTES_MIN, chunk_bytes),
    };
    let slot_bytes = within("the size of a slot", opened.slot_bytes, slot_bytes.0, slot_bytes.1)?;
    let sector_bytes = match over {
        // A record has whole slots.
        Over::Buckets(_) => (slot_bytes, slot_bytes),
        _ => (SECTOR_BYTES_MIN, SECTOR_BYTES_MAX),
    };
    // A record with slots of its own has nothing around it.
    let around_bytes = if one_record { (0, 0) } else { (1, SECTOR_BYTES_MIN) };
    let slots_max = if one_record { CHUNK_SLOTS_MAX } else { WEUS_MAX };
    let (what, table) = ("the size of a segment's header", "the size of an entry of a segment's table");
    let rules = PackingRules {
        slot_bytes,
        sector_bytes: within("the size of a sector", opened.sector_bytes, sector_bytes.0, sector_bytes.1)?,
        header_bytes: within(what, opened.header_bytes, around_bytes.0, around_bytes.1)?,
        entry_bytes: within(table, opened.entry_bytes, around_bytes.0, around_bytes.1)?,
    };
    let slot_count = within("the number of slots", opened.slot_count, 1, slots_max)?;
    Ok(ExecutorOptions {
        chunk_bytes,
        rules,
        slot_count,
        mappings_max: opened.mappings_max,
        // Data in buckets is found by its metadata slots, of which no checkpoint has a list.
        fp_entries_max: match over {
            Over::Buckets(_) => slot_count.into(),
            _ => opened.fp_entries_max,
        },
        store: match over {
            Over::Weus(_) => StoreRules::weus(),
            Over::Slots(_) => StoreRules::slots(slot_count, true),
            Over::Buckets(_) => StoreRules::buckets(slot_count, slot_bytes),
        },
        log_bytes: 1 << 40,
        checkpoint_area_bytes: 0,
        policy: WritePolicy::Back,
        compress: true,
        dirty_chunks_max: NEVER,
        zero_ranges_max: NEVER,
        commit_entries: NEVER,
    })
}

impl Follower {
    /// Makes the empty cache that a log begins with.
    ///
    /// # Errors
    /// One sentence: a figure that no such cache has, or one that was not empty.
    pub fn opened(opened: &Opened) -> Result<Follower, String> {
        let Opened { mappings_max, fp_entries_max, .. } = *opened;
        // First: if slots are of another kind, no size of theirs is right.
        let followed = followed(&opened.design)?;
        if opened.found > 0 {
            return Err(format!(
                "the opening found {} chunks and used slots; only an empty cache can be followed",
                opened.found
            ));
        }
        let options = options_of(opened, &followed.over)?;
        let config = DesignConfig { slot_count: options.slot_count, mappings_max, fp_entries_max };
        let layout = layout_of(opened, &followed.over)?;
        let design = followed.make(config, &layout).map_err(|error| error.to_string())?;
        let mut steps = Executor::deciding(design, options)?;
        steps.keep_closed();
        Ok(Follower {
            steps,
            next_segment: opened.first_segment,
            in_flight: Vec::new(),
            region: FollowedRegion::default(),
            victims: VecDeque::new(),
            evicted: VecDeque::new(),
        })
    }

    /// Decides one event.
    ///
    /// # Errors
    /// One sentence: the log contradicts the state here, or cannot be followed from there on. Then
    /// the cache is of no use any more.
    pub fn decide(&mut self, event: &Event) -> Result<Answer, String> {
        let answer = self.decide_event(event);
        self.note_closed();
        answer
    }

    fn decide_event(&mut self, event: &Event) -> Result<Answer, String> {
        let steps = &mut self.steps;
        match *event {
            Event::Opened(_) => Err("the cache is open already".into()),
            Event::Fault => {
                Err("the flash failed, or a record is damaged: later decisions depend on bytes, and cannot be followed"
                    .into())
            }
            Event::Read { lba, first, end, held_back } => {
                let found = steps.look_up(lba, held_back);
                Ok(match found {
                    Lookup::Fragment { sectors, .. } if !sectors.has_all(first.into(), end.into()) => Answer::Miss,
                    found => answer_of(&found),
                })
            }
            Event::Use { lba } => self.decide_use(lba),
            Event::Merge { lba, held_back } => Ok(answer_of(&steps.look_up(lba, held_back))),
            Event::Look { fingerprint } => {
                Ok(steps.known(&fingerprint).map_or(Answer::Miss, |place| Answer::Hit((&place).into())))
            }
            Event::Insert { lba, content, dirty } => {
                let answer = self.decide_insert(lba, content, dirty)?;
                self.note_changed_entries();
                Ok(answer)
            }
            Event::Fragment { lba, sectors, stored, seq } => {
                self.begin_write(Some(seq))?;
                let place = self.append_logged(stored, StreamClass::Dirty)?;
                self.steps.map(lba, NewMapping::Fragment { place, sectors }, Some(StreamClass::Dirty), true);
                self.note_changed_entries();
                Ok(Answer::Stored((&place).into()))
            }
            Event::Change { first, count, again } => {
                let end = end_of(first, count)?;
                if again {
                    (first.0..end).for_each(|lba| _ = steps.design_mut().suspend(Lba(lba)));
                } else {
                    steps.design_mut().unmap_each(first, count, Leaving::All);
                }
                Ok(Answer::Done)
            }
            Event::Forget { lba } => {
                steps.design_mut().unmap(lba);
                Ok(Answer::Done)
            }
            Event::Trim { first, count, seq } => {
                end_of(first, count)?;
                steps.design_mut().trim(Run::new(first, count, seq));
                Ok(Answer::Done)
            }
            Event::Clean { lba, seq } => Ok(Answer::Count(steps.mark_clean(lba, seq).into())),
            Event::CleanRun { first, count, seq } => {
                end_of(first, count)?;
                steps.destage_run(Run::new(first, count, seq));
                Ok(Answer::Done)
            }
            _ => self.decide_slots(event),
        }
    }

    /// Decides events of segments and slots.
    fn decide_slots(&mut self, event: &Event) -> Result<Answer, String> {
        let steps = &mut self.steps;
        match *event {
            Event::Full { class, fingerprint, stored } => {
                if fingerprint.is_some_and(|fingerprint| steps.known(&fingerprint).is_some()) {
                    return Err("the content is known here, so that nothing has to fit".into());
                }
                check_stored(steps, stored)?;
                let Some(slot) = steps.open_slot_of(class) else {
                    return Err("no slot is open here that could be full".into());
                };
                if steps.would_fit(stored, class) {
                    return Err(format!("the record fits here, into slot {}", slot.0));
                }
                steps.close_segment(class, true);
                Ok(Answer::Done)
            }
            Event::Open { class, ref wanted } => {
                within("the length of a record", wanted.stored_len, 1, steps.options().chunk_bytes)?;
                if let Some(slot) = steps.open_slot_of(class) {
                    return Err(format!("a slot is open here already, slot {}", slot.0));
                }
                Ok(slot_or_none(steps.open_slot(class, wanted)))
            }
            Event::Commit { all } => {
                steps.close_for_commit(all);
                Ok(Answer::Done)
            }
            Event::Seal => {
                steps.close_all();
                Ok(Answer::Done)
            }
            Event::Sweep => Ok(Answer::Count(steps.design_mut().sweep() as u64)),
            Event::Drop { all, max } => {
                let max = usize::try_from(max).unwrap_or(usize::MAX);
                Ok(Answer::Count(steps.design_mut().drop_clean_zeroes(all, max).len() as u64))
            }
            _ => self.decide_followed(event),
        }
    }

    /// Decides events of operations with several steps.
    fn decide_followed(&mut self, event: &Event) -> Result<Answer, String> {
        let Follower { steps, in_flight, region, victims, evicted, .. } = self;
        match *event {
            Event::Told { slot } => {
                let entry = region.read(slot);
                let answer = entry.as_ref().map_or(Answer::Miss, |entry| Answer::Hit((&entry.place).into()));
                steps.design_mut().tell(slot, entry);
                Ok(answer)
            }
            Event::Settled { lba, is_durable } => {
                steps.design_mut().settle(lba, is_durable);
                self.note_changed_entries();
                Ok(Answer::Done)
            }
            Event::Committed { upto } => {
                steps.design_mut().committed(upto);
                self.note_changed_entries();
                Ok(Answer::Done)
            }
            Event::Taken { segment } => {
                let is_it = |&&(number, _, bytes): &&(u64, SlotId, u64)| number == segment && bytes == 0;
                let Some(&(_, slot, _)) = in_flight.iter().find(is_it) else {
                    return Err(format!("no metadata slot of number {segment} has changed here and is not written"));
                };
                let entry = steps.design().entry_to_write(slot);
                let taken = entry.as_ref().map(|_| slot);
                region.take(segment, entry);
                Ok(slot_or_none(taken))
            }
            Event::Written { segment } => {
                let at = in_flight.iter().position(|&(number, ..)| number == segment);
                let Some(at) = at else { return Err(format!("no segment {segment} is closed here and not written")) };
                if let Some(entry) = region.written(segment) {
                    steps.design_mut().entry_written(&entry);
                }
                Ok(Answer::Count(in_flight.swap_remove(at).2))
            }
            Event::Choose => {
                let is_busy = |slot| in_flight.iter().any(|&(_, busy, _)| busy == slot);
                let victim = steps.design_mut().choose_victim(&mut { is_busy }).map(|victim| victim.slot);
                victims.extend(victim);
                Ok(slot_or_none(victim))
            }
            Event::Evict => {
                let victim = victims.pop_front().ok_or("no victim is chosen here")?;
                let gone = steps.end_victim(victim).then_some(victim);
                evicted.extend(gone);
                Ok(slot_or_none(gone))
            }
            Event::Release => {
                let slot = evicted.pop_front().ok_or("no slot is evicted here and not free")?;
                steps.release(slot);
                Ok(Answer::Slot(slot))
            }
            Event::Reuse { lba } => self.reuse(lba),
            _ => self.decide_selective(event),
        }
    }

    /// Decides events of a selective design.
    fn decide_selective(&mut self, event: &Event) -> Result<Answer, String> {
        let design = self.steps.design_mut();
        match *event {
            Event::Keep { slot } if !self.victims.contains(&slot) => Err(format!("slot {} is not chosen here", slot.0)),
            Event::Keep { slot } => Ok(Answer::Count(design.survivors(slot).len() as u64)),
            Event::Refuse { ref wanted } if design.admits(wanted) => {
                Err(format!("a record of chunk {} is admitted here", wanted.lba.0))
            }
            Event::Refuse { .. } => Ok(Answer::Done),
            _ => Err("this event is none of such a cache".into()),
        }
    }

    /// Frees the slots in the way of a record ahead of their log entries.
    fn reuse(&mut self, lba: Lba) -> Result<Answer, String> {
        let Follower { steps, in_flight, victims, evicted, .. } = self;
        let slots = steps.design().in_the_way(lba);
        let is_going = |slot| victims.contains(slot) || evicted.contains(slot);
        let is_busy = |slot| in_flight.iter().any(|(_, busy, _)| busy == slot);
        let stays = |slot| is_going(slot) || is_busy(slot) || !steps.design().dirty_in(*slot).is_empty();
        if slots.is_empty() || slots.iter().any(stays) {
            return Err(format!("nothing that can go stands in the way of what chunk {} waits to store", lba.0));
        }
        steps.reuse(&slots);
        Ok(Answer::Count(slots.len() as u64))
    }

    /// Decides the use of a hit, which the metadata slot as last written may have to confirm.
    fn decide_use(&mut self, lba: Lba) -> Result<Answer, String> {
        let design = self.steps.design();
        let confirmed = || {
            let slot = design.slot_of(lba)?;
            design.hit_with(lba, slot, &*self.region.read(slot)?)
        };
        let hit = design.hit(lba).or_else(confirmed).ok_or("no read of this chunk hits here beside others")?;
        self.steps.design_mut().used(&[hit.used]);
        Ok(Answer::Slot(hit.used.slot))
    }

    fn decide_insert(&mut self, lba: Lba, content: NewContent, dirty: Option<u64>) -> Result<Answer, String> {
        self.begin_write(dirty)?;
        let (fingerprint, stored) = match content {
            NewContent::Zero => {
                self.steps.map(lba, NewMapping::Zero, None, dirty.is_some());
                return Ok(Answer::Done);
            }
            NewContent::Chunk { fingerprint, stored } => (fingerprint, stored),
        };
        if let Some(place) = fingerprint.and_then(|known| self.steps.map_known(lba, &known, dirty.is_some())) {
            return Ok(Answer::Hit((&place).into()));
        }
        let Some(stored) = stored else {
            return Err("the content is not known here, and the log does not say how long it is".into());
        };
        let class = if dirty.is_some() { StreamClass::Dirty } else { StreamClass::Clean };
        let place = self.append_logged(stored, class)?;
        let fingerprint = fingerprint.filter(|_| self.steps.options().fp_entries_max > 0);
        self.steps.map_stored(lba, place, fingerprint, dirty.is_some());
        Ok(Answer::Stored((&place).into()))
    }

    /// Numbers the segments that were closed.
    fn note_closed(&mut self) {
        for (slot, bytes) in self.steps.take_closed() {
            self.note_in_flight(slot, bytes);
        }
    }

    /// Notes the metadata slots that the last decision changed: they are to be written.
    fn note_changed_entries(&mut self) {
        self.note_closed();
        while let Some(entry) = self.steps.design_mut().next_changed_entry() {
            self.note_in_flight(entry.place.slot, 0);
        }
    }

    fn note_in_flight(&mut self, slot: SlotId, bytes: u64) {
        self.in_flight.push((self.next_segment, slot, bytes));
        self.next_segment = self.next_segment.wrapping_add(1);
    }

    /// Gives the write this number.
    fn begin_write(&mut self, seq: Option<u64>) -> Result<(), String> {
        // Clean mappings have none, and must not use them up.
        let seq = seq.map_or(Ok(0), |seq| within("the number of a write", seq, 0, u64::MAX - 1))?;
        self.steps.number_next(seq);
        Ok(())
    }

    fn append_logged(&mut self, stored: Stored, class: StreamClass) -> Result<Place, String> {
        let steps = &mut self.steps;
        check_stored(steps, stored)?;
        let open = steps.open_slot_of(class);
        let place = steps.append(stored, class).ok_or_else(|| match open {
            Some(slot) => format!("the record does not fit here, into slot {}", slot.0),
            None => "no slot is open here that the record could go to".into(),
        })?;
        if steps.options().store.one_record {
            // It is full, before the record is mapped.
            steps.close_segment(class, true);
        }
        Ok(place)
    }
}

fn check_stored(steps: &Executor, stored: Stored) -> Result<(), String> {
    within("the length of a record", stored.bytes, 1, steps.options().chunk_bytes).map(|_| ())
}

fn answer_of(found: &Lookup) -> Answer {
    match found {
        Lookup::Miss => Answer::Miss,
        Lookup::Zero => Answer::Zero,
        Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Answer::Hit(place.into()),
    }
}

fn slot_or_none(slot: Option<SlotId>) -> Answer {
    slot.map_or(Answer::NoSlot, Answer::Slot)
}

/// Returns the chunk behind the last one of a run.
fn end_of(first: Lba, count: u64) -> Result<u64, String> {
    within("the number of chunks", count, 1, CHUNKS_MAX)?;
    let end = first.0.checked_add(count).filter(|&end| end <= CHUNKS_MAX);
    end.ok_or_else(|| format!("a volume has {CHUNKS_MAX} chunks at most, fewer than {} and {count} more", first.0))
}

//! Write-back: a write is over when the cache holds it, and does not touch the origin on its way.
//!
//! A whole chunk is fingerprinted. A duplicate is mapped only; new content is compressed and
//! appended to the open dirty slot. A partial chunk merges with its cached copy. Without a copy it
//! becomes a *fragment*: a record of the valid sectors with a bitmap. Later partial writes extend
//! it, reads complete it, and destaging writes it sector by sector.
//!
//! Invariants: a mapping and its log entry are made under one lock. The caller's range ticket keeps
//! two writes of one chunk apart.
//!
//! It does not wait for durability; FLUSH and FUA do.

use crate::{
    decision_log::sink::LookupCause,
    error::EngineError,
    geometry::sectors_of,
    log_room::Reserved,
    prepare::Prepared,
    read::again::TRIES_MAX,
    record::{HeldRecord, decode_chunk, overlay_fragment},
    region::Ahead,
    segment::IN_FLIGHT_SEGMENTS_MAX,
    segment::record::{NewRecord, Payload, RecordOf},
    shared::Shared,
    state::State,
    state_lock::StateGuard,
    sync::either,
};
use larder_core::{Fingerprint, Lba, Lookup, NewMapping, Place, SectorMap, StreamClass, types::SECTOR_BYTES};
use larder_device::{IoBuf, IoFuture, SharedBuf, runtime::compute};
use larder_format::Encoding;
use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::*},
};

/// Chunks of one request that workers prepare at once.
const PREPARE_AHEAD_MAX: usize = 16;

/// The content of a chunk before a partial write.
enum Base {
    Zero,
    Chunk(HeldRecord),
    Fragment(HeldRecord, SectorMap),
    Prefetched(SharedBuf),
    Unknown,
}

/// A chunk after a partial write.
pub(crate) struct Merged {
    /// The bytes of the chunk.
    pub chunk: IoBuf,
    /// The known sectors of the chunk.
    pub valid: SectorMap,
    /// All sectors are known.
    pub is_whole: bool,
}

/// The lack for which a writer waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// The log is nearly full.
    Log,
    /// Other writers have reserved the rest of the log.
    Turn,
    /// Too many segments wait for the flash.
    Segments,
    /// Too many entries wait for a commit.
    Commit,
    /// A limit of dirty data is met.
    Destage,
    /// The index is nearly full.
    Room,
}

impl Shared {
    /// Writes `data` at `offset` into the cache. The caller holds the ticket. Returns the sequence
    /// number of the last mapping.
    pub(crate) async fn write_back(self: &Arc<Self>, offset: u64, data: &SharedBuf) -> Result<u64, EngineError> {
        let (first, count) = self.geometry.chunks_of(offset, data.len() as u64);
        let end = offset + data.len() as u64;
        let mut ahead: VecDeque<IoFuture<Prepared>> = Default::default();
        let mut next_ahead = first.0;
        // The contents of the chunks below this were asked for.
        let mut asked_below = first.0;
        let mut seq = 0;
        for lba in (first.0..first.0 + count).map(Lba) {
            let start = self.geometry.offset_of(lba);
            let len = self.geometry.chunk_len(lba) as u64;
            let (from, to) = (offset.max(start), end.min(start + len));
            let piece = data.slice((from - offset) as usize..(to - offset) as usize);
            seq = if piece.len() as u64 == len {
                // Workers prepare this chunk and the ones behind it while this task stores the
                // chunks that are ready.
                if count > 1 || self.writes.is_shared() {
                    next_ahead = next_ahead.max(lba.0);
                    while ahead.len() < PREPARE_AHEAD_MAX && self.runtime.has_idle_worker() {
                        let Some(chunk) = self.whole_chunk(Lba(next_ahead), offset, data) else { break };
                        let this = self.clone();
                        ahead.push_back(compute(&*self.runtime, move || this.prepare(&chunk)));
                        next_ahead += 1;
                    }
                }
                if count > 1 && lba.0 >= asked_below && self.geometry.store.reads_to_decide() {
                    // The result is dropped, because a writer may wait long for room. A content
                    // that is forgotten meanwhile is read again.
                    drop(self.ask_for_contents(lba, offset, data, &mut ahead).await?);
                    next_ahead = next_ahead.max(lba.0 + ahead.len() as u64);
                    asked_below = next_ahead;
                }
                if let Some(ready) = ahead.pop_front() {
                    let (_room, ()) = self.wait_until_writable(|_| ()).await?;
                    self.put_dirty(lba, &piece, ready.await?).await?
                } else {
                    next_ahead = lba.0 + 1;
                    let hashed = self.hash(&piece);
                    // `look` runs under the lock under which the log has room for the entry.
                    let look = |state: &mut State| hashed.content().is_some_and(|content| state.knows(content));
                    let (_room, is_known) = self.wait_until_writable(look).await?;
                    let prepared = self.prepare_hashed(&piece, hashed, is_known);
                    self.put_dirty(lba, &piece, prepared).await?
                }
            } else {
                let (_room, ()) = self.wait_until_writable(|_| ()).await?;
                self.write_partial(lba, (from - start) as usize, &piece).await?
            };
        }
        Ok(seq)
    }

    /// Prepares some chunks from `lba` on, and reads the metadata slots of their contents side by
    /// side. Chunks that are `ahead` already come first.
    async fn ask_for_contents(
        self: &Arc<Self>,
        lba: Lba,
        offset: u64,
        data: &SharedBuf,
        ahead: &mut VecDeque<IoFuture<Prepared>>,
    ) -> Result<Option<Ahead>, EngineError> {
        let mut prepared = Vec::with_capacity(PREPARE_AHEAD_MAX);
        for chunk in ahead.drain(..) {
            prepared.push(chunk.await?);
        }
        while prepared.len() < PREPARE_AHEAD_MAX
            && let Some(chunk) = self.whole_chunk(Lba(lba.0 + prepared.len() as u64), offset, data)
        {
            prepared.push(self.prepare(&chunk));
        }
        let contents: Vec<Fingerprint> = prepared.iter().filter_map(Prepared::fingerprint).collect();
        let told = self.confirm_contents(&contents).await;
        ahead.extend(prepared.into_iter().map(|chunk| IoFuture::ready(Ok(chunk))));
        Ok(told)
    }

    fn whole_chunk(&self, lba: Lba, offset: u64, data: &SharedBuf) -> Option<SharedBuf> {
        let start = self.geometry.offset_of(lba);
        if lba.0 >= self.geometry.chunk_count || start < offset {
            return None;
        }
        let from = (start - offset) as usize;
        let to = from + self.geometry.chunk_len(lba);
        (to <= data.len()).then(|| data.slice(from..to))
    }

    /// Waits while the log or the dirty share is full, or the index has no room.
    ///
    /// Returns a reservation of one log entry, which ends when it is dropped, and the finding of
    /// `look` under the same lock.
    pub(crate) async fn wait_until_writable<R>(
        self: &Arc<Self>,
        look: impl FnOnce(&mut State) -> R,
    ) -> Result<(Reserved<'_>, R), EngineError> {
        let mut tries = None;
        loop {
            let destaged = self.signals.destaged.listen();
            let committed = self.signals.committed.listen();
            let checkpointed = self.signals.checkpointed.listen();
            let room = self.signals.index_room.listen();
            let reserved = self.signals.reserved.listen();
            let written = self.signals.segments.listen();
            let lack = {
                let mut state = self.state.lock();
                state.flash.check()?;
                let tries = *tries.get_or_insert(state.checkpoint_tries.begun());
                match self.lack(&state) {
                    Some(lack) => {
                        if lack == Lack::Log
                            && let Some(error) = state.checkpoint_tries.error_after(tries)
                        {
                            return Err(error.clone());
                        }
                        lack
                    }
                    None => match self.reserve(&state) {
                        Some(reserved) => return Ok((reserved, look(&mut state))),
                        None => Lack::Turn,
                    },
                }
            };
            self.refuse_if_draining()?;
            self.counters.write_waits.fetch_add(1, Relaxed);
            match lack {
                Lack::Log => {
                    self.signals.checkpoint_wanted.notify();
                    either(checkpointed, reserved).await;
                }
                Lack::Turn => reserved.await,
                Lack::Segments => {
                    self.send_segments();
                    written.await;
                }
                Lack::Commit => {
                    self.request_commit(u64::MAX, false);
                    committed.await;
                }
                Lack::Destage => {
                    let _counted = self.writes.wait_for_room();
                    self.wait_for_destage(destaged).await;
                }
                Lack::Room => {
                    let _counted = self.writes.wait_for_room();
                    self.signals.evict_wanted.notify();
                    room.await;
                }
            }
        }
    }

    /// Returns the lack for which a writer has to wait, other than its turn.
    fn lack(&self, state: &State) -> Option<Lack> {
        if self.log_is_crowded(state) {
            Some(Lack::Log)
        } else if self.commit_is_overdue(state) {
            Some(Lack::Commit)
        } else if state.writer.in_flight().len() >= 2 * IN_FLIGHT_SEGMENTS_MAX {
            Some(Lack::Segments)
        } else if self.too_dirty(state) {
            Some(Lack::Destage)
        } else {
            (!state.design().has_room(self.room_wanted())).then_some(Lack::Room)
        }
    }

    /// Stores a whole chunk and maps it dirty. Returns the sequence number of its mapping.
    pub(crate) async fn put_dirty(
        self: &Arc<Self>,
        lba: Lba,
        chunk: &SharedBuf,
        prepared: Prepared,
    ) -> Result<u64, EngineError> {
        // A chunk counts when it is mapped. Those that wait for a slot would lower the average size
        // of chunks, by which the dirty share of the flash is estimated.
        if let Prepared::Zero = prepared {
            self.counters.inserted_chunks.fetch_add(1, Relaxed);
            self.counters.zero_chunks.fetch_add(1, Relaxed);
            let mut state = self.state.lock();
            let mapped = state.map_dirty(lba, NewMapping::Zero, None);
            self.decided(state);
            return mapped;
        }
        let (mut padded, fingerprint) = (Vec::new(), prepared.fingerprint());
        let payload = prepared.payload(self.padded(chunk, &mut padded));
        let (class, of) = (StreamClass::Dirty, RecordOf::Chunk(fingerprint));
        self.store(
            NewRecord { class, lba, of, payload },
            // Another writer may have stored the same content since the lookup.
            |state, _| self.map_known(state, lba, fingerprint?),
            |state, place| {
                self.counters.inserted_chunks.fetch_add(1, Relaxed);
                self.counters.note_stored(
                    place.stored_len,
                    self.geometry.chunk_bytes,
                    self.geometry.record_step_bytes(),
                );
                state.map_dirty(lba, NewMapping::Unique { place, fingerprint }, fingerprint)
            },
        )
        .await?
    }

    fn map_known(
        &self,
        state: &mut StateGuard<'_, State>,
        lba: Lba,
        fingerprint: Fingerprint,
    ) -> Option<Result<u64, EngineError>> {
        let place = state.find_duplicate(&fingerprint)?;
        self.counters.inserted_chunks.fetch_add(1, Relaxed);
        self.counters.duplicate_chunks.fetch_add(1, Relaxed);
        let mapped = state.map_dirty(lba, NewMapping::Duplicate { place }, Some(fingerprint));
        self.keep_room(state);
        Some(mapped)
    }

    /// Writes some sectors of a chunk, without the origin.
    async fn write_partial(self: &Arc<Self>, lba: Lba, from: usize, piece: &[u8]) -> Result<u64, EngineError> {
        let merged = self.merge_partial(lba, from, piece).await?;
        self.put_merged(lba, merged).await
    }

    /// Merges some sectors of a chunk with those that the cache has.
    pub(crate) async fn merge_partial(
        self: &Arc<Self>,
        lba: Lba,
        from: usize,
        piece: &[u8],
    ) -> Result<Merged, EngineError> {
        let len = self.geometry.chunk_len(lba);
        self.confirm(lba).await;
        let base = {
            let mut state = self.state.lock();
            match self.lookup(&mut state, lba, LookupCause::Merge) {
                Lookup::Zero => Base::Zero,
                Lookup::Chunk { place, .. } => Base::Chunk(self.hold(&state, place)),
                Lookup::Fragment { place, sectors } => Base::Fragment(self.hold(&state, place), sectors),
                Lookup::Miss => match state.prefetch.read(lba, 0, 0) {
                    crate::prefetch::buffer::Prefetched::Here { data, .. } => Base::Prefetched(data),
                    _ => Base::Unknown,
                },
            }
        };
        let mut valid = SectorMap::EMPTY;
        let all = (0, len / SECTOR_BYTES);
        let mut chunk = match base {
            Base::Unknown => IoBuf::zeroed(len),
            Base::Zero => {
                valid.set(all.0, all.1);
                IoBuf::zeroed(len)
            }
            Base::Prefetched(data) => {
                valid.set(all.0, all.1);
                IoBuf::copy_of(&data)
            }
            Base::Chunk(held) => match self.read_whole(lba, held).await? {
                Some(mut chunk) => {
                    chunk.truncate(len);
                    valid.set(all.0, all.1);
                    chunk
                }
                None => IoBuf::zeroed(len),
            },
            Base::Fragment(held, sectors) => {
                let overlay = |place: &Place, payload: IoBuf| {
                    let mut chunk = IoBuf::zeroed(len);
                    overlay_fragment(place, &sectors, &payload, &mut chunk).then_some(chunk)
                };
                match self.read_base(lba, held, overlay).await? {
                    Some(chunk) => {
                        valid = sectors;
                        chunk
                    }
                    None => IoBuf::zeroed(len),
                }
            }
        };
        chunk[from..from + piece.len()].copy_from_slice(piece);
        let (first, end) = sectors_of(from, piece.len());
        valid.set(first, end);
        Ok(Merged { chunk, valid, is_whole: valid.has_all(all.0, all.1) })
    }

    /// Stores merged sectors of a chunk, and maps them dirty. Returns the sequence number of the
    /// mapping.
    pub(crate) async fn put_merged(self: &Arc<Self>, lba: Lba, merged: Merged) -> Result<u64, EngineError> {
        let Merged { chunk, valid, is_whole } = merged;
        if is_whole {
            let prepared = self.prepare(&chunk);
            return self.put_dirty(lba, &chunk.freeze(), prepared).await;
        }
        self.put_fragment(lba, &chunk, valid).await
    }

    async fn put_fragment(self: &Arc<Self>, lba: Lba, chunk: &[u8], valid: SectorMap) -> Result<u64, EngineError> {
        let mut packed = Vec::with_capacity(valid.count() * SECTOR_BYTES);
        for (first, end) in valid.runs(chunk.len() / SECTOR_BYTES) {
            packed.extend_from_slice(&chunk[first * SECTOR_BYTES..end * SECTOR_BYTES]);
        }
        let encoded = self.codec.encode(&packed);
        let payload = Payload::of(&encoded, &packed);
        self.counters.fragments_written.fetch_add(1, Relaxed);
        self.counters.fragment_bytes.fetch_add(packed.len() as u64, Relaxed);
        let (class, of) = (StreamClass::Dirty, RecordOf::Fragment(valid));
        self.store(
            NewRecord { class, lba, of, payload },
            |_, _| None,
            |state, place| {
                self.counters.note_stored(place.stored_len, packed.len(), self.geometry.record_step_bytes());
                state.map_dirty(lba, NewMapping::Fragment { place, sectors: valid }, None)
            },
        )
        .await?
    }

    /// Returns the content of `lba`'s record, with which a partial write merges.
    ///
    /// Returns `None` for a clean record that cannot be read: the origin has its content, and a
    /// fragment records the new sectors.
    ///
    /// # Errors
    /// [`EngineError::DirtyDataLost`] for a dirty record that fails its check; the device's error
    /// for a record that it fails to read several times.
    async fn read_base(
        self: &Arc<Self>,
        lba: Lba,
        mut held: HeldRecord,
        decode: impl Fn(&Place, IoBuf) -> Option<IoBuf>,
    ) -> Result<Option<IoBuf>, EngineError> {
        let place = held.place;
        let mut tries = 0;
        loop {
            tries += 1;
            let read = self.read_held(held).await;
            let _ = read.as_ref().inspect_err(|error| self.note_flash_read_error(error));
            let content = read.map(|payload| decode(&place, payload?));
            if let Ok(Some(content)) = content {
                return Ok(Some(content));
            }
            let mut state = self.state.lock();
            state.note_damaged(&place);
            // Other writes of the chunk wait for this one, but a destage may have cleaned it
            // meanwhile.
            let Some(seq) = state.design().dirty_seq(lba) else {
                self.counters.corrupt_records.fetch_add(content.is_ok().into(), Relaxed);
                return Ok(None);
            };
            match content {
                Err(error) if tries >= TRIES_MAX => return Err(error.into()),
                Err(_) => held = self.hold(&state, place),
                // The first read may have been wrong.
                Ok(_) if tries == 1 => held = self.hold(&state, place),
                Ok(_) => {
                    self.counters.corrupt_records.fetch_add(1, Relaxed);
                    state.lost.note(lba, seq);
                    return Err(EngineError::DirtyDataLost { offset: self.geometry.offset_of(lba) });
                }
            }
        }
    }

    /// Returns the content of a whole chunk's record, as [`Shared::read_base`].
    pub(crate) async fn read_whole(self: &Arc<Self>, lba: Lba, held: HeldRecord) -> Result<Option<IoBuf>, EngineError> {
        self.read_base(lba, held, |place, payload| self.decode_whole(place, payload)).await
    }

    fn decode_whole(&self, place: &Place, payload: IoBuf) -> Option<IoBuf> {
        if place.encoding == Encoding::Raw.code() {
            return (payload.len() == self.geometry.chunk_bytes).then_some(payload);
        }
        let mut chunk = IoBuf::new(self.geometry.chunk_bytes);
        decode_chunk(place, &payload, &mut chunk).then_some(chunk)
    }
}

//! Destaging: dirty data goes to the origin, in the order of its addresses, at a limited rate.
//!
//! In order, for a batch: (1) the batch is durable on flash; (2) its records are read and written to the origin, runs of
//! neighbours as one write, fragments sector run by sector run, trimmed runs as zeroes; (3) the origin is flushed;
//! (4) each mapping whose sequence number is still the newest is marked clean, and the mark is logged. A crash before
//! (4) is durable leaves the data dirty; it is destaged again, to the same effect. The mark is durable before a slot
//! is reused, because freeing a slot commits.
//!
//! Invariants: at most one destage of a chunk is in flight (tickets of their own order them). Dirty data that cannot be
//! read stays dirty and is passed over.
//!
//! What it does not do: decide when a slot goes; [`evict`](crate::evict) does, and destages through here.

use crate::{
    batch::BatchRecord,
    error::EngineError,
    fence::Fence,
    record::{decode_chunk, overlay_fragment},
    shared::Shared,
    state::State,
    sync::join_all,
};
use larder_core::{Lba, Lookup, SectorMap, ranges::Run, types::SECTOR_BYTES};
use larder_device::{IoBuf, IoFuture, SharedBuf, WriteFlags, ZeroFlags};
use larder_format::LogEntry;
use std::{
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

/// Chunks in a batch at most, and bytes.
const BATCH_CHUNKS_MAX: usize = 256;
/// Chunks in a batch while nothing presses: a reader that misses waits behind one at most.
const BATCH_CHUNKS_RELAXED: usize = 32;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Dirty chunks and fragments that writers in flight may add after the limit was met.
const ROOM: u64 = 32;
/// Zeroes for the origin in one turn, in bytes: a disk that cannot punch holes writes them all.
const ZERO_BYTES_MAX: u64 = 16 << 20;
/// Insertions after which the average size of a stored chunk says something.
const AVERAGE_OVER_MIN: u64 = 1000;
/// Pause after a turn that wrote nothing.
const IDLE: Duration = Duration::from_millis(1);
/// Turns in a row that may write nothing before a degraded cache waits longer.
const IDLE_TURNS_MAX: u32 = 8;
/// Pause after the origin failed, doubling up to the maximum.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// One piece of origin content: where, and the bytes.
struct Piece {
    offset: u64,
    data: SharedBuf,
}

impl Shared {
    /// Flash that dirty chunks are taken to occupy, in percent of all slots: as much for each as was stored for a chunk on
    /// average, duplicates and compression included.
    fn dirty_percent(&self, state: &State) -> u64 {
        let chunk = self.geometry.chunk_bytes as u64;
        let inserted = self.counters.inserted_chunks.load(Relaxed);
        let stored = self.counters.stored_bytes.load(Relaxed);
        let average = if inserted < AVERAGE_OVER_MIN { chunk } else { (stored / inserted).clamp(chunk / 16, chunk) };
        let layout = &self.geometry.layout;
        let capacity = u64::from(layout.slot_count) * u64::from(layout.weu_bytes);
        state.design.dirty_counts().chunks * average * 100 / capacity.max(1)
    }

    /// Whether writers must wait for destaging.
    pub(crate) fn too_dirty(&self, state: &State) -> bool {
        let (dirty, layout) = (state.design.dirty_counts(), &self.geometry.layout);
        // Limits of what a checkpoint holds bind only where the volume has more chunks than that.
        let full = |count: u64, max: u64| max < self.geometry.chunk_count && count + (max / 8).min(ROOM) >= max;
        self.dirty_percent(state) >= u64::from(self.tuning.dirty_max_percent)
            || full(dirty.chunks, self.geometry.index_entries_max / 2)
            || full(dirty.fragments, layout.fragments_max)
            // A write into the middle of a trimmed run makes two of it.
            || full(dirty.runs, layout.zero_ranges_max)
    }

    /// Wakes the destager if the low watermark is passed.
    pub(crate) fn wake_destager_if_due(&self) {
        let due = {
            let state = self.state.lock();
            self.destage_due(&state)
        };
        if due {
            self.signals.destage_wanted.notify();
        }
    }

    fn destage_due(&self, state: &State) -> bool {
        let dirty = state.design.dirty_counts();
        if state.flash_failed.is_some() {
            // All that can be read shall be on the origin.
            return dirty.chunks > state.lost.len() as u64 || dirty.runs > 0;
        }
        self.dirty_percent(state) >= u64::from(self.tuning.dirty_low_percent)
            || dirty.runs >= self.geometry.layout.zero_ranges_max / 4
            || self.too_dirty(state)
    }

    /// The destager's task: keeps the dirty share below the low watermark until the cache closes.
    pub(crate) async fn destager(self: Arc<Self>) {
        let mut cursor = Lba(0);
        let mut pause = RETRY_FIRST;
        let mut idle_turns = 0;
        loop {
            let wanted = self.signals.destage_wanted.listen();
            let (due, urgent, degraded) = {
                let state = self.state.lock();
                let degraded = state.flash_failed.is_some();
                let urgent = degraded
                    || self.dirty_percent(&state) >= u64::from(self.tuning.dirty_high_percent)
                    || self.too_dirty(&state)
                    || state.design.dirty_counts().runs >= self.geometry.layout.zero_ranges_max / 2;
                (self.destage_due(&state), urgent, degraded)
            };
            if self.is_closing() {
                return;
            }
            if !due {
                // Whoever waits for a destage may wait for what happened otherwise.
                self.signals.destaged.notify();
                wanted.await;
                continue;
            }
            let began = self.runtime.now();
            let chunks_max = if urgent { BATCH_CHUNKS_MAX } else { BATCH_CHUNKS_RELAXED };
            match self.destage_next(&mut cursor, chunks_max).await {
                // Nothing could be destaged, or the end of the volume was passed: never turn without a pause.
                Ok(0) => {
                    idle_turns += 1;
                    // Without the flash some of it may never come: no need to ask every millisecond.
                    let often = !degraded || idle_turns < IDLE_TURNS_MAX;
                    let _ = self.runtime.delay(if often { IDLE } else { RETRY_MAX }).await;
                }
                Ok(bytes) => {
                    idle_turns = 0;
                    pause = RETRY_FIRST;
                    let rate = self.tuning.destage_rate_bytes_per_s;
                    if !urgent && rate > 0 {
                        // Bytes say little about a disk that seeks: half of its time is left to readers, too.
                        let spent = self.runtime.now().saturating_sub(began);
                        let earliest = Duration::from_secs_f64(bytes as f64 / rate as f64).max(2 * spent);
                        let _ = self.runtime.delay(earliest - spent).await;
                    }
                }
                Err(()) => {
                    let _ = self.runtime.delay(pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Destages everything that is dirty now, durably. Returns false where something could not be destaged.
    pub async fn destage_all(self: &Arc<Self>) -> bool {
        let this = self.clone();
        // Also where nothing was dirty: what was written through, or past a failed flash, is flushed.
        let all = async move { Ok(this.destage_everything().await && this.flush_origin().await.is_ok()) };
        self.to_its_end(all).await.unwrap_or(false)
    }

    async fn destage_everything(self: &Arc<Self>) -> bool {
        let mut cursor = Lba(0);
        let mut turns_without_progress = 0;
        loop {
            let before = {
                let state = self.state.lock();
                let dirty = state.design.dirty_counts();
                if dirty.chunks == 0 && dirty.runs == 0 {
                    return true;
                }
                dirty.chunks + dirty.run_chunks
            };
            let result = self.destage_next(&mut cursor, BATCH_CHUNKS_MAX).await;
            let after = {
                let state = self.state.lock();
                let dirty = state.design.dirty_counts();
                dirty.chunks + dirty.run_chunks
            };
            turns_without_progress = if after < before { 0 } else { turns_without_progress + 1 };
            if result.is_err() || turns_without_progress > 64 {
                return false;
            }
        }
    }

    /// Destages one batch from `cursor` on, around the end of the volume. Returns the bytes written to the origin.
    async fn destage_next(self: &Arc<Self>, cursor: &mut Lba, chunks_max: usize) -> Result<u64, ()> {
        let from = *cursor;
        let (chunks, run) = {
            let state = self.state.lock();
            (state.design.dirty_from(from, chunks_max), state.design.trimmed_from(from))
        };
        let chunks_max = (BATCH_BYTES_MAX / self.geometry.chunk_bytes).clamp(1, chunks_max);
        let mut lbas: Vec<Lba> = chunks.into_iter().map(|(lba, _)| lba).take(chunks_max).collect();
        if let Some(run) = run
            && lbas.first().is_none_or(|&first| run.first <= first)
        {
            // The run may begin before the cursor, and be longer than a turn.
            let first = run.first.max(from);
            let count =
                (run.first.0 + run.count - first.0).min((ZERO_BYTES_MAX / self.geometry.chunk_bytes as u64).max(1));
            *cursor = Lba(first.0 + count);
            return self.destage_run(Run { first, count, ..run }).await;
        }
        if let Some(run) = run {
            lbas.retain(|&lba| lba < run.first);
        }
        let Some(&last) = lbas.last() else {
            *cursor = Lba(0);
            // Nothing from the cursor on: begin again, unless that is where this began.
            if from == Lba(0) {
                self.signals.destaged.notify();
            }
            return Ok(0);
        };
        *cursor = Lba(last.0 + 1);
        self.destage(&lbas).await
    }

    /// Destages the chunks of `lbas` (ascending) that are dirty. Returns the bytes written to the origin.
    ///
    /// # Errors
    /// When the origin or the flash failed; what was not destaged stays dirty.
    pub(crate) async fn destage(self: &Arc<Self>, lbas: &[Lba]) -> Result<u64, ()> {
        let (Some(&first), Some(&last)) = (lbas.first(), lbas.last()) else { return Ok(0) };
        let _ticket = self.destage_tickets.ask(first, last.0 + 1 - first.0).granted().await;
        // (1)
        let newest = {
            let state = self.state.lock();
            lbas.iter().filter_map(|&lba| state.design.dirty_seq(lba)).max()
        };
        let Some(newest) = newest else { return Ok(0) };
        let newest = self.make_destageable(newest).await?;
        let failures = self.state.lock().origin_flush_failures;
        // (2)
        let mut batch = Vec::new();
        let mut held = Vec::new();
        let mut pieces: Vec<Piece> = Vec::new();
        {
            let state = self.state.lock();
            for &lba in lbas {
                let Some(seq) = state.design.dirty_seq(lba) else { continue };
                // A newer write since (1) is not durable yet; the next batch has it.
                if seq > newest || state.lost.get(&lba.0) == Some(&seq) {
                    continue;
                }
                match state.design.peek(lba) {
                    Lookup::Chunk { place, .. } => held.push(((lba, seq, None), self.hold(&state, place))),
                    Lookup::Fragment { place, sectors } => {
                        held.push(((lba, seq, Some(sectors)), self.hold(&state, place)));
                    }
                    Lookup::Zero => {
                        let data = IoBuf::zeroed(self.geometry.chunk_len(lba)).freeze();
                        pieces.push(Piece { offset: self.geometry.offset_of(lba), data });
                        batch.push((lba, seq));
                    }
                    Lookup::Miss => {}
                }
            }
        }
        let (operations, records) = self.start_batch(held);
        let results = join_all(operations).await;
        let mut unread = false;
        for BatchRecord { about: (lba, seq, fragment), operation, reading: record } in records {
            // What could not be read now is tried again; what is damaged stays so.
            let bytes = match &results[operation] {
                Ok(bytes) => bytes,
                Err(error) => {
                    self.note_flash_read_error(error);
                    unread = true;
                    continue;
                }
            };
            let payload = record.payload(bytes);
            let made = payload.and_then(|payload| self.pieces_of(lba, &record.place, payload, fragment));
            match made {
                Some(made) => {
                    pieces.extend(made);
                    batch.push((lba, seq));
                }
                None => {
                    let mut state = self.state.lock();
                    state.note_damaged(&record.place);
                    if state.design.dirty_seq(lba) == Some(seq) {
                        self.counters.corrupt_records.fetch_add(1, Relaxed);
                        state.lost.insert(lba.0, seq);
                    }
                }
            }
        }
        if unread && batch.is_empty() {
            return Err(());
        }
        pieces.sort_by_key(|piece| piece.offset);
        let bytes = pieces.iter().map(|piece| piece.data.len() as u64).sum();
        self.write_pieces(pieces).await?;
        // (3)
        self.flush_destaged(failures).await?;
        // (4)
        {
            let mut state = self.state.lock();
            for &(lba, seq) in &batch {
                if state.design.mark_clean(lba, seq) {
                    state.log.push(LogEntry::Clean { lba: lba.0, chunk_count: 1, map_seq: seq });
                }
            }
        }
        self.counters.destaged_chunks.fetch_add(batch.len() as u64, Relaxed);
        self.signals.destaged.notify();
        Ok(bytes)
    }

    /// Makes dirty data up to sequence number `newest` durable on flash. Returns up to which one it may be destaged.
    async fn make_destageable(self: &Arc<Self>, newest: u64) -> Result<u64, ()> {
        let upto = {
            let state = self.state.lock();
            // Each destaged chunk adds an entry: not more than may wait.
            let many = state.log.entries.len() >= self.pending_entries_max();
            if many { state.log.next_seq() } else { newest + 1 }
        };
        match self.commit(upto).await {
            Ok(()) => Ok(newest),
            Err(EngineError::FlashFailed(_)) => {
                let state = self.state.lock();
                // What is not durable may have a clean copy on flash that is older: only the fence keeps that away.
                let durable = state.log.durable_below.saturating_sub(1);
                Ok(if state.fence == Fence::Up { newest } else { newest.min(durable) })
            }
            Err(_) => Err(()),
        }
    }

    /// Flushes the origin, with what was written there since `failures` of its flushes had failed. One that failed since, for
    /// someone else, may have lost it.
    async fn flush_destaged(self: &Arc<Self>, failures: u64) -> Result<(), ()> {
        self.flush_origin().await.map_err(|_| ())?;
        if self.state.lock().origin_flush_failures == failures { Ok(()) } else { Err(()) }
    }

    fn pieces_of(
        &self,
        lba: Lba,
        place: &larder_core::Place,
        payload: &[u8],
        fragment: Option<SectorMap>,
    ) -> Option<Vec<Piece>> {
        let start = self.geometry.offset_of(lba);
        let len = self.geometry.chunk_len(lba);
        let mut chunk = IoBuf::zeroed(self.geometry.chunk_bytes);
        let Some(sectors) = fragment else {
            let decoded = decode_chunk(place, payload, &mut chunk);
            chunk.truncate(len);
            return decoded.then(|| vec![Piece { offset: start, data: chunk.freeze() }]);
        };
        chunk.truncate(len);
        overlay_fragment(place, &sectors, payload, &mut chunk).then(|| {
            let chunk = chunk.freeze();
            sectors
                .runs(len / SECTOR_BYTES)
                .map(|(first, end)| Piece {
                    offset: start + (first * SECTOR_BYTES) as u64,
                    data: chunk.slice(first * SECTOR_BYTES..end * SECTOR_BYTES),
                })
                .collect()
        })
    }

    /// Writes pieces to the origin: neighbours joined, several in flight.
    async fn write_pieces(self: &Arc<Self>, pieces: Vec<Piece>) -> Result<(), ()> {
        let mut joined: Vec<Piece> = Vec::new();
        let mut rest = pieces.as_slice();
        let request_max = self.origin.info().request_bytes_max as usize;
        while let Some(first) = rest.first() {
            let mut len = first.data.len();
            let mut count = 1;
            while let Some(next) = rest.get(count) {
                if next.offset != first.offset + len as u64 || len + next.data.len() > request_max.min(1 << 20) {
                    break;
                }
                len += next.data.len();
                count += 1;
            }
            let (run, more) = rest.split_at(count);
            let data = if count == 1 {
                first.data.clone()
            } else {
                let mut whole = IoBuf::new(len);
                let mut at = 0;
                for piece in run {
                    whole[at..at + piece.data.len()].copy_from_slice(&piece.data);
                    at += piece.data.len();
                }
                whole.freeze()
            };
            joined.push(Piece { offset: first.offset, data });
            rest = more;
        }
        // Where the origin's sectors are coarser than the pieces, writes read and merge: then one at a time.
        let align = self.geometry.origin_align;
        let depth = if align > SECTOR_BYTES { 1 } else { self.tuning.destage_depth.max(1) };
        let mut pieces = joined.into_iter().peekable();
        while pieces.peek().is_some() {
            let group: Vec<IoFuture<()>> = pieces
                .by_ref()
                .take(depth)
                .map(|piece| {
                    let this = self.clone();
                    IoFuture::boxed(
                        async move { this.write_origin(piece.offset, piece.data, WriteFlags::default()).await },
                    )
                })
                .collect();
            for result in join_all(group).await {
                result.map_err(|_| ())?;
            }
        }
        Ok(())
    }

    /// Tells the origin of a trimmed run.
    pub(crate) async fn destage_run(self: &Arc<Self>, run: Run) -> Result<u64, ()> {
        let _ticket = self.destage_tickets.ask(run.first, run.count).granted().await;
        if self.make_destageable(run.seq).await? < run.seq {
            return Err(());
        }
        let failures = self.state.lock().origin_flush_failures;
        // Writes since may have cut the run; what is left of it is read again, piece by piece, under the ticket.
        let mut at = run.first;
        let end = run.first.0 + run.count;
        let mut zeroed = 0;
        while at.0 < end {
            let part = self.state.lock().design.trimmed_from(at);
            let Some(part) = part.filter(|part| part.first.0 < end) else { break };
            let from = part.first.max(at);
            let to = (part.first.0 + part.count).min(end);
            at = Lba(to);
            if part.seq != run.seq {
                continue;
            }
            let offset = self.geometry.offset_of(from);
            let stop = (to * self.geometry.chunk_bytes as u64).min(self.geometry.volume_bytes);
            let flags = ZeroFlags { no_hole: run.no_hole, ..ZeroFlags::default() };
            self.zero_origin(offset, stop - offset, flags).await.map_err(|_| ())?;
            zeroed += stop - offset;
        }
        self.flush_destaged(failures).await?;
        {
            let mut state = self.state.lock();
            // Only what is left of the run: what was written or trimmed since is dirty, and a mark that covered it would
            // be taken for it by a replay over a newer checkpoint, where it has no sequence number.
            for (first, count) in remains_of(&state, &run) {
                state.log.push(LogEntry::Clean { lba: first.0, chunk_count: count, map_seq: run.seq });
            }
            state.design.mark_run_clean(&run);
        }
        self.signals.destaged.notify();
        Ok(zeroed.max(1))
    }
}

/// The parts of `run` that still are as it was: first chunk and number of chunks.
fn remains_of(state: &State, run: &Run) -> Vec<(Lba, u64)> {
    let end = run.first.0 + run.count;
    let mut parts = Vec::new();
    let mut at = run.first;
    while at.0 < end
        && let Some(part) = state.design.trimmed_from(at).filter(|part| part.first.0 < end)
    {
        let (from, to) = (part.first.max(run.first), (part.first.0 + part.count).min(end));
        if part.seq == run.seq {
            parts.push((from, to - from.0));
        }
        at = Lba(to);
    }
    parts
}

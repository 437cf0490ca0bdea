//! Destaging chunks: a batch of them, from flash to the origin.
//!
//! Invariants: the records of a failed read are read again one by one. The pieces of a failed write
//! are written again one by one. So one bad sector, of the flash or of the origin, holds back its
//! own chunk alone.
//!
//! It does not choose the batch.

use crate::{
    batch::BatchRecord,
    record::{HeldRecord, decode_chunk, overlay_fragment},
    shared::Shared,
    sync::join_all,
};
use larder_core::{
    Lba, Lookup, Place, SectorMap,
    decisions::{Answer, Event},
    limits::JOINED_BYTES_MAX,
    types::SECTOR_BYTES,
};
use larder_device::{IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf, WriteFlags};
use larder_format::LogEntry;
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::*},
};

/// One piece of origin content: its chunk, its offset and its bytes.
#[derive(Clone)]
struct OriginPiece {
    lba: Lba,
    offset: u64,
    data: SharedBuf,
}

/// A dirty mapping under destage.
#[derive(Clone, Copy)]
struct DirtyChunk {
    lba: Lba,
    /// Sequence number of the mapping.
    seq: u64,
    /// The sectors, if it is a fragment.
    sectors: Option<SectorMap>,
}

/// The pieces and reads of one batch's chunks.
#[derive(Default)]
struct Content {
    /// Chunks that are among the pieces.
    chunks: Vec<DirtyChunk>,
    /// Pieces to write to the origin.
    pieces: Vec<OriginPiece>,
    /// Records to read.
    held: Vec<(DirtyChunk, HeldRecord)>,
    /// The error of an unreadable record. Such records are tried again.
    unread: Option<IoError>,
    /// The place of a damaged record. It stays dirty, and is not tried again.
    damaged: Option<Place>,
}

impl Shared {
    /// Destages the chunks of `lbas` (ascending) that are dirty. Returns the bytes written to the
    /// origin.
    ///
    /// # Errors
    /// A failure of the origin or the flash. Chunks that were not destaged stay dirty; the rest of
    /// the batch is clean.
    pub(crate) async fn destage(self: &Arc<Self>, lbas: &[Lba]) -> Result<u64, ()> {
        let (Some(&first), Some(&last)) = (lbas.first(), lbas.last()) else { return Ok(0) };
        let _ticket = self.orders.destage(first, last.0 + 1 - first.0).granted().await;
        // The reservation comes in its turn: only one of many destages of the same chunks has room
        // reserved.
        let _room = self.reserve_batch(lbas.len()).await.map_err(|_| ())?;
        self.destage_held(lbas).await
    }

    /// Destages, as [`Shared::destage`], for a caller that holds the ticket and room in the log.
    ///
    /// # Errors
    /// As [`Shared::destage`].
    pub(crate) async fn destage_held(self: &Arc<Self>, lbas: &[Lba]) -> Result<u64, ()> {
        // (1)
        let newest = {
            let state = self.state.lock();
            lbas.iter().filter_map(|&lba| state.design().dirty_seq(lba)).max()
        };
        let Some(newest) = newest else { return Ok(0) };
        let newest = self.make_destageable(newest).await?;
        let failures = self.state.lock().origin_flushes.failures();
        // (2)
        let mut batch = self.gather(lbas, newest);
        self.read_dirty(&mut batch).await;
        let Content { mut chunks, mut pieces, unread, damaged, .. } = batch;
        if !chunks.is_empty() {
            self.note_room_made();
        } else if let Some(error) = unread {
            self.note_unreadable(error);
            return Err(());
        } else if let Some(place) = damaged {
            let (offset, len) = (self.geometry.flash_offset(place.slot, place.offset), u64::from(place.stored_len));
            self.note_unreadable(IoError::new(IoErrorKind::Corrupt, IoOp::Read, offset, len));
            return Ok(0);
        }
        pieces.sort_by_key(|piece| piece.offset);
        let bytes = pieces.iter().map(|piece| piece.data.len() as u64).sum();
        let refused = self.write_pieces(&pieces).await;
        chunks.retain(|chunk| !refused.contains(&chunk.lba));
        if chunks.is_empty() && !refused.is_empty() {
            return Err(());
        }
        // (3)
        self.flush_destaged(failures).await?;
        // (4)
        {
            let mut state = self.state.lock();
            for &DirtyChunk { lba, seq, sectors } in &chunks {
                if sectors.is_none() {
                    state.origin_changes.rewritten(lba.0..lba.0 + 1);
                }
                let is_clean = state.decide().mark_clean(lba, seq);
                state.decisions.note(|| (Event::Clean { lba, seq }, Answer::Count(is_clean.into())));
                if is_clean {
                    state.log.push(LogEntry::Clean { lba: lba.0, chunk_count: 1, map_seq: seq });
                }
            }
        }
        self.counters.destaged_chunks.fetch_add(chunks.len() as u64, Relaxed);
        self.signals.destaged.notify();
        if refused.is_empty() { Ok(bytes) } else { Err(()) }
    }

    /// Looks up the dirty chunks of `lbas` that are no newer than `newest`.
    ///
    /// A newer write is not durable yet, and the next batch has it.
    fn gather(self: &Arc<Self>, lbas: &[Lba], newest: u64) -> Content {
        let mut batch = Content::default();
        let state = self.state.lock();
        for &lba in lbas {
            let Some(seq) = state.design().dirty_seq(lba).filter(|&seq| seq <= newest) else { continue };
            let chunk = |sectors| DirtyChunk { lba, seq, sectors };
            let (place, chunk) = match state.design().peek(lba) {
                Lookup::Chunk { place, .. } => (place, chunk(None)),
                Lookup::Fragment { place, sectors } => (place, chunk(Some(sectors))),
                Lookup::Zero => {
                    let data = IoBuf::zeroed(self.geometry.chunk_len(lba)).freeze();
                    batch.pieces.push(OriginPiece { lba, offset: self.geometry.offset_of(lba), data });
                    batch.chunks.push(chunk(None));
                    continue;
                }
                Lookup::Miss => continue,
            };
            if state.lost.has_mapping(lba, seq) {
                batch.damaged = Some(place);
            } else {
                batch.held.push((chunk, self.hold(&state, place)));
            }
        }
        batch
    }

    /// Reads the held records, and makes pieces of them.
    async fn read_dirty(self: &Arc<Self>, batch: &mut Content) {
        let (operations, records) = self.start_batch(std::mem::take(&mut batch.held));
        let results = join_all(operations).await;
        results.iter().filter_map(|result| result.as_ref().err()).for_each(|error| self.note_flash_read_error(error));
        let mut failed: Vec<(DirtyChunk, HeldRecord)> = Vec::new();
        for BatchRecord { about, operation, reading } in records {
            match &results[operation] {
                Ok(bytes) => {
                    let payload = reading.payload(bytes, &self.counters);
                    if !self.take_dirty(batch, about, &reading.place, payload) {
                        failed.push((about, reading.again()));
                    }
                }
                Err(_) => failed.push((about, reading.again())),
            }
        }
        // The broken record may be a neighbour, and a record that fails its check may have been
        // read wrongly.
        for (about, held) in failed {
            let (operation, reading) = self.start_read(held);
            let result: IoResult<IoBuf> = operation.await;
            match result {
                Ok(bytes) => {
                    let payload = reading.payload(&bytes, &self.counters);
                    if !self.take_dirty(batch, about, &reading.place, payload) {
                        self.give_up_dirty(batch, about, &reading.place);
                    }
                }
                Err(error) => {
                    self.note_flash_read_error(&error);
                    self.state.lock().note_damaged(&reading.place);
                    batch.unread = Some(error);
                }
            }
        }
    }

    /// Takes a record that was read. `payload` is `None` if its check failed. Returns false if the
    /// content is wrong.
    fn take_dirty(&self, batch: &mut Content, chunk: DirtyChunk, place: &Place, payload: Option<&[u8]>) -> bool {
        let made = payload.and_then(|payload| self.pieces_of(chunk.lba, place, payload, chunk.sectors));
        let Some(made) = made else { return false };
        batch.pieces.extend(made);
        batch.chunks.push(chunk);
        true
    }

    /// Gives up a record that was read twice and had the wrong content each time.
    fn give_up_dirty(&self, batch: &mut Content, chunk: DirtyChunk, place: &Place) {
        batch.damaged = Some(*place);
        let mut state = self.state.lock();
        state.note_damaged(place);
        if state.design().dirty_seq(chunk.lba) == Some(chunk.seq) {
            self.counters.corrupt_records.fetch_add(1, Relaxed);
            state.lost.note(chunk.lba, chunk.seq);
        }
    }

    fn pieces_of(
        &self,
        lba: Lba,
        place: &Place,
        payload: &[u8],
        fragment: Option<SectorMap>,
    ) -> Option<Vec<OriginPiece>> {
        let start = self.geometry.offset_of(lba);
        let len = self.geometry.chunk_len(lba);
        let mut chunk = IoBuf::zeroed(self.geometry.chunk_bytes);
        let Some(sectors) = fragment else {
            let decoded = decode_chunk(place, payload, &mut chunk);
            chunk.truncate(len);
            return decoded.then(|| vec![OriginPiece { lba, offset: start, data: chunk.freeze() }]);
        };
        chunk.truncate(len);
        overlay_fragment(place, &sectors, payload, &mut chunk).then(|| {
            let chunk = chunk.freeze();
            sectors
                .runs(len / SECTOR_BYTES)
                .map(|(first, end)| OriginPiece {
                    lba,
                    offset: start + (first * SECTOR_BYTES) as u64,
                    data: chunk.slice(first * SECTOR_BYTES..end * SECTOR_BYTES),
                })
                .collect()
        })
    }

    /// Writes pieces, which ascend, to the origin: neighbours joined, several in flight. Returns
    /// the chunks of failed pieces.
    async fn write_pieces(self: &Arc<Self>, pieces: &[OriginPiece]) -> BTreeSet<Lba> {
        let longest = (self.origin.info().request_bytes_max as usize).min(JOINED_BYTES_MAX);
        let mut refused = BTreeSet::new();
        for run in self.write_runs(runs_of(pieces, longest).collect()).await {
            // The refused piece may be a neighbour.
            let apart = if run.len() > 1 { self.write_runs(run.chunks(1).collect()).await } else { vec![run] };
            refused.extend(apart.into_iter().flatten().map(|piece| piece.lba));
        }
        refused
    }

    /// Writes runs of neighbouring pieces. Returns the failed runs; if the origin is gone, some
    /// were not tried.
    async fn write_runs<'a>(self: &Arc<Self>, runs: Vec<&'a [OriginPiece]>) -> Vec<&'a [OriginPiece]> {
        // If the origin's sectors are coarser than the pieces, writes read and merge, so they go
        // one at a time.
        let align = self.geometry.origin_align;
        let depth = if align > SECTOR_BYTES { 1 } else { self.tuning.destage_depth.max(1) };
        let mut refused = Vec::new();
        let mut is_gone = false;
        for group in runs.chunks(depth) {
            if is_gone {
                refused.extend(group);
                continue;
            }
            let writes = group.iter().map(|run| {
                let (this, offset, data) = (self.clone(), run[0].offset, joined(run));
                IoFuture::boxed(async move { this.write_origin(offset, data, WriteFlags::default()).await })
            });
            for (run, result) in group.iter().zip(join_all(writes.collect()).await) {
                if let Err(error) = result {
                    is_gone |= matches!(error.kind, IoErrorKind::Gone | IoErrorKind::Cancelled);
                    refused.push(*run);
                }
            }
        }
        refused
    }
}

/// Returns the runs of neighbours among `pieces`, of at most `bytes_max` each.
fn runs_of(pieces: &[OriginPiece], bytes_max: usize) -> impl Iterator<Item = &[OriginPiece]> {
    let mut len = 0;
    pieces.chunk_by(move |piece, next| {
        len += piece.data.len();
        let is_neighbour = next.offset == piece.offset + piece.data.len() as u64;
        let joins = is_neighbour && len + next.data.len() <= bytes_max;
        if !joins {
            len = 0;
        }
        joins
    })
}

/// Returns the bytes of a run of neighbours.
fn joined(run: &[OriginPiece]) -> SharedBuf {
    if let [piece] = run {
        return piece.data.clone();
    }
    let mut whole = IoBuf::new(run.iter().map(|piece| piece.data.len()).sum());
    let mut at = 0;
    for piece in run {
        whole[at..at + piece.data.len()].copy_from_slice(&piece.data);
        at += piece.data.len();
    }
    whole.freeze()
}

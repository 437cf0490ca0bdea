//! The read: look up, read flash and origin side by side, check, decode, reply, offer misses.
//!
//! A read inside one chunk that hits takes the short way in [`read_hit`](crate::read_hit).
//!
//! Invariants: bytes that fail their check never reach the caller. A read takes no ticket. For each
//! sector it sees a write that completed before it began, or one that overlaps it in time.

pub(crate) mod again;
pub(crate) mod want;

use crate::{
    batch::BatchRecord,
    error::EngineError,
    fill::insertion::Reason,
    prefetch::buffer::Prefetched,
    read::again::{NextTry, Unread},
    read::want::Want,
    read_hit::Found,
    record::{HeldRecord, ReadingRecord, decode_chunk, overlay_fragment},
    region::CONFIRMED_MAX,
    shared::Shared,
    state::State,
    sync::join_all,
};
use larder_core::{Lba, Lookup, SectorMap, types::SECTOR_BYTES};
use larder_device::{IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf};
use std::{
    slice,
    sync::{Arc, atomic::Ordering::*},
};

/// The index of the wanted chunk, and the sectors and version if the record is a fragment.
type WantedRecord = (usize, Option<(SectorMap, u32)>);

/// The next step for one wanted chunk.
enum Plan {
    Zero,
    Copy { data: SharedBuf },
    Record(HeldRecord),
    Fragment { record: HeldRecord, sectors: SectorMap, version: u32 },
    Origin(Miss),
    Wait,
}

/// A chunk that the origin has to give.
#[derive(Clone, Copy)]
enum Miss {
    /// The chunk is offered with this version.
    Offered { version: u32 },
    /// A sequential stream misses the chunk: it is offered with this version if nothing reads
    /// ahead.
    Sequential { version: u32 },
    /// The record could not be read, so the chunk is not offered.
    Damaged,
}

impl Shared {
    /// Reads `buf.len()` bytes of the volume at `offset`.
    pub fn read(self: &Arc<Self>, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let len = buf.len() as u64;
        if let Err(error) = self.check_request(IoOp::Read, offset, len) {
            return IoFuture::ready(Err(error.into_io(IoOp::Read, offset, len)));
        }
        let stripe = self.stripes.mine();
        self.counters.begin_read(stripe, len);
        match self.start_hit(stripe, offset, &buf) {
            Some(Found::Hit(hit)) => self.finish(hit, offset, buf),
            Some(Found::Unconfirmed(hit)) => IoFuture::boxed(self.clone().read_confirmed(stripe, hit, offset, buf)),
            None => {
                let this = self.clone();
                IoFuture::boxed(async move { this.read_slowly(offset, buf).await })
            }
        }
    }

    /// Runs a whole read, step by step.
    pub(crate) async fn read_slowly(self: Arc<Self>, offset: u64, buf: IoBuf) -> IoResult<IoBuf> {
        let len = buf.len() as u64;
        self.read_chunks(offset, buf).await.map_err(|e| e.into_io(IoOp::Read, offset, len))
    }

    async fn read_chunks(self: &Arc<Self>, offset: u64, mut buf: IoBuf) -> Result<IoBuf, EngineError> {
        let wants = self.split(offset, buf.len());
        let (prefetch, sequential) = {
            let mut state = self.state.lock();
            state.streams.observe(offset, buf.len() as u64, self.geometry.volume_bytes)
        };
        let plans = self.plan(&wants, sequential).await;
        if let Some(prefetch) = prefetch {
            self.start_prefetch(prefetch);
        }
        self.execute(&wants, plans, &mut buf).await?;
        Ok(buf)
    }

    fn split(&self, offset: u64, len: usize) -> Vec<Want> {
        let chunk = self.geometry.chunk_bytes as u64;
        let (first, count) = self.geometry.chunks_of(offset, len as u64);
        let end = offset + len as u64;
        (first.0..first.0 + count)
            .map(|lba| {
                let start = (lba * chunk).max(offset);
                let stop = ((lba + 1) * chunk).min(end);
                Want {
                    lba: Lba(lba),
                    from: (start - lba * chunk) as usize,
                    at: (start - offset) as usize,
                    len: (stop - start) as usize,
                }
            })
            .collect()
    }

    /// Decides for every chunk, waiting for prefetches that are under way.
    async fn plan(self: &Arc<Self>, wants: &[Want], sequential: bool) -> Vec<Plan> {
        let mut plans = Vec::with_capacity(wants.len());
        for some in wants.chunks(CONFIRMED_MAX) {
            plans.extend(self.plan_some(some, sequential).await);
        }
        plans
    }

    /// Decides for a few chunks, whose metadata slots are read side by side.
    async fn plan_some(self: &Arc<Self>, wants: &[Want], sequential: bool) -> Vec<Plan> {
        let mut plans: Vec<Option<Plan>> = wants.iter().map(|_| None).collect();
        let mut ahead = None;
        loop {
            let prefetched = self.signals.prefetched.listen();
            let (mut unconfirmed, mut waits) = (Vec::new(), false);
            {
                let mut state = self.state.lock();
                // All questions precede the first lookup: a lookup uses up the slots that were
                // read, and another chunk with the same content needs them.
                let question = |(want, plan): (&Want, &Option<Plan>)| match plan {
                    None => state.unconfirmed(want.lba),
                    Some(_) => None,
                };
                let questions: Vec<_> = wants.iter().zip(&plans).map(question).collect();
                for ((want, plan), answer) in
                    wants.iter().zip(&mut plans).zip(questions).filter(|((_, p), _)| p.is_none())
                {
                    match answer {
                        Some(answer) => unconfirmed.push(answer),
                        None => match self.plan_known(&mut state, want, sequential) {
                            Plan::Wait => waits = true,
                            known => *plan = Some(known),
                        },
                    }
                }
            }
            // This look has used the slots that were read for it.
            drop(ahead.take());
            if !unconfirmed.is_empty() {
                ahead = self.confirm_some(&unconfirmed).await;
            } else if waits {
                prefetched.await;
            } else {
                return plans.into_iter().flatten().collect();
            }
        }
    }

    /// Decides for a chunk whose lookup needs no metadata slot.
    fn plan_known(self: &Arc<Self>, state: &mut State, want: &Want, sequential: bool) -> Plan {
        let version = state.versions.get(want.lba);
        match self.lookup(state, want.lba, want.cause()) {
            Lookup::Zero => Plan::Zero,
            Lookup::Chunk { place, .. } => Plan::Record(self.hold(state, place)),
            Lookup::Fragment { place, sectors } => Plan::Fragment { record: self.hold(state, place), sectors, version },
            Lookup::Miss => {
                let (first, end) = (want.from / SECTOR_BYTES, (want.from + want.len) / SECTOR_BYTES);
                match state.prefetch.read(want.lba, first, end) {
                    Prefetched::No if sequential => Plan::Origin(Miss::Sequential { version }),
                    Prefetched::No => Plan::Origin(Miss::Offered { version }),
                    Prefetched::Coming => Plan::Wait,
                    Prefetched::Here { data, again } => {
                        self.counters.prefetch_hits.fetch_add(1, Relaxed);
                        if again {
                            // A chunk that is read twice while it is buffered belongs to no scan.
                            state.prefetch.remove(want.lba);
                            let (this, lba, data) = (self.clone(), want.lba, data.clone());
                            self.spawn_counted(async move { this.offer(lba, version, data, Reason::Clean) });
                        }
                        Plan::Copy { data }
                    }
                }
            }
        }
    }

    /// Carries the plans out, and reads damaged records again.
    async fn execute(self: &Arc<Self>, wants: &[Want], plans: Vec<Plan>, buf: &mut IoBuf) -> Result<(), EngineError> {
        self.counters.note_chunks(self.stripes.mine(), wants.len() as u64);
        for unread in self.carry_out(wants, plans, buf).await? {
            self.read_damaged(&wants[unread.index], unread, buf).await?;
        }
        Ok(())
    }

    /// Serves a chunk whose record could not be read.
    async fn read_damaged(
        self: &Arc<Self>,
        want: &Want,
        mut unread: Unread,
        buf: &mut IoBuf,
    ) -> Result<(), EngineError> {
        for attempt in 0.. {
            self.confirm(want.lba).await;
            let Some(plan) = self.plan_again(want, &unread, attempt)? else { break };
            match self.carry_out(slice::from_ref(want), vec![plan], buf).await?.pop() {
                Some(again) => unread = again,
                None => return Ok(()),
            }
        }
        let (offset, len) = (self.geometry.offset_of(want.lba) + want.from as u64, want.len as u64);
        Err(IoError::new(IoErrorKind::Io, IoOp::Read, offset, len).with_detail("the flash device keeps failing").into())
    }

    /// Decides anew for a chunk with an unread record. Returns `None` if no try is left.
    fn plan_again(self: &Arc<Self>, want: &Want, unread: &Unread, attempt: usize) -> Result<Option<Plan>, EngineError> {
        let mut state = self.state.lock();
        Ok(match self.next_try(&mut state, want, unread, attempt)? {
            NextTry::GiveUp => None,
            NextTry::Origin => Some(Plan::Origin(Miss::Damaged)),
            NextTry::LookUp => Some(match self.plan_known(&mut state, want, true) {
                Plan::Origin(_) | Plan::Wait => Plan::Origin(Miss::Damaged),
                known => known,
            }),
        })
    }

    /// Carries out a plan for each wanted chunk: flash and origin side by side. Returns the chunks
    /// whose records could not be read.
    async fn carry_out(
        self: &Arc<Self>,
        wants: &[Want],
        plans: Vec<Plan>,
        buf: &mut IoBuf,
    ) -> Result<Vec<Unread>, EngineError> {
        let mut held: Vec<(WantedRecord, HeldRecord)> = Vec::new();
        let mut missed: Vec<(usize, Miss)> = Vec::new();
        for (i, plan) in plans.into_iter().enumerate() {
            let want = &wants[i];
            match plan {
                Plan::Zero => {
                    buf[want.at..want.at + want.len].fill(0);
                    self.count_hit(want);
                }
                Plan::Copy { data } => {
                    buf[want.at..want.at + want.len].copy_from_slice(&data[want.from..want.from + want.len]);
                }
                Plan::Record(record) => held.push(((i, None), record)),
                Plan::Fragment { record, sectors, version } => held.push(((i, Some((sectors, version))), record)),
                Plan::Origin(miss) => missed.push((i, miss)),
                Plan::Wait => unreachable!("a plan is made when nothing is waited for"),
            }
        }
        let (mut operations, records) = self.start_batch(held);
        let origin_from = operations.len();
        // Adjacent chunks become one read of the origin, whole chunks each.
        let runs: Vec<_> = missed.chunk_by(|(one, _), (next, _)| one + 1 == *next).collect();
        operations.extend(runs.iter().map(|run| self.read_run(wants, run)));
        let mut results = join_all(operations).await;
        let origin = results.split_off(origin_from);
        for (result, run) in origin.into_iter().zip(&runs) {
            self.take_missed(wants, run, &result?.freeze(), buf);
        }
        let mut unread = Vec::new();
        for record in records {
            let (index, place) = (record.about.0, record.reading.place);
            let result = &results[record.operation];
            if !self.take_record(&wants[index], record, result, buf).await? {
                unread.push(Unread { index, place, has_failed: result.is_err() });
            }
        }
        Ok(unread)
    }

    /// Begins to read a run of missed chunks from the origin.
    fn read_run(self: &Arc<Self>, wants: &[Want], run: &[(usize, Miss)]) -> IoFuture<IoBuf> {
        let (first, last) = (&wants[run[0].0], &wants[run[run.len() - 1].0]);
        let start = self.geometry.offset_of(first.lba);
        let end = self.geometry.offset_of(last.lba) + self.geometry.chunk_len(last.lba) as u64;
        self.read_origin(start, IoBuf::new((end - start) as usize))
    }

    /// Takes a chunk or a fragment from the bytes that were read. Returns false if they are
    /// damaged, or the device failed.
    async fn take_record(
        self: &Arc<Self>,
        want: &Want,
        record: BatchRecord<WantedRecord>,
        result: &IoResult<IoBuf>,
        buf: &mut IoBuf,
    ) -> Result<bool, EngineError> {
        let BatchRecord { about: (_, fragment), reading, .. } = record;
        match (result, fragment) {
            (Ok(bytes), None) => Ok(self.take_chunk(want, &reading, bytes, buf) && self.count_hit(want)),
            (Ok(bytes), Some((sectors, version))) => {
                self.take_fragment(want, &reading, bytes, sectors, version, buf).await
            }
            (Err(error), _) => {
                self.note_flash_read_error(error);
                Ok(false)
            }
        }
    }

    /// Copies the chunks that a miss read from the origin, and offers them.
    fn take_missed(self: &Arc<Self>, wants: &[Want], run: &[(usize, Miss)], data: &SharedBuf, buf: &mut IoBuf) {
        let base = self.geometry.offset_of(wants[run[0].0].lba);
        for &(i, miss) in run {
            let want = &wants[i];
            let start = (self.geometry.offset_of(want.lba) - base) as usize;
            buf[want.at..want.at + want.len].copy_from_slice(&data[start + want.from..start + want.from + want.len]);
            self.counters.read_misses.fetch_add(1, Relaxed);
            let version = match miss {
                Miss::Damaged => continue,
                Miss::Sequential { .. } if self.live.prefetches() => {
                    // The stream's own reads are as much of a scan as the chunks that were
                    // prefetched for it.
                    self.counters.scan_bypassed_chunks.fetch_add(1, Relaxed);
                    continue;
                }
                Miss::Offered { version } | Miss::Sequential { version } => version,
            };
            let chunk = IoBuf::copy_of(&data[start..start + self.geometry.chunk_len(want.lba)]).freeze();
            self.offer(want.lba, version, chunk, Reason::Clean);
        }
    }

    /// Counts a chunk that needed no origin. Returns true.
    fn count_hit(&self, want: &Want) -> bool {
        self.counters.note_hit(self.stripes.mine(), want.len as u64);
        true
    }

    /// Decodes a chunk's record into the reply.
    pub(crate) fn take_chunk(&self, want: &Want, record: &ReadingRecord, bytes: &[u8], buf: &mut IoBuf) -> bool {
        let Some(payload) = record.payload(bytes, &self.counters) else { return false };
        let chunk = self.geometry.chunk_bytes;
        let reply = &mut buf[want.at..want.at + want.len];
        if want.len == chunk {
            decode_chunk(&record.place, payload, reply)
        } else if record.place.encoding == 0 {
            payload.get(want.from..want.from + want.len).map(|part| reply.copy_from_slice(part)).is_some()
        } else {
            let mut whole = IoBuf::new(chunk);
            let decoded = decode_chunk(&record.place, payload, &mut whole);
            if decoded {
                reply.copy_from_slice(&whole[want.from..want.from + want.len]);
            }
            decoded
        }
    }

    /// Serves a chunk from a fragment. If sectors are missing, the origin completes it, and the
    /// whole chunk is offered.
    async fn take_fragment(
        self: &Arc<Self>,
        want: &Want,
        record: &ReadingRecord,
        bytes: &[u8],
        sectors: SectorMap,
        version: u32,
        buf: &mut IoBuf,
    ) -> Result<bool, EngineError> {
        let Some(payload) = record.payload(bytes, &self.counters) else { return Ok(false) };
        let len = self.geometry.chunk_len(want.lba);
        let covered = sectors.has_all(want.from / SECTOR_BYTES, (want.from + want.len) / SECTOR_BYTES);
        let mut chunk = match covered {
            true => IoBuf::new(len),
            false => self.read_origin(self.geometry.offset_of(want.lba), IoBuf::new(len)).await?,
        };
        if !overlay_fragment(&record.place, &sectors, payload, &mut chunk) {
            return Ok(false);
        }
        buf[want.at..want.at + want.len].copy_from_slice(&chunk[want.from..want.from + want.len]);
        if covered {
            self.count_hit(want);
        } else {
            self.counters.read_misses.fetch_add(1, Relaxed);
            self.offer(want.lba, version, chunk.freeze(), Reason::CompletedFragment);
        }
        Ok(true)
    }

    /// Reads from the origin, widened to its alignment if that is coarser than 512 bytes.
    pub fn read_origin(self: &Arc<Self>, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.counters.origin_reads.fetch_add(1, Relaxed);
        self.counters.origin_bytes_read.fetch_add(buf.len() as u64, Relaxed);
        let align = self.geometry.origin_align as u64;
        let end = offset + buf.len() as u64;
        let this = self.clone();
        if offset.is_multiple_of(align) && end.is_multiple_of(align) {
            return self.origin.read(offset, buf).map(move |result| {
                this.note_origin(&result);
                result
            });
        }
        let from = offset / align * align;
        let to = end.next_multiple_of(align).min(self.origin.info().size_bytes);
        let skip = (offset - from) as usize;
        let len = buf.len();
        self.origin.read(from, IoBuf::new((to - from) as usize)).map(move |result| {
            this.note_origin(&result);
            let mut wide = result?;
            let _ = wide.split_to(skip);
            wide.truncate(len);
            Ok(wide)
        })
    }
}

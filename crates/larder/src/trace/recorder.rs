//! [`Recorder`]: a device that records the requests to another one, block by block.
//!
//! In order, for each request: (1) it waits until none that overlaps it in a block is left. (2) The
//! device does it. (3) The rest of a partly covered block is read from the device, so that a
//! fingerprint is always of a whole block. (4) Its lines go into the trace. (5) It is answered.
//!
//! Invariants: a block had the trace's content at that place of the trace. Data, errors and
//! durability are the device's. A request goes on to its line when its client is gone. Memory is
//! that of the requests in flight, and two blocks for each. After a failed write of the trace,
//! requests pass without lines.
//!
//! It does not keep content, or record failed requests.

use super::log::{Arrival, TraceLog};
use larder_codec::is_zero;
use larder_device::{
    BlockDevice, DeviceInfo, Extent, IoBuf, IoFuture, IoResult, Runtime, SharedBuf, WriteFlags, ZeroFlags,
    runtime::compute,
};
use larder_engine::tickets::{Ticket, Tickets};
use larder_trace::{ContentId, Op, Provenance, Record, TraceContent, zero};
use std::{cell::RefCell, future::Future, ops::Deref, sync::Arc};
use twox_hash::XxHash3_64;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A recorder, as the module describes it.
pub struct Recorder {
    core: Arc<Core>,
}

struct Core {
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    log: Arc<TraceLog>,
    tickets: Arc<Tickets>,
    block_bytes: u64,
    /// The content of a block of zeroes in the trace.
    zeroes: TraceContent,
}

/// A block that a request covers in part. `None`: it cannot be read.
struct Edge {
    block: u64,
    bytes: Option<IoBuf>,
}

/// A request on its way.
struct Passing {
    arrival: Arrival,
    op: Op,
    offset: u64,
    len: u64,
    ticket: Ticket,
}

impl Recorder {
    /// Records the requests to `device`, in blocks of `block_bytes`.
    ///
    /// It is a power of two, at least the device's sector.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        runtime: Arc<dyn Runtime>,
        log: Arc<TraceLog>,
        block_bytes: u32,
    ) -> Recorder {
        let zeroes = content_of(&vec![0; block_bytes as usize]);
        let core = Core { device, runtime, log, tickets: Arc::default(), block_bytes: u64::from(block_bytes), zeroes };
        Recorder { core: Arc::new(core) }
    }

    fn is_open(&self) -> bool {
        self.core.log.is_open()
    }

    /// Begins a request, and takes its place among those that overlap it.
    fn begin(&self, op: Op, offset: u64, len: u64) -> Passing {
        let blocks = self.core.blocks(offset, len);
        let ticket = self.core.tickets.ask(larder_core::Lba(blocks.start), blocks.end - blocks.start);
        Passing { arrival: self.core.log.arrival(), op, offset, len, ticket }
    }

    /// Runs a request to its end, also if its client does not wait for it.
    fn run<T, F>(&self, pass: impl FnOnce(Arc<Core>) -> F) -> IoFuture<T>
    where
        T: Send + 'static,
        F: Future<Output = IoResult<T>> + Send + 'static,
    {
        let (completer, future) = IoFuture::pending();
        let passing = pass(self.core.clone());
        self.core.runtime.spawn(Box::pin(async move { completer.complete(passing.await) }));
        future
    }
}

impl Core {
    /// Returns the blocks that a range touches.
    fn blocks(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let first = offset / self.block_bytes;
        first..offset.saturating_add(len).div_ceil(self.block_bytes).max(first)
    }

    /// Reads the blocks that a range covers in part: the first and the last at most.
    async fn edges(&self, offset: u64, len: u64) -> Vec<Edge> {
        let blocks = self.blocks(offset, len);
        let (end, bytes) = (offset.saturating_add(len), self.block_bytes);
        let mut edges = Vec::new();
        for (block, is_cut) in
            [(blocks.start, !offset.is_multiple_of(bytes)), (blocks.end.saturating_sub(1), !end.is_multiple_of(bytes))]
        {
            if is_cut && edges.iter().all(|edge: &Edge| edge.block != block) {
                edges.push(Edge { block, bytes: self.whole_block(block).await });
            }
        }
        edges
    }

    /// Reads a block; the part past the end of the device is zeroes.
    async fn whole_block(&self, block: u64) -> Option<IoBuf> {
        let start = block * self.block_bytes;
        let len = self.block_bytes.min(self.device.info().size_bytes.saturating_sub(start));
        let read = self.device.read(start, IoBuf::new(len as usize)).await.ok()?;
        if len == self.block_bytes {
            return Some(read);
        }
        let mut whole = IoBuf::zeroed(self.block_bytes as usize);
        whole.get_mut(..read.len())?.copy_from_slice(&read);
        Some(whole)
    }

    fn record(&self, op: Op, block: u64, content: Option<TraceContent>) -> Record {
        Record { content, ..Record::new(0, op, block * self.block_bytes, self.block_bytes) }
    }

    /// Adds the lines of a read or write of `data`, on a worker; hands the data back.
    async fn add<D>(self: &Arc<Self>, passing: &Passing, data: D) -> IoResult<D>
    where
        D: Deref<Target = [u8]> + Send + 'static,
    {
        let Passing { arrival, op, offset, len, .. } = *passing;
        let edges = self.edges(offset, len).await;
        let core = self.clone();
        let lines = move || {
            let of = |block: u64| {
                if let Some(edge) = edges.iter().find(|edge| edge.block == block) {
                    return edge.bytes.as_deref().map(content_of);
                }
                let at = (block * core.block_bytes).checked_sub(offset)? as usize;
                data.get(at..at + core.block_bytes as usize).map(content_of)
            };
            let records: Vec<Record> =
                core.blocks(offset, len).map(|block| core.record(op, block, of(block))).collect();
            core.log.append(arrival, records.into_iter());
            data
        };
        compute(&*self.runtime, lines).await
    }

    /// Adds the lines of a write of zeroes, which may be many, one by one.
    async fn add_zeroes(self: &Arc<Self>, passing: &Passing) -> IoResult<()> {
        let Passing { arrival, op, offset, len, .. } = *passing;
        let edges = self.edges(offset, len).await;
        let core = self.clone();
        let lines = move || {
            let records = core.blocks(offset, len).map(|block| {
                let content = match edges.iter().find(|edge| edge.block == block) {
                    Some(edge) => edge.bytes.as_deref().map(content_of),
                    None => Some(core.zeroes),
                };
                core.record(op, block, content)
            });
            core.log.append(arrival, records);
        };
        compute(&*self.runtime, lines).await
    }

    /// Adds one line without content: a trim's, or a flush's.
    async fn add_plain(self: &Arc<Self>, arrival: Arrival, op: Op, offset: u64, len: u64) -> IoResult<()> {
        let core = self.clone();
        let line = move || core.log.append(arrival, std::iter::once(Record::new(0, op, offset, len)));
        compute(&*self.runtime, line).await
    }

    /// Adds a flush that came with a write.
    async fn add_fua(self: &Arc<Self>, fua: bool) -> IoResult<()> {
        match fua {
            true => self.add_plain(self.log.arrival(), Op::Flush, 0, 0).await,
            false => Ok(()),
        }
    }
}

/// Returns fingerprint and size of a block.
fn content_of(block: &[u8]) -> TraceContent {
    let is_zero = is_zero(block);
    let hash = XxHash3_64::oneshot(block);
    TraceContent {
        // The block of 4 KiB stands for zeroes of every size.
        fingerprint: if is_zero { zero::XXH3_4K } else { ContentId([0, hash]) },
        stored_bytes: Some(stored_bytes(block)),
        is_zero,
        provenance: Provenance::Recorded,
    }
}

/// Returns LZ4's size of a block alone, at its default level; the block's own if it does not
/// shrink.
fn stored_bytes(block: &[u8]) -> u32 {
    SCRATCH.with_borrow_mut(|scratch| {
        let bound = lz4::block::compress_bound(block.len()).unwrap_or(block.len() * 2);
        scratch.resize(bound.max(scratch.len()), 0);
        let packed = lz4::block::compress_to_buffer(block, None, false, scratch).unwrap_or(block.len());
        packed.min(block.len()) as u32
    })
}

impl BlockDevice for Recorder {
    fn info(&self) -> &DeviceInfo {
        self.core.device.info()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        if !self.is_open() {
            return self.core.device.read(offset, buf);
        }
        let passing = self.begin(Op::Read, offset, buf.len() as u64);
        self.run(|core| async move {
            let passing = passing.granted().await;
            let buf = core.device.read(offset, buf).await?;
            core.add(&passing, buf).await
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        if !self.is_open() {
            return self.core.device.write(offset, data, flags);
        }
        let passing = self.begin(Op::Write, offset, data.len() as u64);
        self.run(|core| async move {
            let passing = passing.granted().await;
            core.device.write(offset, data.clone(), flags).await?;
            core.add(&passing, data).await?;
            core.add_fua(flags.fua).await
        })
    }

    fn flush(&self) -> IoFuture<()> {
        if !self.is_open() {
            return self.core.device.flush();
        }
        let arrival = self.core.log.arrival();
        self.run(|core| async move {
            core.device.flush().await?;
            core.add_plain(arrival, Op::Flush, 0, 0).await
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        if !self.is_open() {
            return self.core.device.discard(offset, len);
        }
        let passing = self.begin(Op::Trim, offset, len);
        self.run(|core| async move {
            let passing = passing.granted().await;
            core.device.discard(offset, len).await?;
            core.add_plain(passing.arrival, Op::Trim, offset, len).await
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        if !self.is_open() {
            return self.core.device.write_zeroes(offset, len, flags);
        }
        let passing = self.begin(Op::Write, offset, len);
        self.run(|core| async move {
            let passing = passing.granted().await;
            core.device.write_zeroes(offset, len, flags).await?;
            core.add_zeroes(&passing).await?;
            core.add_fua(flags.fua).await
        })
    }

    /// Returns extents, never at once.
    ///
    /// A server that knew of holes without I/O would answer reads of them itself, past the trace.
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        let extents = self.core.device.extents(offset, len);
        // A boxed future needs a poll.
        IoFuture::boxed(extents)
    }
}

impl Passing {
    /// Waits for the earlier ones.
    async fn granted(self) -> Passing {
        Passing { ticket: self.ticket.granted().await, ..self }
    }
}

#[cfg(test)]
mod tests;

//! A world for the engine under test: simulated devices, and a model of each sector's values.
//!
//! Invariants of the model: a read returns the newest completed write. After a crash each sector
//! holds a value that it had at or after the last flush that began after that write completed. The
//! first read after the crash settles the value.

use larder_core::types::SECTOR_BYTES;
use larder_device::{
    IoBuf, WriteFlags, ZeroFlags,
    rng::mix64,
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{Cache, CreateOptions, Tuning, create};
use larder_format::{Compression, DesignId, WriteMode};
use std::sync::Arc;

/// The stamp of a sector of zeroes.
pub const ZERO: u32 = 0;

/// The parts of a world.
#[derive(Clone, Debug)]
pub struct Shape {
    pub design: DesignId,
    pub chunk_bytes: u32,
    pub slot_bytes: u32,
    pub flash_bytes: u64,
    pub origin_bytes: u64,
    pub mode: WriteMode,
    pub compression: Compression,
    pub dedup: bool,
    pub fp_index_percent: u8,
    pub ram_budget_bytes: u64,
    pub tuning: Tuning,
}

impl Shape {
    pub fn options(&self) -> CreateOptions {
        crate::design::fitted(CreateOptions {
            design: self.design,
            chunk_bytes: self.chunk_bytes,
            slot_bytes: self.slot_bytes,
            mode: self.mode,
            compression: self.compression,
            dedup: self.dedup,
            fp_index_percent: self.fp_index_percent,
            ram_budget_bytes: self.ram_budget_bytes,
            flash_uuid: [7; 16],
            hash_key: [9; 32],
            origin_uri: "sim:origin".into(),
            ..CreateOptions::default()
        })
    }
}

/// Fills a sector with the bytes of a stamp. Odd stamps compress, even ones do not.
pub fn sector_bytes(stamp: u32, out: &mut [u8]) {
    if stamp == ZERO {
        out.fill(0);
        return;
    }
    for (i, piece) in out.chunks_mut(8).enumerate() {
        let word = if stamp % 2 == 1 { mix64(u64::from(stamp)) } else { mix64(u64::from(stamp) << 32 | i as u64) };
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
}

/// The values that each sector may hold.
pub struct Model {
    /// The newest value.
    pub current: Vec<u32>,
    /// Values that a crash may bring back, the newest excepted.
    pub older: Vec<Vec<u32>>,
    /// Sectors that a failed flush may have taken: only a new write makes them durable again.
    pub in_doubt: Vec<bool>,
}

impl Model {
    pub fn new(sectors: usize) -> Self {
        Model { current: vec![ZERO; sectors], older: vec![Vec::new(); sectors], in_doubt: vec![false; sectors] }
    }

    /// Begins a write of `stamps` at `at`: until it completes the sectors may be either.
    ///
    /// No read may see them meanwhile.
    pub fn begin(&mut self, at: usize, stamps: &[u32]) {
        for (i, &stamp) in stamps.iter().enumerate() {
            self.older[at + i].push(self.current[at + i]);
            self.older[at + i].push(stamp);
        }
    }

    pub fn complete(&mut self, at: usize, stamps: &[u32]) {
        self.current[at..at + stamps.len()].copy_from_slice(stamps);
        self.in_doubt[at..at + stamps.len()].fill(false);
    }

    /// Notes a failed flush.
    pub fn doubt(&mut self) {
        for (in_doubt, older) in self.in_doubt.iter_mut().zip(&self.older) {
            *in_doubt |= !older.is_empty();
        }
    }

    /// Notes that these sectors' current values are durable.
    pub fn durable(&mut self, sectors: std::ops::Range<usize>) {
        for at in sectors.filter(|&at| !self.in_doubt[at]) {
            self.older[at].clear();
        }
    }
}

/// The devices, which outlive each opening.
pub struct World {
    pub shape: Shape,
    pub flash: Arc<SimDevice>,
    pub origin: Arc<SimDevice>,
    pub sectors: usize,
}

impl World {
    pub fn new(runtime: &Arc<SimRuntime>, shape: Shape) -> World {
        let flash = SimDevice::new(runtime, "flash", shape.flash_bytes, 512);
        let origin = SimDevice::new(runtime, "origin", shape.origin_bytes, 512);
        runtime
            .block_on(create(&*flash, shape.origin_bytes, &shape.options()))
            .unwrap_or_else(|error| panic!("create {shape:?}: {error}"));
        let sectors = (shape.origin_bytes / SECTOR_BYTES as u64) as usize;
        World { shape, flash, origin, sectors }
    }

    pub async fn open(&self, runtime: &Arc<SimRuntime>) -> Cache {
        Cache::open(self.flash.clone(), self.origin.clone(), runtime.clone(), self.shape.tuning.clone())
            .await
            .unwrap_or_else(|error| panic!("open: {error}"))
    }
}

pub async fn read(cache: &Cache, at: usize, count: usize) -> IoBuf {
    let offset = (at * SECTOR_BYTES) as u64;
    cache.read(offset, IoBuf::new(count * SECTOR_BYTES)).await.unwrap_or_else(|error| panic!("read: {error}"))
}

pub async fn write(cache: &Cache, at: usize, stamps: &[u32], fua: bool) {
    let mut buf = IoBuf::new(stamps.len() * SECTOR_BYTES);
    for (&stamp, out) in stamps.iter().zip(buf.chunks_mut(SECTOR_BYTES)) {
        sector_bytes(stamp, out);
    }
    let offset = (at * SECTOR_BYTES) as u64;
    cache.write(offset, buf.freeze(), WriteFlags { fua }).await.unwrap_or_else(|error| panic!("write: {error}"));
}

pub async fn zero(cache: &Cache, at: usize, count: usize, flags: ZeroFlags) {
    let (offset, len) = ((at * SECTOR_BYTES) as u64, (count * SECTOR_BYTES) as u64);
    cache.zero(offset, len, flags).await.unwrap_or_else(|error| panic!("zero: {error}"));
}

/// Returns the stamp of `candidates` that the sector holds.
pub fn identify(bytes: &[u8], candidates: impl IntoIterator<Item = u32>) -> Option<u32> {
    let mut expected = [0; SECTOR_BYTES];
    candidates.into_iter().find(|&stamp| {
        sector_bytes(stamp, &mut expected);
        bytes == expected
    })
}

//! The devices of a scenario, which outlive each opening, and their comparison with the model.
//!
//! It does not decide the moment of a power loss, or the requests of a script.

use super::model::Model;
use larder_core::types::SECTOR_BYTES;
use larder_device::{
    BlockDevice, IoBuf,
    rng::Rng,
    sim::{SimDevice, SimDeviceOptions, SimOptions, SimRuntime},
};
use larder_engine::{Cache, EngineError, Tuning};
use std::sync::Arc;

/// Sectors of a chunk, unless a scenario takes another size.
pub const CHUNK: usize = 8;
/// The most sectors of one read.
const READ_SECTORS_MAX: usize = 128;

/// Returns the options of flash and origin, by seed.
///
/// The seed picks one of four pairs:
/// - Both have physical sectors of 4096 bytes and tear at 512, as most devices report.
/// - Both have sectors of 512 bytes, and a discard that promises nothing.
/// - Both tear at 4096 bytes.
/// - The origin's sectors are coarser than the volume's.
fn device_options(seed: u64) -> [SimDeviceOptions; 2] {
    let options = SimDeviceOptions::default();
    let coarse = SimDeviceOptions { sector_bytes: 4096, tear_bytes: 4096, ..options.clone() };
    match seed % 4 {
        0 => [options.clone(), options],
        1 => {
            [(); 2].map(|()| SimDeviceOptions { physical_sector_bytes: 512, discard_zeroes: false, ..options.clone() })
        }
        2 => [(); 2].map(|()| SimDeviceOptions { tear_bytes: 4096, ..options.clone() }),
        _ => [options, coarse],
    }
}

/// Returns the finest sectors: a cache is made on them and moves to [`coarse`] ones.
fn fine() -> SimDeviceOptions {
    SimDeviceOptions { physical_sector_bytes: 512, ..SimDeviceOptions::default() }
}

/// Returns sectors of 4096 bytes, which a crash leaves whole or tears.
fn coarse() -> SimDeviceOptions {
    SimDeviceOptions { sector_bytes: 4096, tear_bytes: 4096, ..SimDeviceOptions::default() }
}

/// Makes devices for a scenario with this seed.
///
/// The origin is `origin_bytes` long, or a little less.
pub fn devices(
    runtime: &Arc<SimRuntime>,
    seed: u64,
    flash_bytes: u64,
    origin_bytes: u64,
    moves: bool,
) -> [Arc<SimDevice>; 2] {
    let [mut flash, origin] = device_options(seed);
    if moves {
        flash = fine();
    }
    let origin_bytes = origin_bytes / u64::from(origin.sector_bytes) * u64::from(origin.sector_bytes);
    [
        SimDevice::with_options(runtime, "flash", flash_bytes, flash),
        SimDevice::with_options(runtime, "origin", origin_bytes, origin),
    ]
}

pub fn runtime(seed: u64) -> Arc<SimRuntime> {
    SimRuntime::with_options(seed, SimOptions { steps_max: 3_000_000, ..SimOptions::default() })
}

/// The devices, which outlive each opening.
pub struct World {
    pub flash: Arc<SimDevice>,
    pub origin: Arc<SimDevice>,
    pub tuning: Tuning,
    pub read_one_of: u64,
    pub may_be_detached: bool,
}

impl World {
    /// Returns a copy with both devices on coarser sectors, or with the flash on finer ones.
    pub fn moved(&self, to_coarse: bool) -> World {
        let options = if to_coarse { coarse() } else { fine() };
        World {
            flash: self.flash.copied_to(&runtime(0), options),
            origin: if to_coarse { self.origin.copied_to(&runtime(0), coarse()) } else { self.origin.clone() },
            tuning: self.tuning.clone(),
            ..*self
        }
    }

    pub fn attach(&self, seed: u64) -> Arc<SimRuntime> {
        let runtime = runtime(seed);
        self.flash.attach(&runtime);
        self.origin.attach(&runtime);
        runtime
    }

    pub async fn open(&self, runtime: &Arc<SimRuntime>) -> Cache {
        self.open_or_detached(runtime).await.unwrap_or_else(|| panic!("open: it says that it was detached"))
    }

    /// Returns `None` if the flash says that it was detached.
    pub async fn open_or_detached(&self, runtime: &Arc<SimRuntime>) -> Option<Cache> {
        let (flash, origin) = (self.flash.clone(), self.origin.clone());
        match Cache::open(flash, origin, runtime.clone(), self.tuning.clone()).await {
            Ok(cache) => Some(cache),
            Err(EngineError::Detached) => None,
            Err(error) => panic!("open: {error}"),
        }
    }

    pub fn draw_share(&self, rng: &mut Rng) -> Share {
        Share { of: self.read_one_of, which: rng.below(self.read_one_of) }
    }

    pub fn origin_sectors(&self) -> usize {
        self.origin.info().size_bytes as usize / SECTOR_BYTES
    }
}

pub async fn read(cache: &Cache, at: usize, count: usize) -> IoBuf {
    let offset = (at * SECTOR_BYTES) as u64;
    cache.read(offset, IoBuf::new(count * SECTOR_BYTES)).await.unwrap_or_else(|error| panic!("read: {error}"))
}

/// The share of a volume that is read after a crash: all open sectors, and a part of the rest.
#[derive(Clone, Copy)]
pub struct Share {
    /// One run of sectors of so many.
    of: u64,
    which: u64,
}

pub const ALL: Share = Share { of: 1, which: 0 };

/// Reads all sectors that were ever written, and the neighbours of each run.
///
/// The values of these reads are the expected ones from then on.
pub async fn check_all(cache: &Cache, model: &mut Model, share: Share, sectors: usize, when: &str) {
    let status = cache.status();
    let dirty = status.dirty_bytes + status.trimmed_bytes > 0;
    model.found_mode(cache.mode(), dirty).unwrap_or_else(|error| panic!("{when}: {error}"));
    let mut written = model.written().collect::<Vec<_>>().into_iter().peekable();
    let mut runs = 0;
    while let Some((first, mut open)) = written.next() {
        let mut last = first;
        while let Some(next) = written.next_if(|next| next.0 <= last + CHUNK && next.0 - first < READ_SECTORS_MAX - 2) {
            last = next.0;
            open |= next.1;
        }
        runs += 1;
        if !open && runs % share.of != share.which {
            continue;
        }
        let (from, to) = (first.saturating_sub(1), (last + 2).min(sectors));
        let bytes = read(cache, from, to - from).await;
        for (at, sector) in (from..).zip(bytes.chunks(SECTOR_BYTES)) {
            model.found(at, sector).unwrap_or_else(|error| panic!("{when}: {error}"));
        }
    }
    assert_eq!(cache.status().counts.failed_checks, 0, "{when}: a record is damaged, and nothing damaged it");
}

/// Compares sectors of the origin: all of them, or that share.
pub fn check_origin(world: &World, share: Share, when: &str, check: impl Fn(usize, &[u8]) -> Result<(), String>) {
    let sectors = world.origin_sectors();
    for (run, from) in (0..).zip((0..sectors).step_by(READ_SECTORS_MAX)) {
        if run % share.of != share.which {
            continue;
        }
        let bytes =
            world.origin.peek((from * SECTOR_BYTES) as u64, READ_SECTORS_MAX.min(sectors - from) * SECTOR_BYTES);
        for (at, sector) in (from..).zip(bytes.chunks(SECTOR_BYTES)) {
            check(at, sector).unwrap_or_else(|error| panic!("{when}: {error}"));
        }
    }
}

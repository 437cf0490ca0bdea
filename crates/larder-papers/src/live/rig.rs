//! A rig: an origin, a flash and the cache between them, with the timing of real media, on a clock.
//!
//! Role: experiments name a design and two media. Here they become the engine's own cache over
//! [`Throttled`] memory. On [`Time::Virtual`] everything runs on a [`SimRuntime`], whose clock
//! moves only with the media: a disk's second costs nothing, and neither does computing. On
//! [`Time::Real`] it runs on threads, and both count. The disks' own write caches are off
//! ([`Durable`]).
//!
//! Invariants: a rig is the whole world of its experiment: nothing outlives [`Rig::end`]. On the
//! virtual clock a rig and a load give the same figures each time.
//!
//! It does not make requests; `load.rs` does.

use super::disk::{Disk, DiskContent, Durable};
use larder_device::{
    BlockDevice, Runtime,
    driver::block_on,
    ram::RamDevice,
    sim::{Schedule, SimOptions, SimRuntime},
    threads::{ThreadRuntime, ThreadRuntimeOptions},
    throttled::{Profile, Throttled},
};
use larder_engine::{
    Cache, Compression, CreateOptions, Tuning, WriteMode, create,
    create::plan,
    designs::{self, EngineDesign},
};
use larder_format::Layout;
use std::{future::Future, sync::Arc};

/// The seed of simulated runs.
const SEED: u64 = 1;
/// The approximate number of a cache's WEUs: few make the choice of a victim too coarse.
const WEUS: u64 = 64;
const WEU_BYTES: std::ops::RangeInclusive<u32> = 512 << 10..=2 << 20;

/// The time that a clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The media's time alone.
    Virtual,
    /// All time.
    Real,
}

/// A cache of the engine.
#[derive(Clone, Copy)]
pub struct CacheOf {
    /// Its design.
    pub design: &'static EngineDesign,
    /// Bytes of chunks.
    pub chunk_bytes: u32,
    /// Contents are stored once, if the design leaves that open.
    pub dedup: bool,
    /// Contents are compressed, if the design leaves that open.
    pub compress: bool,
    /// Write mode.
    pub mode: WriteMode,
    /// Sequential streams are read ahead.
    pub prefetch: bool,
    /// Room for chunks, in bytes, metadata aside.
    pub data_bytes: u64,
}

impl CacheOf {
    /// Returns a cache in write-back with all the data reduction of its design.
    ///
    /// # Errors
    /// A sentence: there is no such design.
    pub fn named(design: &str, chunk_bytes: u32, data_bytes: u64) -> Result<CacheOf, String> {
        let design = designs::named(design)
            .ok_or_else(|| format!("there is no design {design:?}; there are {}", designs::names()))?;
        Ok(CacheOf {
            design,
            chunk_bytes,
            dedup: true,
            compress: true,
            mode: WriteMode::Back,
            prefetch: true,
            data_bytes,
        })
    }

    /// Returns whether it stores contents once, and compressed, after its design's own rules.
    pub fn reduces(&self) -> (bool, bool) {
        let options = self.options();
        (options.dedup, options.compression != Compression::Off)
    }

    /// Returns the options of its creation.
    pub fn options(&self) -> CreateOptions {
        let weu = (self.data_bytes / WEUS).next_power_of_two().min(1 << 30) as u32;
        let mut options = CreateOptions {
            chunk_bytes: self.chunk_bytes,
            slot_bytes: weu.clamp(*WEU_BYTES.start(), *WEU_BYTES.end()),
            mode: self.mode,
            compression: if self.compress { Compression::Lz4 } else { Compression::Off },
            dedup: self.dedup,
            flash_uuid: *b"larder-paper-run",
            hash_key: [7; 32],
            ..CreateOptions::default()
        };
        self.design.fit(&mut options);
        options
    }

    /// Returns the least size of a flash with that room beside its metadata, to a step.
    fn flash_bytes(&self, origin_bytes: u64, options: &CreateOptions) -> Result<u64, String> {
        let unit = u64::from(options.slot_bytes).max(64 << 10);
        let room = |layout: &Layout| u64::from(layout.slot_count) * u64::from(layout.slot_bytes);
        let mut bytes = self.data_bytes.next_multiple_of(unit);
        let most = bytes.saturating_mul(4) + (256 << 20);
        let mut refused = String::new();
        while bytes <= most {
            match plan(bytes, 4096, origin_bytes, options) {
                Ok(planned) if room(&planned.layout) >= self.data_bytes => return Ok(bytes),
                Ok(_) => {}
                Err(error) => refused = error.to_string(),
            }
            bytes += unit;
        }
        Err(format!("there is no flash for {} with room for {} bytes: {refused}", self.design.name, self.data_bytes))
    }
}

/// The target of requests.
#[derive(Clone, Copy)]
pub enum Volume {
    /// The disk, without a cache.
    Disk,
    /// A flash drive that holds everything.
    Flash,
    /// A cache before the disk.
    Cached(CacheOf),
}

/// The parts of a rig.
#[derive(Clone)]
pub struct Plan {
    /// The target of requests.
    pub volume: Volume,
    /// The disk's timing.
    pub disk: Profile,
    /// The flash's.
    pub flash: Profile,
    /// The disk's size in bytes.
    pub disk_bytes: u64,
    /// Bytes of a block of content.
    pub block_bytes: u32,
    /// The disk's content.
    pub initial: DiskContent,
    /// Threads of the workers, on the real clock.
    pub workers: usize,
}

enum Clock {
    Virtual(Arc<SimRuntime>),
    Real(Arc<ThreadRuntime>),
}

/// A rig, as the module describes it.
pub struct Rig {
    clock: Clock,
    volume: Arc<dyn BlockDevice>,
    cache: Option<Arc<Cache>>,
}

impl Clock {
    fn new(time: Time, workers: usize) -> Result<Clock, String> {
        match time {
            Time::Virtual => {
                let options = SimOptions { schedule: Schedule::Timed, steps_max: u64::MAX, ..SimOptions::default() };
                Ok(Clock::Virtual(SimRuntime::with_options(SEED, options)))
            }
            Time::Real => ThreadRuntime::try_new(ThreadRuntimeOptions { workers, name: "paper".into() })
                .map(Clock::Real)
                .map_err(|error| format!("the system starts no threads: {error}")),
        }
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        match self {
            Clock::Virtual(runtime) => runtime.clone(),
            Clock::Real(runtime) => runtime.clone(),
        }
    }
}

impl Rig {
    /// Makes a rig.
    ///
    /// # Errors
    /// A sentence: a cache that cannot be.
    pub fn new(plan: &Plan, time: Time) -> Result<Rig, String> {
        let clock = Clock::new(time, plan.workers)?;
        let runtime = clock.runtime();
        let medium = |profile| {
            let disk = Disk::new(plan.disk_bytes, plan.block_bytes as usize, plan.initial.clone());
            Throttled::new(disk, profile, runtime.clone())
        };
        let of = match plan.volume {
            Volume::Disk => return Ok(Rig { volume: Arc::new(Durable(medium(plan.disk))), clock, cache: None }),
            Volume::Flash => return Ok(Rig { volume: Arc::new(medium(plan.flash)), clock, cache: None }),
            Volume::Cached(of) => of,
        };
        let origin: Arc<dyn BlockDevice> = Arc::new(Durable(medium(plan.disk)));
        let options = of.options();
        let size = origin.info().size_bytes;
        let memory = RamDevice::new("flash", of.flash_bytes(size, &options)?, 4096);
        let flash: Arc<dyn BlockDevice> = Arc::new(Throttled::new(memory, plan.flash, runtime.clone()));
        let mut tuning = Tuning::default();
        if !of.prefetch {
            tuning.prefetch_bytes_max = 0;
        }
        let made = async {
            create(&*flash, size, &options).await?;
            Cache::open(flash.clone(), origin, runtime, tuning).await
        };
        let opened = match &clock {
            Clock::Virtual(runtime) => runtime.block_on(made),
            Clock::Real(_) => block_on(made),
        };
        let cache = Arc::new(opened.map_err(|error| format!("{}: {error}", of.design.name))?);
        Ok(Rig { clock, volume: cache.clone(), cache: Some(cache) })
    }

    /// Returns the target of requests.
    pub fn volume(&self) -> Arc<dyn BlockDevice> {
        self.volume.clone()
    }

    /// Returns the clock and its executor.
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        self.clock.runtime()
    }

    /// Returns the cache, if there is one.
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_deref()
    }

    /// Runs a future to its end.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        match &self.clock {
            Clock::Virtual(runtime) => runtime.block_on(future),
            Clock::Real(_) => block_on(future),
        }
    }

    /// Ends everything. A cache is not closed, since no later read uses it.
    pub fn end(self) {
        let Rig { clock, volume, cache } = self;
        drop((volume, cache));
        match clock {
            Clock::Virtual(runtime) => runtime.kill(),
            Clock::Real(runtime) => runtime.shutdown(),
        }
    }
}

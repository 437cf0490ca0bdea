//! The common parts of the engine's tests: a simulated world, and a probe that notes requests. The
//! world is flash, origin and cache.
//!
//! Invariants: all randomness comes from the seed, and a failing test prints it; `LARDER_SEED=N`
//! replays one seed. A world outlives the openings of its cache: [`World::close`], [`World::crash`]
//! and [`World::kill`] end one, [`World::open`] begins the next.
//!
//! It leaves the model of a volume's content over crashes to `tests/simulation`.

#[allow(dead_code, reason = "another program uses the rest")]
#[path = "design.rs"]
pub mod design;

use larder_core::{Decider, Fingerprint, Lba, Lookup, Place, SlotId};
use larder_device::{
    BlockDevice, ChangeMark, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, Runtime,
    SharedBuf, Standing, WriteFlags, ZeroFlags,
    rng::{Rng, mix64},
    sim::{Schedule, SimDevice, SimDeviceOptions, SimOptions, SimRuntime},
};
use larder_engine::{
    Cache, CreateOptions, EngineError, Status, Tuning, create, offline::decode_metadata_slot, recover::recover,
};
use larder_format::{Layout, Superblock, metadata_slot::METADATA_SLOT_BYTES};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

pub const SECTOR: usize = 512;
pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// One request to a probed device.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub op: IoOp,
    pub offset: u64,
    pub len: u64,
    pub fua: bool,
    pub no_hole: bool,
    /// False at the start of the request, true at its end.
    pub over: bool,
}

impl Event {
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// A device that notes its requests, and can be slow.
pub struct Probe {
    pub sim: Arc<SimDevice>,
    events: Arc<Mutex<Vec<Event>>>,
    slow: Mutex<Option<(Arc<SimRuntime>, Duration)>>,
    stands: Arc<Mutex<Standing>>,
    looks: AtomicU64,
    looks_fail: AtomicBool,
    mark: Mutex<Option<ChangeMark>>,
}

impl Probe {
    pub fn new(sim: Arc<SimDevice>) -> Arc<Probe> {
        Arc::new(Probe {
            sim,
            events: Arc::default(),
            slow: Mutex::new(None),
            stands: Arc::new(Mutex::new(Standing::Sound)),
            looks: AtomicU64::new(0),
            looks_fail: AtomicBool::new(false),
            mark: Mutex::new(None),
        })
    }

    /// Returns all events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock())
    }

    /// Returns the number of events since they were last taken.
    pub fn event_count(&self) -> usize {
        self.events.lock().len()
    }

    /// Returns the requests `op` since the events were last taken, in the order of their calls.
    pub fn asked(&self, op: IoOp) -> Vec<Event> {
        self.events.lock().iter().filter(|e| e.op == op && !e.over).copied().collect()
    }

    /// Delays every request by this time on `runtime`'s clock, from now on.
    pub fn slow_down(&self, runtime: &Arc<SimRuntime>, by: Duration) {
        *self.slow.lock() = Some((runtime.clone(), by));
    }

    /// Its file has lost its name or its size from now on, as it says.
    pub fn stand(&self, standing: Standing) {
        *self.stands.lock() = standing;
    }

    /// Its device tells this mark from now on.
    #[allow(dead_code, reason = "the tests of whole flashes use it")]
    pub fn tell_mark(&self, mark: ChangeMark) {
        *self.mark.lock() = Some(mark);
    }

    /// Returns the number of times that its standing was asked for.
    pub fn looks(&self) -> u64 {
        self.looks.load(Relaxed)
    }

    /// Fails each look at its standing from now on, or none.
    pub fn fail_looks(&self, fail: bool) {
        self.looks_fail.store(fail, Relaxed);
    }

    pub fn at_full_speed(&self) {
        *self.slow.lock() = None;
    }

    fn note<T: Send + 'static>(&self, event: Event, go: impl FnOnce(&SimDevice) -> IoFuture<T>) -> IoFuture<T> {
        self.events.lock().push(event);
        let pause = self.slow.lock().as_ref().map(|(runtime, by)| runtime.delay(*by));
        let future = go(&self.sim);
        let events = self.events.clone();
        IoFuture::boxed(async move {
            if let Some(pause) = pause {
                pause.await?;
            }
            let result = future.await;
            events.lock().push(Event { over: true, ..event });
            result
        })
    }
}

fn event(op: IoOp, offset: u64, len: u64) -> Event {
    Event { op, offset, len, fua: false, no_hole: false, over: false }
}

impl BlockDevice for Probe {
    fn info(&self) -> &DeviceInfo {
        self.sim.info()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.note(event(IoOp::Read, offset, buf.len() as u64), |sim| sim.read(offset, buf))
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        let event = Event { fua: flags.fua, ..event(IoOp::Write, offset, data.len() as u64) };
        self.note(event, |sim| sim.write(offset, data, flags))
    }
    fn flush(&self) -> IoFuture<()> {
        self.note(event(IoOp::Flush, 0, 0), |sim| sim.flush())
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.note(event(IoOp::Discard, offset, len), |sim| sim.discard(offset, len))
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        let event = Event { fua: flags.fua, no_hole: flags.no_hole, ..event(IoOp::WriteZeroes, offset, len) };
        self.note(event, |sim| sim.write_zeroes(offset, len, flags))
    }
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.note(event(IoOp::Extents, offset, len), |sim| sim.extents(offset, len))
    }
    fn change_mark(&self) -> IoFuture<Option<ChangeMark>> {
        IoFuture::ready(self.sim.plan().check(IoOp::Standing, 0, 0).map(|()| *self.mark.lock()))
    }
    fn look(&self) -> IoFuture<Standing> {
        self.looks.fetch_add(1, Relaxed);
        if self.looks_fail.load(Relaxed) {
            return IoFuture::ready(Err(IoError::new(IoErrorKind::Io, IoOp::Standing, 0, 0)));
        }
        let Some((runtime, by)) = self.slow.lock().clone() else { return IoFuture::ready(Ok(*self.stands.lock())) };
        let (pause, stands) = (runtime.delay(by), self.stands.clone());
        IoFuture::boxed(async move {
            pause.await?;
            Ok(*stands.lock())
        })
    }
}

/// The parts of a world.
#[derive(Clone)]
pub struct Setup {
    pub options: CreateOptions,
    pub flash_bytes: u64,
    pub origin_bytes: u64,
    pub tuning: Tuning,
    /// Any order of completions, or the order of a quick machine.
    pub schedule: Schedule,
    pub origin: SimDeviceOptions,
}

impl Default for Setup {
    /// Returns a write-back cache of 16 MiB before 64 MiB.
    ///
    /// It has 8 KiB chunks in WEUs of 512 KiB, and destages only at need.
    fn default() -> Self {
        Setup {
            options: CreateOptions {
                design: design::chosen(),
                slot_bytes: 512 << 10,
                flash_uuid: [7; 16],
                hash_key: [9; 32],
                origin_uri: "sim:origin".into(),
                ..CreateOptions::default()
            },
            flash_bytes: 16 * MIB,
            origin_bytes: 64 * MIB,
            tuning: lazy_tuning(),
            schedule: Schedule::Chaos,
            origin: SimDeviceOptions::default(),
        }
    }
}

/// Returns a tuning without destaging until the cache is nearly full of dirty data.
pub fn lazy_tuning() -> Tuning {
    Tuning {
        dirty_low_percent: 80,
        dirty_high_percent: 85,
        dirty_max_percent: 90,
        destage_rate_bytes_per_s: 0,
        ..Tuning::default()
    }
}

/// Devices, a runtime, and the cache over them while it is open.
pub struct World {
    pub setup: Setup,
    pub flash: Arc<Probe>,
    pub origin: Arc<Probe>,
    pub runtime: Arc<SimRuntime>,
    cache: Option<Arc<Cache>>,
    rng: Rng,
}

/// A chunk's content that a metadata slot on the flash describes.
pub struct Listed {
    pub place: Place,
    pub fingerprint: Fingerprint,
    /// The clean chunks that are mapped to it.
    pub lbas: Vec<Lba>,
}

/// The place of a record on the flash.
pub struct Record {
    /// Its bytes.
    pub range: Range<u64>,
    /// It has some sectors of its chunk only.
    pub is_fragment: bool,
}

impl World {
    /// Makes a new cache, and opens it.
    pub fn new(seed: u64, setup: Setup) -> World {
        let mut world = World::made(seed, setup);
        world.open();
        world
    }

    /// Makes a new cache, and leaves it closed.
    pub fn made(seed: u64, mut setup: Setup) -> World {
        setup.options = design::fitted(setup.options);
        let mut rng = Rng::new(seed);
        let runtime = new_runtime(&mut rng, setup.schedule);
        let flash = Probe::new(SimDevice::new(&runtime, "flash", setup.flash_bytes, 512));
        let origin = Probe::new(SimDevice::with_options(&runtime, "origin", setup.origin_bytes, setup.origin.clone()));
        runtime
            .block_on(create(&*flash, setup.origin_bytes, &setup.options))
            .unwrap_or_else(|error| panic!("create: {error}"));
        World { setup, flash, origin, runtime, cache: None, rng }
    }

    pub fn try_open(&mut self) -> Result<(), EngineError> {
        assert!(self.cache.is_none(), "the cache is open already");
        let opening =
            Cache::open(self.flash.clone(), self.origin.clone(), self.runtime.clone(), self.setup.tuning.clone());
        self.cache = Some(Arc::new(self.runtime.block_on(opening)?));
        Ok(())
    }

    pub fn open(&mut self) {
        self.try_open().unwrap_or_else(|error| panic!("open: {error}"));
    }

    /// Opens up to the stop that was set, or to the end.
    pub fn open_until_stopped(&mut self) {
        let opening =
            Cache::open(self.flash.clone(), self.origin.clone(), self.runtime.clone(), self.setup.tuning.clone());
        if let Some(opened) = self.runtime.block_on_or_stop(opening) {
            self.cache = Some(Arc::new(opened.unwrap_or_else(|error| panic!("open: {error}"))));
        }
    }

    pub fn cache(&self) -> &Arc<Cache> {
        self.cache.as_ref().expect("the cache is open")
    }

    /// Runs `future`, and drives all other tasks meanwhile.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Ends the cache in order.
    pub fn close(&mut self) {
        self.run(self.cache().close()).unwrap_or_else(|error| panic!("close: {error}"));
        self.cache = None;
    }

    /// Ends the cache as a crash does; the runtime and the devices live on.
    pub fn abandon(&mut self) {
        let cache = self.cache.take().and_then(Arc::into_inner).expect("an open cache without another user");
        self.run(cache.abandon());
    }

    /// Loses power, and makes a new runtime for the next opening.
    pub fn crash(&mut self) {
        self.runtime.crash();
        self.next_runtime();
    }

    /// Kills the process; the devices live on.
    pub fn kill(&mut self) {
        self.runtime.kill();
        self.next_runtime();
    }

    fn next_runtime(&mut self) {
        self.cache = None;
        self.runtime = new_runtime(&mut self.rng, self.setup.schedule);
        self.flash.at_full_speed();
        self.origin.at_full_speed();
        self.flash.sim.attach(&self.runtime);
        self.origin.sim.attach(&self.runtime);
    }

    pub fn try_read(&self, offset: u64, len: usize) -> IoResult<IoBuf> {
        self.run(self.cache().read(offset, IoBuf::new(len)))
    }

    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        self.try_read(offset, len).unwrap_or_else(|error| panic!("read: {error}")).to_vec()
    }

    pub fn try_write(&self, offset: u64, data: &[u8], fua: bool) -> IoResult<()> {
        self.run(self.cache().write(offset, IoBuf::copy_of(data).freeze(), WriteFlags { fua }))
    }

    pub fn write_durably(&self, offset: u64, data: &[u8]) {
        self.try_write(offset, data, true).unwrap_or_else(|error| panic!("durable write: {error}"));
    }

    pub fn write(&self, offset: u64, data: &[u8]) {
        self.try_write(offset, data, false).unwrap_or_else(|error| panic!("write: {error}"));
    }

    pub fn write_fua(&self, offset: u64, data: &[u8]) {
        self.try_write(offset, data, true).unwrap_or_else(|error| panic!("FUA write: {error}"));
    }

    pub fn flush(&self) {
        self.run(self.cache().flush()).unwrap_or_else(|error| panic!("flush: {error}"));
    }

    pub fn zero(&self, offset: u64, len: u64, flags: ZeroFlags) {
        self.run(self.cache().zero(offset, len, flags)).unwrap_or_else(|error| panic!("zero: {error}"));
    }

    /// Sends a client's TRIM.
    pub fn trim(&self, offset: u64, len: u64) {
        self.run(self.cache().discard(offset, len)).unwrap_or_else(|error| panic!("trim: {error}"));
    }

    pub fn wait_for_insertions(&self) {
        self.run(self.cache().wait_for_insertions());
    }

    pub fn destage_all(&self) -> bool {
        self.run(self.cache().destage_all())
    }

    pub fn status(&self) -> Status {
        self.cache().status()
    }

    pub fn slot_of(&self, lba: u64) -> Option<SlotId> {
        self.cache().slot_of(Lba(lba))
    }

    /// Returns the number of reads of the origin, over all openings.
    pub fn origin_reads(&self) -> u64 {
        self.origin.sim.counters().reads
    }

    /// Puts `data` on the origin behind the cache's back, before the cache holds any of it.
    pub fn fill_origin(&self, offset: u64, data: &[u8]) {
        self.origin.sim.poke(offset, data);
    }

    /// Puts chunks on the origin, zeroes and duplicates among them, as [`World::fill_origin`] does.
    pub fn fill_with_repeats(&self, chunks: u64, chunk_bytes: usize) {
        for lba in 0..chunks {
            let data = match lba % 7 {
                0 => vec![0; chunk_bytes],
                1 | 2 => noise(lba % 40, chunk_bytes),
                _ => noise(1 << 40 | lba, chunk_bytes),
            };
            self.fill_origin(lba * chunk_bytes as u64, &data);
        }
    }

    pub fn superblock(&self) -> Superblock {
        // The runtime may have no other driver: this reads through it.
        self.run(larder_engine::superblock::read(&*self.flash)).expect("a superblock").0
    }

    pub fn layout(&self) -> Layout {
        self.superblock().layout
    }

    /// Returns the contents that metadata slots describe, of those that `design` finds there.
    ///
    /// `design` is the state of the present flash.
    pub fn listed(&self, design: &Decider) -> Vec<Listed> {
        let superblock = self.superblock();
        let at = |slot: SlotId| superblock.layout.metadata_slot_offset(slot.0).expect("a slot of the layout");
        let mut found = Vec::new();
        for (slot, _) in design.stored_runs() {
            let bytes = self.flash.sim.peek(at(slot), METADATA_SLOT_BYTES);
            let Some(entry) = decode_metadata_slot(&bytes, superblock.flash_tag(), slot) else { continue };
            let (place, fingerprint) = (entry.place, *entry.metadata.fingerprint());
            // The slot of a fragment lists no chunk.
            if entry.metadata.lbas().next().is_none() || !design.is_found_in(slot, &fingerprint) {
                continue;
            }
            let is_mapped = |lba: &Lba| design.dirty_seq(*lba).is_none() && design.maps_to(*lba, &place, &fingerprint);
            let lbas = entry.metadata.lbas().filter(is_mapped).collect();
            found.push(Listed { place, fingerprint, lbas });
        }
        found
    }

    /// Returns the record that `lba` maps to, as an opening would find it: in any store.
    ///
    /// The mapping must be durable.
    pub fn record_of(&self, lba: u64) -> Record {
        let found = self.run(recover(&*self.flash, None, &Tuning::default())).expect("a sound flash");
        let design = found.state.design();
        let mut mappings = (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece));
        let lookup = mappings.find(|mapping| mapping.lba == Lba(lba)).map(|mapping| mapping.lookup);
        let lookup = lookup.or_else(|| {
            let listed = self.listed(design).into_iter().find(|listed| listed.lbas.contains(&Lba(lba)))?;
            Some(Lookup::Chunk { place: listed.place, duplicate: false })
        });
        let (Some(Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. }), is_fragment) =
            (lookup, matches!(lookup, Some(Lookup::Fragment { .. })))
        else {
            panic!("chunk {lba} has no record: {lookup:?}");
        };
        assert_eq!(self.slot_of(lba), Some(place.slot), "chunk {lba} is mapped anew, and that is not durable");
        let start = found.geometry.flash_offset(place.slot, place.offset);
        Record { range: start..start + u64::from(place.stored_len), is_fragment }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // Tasks hold the runtime that holds them.
            self.runtime.kill();
        }
    }
}

fn new_runtime(rng: &mut Rng, schedule: Schedule) -> Arc<SimRuntime> {
    let options = SimOptions { schedule, steps_max: 5_000_000, ..SimOptions::default() };
    SimRuntime::with_options(rng.next_u64(), options)
}

struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with LARDER_SEED={}", self.0);
        }
    }
}

/// Returns the seed of `LARDER_SEED`.
pub fn asked_seed() -> Option<u64> {
    std::env::var("LARDER_SEED").ok().and_then(|value| value.parse().ok())
}

/// Runs a test once for each of `count` seeds.
pub fn each_seed(count: u64, test: impl Fn(u64)) {
    let seeds = asked_seed().map_or_else(|| (1..=count).collect(), |seed| vec![seed]);
    for seed in seeds {
        let _print = SeedOnPanic(seed);
        test(seed);
    }
}

/// Runs futures side by side.
pub async fn all(mut futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Returns bytes that nothing compresses, different for each `number`.
pub fn noise(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(mix64(number ^ 0x6e01_5e00)).fill(&mut bytes);
    bytes
}

/// Returns bytes that compress well, different for each `number`.
pub fn text(number: u64, len: usize) -> Vec<u8> {
    let word = mix64(number ^ 0x7e87).to_le_bytes();
    (0..len).map(|i| if i % 64 < 8 { word[i % 8] ^ (i / 64) as u8 } else { b'a' + (i % 7) as u8 }).collect()
}

/// A volume in memory, as the reference for the cache.
pub struct Twin(BTreeMap<u64, [u8; SECTOR]>);

impl Twin {
    /// Returns a volume of zeroes.
    pub fn new() -> Twin {
        Twin(BTreeMap::new())
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (i, sector) in data.chunks(SECTOR).enumerate() {
            self.0.insert(offset / SECTOR as u64 + i as u64, sector.try_into().expect("whole sectors"));
        }
    }

    pub fn zero(&mut self, offset: u64, len: u64) {
        self.write(offset, &vec![0; len as usize]);
    }

    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let first = offset / SECTOR as u64;
        let sectors = first..first + (len / SECTOR) as u64;
        sectors.flat_map(|sector| self.0.get(&sector).copied().unwrap_or([0; SECTOR])).collect()
    }
}

/// Compares long byte strings without printing them.
#[track_caller]
pub fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths");
    if let Some(at) = found.chunks(SECTOR).zip(expected.chunks(SECTOR)).position(|(a, b)| a != b) {
        let zero = found[at * SECTOR..].iter().take(SECTOR).all(|&b| b == 0);
        panic!(
            "{what}: sector {at} of {} differs (it is {})",
            found.len() / SECTOR,
            if zero { "zero" } else { "not zero" }
        );
    }
}

/// Returns a random run of sectors inside `bytes`: offset and length in bytes.
pub fn random_run(rng: &mut Rng, bytes: u64, sectors_max: u64) -> (u64, usize) {
    let sectors = bytes / SECTOR as u64;
    let count = 1 + rng.below(sectors_max.min(sectors));
    let at = rng.below(sectors - count + 1);
    (at * SECTOR as u64, count as usize * SECTOR)
}

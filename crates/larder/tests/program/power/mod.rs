//! Power losses for real, except for the power: `larder serve` over files that forget (`disk.rs`).
//! They forget unflushed writes. Larder opens and uses them as any file, through io_uring and
//! through blocking calls. Clients write and flush; then flash and origin lose their power, and the
//! server dies with them. It starts again, and the test compares every sector with the contract.
//!
//! Under blocking calls the files cut each third long request short. The path between the engine
//! and a device is under test here, and nothing stands in for it. A flush that does not reach the
//! file loses flushed data; so does a durable write that does not ask for durability.
//!
//! `LARDER_POWER_ROUNDS=N` takes every design in every mode over both ways to the kernel, N power
//! losses each. `LARDER_SEED=N` takes another seed. The seed draws load and loss; the machine
//! decides which operation the loss meets.

mod disk;
mod mount;

use std::sync::atomic::Ordering::*;
use std::thread;
use std::time::{Duration, Instant};

use larder_device::driver::block_on;
use larder_device::nbd::NbdDevice;
use larder_device::rng::Rng;
use larder_device::{BlockDevice, IoBuf};
use larder_engine::designs::{ENGINE_DESIGNS, EngineDesign};
use larder_format::StoreKind;

use crate::kills::load::{CLIENTS, Load};
use crate::kills::model::SECTOR;
use crate::support::{MIB, Scratch, Server, Volume, have_mounts, say, stands_in};
use disk::Loss;
use mount::Disks;

/// So small that the test reads all of it after each loss.
const VOLUME_BYTES: u64 = 6 * MIB;
const FLASH_BYTES: u64 = 8 * MIB;
/// Bytes of one read of the comparison.
const READ_BYTES: usize = 1 << 20;
/// A life ends after this time, even with few writes.
const LOAD_TIME_MAX: Duration = Duration::from_secs(10);
const MODES: [&str; 3] = ["write-back", "write-through", "write-around"];
/// Ways to the kernel.
const BACKENDS: [&str; 2] = ["uring", "threads"];

/// One cache, and its way to its files.
#[derive(Clone, Copy)]
struct Setting {
    design: &'static EngineDesign,
    mode: &'static str,
    backend: &'static str,
}

/// Returns all settings, or each design over each backend once, with each mode in turn.
fn settings(all: bool, designs: &[&'static EngineDesign]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (number, &design) in designs.iter().enumerate() {
        for (way, &backend) in BACKENDS.iter().enumerate() {
            for (at, &mode) in MODES.iter().enumerate() {
                if all || at == (number + way) % MODES.len() {
                    settings.push(Setting { design, mode, backend });
                }
            }
        }
    }
    settings
}

/// Counts over all settings.
#[derive(Default)]
struct Tally {
    losses: u64,
    writes: u64,
    flushes: u64,
    volatile_sectors: usize,
    device_flushes: u64,
    durable_writes: u64,
    short_requests: u64,
}

struct Arena<'a> {
    setting: Setting,
    disks: &'a Disks,
    volume: &'a Volume,
    load: &'a Load,
    rng: &'a mut Rng,
}

impl Arena<'_> {
    fn serve(&mut self) -> Server {
        // Each life draws a pace of destaging.
        let rate = ["0", "8M"][self.rng.index(2)];
        let low = ["0", "20"][self.rng.index(2)];
        let options = ["--destage-rate", rate, "--dirty-low", low, "--workers", "2"];
        self.volume.serve_as(self.volume.serve_command(&options).env("LARDER_IO", self.setting.backend))
    }

    /// Lives under load; then the power goes.
    fn live(&mut self, tally: &mut Tally) {
        let server = self.serve();
        self.compare(&server);
        let (load, writes) = (self.load, self.load.writes.load(Relaxed));
        load.killed.store(false, Release);
        let enough = writes + 40 + self.rng.below(160);
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (uri, rng) = (server.uri.clone(), self.rng.fork());
                scope.spawn(move || load.work(&uri, client, rng));
            }
            let end = Instant::now() + LOAD_TIME_MAX;
            while load.writes.load(Relaxed) < enough && Instant::now() < end {
                thread::sleep(Duration::from_millis(2));
            }
            load.killed.store(true, Release);
            self.disks.cut_power();
            server.strike();
            self.disks.let_go();
            server.kill();
        });
        let loss = if self.rng.chance(1, 2) { Loss::Everything } else { Loss::Some };
        let volatile = self.disks.power_on(loss, self.rng);
        tally.losses += 1;
        tally.volatile_sectors += volatile.iter().sum::<usize>();
    }

    /// Reads all of the volume, and settles the model on it.
    fn compare(&mut self, server: &Server) {
        let Setting { design, mode, backend } = self.setting;
        let device = NbdDevice::connect(&server.uri).expect("a connection");
        let mut content = Vec::with_capacity(VOLUME_BYTES as usize);
        for offset in (0..VOLUME_BYTES).step_by(READ_BYTES) {
            let bytes = block_on(device.read(offset, IoBuf::new(READ_BYTES))).expect("a read after the loss");
            content.extend_from_slice(&bytes);
        }
        let settled = self.load.model().settle(0, &content);
        settled.unwrap_or_else(|wrong| panic!("{} in {mode} over {backend}: {wrong}", design.name));
        let damaged = self.volume.number("failed_checks");
        assert_eq!(
            damaged, 0,
            "{} in {mode} over {backend}: a record failed its check, and nothing damaged it",
            design.name
        );
        if mode != "write-back" {
            let origin = self.disks.origin_bytes();
            let differs = content.chunks(SECTOR).zip(origin.chunks(SECTOR)).position(|(one, other)| one != other);
            assert_eq!(differs, None, "{} in {mode} over {backend}: a sector is stale in the cache", design.name);
        }
    }
}

/// Takes each setting through so many power losses, and an end in order.
fn lives_through_power_losses(settings: &[Setting], losses: u64, seed: u64) {
    let replay = Replay(seed);
    let mut tally = Tally::default();
    for (number, &setting) in settings.iter().enumerate() {
        let Setting { design, mode, .. } = setting;
        let scratch = Scratch::new(&format!("power-{}-{mode}", design.name));
        let disks = Disks::mount(&scratch, FLASH_BYTES, VOLUME_BYTES);
        let mut options = vec!["--design", design.name, "--mode", mode];
        if design.kind() == StoreKind::Weus {
            options.extend(["--weu", "512K"]);
        }
        let volume = Volume::on(&scratch, "power", disks.flash(), &disks.origin(), FLASH_BYTES, &options);
        if setting.backend == "threads" {
            disks.cut_short();
        }
        let load = Load::new(VOLUME_BYTES as usize / SECTOR);
        let mut rng = Rng::new(seed ^ (number as u64) << 32);
        let mut arena = Arena { setting, disks: &disks, volume: &volume, load: &load, rng: &mut rng };
        (0..losses).for_each(|_| arena.live(&mut tally));
        let server = arena.serve();
        arena.compare(&server);
        server.stop();
        volume.verify();
        tally.writes += load.writes.load(Relaxed);
        tally.flushes += load.flushes.load(Relaxed);
        tally.device_flushes += disks.flushes().iter().sum::<u64>();
        tally.short_requests += disks.short_requests();
        tally.durable_writes += disks.durable_writes().iter().sum::<u64>();
    }
    let Tally { losses, writes, flushes, volatile_sectors, device_flushes, durable_writes, short_requests } = tally;
    say(&format!(
        "power: {} settings, {losses} losses, {writes} writes, {flushes} flushes, {device_flushes} of the disks, {durable_writes} durable writes of them, {volatile_sectors} sectors at risk, {short_requests} requests cut short (LARDER_SEED={})",
        settings.len(),
        replay.0
    ));
    assert!(writes > 20 * losses && flushes > 2 * losses, "hardly any load");
    assert!(short_requests > 10 * losses, "hardly any request was cut short");
    assert!(volatile_sectors as u64 > losses && durable_writes > losses, "hardly anything was at risk");
}

/// Prints the seed when the test fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if thread::panicking() {
            say(&format!("replay with LARDER_SEED={}", self.0));
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|value| value.parse().ok())
}

#[test]
fn what_was_flushed_survives_a_power_loss_of_real_files() {
    if stands_in() || !have_mounts("power") {
        return;
    }
    let wanted = std::env::var("LARDER_DESIGN").ok();
    let designs: Vec<_> =
        ENGINE_DESIGNS.iter().filter(|design| wanted.as_ref().is_none_or(|name| *name == design.name)).collect();
    let rounds = number("LARDER_POWER_ROUNDS");
    let settings = settings(rounds.is_some(), &designs);
    lives_through_power_losses(&settings, rounds.unwrap_or(1), number("LARDER_SEED").unwrap_or(505));
}

//! Process kills for real: `larder serve` ends by SIGKILL under load, and starts again. Clients
//! write and flush until then. Every sector is compared with the contract: flushed data is there,
//! the rest is old or new, and the value of a read stays.
//!
//! The flash is tiny, so that evictions, destages and checkpoints are under way at every kill. The
//! server also dies while it recovers, while it ends in order, and while another process sets its
//! mode, flushes or detaches it. A kill loses no sector that a device was given; `power` tests the
//! loss of power.
//!
//! `LARDER_KILL_ROUNDS=N` asks for more rounds, `LARDER_SEED=N` for another seed. The seed draws
//! load and delays; the machine decides which operation a kill meets.

pub mod load;
pub mod model;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::*;
use std::thread;
use std::time::{Duration, Instant};

use larder_device::driver::block_on;
use larder_device::nbd::NbdDevice;
use larder_device::rng::Rng;
use larder_device::{BlockDevice, IoBuf};

use crate::support::{FuseFile, MIB, Scratch, Server, Volume, wire::Wire};
use crate::support::{begin, ends, fitting, have_mounts, have_tools, larder, run, say, stands_in};
use load::{CLIENTS, Load};
use model::SECTOR;

/// Small enough that the test reads all of it after each kill.
const VOLUME_BYTES: u64 = 12 * MIB;
/// Slots for about a fifth of it.
const FLASH_BYTES: u64 = 6 * MIB;
const ROUNDS: u64 = 6;
/// Bytes of one read when everything is compared.
const READ_BYTES: usize = 1 << 20;
/// The longest time of a life, even with few writes.
const LOAD_TIME_MAX: Duration = Duration::from_secs(10);
const MODES: [&str; 3] = ["write-back", "write-through", "write-around"];

fn rounds() -> u64 {
    std::env::var("LARDER_KILL_ROUNDS").ok().and_then(|value| value.parse().ok()).unwrap_or(ROUNDS)
}

fn seed(default: u64) -> u64 {
    std::env::var("LARDER_SEED").ok().and_then(|value| value.parse().ok()).unwrap_or(default)
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

/// The work of a server that the kill interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    UnderLoad,
    WhileItRecovers,
    WhileItEnds,
    WhileItsModeIsSet,
    WhileItIsFlushed,
    WhileItIsDetached,
}

const KILLS: [Kill; 6] = [
    Kill::UnderLoad,
    Kill::WhileItEnds,
    Kill::WhileItRecovers,
    Kill::WhileItsModeIsSet,
    Kill::WhileItIsDetached,
    Kill::WhileItIsFlushed,
];

/// A volume, its possible content, and the counts.
struct Arena<'a> {
    volume: &'a Volume,
    load: &'a Load,
    /// A state directory: a flash that a kill leaves is no older copy.
    state: String,
    mode: String,
    rng: Rng,
    kills: u64,
    evicted: u64,
    checkpoints: u64,
    detached: u64,
}

impl<'a> Arena<'a> {
    fn new(scratch: &Scratch, volume: &'a Volume, load: &'a Load, mode: &str, seed: u64) -> Self {
        let (mode, rng) = (mode.to_owned(), Rng::new(seed));
        let state = scratch.path("state");
        fs::create_dir(&state).expect("a state directory");
        let state = state.to_str().expect("a plain path").to_owned();
        Arena { volume, load, state, mode, rng, kills: 0, evicted: 0, checkpoints: 0, detached: 0 }
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.rng.below(to - from))
    }

    /// Waits until so many more writes were acknowledged, and a moment.
    fn wait_for_writes(&mut self, from: u64, to: u64) {
        let end = Instant::now() + LOAD_TIME_MAX;
        let enough = self.load.writes.load(Relaxed) + from + self.rng.below(to - from);
        while self.load.writes.load(Relaxed) < enough && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(self.millis(0, 20));
    }

    /// Returns options with another pace of destaging in each life.
    fn serve_options(&mut self) -> Vec<String> {
        let rate = ["0", "1M", "8M"][self.rng.index(3)];
        let low = ["0", "20"][self.rng.index(2)];
        let options = ["--destage-rate", rate, "--dirty-low", low, "--workers", "2", "--state", &self.state];
        options.map(str::to_owned).to_vec()
    }

    fn round(&mut self, kill: Kill) {
        let options = self.serve_options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut server = self.volume.serve_with(&options);
        self.compare(&server);
        if self.rng.chance(1, 3) {
            // The values of the reads stay, without a flush since.
            server.kill();
            self.kills += 1;
            server = self.volume.serve_with(&options);
            self.compare(&server);
        }
        self.load.killed.store(false, Release);
        self.load.leave.store(false, Release);
        let load = self.load;
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (uri, rng) = (server.uri.clone(), self.rng.fork());
                    scope.spawn(move || load.work(&uri, client, rng))
                })
                .collect();
            self.wait_for_writes(300, 1300);
            let status = self.volume.status();
            let count = |key: &str| status[key].as_u64().unwrap_or_else(|| panic!("no {key}: {status}"));
            self.evicted += count("evicted_slots");
            // The names of before have the same values.
            assert_eq!([count("evicted_weus"), count("weu_bytes")], [count("evicted_slots"), count("slot_bytes")]);
            self.checkpoints += count("checkpoints");
            assert_eq!(status["health"], "ok", "{status}");
            assert_eq!(count("failed_checks"), 0, "{status}");
            if kill == Kill::WhileItIsDetached {
                load.leave.store(true, Release);
                clients.into_iter().for_each(|client| client.join().expect("a client"));
            }
            self.end(kill, server);
        });
        self.kills += 1;
        if kill == Kill::WhileItRecovers {
            for _ in 0..=self.rng.below(3) {
                let begun = begin(&mut self.volume.serve_command(&options));
                thread::sleep(self.millis(0, 60));
                drop(begun);
                self.kills += 1;
            }
        }
        if self.rng.chance(1, 2) {
            self.volume.verify();
        }
    }

    fn end(&mut self, kill: Kill, server: Server) {
        let load = self.load;
        match kill {
            Kill::UnderLoad | Kill::WhileItRecovers => {
                load.killed.store(true, Release);
                server.kill();
            }
            Kill::WhileItEnds => {
                load.killed.store(true, Release);
                server.ask_to_end();
                thread::sleep(self.millis(0, 80));
                server.kill();
            }
            Kill::WhileItsModeIsSet => {
                let mode = MODES[self.rng.index(3)];
                let asked = self.kill_during(server, &["set", "--mode", mode], 200);
                let found = self.volume.status()["mode"].as_str().expect("a mode").to_owned();
                let may_stay = asked.failed && found == self.mode;
                assert!(found == mode || may_stay, "from {} to {mode} ({asked:?}), and is {found}", self.mode);
                self.mode = found;
            }
            Kill::WhileItIsFlushed => {
                let snapshot = load.model().flush_begins();
                // A later command may have found the server dead, and its unwritten data lost.
                if self.kill_during(server, &["flush"], 200).in_time {
                    load.model().flush_completes(&snapshot);
                }
            }
            Kill::WhileItIsDetached => {
                let asked = self.kill_during(server, &["detach"], 250);
                self.after_a_detach(&asked);
            }
        }
    }

    /// Kills the server a moment after a command began to ask it.
    fn kill_during(&mut self, server: Server, args: &[&str], delay_ms: u64) -> Asked {
        let mut asking = begin(larder(args).arg("--flash").arg(&self.volume.flash));
        thread::sleep(self.millis(0, delay_ms));
        let is_over = asking.is_over();
        self.load.killed.store(true, Release);
        server.kill();
        let out = asking.ends("a command whose server was killed");
        let complaint = String::from_utf8_lossy(&out.stderr);
        assert!(matches!(out.status.code(), Some(0 | 1)), "{args:?}: {}: {complaint}", out.status);
        assert_eq!(out.status.success(), complaint.is_empty(), "{args:?}: {complaint}");
        let failed = !out.status.success();
        Asked { in_time: is_over && !failed, failed }
    }

    /// Checks that the volume is detached or not, wholly. A detached cache is made anew.
    fn after_a_detach(&mut self, asked: &Asked) {
        let status = self.volume.status();
        let conditions = status["conditions"].as_array().expect("conditions");
        let is_detached = conditions.iter().any(|condition| condition["name"] == "detached");
        assert!(is_detached || asked.failed, "detached, and is not: {status}");
        if !is_detached {
            return;
        }
        self.detached += 1;
        let refused = ends(&mut self.volume.serve_command(&[]));
        let complaint = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && complaint.contains("was detached"), "{complaint}");
        // The origin alone is the volume now.
        let origin = fs::read(&self.volume.origin).expect("the origin");
        let mut model = self.load.model();
        if asked.in_time {
            model.check_newest(0, &origin).expect("the origin after a detach");
        }
        model.settle(0, &origin).expect("the origin of a detached cache");
        let mut create = larder(["create", "--force", "--mode", &self.mode, "--flash"]);
        run(create.arg(&self.volume.flash).arg("--origin").arg(&self.volume.origin).args(fitting(&["--weu", "512K"])));
    }

    /// Reads all of the volume, and settles it.
    fn compare(&mut self, server: &Server) {
        let device = NbdDevice::connect(&server.uri).expect("a connection");
        let mut content = Vec::with_capacity(VOLUME_BYTES as usize);
        for offset in (0..VOLUME_BYTES).step_by(READ_BYTES) {
            let bytes = block_on(device.read(offset, IoBuf::new(READ_BYTES))).expect("a read after the crash");
            content.extend_from_slice(&bytes);
        }
        self.load.model().settle(0, &content).unwrap_or_else(|wrong| panic!("{}: {wrong}", self.mode));
        if self.mode != "write-back" {
            let origin = fs::read(&self.volume.origin).expect("the origin");
            let differs = content.chunks(SECTOR).zip(origin.chunks(SECTOR)).position(|(one, other)| one != other);
            assert_eq!(differs, None, "{}: this sector is stale in the cache", self.mode);
        }
    }
}

/// The outcome of a command whose server was killed.
#[derive(Debug)]
struct Asked {
    /// It had succeeded before the kill.
    in_time: bool,
    failed: bool,
}

fn lives_through_kills(mode: &str, default_seed: u64) {
    if stands_in() {
        return;
    }
    let replay = Replay(seed(default_seed));
    let scratch = Scratch::new(&format!("kills-{mode}"));
    let size = ["--weu", "512K", "--mode", mode];
    let volume = Volume::create(&scratch, FLASH_BYTES, VOLUME_BYTES, &size);
    let load = Load::new(VOLUME_BYTES as usize / SECTOR);
    let mut arena = Arena::new(&scratch, &volume, &load, mode, replay.0);
    let rounds = rounds();
    for round in 0..rounds {
        arena.round(KILLS[(round % KILLS.len() as u64) as usize]);
    }
    let server = volume.serve();
    arena.compare(&server);
    server.stop();
    volume.verify();
    let Arena { kills, evicted, checkpoints, detached, .. } = arena;
    let (writes, flushes) = (load.writes.load(Relaxed), load.flushes.load(Relaxed));
    say(&format!(
        "kills, first {mode}: {rounds} rounds, {kills} kills, {writes} writes, {flushes} flushes, {evicted} evictions, {checkpoints} checkpoints, {detached} detached (LARDER_SEED={})",
        replay.0
    ));
    assert!(writes > 10 * rounds && flushes > rounds, "hardly any load");
    assert!(mode == "write-around" || evicted > 0, "the flash is not small enough: nothing was evicted");
}

#[test]
fn write_back() {
    lives_through_kills("write-back", 101);
}

#[test]
fn write_through() {
    lives_through_kills("write-through", 202);
}

#[test]
fn write_around() {
    lives_through_kills("write-around", 303);
}

/// Blocks of a writer over the kernel, in sectors.
const BLOCK: usize = 4096 / SECTOR;

/// Writes blocks of its own through a file, and syncs, until an error.
fn write_and_sync(file: &File, load: &Load, writer: usize, mut rng: Rng) {
    let blocks = load.sectors / BLOCK / CLIENTS;
    loop {
        let mut written = Vec::new();
        for _ in 0..=rng.index(8) {
            let start = (rng.index(blocks) * CLIENTS + writer) * BLOCK;
            let content = load.new_content();
            load.model().begin(start..start + BLOCK, content);
            if file.write_all_at(&load::data(&(start..start + BLOCK), content), (start * SECTOR) as u64).is_err() {
                assert!(load.killed.load(Acquire), "a write failed before the server was killed");
                return;
            }
            written.push(start..start + BLOCK);
        }
        if file.sync_data().is_err() {
            assert!(load.killed.load(Acquire), "a sync failed before the server was killed");
            return;
        }
        load.flushes.fetch_add(1, Relaxed);
        load.writes.fetch_add(written.len() as u64, Relaxed);
        written.into_iter().for_each(|range| load.model().complete(range, true));
    }
}

#[test]
fn writers_that_sync_through_nbdfuse() {
    let name = "kills-nbdfuse";
    if stands_in() || !have_tools(name, &["nbdfuse"]) || !have_mounts(name) {
        return;
    }
    let replay = Replay(seed(404));
    let scratch = Scratch::new(name);
    let volume = Volume::create(&scratch, FLASH_BYTES, VOLUME_BYTES, &["--weu", "512K"]);
    let load = Load::new(VOLUME_BYTES as usize / SECTOR);
    let mut arena = Arena::new(&scratch, &volume, &load, "write-back", replay.0);
    let rounds = rounds();
    for _ in 0..rounds {
        let options = arena.serve_options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let server = volume.serve_with(&options);
        arena.compare(&server);
        load.killed.store(false, Release);
        let fuse = FuseFile::mount(&scratch, "fuse", &server.uri);
        let file = File::options().write(true).open(fuse.file()).expect("the file of nbdfuse");
        thread::scope(|scope| {
            for writer in 0..CLIENTS {
                let (file, load, rng) = (&file, &load, arena.rng.fork());
                scope.spawn(move || write_and_sync(file, load, writer, rng));
            }
            arena.wait_for_writes(60, 240);
            load.killed.store(true, Release);
            server.kill();
        });
        volume.verify();
    }
    let server = volume.serve();
    arena.compare(&server);
    server.stop();
    let (writes, syncs) = (load.writes.load(Relaxed), load.flushes.load(Relaxed));
    say(&format!("kills under nbdfuse: {rounds} rounds, {writes} writes, {syncs} syncs (LARDER_SEED={})", replay.0));
    assert!(writes > 10 * rounds && syncs > rounds, "hardly any load");
}

/// No client flushes, and the server dies as soon as a write is over.
#[test]
fn with_durable_writes_no_client_has_to_flush() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("kills-durable-writes");
    let volume = Volume::create(&scratch, FLASH_BYTES, VOLUME_BYTES, &["--weu", "512K"]);
    let block = 4096;
    let content = |round: u8, at: u64| vec![round * 16 + at as u8 + 1; block];
    for round in 0..4 {
        let server = volume.serve_with(&["--durable-writes"]);
        let mut client = Wire::connect(volume.socket());
        if round > 0 {
            for at in 0..8 {
                let found = client.read(at * block as u64, block);
                assert!(found == content(round - 1, at), "round {round}: block {at} is not what was written");
            }
        }
        (0..8).for_each(|at| client.write(at * block as u64, &content(round, at)));
        server.kill();
    }
    volume.verify();
}

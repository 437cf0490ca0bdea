//! The real program when its flash fails: on a full file system, under the server, at the start.
//! With a state directory the origin goes on behind a fence; without one writes are refused. Then
//! the flash comes back, the state directory is lost or damaged, and caches are detached.
//!
//! The flash vanishes by way of nbdfuse: it is the file of another server, and the test kills that
//! server. The engine's own tests cover each moment of a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use crate::support::image::{Numbers, noise};
use crate::support::wire::{FLUSH, Refusal, WRITE, Wire};
use crate::support::{FuseFile, MIB, Mounted, Scratch, Server, Volume};
use crate::support::{ends, eventually, have_mounts, have_tools, larder, run, stands_in};
use serde_json::Value;

const CHUNK: u64 = 8 << 10;
const VOLUME_BYTES: u64 = 16 * MIB;
const FLASH_BYTES: u64 = 8 * MIB;
/// A full flash refuses writes within this time.
const REFUSED_WITHIN: Duration = Duration::from_secs(60);
/// Longest random write, in sectors.
const WRITE_SECTORS_MAX: u64 = 64;
const EIO: u32 = 5;

/// A cache, its state directory, and the expected content of its volume.
struct World {
    volume: Volume,
    state: PathBuf,
    image: Vec<u8>,
    numbers: Numbers,
}

impl World {
    fn new(scratch: &Scratch, flash: PathBuf, mode: &str) -> Self {
        let origin = scratch.path("origin");
        let image = noise(7, VOLUME_BYTES as usize);
        fs::write(&origin, &image).expect("an origin");
        let options = ["--weu", "512K", "--mode", mode];
        let volume = Volume::on(scratch, "cache", flash, &origin, FLASH_BYTES, &options);
        let state = scratch.path("state");
        fs::create_dir(&state).expect("a state directory");
        World { volume, state, image, numbers: Numbers::seeded(11) }
    }

    fn state_options(&self) -> [&str; 2] {
        ["--state", self.state.to_str().expect("a plain path")]
    }

    fn serve(&self, more: &[&str]) -> Server {
        self.volume.serve_with(&[&self.state_options(), more].concat())
    }

    /// Checks that serving is refused, in one sentence with these words.
    fn refused(&self, options: &[&str], words: &[&str]) {
        refused(&ends(&mut self.volume.serve_command(options)), words);
    }

    fn command(&self, args: &[&str]) -> Output {
        ends(larder(args).arg("--flash").arg(&self.volume.flash))
    }

    /// Returns the state file, if there is one.
    fn record(&self) -> Value {
        let uuid = self.state_file();
        serde_json::from_slice(&fs::read(uuid).expect("a state file")).expect("JSON")
    }

    fn state_file(&self) -> PathBuf {
        // Beside it is at times the one that replaces it.
        let files = fs::read_dir(&self.state).expect("the state directory").map(|entry| entry.expect("a file").path());
        let mut files = files.filter(|file| file.extension().is_some_and(|extension| extension == "json"));
        let file = files.next().expect("a state file");
        assert!(files.next().is_none(), "one cache, one file");
        file
    }

    /// Makes writes that must succeed.
    fn write(&mut self, wire: &mut Wire, count: usize) {
        for _ in 0..count {
            self.try_write(wire).unwrap_or_else(|refusal| panic!("a write: {refusal:?}"));
        }
    }

    /// Makes one random write, which is in the image only if it was acknowledged.
    fn try_write(&mut self, wire: &mut Wire) -> Result<(), Refusal> {
        let sectors = 1 + self.numbers.below(WRITE_SECTORS_MAX);
        let offset = 512 * self.numbers.below(VOLUME_BYTES / 512 - sectors);
        let data = noise(self.numbers.next(), 512 * sectors as usize);
        wire.request(WRITE, 0, offset, data.len() as u32, &data)?;
        self.image[offset as usize..][..data.len()].copy_from_slice(&data);
        Ok(())
    }

    fn assert_volume(&self, wire: &mut Wire, when: &str) {
        for (number, expected) in self.image.chunks(MIB as usize).enumerate() {
            let found = wire.read(number as u64 * MIB, MIB as usize);
            if let Some(at) = found.iter().zip(expected).position(|(one, other)| one != other) {
                panic!("{when}: byte {} differs", number * MIB as usize + at);
            }
        }
    }

    fn assert_origin(&self, when: &str) {
        let found = fs::read(&self.volume.origin).expect("the origin");
        let differs = found.iter().zip(&self.image).position(|(one, other)| one != other);
        assert_eq!(differs, None, "{when}: the origin differs from there on");
    }

    /// Returns the server's status, also if the flash cannot be read.
    fn status(&self) -> Value {
        let said = run(larder(["status", "--json", "--flash"]).arg(&self.volume.flash).args(self.state_options()));
        serde_json::from_str(&said).expect("JSON")
    }
}

fn has(status: &Value, name: &str) -> bool {
    status["conditions"].as_array().expect("conditions").iter().any(|condition| condition["name"] == name)
}

/// Returns the status's text of a condition, by its name.
fn told<'a>(status: &'a Value, name: &str) -> &'a str {
    let conditions = status["conditions"].as_array().expect("conditions");
    let condition = conditions.iter().find(|condition| condition["name"] == name);
    condition.and_then(|condition| condition["what"].as_str()).unwrap_or_else(|| panic!("no {name}: {status}"))
}

/// Checks that no server has the flash, and that the status tells of the fence, with these words.
///
/// It does so with the directory named and without, and changes nothing.
fn assert_fenced(world: &World, words: &[&str]) {
    let (record, flash) = (world.record(), fs::read(&world.volume.flash).expect("the flash"));
    for status in [world.status(), world.volume.status()] {
        let what = told(&status, "fence_up");
        assert!(words.iter().all(|word| what.contains(word)), "{words:?}: {what}");
        assert_eq!((status["served"].as_bool(), status["health"].as_str()), (Some(false), Some(what)), "{status}");
    }
    let page = run(larder(["status", "--flash"]).arg(&world.volume.flash));
    assert!(page.contains("fence_up"), "{page}");
    assert_eq!(world.record(), record);
    assert!(fs::read(&world.volume.flash).expect("the flash") == flash, "a status writes nothing");
}

/// Checks for exit code 1, no standard output, and one sentence with these words.
fn refused(out: &Output, words: &[&str]) {
    let (said, complaint) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(1), "{said}{complaint}");
    assert_eq!(said, "");
    let sentence = complaint.trim_end();
    assert!(sentence.starts_with("larder: ") && !sentence.contains('\n'), "no single sentence: {complaint}");
    for word in words {
        assert!(sentence.contains(word), "it does not say {word:?}: {sentence}");
    }
}

fn succeeds(out: &Output) {
    assert!(out.status.success(), "{}: {}", out.status, String::from_utf8_lossy(&out.stderr));
}

fn set_aside(path: &Path) -> PathBuf {
    let aside = path.with_extension("aside");
    fs::rename(path, &aside).expect("a rename");
    aside
}

/// Returns true if the test can put flash on a file system of ours.
fn can_mount(test: &str) -> bool {
    !stands_in() && have_mounts(test)
}

#[test]
fn a_full_flash_is_written_past_behind_a_fence() {
    if !can_mount("a full flash") {
        return;
    }
    for mode in ["write-back", "write-through"] {
        let scratch = Scratch::new("degraded-full");
        let disk = Mounted::tmpfs(&scratch, "disk", 3 * FLASH_BYTES);
        let mut world = World::new(&scratch, disk.folder.join("flash"), mode);
        let server = world.serve(&["--flash-full-timeout", "1"]);
        let mut wire = Wire::connect(&server.socket);
        world.write(&mut wire, 40);
        wire.flush();
        assert!(world.record()["fence"].is_null(), "{}", world.record());
        let filler = disk.fill();
        // Until it needs a block that the file system does not have.
        eventually("the flash fails", || {
            world.write(&mut wire, 20);
            wire.flush();
            world.volume.status()["degraded"] == true
        });
        world.write(&mut wire, 20);
        wire.flush();
        let status = world.volume.status();
        assert!(has(&status, "flash_full") && has(&status, "fence_up"), "{mode}: {status}");
        assert!(status["health"].as_str().expect("health").contains("no space left"), "{status}");
        for name in ["flash_full", "fence_up"] {
            let line = format!("condition raised: {name} (degraded): ");
            eventually(&line, || server.complaints().contains(&line));
        }
        assert!(world.record()["fence"].is_string(), "{}", world.record());
        world.assert_volume(&mut wire, "with a full flash");
        // Its content is readable, so nothing is lost.
        succeeds(&world.command(&["flush"]));
        world.assert_origin("after a flush");
        refused(&world.command(&["set", "--mode", "write-around"]), &["flash"]);
        drop(wire);
        server.stop();

        fs::remove_file(filler).expect("the filler");
        // Commands tell the effect of the next opening before it. The flash still calls dirty the
        // data that was saved since.
        assert_fenced(&world, &["no space left", "dropped"]);
        assert_eq!(world.record()["destaged"], true, "{}", world.record());
        let server = world.serve(&[]);
        let status = world.volume.status();
        assert!(has(&status, "emptied_behind_fence") && status["degraded"] == false, "{status}");
        assert!(world.record()["fence"].is_null() && world.record()["destaged"] == false, "{}", world.record());
        let mut wire = Wire::connect(&server.socket);
        world.assert_volume(&mut wire, "with room again");
        world.write(&mut wire, 40);
        wire.flush();
        drop(wire);
        server.kill();
        let server = world.volume.serve();
        world.assert_volume(&mut Wire::connect(&server.socket), "in the next life");
        server.stop();
        world.volume.verify();
    }
}

#[test]
fn a_full_flash_without_a_state_directory_refuses_writes_and_keeps_what_was_flushed() {
    if !can_mount("a full flash, no state directory") {
        return;
    }
    for mode in ["write-back", "write-through"] {
        let scratch = Scratch::new("degraded-no-state");
        let disk = Mounted::tmpfs(&scratch, "disk", 3 * FLASH_BYTES);
        let mut world = World::new(&scratch, disk.folder.join("flash"), mode);
        let server = world.volume.serve_with(&["--flash-full-timeout", "1"]);
        let mut wire = Wire::connect(&server.socket);
        world.write(&mut wire, 40);
        wire.flush();
        let mut flushed = world.image.clone();
        let filler = disk.fill();
        // Until the flash has been full for its time.
        let until = Instant::now() + REFUSED_WITHIN;
        let refusal = std::iter::from_fn(|| (Instant::now() < until).then_some(())).find_map(|()| {
            if let Err(refusal) = world.try_write(&mut wire) {
                return Some(refusal);
            }
            match wire.request(FLUSH, 0, 0, 0, &[]) {
                Ok(_) => flushed.clone_from(&world.image),
                Err(refusal) => return Some(refusal),
            }
            None
        });
        let refusal = refusal.expect("a refusal");
        assert_eq!(refusal.errno, EIO, "{refusal:?}");
        // From now on the failure is known, and told.
        let refusal = (0..3).find_map(|_| world.try_write(&mut wire).err()).expect("a refused write");
        assert!(refusal.errno == EIO && refusal.sentence.contains("--state"), "{refusal:?}");
        let status = world.volume.status();
        assert!(has(&status, "flash_full") && has(&status, "fence_refused"), "{mode}: {status}");
        wire.read(0, 64 << 10);
        server.kill();

        fs::remove_file(filler).expect("the filler");
        let server = world.volume.serve();
        if mode == "write-through" {
            // Each acknowledged write is on the origin. A refused write may be there, too.
            flushed = fs::read(&world.volume.origin).expect("the origin");
        }
        world.image = flushed;
        let status = world.volume.status();
        assert!(status["degraded"] == false && status["recovery"]["clean_shutdown"] == false, "{status}");
        world.assert_volume(&mut Wire::connect(&server.socket), "with room again");
        server.stop();
        world.volume.verify();
    }
}

/// A flash behind another server that the test can kill.
struct Remote {
    fuse: FuseFile,
    server: Option<Server>,
    /// The path of the same bytes without that server.
    backing: PathBuf,
}

impl Remote {
    fn new(scratch: &Scratch) -> Self {
        let backing = scratch.file("backing", FLASH_BYTES);
        let other = Volume::bare(scratch, "remote", &backing);
        let server = other.serve_bare();
        let fuse = FuseFile::mount(scratch, "remote-mnt", &server.uri);
        Remote { fuse, server: Some(server), backing }
    }

    fn vanish(&mut self) {
        self.server.take().expect("it vanishes once").kill();
    }
}

#[test]
fn a_flash_that_vanishes_is_fenced_and_comes_back_empty() {
    let name = "a flash that vanishes";
    if !can_mount(name) || !have_tools(name, &["nbdfuse"]) {
        return;
    }
    for mode in ["write-through", "write-around"] {
        let scratch = Scratch::new("degraded-gone");
        let mut remote = Remote::new(&scratch);
        let mut world = World::new(&scratch, remote.fuse.file(), mode);
        let server = world.serve(&[]);
        let mut wire = Wire::connect(&server.socket);
        world.write(&mut wire, 60);
        // Some of it is cached, and will be stale.
        for _ in 0..2 {
            (0..300).for_each(|chunk| drop(wire.read(chunk * 7 % 2048 * CHUNK, CHUNK as usize)));
        }
        wire.flush();
        remote.vanish();
        world.write(&mut wire, 200);
        world.assert_volume(&mut wire, "without the flash");
        wire.flush();
        let status = world.status();
        assert_eq!(status["degraded"], true, "{mode}: {status}");
        assert!(has(&status, "flash_failed") || has(&status, "flash_gone"), "{status}");
        assert!(has(&status, "fence_up"), "{status}");
        world.assert_origin("without the flash");
        drop(wire);
        server.stop();

        // Back, with copies that are older than the origin.
        world.volume.flash.clone_from(&remote.backing);
        let server = world.serve(&[]);
        let status = world.volume.status();
        assert!(has(&status, "emptied_behind_fence"), "{status}");
        world.assert_volume(&mut Wire::connect(&server.socket), "after the return");
        server.stop();
        assert!(world.record()["fence"].is_null(), "{}", world.record());
        world.volume.verify();
    }
}

#[test]
fn dirty_data_of_a_flash_that_vanished_is_an_error_and_never_old() {
    let name = "dirty data of a flash that vanished";
    if !can_mount(name) || !have_tools(name, &["nbdfuse"]) {
        return;
    }
    let scratch = Scratch::new("degraded-dirty");
    let mut remote = Remote::new(&scratch);
    let mut world = World::new(&scratch, remote.fuse.file(), "write-back");
    let server = world.serve(&["--dirty-low", "60", "--dirty-high", "60"]);
    let mut wire = Wire::connect(&server.socket);
    for chunk in 0..40 {
        wire.write(chunk * CHUNK, &noise(1000 + chunk, CHUNK as usize));
    }
    wire.flush();
    remote.vanish();
    let refusal = wire.request(0, 0, 3 * CHUNK, CHUNK as u32, &[]).expect_err("only the flash has it");
    assert_eq!(refusal.errno, EIO, "{refusal:?}");
    let clean = 100 * CHUNK as usize;
    assert_eq!(wire.read(clean as u64, CHUNK as usize), world.image[clean..clean + CHUNK as usize]);
    // Writing heals it; a part of it cannot be merged with lost data.
    wire.write(3 * CHUNK, &noise(9, CHUNK as usize));
    let part = wire.request(WRITE, 0, 4 * CHUNK, 512, &[1; 512]).expect_err("the rest of the chunk is lost");
    assert_eq!(part.errno, EIO, "{part:?}");
    // It was only in memory; now it must be durable, and the origin has it.
    wire.flush();
    assert_eq!(wire.read(3 * CHUNK, CHUNK as usize), noise(9, CHUNK as usize));
    let status = world.status();
    assert!(has(&status, "fence_up") && has(&status, "undurable_data"), "{status}");
    drop(wire);
    server.kill();

    world.volume.flash.clone_from(&remote.backing);
    world.refused(&world.state_options(), &["--discard", "dirty"]);
    let hint = world.command(&["flush"]);
    refused(&hint, &["--discard"]);
    let server = world.serve(&["--discard"]);
    // The content of the origin: the write past the flash, and else the old bytes.
    world.image[3 * CHUNK as usize..4 * CHUNK as usize].copy_from_slice(&noise(9, CHUNK as usize));
    world.assert_volume(&mut Wire::connect(&server.socket), "with the dirty data dropped");
    server.stop();
}

#[test]
fn a_cache_is_served_without_its_flash_where_the_origin_is_whole() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("degraded-missing");
    let mut world = World::new(&scratch, scratch.path("flash"), "write-through");
    let server = world.serve(&[]);
    let mut wire = Wire::connect(&server.socket);
    world.write(&mut wire, 40);
    for chunk in (0..600).rev() {
        wire.read(chunk * CHUNK, CHUNK as usize);
    }
    drop(wire);
    server.stop();

    let aside = set_aside(&world.volume.flash);
    world.refused(&[], &["flash", "does not exist"]);
    refused(&world.command(&["status"]), &["does not exist"]);
    let missing =
        |world: &World| ends(larder(["status", "--flash"]).arg(&world.volume.flash).args(world.state_options()));
    refused(&missing(&world), &["missing", "its origin has no server"]);
    let server = world.serve(&[]);
    let mut wire = Wire::connect(&server.socket);
    let status = world.status();
    assert!(status["degraded"] == true && status["served"] == true, "{status}");
    assert!(has(&status, "flash_gone") && has(&status, "fence_up"), "{status}");
    succeeds(&missing(&world));
    world.write(&mut wire, 60);
    world.assert_volume(&mut wire, "without the flash");
    drop(wire);
    server.stop();
    world.assert_origin("served alone");
    refused(&missing(&world), &["missing", "a fence is up"]);

    // An origin that grew meanwhile is another matter.
    let file = fs::File::options().write(true).open(&world.volume.origin).expect("the origin");
    file.set_len(VOLUME_BYTES + MIB).expect("a larger origin");
    world.refused(&world.state_options(), &["origin", "had"]);
    file.set_len(VOLUME_BYTES).expect("its size");

    fs::rename(aside, &world.volume.flash).expect("a rename");
    assert_fenced(&world, &["served without its flash", "dropped"]);
    // A kill in between changes nothing: the fence stays until the flash is empty.
    for _ in 0..3 {
        drop(crate::support::begin(&mut world.volume.serve_command(&[])));
    }
    let server = world.volume.serve();
    let status = world.volume.status();
    assert!(has(&status, "emptied_behind_fence") || world.record()["fence"].is_null(), "{status}");
    world.assert_volume(&mut Wire::connect(&server.socket), "with the flash back");

    // In write-back the origin may lack data.
    succeeds(&world.command(&["set", "--mode", "write-back"]));
    server.stop();
    set_aside(&world.volume.flash);
    world.refused(&world.state_options(), &["write-back", "bring the flash back"]);
}

#[test]
fn a_state_directory_must_be_the_right_one() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("degraded-state");
    let mut world = World::new(&scratch, scratch.path("flash"), "write-through");
    let server = world.serve(&[]);
    let mut wire = Wire::connect(&server.socket);
    world.write(&mut wire, 20);
    drop(wire);
    server.stop();
    // It is remembered.
    world.volume.serve().stop();
    let before = fs::read(&world.volume.flash).expect("the flash");
    let (file, good) = (world.state_file(), fs::read(world.state_file()).expect("the state file"));

    // Damaged: never taken for "no fence", even with `--adopt`.
    let newer = String::from_utf8_lossy(&good).replace("\"version\": 3", "\"version\": 4");
    for bad in [&good[..good.len() / 2], b"", b"\xff\xfe\0", newer.as_bytes()] {
        fs::write(&file, bad).expect("a damaged state file");
        for options in [&[][..], &["--adopt"], &["--discard"]] {
            world.refused(options, &[&file.display().to_string()]);
        }
        refused(&world.command(&["flush"]), &[&file.display().to_string()]);
        // A status tells the content of the flash, and the gaps in its knowledge.
        for status in [world.status(), world.volume.status()] {
            assert!(told(&status, "state_unknown").contains(&file.display().to_string()), "{status}");
            assert!(status["mode"] == "write-through" && status["health"] != "ok", "{status}");
        }
        assert_eq!(fs::read(&file).expect("the state file"), bad, "a refusal changes nothing");
    }
    // Lost.
    fs::remove_file(&file).expect("the state file");
    world.refused(&[], &["--adopt"]);
    refused(&world.command(&["set", "--mode", "write-back"]), &["--adopt"]);
    assert!(told(&world.volume.status(), "state_unknown").contains("--adopt"), "{}", world.volume.status());
    let lost = set_aside(&world.state);
    world.refused(&[], &[&world.state.display().to_string(), "--state"]);
    let status = world.volume.status();
    assert!(told(&status, "state_unknown").contains(&world.state.display().to_string()), "{status}");
    // Another one.
    let other = scratch.path("other");
    fs::create_dir(&other).expect("a directory");
    let other = other.display().to_string();
    world.refused(&["--state", &other], &[&other, "--adopt"]);
    let file = scratch.file("no-directory", 10).display().to_string();
    world.refused(&["--state", &file], &[&file]);
    assert_eq!(fs::read(&world.volume.flash).expect("the flash"), before, "a refusal changes nothing");
    assert!(fs::read_dir(&other).expect("it is there").next().is_none(), "a refusal changes nothing");

    // Adopted: from here on the other one counts.
    let server = world.volume.serve_with(&["--state", &other, "--adopt"]);
    world.assert_volume(&mut Wire::connect(&server.socket), "adopted");
    server.stop();
    fs::rename(lost, &world.state).expect("a rename");
    assert!(!has(&world.volume.status(), "state_unknown"), "{}", world.volume.status());
    world.refused(&world.state_options(), &["--adopt"]);
    world.volume.serve().stop();
}

#[test]
fn a_state_directory_on_a_full_disk_is_refused() {
    if !can_mount("a state directory on a full disk") {
        return;
    }
    let scratch = Scratch::new("degraded-state-full");
    let mut world = World::new(&scratch, scratch.path("flash"), "write-through");
    let disk = Mounted::tmpfs(&scratch, "disk", 64 << 10);
    let filler = disk.fill();
    world.state = disk.folder.join("state");
    fs::create_dir(&world.state).expect("a directory");
    let before = fs::read(&world.volume.flash).expect("the flash");
    world.refused(&world.state_options(), &["state", "no space left"]);
    assert_eq!(fs::read(&world.volume.flash).expect("the flash"), before, "a refusal changes nothing");
    fs::remove_file(filler).expect("the filler");
    world.serve(&[]).stop();
    // Read-only from now on: neither fence nor mode could be noted.
    disk.remount("ro");
    world.refused(&[], &["state", "read-only"]);
    disk.remount("rw");
    world.volume.serve().stop();
}

#[test]
fn a_detached_cache_leaves_a_whole_origin() {
    if stands_in() {
        return;
    }
    for served in [true, false] {
        let scratch = Scratch::new("degraded-detach");
        let mut world = World::new(&scratch, scratch.path("flash"), "write-back");
        let server = world.serve(&["--dirty-low", "60", "--dirty-high", "60"]);
        let mut wire = Wire::connect(&server.socket);
        world.write(&mut wire, 60);
        if served {
            refused(&world.command(&["detach"]), &["connected", "disconnect"]);
            world.write(&mut wire, 5);
            drop(wire);
            world.volume.wait_for_no_clients();
            let out = world.command(&["detach"]);
            assert!(String::from_utf8_lossy(&out.stdout).contains("is complete"), "{out:?}");
            succeeds(&out);
            server.ends_by_itself();
        } else {
            wire.flush();
            drop(wire);
            server.kill();
            // Without its origin there is no place to write to, and it stays attached.
            let aside = set_aside(&world.volume.origin);
            refused(&world.command(&["detach"]), &["origin", "missing"]);
            fs::rename(aside, &world.volume.origin).expect("a rename");
            // A grown origin is taken: that is the way to enlarge a volume.
            let file = fs::File::options().write(true).open(&world.volume.origin).expect("the origin");
            file.set_len(VOLUME_BYTES + MIB).expect("a larger origin");
            world.refused(&[], &["grown", "detach"]);
            succeeds(&world.command(&["detach"]));
        }
        world.assert_origin("detached");
        let status = world.volume.status();
        assert!(has(&status, "detached") && !has(&status, "state_unknown"), "{status}");
        for command in [&["flush"][..], &["set", "--mode", "write-through"], &["detach"]] {
            refused(&world.command(command), &["was detached"]);
        }
        world.refused(&[], &["was detached", "create --force"]);
        world.volume.verify();
        let origin = world.volume.origin.clone();
        let mut create = larder(["create", "--flash"]);
        refused(&ends(create.arg(&world.volume.flash).arg("--origin").arg(&origin)), &["--force"]);
        let mut again = larder(["create", "--force", "--weu", "512K", "--flash"]);
        succeeds(&ends(again.arg(&world.volume.flash).arg("--origin").arg(&origin)));
        let server = world.volume.serve();
        world.assert_volume(&mut Wire::connect(&server.socket), "a new cache before it");
        server.stop();
    }
}

/// A directory that was left for another one must not be adopted silently.
///
/// Its fence may be down while the other's is up.
#[test]
fn an_old_state_directory_hides_no_fence() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("degraded-moved");
    let mut world = World::new(&scratch, scratch.path("flash"), "write-through");
    let server = world.serve(&[]);
    let mut wire = Wire::connect(&server.socket);
    world.write(&mut wire, 20);
    for chunk in 0..200 {
        wire.read(chunk * CHUNK, CHUNK as usize);
    }
    drop(wire);
    server.stop();

    let old = world.state.clone();
    world.state = scratch.path("other");
    fs::create_dir(&world.state).expect("a directory");
    // The old one is still there, so the server says so.
    assert!(told(&world.status(), "state_unknown").contains(&old.display().to_string()), "{}", world.status());
    world.refused(&world.state_options(), &["--adopt", &old.display().to_string()]);
    world.serve(&["--adopt"]).stop();
    let aside = set_aside(&world.volume.flash);
    let server = world.serve(&[]);
    let mut wire = Wire::connect(&server.socket);
    world.write(&mut wire, 40);
    drop(wire);
    server.stop();
    fs::rename(aside, &world.volume.flash).expect("a rename");
    world.refused(&["--state", old.to_str().expect("a plain path")], &["--adopt", &world.state.display().to_string()]);
    let server = world.serve(&[]);
    assert!(has(&world.volume.status(), "emptied_behind_fence"));
    world.assert_volume(&mut Wire::connect(&server.socket), "with the flash back");
    server.stop();

    // One that was moved as a whole needs no word.
    let moved = scratch.path("moved");
    fs::rename(&world.state, &moved).expect("a rename");
    world.state = moved;
    world.serve(&[]).stop();
}

/// The flash is named by a link, which goes with the device.
///
/// A failed start has changed nothing. The origin of a missing flash is known by more than its
/// size.
#[test]
fn what_belongs_to_a_missing_flash_is_known() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("degraded-known");
    let mut world = World::new(&scratch, scratch.path("flash"), "write-through");
    let device = scratch.path("device");
    fs::rename(&world.volume.flash, &device).expect("a rename");
    std::os::unix::fs::symlink(&device, &world.volume.flash).expect("a link");
    let server = world.serve(&[]);
    let mut wire = Wire::connect(&server.socket);
    world.write(&mut wire, 20);
    drop(wire);
    server.stop();

    let record = world.record();
    let mut busy = larder(["serve", "--flash"]);
    busy.arg(&world.volume.flash).args(world.state_options()).arg("--nbd").arg("unix:/no/such/folder/socket");
    refused(&ends(&mut busy), &["/no/such/folder/socket"]);
    assert_eq!(world.record(), record, "a start that fails notes nothing");

    fs::remove_file(&world.volume.flash).expect("the link");
    let aside = set_aside(&device);
    let origin = world.volume.origin.clone();
    let mine = set_aside(&origin);
    fs::copy(&mine, &origin).expect("another origin of the same size");
    world.refused(&world.state_options(), &["not the one that this cache was made for"]);
    fs::rename(&mine, &origin).expect("a rename");
    let server = world.serve(&[]);
    assert!(has(&world.status(), "fence_up"));
    server.stop();
    fs::rename(aside, &world.volume.flash).expect("a rename");
    world.serve(&[]).stop();
}

/// A refused start leaves no state that would let the origin be served without its flash.
///
/// The flash may be served without the directory.
#[test]
fn a_refused_first_start_is_no_state_to_serve_by() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("degraded-refused-first");
    let mut world = World::new(&scratch, scratch.path("flash"), "write-through");
    let mut busy = larder(["serve", "--flash"]);
    busy.arg(&world.volume.flash).args(world.state_options()).arg("--nbd").arg("unix:/no/such/folder/socket");
    refused(&ends(&mut busy), &["/no/such/folder/socket"]);
    succeeds(&world.command(&["set", "--mode", "write-back"]));
    let server = world.volume.serve_with(&["--dirty-low", "90", "--dirty-high", "91", "--dirty-max", "92"]);
    let mut wire = Wire::connect(&server.socket);
    world.write(&mut wire, 20);
    drop(wire);
    server.stop();
    let aside = set_aside(&world.volume.flash);
    world.refused(&world.state_options(), &["is missing", "knows no cache that was served from there"]);
    fs::rename(aside, &world.volume.flash).expect("a rename");
    let server = world.serve(&[]);
    let mut wire = Wire::connect(&server.socket);
    world.assert_volume(&mut wire, "with its flash");
}

/// The kept state of a cache goes with it, by detaching it and by making another one over it.
///
/// The next cache at its place is another cache.
#[test]
fn what_is_kept_of_a_cache_goes_with_it() {
    if stands_in() {
        return;
    }
    for detach in [true, false] {
        let scratch = Scratch::new("degraded-goes");
        let world = World::new(&scratch, scratch.path("flash"), "write-through");
        world.serve(&[]).stop();
        assert_eq!(world.record()["registered"], true);
        if detach {
            succeeds(&world.command(&["detach"]));
        } else {
            let origin = world.volume.origin.to_str().expect("a plain path").to_owned();
            succeeds(&world.command(&[
                "create",
                "--force",
                "--weu",
                "512K",
                "--mode",
                "write-back",
                "--origin",
                &origin,
            ]));
        }
        assert_eq!(fs::read_dir(&world.state).expect("the state directory").count(), 0);
        fs::remove_file(&world.volume.flash).expect("the flash");
        world.refused(&world.state_options(), &["is missing", "knows no cache that was served from there"]);
    }
}

/// Another cache, which does not know the first one, replaces a flash at its place.
///
/// If it is missing in turn, the origin is not served by the kept state of the first.
#[test]
fn what_is_kept_of_a_replaced_flash_serves_nothing() {
    if stands_in() {
        return;
    }
    // Under the same name, and under another one: then the origin tells.
    for renamed in [false, true] {
        let scratch = Scratch::new("degraded-replaced");
        let mut world = World::new(&scratch, scratch.path("flash"), "write-through");
        world.serve(&[]).stop();
        let first = set_aside(&world.volume.flash);
        let origin = world.volume.origin.clone();
        let mut create = larder(["create", "--weu", "512K", "--mode", "write-back", "--size", "16M", "--flash"]);
        succeeds(&ends(create.arg(&world.volume.flash).arg("--origin").arg(&origin)));
        fs::write(world.state.join("damaged.json"), "{").expect("a damaged file of somebody's");
        let flash = world.volume.flash.clone();
        if renamed {
            let alias = scratch.path("alias");
            std::os::unix::fs::symlink(&flash, &alias).expect("a link");
            world.volume.flash = alias;
        }
        world.serve(&[]).stop();
        world.volume.flash = flash;
        fs::remove_file(world.state.join("damaged.json")).expect("the damaged file");
        fs::remove_file(&world.volume.flash).expect("the flash");
        // The second one is in write-back, and the first one's file says write-through.
        world.refused(&world.state_options(), &["is missing", "write-back"]);
        // The first one is served again, and counts again.
        fs::rename(first, &world.volume.flash).expect("a rename");
        world.serve(&[]).stop();
        fs::remove_file(&world.volume.flash).expect("the flash");
        world.serve(&[]).stop();
    }
}

/// The file of a served flash is removed, or moved with a copy in its place.
///
/// The server is reached through the state directory as long as the place is empty. No command on
/// the copy reaches the server or its state.
#[test]
fn a_server_is_found_through_the_state_directory_but_not_through_a_copy() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("degraded-copy");
    let mut world = World::new(&scratch, scratch.path("flash"), "write-back");
    let server = world.serve(&["--dirty-low", "90", "--dirty-high", "91", "--dirty-max", "92"]);
    let mut wire = Wire::connect(&server.socket);
    world.write(&mut wire, 20);
    wire.flush();
    drop(wire);
    let copy = scratch.path("copy");
    fs::copy(&world.volume.flash, &copy).expect("a copy");
    let aside = set_aside(&world.volume.flash);
    let with_state = |world: &World, args: &[&str]| {
        ends(larder(args).arg("--flash").arg(&world.volume.flash).args(world.state_options()))
    };
    assert!(world.status()["served"] == true && world.status()["degraded"] == false);
    succeeds(&with_state(&world, &["set", "--mode", "write-through"]));

    let record = world.record();
    fs::rename(&copy, &world.volume.flash).expect("a rename");
    for args in [&["status"][..], &["flush"], &["set", "--mode", "write-back"], &["detach"]] {
        refused(&with_state(&world, args), &["is a copy of", "served now"]);
    }
    // The served cache does not lose it either, if another file takes the place of the copy.
    let other = scratch.file("other-origin", VOLUME_BYTES).display().to_string();
    succeeds(&world.command(&["create", "--force", "--weu", "512K", "--origin", &other]));
    assert_eq!(world.record(), record);
    fs::write(&world.volume.flash, [7; 4096]).expect("no flash at all");
    refused(&with_state(&world, &["detach"]), &["too short"]);
    fs::remove_file(&world.volume.flash).expect("the other file");
    assert_eq!(world.status()["mode"], "write-through");
    fs::rename(aside, &world.volume.flash).expect("a rename");
    succeeds(&world.command(&["detach"]));
    server.ends_by_itself();
    world.assert_origin("detached");
}

/// A refused opening has changed nothing in the state directory, for its own cache and for others.
#[test]
fn a_refused_opening_changes_nothing_in_the_state_directory() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("degraded-refused-state");
    let mut world = World::new(&scratch, scratch.path("flash"), "write-through");
    world.serve(&[]).stop();
    let origin = world.volume.origin.clone();
    let second = scratch.path("second");
    let mut create = larder(["create", "--weu", "512K", "--mode", "write-through", "--size", "16M", "--flash"]);
    succeeds(&ends(create.arg(&second).arg("--origin").arg(&origin)));
    let first = std::mem::replace(&mut world.volume.flash, second);
    world.volume.serve().stop();
    let dump = ends(larder(["dump", "layout", "--json", "--flash"]).arg(&world.volume.flash));
    succeeds(&dump);
    let layout: Value = serde_json::from_slice(&dump.stdout).expect("JSON");
    let areas = layout["regions"]
        .as_array()
        .expect("regions")
        .iter()
        .filter(|region| region["region"].as_str().is_some_and(|name| name.starts_with("checkpoint")));
    let mut bytes = fs::read(&world.volume.flash).expect("the flash");
    for area in areas {
        bytes[area["flash_offset"].as_u64().expect("an offset") as usize + 20] ^= 0xff;
    }
    fs::write(&world.volume.flash, &bytes).expect("the flash");
    let kept = || {
        let mut files: Vec<_> = fs::read_dir(&world.state).expect("the state directory").flatten().collect();
        files.sort_by_key(fs::DirEntry::path);
        files.iter().map(|file| (file.path(), fs::read(file.path()).expect("a file"))).collect::<Vec<_>>()
    };
    let before = kept();
    world.refused(&world.state_options(), &["checkpoint"]);
    refused(&ends(larder(["flush", "--flash"]).arg(&world.volume.flash).args(world.state_options())), &["checkpoint"]);
    assert!(kept() == before, "a refused opening changed the state directory");
    assert!(fs::read(&world.volume.flash).expect("the flash") == bytes);
    // The first one is served without its flash, as before.
    let _ = set_aside(&first);
    world.volume.flash = first;
    world.serve(&[]).stop();
}

/// A new cache over an image of a flash leaves the state of the flash itself.
///
/// If the flash itself is away or was moved, its state serves nothing any more, and is there when
/// the flash returns.
#[test]
fn a_new_cache_over_an_image_leaves_the_state_of_the_flash() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("degraded-image");
    let world = World::new(&scratch, scratch.path("flash"), "write-through");
    world.serve(&[]).stop();
    let image = scratch.path("image");
    fs::copy(&world.volume.flash, &image).expect("an image");
    let other = scratch.file("other-origin", VOLUME_BYTES);
    let create_over = |flash: &Path, origin: &Path| {
        let mut create = larder(["create", "--force", "--weu", "512K", "--flash"]);
        succeeds(&ends(create.arg(flash).arg("--origin").arg(origin)));
    };
    create_over(&image, &other);
    assert_eq!(world.record()["registered"], true, "the state of the flash itself");
    world.serve(&[]).stop();
    fs::copy(&world.volume.flash, &image).expect("an image");
    let away = set_aside(&world.volume.flash);
    create_over(&image, &other);
    assert_eq!(world.record()["registered"], false);
    world.refused(&world.state_options(), &["is missing", "knows no cache that was served from there"]);
    fs::rename(away, &world.volume.flash).expect("a rename");
    world.serve(&[]).stop();
    assert_eq!(world.record()["registered"], true);
}

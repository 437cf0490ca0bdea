//! A flash that is not the one that was served last, with the real program. It is an older copy, a
//! copy in the place of a removed or renamed flash, or a flash without its dirty data.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Output;

use crate::behind_our_back::{CHUNK, FLASH_BYTES, ORIGIN_BYTES, at, content, fails, health, said, volume};
use crate::ends::Frozen;
use crate::support::wire::Wire;
use crate::support::{
    Loop, MIB, Mounted, Scratch, Volume, begin, ends, eventually, have_mounts, have_tools, larder, run, sh, stands_in,
};

/// Makes the state directory of a test, and returns its path.
pub fn state(scratch: &Scratch) -> String {
    let state = scratch.path("state");
    fs::create_dir(&state).expect("a state directory");
    state.to_str().expect("a plain path").to_owned()
}

/// Returns the only state file of a directory. Beside it is at times the one that replaces it.
pub fn state_file(state: &str) -> PathBuf {
    let mut files = fs::read_dir(state).expect("the state directory").map(|file| file.expect("a file").path());
    files.find(|file| file.extension().is_some_and(|it| it == "json")).expect("a state file")
}

/// Returns the content of the only state file of a directory, which is written anew at once.
pub fn record(state: &str) -> serde_json::Value {
    serde_json::from_slice(&fs::read(state_file(state)).expect("read")).expect("JSON")
}

fn refused(out: &Output, words: &[&str]) {
    fails(out, words);
    assert_eq!(said(out).trim_end().lines().count(), 1, "{}", said(out));
}

/// Checks that each command refuses the flash at the volume's path as an older copy.
fn refused_as_older(volume: &Volume, state: &str) {
    let path = volume.flash.display().to_string();
    for mut command in [
        volume.serve_command(&[]),
        larder(["flush", "--flash", &path]),
        larder(["detach", "--flash", &path]),
        larder(["set", "--mode", "write-through", "--flash", &path]),
    ] {
        refused(&ends(&mut command), &["an older copy", "--adopt", state]);
    }
    assert!(health(volume).contains("an older copy"), "{}", health(volume));
}

/// Returns the number that the state directory notes.
fn noted(state: &str) -> u64 {
    record(state)["superblock_sequence"].as_u64().expect("a number")
}

/// Writes and flushes until the server has made so many more checkpoints.
fn checkpoints(volume: &Volume, wire: &mut Wire, more: u64) {
    let enough = volume.number("checkpoints") + more;
    for number in 0.. {
        (0..40).for_each(|chunk| {
            wire.write(at(100 + chunk), &content(1000 + number * 40 + chunk));
            wire.flush();
        });
        if volume.number("checkpoints") >= enough {
            return;
        }
        assert!(number < 100, "no checkpoint comes");
    }
}

#[test]
fn a_copy_that_was_made_while_the_server_ran_is_told_after_a_kill() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("copy-then-kill");
    let (volume, state) = (volume(&scratch), state(&scratch));
    let (copy, kept) = (scratch.path("copy"), scratch.path("kept"));
    let server = volume.serve_with(&["--state", &state]);
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &content(1));
    wire.flush();
    fs::copy(&volume.flash, &copy).expect("a copy");
    let superblock = run(larder(["dump", "superblock", "--json", "--flash"]).arg(&copy));
    let superblock: serde_json::Value = serde_json::from_str(&superblock).expect("JSON");
    let copied = superblock["superblocks"][0]["sequence"].as_u64().unwrap_or_else(|| panic!("{superblock}"));
    checkpoints(&volume, &mut wire, 1);
    eventually("the checkpoint is noted", || noted(&state) > copied);
    wire.write(0, &content(2));
    wire.flush();
    drop(wire);
    server.kill();
    fs::rename(&volume.flash, &kept).expect("moved");
    fs::rename(&copy, &volume.flash).expect("the copy in its place");
    refused_as_older(&volume, &state);
    fs::rename(&kept, &volume.flash).expect("the flash in its place");
    let server = volume.serve();
    assert!(Wire::connect(&server.socket).read(0, CHUNK) == content(2), "the flash itself is believed");
    server.stop();
}

fn told_unnoted(said: &str) -> usize {
    said.matches("condition raised: superblock_unnoted (warning)").count()
}

/// The server goes on, and ends in order.
#[test]
fn a_state_directory_that_takes_no_note_is_told() {
    if stands_in() || !have_mounts("a full state directory") {
        return;
    }
    let scratch = Scratch::new("unnoted");
    let (volume, disk) = (volume(&scratch), Mounted::tmpfs(&scratch, "disk", MIB));
    let state = disk.folder.join("state");
    fs::create_dir(&state).expect("a state directory");
    let state = state.to_str().expect("a plain path");
    let server = volume.serve_with(&["--state", state]);
    let mut wire = Wire::connect(&server.socket);
    let filler = disk.fill();
    checkpoints(&volume, &mut wire, 1);
    eventually("a line", || told_unnoted(&server.complaints()) == 1);
    assert!(health(&volume).contains("no space left on device"), "{}", health(&volume));
    let before = noted(state);
    fs::remove_file(&filler).expect("room again");
    eventually("it is over", || server.complaints().contains("condition cleared: superblock_unnoted"));
    assert!(noted(state) > before, "without another checkpoint");
    disk.fill();
    drop(wire);
    volume.wait_for_no_clients();
    let said = server.ends_with(0);
    assert_eq!(told_unnoted(&said), 2, "the last note, too: {said}");
    fs::remove_file(&filler).expect("room again");
    volume.serve().stop();
}

/// Checkpoints and requests go on, with one worker, too, and beside a switch of the mode. An end
/// that is cut off names the file.
#[test]
fn a_state_directory_that_hangs_keeps_no_checkpoint_waiting() {
    let name = "a state directory that hangs";
    if stands_in() || !have_mounts(name) || !have_tools(name, &["mkfs.ext4", "fsfreeze"]) {
        return;
    }
    let scratch = Scratch::new("frozen-state");
    let image = scratch.file("image", 8 * MIB);
    sh("mkfs.ext4", ["-q", "-F", image.to_str().expect("a plain path")]);
    let device = Loop::over(&image);
    let disk = Mounted::mount(&scratch, "state", &device.device, "defaults");
    let (volume, state) = (volume(&scratch), disk.folder.to_str().expect("a plain path"));
    let server = volume.serve_with(&["--state", state, "--workers", "1", "--end-timeout", "2"]);
    let mut wire = Wire::connect(&server.socket);
    eventually("the opening is noted", || noted(state) > 0 && volume.status()["health"] == "ok");
    let frozen = Frozen::freeze(&disk);
    let before = noted(state);
    checkpoints(&volume, &mut wire, 3);
    wire.write(0, &content(1));
    wire.flush();
    assert!(wire.read(0, CHUNK) == content(1));
    assert_eq!(noted(state), before, "it hangs");
    let switch = begin(larder(["set", "--mode", "write-through", "--flash"]).arg(&volume.flash));
    eventually("the switch waits for its note alone", || volume.status()["mode"] == "write-through");
    wire.write(0, &content(2));
    wire.flush();
    drop(switch);
    drop(wire);
    server.ask_to_end();
    eventually("the end is cut off", || server.complaints().contains("writing the state file"));
    drop(frozen);
    let (status, said) = server.ended(std::time::Duration::from_secs(20));
    assert!(status.code() == Some(1) && said.contains("while the cache was being closed"), "{status}: {said}");
    let server = volume.serve();
    assert!(Wire::connect(&server.socket).read(0, CHUNK) == content(2));
    server.stop();
}

#[test]
fn an_older_copy_of_the_flash_is_refused_until_the_operator_believes_it() {
    if stands_in() {
        return;
    }
    for is_served in [true, false] {
        let scratch = Scratch::new("older-copy");
        let (volume, state) = (volume(&scratch), state(&scratch));
        let (copy, kept) = (scratch.path("copy"), scratch.path("kept"));
        let mut server = volume.serve_with(&["--state", &state]);
        Wire::connect(&server.socket).write(0, &content(1));
        volume.wait_for_no_clients();
        if !is_served {
            server.stop();
            fs::copy(&volume.flash, &copy).expect("a copy");
            server = volume.serve();
        } else {
            volume.flush();
            fs::copy(&volume.flash, &copy).expect("a copy");
        }
        let mut wire = Wire::connect(&server.socket);
        wire.write(0, &content(2));
        wire.flush();
        drop(wire);
        server.stop();
        fs::rename(&volume.flash, &kept).expect("moved");
        fs::rename(&copy, &volume.flash).expect("the copy in its place");
        let before = fs::read(&volume.flash).expect("the flash");
        let path = volume.flash.display().to_string();
        refused_as_older(&volume, &state);
        assert!(fs::read(&volume.flash).expect("the flash") == before, "a refusal changes nothing");
        // The flash itself is served from any place.
        fs::rename(&volume.flash, &copy).expect("moved back");
        fs::rename(&kept, &volume.flash).expect("the flash in its place");
        let server = volume.serve();
        assert!(Wire::connect(&server.socket).read(0, CHUNK) == content(2));
        server.stop();
        fs::rename(&volume.flash, &kept).expect("moved again");
        fs::rename(&copy, &volume.flash).expect("the copy again");
        // A repair would make it as new as the flash.
        refused(&ends(&mut larder(["verify", "--repair", "--flash", &path])), &["an older copy", "--adopt"]);
        let adopted = ends(&mut larder(["verify", "--repair", "--adopt", "--dry-run", "--flash", &path]));
        assert!(adopted.status.success(), "{}", said(&adopted));
        let server = volume.serve_with(&["--adopt", "--origin-changed", "keep"]);
        assert!(Wire::connect(&server.socket).read(0, CHUNK) == content(1), "the copy is believed, as was asked");
        server.stop();
        volume.serve().stop();
        // From here on the flash that was left behind is the older one.
        fs::rename(&kept, &volume.flash).expect("the former flash in its place");
        refused(&ends(&mut volume.serve_command(&[])), &["an older copy", "--adopt"]);
    }
}

/// A state file from a backup has a fence that was taken down since. It drops no data of the flash
/// that lived on.
#[test]
fn a_restored_state_file_drops_no_newer_data() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("restored-state");
    let (volume, state) = (volume(&scratch), state(&scratch));
    let copy = scratch.path("copy");
    let server = volume.serve_with(&["--state", &state]);
    Wire::connect(&server.socket).write(0, &content(1));
    volume.wait_for_no_clients();
    volume.flush();
    fs::copy(&volume.flash, &copy).expect("a copy");
    fs::remove_file(&volume.flash).expect("removed");
    eventually("all data is on the origin", || record(&state)["destaged"] == true);
    server.kill();
    let file = state_file(&state);
    let saved = fs::read(&file).expect("the state file");
    fs::rename(&copy, &volume.flash).expect("the copy in its place");
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    wire.write(at(1), &content(2));
    wire.flush();
    drop(wire);
    server.stop();
    fs::write(&file, saved).expect("the old state file");
    refused(&ends(&mut volume.serve_command(&[])), &["--discard", "bytes of dirty data"]);
}

#[test]
fn a_copy_in_the_place_of_a_removed_flash_is_emptied() {
    if stands_in() {
        return;
    }
    for (mode, is_killed) in [("write-back", true), ("write-through", true), ("write-back", false)] {
        let scratch = Scratch::new("copy-of-removed");
        let options = ["--weu", "512K", "--mode", mode];
        let volume = Volume::create(&scratch, FLASH_BYTES, ORIGIN_BYTES, &options);
        let (state, copy) = (state(&scratch), scratch.path("copy"));
        let server = volume.serve_with(&["--state", &state]);
        let mut wire = Wire::connect(&server.socket);
        (0..16).for_each(|chunk| wire.write(at(chunk), &content(chunk)));
        wire.flush();
        volume.flush();
        fs::copy(&volume.flash, &copy).expect("a copy");
        (0..16).for_each(|chunk| wire.write(at(chunk), &content(100 + chunk)));
        wire.flush();
        fs::remove_file(&volume.flash).expect("removed");
        eventually("the fence", || record(&state)["fence"].is_string());
        eventually("all data is on the origin", || record(&state)["destaged"] == true);
        // In write-back this one is promised by the origin.
        wire.write(at(16), &content(116));
        wire.flush();
        drop(wire);
        if is_killed {
            server.kill()
        } else {
            server.stop()
        }
        fs::rename(&copy, &volume.flash).expect("the copy in its place");
        assert!(health(&volume).contains("fence_up"), "{mode}: {}", health(&volume));
        let server = volume.serve();
        let mut wire = Wire::connect(&server.socket);
        for chunk in 0..17 {
            assert!(wire.read(at(chunk), CHUNK) == content(100 + chunk), "{mode}: chunk {chunk}");
        }
        assert!(health(&volume).contains("emptied_behind_fence") && record(&state)["fence"].is_null());
        drop(wire);
        server.stop();
    }
}

/// The name leads to a copy, or to nothing. Commands that name it never reach the copy.
#[test]
fn a_flash_or_an_origin_that_is_renamed_under_its_server_says_so() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("renamed");
    let volume = volume(&scratch);
    let moved = scratch.path("moved");
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &content(1));
    wire.flush();
    drop(wire);
    let raised = |name: &str| format!("condition raised: {name} (warning)");
    fs::rename(&volume.flash, &moved).expect("renamed");
    eventually("a line", || server.complaints().contains(&raised("flash_renamed")));
    assert!(health(&volume).contains("flash_renamed"), "the old name finds the server");
    fs::copy(&moved, &volume.flash).expect("a copy");
    let out = ends(larder(["flush", "--flash"]).arg(&volume.flash));
    refused(&out, &["is a copy of the flash that was there", "name its new place"]);
    let path = volume.flash.display().to_string();
    assert_eq!(said(&out).matches(&path).count(), 1, "{}", said(&out));
    assert!(ends(larder(["flush", "--flash"]).arg(&moved)).status.success());
    fs::rename(&moved, &volume.flash).expect("renamed back, over the copy");
    eventually("it is over", || server.complaints().contains("condition cleared: flash_renamed"));
    fs::rename(&volume.origin, &moved).expect("renamed");
    eventually("a line", || server.complaints().contains(&raised("origin_renamed")));
    fs::rename(&moved, &volume.origin).expect("renamed back");
    eventually("it is over", || server.complaints().contains("condition cleared: origin_renamed"));
    server.stop();
    volume.verify();
    let bare = Volume::bare(&scratch, "bare", &volume.origin);
    let server = bare.serve_bare();
    fs::rename(&volume.origin, &moved).expect("renamed");
    eventually("a line", || server.complaints().contains(&raised("origin_renamed")));
    fs::rename(&moved, &volume.origin).expect("renamed back");
    server.stop();
}

/// The flash was cut while the origin took nothing, and gets its size back. The loss of its dirty
/// data is told, though the flash itself tells nothing of it.
#[test]
fn a_flash_that_lost_its_dirty_data_in_a_cut_is_not_emptied_in_silence() {
    if stands_in() || !have_mounts("a flash that was cut before a full origin") {
        return;
    }
    let scratch = Scratch::new("cut-and-lost");
    let disk = Mounted::tmpfs(&scratch, "disk", MIB);
    let origin = disk.folder.join("origin");
    File::create(&origin).and_then(|file| file.set_len(ORIGIN_BYTES)).expect("a sparse origin");
    let _full = disk.fill();
    let volume = Volume::over(&scratch, "cache", &origin, FLASH_BYTES, &["--weu", "512K"]);
    let state = state(&scratch);
    let server = volume.serve_with(&["--state", &state]);
    let mut wire = Wire::connect(&server.socket);
    (0..64).for_each(|chunk| wire.write(at(chunk), &content(chunk)));
    wire.flush();
    let flash = File::options().write(true).open(&volume.flash).expect("the flash");
    flash.set_len(MIB).expect("cut");
    eventually("the fence", || record(&state)["fence"].is_string());
    let bytes = 64 * CHUNK as u64;
    assert_eq!(record(&state)["fence_dirty_bytes"], bytes);
    drop(wire);
    let said = server.ends_with(1);
    assert!(said.contains("dirty"), "the end says that data is left: {said}");
    flash.set_len(FLASH_BYTES).expect("its size");
    refused(&ends(&mut volume.serve_command(&[])), &["--discard", "bytes of dirty data"]);
    assert!(health(&volume).contains("fence_up"), "{}", health(&volume));
    let server = volume.serve_with(&["--discard"]);
    assert!(Wire::connect(&server.socket).read(0, CHUNK) == vec![0; CHUNK]);
    assert!(health(&volume).contains("emptied_behind_fence") && record(&state)["fence_dirty_bytes"] == 0);
    server.stop();
}

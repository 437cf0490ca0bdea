//! Changes behind the cache's back, with the real program. Another program writes to the origin
//! between two servings. A flash or an origin is removed, or cut short, under its server. A log
//! loses its end.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::refusals::TWINS;
use crate::support::wire::{FLAG_FUA, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES, Wire};
use crate::support::{
    MIB, Mounted, Scratch, Server, Volume, begin, design, ends, eventually, have_mounts, have_tools, image, larder,
    nbdkit::Nbdkit, run, stands_in,
};
use larder_format::StoreKind;

pub const CHUNK: usize = 8 << 10;
pub const FLASH_BYTES: u64 = 32 * MIB;
pub const ORIGIN_BYTES: u64 = 16 * MIB;

pub fn at(chunk: u64) -> u64 {
    chunk * CHUNK as u64
}

pub fn content(number: u64) -> Vec<u8> {
    image::noise(number, CHUNK)
}

pub fn volume(scratch: &Scratch) -> Volume {
    Volume::create(scratch, FLASH_BYTES, ORIGIN_BYTES, &["--weu", "512K"])
}

/// Chunks 0 to 7 are clean and cached, chunks 8 to 11 are dirty, and the end was orderly.
fn lived(scratch: &Scratch) -> Volume {
    let volume = volume(scratch);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    (0..8).for_each(|chunk| wire.write(at(chunk), &content(chunk)));
    wire.flush();
    run(larder(["flush", "--flash"]).arg(&volume.flash));
    (8..12).for_each(|chunk| wire.write(at(chunk), &content(chunk)));
    wire.flush();
    drop(wire);
    server.stop();
    volume
}

/// Writes to the origin like a program that does not know of the cache.
fn rewrite(volume: &Volume, chunk: u64, number: u64) {
    // The times of files move in the steps of a clock.
    std::thread::sleep(Duration::from_millis(20));
    let file = File::options().write(true).open(&volume.origin).expect("the origin");
    file.write_all_at(&content(number), at(chunk)).expect("written");
}

fn reads(server: &Server, expected: &[(u64, u64)]) {
    let mut wire = Wire::connect(&server.socket);
    for &(chunk, number) in expected {
        assert!(wire.read(at(chunk), CHUNK) == content(number), "chunk {chunk} is not {number}");
    }
}

pub fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout)
}

pub fn fails(out: &Output, words: &[&str]) {
    let said = said(out);
    assert!(out.status.code() == Some(1), "{:?}: {said}", out.status);
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} are not among: {said}");
}

pub fn health(volume: &Volume) -> String {
    volume.status()["conditions"].to_string()
}

#[test]
fn an_origin_that_was_written_to_between_two_servings_is_refused_until_the_operator_decides() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("changed-origin");
    let volume = lived(&scratch);
    rewrite(&volume, 3, 99);
    let before = fs::read(&volume.flash).expect("the flash");
    let flash = volume.flash.display().to_string();
    for mut command in [
        volume.serve_command(&[]),
        larder(["flush", "--flash", &flash]),
        larder(["detach", "--flash", &flash]),
        larder(["set", "--mode", "write-through", "--flash", &flash]),
    ] {
        let out = ends(&mut command);
        let origin = volume.origin.display().to_string();
        fails(
            &out,
            &[&origin, "was written to", "--origin-changed drop", "--origin-changed keep", "32768 bytes of dirty"],
        );
        assert_eq!(said(&out).trim_end().lines().count(), 1, "{}", said(&out));
    }
    assert!(fs::read(&volume.flash).expect("the flash") == before, "who is refused changes nothing");
    // A command that looks changes nothing, and leaves the finding as it is.
    volume.verify();
    let told = health(&volume);
    assert!(told.contains("origin_refused") && told.contains("was written to"), "{told}");
    let away = scratch.path("away");
    fs::rename(&volume.origin, &away).expect("moved");
    let told = health(&volume);
    assert!(told.contains("origin_refused") && told.contains("is missing"), "{told}");
    fs::rename(&away, &volume.origin).expect("moved back");
    assert!(fs::read(&volume.flash).expect("the flash") == before, "a look changes nothing");
    let server = volume.serve_with(&["--origin-changed", "drop"]);
    let told = health(&volume);
    assert!(told.contains("origin_changed") && told.contains("laid over"), "{told}");
    reads(&server, &[(3, 99), (2, 2), (7, 7), (8, 8), (11, 11)]);
    assert!(server.complaints().contains("its copies were forgotten"), "{}", server.complaints());
    // Dropped copies stay dropped, after a crash, too.
    server.kill();
    let server = volume.serve();
    reads(&server, &[(3, 99), (8, 8)]);
    server.stop();
    volume.serve().stop();
    run(&mut larder(["flush", "--flash", &flash]));
    let origin = fs::read(&volume.origin).expect("the origin");
    assert!(origin[at(3) as usize..][..CHUNK] == content(99) && origin[at(9) as usize..][..CHUNK] == content(9));
}

/// Checks that a crash leaves no mark: a rewrite of the origin is not told. An order to forget the
/// copies needs none.
#[test]
fn copies_are_forgotten_on_order_where_no_mark_tells_of_a_change() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("dropped-unmarked");
    let volume = lived(&scratch);
    let server = volume.serve();
    reads(&server, &[(3, 3), (8, 8)]);
    server.kill();
    rewrite(&volume, 3, 99);
    let server = volume.serve_with(&["--origin-changed", "drop"]);
    reads(&server, &[(3, 99), (2, 2), (7, 7), (8, 8), (11, 11)]);
    let told = server.complaints();
    assert!(told.contains("after a crash") && told.contains("its copies were forgotten"), "{told}");
    server.kill();
    let server = volume.serve();
    reads(&server, &[(3, 99), (8, 8)]);
    server.stop();
    // Where the mark shows that there was no change, the copies stay, and a line says so.
    let server = volume.serve_with(&["--origin-changed", "drop"]);
    reads(&server, &[(3, 99), (8, 8)]);
    assert!(server.complaints().contains("its copies stay"), "{}", server.complaints());
    assert!(!health(&volume).contains("origin_changed"));
    server.stop();
}

/// The mark of either twin holds: the first write of an opening removes both.
#[test]
fn a_damaged_superblock_hides_no_change_of_the_origin() {
    if stands_in() {
        return;
    }
    for twin in TWINS {
        let scratch = Scratch::new("changed-and-damaged");
        let volume = lived(&scratch);
        let flash = File::options().write(true).open(&volume.flash).expect("the flash");
        flash.write_all_at(&[0; 4096], twin as u64).expect("written");
        rewrite(&volume, 3, 99);
        let before = fs::read(&volume.flash).expect("the flash");
        let path = volume.flash.display().to_string();
        for mut command in [volume.serve_command(&[]), larder(["flush", "--flash", &path])] {
            fails(&ends(&mut command), &["was written to", "--origin-changed drop"]);
        }
        assert!(health(&volume).contains("origin_refused"));
        assert!(fs::read(&volume.flash).expect("the flash") == before, "a refusal changes nothing");
        let server = volume.serve_with(&["--origin-changed", "drop"]);
        let told = health(&volume);
        assert!(told.contains("superblock_repaired") && told.contains("origin_changed"), "{told}");
        reads(&server, &[(3, 99), (2, 2), (8, 8)]);
        server.kill();
        let server = volume.serve();
        reads(&server, &[(3, 99), (8, 8)]);
        server.stop();
    }
}

#[test]
fn an_origin_that_is_as_it_was_may_be_believed() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("believed-origin");
    let volume = lived(&scratch);
    rewrite(&volume, 3, 99);
    let server = volume.serve_with(&["--origin-changed", "keep"]);
    reads(&server, &[(3, 3), (8, 8)]);
    let told = health(&volume);
    assert!(told.contains("origin_changed") && told.contains("believed"), "{told}");
    server.stop();
    volume.serve().stop();
}

/// Larder's own work, and changes that change no byte.
/// Trims that the origin was not told are no dirty data to a reader of the sentence.
#[test]
fn trims_that_stay_on_the_flash_are_told_at_the_end_and_after_a_change_of_the_origin() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("trims-stay");
    let volume = volume(&scratch);
    let closed_with = |requests: &dyn Fn(&mut Wire), line: &str| {
        let server = volume.serve_with(&["--origin-changed", "keep"]);
        let mut wire = Wire::connect(&server.socket);
        requests(&mut wire);
        wire.flush();
        drop(wire);
        let said = server.ends_with(0);
        assert!(said.lines().any(|said| said.starts_with("closed in ") && said.ends_with(line)), "{line}: {said}");
        rewrite(&volume, 900, 7);
        String::from_utf8(ends(&mut volume.serve_command(&[])).stderr).expect("text")
    };
    let trim = |wire: &mut Wire| {
        wire.request(TRIM, 0, 0, 4 << 20, &[]).expect("a trim");
    };
    let refusal = closed_with(&trim, "; 4.00 MiB of trims stay on the flash");
    assert!(refusal.contains("(4194304 bytes of trims stay, and are laid over"), "{refusal}");
    let refusal = closed_with(
        &|wire| wire.write(at(800), &content(1)),
        "; 8.00 KiB of dirty data and 4.00 MiB of trims stay on the flash",
    );
    assert!(refusal.contains("(8192 bytes of dirty data and 4194304 bytes of trims stay"), "{refusal}");
    volume.serve_with(&["--origin-changed", "keep"]).stop();
    volume.flush();
    let refusal = closed_with(&|_| {}, "; 0 B of dirty data stay on the flash");
    assert!(refusal.contains("(none is dirty)"), "{refusal}");
}

#[test]
fn a_change_that_is_none_is_not_told() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("unchanged-origin");
    let volume = lived(&scratch);
    let flash = volume.flash.display().to_string();
    let steps: [&dyn Fn(); 7] = [
        &|| drop(run(&mut larder(["flush", "--flash", &flash]))),
        &|| drop(run(&mut larder(["set", "--mode", "write-through", "--flash", &flash]))),
        &|| drop(run(&mut larder(["verify", "--repair", "--flash", &flash]))),
        &|| drop(fs::read(&volume.origin).expect("the origin")),
        &|| fs::set_permissions(&volume.origin, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a mode"),
        &|| fs::hard_link(&volume.origin, scratch.path("linked")).expect("a link"),
        &|| drop(volume.status()),
    ];
    for (number, step) in (0..).zip(steps) {
        step();
        assert_eq!(volume.status()["health"], "ok", "step {number}");
        let server = volume.serve();
        let mut wire = Wire::connect(&server.socket);
        wire.write(at(20 + number), &content(20 + number));
        wire.flush();
        drop(wire);
        server.stop();
    }
    // After a crash the state of the origin at the end is unknown, so Larder refuses nothing.
    let server = volume.serve();
    server.kill();
    rewrite(&volume, 3, 99);
    volume.serve().stop();
}

#[test]
fn a_cache_whose_origin_has_grown_can_still_be_detached() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("grown-origin");
    let volume = lived(&scratch);
    std::thread::sleep(Duration::from_millis(20));
    let file = File::options().write(true).open(&volume.origin).expect("the origin");
    file.set_len(ORIGIN_BYTES + MIB).expect("a larger origin");
    run(larder(["detach", "--flash"]).arg(&volume.flash));
    let origin = fs::read(&volume.origin).expect("the origin");
    assert!(origin[at(9) as usize..][..CHUNK] == content(9));
}

/// An export whose server has coarser blocks ends at the last whole one.
#[test]
fn an_origin_whose_server_has_coarser_blocks_is_refused_by_them_and_not_by_its_size() {
    if stands_in() || !have_tools("an_origin_whose_server_has_coarser_blocks", &["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new("coarser-origin");
    let disk = scratch.file("disk", 64 * MIB + 512);
    let server = Nbdkit::over(&scratch, "disk", &disk, &[], &[]);
    let flash = scratch.path("flash");
    run(larder(["create", "--size", "32M", "--origin", &server.uri(), "--flash"]).arg(&flash));
    let volume = Volume::made(&scratch, "volume", flash, &disk);
    let served = volume.serve();
    let mut wire = Wire::connect(&served.socket);
    wire.write(64 * MIB, &[7; 512]);
    wire.flush();
    drop(wire);
    served.stop();
    drop(server);
    let before = fs::read(&volume.flash).expect("the flash");
    let coarse = Nbdkit::over(&scratch, "disk", &disk, &["blocksize-policy"], &["blocksize-minimum=4096"]);
    let of_flash = |command: &str| {
        let mut command = larder([command, "--flash"]);
        command.arg(&volume.flash);
        command
    };
    for mut command in [volume.serve_command(&[]), of_flash("flush"), of_flash("detach")] {
        let out = ends(&mut command);
        let said = said(&out);
        assert!(!out.status.success() && said.trim_end().lines().count() == 1, "{command:?}: {said}");
        let words = [
            &coarse.uri(),
            "has blocks of 4096 bytes now",
            "last 512 bytes",
            "cannot be reached",
            "of 512 bytes at most",
        ];
        assert!(words.iter().all(|word| said.contains(word)) && !said.contains("smaller than before"), "{said}");
    }
    assert!(fs::read(&volume.flash).expect("the flash") == before, "a refusal changes nothing");
    drop(coarse);
    // The remedy, and a look at the bytes in question.
    let fine = Nbdkit::over(&scratch, "disk", &disk, &["blocksize-policy"], &["blocksize-minimum=512"]);
    volume.flush();
    drop(fine);
    assert_eq!(fs::read(&disk).expect("the disk")[64 * MIB as usize..], [7; 512]);
}

#[test]
fn an_origin_that_lost_its_name_is_never_called_complete() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("unlinked-origin");
    let volume = volume(&scratch);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &content(1));
    wire.flush();
    assert!(!health(&volume).contains("unlinked"));
    fs::remove_file(&volume.origin).expect("removed");
    let told = health(&volume);
    assert!(told.contains("origin_unlinked") && told.contains("no name any more"), "{told}");
    drop(wire);
    volume.wait_for_no_clients();
    for command in ["flush", "detach", "set --mode write-through"] {
        let out = ends(larder(command.split(' ')).arg("--flash").arg(&volume.flash));
        fails(&out, &["no name any more"]);
        assert!(!said(&out).contains("complete"), "{}", said(&out));
    }
    let complaints = server.ends_with(1);
    assert!(complaints.contains("no name any more"), "{complaints}");
}

/// The ways to serve an origin without a cache.
const ALONE: [&str; 3] = ["no-cache", "record", "no-flash"];

/// Serves the origin alone in one of these ways, with its flash gone where it had one.
fn serve_alone(scratch: &Scratch, way: &str) -> (Volume, Server) {
    let volume = match way {
        "no-flash" => Volume::create(scratch, FLASH_BYTES, ORIGIN_BYTES, &["--weu", "512K", "--mode", "write-through"]),
        _ => Volume::bare(scratch, "alone", &scratch.file("origin", ORIGIN_BYTES)),
    };
    let server = match way {
        "record" => volume.record(&scratch.path("trace"), &[]),
        "no-cache" => volume.serve_bare(),
        _ => {
            let state = scratch.path("state");
            fs::create_dir(&state).expect("a state directory");
            let state = ["--state", state.to_str().expect("a plain path")];
            volume.serve_with(&state).stop();
            fs::remove_file(&volume.flash).expect("the flash");
            volume.serve_with(&state)
        }
    };
    (volume, server)
}

#[track_caller]
fn told(server: &Server, line: &str) {
    eventually(line, || server.complaints().contains(line));
}

#[test]
fn an_origin_without_a_cache_that_lost_its_name_is_told_and_the_end_says_so() {
    if stands_in() {
        return;
    }
    for way in ALONE {
        let scratch = Scratch::new("unlinked-alone");
        let (volume, server) = serve_alone(&scratch, way);
        let mut wire = Wire::connect(&server.socket);
        wire.write(0, &content(1));
        wire.flush();
        assert!(!server.complaints().contains("origin_unlinked"), "{way}: {}", server.complaints());
        fs::remove_file(&volume.origin).expect("removed");
        told(&server, "condition raised: origin_unlinked (degraded)");
        if way == "no-flash" {
            let out = ends(larder(["status", "--json", "--flash"]).arg(&volume.flash));
            assert!(said(&out).contains("origin_unlinked"), "{}", said(&out));
        }
        wire.write(at(1), &content(2));
        drop(wire);
        let complaints = server.ends_with(1);
        let words = format!("the file of the origin {} has no name any more", volume.origin.display());
        assert!(complaints.contains(&words), "{way}: {complaints}");
    }
}

#[test]
fn an_origin_without_a_cache_that_was_cut_short_is_told_and_heals() {
    if stands_in() {
        return;
    }
    for way in ALONE {
        let scratch = Scratch::new("cut-alone");
        let (volume, server) = serve_alone(&scratch, way);
        let mut wire = Wire::connect(&server.socket);
        wire.write(0, &content(1));
        let origin = File::options().write(true).open(&volume.origin).expect("the origin");
        origin.set_len(MIB).expect("cut");
        told(&server, "condition raised: origin_truncated (degraded)");
        assert!(wire.request(FLUSH, 0, 0, 0, &[]).is_err(), "{way}: a FLUSH says that all is durable");
        origin.set_len(ORIGIN_BYTES).expect("its old size");
        told(&server, "condition cleared: origin_truncated");
        wire.flush();
        origin.set_len(MIB).expect("cut again");
        drop(wire);
        let complaints = server.ends_with(1);
        assert!(complaints.contains("was cut to 1048576 bytes"), "{way}: {complaints}");
    }
}

#[test]
fn a_flash_that_lost_its_name_gives_what_is_dirty_to_the_origin() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("unlinked-flash");
    let volume = volume(&scratch);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &content(1));
    wire.flush();
    fs::remove_file(&volume.flash).expect("removed");
    let told = health(&volume);
    assert!(told.contains("flash_unlinked") && told.contains("no name any more"), "{told}");
    // The promise of a FLUSH holds beyond the server.
    wire.write(at(1), &content(2));
    wire.flush();
    let origin = fs::read(&volume.origin).expect("the origin");
    assert!(origin[..CHUNK] == content(1) && origin[at(1) as usize..][..CHUNK] == content(2));
    wire.write(at(2), &content(3));
    let out = ends(larder(["flush", "--flash"]).arg(&volume.flash));
    assert!(out.status.success() && said(&out).contains("no name any more"), "{}", said(&out));
    wire.write(at(3), &content(4));
    drop(wire);
    let complaints = server.ends_with(0);
    assert!(complaints.contains("no name any more"), "{complaints}");
    let origin = fs::read(&volume.origin).expect("the origin");
    assert!(origin[at(2) as usize..][..CHUNK] == content(3) && origin[at(3) as usize..][..CHUNK] == content(4));
}

/// Checks that a durable request is on the origin when it is answered. The rest of the dirty data
/// follows without a request. So a kill takes none of it.
#[test]
fn durable_requests_outlive_a_kill_after_their_flash_was_removed() {
    if stands_in() {
        return;
    }
    for way in ["removed", "moved over", "--durable-writes"] {
        let scratch = Scratch::new("unlinked-and-killed");
        let volume = volume(&scratch);
        let (options, fua): (&[&str], u16) = match way {
            "--durable-writes" => (&[way], 0),
            _ => (&[], FLAG_FUA),
        };
        let server = volume.serve_with(options);
        let mut wire = Wire::connect(&server.socket);
        (0..16).for_each(|chunk| wire.write(at(chunk), &content(chunk)));
        run(larder(["flush", "--flash"]).arg(&volume.flash));
        (12..14).for_each(|chunk| wire.write(at(chunk), &content(100 + chunk)));
        wire.flush();
        match way {
            "moved over" => fs::rename(scratch.file("other", MIB), &volume.flash).expect("moved"),
            _ => fs::remove_file(&volume.flash).expect("removed"),
        }
        let origin = || fs::read(&volume.origin).expect("the origin");
        let mut done = |kind, offset, len: usize, data: &[u8], expected: &[u8]| {
            let done = wire.request(kind, fua, offset, len as u32, data);
            done.unwrap_or_else(|error| panic!("{way}, {kind} at {offset}: {error:?}"));
            assert!(origin()[offset as usize..][..len] == *expected, "{way}: {kind} at {offset} is not on the origin");
        };
        let (whole, part) = (content(100), &content(101)[..1024]);
        done(WRITE, at(1), CHUNK, &whole, &whole);
        done(WRITE, at(2) + 512, 1024, part, part);
        done(WRITE_ZEROES, at(4), 2 * CHUNK, &[], &[0; 2 * CHUNK]);
        done(TRIM, at(8), CHUNK, &[], &[0; CHUNK]);
        eventually("the rest is on the origin", || origin()[at(12) as usize..][..CHUNK] == content(112));
        server.kill();
        let origin = origin();
        let is = |offset: u64, expected: &[u8]| origin[offset as usize..][..expected.len()] == *expected;
        assert!(
            is(at(0), &content(0)) && is(at(1), &whole) && is(at(2) + 512, part) && is(at(3), &content(3)),
            "{way}"
        );
        assert!(is(at(4), &[0; 2 * CHUNK]) && is(at(8), &[0; CHUNK]) && is(at(13), &content(113)), "{way}");
    }
}

/// Runs a command, removes its origin while the command has it open, and returns the refusal.
///
/// The command is stopped meanwhile. One that was stopped too late begins anew.
fn refused_without_its_origin(make: impl Fn() -> (Command, PathBuf)) -> Output {
    for _ in 0..10 {
        let (mut command, origin) = make();
        let mut running = begin(&mut command);
        let id = running.id();
        let is_open = || {
            let files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
            files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == origin)
        };
        while !running.is_over() && !is_open() {
            std::thread::yield_now();
        }
        if !running.is_over() {
            // SAFETY: a plain call. The process is a child of ours that was not waited for.
            unsafe { libc::kill(id as i32, libc::SIGSTOP) };
            let is_stopped = || fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|it| it.contains(") T "));
            eventually("it stops, or is over", || is_stopped() || running.is_over());
            if is_open() {
                fs::remove_file(&origin).expect("removed");
            }
            // SAFETY: as above.
            unsafe { libc::kill(id as i32, libc::SIGCONT) };
        }
        let out = running.ends("a command without its origin");
        if !out.status.success() {
            return out;
        }
    }
    panic!("no command refused an origin without a name");
}

/// The commands that open the origin themselves never call it complete once it has no name.
#[test]
fn commands_without_a_server_refuse_an_origin_that_loses_its_name() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("unlinked-commands");
    let trace = scratch.path("trace");
    let size = ["--chunk", "8K", "--disk", "16M", "--working-set", "8M", "--requests", "4000", "--seed", "7"];
    run(larder(["trace", "generate", "zipf", "-o"]).arg(&trace).args(size));
    let dirty = |words: &[&str]| {
        let _ = fs::remove_file(scratch.path("flash"));
        let volume = volume(&scratch);
        let server = volume.serve_with(&["--dirty-low", "80", "--dirty-high", "85", "--dirty-max", "90"]);
        let mut wire = Wire::connect(&server.socket);
        (0..1000).for_each(|chunk| wire.write(at(chunk), &content(chunk)));
        drop(wire);
        server.stop();
        let mut command = larder(words);
        command.arg("--flash").arg(&volume.flash);
        (command, volume.origin.clone())
    };
    let prepare = || {
        let origin = scratch.file("disk", ORIGIN_BYTES);
        let mut command = larder(["bench", "prepare", "--trace"]);
        command.arg(&trace).arg("--origin").arg(&origin);
        (command, origin)
    };
    let flush = || dirty(&["flush"]);
    let set = || dirty(&["set", "--mode", "write-through"]);
    for make in [&prepare as &dyn Fn() -> (Command, PathBuf), &flush, &set] {
        let out = refused_without_its_origin(make);
        fails(&out, &["the file of the origin", "no name any more"]);
        assert!(!said(&out).contains("complete") && out.stdout.is_empty(), "{}", said(&out));
    }
}

#[test]
fn a_flash_that_lost_its_name_and_cannot_be_emptied_ends_with_a_sentence() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("unlinked-both");
    let volume = volume(&scratch);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &content(1));
    wire.flush();
    fs::remove_file(&volume.flash).and_then(|()| fs::remove_file(&volume.origin)).expect("removed");
    drop(wire);
    let complaints = server.ends_with(1);
    assert!(complaints.contains("no name any more"), "{complaints}");
}

#[test]
fn a_flush_fails_where_the_flash_was_cut_short() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("cut-flash");
    let volume = volume(&scratch);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    (0..64).for_each(|chunk| wire.write(at(chunk), &content(chunk)));
    wire.flush();
    // The cut takes records; dirty data there is lost.
    let slots = File::options().write(true).open(&volume.flash).expect("the flash");
    slots.set_len(MIB).expect("cut");
    let refused = wire.request(FLUSH, 0, 0, 0, &[]);
    assert!(refused.is_err(), "a FLUSH says that all is durable");
    let told = health(&volume);
    assert!(told.contains("flash_failed") && told.contains("was cut to 1048576 bytes"), "{told}");
    fails(&ends(larder(["flush", "--flash"]).arg(&volume.flash)), &[]);
    drop(wire);
    server.ends_with(1);
}

/// The commands that ask a server.
const ASKING: [&[&str]; 4] = [&["status", "--json"], &["flush"], &["set", "--mode", "write-through"], &["detach"]];

/// Each command reaches the server of this flash. Returns which of them succeed.
fn asked(volume: &Volume) -> [bool; 4] {
    ASKING.map(|command| {
        let out = ends(larder(command).arg("--flash").arg(&volume.flash));
        let told = said(&out);
        assert!(!told.contains("is not a Larder flash") && !told.contains("too short to be"), "{command:?}: {told}");
        assert!(!told.contains("is a copy of"), "{command:?}: {told}");
        if command[0] == "status" {
            let status: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
            assert_eq!(status["served"], true, "{status}");
        }
        out.status.success()
    })
}

#[test]
fn commands_find_the_server_of_a_flash_that_was_cut_below_its_superblock() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("cut-to-nothing");
    let volume = volume(&scratch);
    let server = volume.serve();
    Wire::connect(&server.socket).write(0, &content(1));
    File::options().write(true).open(&volume.flash).and_then(|flash| flash.set_len(0)).expect("cut");
    let told = health(&volume);
    assert!(told.contains("was cut to 0 bytes"), "{told}");
    assert!(asked(&volume)[0]);
    drop(server);
}

#[test]
fn commands_find_the_server_of_a_flash_over_which_a_file_was_moved() {
    if stands_in() {
        return;
    }
    for is_copy in [false, true] {
        let scratch = Scratch::new("moved-over");
        let volume = volume(&scratch);
        let server = volume.serve();
        let other = scratch.file("other", MIB);
        if is_copy {
            fs::copy(&volume.flash, &other).expect("a copy");
        }
        let mut wire = Wire::connect(&server.socket);
        wire.write(0, &content(1));
        wire.flush();
        drop(wire);
        fs::rename(&other, &volume.flash).expect("moved");
        volume.wait_for_no_clients();
        assert!(health(&volume).contains("flash_unlinked"), "copy: {is_copy}");
        assert_eq!(asked(&volume), [true; 4], "copy: {is_copy}");
        server.ends_by_itself();
        assert!(fs::read(&volume.origin).expect("the origin")[..CHUNK] == content(1));
    }
}

#[test]
fn a_file_that_is_no_flash_and_has_no_server_is_refused_beside_a_server() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("no-flash-of-theirs");
    let volume = volume(&scratch);
    let server = volume.serve();
    let other = scratch.file("other", MIB);
    for command in ASKING {
        fails(&ends(larder(command).arg("--flash").arg(&other)), &["is not a Larder flash"]);
    }
    server.stop();
}

#[test]
fn a_flash_that_was_copied_to_a_smaller_device_is_refused_by_all_in_one_sentence() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("smaller-flash");
    let volume = lived(&scratch);
    let flash = File::options().write(true).open(&volume.flash).expect("the flash");
    flash.set_len(FLASH_BYTES - MIB).expect("cut");
    let before = fs::read(&volume.flash).expect("the flash");
    let path = volume.flash.display().to_string();
    for mut command in [
        volume.serve_command(&[]),
        larder(["flush", "--flash", &path]),
        larder(["verify", "--flash", &path]),
        larder(["verify", "--json", "--flash", &path]),
        larder(["verify", "--repair", "--flash", &path]),
        larder(["verify", "--repair", "--dry-run", "--flash", &path]),
    ] {
        let out = ends(&mut command);
        fails(&out, &[&path, "fewer than the 33554432", "give it back its size"]);
        assert_eq!(said(&out).trim_end().lines().count(), 1, "{}", said(&out));
    }
    assert!(fs::read(&volume.flash).expect("the flash") == before);
    flash.set_len(FLASH_BYTES).expect("its size");
    volume.verify();
}

/// The flash has lost its name and then its room, or a part without records. With a state directory
/// a FLUSH, `larder flush` or the end alone takes its data to the origin, behind the fence.
#[test]
fn with_a_state_directory_a_flash_that_was_cut_or_removed_is_saved() {
    if stands_in() || !have_mounts("a flash that was cut or removed") {
        return;
    }
    for way in ["cut", "removed"] {
        for how in ["FLUSH", "larder flush", "the end"] {
            let scratch = Scratch::new("saved-flash");
            let disk = Mounted::tmpfs(&scratch, "disk", FLASH_BYTES + MIB);
            let origin = scratch.file("origin", ORIGIN_BYTES);
            let flash = disk.folder.join("flash");
            let volume = Volume::on(&scratch, "cache", flash, &origin, FLASH_BYTES, &["--weu", "512K"]);
            let state = scratch.path("state");
            fs::create_dir(&state).expect("a state directory");
            let state = state.to_str().expect("a plain path").to_owned();
            let server = volume.serve_with(&["--state", &state, "--flash-full-timeout", "1"]);
            let mut wire = Wire::connect(&server.socket);
            (0..64).for_each(|chunk| wire.write(at(chunk), &content(chunk)));
            wire.flush();
            match way {
                "cut" => {
                    let file = File::options().write(true).open(&volume.flash).expect("the flash");
                    file.set_len(FLASH_BYTES - 4096).expect("cut");
                }
                _ => {
                    fs::remove_file(&volume.flash).expect("removed");
                    disk.fill();
                }
            }
            (32..128).for_each(|chunk| wire.write(at(chunk), &content(1000 + chunk)));
            match how {
                "FLUSH" => wire.flush(),
                "larder flush" => {
                    let out = ends(larder(["flush", "--state", &state, "--flash"]).arg(&volume.flash));
                    assert!(out.status.success(), "{way}: {}", said(&out));
                }
                _ => {}
            }
            drop(wire);
            server.stop();
            let file =
                fs::read_dir(&state).expect("the state directory").next().expect("a state file").expect("a file");
            let kept: serde_json::Value = serde_json::from_slice(&fs::read(file.path()).expect("read")).expect("JSON");
            assert!(kept["fence"].is_string(), "{way}, {how}: {kept}");
            let origin = fs::read(&volume.origin).expect("the origin");
            for chunk in 0..128 {
                let number = if chunk < 32 { chunk } else { 1000 + chunk };
                let found = &origin[at(chunk) as usize..][..CHUNK];
                assert!(found == content(number), "{way}, {how}: chunk {chunk} is not on the origin");
            }
            if way == "cut" {
                let file = File::options().write(true).open(&volume.flash).expect("the flash");
                file.set_len(FLASH_BYTES).expect("its old size");
                let server = volume.serve();
                reads(&server, &[(0, 0), (40, 1040), (127, 1127)]);
                assert!(health(&volume).contains("emptied_behind_fence"));
                server.stop();
            }
        }
    }
}

/// Checks that a cut origin fails each flush until its file has its size again. The dirty data
/// stays.
#[test]
fn an_origin_that_was_cut_short_fails_each_flush_and_heals() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("cut-origin");
    let volume = volume(&scratch);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    let last = ORIGIN_BYTES / CHUNK as u64 - 1;
    for chunk in [0, last] {
        wire.write(at(chunk), &content(chunk));
    }
    wire.flush();
    let origin = File::options().write(true).open(&volume.origin).expect("the origin");
    origin.set_len(MIB).expect("cut");
    let told = health(&volume);
    assert!(told.contains("origin_truncated") && told.contains("was cut to 1048576 bytes"), "{told}");
    for command in ["flush", "detach", "set --mode write-around"] {
        let out = ends(larder(command.split(' ')).arg("--flash").arg(&volume.flash));
        fails(&out, &[]);
        assert!(!said(&out).contains("complete"), "{}", said(&out));
    }
    assert!(wire.read(at(last), CHUNK) == content(last), "dirty data is there");
    origin.set_len(ORIGIN_BYTES).expect("its old size");
    run(larder(["flush", "--flash"]).arg(&volume.flash));
    assert!(!health(&volume).contains("origin_truncated"), "the cause is gone");
    drop(wire);
    server.stop();
    let origin = fs::read(&volume.origin).expect("the origin");
    for chunk in [0, last] {
        assert!(origin[at(chunk) as usize..][..CHUNK] == content(chunk), "chunk {chunk}");
    }
}

/// Another program grows the origin again. The bytes between are an error, no zeroes, and no
/// copy of such zeroes stays in the cache.
#[test]
fn bytes_that_a_cut_took_from_the_origin_are_an_error_until_it_has_its_size() {
    if stands_in() {
        return;
    }
    for mode in ["write-back", "write-through", "write-around"] {
        let scratch = Scratch::new("cut-gap");
        let path = scratch.file("origin", 0);
        let whole = vec![9; ORIGIN_BYTES as usize];
        fs::write(&path, &whole).expect("the origin");
        let volume = Volume::over(&scratch, "volume", &path, FLASH_BYTES, &["--mode", mode]);
        let server = volume.serve();
        let mut wire = Wire::connect(&server.socket);
        let origin = File::options().write(true).open(&path).expect("the origin");
        origin.set_len(MIB).expect("cut");
        assert!(health(&volume).contains("origin_truncated"), "{mode}");
        let (gap, behind) = (at(MIB / CHUNK as u64 + 1), at(MIB / CHUNK as u64 + 9));
        // In write-back the flash takes it, and the destage fails.
        let written = wire.request(WRITE, 0, behind, CHUNK as u32, &content(1));
        assert_eq!(written.is_ok(), mode == "write-back", "{mode}");
        // Another program grows the file, with a hole before its bytes.
        origin.write_all_at(&content(2), behind).expect("written");
        fails(&ends(larder(["flush", "--flash"]).arg(&volume.flash)), &[]);
        for _ in 0..2 {
            let read = wire.request(READ, 0, gap, CHUNK as u32, &[]);
            assert!(read.is_err(), "{mode}: bytes of the cut were read");
        }
        origin.set_len(ORIGIN_BYTES).expect("its old size");
        origin.write_all_at(&whole[..CHUNK], gap).expect("restored");
        assert!(wire.read(gap, CHUNK) == whole[..CHUNK], "{mode}: the restored bytes");
        drop(wire);
        server.stop();
        volume.serve().stop();
    }
}

/// Kills a server, and zeroes the end of its log: the last `from_end` frames, or all without a
/// number.
fn without_its_log(scratch: &Scratch, from_end: Option<usize>) -> Volume {
    let volume = volume(scratch);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    for round in 0..12 {
        (0..4).for_each(|chunk| wire.write(at(chunk), &content(100 * round + chunk)));
        wire.flush();
    }
    drop(wire);
    server.kill();
    let dumped = run(larder(["dump", "log", "--all", "--json", "--flash"]).arg(&volume.flash));
    let log: serde_json::Value = serde_json::from_str(&dumped).expect("JSON");
    let lying = log["frames"].as_array().expect("frames").iter();
    let needed = lying.filter(|it| it["whole"] == true && it["needed"] == true);
    let frames: Vec<u64> = needed.filter_map(|it| it["flash_offset"].as_u64()).collect();
    assert!(frames.len() > 8, "{dumped}");
    let layout = run(larder(["dump", "layout", "--json", "--flash"]).arg(&volume.flash));
    let layout: serde_json::Value = serde_json::from_str(&layout).expect("JSON");
    let regions = layout["regions"].as_array().expect("regions");
    let region = regions.iter().find(|it| it["region"] == "metadata log").expect("the log");
    let (start, bytes) = region["flash_offset"].as_u64().zip(region["bytes"].as_u64()).expect("its place");
    zero(&volume.flash, from_end.map_or(start, |from_end| frames[frames.len() - from_end]), start + bytes);
    volume
}

fn zero(path: &Path, from: u64, end: u64) {
    let file = File::options().write(true).open(path).expect("the flash");
    file.write_all_at(&vec![0; (end - from) as usize], from).expect("zeroed");
}

#[test]
fn a_crashed_cache_without_the_end_of_its_log_is_never_said_to_be_whole() {
    if stands_in() {
        return;
    }
    for lost in [Some(1), Some(2), Some(5), Some(8), None] {
        let scratch = Scratch::new("lost-log");
        let volume = without_its_log(&scratch, lost);
        // The last frame has no witness. Those before it have one. Over slots of one chunk that is
        // the superblock alone, which names the first frame of this serving.
        let is_told = lost.is_none_or(|lost| lost > 1 && design().kind() != StoreKind::Slots);
        let out = ends(larder(["verify", "--flash"]).arg(&volume.flash));
        assert_eq!(out.status.success(), !is_told, "{lost:?}: {}", said(&out));
        if is_told {
            fails(&ends(&mut volume.serve_command(&[])), &["flushed writes are missing", "names frame"]);
        } else {
            assert!(said(&out).contains("cannot be confirmed"), "{}", said(&out));
        }
        let out = ends(larder(["verify", "--repair", "--flash"]).arg(&volume.flash));
        assert_eq!(out.status.code(), Some(if is_told { 3 } else { 0 }), "{}", said(&out));
        assert!(!said(&out).contains("nothing is lost"), "{}", said(&out));
        let words = if is_told { "at the cost of data" } else { "cannot be confirmed" };
        assert!(said(&out).contains(words), "{}", said(&out));
        volume.serve().stop();
        volume.verify();
    }
}

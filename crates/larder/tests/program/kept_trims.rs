//! `--trim` of the real program, before an origin without holes. Its server's log counts the bytes
//! that it gets.
//!
//! It leaves the treatment of single runs to the engine's tests.

use crate::support::image::noise;
use crate::support::nbdkit::Nbdkit;
use crate::support::wire::{TRIM, WRITE_ZEROES, Wire};
use crate::support::{MIB, Scratch, Server, Volume, ends, have_tools, larder, run, stands_in};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of each trim.
const TRIMMED: u64 = 48 * MIB;

/// A cache before nbdkit, whose zeroes are writes.
struct Unpunchable {
    volume: Volume,
    file: PathBuf,
    log: PathBuf,
    _nbdkit: Nbdkit,
    _scratch: Scratch,
}

impl Unpunchable {
    fn new(name: &str) -> Option<Self> {
        if stands_in() || !have_tools(name, &["nbdkit"]) {
            return None;
        }
        let scratch = Scratch::new(name);
        let (file, log) = (scratch.path("file"), scratch.path("requests"));
        fs::write(&file, noise(1, 64 << 20)).expect("an origin");
        let logfile = format!("logfile={}", log.display());
        let nbdkit = Nbdkit::over(&scratch, "origin", &file, &["log", "nozero"], &[&logfile]);
        let uri = nbdkit.uri();
        let volume =
            Volume::on(&scratch, "cache", scratch.path("flash"), Path::new(&uri), 24 * MIB, &["--weu", "512K"]);
        Some(Unpunchable { volume, file, log, _nbdkit: nbdkit, _scratch: scratch })
    }

    fn serve(&self, trim: &str) -> (Server, Wire) {
        let server = self.volume.serve_with(&["--trim", trim, "--destage-rate", "0"]);
        let wire = Wire::connect(&server.socket);
        (server, wire)
    }

    /// Returns the bytes that the origin was asked to write, or to zero.
    fn written(&self) -> u64 {
        let log = fs::read_to_string(&self.log).expect("a log");
        let count = |line: &str| {
            let (_, count) = line.split_once(" count=0x")?;
            u64::from_str_radix(count.split(' ').next()?, 16).ok()
        };
        log.lines().filter(|line| line.contains(" Write ") || line.contains(" Zero ")).filter_map(count).sum()
    }

    /// Returns the output of a command on the flash.
    fn says(&self, command: &str, options: &[&str]) -> String {
        run(larder([command, "--flash"]).arg(&self.volume.flash).args(options))
    }
}

fn trim(wire: &mut Wire, offset: u64, bytes: u64) {
    wire.request(TRIM, 0, offset, bytes as u32, &[]).expect("a trim");
}

fn is_zero(wire: &mut Wire, offset: u64, bytes: u64) -> bool {
    (offset..offset + bytes).step_by(MIB as usize).all(|at| wire.read(at, MIB as usize).iter().all(|&byte| byte == 0))
}

/// A kept trim costs the origin no byte, over a crash, flushes and a detach; WRITE_ZEROES is
/// written.
#[test]
fn an_origin_that_cannot_punch_gets_nothing_of_a_kept_trim() {
    let Some(it) = Unpunchable::new("kept-trims") else { return };
    let (server, mut wire) = it.serve("keep");
    trim(&mut wire, 0, TRIMMED);
    wire.flush();
    let said = it.says("flush", &[]);
    assert_eq!(
        said,
        "nothing was dirty: the origin is complete, except for 48.0 MiB of trims, which stay in the cache\n"
    );
    assert_eq!((it.written(), it.volume.number("kept_trim_bytes"), it.volume.number("trimmed_bytes")), (0, TRIMMED, 0));
    server.kill();
    let (server, mut wire) = it.serve("keep");
    assert!(is_zero(&mut wire, 0, TRIMMED), "after a crash");
    // A part of a chunk: ignored, and counted.
    trim(&mut wire, 50 * MIB, 512);
    assert_eq!(it.volume.number("ignored_trim_bytes"), 512);
    wire.request(WRITE_ZEROES, 0, 2 * MIB, MIB as u32, &[]).expect("zeroes");
    assert!(it.says("flush", &[]).ends_with("it is complete, except for 47.0 MiB of trims, which stay in the cache\n"));
    assert_eq!(it.written(), MIB);
    drop(wire);
    it.volume.wait_for_no_clients();
    server.stop();
    assert!(it.says("flush", &["--trim", "keep"]).contains("47.0 MiB of trims, which stay in the cache"));
    let said = it.says("detach", &["--trim", "keep"]);
    let end = "is complete, except for 47.0 MiB of trims that it was not told of: it has old data there\n";
    assert!(said.starts_with("detached: the origin ") && said.ends_with(end), "{said}");
    assert_eq!(it.written(), MIB);
    let mut expected = noise(1, 64 << 20);
    expected[2 << 20..3 << 20].fill(0);
    assert!(fs::read(&it.file).expect("the origin") == expected, "the origin is as it was but for the zeroes");
}

/// A cache that is served without the option brings kept trims to the origin.
#[test]
fn kept_trims_reach_the_origin_without_the_option() {
    let Some(it) = Unpunchable::new("kept-trims-told") else { return };
    let (server, mut wire) = it.serve("keep");
    trim(&mut wire, 0, TRIMMED);
    drop(wire);
    server.stop();
    assert_eq!(it.written(), 0);
    let (server, mut wire) = it.serve("zero");
    assert_eq!(it.says("flush", &[]), "wrote 0 B to the origin and zeroed 48.0 MiB: it is complete\n");
    assert_eq!((it.written(), it.volume.number("trimmed_bytes")), (TRIMMED, 0));
    assert!(is_zero(&mut wire, 0, TRIMMED));
    drop(wire);
    it.volume.wait_for_no_clients();
    assert!(it.says("detach", &[]).ends_with(" is complete\n"));
    server.ends_by_itself();
    assert!(fs::read(&it.file).expect("the origin")[..TRIMMED as usize].iter().all(|&byte| byte == 0));
}

/// Passed on, a TRIM is a discard of a file; an origin over NBD promises no zeroes and gets them.
#[test]
fn passed_trims_are_discards_where_the_origin_promises_zeroes() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("passed-trims");
    let volume = Volume::create(&scratch, 24 * MIB, 64 * MIB, &["--weu", "512K"]);
    fs::write(&volume.origin, noise(1, 64 << 20)).expect("an origin");
    let server = volume.serve_with(&["--trim", "pass"]);
    let mut wire = Wire::connect(&server.socket);
    trim(&mut wire, 0, TRIMMED);
    assert_eq!(
        run(larder(["flush", "--flash"]).arg(&volume.flash)),
        "wrote 0 B to the origin and discarded 48.0 MiB: it is complete\n"
    );
    assert_eq!((volume.number("origin_discard_bytes"), volume.number("origin_zero_bytes")), (TRIMMED, 0));
    assert!(is_zero(&mut wire, 0, TRIMMED));
    drop(wire);
    server.stop();
    let Some(it) = Unpunchable::new("passed-trims-unpunchable") else { return };
    let (server, mut wire) = it.serve("pass");
    trim(&mut wire, 0, MIB);
    assert_eq!(it.says("flush", &[]), "wrote 0 B to the origin and zeroed 1.00 MiB: it is complete\n");
    assert_eq!(it.written(), MIB);
    assert!(it.volume.status()["conditions"].to_string().contains("origin_discard_keeps_data"));
    drop(wire);
    server.stop();
}

/// A wrong treatment, and one without a cache, are refused in one sentence.
#[test]
fn a_wrong_treatment_of_trims_is_refused() {
    let serve = ["serve", "--flash", "f", "--nbd", "unix:/nowhere/x", "--trim", "maybe"];
    let bare = ["serve", "--no-cache", "--origin", "o", "--nbd", "unix:/nowhere/x", "--trim", "keep"];
    for (args, words) in [
        (&serve[..], "--trim maybe: write one of zero, pass, keep"),
        (&["flush", "--flash", "f", "--trim", "no"], "--trim no: write one of zero, pass, keep"),
        (&["detach", "--flash", "f", "--trim", "no"], "--trim no: write one of zero, pass, keep"),
        (&bare[..], "--no-cache"),
    ] {
        let refused = ends(&mut larder(args));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            refused.status.code() == Some(2) && said.contains(words) && said.lines().count() == 1,
            "{args:?}: {said}"
        );
    }
}

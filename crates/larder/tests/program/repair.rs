//! `larder verify --repair` and `larder dump` with the real program, over a damaged flash file.
//!
//! `verify` reports the damage and exits with 1. A repair reports its losses, and `verify` then
//! finds no damage. The volume is served and read again.
//!
//! It leaves random damage, and the data that may be read after it, to the engine's own
//! `repair.rs`, over simulated devices.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;

use crate::support::wire::{TRIM, WRITE_ZEROES, Wire};
use crate::support::{MIB, Scratch, Volume, design, ends, image, larder, run, say, stands_in, system};
use larder_format::StoreKind;
use serde_json::Value;

const CHUNK: usize = 8 << 10;
/// The number of chunks that a test writes, each once, with a flush after every eighth.
const CHUNKS: u64 = 64;

/// The flag of a zeroing whose range stays allocated.
const FLAG_NO_HOLE: u16 = 2;

/// The end of a volume's life.
#[derive(Clone, Copy, PartialEq)]
enum End {
    InOrder,
    Killed,
}

fn content(chunk: u64) -> Vec<u8> {
    match chunk % 4 {
        // Every fourth chunk is text, which is packed. Two neighbours among these are the same.
        0 => image::text(chunk / 8, CHUNK),
        _ => image::noise(chunk, CHUNK),
    }
}

/// Returns true if checkpoints of the design have blocks of this kind.
///
/// A design of buckets keeps its slots and contents on flash beside its checkpoints. A design that
/// shares nothing knows no contents.
fn checkpoints_have(kind: &str) -> bool {
    match kind {
        // The history of larder has those of the records.
        "fingerprints" => design().kind() != StoreKind::Buckets && design().can_share() && design().name != "larder",
        "slots" => design().kind() != StoreKind::Buckets,
        _ => true,
    }
}

/// Returns a volume in write-back with dirty data on its flash and an origin of zeroes.
fn lived(scratch: &Scratch, end: End) -> Volume {
    let volume = Volume::create(scratch, 32 * MIB, 16 * MIB, &["--weu", "512K"]);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    for chunk in 0..CHUNKS {
        wire.write(chunk * CHUNK as u64, &content(chunk));
        if chunk % 8 == 7 {
            wire.flush();
        }
    }
    drop(wire);
    match end {
        End::InOrder => server.stop(),
        End::Killed => server.kill(),
    }
    volume
}

/// Flips a bit of the file.
fn flip(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).expect("the flash");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x20], offset).expect("another");
}

fn code(out: &Output) -> Option<i32> {
    out.status.code()
}

fn verify(volume: &Volume, options: &[&str]) -> Output {
    ends(larder(["verify", "--flash"]).arg(&volume.flash).args(options))
}

/// Returns the exit code and the object of `larder … --json`.
fn json(volume: &Volume, args: &[&str]) -> (Option<i32>, Value) {
    let out = ends(larder([args[0], "--json", "--flash"]).arg(&volume.flash).args(&args[1..]));
    let said = String::from_utf8_lossy(&out.stdout);
    let value = serde_json::from_str(&said)
        .unwrap_or_else(|err| panic!("{args:?}: {err}\n{said}{}", String::from_utf8_lossy(&out.stderr)));
    (code(&out), value)
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no number {key} in {value}"))
}

/// Returns the conditions in the status.
fn conditions(volume: &Volume) -> String {
    volume.status()["conditions"].to_string()
}

/// Repairs a damaged volume, and returns the report.
///
/// `verify` reports the damage first. A dry run writes nothing and ends as the repair does. Then
/// `verify` finds no damage.
fn repaired(volume: &Volume, exit: i32) -> Value {
    assert_eq!(code(&verify(volume, &[])), Some(1), "the damage is not seen");
    let before = fs::read(&volume.flash).expect("the flash");
    let (code_of_dry_run, planned) = json(volume, &["verify", "--repair", "--dry-run"]);
    assert!(fs::read(&volume.flash).expect("the flash") == before, "a dry run writes nothing");
    let (code_of_repair, done) = json(volume, &["verify", "--repair"]);
    assert_eq!((code_of_dry_run, code_of_repair), (Some(exit), Some(exit)), "{done}");
    assert_eq!((&planned["lost"], &planned["suspect"]), (&done["lost"], &done["suspect"]));
    assert_eq!((done["whole"].as_bool(), planned["whole"].as_bool()), (Some(true), Some(false)));
    assert_eq!(code(&verify(volume, &[])), Some(0), "something is left");
    assert_eq!(fs::read(&volume.origin).expect("the origin").iter().position(|&byte| byte != 0), None);
    done
}

/// Serves the volume and reads it. Each chunk is as it was written, or zeroes if `lost` allows it.
fn reads(volume: &Volume, lost: impl Fn(u64) -> bool) {
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    for chunk in 0..CHUNKS {
        let found = wire.read(chunk * CHUNK as u64, CHUNK);
        let zero = found.iter().all(|&byte| byte == 0);
        assert!(found == content(chunk) || (zero && lost(chunk)), "chunk {chunk} (zero: {zero})");
    }
    // The volume takes writes as ever.
    wire.write(0, &content(99));
    wire.flush();
    assert!(wire.read(0, CHUNK) == content(99));
    drop(wire);
    server.stop();
    volume.verify();
}

#[test]
fn a_sound_flash_is_left_alone() {
    if stands_in() {
        return;
    }
    for end in [End::InOrder, End::Killed] {
        let scratch = Scratch::new("repair-sound");
        let volume = lived(&scratch, end);
        let before = fs::read(&volume.flash).expect("the flash");
        let out = verify(&volume, &["--repair"]);
        let said = String::from_utf8_lossy(&out.stdout);
        assert_eq!(code(&out), Some(0), "{said}");
        assert!(said.contains("nothing to repair"), "{said}");
        assert!(fs::read(&volume.flash).expect("the flash") == before, "a repair of nothing wrote something");
        reads(&volume, |_| false);
    }
}

#[test]
fn a_damaged_superblock_is_written_from_its_twin() {
    if stands_in() {
        return;
    }
    for twin in [0, 64 << 10] {
        let scratch = Scratch::new("repair-twin");
        let volume = lived(&scratch, End::InOrder);
        assert_eq!(conditions(&volume), "[]");
        flip(&volume.flash, twin + 100);
        // No server runs, and the status tells the damage all the same.
        let which = if twin == 0 { "the first superblock is damaged" } else { "the second superblock is damaged" };
        let told = conditions(&volume);
        assert!(told.contains("superblock_repaired") && told.contains(which), "{told}");
        let done = repaired(&volume, 0);
        assert_eq!(conditions(&volume), "[]");
        assert_eq!((&done["superblock_rewritten"], &done["checkpoint_written"]), (&true.into(), &false.into()));
        reads(&volume, |_| false);
    }
}

#[test]
fn both_superblocks_gone_is_refused() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("repair-hopeless");
    let volume = lived(&scratch, End::InOrder);
    flip(&volume.flash, 100);
    flip(&volume.flash, (64 << 10) + 100);
    let before = fs::read(&volume.flash).expect("the flash");
    let out = verify(&volume, &["--repair"]);
    let sentence = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(code(&out), Some(1), "{sentence}");
    assert!(sentence.contains("both superblocks are damaged"), "{sentence}");
    assert!(sentence.trim_end().lines().count() == 1, "{sentence}");
    assert!(fs::read(&volume.flash).expect("the flash") == before);
}

#[test]
fn a_damaged_dirty_record_is_named_and_forgotten() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("repair-record");
    let volume = lived(&scratch, End::InOrder);
    let (_, record) = json(&volume, &["dump", "record", "--lba", "5"]);
    assert_eq!((record["checksum_matches"].as_bool(), record["mapped"].as_bool()), (Some(true), Some(true)));
    flip(&volume.flash, number(&record, "flash_offset") + 17);
    let (_, record) = json(&volume, &["dump", "record", "--lba", "5"]);
    assert_eq!(record["checksum_matches"].as_bool(), Some(false));

    let done = repaired(&volume, 3);
    assert_eq!((number(&done, "dirty_chunks_lost"), number(&done["lost"], "bytes")), (1, CHUNK as u64));
    let range = &done["lost"]["ranges"][0];
    assert_eq!((number(range, "offset"), number(range, "bytes")), (5 * CHUNK as u64, CHUNK as u64));
    assert_eq!((number(&done["suspect"], "bytes"), number(&done["unknown"], "bytes")), (0, 0));
    reads(&volume, |chunk| chunk == 5);
}

/// A command that has to destage names the damage that keeps dirty data on the flash.
///
/// It does not blame the origin.
#[test]
fn damaged_dirty_data_is_not_blamed_on_the_origin() {
    if stands_in() {
        return;
    }
    for served in [false, true] {
        let scratch = Scratch::new("repair-blame");
        let volume = lived(&scratch, End::InOrder);
        for lba in ["5", "6", "13"] {
            let (_, record) = json(&volume, &["dump", "record", "--lba", lba]);
            flip(&volume.flash, number(&record, "flash_offset") + 17);
        }
        let server = served.then(|| volume.serve());
        let mut sentences = Vec::new();
        for args in [&["flush"][..], &["set", "--mode", "write-through"], &["detach"]] {
            let out = ends(larder(args).arg("--flash").arg(&volume.flash));
            let said = String::from_utf8_lossy(&out.stderr);
            // A command that works for longer than a second tells conditions, too. Each has a line
            // of its own.
            let mut lines = said.lines().filter(|line| !line.starts_with("condition "));
            let sentence = lines.next().unwrap_or_default().to_owned();
            assert!(code(&out) == Some(1) && out.stdout.is_empty() && lines.next().is_none(), "{out:?}");
            for word in ["3 dirty chunks", "damaged", "16384 bytes at 40960", "8192 bytes at 106496", "verify --repair"]
            {
                assert!(sentence.contains(word), "{args:?} does not say {word:?}: {sentence}");
            }
            for word in ["bring it back", "operations", "origin failed", "origin fails", "origin did not"] {
                assert!(!sentence.contains(word), "{args:?} says {word:?}: {sentence}");
            }
            sentences.push(sentence);
        }
        assert!(sentences[2].contains("stays attached"), "{sentences:?}");
        if let Some(server) = server {
            server.stop();
        }
        // The origin has all other chunks.
        let origin = fs::read(&volume.origin).expect("the origin");
        for chunk in (0..CHUNKS).filter(|chunk| ![5, 6, 13].contains(chunk)) {
            assert!(origin[chunk as usize * CHUNK..][..CHUNK] == content(chunk), "chunk {chunk}");
        }
        let (exit, done) = json(&volume, &["verify", "--repair"]);
        assert_eq!((exit, number(&done, "dirty_chunks_lost")), (Some(3), 3), "{done}");
        volume.flush();
    }
}

/// The condition counts how often a damaged record was met, though several chunks share it.
#[test]
fn a_damaged_record_of_several_chunks_is_not_told_as_several_records() {
    if stands_in() {
        return;
    }
    if !design().can_share() {
        return say("skipped: a_damaged_record_of_several_chunks_is_not_told_as_several_records: the design has none");
    }
    let scratch = Scratch::new("repair-shared");
    let volume = Volume::create(&scratch, 32 * MIB, 16 * MIB, &["--weu", "512K"]);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    for chunk in 0..8 {
        wire.write(chunk * CHUNK as u64, &content(1));
    }
    wire.flush();
    drop(wire);
    server.stop();
    let (_, record) = json(&volume, &["dump", "record", "--lba", "7"]);
    flip(&volume.flash, number(&record, "flash_offset") + 17);
    let server = volume.serve();
    assert_eq!(code(&ends(larder(["flush", "--flash"]).arg(&volume.flash))), Some(1));
    let status = volume.status();
    let all = status["conditions"].as_array().expect("conditions").iter();
    let condition = all.clone().find(|condition| condition["name"] == "corrupt_records").expect("it was met");
    let what = condition["what"].as_str().expect("a sentence");
    let met = number(&status, "corrupt_records");
    assert!(met >= 8 && what.starts_with(&format!("damaged records were met {met} times")), "{what}");
    assert!(!what.contains("records were damaged") && what.contains("dirty"), "{what}");
    assert!(!conditions(&volume).contains("the origin has the clean ones"));
    server.stop();
}

#[test]
fn records_in_a_damaged_segment_are_moved() {
    if stands_in() {
        return;
    }
    if design().kind() != StoreKind::Weus {
        return say("skipped: records_in_a_damaged_segment_are_moved: the design has no segments");
    }
    let scratch = Scratch::new("repair-segment");
    let volume = lived(&scratch, End::InOrder);
    let (_, segments) = json(&volume, &["dump", "segments"]);
    let segment = &segments["segments"][0];
    let (_, slots) = json(&volume, &["dump", "slots"]);
    let slot = slots["slots"].as_array().expect("slots").iter().find(|slot| slot["slot"] == segment["slot"]);
    let start = number(slot.expect("its slot"), "flash_offset") + number(segment, "weu_offset");
    // The header: magic 8, version 4, CRC 4, tag 8, slot …
    flip(&volume.flash, start + 24);
    let done = repaired(&volume, 0);
    assert!(number(&done, "records_moved") > 0 && number(&done, "records_not_moved") == 0, "{done}");
    reads(&volume, |_| false);
}

#[test]
fn a_lost_frame_in_the_middle_of_the_log_makes_older_data_suspect() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("repair-log");
    let volume = lived(&scratch, End::Killed);
    let (_, frames) = json(&volume, &["dump", "log", "--all"]);
    let frames: Vec<&Value> = frames["frames"]
        .as_array()
        .expect("frames")
        .iter()
        .filter(|frame| frame["needed"] == true && frame["whole"] == true)
        .collect();
    assert!(frames.len() >= 5, "each flush wrote one: {frames:?}");
    let lost = frames[frames.len() / 2];
    flip(&volume.flash, number(lost, "flash_offset") + 70);
    let out = ends(
        larder(["dump", "log", "--flash"]).arg(&volume.flash).args(["--at", &number(lost, "flash_offset").to_string()]),
    );
    assert_eq!(code(&out), Some(1), "a frame that is not whole is none");
    // An opening tells the damage.
    let out = ends(larder(["serve", "--nbd", "tcp:127.0.0.1:0", "--flash"]).arg(&volume.flash));
    let sentence = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(code(&out) == Some(1) && sentence.contains("log is damaged"), "{sentence}");

    let done = repaired(&volume, 3);
    assert_eq!(number(&done["log_gaps"][0], "frames"), 1, "{done}");
    assert_eq!(number(&done["log_gaps"][0], "entries"), number(lost, "count"));
    assert!(number(&done["suspect"], "bytes") > 0 && number(&done["unknown"], "bytes") > 0);
    let named = |chunk: u64| {
        let at = chunk * CHUNK as u64;
        let inside =
            |range: &Value| (number(range, "offset")..number(range, "offset") + number(range, "bytes")).contains(&at);
        done["unknown"]["ranges"].as_array().expect("ranges").iter().any(inside)
    };
    let zeroes = std::cell::Cell::new(0);
    reads(&volume, |chunk| {
        zeroes.set(zeroes.get() + 1);
        named(chunk)
    });
    assert!((1..=number(lost, "count")).contains(&zeroes.get()), "{} chunks were lost", zeroes.get());
}

#[test]
fn a_lost_block_of_the_checkpoint_costs_what_it_said() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("repair-checkpoint");
    let volume = lived(&scratch, End::InOrder);
    let (_, checkpoint) = json(&volume, &["dump", "checkpoint"]);
    assert_eq!((number(&checkpoint, "no_block_bytes"), checkpoint["named_by_superblock"].as_bool()), (0, Some(true)));
    let blocks = checkpoint["blocks"].as_array().expect("blocks");
    let block = |kind: &str| blocks.iter().find(|block| block["kind"] == kind).expect("a block of each kind");
    for (kind, exit) in [("fingerprints", 0), ("slots", 0), ("mappings", 3)] {
        let is_there = blocks.iter().any(|block| block["kind"] == kind);
        assert_eq!(is_there, checkpoints_have(kind), "{kind}: {checkpoint}");
        if !is_there {
            continue;
        }
        let copy = Scratch::new("repair-checkpoint-of");
        let volume = Volume::over(&copy, "flash", &volume.origin, 32 * MIB, &["--weu", "512K"]);
        fs::copy(scratch.path("flash"), &volume.flash).expect("a copy");
        flip(&volume.flash, number(block(kind), "flash_offset") + 80);
        let done = repaired(&volume, exit);
        assert_eq!(number(&done, "checkpoint_blocks_lost"), 1, "{kind}: {done}");
        reads(&volume, |_| kind == "mappings");
    }
    // The header holds nothing that the superblock and the blocks lack.
    flip(&volume.flash, number(&checkpoint, "flash_offset") + 50);
    let done = repaired(&volume, 0);
    assert_eq!((&done["checkpoint_header_lost"], number(&done, "checkpoint_blocks_lost")), (&true.into(), 0));
    reads(&volume, |_| false);
}

#[test]
fn a_served_or_read_only_flash_is_not_repaired() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("repair-refused");
    let volume = lived(&scratch, End::InOrder);
    let server = volume.serve();
    let out = verify(&volume, &["--repair"]);
    let sentence = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(code(&out) == Some(1) && sentence.contains("served"), "{sentence}");
    server.stop();

    if !crate::support::have_mounts("a_served_or_read_only_flash_is_not_repaired, its second half") {
        return;
    }
    flip(&volume.flash, 100);
    let shown = system("losetup").args(["-r", "-f", "--show"]).arg(&volume.flash).output().expect("losetup");
    let device = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
    if device.is_empty() {
        return say("skipped: the second half of a_served_or_read_only_flash_is_not_repaired: no free loop device");
    }
    let out = ends(&mut larder(["verify", "--repair", "--flash", &device]));
    let dry_run = ends(&mut larder(["verify", "--repair", "--dry-run", "--flash", &device]));
    crate::support::sh("losetup", ["-d", &device]);
    let sentence = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(code(&out) == Some(1) && sentence.trim_end().lines().count() == 1, "{sentence}");
    assert!(sentence.contains(&device), "{sentence}");
    assert_eq!(code(&dry_run), Some(0), "a dry run needs to read only");
}

#[test]
fn a_dump_prints_any_structure() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("dumps");
    let volume = lived(&scratch, End::Killed);
    let (_, layout) = json(&volume, &["dump", "layout"]);
    assert!(number(&layout, "slot_bytes") > 0);
    assert_eq!(layout["weu_bytes"], layout["slot_bytes"], "the older name");
    let log_offset = layout["regions"][4]["flash_offset"].to_string();
    let parts: &[&[&str]] = &[
        &["superblock"],
        &["layout"],
        &["checkpoint"],
        &["checkpoint", "--area", "0"],
        &["checkpoint", "--area", "1"],
        &["log"],
        &["log", "--all"],
        &["log", "--at", &log_offset],
        &["slots"],
        &["mappings"],
        &["mappings", "--lba", "7"],
        &["trims"],
        &["fingerprints"],
        &["segments"],
        &["segments", "--slot", "0"],
        &["record", "--lba", "7"],
        &["record", "--lba", "7", "--hex"],
        &["history", "--lba", "7"],
    ];
    for damaged in [false, true] {
        if damaged {
            // The log is damaged now. The dumps print its entries all the same, as far as they go.
            let (_, frames) = json(&volume, &["dump", "log", "--all"]);
            flip(&volume.flash, number(&frames["frames"][2], "flash_offset") + 70);
        }
        for part in parts {
            let (code, value) = json(&volume, &[&["dump"], *part].concat());
            assert!(code == Some(0) && value.is_object(), "{part:?}: {value}");
            let out = ends(larder(["dump", "--flash"]).arg(&volume.flash).args(*part));
            assert!(out.status.success() && !out.stdout.is_empty(), "{part:?}");
        }
        let (_, slots) = json(&volume, &["dump", "slots"]);
        assert_eq!(slots["salvaged"].as_bool(), Some(damaged));
    }
    let (_, history) = json(&volume, &["dump", "history", "--lba", "7"]);
    assert_eq!((history["log"][0]["kind"].as_str(), number(&history["log"][0], "lba")), (Some("map"), 7));
    let (_, record) = json(&volume, &["dump", "record", "--lba", "7", "--hex"]);
    let hex: String = content(7).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(record["content_hex"].as_str(), Some(&*hex));
    let place = number(&record, "flash_offset").to_string();
    let (_, same) = json(&volume, &["dump", "record", "--at", &place]);
    assert_eq!((number(&same, "lba"), &same["fingerprint"]), (7, &record["fingerprint"]));

    for (wrong, exit, words) in [
        (&["segments", "--slot", "9999"][..], 1, "slots 0 to"),
        (&["record", "--lba", "99999999"], 1, "chunks 0 to"),
        (&["record", "--lba", "2000"], 1, "not cached"),
        (&["record", "--at", "5"], 1, "is in no slot"),
        (&["record", "--at", "-5"], 2, "--at"),
        (&["history", "--lba", "99999999"], 1, "chunks 0 to"),
        (&["mappings", "--lba", "99999999"], 1, "chunks 0 to"),
        (&["log", "--at", "7"], 1, "the log is at"),
        (&["history"], 2, "--lba"),
        (&["record"], 2, "--at"),
        (&["record", "--lba", "1", "--at", "5"], 2, "not by both"),
        (&["log", "--all", "--at", "4096"], 2, "give one"),
        (&["slots", "--area", "0"], 2, "checkpoint"),
        (&["checkpoint", "--block", "0"], 1, "names no checkpoint"),
        (&["checkpoint", "--area", "0", "--block", "0"], 1, "no whole block in checkpoint area 0"),
        (&["checkpoint", "--block", "-1"], 2, "--block"),
        (&["checkpoint", "--block", "4294967296"], 2, "--block"),
        (&["segments", "--slot", "-1"], 2, "--slot"),
        (&["mappings", "--limit", "-1"], 2, "--limit"),
        (&["trims", "--block", "0"], 2, "checkpoint"),
        (&["fingerprints", "--lba", "7"], 2, "mappings"),
        (&["checkpoint", "--area", "2"], 2, "--area"),
        (&["everything"], 2, "everything"),
    ] {
        let out = ends(larder(["dump", "--flash"]).arg(&volume.flash).args(wrong));
        let sentence = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(code(&out), Some(exit), "{wrong:?}: {sentence}");
        assert!(sentence.contains(words) && sentence.trim_end().lines().count() == 1, "{wrong:?}: {sentence}");
        assert!(out.stdout.is_empty(), "{wrong:?}");
    }
    let out = verify(&volume, &["--dry-run"]);
    assert_eq!(code(&out), Some(2), "--dry-run alone");
}

/// The entries of a checkpoint's blocks, of every kind, are those of the cache recovered from it.
#[test]
fn a_dump_prints_the_entries_of_a_checkpoint_and_what_they_come_to() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("dump-entries");
    let volume = Volume::create(&scratch, 32 * MIB, 16 * MIB, &["--weu", "512K"]);
    let server = volume.serve_with(&["--dirty-low", "90", "--dirty-high", "91", "--dirty-max", "92"]);
    let mut wire = Wire::connect(&server.socket);
    for chunk in 0..CHUNKS {
        wire.write(chunk * CHUNK as u64, &content(chunk));
    }
    wire.write(90 * CHUNK as u64, &vec![0; CHUNK]);
    wire.write(95 * CHUNK as u64 + 512, &image::noise(5, 1024));
    for (kind, flags, chunk) in [(TRIM, 0, 100), (WRITE_ZEROES, FLAG_NO_HOLE, 120)] {
        wire.request(kind, flags, chunk * CHUNK as u64, 4 * CHUNK as u32, &[]).expect("taken");
    }
    drop(wire);
    server.stop();

    let (_, checkpoint) = json(&volume, &["dump", "checkpoint"]);
    let block_of = |kind: &str| {
        let blocks = checkpoint["blocks"].as_array().expect("blocks");
        let block = blocks.iter().find(|block| block["kind"] == kind).expect("a block of each kind");
        let (_, found) =
            json(&volume, &["dump", "checkpoint", "--limit", "10000", "--block", &block["block"].to_string()]);
        assert_eq!((number(&found, "blocks_total"), &found["area"]), (1, &checkpoint["area"]));
        let only = &found["blocks"][0];
        assert_eq!(
            (&only["flash_offset"], &only["entries_total"]),
            (&block["flash_offset"], &block["count"]),
            "{kind}"
        );
        only["entries"].as_array().expect("entries").clone()
    };
    let (_, trims) = json(&volume, &["dump", "trims"]);
    let ranges = block_of("zero ranges");
    let runs = trims["trims"].as_array().expect("runs");
    assert_eq!((runs.len(), ranges.len(), trims["salvaged"].as_bool()), (2, 2, Some(false)), "{trims}");
    for ((run, range), (first, no_hole)) in runs.iter().zip(&ranges).zip([(100, false), (120, true)]) {
        for told in [run, range] {
            assert_eq!((number(told, "lba"), number(told, "chunk_count")), (first, 4), "{told}");
            assert_eq!(told["no_hole"], no_hole, "{told}");
        }
        assert_eq!((number(run, "seq"), &range["dirty"]), (0, &true.into()));
    }
    if checkpoints_have("fingerprints") {
        let (_, known) = json(&volume, &["dump", "fingerprints", "--limit", "1000"]);
        let known = known["fingerprints"].as_array().expect("fingerprints");
        // Recovery may have used an entry since. The list goes by use, so the entry then has
        // another place.
        let by_place = |known: &[Value]| {
            let mut known = known.to_vec();
            known.sort_by_key(|entry| (number(entry, "slot"), number(entry, "weu_offset")));
            known
        };
        assert_eq!(by_place(known), by_place(&block_of("fingerprints")));
        let (_, record) = json(&volume, &["dump", "record", "--lba", "5"]);
        let entry = known.iter().find(|entry| entry["fingerprint"] == record["fingerprint"]).expect("chunk 5 is known");
        for key in ["slot", "generation", "weu_offset", "stored_bytes", "encoding", "record_crc"] {
            assert_eq!(entry[key], record[key], "{key}");
        }
    }
    if checkpoints_have("slots") {
        let (_, all) = json(&volume, &["dump", "slots", "--limit", "10000"]);
        assert_eq!(block_of("slots").len() as u64, number(&all, "slots_total"));
    }
    let (mappings, fragments) = (block_of("mappings"), block_of("fragments"));
    assert_eq!((number(&fragments[0], "lba"), fragments[0]["sectors"].as_str()), (95, Some("1-2")), "{fragments:?}");
    // In designs with slots of one chunk or of its parts, zeroes are a chunk as any other.
    let is_zero = |mapping: &&Value| mapping["kind"] == "zero" || design().kind() != StoreKind::Weus;
    let zero = mappings.iter().filter(is_zero).find(|mapping| number(mapping, "lba") == 90).expect("the zeroes");
    assert_eq!(zero["dirty"], true, "{zero}");

    // The dump for people has a line for each entry, and says whether it left entries out.
    let parts = [&["checkpoint", "--block", "0"][..], &["fingerprints"], &["trims"]];
    for part in parts.into_iter().filter(|part| part[0] != "fingerprints" || design().can_share()) {
        let out = run(larder(["dump", "--limit", "1", "--flash"]).arg(&volume.flash).args(part));
        assert!(out.contains("--limit shows more"), "{part:?}: {out}");
    }
    let out = ends(larder(["dump", "checkpoint", "--block", "9999", "--flash"]).arg(&volume.flash));
    let sentence = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(code(&out) == Some(1) && sentence.contains("no whole block 9999 in checkpoint area"), "{sentence}");
    let last = checkpoint["blocks"].as_array().expect("blocks").len() - 1;
    assert!(
        sentence.contains(&format!("numbers from 0 to {last}")) && sentence.trim_end().lines().count() == 1,
        "{sentence}"
    );
    let out = run(larder(["dump", "trims", "--flash"]).arg(&volume.flash));
    assert!(out.contains("seq=0 lba=120 chunk_count=4 advisory=false no_hole=true\n"), "{out}");
}

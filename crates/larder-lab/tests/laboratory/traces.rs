//! `larder-lab trace`: generators, conversions, recordings of real clients, and refusals.
//!
//! It leaves the figures themselves to the tests of `larder-trace`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::lab;
use crate::support::image::{disk, noise};
use crate::support::wire::{self, Wire};
use crate::support::{MIB, Scratch, Server, Volume};
use crate::support::{ends, have_tools, larder, run, stands_in, system};
use larder::size::count;
use serde_json::Value;

const BLOCK: u64 = 4096;

fn trace(words: &[&str]) -> Command {
    let mut command = lab(["trace"]);
    command.args(words);
    command
}

/// Generates a small trace.
fn generate(scratch: &Scratch, name: &str, words: &[&str]) -> PathBuf {
    let path = scratch.path(name);
    run(trace(&["generate"]).args(words).arg("-o").arg(&path));
    path
}

fn info(path: &Path) -> Value {
    info_with(path, &[])
}

fn info_with(path: &Path, how: &[&str]) -> Value {
    let said = run(trace(&["info", "--json"]).arg(path).args(how));
    serde_json::from_str(&said).unwrap_or_else(|err| panic!("no JSON object: {err}\n{said}"))
}

fn number(info: &Value, key: &str) -> u64 {
    info[key].as_u64().unwrap_or_else(|| panic!("no whole number {key}: {info}"))
}

fn share(info: &Value, key: &str) -> f64 {
    info[key].as_f64().unwrap_or_else(|| panic!("no number {key}: {info}"))
}

fn convert(input: &Path, output: &Path, words: &[&str]) -> String {
    run(trace(&["convert"]).arg(input).args(words).arg("-o").arg(output))
}

/// Returns the names in the folder of the test.
fn names(scratch: &Scratch) -> BTreeSet<String> {
    let entries = fs::read_dir(scratch.path(".")).expect("a folder of ours");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn generators_make_what_they_are_asked_for_and_say_that_it_is_made_up() {
    let scratch = Scratch::new("generate");
    let zipf = ["zipf", "--requests", "20000", "--working-set", "8M", "--dup", "0.4", "--chunk", "8K", "--seed", "5"];
    let first = generate(&scratch, "zipf", &zipf);
    let said = info(&first);
    assert_eq!(
        (&said["content"], &said["format"], &said["packing"]),
        (&"made_up".into(), &"content".into(), &"zstd".into())
    );
    assert_eq!((number(&said, "requests"), number(&said, "block_bytes")), (20_000, 8192), "{said}");
    assert!((share(&said, "io_dedup_ratio") - 0.4).abs() < 0.02, "{said}");
    assert!((share(&said, "write_to_read_ratio") - 7.0 / 3.0).abs() < 0.1, "{said}");
    assert!(number(&said, "working_set_bytes") <= 8 * MIB, "{said}");

    // One seed makes one file, another seed another file.
    let again = generate(&scratch, "again", &zipf);
    let other = generate(&scratch, "other", &[&zipf[..10], &["6"]].concat());
    assert!(fs::read(&first).expect("a trace") == fs::read(again).expect("a trace"), "one seed, two traces");
    assert!(fs::read(&first).expect("a trace") != fs::read(other).expect("a trace"), "two seeds, one trace");

    let profile = info(&generate(&scratch, "homes", &["homes@nitro", "--scale", "0.002"]));
    assert!((share(&profile, "write_to_read_ratio") - 4.2).abs() < 0.01, "{profile}");
    assert!((share(&profile, "dedup_ratio") - 2.0).abs() < 0.01, "{profile}");

    let page = run(trace(&["info"]).arg(&first));
    assert!(
        page.contains("content: MADE UP") && page.contains("  requests                                20,000\n"),
        "{page}"
    );
}

#[test]
fn every_generator_of_the_list_runs() {
    let scratch = Scratch::new("list");
    let list = run(&mut trace(&["generate", "--list"]));
    let kinds: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(kinds.len(), 15, "{list}");
    assert!(list.lines().all(|line| line.contains("Nitro") || line.contains("Austere") || line.contains("CacheDedup")));
    let small: &[(&str, &[&str])] = &[
        ("zipf", &["--scale", "0.01"]),
        ("random-reads", &["--scale", "0.0001"]),
        ("boot-storm", &["--scale", "0.1", "--vms", "3"]),
        ("snapshots", &["--disk", "4M", "--days", "5"]),
        ("restore", &["--disk", "4M", "--days", "3", "--overwrite", "0.5", "--restore-days", "0,2", "--no-writes"]),
    ];
    for kind in &kinds {
        let options = small.iter().find(|(name, _)| name == kind).map_or(&["--scale", "0.0005"][..], |(_, rest)| rest);
        let said = info(&generate(&scratch, kind, &[&[*kind], options].concat()));
        assert_eq!(said["content"], "made_up", "{kind}");
        assert!(number(&said, "requests") > 0, "{kind}: {said}");
    }
    // Two days are read back, each 4 MiB in requests of 512 KiB.
    let restored = info(&scratch.path("restore"));
    assert_eq!((number(&restored, "read_blocks"), number(&restored, "write_blocks")), (2 * 1024, 0));
    assert_eq!(number(&restored, "requests"), 16);

    // A boot trace from a file takes the place of a made-up one.
    let boot = generate(&scratch, "boot", &["boot-storm", "--scale", "0.1", "--vms", "1"]);
    let boot_name = boot.display().to_string();
    let storm = generate(&scratch, "storm", &["boot-storm", "--boot", &boot_name, "--vms", "4", "--tag", "vm0"]);
    assert_eq!(number(&info(&storm), "blocks"), 4 * number(&info(&boot), "blocks"));

    let folder = scratch.path("grid");
    let grid = ["random-reads", "--grid", "--cache", "64K", "--requests", "50", "--json", "-o"];
    let said: Value = serde_json::from_str(&run(trace(&["generate"]).args(grid).arg(&folder))).expect("JSON");
    assert_eq!(said["files"].as_array().map(Vec::len), Some(100));
    let point = info(&folder.join("ws03-dedup10.trace.zst"));
    assert!(number(&point, "end_bytes") <= 3 << 16 && number(&point, "requests") == 50, "{point}");
}

#[test]
fn converting_keeps_what_the_format_can_say() {
    let scratch = Scratch::new("convert");
    let source = generate(&scratch, "source", &["homes@nitro", "--scale", "0.001"]);
    let from = info(&source);
    for format in ["content", "austere", "csv", "oracle-general"] {
        let path = scratch.path(format);
        let out = ends(trace(&["convert", "--to", format]).arg(&source).arg("-o").arg(&path));
        let complaint = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{format}: {complaint}");
        // If the format loses the label, the command says so.
        assert_eq!(complaint.contains("MADE UP"), format == "austere", "{format}: {complaint}");
        // If it loses the operation, the command tells how many writes it has as reads.
        let (writes, reads) = (number(&from, "write_blocks"), number(&from, "read_blocks"));
        let lost =
            format!("note: {} of {} records in {} are writes", count(writes), count(writes + reads), path.display());
        assert_eq!(complaint.contains(&lost), format == "oracle-general" && writes > 0, "{format}: {complaint}");
        let to = info_with(&path, &["--format", format]);
        assert_eq!(to["format"], format, "{to}");
        for key in ["requests", "blocks", "working_set_blocks", "end_bytes"] {
            assert_eq!(to[key], from[key], "{format}: {key}");
        }
        let content = match format {
            "content" => "made_up".into(),
            "austere" => "unlabelled".into(),
            _ => Value::Null,
        };
        assert_eq!(to["content"], content, "{format}");
        if format == "austere" {
            assert_eq!((&to["unique_blocks"], &to["dedup_ratio"]), (&from["unique_blocks"], &from["dedup_ratio"]));
        }
    }
    // A trace that has lost its content gets a made-up one.
    let made = scratch.path("made");
    let words = ["--to", "content", "--content", "dup=0.25,compress=3,variance=0.04,seed=9", "--json"];
    let said: Value = serde_json::from_str(&convert(&scratch.path("csv"), &made, &words)).expect("JSON");
    assert_eq!((&said["content"], &said["seed"], &said["format"]), (&"made_up".into(), &9.into(), &"content".into()));
    let made = info(&made);
    assert_eq!((&made["content"], &made["requests"]), (&"made_up".into(), &from["requests"]));
    assert!((share(&made, "duplicate_write_share") - 0.25).abs() < 0.02, "{made}");
    assert!((share(&made, "compression_ratio") - 3.0).abs() < 0.1, "{made}");
}

#[test]
fn a_trace_is_chunked_again_by_two_passes_and_cut_by_requests() {
    let scratch = Scratch::new("chunk");
    let source = scratch.path("source");
    let line = |request: u64, op: &str, block: u64, content: &str| {
        format!("{request}00 {request} t {} 8 {op} 0 0 {content:0>16} 1000\n", block * 8)
    };
    // Reads of blocks 0 and 1 show that they were there before, as one chunk of 8 KiB.
    let lines =
        [line(1, "R", 0, "a"), line(2, "W", 0, "b"), line(3, "W", 2, "a"), line(3, "W", 3, "c"), line(4, "R", 1, "c")];
    fs::write(&source, lines.concat()).expect("a trace");
    let chunked = scratch.path("chunked");
    convert(&source, &chunked, &["--to", "content", "--chunk", "8K"]);
    let said = info(&chunked);
    assert_eq!((number(&said, "block_bytes"), number(&said, "blocks"), number(&said, "requests")), (8192, 4, 4));
    assert_eq!(said["content"], "recorded");
    // The chunk that request 3 writes, (a, c), is the one that request 1 read.
    assert_eq!(number(&said, "duplicate_write_blocks"), 1, "{said}");
    assert_eq!(number(&said, "unique_blocks"), 2, "{said}");

    let part = scratch.path("part");
    convert(&source, &part, &["--to", "content", "--chunk", "8K", "--from", "3", "--limit", "1"]);
    let said = info(&part);
    assert_eq!((number(&said, "requests"), number(&said, "write_blocks"), number(&said, "end_bytes")), (1, 1, 16384));

    // Without content a conversion composes no chunks, and splits requests.
    let plain = scratch.path("plain.csv");
    convert(&source, &plain, &["--to", "csv", "--from", "2"]);
    let split = scratch.path("split.csv");
    convert(&plain, &split, &["--to", "csv", "--chunk", "32K"]);
    assert_eq!(number(&info(&split), "write_blocks"), 3);
}

/// Checks that the command fails with this code and one sentence with these words.
///
/// The folder stays as it was.
fn refused(scratch: &Scratch, command: &mut Command, code: i32, words: &[&str]) {
    let before = names(scratch);
    let out: Output = ends(command);
    let (said, complaint) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(code), "{command:?}: {complaint}");
    assert_eq!(said, "", "{command:?} speaks of success");
    let sentence = complaint.trim_end();
    let begin = format!("{}: ", Path::new(command.get_program()).file_name().expect("a name").to_string_lossy());
    assert!(
        sentence.starts_with(&begin) && !sentence.contains('\n') && sentence.len() < 700,
        "{command:?}: {complaint}"
    );
    let lower = sentence.to_lowercase();
    for word in words {
        assert!(lower.contains(&word.to_lowercase()), "{command:?} does not say {word:?}: {sentence}");
    }
    for rubbish in ["panicked", "os error", "Some(", "{"] {
        assert!(!sentence.contains(rubbish), "{command:?}: {sentence}");
    }
    assert_eq!(names(scratch), before, "{command:?} changed the folder");
}

#[test]
fn a_bad_trace_is_refused_with_file_place_and_what_was_expected() {
    let scratch = Scratch::new("bad");
    let good = "1 1 t 0 8 R 0 0 000000000000000a 100\n";
    let write = |name: &str, bytes: &[u8]| {
        fs::write(scratch.path(name), bytes).expect("a file");
        scratch.path(name)
    };
    let packed = generate(&scratch, "packed", &["zipf", "--scale", "0.01"]);
    let packed = fs::read(packed).expect("a trace");
    let mut flipped = packed.clone();
    flipped[packed.len() / 2] ^= 0xff;
    let cases: &[(PathBuf, &[&str])] = &[
        (scratch.path("absent"), &["absent", "no such file"]),
        (scratch.path("."), &["folder"]),
        (write("empty", b""), &["empty", "empty file"]),
        (write("prose", b"Once upon a time there was a cache that slept.\n"), &["prose", "no format fits"]),
        (write("noise", &noise(3, 10_000)), &["noise", "no format fits"]),
        (write("line", format!("{}2 2 t x 8 R 0 0 0a 1\n", good.repeat(3)).as_bytes()), &["line", "line 4", "sectors"]),
        (write("op", format!("{}2 2 t 0 8 Q 0 0 0a 1\n", good.repeat(3)).as_bytes()), &["line 4", "R, W, T or F"]),
        (write("cut", format!("{good}2 2 t 8 8 R 0").as_bytes()), &["cut", "line 2", "middle of a line"]),
        (write("zero", format!("{good}{good}2 2 t 0 0 R 0 0 - -\n").as_bytes()), &["zero", "line 3", "above 0"]),
        (write("half.zst", &packed[..packed.len() / 2]), &["half.zst", "truncated"]),
        (write("flipped.zst", &flipped), &["flipped.zst", "zstd"]),
    ];
    for (path, words) in cases {
        refused(&scratch, trace(&["info"]).arg(path), 1, &[&["larder-lab: "], *words].concat());
        let out = scratch.path("out");
        refused(&scratch, trace(&["convert", "--to", "csv"]).arg(path).arg("-o").arg(&out), 1, words);
    }
    // The bad line is counted, passed over and told.
    let said = info_with(&scratch.path("line"), &["--skip-bad"]);
    assert_eq!((number(&said, "lines_skipped"), number(&said, "requests")), (1, 1), "{said}");
    let out = ends(
        trace(&["convert", "--skip-bad", "--to", "csv"]).arg(scratch.path("line")).arg("-o").arg(scratch.path("out")),
    );
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && complaint.contains("1 bad lines") && complaint.contains("line 4"), "{complaint}");
}

#[test]
fn wrong_options_and_files_in_the_way_are_refused() {
    let scratch = Scratch::new("wrong");
    let source = generate(&scratch, "source", &["zipf", "--scale", "0.005"]);
    let plain = scratch.path("plain");
    convert(&source, &plain, &["--to", "csv"]);
    let before = fs::read(&plain).expect("a trace");
    let out = scratch.path("out");
    let to = |path: &Path| path.display().to_string();
    let (source, plain_name, out) = (to(&source), to(&plain), to(&out));
    let nowhere = to(&scratch.path("no/where"));
    let folder = to(&scratch.path("."));
    let origin = to(&scratch.file("origin", MIB));
    let cases: &[(i32, &[&str], &[&str])] = &[
        (1, &["record", "--origin", &origin, "--nbd", "unix:x", "--force", "-o", &origin], &["is the origin itself"]),
        (2, &[], &["info, convert or generate"]),
        (2, &["fly"], &["fly"]),
        (2, &["info"], &["<FILE>"]),
        (2, &["info", &source, "--format", "msrc"], &["--format msrc", "msr"]),
        (1, &["info", &source, "--format", "msr"], &["source", "line 1"]),
        (1, &["info", &source, "--unit", "4K"], &["--unit goes with", "content"]),
        (1, &["info", &source, "--block", "8K"], &["32K", "--chunk"]),
        (1, &["info", &plain_name, "--unit", "1G"], &["block of 1 byte to 1 MiB"]),
        (1, &["convert", &source, "--to", "csv", "-o", &plain_name], &["plain", "exists", "--force"]),
        (1, &["convert", &source, "--to", "csv", "-o", &folder], &["folder"]),
        (1, &["convert", &source, "--to", "csv", "-o", "/dev/null", "--force"], &["/dev/null", "plain file"]),
        (1, &["convert", &source, "--to", "csv", "-o", &nowhere], &["where", "no such file"]),
        (1, &["convert", &plain_name, "--to", "austere", "-o", &out], &["request 1", "--content"]),
        (1, &["convert", &source, "--to", "content", "--chunk", "4K", "-o", &out], &["4096", "32768"]),
        (1, &["convert", &source, "--to", "content", "--from", "100000", "-o", &out], &["no request is left"]),
        (2, &["convert", &source, "--to", "content", "--chunk", "5K", "-o", &out], &["power of two"]),
        (2, &["convert", &source, "--to", "fiu", "-o", &out], &["content, austere, csv, oracle-general"]),
        (2, &["convert", &source, "--to", "csv", "--content", "dup=2", "-o", &out], &["dup", "0 to 1"]),
        (2, &["convert", &source, "--to", "csv", "--content", "wings=2", "-o", &out], &["dup=SHARE"]),
        (2, &["convert", &source, "--to", "csv", "--limit", "0", "-o", &out], &["--limit 0"]),
        (2, &["generate", "-o", &out], &["KIND"]),
        (2, &["generate", "zipf"], &["--output"]),
        (2, &["generate", "homes@home", "-o", &out], &["homes@home", "--list"]),
        (2, &["generate", "zipf", "--vms", "3", "-o", &out], &["--vms goes with boot-storm"]),
        (2, &["generate", "homes@nitro", "--requests", "3", "-o", &out], &["--requests goes with zipf, random-reads"]),
        (2, &["generate", "zipf", "--scale", "0", "-o", &out], &["--scale 0"]),
        (1, &["generate", "zipf", "--working-set", "8G", "-o", &out], &["no larger than the disk"]),
        (1, &["generate", "homes@nitro", "--scale", "0.00000001", "-o", &out], &["too few requests"]),
        (1, &["generate", "boot-storm", "--boot", &plain_name, "-o", &out], &["content"]),
        (1, &["generate", "restore", "--days-from", &nowhere, "-o", &out], &["where", "no such file"]),
        (2, &["record", "--origin", &plain_name, "-o", &out], &["--nbd"]),
        (
            2,
            &["record", "--origin", &plain_name, "--nbd", "unix:x", "--tag", "my tag", "-o", &out],
            &["my tag", "one word"],
        ),
        (
            2,
            &["record", "--origin", &plain_name, "--nbd", "unix:x", "--tag", "-", "-o", &out],
            &["--tag", "not - alone"],
        ),
        (1, &["record", "--origin", &nowhere, "--nbd", "unix:x", "-o", &out], &["where", "missing"]),
    ];
    for (code, options, words) in cases {
        let mut command = if options.contains(&"record") { larder(["trace"]) } else { lab(["trace"]) };
        refused(&scratch, command.args(*options), *code, words);
    }
    assert!(fs::read(&plain).expect("a trace") == before, "it was overwritten");
    convert(Path::new(&source), &plain, &["--to", "austere", "--force"]);
    assert_eq!(info(&plain)["format"], "austere");
}

#[test]
fn a_signal_ends_a_conversion_and_leaves_nothing() {
    let scratch = Scratch::new("signal");
    let out = scratch.path("out");
    let mut command = trace(&["generate", "mail@nitro", "-o"]);
    let child = crate::support::begin(command.arg(&out));
    let end = Instant::now() + Duration::from_secs(30);
    while names(&scratch).is_empty() {
        assert!(Instant::now() < end, "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The command takes the name before it waits for signals.
    std::thread::sleep(Duration::from_millis(300));
    child.signal("TERM");
    let ended = child.ends("the generator");
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("out: ended by a signal"), "{complaint}");
    assert!(names(&scratch).is_empty(), "{:?}", names(&scratch));
}

/// Starts a recording, and returns its volume, its server and the path of its trace.
fn record(scratch: &Scratch, bytes: u64, options: &[&str]) -> (Volume, Server, PathBuf) {
    let origin = scratch.file("origin", bytes);
    let volume = Volume::bare(scratch, "record", &origin);
    let out = scratch.path("out.trace.zst");
    let server = volume.record(&out, options);
    (volume, server, out)
}

#[test]
fn a_recording_says_exactly_what_was_done() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("exactly");
    let (volume, server, out) = record(&scratch, 16 * MIB, &["--tag", "exactly"]);
    let noise = noise(1, 64 << 10);
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &noise);
    wire.write(MIB, &noise);
    wire.write(MIB, &noise[..8192]);
    // A write of a sector is recorded as one of its block.
    wire.write(2 * MIB + 512, &[7; 512]);
    wire.request(wire::WRITE_ZEROES, wire::FLAG_FUA, 3 * MIB, 1 << 20, &[]).expect("zeroes");
    wire.request(wire::TRIM, 0, 0, 32 << 10, &[]).expect("a trim");
    assert_eq!(wire.read(0, 64 << 10)[32 << 10..], noise[32 << 10..]);
    // The reads are of holes. The server must not answer them for the device, past the trace.
    assert!(wire.read(8 * MIB, 256 << 10).iter().all(|&byte| byte == 0));
    assert_eq!(wire.read(2 * MIB, 512), [0; 512]);
    wire.flush();
    assert!(wire.request(wire::WRITE, 0, 16 * MIB, 512, &[0; 512]).is_err(), "past the end");
    // The trace has no name before it is whole.
    assert!(!out.exists() && names(&scratch).iter().any(|name| name.starts_with("out.trace.zst.part-")));
    drop(wire);
    server.stop();
    assert_eq!(names(&scratch), ["origin", "out.trace.zst", "record.log"].map(str::to_owned).into());

    let said = info(&out);
    let wanted = [
        ("requests", 11),
        ("write_blocks", 16 + 16 + 2 + 1 + 256),
        ("read_blocks", 16 + 64 + 1),
        ("trims", 1),
        ("trim_bytes", 32 << 10),
        ("flushes", 2),
        ("working_set_blocks", 16 + 16 + 1 + 256 + 64),
        // The noise, zeroes, and the block with the sector.
        ("unique_blocks", 16 + 1 + 1),
        ("same_content_rewrite_blocks", 2),
        // The second noise and its rewrite, and all zeroes but the first.
        ("duplicate_write_blocks", 16 + 2 + 255),
        ("reads_checked_blocks", 8 + 1),
        ("reads_mismatched_blocks", 0),
        ("reads_after_trim_blocks", 8),
        ("reads_after_trim_not_zero_blocks", 0),
        ("block_bytes", BLOCK),
        ("lines_skipped", 0),
    ];
    for (key, wanted) in wanted {
        assert_eq!(number(&said, key), wanted, "{key}: {said}");
    }
    assert_eq!((&said["content"], &said["format"]), (&"recorded".into(), &"content".into()));
    assert!(number(&said, "duration_us") > 0);
    // The origin has all written data.
    let held = fs::read(&volume.origin).expect("the origin");
    assert!(held[32 << 10..64 << 10] == noise[32 << 10..] && held[MIB as usize..][..64 << 10] == noise[..]);
}

#[test]
fn a_recording_of_real_clients_agrees_with_them() {
    if stands_in() || !have_tools("a recording of real clients", &["nbdcopy", "qemu-io"]) {
        return;
    }
    let scratch = Scratch::new("clients");
    let (volume, server, out) = record(&scratch, 32 * MIB, &["--chunk", "8K"]);
    let image = scratch.path("image");
    fs::write(&image, disk(5, 32 << 20)).expect("an image");
    // nbdcopy writes the whole image, zeroes included, and reads it back over several connections.
    run(system("nbdcopy").args(["--flush", "--allocated"]).arg(&image).arg(&server.uri));
    let back = scratch.path("back");
    run(system("nbdcopy").arg(&server.uri).arg(&back));
    let mut qemu = system("qemu-io");
    qemu.args(["-f", "raw", "-d", "unmap", "-t", "none"]);
    for one in [
        "aio_write -P 1 0 64k",
        "aio_write -P 2 32k 64k",
        "aio_flush",
        "write -P 3 512 1024",
        "read -P 2 64k 32k",
        "flush",
    ] {
        qemu.args(["-c", one]);
    }
    let said = run(qemu.arg(&server.uri));
    assert!(!said.contains("failed"), "{said}");
    server.stop();
    assert!(fs::read(&image).expect("it") == fs::read(&back).expect("it"), "bytes differ");

    let said = info(&out);
    assert_eq!(number(&said, "block_bytes"), 8192);
    assert_eq!(number(&said, "written_set_bytes"), 32 * MIB, "{said}");
    // nbdcopy's 32 MiB, qemu's 64 KiB twice, and the one chunk that 1024 bytes lie in.
    assert_eq!(number(&said, "write_blocks"), 4096 + 8 + 8 + 1, "{said}");
    assert_eq!(number(&said, "reads_mismatched_blocks"), 0, "{said}");
    assert!(number(&said, "flushes") >= 2, "{said}");
    // The last content of each chunk is the origin's.
    let csv = scratch.path("again.csv");
    convert(&out, &csv, &["--to", "csv"]);
    assert_eq!(number(&info(&csv), "write_bytes"), 32 * MIB + (16 + 1) * 8192);
    assert!(fs::metadata(&volume.origin).expect("the origin").len() == 32 * MIB);
}

#[test]
fn a_trace_that_cannot_grow_ends_the_recording_and_not_the_serving() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("full");
    let origin = scratch.file("origin", MIB / 2);
    let volume = Volume::bare(&scratch, "record", &origin);
    let out = scratch.path("out.trace.zst");
    // No file may grow beyond 512 KiB, as if a disk were full.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$@\"", "sh"]);
    command.arg(crate::larder_program()).args(["trace", "record", "--origin"]).arg(&origin);
    command.args(["--nbd", &format!("unix:{}", volume.socket().display()), "-o"]).arg(&out);
    let server = volume.serve_as(&mut command);
    let mut wire = Wire::connect(&server.socket);
    let mut last = Vec::new();
    for round in 0..400 {
        last = noise(round, MIB as usize / 2);
        wire.write(0, &last);
    }
    assert!(wire.read(0, MIB as usize / 2) == last, "serving has not gone on");
    let complaint = server.complaints();
    assert!(complaint.contains("the recording has ended") && complaint.contains("serving goes on"), "{complaint}");
    assert!(!complaint.contains("os error"), "{complaint}");
    drop(wire);
    let complaint = server.ends_with(1);
    assert!(complaint.contains("out.trace.zst") && complaint.contains("it has the first"), "{complaint}");
    // The file keeps whole requests, and is a whole trace.
    let said = info(&out);
    let requests = number(&said, "requests");
    assert!((128..400).contains(&requests), "{said}");
    assert_eq!(number(&said, "write_blocks"), requests * 128, "{said}");
    assert!(fs::read(&origin).expect("the origin")[..last.len()] == last[..], "data was lost");
}

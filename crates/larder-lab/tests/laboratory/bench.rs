//! `larder-lab bench`: traces against caches of each design and over NBD, with checks and refusals.

use crate::common::lab;
use crate::support::{MIB, Scratch, Volume, ends, larder, run};
use larder_engine::designs::ENGINE_DESIGNS;
use larder_format::StoreKind;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A block of the traces here.
const BLOCK: u64 = 4096;

fn bench(words: &[&str]) -> Command {
    let mut command = lab(["bench"]);
    command.args(words);
    command
}

/// Writes a small trace with writes, reads of old and new content, duplicates and zeroes.
fn generated(scratch: &Scratch) -> PathBuf {
    let path = scratch.path("made.trace.zst");
    let size = ["--chunk", "4K", "--disk", "64M", "--working-set", "24M"];
    run(lab(["trace", "generate", "zipf", "--requests", "6000", "--seed", "7", "-o"]).arg(&path).args(size));
    path
}

/// Writes a trace from lines of the content format.
fn written(scratch: &Scratch, lines: &[&str]) -> PathBuf {
    let path = scratch.path("hand.trace");
    fs::write(&path, lines.join("\n") + "\n").expect("a trace");
    path
}

fn info(trace: &Path) -> Value {
    serde_json::from_str(&run(lab(["trace", "info", "--json"]).arg(trace))).expect("JSON")
}

fn prepare(trace: &Path, origin: &Path) -> String {
    run(bench(&["prepare", "--trace"]).arg(trace).arg("--origin").arg(origin))
}

fn create(scratch: &Scratch, origin: &Path, options: &[&str]) -> PathBuf {
    create_any(scratch, origin, &[&["--weu", "512K"], options].concat())
}

/// Creates a cache of any design: some have no WEUs.
fn create_any(scratch: &Scratch, origin: &Path, options: &[&str]) -> PathBuf {
    let flash = scratch.path("cache");
    let mut create = larder(["create", "--force", "--chunk", "4K", "--size", "16M", "--flash"]);
    run(create.arg(&flash).arg("--origin").arg(origin).args(options));
    flash
}

fn report(out: &str) -> Value {
    serde_json::from_str(out).unwrap_or_else(|error| panic!("no JSON object: {error}\n{out}"))
}

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("no whole number {key}: {report}"))
}

#[track_caller]
fn refused(out: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "one sentence: {said}");
    words.iter().for_each(|word| assert!(said.contains(word), "{word}: {said}"));
}

/// In each design and mode, each read is right, and all of the trace is there.
#[test]
fn caches_of_each_design_give_back_what_was_written() {
    let in_write_back = ENGINE_DESIGNS.iter().map(|design| (design, "write-back"));
    let in_write_through = ENGINE_DESIGNS.iter().take(1).map(|design| (design, "write-through"));
    for (design, mode) in in_write_back.chain(in_write_through) {
        let (name, is_in_weus) = (design.name, design.kind() == StoreKind::Weus);
        let scratch = Scratch::new(&format!("bench-{name}-{mode}"));
        let trace = generated(&scratch);
        let origin = scratch.path("disk.img");
        assert!(prepare(&trace, &origin).starts_with("prepared "));
        let options = ["--design", name, "--mode", mode];
        let flash = match is_in_weus {
            true => create(&scratch, &origin, &options),
            false => create_any(&scratch, &origin, &options),
        };
        let mut replay = bench(&["replay", "--json", "--trace"]);
        let found = report(&run(replay.arg(&trace).arg("--flash").arg(&flash).args(["--outstanding", "8"])));
        let facts = info(&trace);
        for key in ["requests", "reads", "writes"] {
            assert!(number(&found, key) > 0, "{key}: {found}");
        }
        assert_eq!(number(&found, "read_bytes"), number(&facts, "read_bytes"), "{facts}");
        assert_eq!(number(&found, "write_bytes"), number(&facts, "write_bytes"), "{facts}");
        assert_eq!(number(&found, "blocks_verified") * BLOCK, number(&found, "read_bytes"));
        assert_eq!((number(&found, "blocks_wrong"), number(&found, "trace_contradictions")), (0, 0));
        assert_eq!(found["content"], "made_up");
        let cache = &found["cache"];
        assert_eq!(number(cache, "read_chunks"), number(&found, "blocks_verified"));
        assert!(cache["read_hit_ratio"].as_f64().is_some_and(|ratio| ratio > 0.05), "{cache}");
        assert_eq!(number(cache, "duplicate_chunks") > 0, design.can_share(), "{name}: {cache}");
        for key in ["flash_bytes_written", "flash_data_bytes_read"] {
            assert!(number(cache, key) > 0, "{name}, {key}: {cache}");
        }
        let reads = &found["read_latency"];
        assert_eq!(number(reads, "requests"), number(&found, "reads"));
        let at = |key: &str| reads[key].as_f64().expect("a latency");
        assert!(0.0 < at("p50_us") && at("p50_us") <= at("p99_us") && at("p99_us") <= at("max_us"), "{reads}");
        // It was closed in order, and is sound.
        let page = run(larder(["verify", "--flash"]).arg(&flash));
        let read = format!("\n  {}s read  ", design.kind().slot_name());
        assert!(page.contains(&read) && page.contains(" segments") == is_in_weus, "{name}, {read}: {page}");
    }
}

/// Over NBD: a served cache, which is asked for its counts; and a server that is no cache of ours.
#[test]
fn what_is_served_is_measured_by_the_same_trace() {
    let scratch = Scratch::new("bench-nbd");
    let trace = generated(&scratch);
    let origin = scratch.path("disk.img");
    prepare(&trace, &origin);
    let copy = scratch.path("copy.img");
    fs::copy(&origin, &copy).expect("a copy");
    let volume = Volume::over(&scratch, "cached", &origin, 16 * MIB, &["--chunk", "4K", "--weu", "512K"]);
    let server = volume.serve();
    let mut replay = bench(&["replay", "--json", "--warmup", "25%", "--trace"]);
    replay.arg(&trace).args(["--nbd", &server.uri, "--counts-of"]).arg(&volume.flash);
    let found = report(&run(&mut replay));
    let requests = number(&info(&trace), "requests");
    assert_eq!(
        (number(&found, "warmup_requests"), number(&found, "requests")),
        (requests / 4, requests - requests / 4)
    );
    assert_eq!(number(&found, "blocks_wrong"), 0);
    let (counted, read) = (number(&found["cache"], "read_chunks"), number(&found, "reads"));
    // Requests under way at the end of the warm-up count for the cache.
    assert!((read..read + 32).contains(&counted), "{counted} chunks for {read} reads");
    server.stop();
    let bare = Volume::bare(&scratch, "bare", &copy);
    let server = bare.serve_bare();
    let mut replay = bench(&["replay", "--outstanding", "1", "--trace"]);
    let page = run(replay.arg(&trace).args(["--nbd", &server.uri]));
    assert!(page.contains("of them wrong 0") && page.contains("reads  ") && !page.contains("The cache"), "{page}");
    server.stop();
}

/// At the trace's pace no request is made before its time.
#[test]
fn the_traces_own_pace_is_kept() {
    let scratch = Scratch::new("bench-pace");
    let lines =
        ["100 1 - 0 8 W 0 0 00000000000000aa 4096", "400100 2 - 8 8 W 0 0 00000000000000ab 100", "0 3 - 0 0 F 0 0 - -"];
    let trace = written(&scratch, &lines);
    let origin = scratch.path("disk.img");
    prepare(&trace, &origin);
    let volume = Volume::bare(&scratch, "bare", &origin);
    let server = volume.serve_bare();
    for (speed, least) in [("1", 0.4), ("4", 0.1)] {
        let mut replay = bench(&["replay", "--json", "--pace", "trace", "--speed", speed, "--trace"]);
        let found = report(&run(replay.arg(&trace).args(["--nbd", &server.uri])));
        let seconds = found["seconds"].as_f64().expect("a time");
        assert!(seconds >= least, "{found}");
        assert_eq!(number(&found["late"], "requests"), 3);
    }
    server.stop();
}

/// Requests of several blocks, in order if they overlap; whole and partial trims; all contents.
#[test]
fn requests_that_overlap_are_made_in_their_order() {
    let scratch = Scratch::new("bench-order");
    let mut lines = Vec::new();
    for round in 0..200_u64 {
        let request = round * 4;
        // Eight blocks, read back while the next write to them waits.
        for op in ["W", "R"] {
            for block in 0..8 {
                let content = 1000 + round * 8 + block;
                let request = request + u64::from(op == "R");
                lines.push(format!("- {request} - {} 8 {op} 0 0 {content:016x} {}", block * 8, 500 + content % 3000));
            }
        }
        lines.push(format!("- {} - 8 8 T 0 0 - -", request + 2));
        lines.push(format!("- {} - 8 8 R 0 0 93d76fe148c689ba 26", request + 3));
        lines.push(format!("- {} - 17 2 T 0 0 - -", request + 3));
    }
    // Content from before the trace, and wrong content of the trace.
    lines.push("- 9000 - 800 8 R 0 0 00000000000000ff 700".into());
    lines.push("- 9001 - 800 8 R 0 0 00000000000000fe 700".into());
    let trace = written(&scratch, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let origin = scratch.path("disk.img");
    assert_eq!(prepare(&trace, &origin), format!("prepared {}: 1 blocks, 4.00 KiB\n", origin.display()));
    let flash = create(&scratch, &origin, &[]);
    let found = report(&run(bench(&["replay", "--json", "--trace"]).arg(&trace).arg("--flash").arg(&flash)));
    crate::support::is_told_in("LAB.md", &found);
    assert_eq!(number(&found, "requests"), 200 * 5 + 2);
    assert_eq!((number(&found, "trims"), number(&found, "trace_contradictions")), (400, 1));
    assert_eq!((number(&found, "blocks_verified"), number(&found, "blocks_wrong")), (200 * 9 + 2, 0));
}

/// A fingerprint is one content for all readers of the trace, for any sizes in the trace.
///
/// That holds for preparing the whole disk or making some of the requests, with a warm-up or
/// without, here or over NBD.
#[test]
fn a_fingerprint_of_several_sizes_is_one_content() {
    let scratch = Scratch::new("bench-sizes");
    let line = |request: u64, block: u64, op: char, content: u64, size: u64| {
        format!("- {request} - {} 8 {op} 0 0 {content:016x} {size}", block * 8)
    };
    // The first reads have other sizes than the later writes, each time another one.
    let mut lines = vec![line(0, 900, 'R', 1, 700), line(1, 901, 'R', 1, 1900), line(2, 902, 'R', 2, 3000)];
    for request in 3..203 {
        let (op, block) = if request % 2 == 1 { ('W', request) } else { ('R', request - 1) };
        lines.push(line(request, block, op, block % 5, 500 + request * 7));
    }
    lines.push(line(203, 903, 'R', 1, 20));
    let trace = written(&scratch, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let origin = scratch.path("disk.img");
    prepare(&trace, &origin);
    let bytes = fs::read(&origin).expect("the disk");
    let block = |number: u64| &bytes[(number * BLOCK) as usize..((number + 1) * BLOCK) as usize];
    assert!(block(900) == block(901) && block(900) == block(903), "one fingerprint, and several contents");
    assert!(block(900) != block(902) && block(900)[700..].iter().all(|&byte| byte == 0), "not the first size");
    for (options, verified) in [(&[][..], 104), (&["--limit", "50"][..], 26), (&["--warmup", "40%"][..], 104)] {
        let flash = create(&scratch, &origin, &["--mode", "write-around"]);
        run(bench(&["replay", "--json", "--trace"]).arg(&trace).arg("--flash").arg(&flash).args(options));
        let flash = create(&scratch, &origin, &[]);
        let mut replay = bench(&["replay", "--json", "--outstanding", "1", "--no-read-ahead", "--trace"]);
        let found = report(&run(replay.arg(&trace).arg("--flash").arg(&flash).args(options)));
        assert_eq!(number(&found, "blocks_verified"), verified, "{found}");
        assert_eq!((number(&found, "blocks_wrong"), number(&found, "trace_contradictions")), (0, 0), "{found}");
        if options.is_empty() {
            // 100 chunks of five contents were written.
            assert!(number(&found["cache"], "duplicate_chunks") >= 95, "{found}");
        }
    }
    let bare = Volume::bare(&scratch, "bare", &origin);
    let server = bare.serve_bare();
    let found = report(&run(bench(&["replay", "--json", "--trace"]).arg(&trace).args(["--nbd", &server.uri])));
    assert_eq!((number(&found, "blocks_verified"), number(&found, "blocks_wrong")), (104, 0), "{found}");
    server.stop();
}

/// A scan is read ahead and kept off the flash, or neither.
#[test]
fn what_a_scan_reads_is_inserted_where_nothing_is_read_ahead() {
    let scratch = Scratch::new("bench-ahead");
    let lines: Vec<String> = (0..1024_u64)
        .map(|block| format!("- {} - {} 8 R 0 0 {:016x} 4096", block / 16, block * 8, 7000 + block))
        .collect();
    let trace = written(&scratch, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let origin = scratch.path("disk.img");
    prepare(&trace, &origin);
    for no_read_ahead in [false, true] {
        let flash = create(&scratch, &origin, &[]);
        let mut replay = bench(&["replay", "--json", "--outstanding", "1", "--trace"]);
        let replay = replay.arg(&trace).arg("--flash").arg(&flash).args(no_read_ahead.then_some("--no-read-ahead"));
        let found = report(&run(replay));
        let count = |key: &str| number(&found["cache"], key);
        assert_eq!(number(&found, "blocks_verified"), 1024);
        let ahead = [count("prefetched_chunks"), count("prefetch_hits"), count("scan_bypassed_chunks")];
        assert_eq!(ahead.iter().all(|&chunks| chunks == 0), no_read_ahead, "{ahead:?}");
        let inserted = count("inserted_chunks") + count("insertions_dropped");
        assert_eq!(inserted == 1024, no_read_ahead, "{inserted} of 1024 were to be inserted");
    }
    // In readable form, with the bytes that its flash wrote and read.
    let flash = create(&scratch, &origin, &[]);
    let page = run(bench(&["replay", "--trace"]).arg(&trace).arg("--flash").arg(&flash));
    assert!(page.contains("flash written") && page.contains("flash read  ") && page.contains("of metadata"), "{page}");
}

/// A disk with other content than the trace reads there is reported at once.
#[test]
fn a_disk_that_was_not_prepared_is_told() {
    let scratch = Scratch::new("bench-unprepared");
    let trace = generated(&scratch);
    let origin = scratch.file("disk.img", 64 * MIB);
    let flash = create(&scratch, &origin, &[]);
    let out = ends(bench(&["replay", "--trace"]).arg(&trace).arg("--flash").arg(&flash));
    refused(&out, 1, &["reads at byte", "larder-lab bench prepare"]);
    assert!(out.stdout.is_empty());
    run(larder(["verify", "--flash"]).arg(&flash));
}

#[test]
fn other_data_is_not_overwritten() {
    let scratch = Scratch::new("bench-other-data");
    let trace = written(&scratch, &["- 1 - 16 8 R 0 0 00000000000000aa 900", "- 2 - 64 8 R 0 0 00000000000000ab 900"]);
    let origin = scratch.path("disk.img");
    let mut bytes = vec![0; MIB as usize];
    bytes[64 * 512 + 7] = 1;
    fs::write(&origin, &bytes).expect("a disk");
    let mut again = bench(&["prepare", "--trace"]);
    again.arg(&trace).arg("--origin").arg(&origin);
    refused(&ends(&mut again), 1, &["holds other data at byte 32768", "--force"]);
    assert!(fs::read(&origin).expect("the disk") == bytes, "refused, and changed");
    run(again.arg("--force"));
    let prepared = fs::read(&origin).expect("the disk");
    assert!(prepared[16 * 512..24 * 512].iter().any(|&byte| byte != 0) && prepared[64 * 512 + 7] != 1);
    // A prepared disk may be prepared again.
    run(bench(&["prepare", "--trace"]).arg(&trace).arg("--origin").arg(&origin));
    assert!(fs::read(&origin).expect("the disk") == prepared);
}

#[test]
fn bad_input_is_one_sentence() {
    let scratch = Scratch::new("bench-bad");
    let good = written(&scratch, &["- 1 - 16 8 W 0 0 00000000000000aa 900"]);
    let timed = scratch.path("timed.trace");
    fs::write(&timed, "5 1 - 16 8 W 0 0 00000000000000aa 900\n900000000000 2 - 16 8 R 0 0 00000000000000aa 900\n")
        .expect("a trace");
    let bare = scratch.path("bare.csv");
    fs::write(&bare, "version,time,op,size,lbn\n1,5,28,4096,0\n").expect("a trace");
    let disk = scratch.path("disk.img");
    prepare(&good, &disk);
    let flash = create(&scratch, &disk, &[]);
    let cases: [(&[&str], i32, &[&str]); 14] = [
        (&["--trace", "GOOD"], 2, &["--flash", "--nbd"]),
        (&["--trace", "GOOD", "--flash", "FLASH", "--nbd", "nbd://h/x"], 2, &["--flash", "--nbd"]),
        (
            &["--trace", "GOOD", "--flash", "FLASH", "--pace", "trace"],
            1,
            &["request 1 of the trace has no time", "--pace full"],
        ),
        (
            &["--trace", "TIMED", "--flash", "FLASH", "--speed", "10"],
            2,
            &["--speed 10", "--pace trace", "leave --speed out"],
        ),
        (&["--trace", "GOOD", "--flash", "FLASH", "--speed", "0"], 2, &["--speed", "how many times"]),
        (
            &["--trace", "TIMED", "--flash", "FLASH", "--pace", "trace", "--speed", "1e-20"],
            2,
            &["--speed", "from 0.001 to"],
        ),
        (&["--trace", "TIMED", "--flash", "FLASH", "--speed", "inf"], 2, &["--speed", "from 0.001 to 1000000"]),
        (&["--trace", "TIMED", "--flash", "FLASH", "--warmup", "100%"], 1, &["all 2 requests", "--warmup"]),
        (&["--trace", "TIMED", "--flash", "FLASH", "--warmup", "7"], 1, &["all 2 requests", "--warmup"]),
        (&["--trace", "GOOD", "--flash", "FLASH", "--outstanding", "0"], 2, &["--outstanding"]),
        (&["--trace", "GOOD", "--nbd", "nbd://h/x", "--no-read-ahead"], 2, &["--no-read-ahead", "--nbd"]),
        (&["--trace", "GOOD", "--flash", "missing"], 1, &["missing does not exist"]),
        (&["--trace", "BARE", "--flash", "FLASH"], 1, &["says nothing of content", "--content"]),
        (&["--trace", "GOOD", "--nbd", "nbd+unix:///?socket=/no/such/socket"], 1, &["/no/such/socket"]),
    ];
    for (words, code, expected) in cases {
        let word = |word: &&str| match *word {
            "GOOD" => good.display().to_string(),
            "TIMED" => timed.display().to_string(),
            "BARE" => bare.display().to_string(),
            "FLASH" => flash.display().to_string(),
            word => word.to_owned(),
        };
        refused(&ends(bench(&["replay"]).args(words.iter().map(word))), code, expected);
    }
    // A trace for a larger disk.
    let far = written(&scratch, &["- 1 - 1000000 8 W 0 0 00000000000000aa 900"]);
    let out = ends(bench(&["replay", "--trace"]).arg(&far).arg("--flash").arg(&flash));
    refused(&out, 1, &["reaches to byte 512004096", "1048576 bytes"]);
    let out = ends(bench(&["prepare", "--trace"]).arg(&far).arg("--origin").arg(&disk));
    refused(&out, 1, &["has 1048576 bytes", "512004096"]);
    // A disk that could not be prepared leaves nothing behind.
    let cut = scratch.path("cut.trace");
    fs::write(&cut, "- 1 - 16 8 R 0 0 00000000000000aa\n").expect("a trace");
    let new = scratch.path("new.img");
    let out = ends(bench(&["prepare", "--format", "content", "--trace"]).arg(&cut).arg("--origin").arg(&new));
    refused(&out, 1, &["cut.trace", "line 1"]);
    assert!(!new.exists());
}

#[test]
fn a_replay_takes_no_design_and_no_counts_of_a_flash_of_its_own() {
    let scratch = Scratch::new("bench-usage");
    let flash = scratch.path("flash");
    let replay = |words: &[&str]| ends(bench(&["replay", "--trace", "t", "--flash"]).arg(&flash).args(words));
    // A flash with a design takes no other; a command with another one names the remedy.
    refused(&replay(&["--design", "d-lru"]), 2, &["keeps the design that it was created with", "larder create"]);
    // No server has the replayed flash, so that there is none to ask for counts.
    refused(&replay(&["--counts-of", "g"]), 2, &["--counts-of", "--flash"]);
}

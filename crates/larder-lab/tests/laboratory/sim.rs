//! `larder-lab sim`: published traces and the output of other programs, refusals, resumed sweeps.
//!
//! `larder-sim` tests the figures themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{number, sim};
use crate::support::{Scratch, ends, run};
use serde_json::Value;

fn json(command: &mut Command) -> Value {
    let said = run(command.arg("--json"));
    serde_json::from_str(&said).unwrap_or_else(|err| panic!("no JSON: {err}\n{said}"))
}

fn rows(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

/// Returns the folder of traces beside the checkout, or `None` with a printed line.
fn traces(test: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().skip(2).take(2).map(|root| root.join("shared/traces")).find(|path| path.is_dir());
    if found.is_none() {
        println!("skipped: {test} (no folder shared/traces beside the checkout)");
    }
    found
}

fn zipf(scratch: &Scratch) -> PathBuf {
    crate::common::zipf(scratch, "20000", "32M")
}

/// Writes a trace of bare block ids: 0 to 99 over and over, ten times.
fn ids(scratch: &Scratch) -> PathBuf {
    let path = scratch.path("ids.bin");
    let bytes: Vec<u8> = (0..1000u32).flat_map(|n| (n % 100 * 7).to_le_bytes()).collect();
    fs::write(&path, bytes).expect("a file");
    path
}

#[test]
fn a_trace_that_contradicts_itself_has_no_bound() {
    let scratch = Scratch::new("sim-contradicts");
    let path = scratch.path("contradicts.trace");
    // Written blocks are read as other content, and as themselves again.
    let lines = "0 1 t 0 8 W 0 0 93d76fe148c689ba 100\n1 2 t 0 8 R 0 0 99aa06d3014798d8 100\n\
                 2 3 t 0 8 R 0 0 93d76fe148c689ba 100\n";
    fs::write(&path, lines).expect("a file");
    let asked = |command: &str| {
        let mut command = sim(&[command, "--flash", "16M", "--bound", "on", "--design", "lru"]);
        command.arg("--trace").arg(&path);
        command
    };
    let row = json(&mut asked("run"));
    let why = row["bound_withdrawn"].as_str().unwrap_or_else(|| panic!("no reason: {row}"));
    assert!(why.contains("1 read of a chunk finds other content"), "{why}");
    for key in ["bound_read_hit_ratio_upper", "bound_read_hit_ratio_lower", "bound_uncompressed_read_hit_ratio"] {
        assert!(row[key].is_null(), "{key}: {row}");
    }
    for command in ["run", "compare"] {
        let said = run(&mut asked(command));
        assert!(said.contains(why), "{said}");
    }
}

const KEYS: [&str; 19] = [
    "design",
    "trace",
    "mode",
    "chunk_bytes",
    "flash_bytes",
    "requests",
    "reads",
    "writes",
    "read_hit_ratio",
    "write_hit_ratio",
    "total_miss_ratio",
    "flash_bytes_written",
    "flash_metadata_bytes_written",
    "index_ram_bytes",
    "stale_ratio",
    "dedup_ratio",
    "compression_ratio",
    "requests_per_second",
    "write_reduction_ratio",
];

#[test]
fn lru_and_arc_are_what_others_published() {
    let Some(traces) = traces("lru_and_arc_are_what_others_published") else { return };
    let hits = |trace: &str, design: &str, chunks: u32| {
        let (flash, format) = (format!("{chunks}c"), if trace.contains(".lis") { "arc-lis" } else { "block-ids" });
        let words =
            ["run", "--design", design, "--accounting", "paper", "--flash", &flash, "--format", format, "--trace"];
        let row = json(sim(&words).arg(traces.join(trace)));
        (number(&row, "read_hit_ratio"), number(&row, "total_miss_ratio"))
    };
    let oltp = "public/arc-fast03/OLTP.lis.zst";
    for (pages, lru, arc) in [
        (1_000, "32.83", "38.95"),
        (2_000, "42.47", "46.08"),
        (5_000, "53.65", "55.25"),
        (10_000, "60.70", "61.87"),
        (15_000, "64.63", "65.40"),
    ] {
        for (design, published) in [("lru", lru), ("arc", arc)] {
            let found = format!("{:.2}", 100.0 * hits(oltp, design, pages).0);
            assert_eq!(found, published, "{design} of {pages} pages");
        }
    }
    for (trace, pages, lru, arc) in [
        ("public/cloudphysics/w106.trace.xz", 50_000, "0.0666", "0.0676"),
        ("public/arc-fast03/P3.lis.zst", 32_768, "0.9643", "0.8289"),
    ] {
        for (design, published) in [("lru", lru), ("arc", arc)] {
            assert_eq!(format!("{:.4}", hits(trace, design, pages).1), published, "{design} on {trace}");
        }
    }
}

#[test]
fn the_designs_are_near_what_austerecaches_authors_measured() {
    let Some(traces) = traces("the_designs_are_near_what_austerecaches_authors_measured") else { return };
    let trace = traces.join("public/austere-synthetic/syn-rw7to3-dup50.txt.zst");
    let words = ["compare", "--flash", "1024c", "--lba-entries", "4096", "--mode", "write-through"];
    let mut command = sim(&words);
    command.args(["--accounting", "paper"]);
    command.args(["--design", "d-lru,d-arc,austere,austere:compress=off", "--trace"]).arg(trace);
    let list = json(&mut command);
    // Read hits in percent, points by which ours may differ, and megabytes (10^6) of data written.
    // AustereCache's authors leave the order of equals to their sort.
    let published =
        [(64.90, 1.5, Some(3904.0)), (75.69, 1.5, Some(3571.0)), (78.67, 2.0, Some(2086.0)), (68.68, 3.5, None)];
    assert_eq!(rows(&list).len(), published.len());
    for (row, (hits, points, megabytes)) in rows(&list).iter().zip(published) {
        let found = 100.0 * number(row, "read_hit_ratio");
        assert!((found - hits).abs() <= points, "{found:.2}% and not {hits}%: {row}");
        if let Some(megabytes) = megabytes {
            let written = number(row, "flash_bytes_written") / 1e6;
            assert!((written / megabytes - 1.0).abs() <= 0.05, "{written:.0} MB and not {megabytes}: {row}");
        }
        assert_eq!((&row["requests"], &row["chunk_bytes"]), (&163_840.into(), &32_768.into()));
        assert!(number(row, "bound_read_hit_ratio_upper") >= number(row, "read_hit_ratio"));
    }
}

#[test]
fn a_run_says_everything_and_the_same_each_time() {
    let scratch = Scratch::new("sim-run");
    let trace = zipf(&scratch);
    for design in ["lru", "arc", "d-lru", "d-arc", "austere", "nitro"] {
        let replay = || {
            let words = ["run", "--design", design, "--flash", "75%", "--mode", "write-through", "--bound", "on"];
            json(sim(&words).arg("--trace").arg(&trace))
        };
        let mut row = replay();
        for key in KEYS {
            assert!(!row[key].is_null(), "{design} has no {key}: {row}");
        }
        assert_eq!((&row["design"], &row["mode"]), (&design.into(), &"write-through".into()));
        // The chunk is the block of the trace by default.
        assert_eq!((&row["requests"], &row["chunk_bytes"]), (&20_000.into(), &8192.into()));
        assert_eq!(row["content"], "made_up");
        let (hits, bound) = (number(&row, "read_hit_ratio"), number(&row, "bound_read_hit_ratio_upper"));
        assert!(hits > 0.1 && hits <= bound, "{row}");
        let mut again = replay();
        for timed in ["elapsed_seconds", "requests_per_second"] {
            assert!(number(&row, timed) > 0.0);
            row[timed] = Value::Null;
            again[timed] = Value::Null;
        }
        assert_eq!(row, again, "{design}");
        let page = run(sim(&["run", "--design", design, "--flash", "75%", "--trace"]).arg(&trace));
        assert!(page.contains(design) && page.contains("read hit ratio") && page.contains("MADE UP"), "{page}");
    }
}

#[test]
fn an_id_is_a_chunk_whatever_a_chunk_is() {
    let scratch = Scratch::new("sim-ids");
    let ids = ids(&scratch);
    for chunk in ["4K", "128K"] {
        let words =
            ["run", "--design", "d-lru", "--flash", "100c", "--format", "block-ids", "--chunk", chunk, "--trace"];
        let row = json(sim(&words).arg(&ids));
        assert_eq!((&row["requests"], &row["read_hits"]), (&1000.into(), &900.into()), "{row}");
        assert_eq!((number(&row, "dedup_ratio"), &row["content"]), (1.0, &Value::Null));
    }
    // With --unit an id is so many bytes: 7 blocks of 512 bytes are most of a chunk of 4K.
    let words = ["run", "--design", "lru", "--flash", "200c", "--format", "block-ids", "--unit", "512", "--trace"];
    let row = json(sim(&words).arg(&ids));
    assert!(number(&row, "read_hits") > 900.0, "{row}");
    // Requests before the end of the warm-up do not count.
    for warmup in ["100", "10%"] {
        let words =
            ["run", "--design", "lru", "--flash", "100c", "--format", "block-ids", "--warmup", warmup, "--trace"];
        let row = json(sim(&words).arg(&ids));
        assert_eq!(
            (&row["warmup_requests"], &row["requests"], &row["read_hits"]),
            (&100.into(), &900.into(), &900.into())
        );
        assert_eq!(row["flash_bytes_written"], 0);
    }
}

#[test]
fn content_is_put_together_or_made_up_as_it_is_asked_for() {
    let scratch = Scratch::new("sim-content");
    let trace = zipf(&scratch);
    let large = json(sim(&["run", "--design", "d-lru", "--flash", "50%", "--chunk", "32K", "--trace"]).arg(&trace));
    assert_eq!((&large["chunk_bytes"], &large["requests"]), (&32_768.into(), &20_000.into()));
    let ids = ids(&scratch);
    let words =
        ["run", "--design", "austere", "--flash", "256c", "--format", "block-ids", "--chunk", "16K", "--content"];
    let made = json(sim(&words).args(["dup=0.9,compress=3,seed=7", "--trace"]).arg(&ids));
    assert_eq!(made["content"], "made_up");
    assert!(number(&made, "dedup_ratio") > 1.5 && number(&made, "compression_ratio") > 2.0, "{made}");
}

#[test]
fn comparing_puts_designs_side_by_side_in_a_table_a_list_a_file_and_a_chart() {
    let scratch = Scratch::new("sim-compare");
    let trace = zipf(&scratch);
    let (csv, plot) = (scratch.path("it.csv"), scratch.path("it.svg"));
    let words = ["compare", "--design", "lru,arc,nitro,nitro:dedup=off", "--flash", "24M", "--trace"];
    let page = run(sim(&words).arg(&trace).arg("--csv").arg(&csv).arg("--plot").arg(&plot));
    for words in ["lru ", "arc ", "nitro ", "nitro:dedup=off ", "bound, flash 24.0 MiB: at most", "MADE UP"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let csv = fs::read_to_string(csv).expect("a CSV file");
    assert_eq!(csv.lines().count(), 5, "{csv}");
    let columns = csv.lines().next().unwrap_or_default().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
    let svg = fs::read_to_string(plot).expect("a chart");
    for words in ["<svg", "Read hit ratio of each design", "dedup=off", "Read hit ratio (%)", "bound (offline optimum)"]
    {
        assert!(svg.contains(words), "{words}");
    }
    let again = scratch.path("again.csv");
    let list = json(sim(&words).arg(&trace).arg("--csv").arg(&again));
    let lines = fs::read_to_string(again).expect("a CSV file beside the list");
    assert_eq!(lines.lines().count(), 5, "{lines}");
    let names: Vec<&str> = rows(&list).iter().filter_map(|row| row["setup"].as_str()).collect();
    assert_eq!(names, ["lru", "arc", "nitro", "nitro:dedup=off"]);
    for row in rows(&list) {
        assert!(KEYS.iter().all(|key| !row[key].is_null()), "{row}");
        assert!(number(row, "bound_read_hit_ratio_lower") <= number(row, "bound_read_hit_ratio_upper"));
    }
    assert!(number(&rows(&list)[3], "dedup_ratio") == 1.0 && number(&rows(&list)[2], "dedup_ratio") > 1.0);
    // If no design is named all are compared, and impossible ones are reported.
    let out = ends(sim(&["compare", "--flash", "3M", "--bound", "off", "--trace"]).arg(&trace));
    let (said, told) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && told.contains("nitro on 3M is left out"), "{told}");
    assert!(said.contains("d-arc ") && !said.contains("nitro") && !said.contains("bound"), "{said}");
    let list = json(sim(&["compare", "--flash", "16M", "--bound", "off", "--trace"]).arg(&trace));
    let names: Vec<&str> = rows(&list).iter().filter_map(|row| row["setup"].as_str()).collect();
    assert_eq!(names[..2], ["larder", "lru"], "{names:?}");
}

/// Returns the rows without their times.
fn timeless(list: &Value) -> Vec<Value> {
    let mut rows = rows(list).clone();
    for row in &mut rows {
        row["elapsed_seconds"] = Value::Null;
        row["requests_per_second"] = Value::Null;
    }
    rows
}

#[test]
fn a_sweep_goes_on_where_it_was_cut_off() {
    let scratch = Scratch::new("sim-sweep");
    let trace = zipf(&scratch);
    let file = scratch.path("it.sweep");
    let sweep = |flash: &str| {
        let mut command = sim(&["sweep", "--design", "lru,austere", "--flash", flash, "--ram", "512K,1M", "--trace"]);
        command.arg(&trace).arg("-o").arg(&file);
        command
    };
    let first = json(&mut sweep("10%,50%"));
    assert_eq!(rows(&first).len(), 8);
    let whole = fs::read(&file).expect("the file of the sweep");
    assert_eq!(whole.iter().filter(|byte| **byte == b'\n').count(), 9, "a head and eight replays");
    // A cut at any place gives the same result.
    for share in [0, 3, 40, 75, 99] {
        fs::write(&file, &whole[..whole.len() * share / 100]).expect("a file");
        assert_eq!(timeless(&json(&mut sweep("10%,50%"))), timeless(&first), "cut to {share}%");
    }
    // Finished work is not repeated: the report follows the file.
    let text = String::from_utf8(whole).expect("text");
    let marked = text.replace("\"requests\":20000", "\"requests\":20001");
    assert_eq!(marked.matches("20001").count(), 8);
    fs::write(&file, marked).expect("a file");
    let more = json(&mut sweep("10%,20%,50%"));
    let requests: Vec<f64> = rows(&more).iter().map(|row| number(row, "requests")).collect();
    assert_eq!(requests.iter().filter(|requests| **requests == 20_001.0).count(), 8, "{requests:?}");
    assert_eq!(requests[4..8], [20_000.0; 4], "in the order of the sizes");

    // Other sweeps, and other files, are not touched.
    let before = fs::read(&file).expect("the file of the sweep");
    let words = ["sweep", "--design", "lru", "--flash", "10%", "--warmup", "5", "--trace"];
    refused(sim(&words).arg(&trace).arg("-o").arg(&file), 1, &["it.sweep", "another sweep", "warmup"]);
    let words = ["sweep", "--design", "lru", "--flash", "10%", "--trace"];
    refused(sim(&words).arg(&trace).arg("-o").arg(&trace), 1, &["zipf", "line 1", "head of a sweep"]);
    let ids = ids(&scratch);
    refused(sim(&words).arg(&ids).args(["--format", "block-ids", "-o"]).arg(&file), 1, &["it.sweep", "another sweep"]);
    assert_eq!(fs::read(&file).expect("the file of the sweep"), before);
}

#[test]
fn a_sweep_goes_along_sizes_budgets_and_options() {
    let scratch = Scratch::new("sim-grid");
    let trace = zipf(&scratch);
    let (file, plot) = (scratch.path("it.sweep"), scratch.path("it.svg"));
    let mut command = sim(&["sweep", "--design", "lru,austere", "--flash", "8M", "--vary", "subchunk=1K,2K,4K"]);
    command.args(["--accounting", "paper"]);
    command.args(["--vary", "mode=write-back,write-through", "--threads", "2", "--metric", "flash_bytes_written"]);
    let list = json(command.arg("--trace").arg(&trace).arg("-o").arg(&file).arg("--plot").arg(&plot));
    let names: Vec<String> =
        rows(&list).iter().map(|row| format!("{} {}", row["setup"], row["mode"]).replace('"', "")).collect();
    // A parameter that a design does not have makes no replay of its own.
    assert_eq!(names.len(), 2 + 6, "{names:?}");
    assert!(names.contains(&"lru:accounting=paper write-back".to_owned()), "{names:?}");
    assert!(names.contains(&"austere:subchunk=4K:accounting=paper write-through".to_owned()), "{names:?}");
    let svg = fs::read_to_string(plot).expect("a chart");
    for words in ["Data written to flash by subchunk size", "Subchunk size (KiB)", "austere:mode=write-back"] {
        assert!(svg.contains(words), "{words}: {svg}");
    }
    // Designs without subchunks are drawn all the same, in two modes.
    let said: String = svg.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let level = said.matches("lru:mode=write-").count();
    assert_eq!((level, said.matches("(has no").count()), (2, 2), "{svg}");
    // Chunk sizes are replayed each in its own pass.
    let mut command =
        sim(&["sweep", "--design", "d-lru", "--flash", "10%,20%", "--vary", "chunk=8K,16K", "--csv", "-"]);
    let csv = run(command.arg("--trace").arg(&trace).arg("-o").arg(scratch.path("chunks.sweep")));
    assert_eq!((csv.lines().count(), csv.matches(",16384,").count()), (5, 2), "{csv}");
}

/// Checks that the command fails with this code and one sentence with these words.
fn refused(command: &mut Command, code: i32, words: &[&str]) {
    let out = ends(command);
    let (said, complaint) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(code), "{command:?}: {complaint}");
    assert_eq!(said, "", "{command:?} speaks of success");
    let sentence = complaint.trim_end();
    assert!(sentence.starts_with("larder-lab: ") && !sentence.contains('\n') && sentence.len() < 500, "{complaint}");
    let lower = sentence.to_lowercase();
    for word in words {
        assert!(lower.contains(&word.to_lowercase()), "{command:?} does not say {word:?}: {sentence}");
    }
    for rubbish in ["panicked", "os error", "Some(", "{"] {
        assert!(!sentence.contains(rubbish), "{command:?}: {sentence}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_could() {
    let scratch = Scratch::new("sim-refused");
    let trace = zipf(&scratch);
    let run = |words: &[&str]| {
        let mut command = sim(&["run"]);
        command.args(words).arg("--trace").arg(&trace);
        command
    };
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["--design", "nope", "--flash", "1M"], 2, &["--design nope", "there are larder, lru, arc"]),
        (&["--design", "lru"], 2, &["--flash"]),
        (&["--design", "lru", "--flash", "0"], 2, &["--flash 0", "above 0"]),
        (&["--design", "lru", "--flash", "5000x"], 2, &["--flash 5000x", "5000c", "10%"]),
        (&["--design", "lru", "--flash", "1M", "--ram", "0"], 2, &["--ram 0"]),
        (&["--design", "lru", "--flash", "1M", "--chunk", "0"], 2, &["--chunk 0", "4K to 128K"]),
        (&["--design", "lru", "--flash", "1M", "--warmup", "120%"], 2, &["--warmup 120%"]),
        (&["--design", "lru", "--flash", "1M", "--mode", "back"], 2, &["--mode back", "write-through"]),
        (&["--design", "lru:colour=red", "--flash", "1M"], 2, &["colour", "fp-index"]),
        (
            &["--design", "lru", "--flash", "1M", "--subchunk", "1K"],
            2,
            &["lru has no option --subchunk", "take austere"],
        ),
        (
            &["--design", "lru", "--flash", "1M", "--compress", "on"],
            2,
            &["lru has no compression", "take larder, austere, nitro, cd-arc"],
        ),
        (&["--design", "d-lru", "--flash", "1M", "--compress", "on"], 2, &["d-lru", "no compression"]),
        (
            &["--design", "d-arc", "--flash", "1M", "--dedup", "off"],
            2,
            &["d-arc", "without deduplication", "take lru, arc, nitro"],
        ),
        (
            &["--design", "arc", "--flash", "1M", "--dedup", "on"],
            2,
            &["arc", "no deduplication", "take larder, d-lru, d-arc, austere, nitro, cd-arc"],
        ),
        (&["--design", "austere", "--flash", "8M", "--subchunk", "1K"], 2, &["--subchunk", "--accounting paper"]),
        (
            &["--design", "austere", "--accounting", "paper", "--flash", "8M", "--subchunk", "3K"],
            1,
            &["subchunks", "3072"],
        ),
        (&["--design", "nitro", "--flash", "64M", "--accounting", "paper"], 2, &["--accounting", "take lru, arc"]),
        (&["--design", "nitro", "--flash", "64M", "--granularity", "extent", "--weu", "1M"], 1, &["--weu"]),
        (&["--design", "lru", "--flash", "100"], 1, &["lru: a flash of", "is too small;", "is the least"]),
        (&["--design", "lru", "--flash", "0.0001%"], 1, &["lru: a flash of", "is too small;", "is the least"]),
        (
            &["--design", "austere", "--accounting", "paper", "--flash", "2c"],
            1,
            &["austere: 2 data chunks are too few", "64 are the least"],
        ),
        (&["--design", "lru", "--flash", "2c"], 1, &["lru: 2 data chunks are too few", "3 are the least"]),
        (&["--design", "nitro", "--flash", "1M"], 1, &["nitro: a flash of 1M is too small; 16M is the least"]),
        (&["--design", "nitro", "--flash", "100c"], 1, &["WEUs", "513 are the least"]),
        (
            &["--design", "nitro", "--flash", "64M", "--ram", "1K"],
            1,
            &["RAM budget of 1K is too small", "is the least"],
        ),
        (
            &["--design", "d-arc", "--flash", "64M", "--ram", "100"],
            1,
            &["RAM budget of 100 bytes is too small", "is the least"],
        ),
        (
            &["--design", "austere", "--flash", "64M", "--ram", "100"],
            1,
            &["RAM budget of 100 bytes is too small", "is the least"],
        ),
        (
            &["--design", "d-arc", "--accounting", "paper", "--flash", "64M", "--lba-entries", "9"],
            1,
            &["d-arc: 9 metadata entries are too few", "the least"],
        ),
        (&["--design", "d-lru", "--flash", "1M", "--chunk", "4K"], 1, &["chunks of 4096 bytes", "8192"]),
    ];
    for (words, code, expected) in cases {
        refused(&mut run(words), *code, expected);
    }
    let compare = |words: &[&str]| {
        let mut command = sim(&["compare"]);
        command.args(words).arg("--trace").arg(&trace);
        command
    };
    refused(
        &mut compare(&["--design", "lru,arc", "--flash", "1M", "--subchunk", "1K"]),
        2,
        &["none of lru, arc", "--subchunk"],
    );
    refused(&mut compare(&["--design", "lru,nitro", "--flash", "1M"]), 1, &["nitro", "16M is the least"]);
    refused(&mut compare(&["--design", "lru:subchunk=1K", "--flash", "1M"]), 2, &["lru", "no option --subchunk"]);
    refused(&mut compare(&["--flash", "1M", "--plot", "it.png"]), 2, &["it.png", ".svg"]);
    refused(&mut compare(&["--flash", "1M", "--json", "--csv", "-"]), 2, &["--json and --csv -", "standard output"]);
    refused(&mut compare(&["--flash", "1M", "--metric", "beauty"]), 2, &["--metric beauty", "read_hit_ratio"]);
    let file = scratch.path("it.sweep");
    let sweep = |words: &[&str]| {
        let mut command = sim(&["sweep"]);
        command.args(words).arg("-o").arg(&file).arg("--trace").arg(&trace);
        command
    };
    refused(&mut sweep(&["--flash", "1M", "--vary", "flash=2M"]), 2, &["--vary flash=2M", "--flash 2M"]);
    refused(&mut sweep(&["--flash", "1M", "--design", "lru", "--vary", "weu=1M"]), 2, &["--vary weu", "none of lru"]);
    refused(&mut sweep(&["--flash", "1M", "--vary", "subchunk=0"]), 2, &["subchunk"]);
    // If one of several caches is impossible, none is replayed.
    let words = ["--flash", "100K", "--design", "lru", "--accounting", "paper", "--vary", "chunk=8K,128K"];
    refused(&mut sweep(&words), 1, &["lru", "is too small; 135168 bytes is the least"]);
    assert!(!file.exists(), "nothing is left");
    refused(&mut sim(&["sweep", "--flash", "1M", "--trace", "x"]), 2, &["--output"]);
    refused(&mut sim(&[]), 2, &["run, compare, sweep, designs, profiles, ftls or origins"]);
}

#[test]
fn a_bad_trace_is_refused_with_file_and_line_or_passed_over() {
    let scratch = Scratch::new("sim-bad");
    let good = "5 1 t 0 8 R 0 0 000000000000000a 100\n";
    let write = |name: &str, text: &str| {
        fs::write(scratch.path(name), text).expect("a file");
        scratch.path(name)
    };
    let cases = [
        (scratch.path("absent"), vec!["absent", "no such file"]),
        (write("empty", ""), vec!["empty"]),
        (write("prose", "Once upon a time there was a cache that slept.\n"), vec!["prose", "no format fits"]),
        (write("line", &format!("{}2 2 t x 8 R 0 0 0a 1\n", good.repeat(3))), vec!["line, line 4", "sectors"]),
        (write("zero", &format!("{good}{good}2 2 t 0 0 R 0 0 - -\n")), vec!["zero, line 3", "above 0"]),
        (write("far", &format!("{good}2 2 t 99999999999999999 8 R 0 0 - -\n")), vec!["far, line 2", "largest address"]),
        (write("cut", &format!("{good}2 2 t 8 8 R 0")), vec!["cut", "line 2", "middle of a line"]),
    ];
    for (path, words) in &cases {
        for flash in ["1M", "50%"] {
            refused(sim(&["run", "--design", "lru", "--flash", flash, "--trace"]).arg(path), 1, words);
        }
        let file = scratch.path("it.sweep");
        refused(sim(&["compare", "--design", "lru,arc", "--flash", "1M", "--trace"]).arg(path), 1, words);
        refused(
            sim(&["sweep", "--design", "lru", "--flash", "1M", "--trace"]).arg(path).arg("-o").arg(&file),
            1,
            words,
        );
        assert!(!file.exists(), "{words:?}: nothing is left");
    }
    // Passed over and counted; times that step back are counted and replayed as they stand.
    let back = write("back", &format!("{good}1 2 t 8 8 W 0 0 000000000000000b 100\nrubbish\n{good}"));
    let words = ["run", "--design", "d-lru", "--flash", "1M", "--skip-bad", "--json", "--trace"];
    let out = ends(sim(&words).arg(&back));
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && told.contains("1 bad lines") && told.contains("line 3"), "{told}");
    let row: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((&row["lines_skipped"], &row["back_steps"]), (&1.into(), &1.into()), "{row}");
    assert_eq!((&row["requests"], &row["reads"], &row["read_hits"]), (&3.into(), &2.into(), &1.into()), "{row}");
}

#[test]
fn the_designs_are_named_with_their_options() {
    let page = run(&mut sim(&["designs"]));
    for words in ["lru ", "arc ", "d-lru ", "d-arc ", "austere ", "nitro ", "with --accounting paper: subchunk"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    for command in ["run", "compare", "sweep"] {
        let help = run(&mut sim(&[command, "--help"]));
        assert!(help.contains("Examples:") && help.contains("--flash"), "{help}");
    }
}

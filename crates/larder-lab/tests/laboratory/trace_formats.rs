//! Formats of traces on the command line. Each goes through `info`, `convert` and `sim run`. A file
//! that does not name its format is refused, with the formats that fit. The caller may name
//! columns. A request of a content trace is one line of csv.
//!
//! `larder-trace` tests the content of lines and records.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::lab;
use crate::support::{Scratch, ends, run};
use serde_json::Value;

/// The samples of `larder-trace`, with the requests that each has: reads, writes, flushes.
const SAMPLES: [(&str, &str, [u64; 3]); 6] = [
    ("commands.vscsi1", "vscsi1", [2, 1, 1]),
    ("commands.vscsi2", "vscsi2", [1, 1, 0]),
    ("alibaba.csv", "alibaba", [2, 1, 0]),
    ("tencent.csv", "tencent", [2, 1, 0]),
    ("systor17.csv", "systor17", [1, 2, 0]),
    ("umass.spc", "spc", [2, 1, 0]),
];

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../larder-trace/tests/fixtures").join(name)
}

fn command(words: &[&str], path: &Path, more: &[&str]) -> Command {
    let mut command = lab(words.iter().copied());
    command.arg(path).args(more);
    command
}

fn json(command: &mut Command) -> Value {
    let said = run(command);
    serde_json::from_str(&said).unwrap_or_else(|err| panic!("no JSON object: {err}\n{said}"))
}

fn info(path: &Path, how: &[&str]) -> Value {
    json(&mut command(&["trace", "info", "--json"], path, how))
}

fn convert(path: &Path, how: &[&str], to: &Path) {
    let to = to.display().to_string();
    run(&mut command(&["trace", "convert"], path, &[how, &["--force", "-o", &to]].concat()));
}

/// Returns the reads, writes and flushes of a trace without content: requests, by their sizes.
fn counts(info: &Value) -> [u64; 3] {
    let of = |key: &str| info[key]["requests"].as_u64().unwrap_or_else(|| panic!("no {key}: {info}"));
    [of("read_sizes"), of("write_sizes"), info["flushes"].as_u64().expect("a number")]
}

/// Returns the refusal of a file.
///
/// Every command that reads traces prints the same sentence, and does nothing.
fn refusals(path: &Path, how: &[&str], to: &Path) -> String {
    let out = to.display().to_string();
    let mut all = [
        command(&["trace", "info"], path, how),
        command(&["trace", "convert"], path, &[how, &["--to", "csv", "-o", &out]].concat()),
        command(&["sim", "run", "--design", "lru", "--flash", "1000c", "--trace"], path, how),
        command(&["sim", "compare", "--design", "lru,arc", "--flash", "1000c", "--trace"], path, how),
    ];
    let said = all.each_mut().map(|command| {
        let ended = ends(command);
        let complaint = String::from_utf8_lossy(&ended.stderr).trim_end().to_owned();
        assert_eq!((ended.status.code(), ended.stdout.len()), (Some(1), 0), "{command:?}: {complaint}");
        assert!(complaint.starts_with("larder-lab: ") && complaint.lines().count() == 1, "{command:?}: {complaint}");
        complaint
    });
    assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
    assert!(!to.exists());
    said[0].clone()
}

#[test]
fn each_format_is_counted_converted_and_replayed() {
    let scratch = Scratch::new("formats");
    for (name, format, expected) in SAMPLES {
        let path = sample(name);
        let told = info(&path, &["--format", format]);
        assert_eq!((&told["format"], counts(&told)), (&format.into(), expected), "{told}");
        let csv = scratch.path("csv");
        convert(&path, &["--format", format, "--to", "csv"], &csv);
        let again = info(&csv, &[]);
        assert_eq!((&again["format"], counts(&again)), (&"csv".into(), expected), "{name}: {again}");
        assert_eq!(again["end_bytes"], told["end_bytes"], "{name}");
        let words = ["sim", "run", "--json", "--design", "lru", "--flash", "1000c", "--mode", "write-back", "--trace"];
        let row = json(&mut command(&words, &path, &["--format", format]));
        assert!(row["reads"].as_u64().is_some_and(|reads| reads >= expected[0]), "{name}: {row}");
    }
}

#[test]
fn what_does_not_say_which_format_it_has_is_refused_with_those_that_fit() {
    let scratch = Scratch::new("cannot-tell");
    let out = scratch.path("out");
    for (name, format, _) in SAMPLES {
        if format == "systor17" {
            assert_eq!(info(&sample(name), &[])["format"], format, "its header names its columns");
            continue;
        }
        let said = refusals(&sample(name), &[], &out);
        assert!(said.contains("cannot tell the format") && said.contains(&format!("--format {format}")), "{said}");
    }
    // Times so small that all words could be numbers of blocks.
    let records = (0..200u32).flat_map(|at| [at, 4096, 1, 0x0100_0028, at * 8, 0, at * 50, 0]);
    let small = scratch.path("small-times");
    fs::write(&small, records.flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).expect("a file");
    let said = refusals(&small, &[], &out);
    assert!(said.contains("--format vscsi1 or --format block-ids"), "{said}");
    assert_eq!(counts(&info(&small, &["--format", "vscsi1"])), [200, 0, 0]);
    // Text whose every other byte is a zero.
    let utf16 = scratch.path("utf16.csv");
    let text = "\u{feff}time,op,size,lbn\r\n1,R,4096,8\r\n2,W,4096,16\r\n";
    fs::write(&utf16, text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).expect("a file");
    for how in [&[][..], &["--format", "csv"]] {
        let said = refusals(&utf16, how, &out);
        assert!(said.contains("found text in UTF-16: write it as UTF-8 first"), "{said}");
    }
    let archive = scratch.path("traces.tar.gz");
    run(Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(sample("")).arg("alibaba.csv"));
    for how in [&[][..], &["--format", "alibaba"], &["--format", "block-ids"]] {
        let said = refusals(&archive, how, &out);
        assert!(said.contains("found a tar archive, packed with gzip: unpack it (tar -xf)"), "{said}");
    }
}

#[test]
fn columns_are_named_in_place_of_a_format() {
    let scratch = Scratch::new("columns");
    let columns = ["--columns", "time=1:us,op=2,offset=3:bytes,length=4:bytes,device=5"];
    let rows = "1000,W,0,8192,a\n2000,R,0,4096,a\n# idle\n3000,R,8192,4096,b\n";
    for (name, head) in [("bare", ""), ("headed", "# mine\nt,op,off,len,dev\n")] {
        let path = scratch.path(name);
        fs::write(&path, format!("{head}{rows}")).expect("a file");
        let told = info(&path, &columns);
        assert_eq!(
            (counts(&told), &told["format"], &told["duration_us"]),
            ([2, 1, 0], &"columns".into(), &2000.into())
        );
        let csv = scratch.path("csv");
        convert(&path, &[&columns[..], &["--to", "csv"]].concat(), &csv);
        assert_eq!(counts(&info(&csv, &[])), [2, 1, 0]);
        let words = ["sim", "run", "--json", "--design", "lru", "--flash", "1000c", "--mode", "write-back", "--trace"];
        let row = json(&mut command(&words, &path, &columns));
        assert_eq!((row["reads"].as_u64(), row["read_hits"].as_u64()), (Some(2), Some(1)), "{row}");
    }
    let path = scratch.path("bare");
    for (text, told) in [
        ("time=1,offset=3:bytes,length=4:bytes", "time needs a unit: s, ms, us or ns"),
        ("offset=3,length=4:bytes", "offset needs a unit: bytes, sectors"),
        ("op=2:0,offset=3:sectors", "read0 (0 reads, 1 writes)"),
    ] {
        let ended = ends(&mut command(&["trace", "info"], &path, &["--columns", text]));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(2) && said.contains(told), "{said}");
    }
    let both = ends(&mut command(&["trace", "info"], &path, &[&columns[..], &["--format", "csv"]].concat()));
    assert_eq!(both.status.code(), Some(2), "a format and columns");
    let said = refusals(&path, &["--columns", "op=5,offset=3:bytes,length=4:bytes"], &scratch.path("out"));
    assert!(said.contains("line 1: expected a word in the column of the operation"), "{said}");
}

#[test]
fn a_request_of_a_content_trace_is_one_line_of_csv() {
    let scratch = Scratch::new("whole");
    let path = scratch.path("content");
    let line = |request: u64, op: &str, block: u64| {
        format!("{request}00 {request} t {} 8 {op} 0 0 {block:016x} 1000\n", block * 8)
    };
    // A request of three blocks, one of two that do not lie end to end, and one of one.
    let lines =
        [line(1, "W", 0), line(1, "W", 1), line(1, "W", 2), line(2, "R", 8), line(2, "R", 10), line(3, "R", 11)];
    fs::write(&path, lines.concat() + "400 4 t 0 0 F 0 0 0 0\n").expect("a trace");
    let csv = scratch.path("csv");
    convert(&path, &["--to", "csv"], &csv);
    let expected = "version,time,op,size,lbn\n1,0.000100,2a,12288,0\n1,0.000200,28,4096,64\n1,0.000200,28,4096,80\n\
                    1,0.000300,28,4096,88\n1,0.000400,35,0,0\n";
    assert_eq!(fs::read_to_string(&csv).expect("a file"), expected);
    // With `--chunk`, chunks stay chunks.
    convert(&path, &["--to", "csv", "--chunk", "8K"], &csv);
    let text = fs::read_to_string(&csv).expect("a file");
    assert_eq!(text.lines().filter(|line| line.contains(",2a,")).count(), 2, "{text}");
    // A generated trace has requests of several blocks, too.
    let made = scratch.path("made");
    run(lab(["trace", "generate", "boot-storm", "--scale", "0.02", "--vms", "2", "--to", "csv", "-o"]).arg(&made));
    let whole = info(&made, &[]);
    run(lab(["trace", "generate", "boot-storm", "--scale", "0.02", "--vms", "2", "--force", "-o"]).arg(&made));
    let blocks = info(&made, &[]);
    assert_eq!((&whole["requests"], &whole["read_blocks"]), (&blocks["requests"], &blocks["read_blocks"]));
}

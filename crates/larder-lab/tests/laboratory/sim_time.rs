//! `larder-lab sim … --origin`: modelled time in each form of report, at either pace; refusals.
//!
//! `larder-sim` tests the figures themselves.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{list, number, sim};
use crate::support::{Scratch, ends, run};

fn zipf(scratch: &Scratch) -> PathBuf {
    crate::common::zipf(scratch, "4000", "32M")
}

/// Writes a trace in MSR's format, a read of 8 KiB each 20 ms, to and fro over 4 MiB.
fn with_times(scratch: &Scratch) -> PathBuf {
    let path = scratch.path("reads.csv");
    let line =
        |n: u64| format!("{},usr,0,Read,{},8192,0\n", 128_166_372_000_000_000 + n * 200_000, n * 37 % 512 * 8192);
    let header = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n".to_owned();
    fs::write(&path, header + &(0..1500).map(line).collect::<String>()).expect("written");
    path
}

fn compare(trace: &Path, words: &[&str]) -> Command {
    let mut command = sim(&["compare", "--design", "lru,nitro", "--flash", "24M", "--bound", "off", "--trace"]);
    command.arg(trace).args(["--ssd", "nitro-mlc"]).args(words);
    command
}

#[test]
fn time_is_in_a_table_a_list_a_file_and_a_chart() {
    let scratch = Scratch::new("sim-time");
    let trace = zipf(&scratch);
    let (csv, plot) = (scratch.path("it.csv"), scratch.path("it.svg"));
    let words = ["--origin", "raid5-7200", "--outstanding", "4", "--metric", "time_read_mean_us"];
    let page = run(compare(&trace, &words).arg("--csv").arg(&csv).arg("--plot").arg(&plot));
    for words in ["origin raid5-7200", "outstanding 4", "IOPS", "busy %"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let rows = list(&mut compare(&trace, &words));
    let bare = list(&mut compare(&trace, &[]));
    for (row, bare) in rows.iter().zip(&bare) {
        let number = |key: &str| number(row, key);
        assert_eq!(number("time_reads") + number("time_writes"), 4000.0);
        assert!(number("time_iops") > 0.0 && number("time_read_p99_us") >= number("time_read_p50_us"), "{row}");
        for kind in ["ssd_read", "ssd_write"] {
            let [mean, half, most] = ["mean", "p50", "max"].map(|what| number(&format!("time_{kind}_{what}_us")));
            assert!(number(&format!("time_{kind}s")) > 0.0 && half <= most && mean <= most, "{row}");
            let tail = ["p50", "p95", "p99", "max"].map(|what| number(&format!("time_{kind}_{what}_us")));
            assert!(tail.is_sorted() && tail[0] > 0.0, "{row}");
        }
        assert!(number("time_ssd_read_max_us") <= number("time_read_max_us"), "a client waits for the drive: {row}");
        // Data in the drive's buffer at the end was written, and is not programmed.
        let amplified = number("time_ssd_write_amplification");
        assert!((0.5..2.0).contains(&amplified), "{row}");
        assert!(number("time_origin_busy_ratio") > 0.0 && number("time_origin_busy_ratio") <= 1.0, "{row}");
        assert_eq!((&row["time_pace"], &row["time_origin"]), (&"full".into(), &"raid5-7200".into()));
        assert_eq!((&row["read_hits"], &row["ssd_erasures"]), (&bare["read_hits"], &bare["ssd_erasures"]));
        assert_eq!(row["ssd_blocks"], bare["ssd_blocks"], "time is that of the drive whose erasures are counted");
        assert!(bare.get("time_iops").is_none(), "without an origin a row has none of its keys");
    }
    let csv = fs::read_to_string(csv).expect("a CSV file");
    assert!(csv.lines().next().is_some_and(|head| head.contains(",time_iops,")), "{csv}");
    assert!(csv.lines().skip(1).all(|line| line.contains(",raid5-7200,full,4,")) && csv.lines().count() == 3, "{csv}");
    assert!(fs::read_to_string(plot).expect("a chart").contains("Read response time"));
}

#[test]
fn a_trace_has_its_own_pace_if_it_has_times() {
    let scratch = Scratch::new("sim-time-pace");
    let trace = with_times(&scratch);
    let rows = list(&mut compare(&trace, &["--chunk", "8K", "--origin", "hdd-7200", "--pace", "own"]));
    for row in &rows {
        let number = |key: &str| number(row, key);
        // 1,500 reads, one each 20 ms, which a disk can follow.
        let seconds = number("time_elapsed_seconds");
        assert!((29.9..30.1).contains(&seconds), "{seconds}");
        assert!(row["time_outstanding"].is_null() && number("time_read_max_us") < 30_000.0, "{row}");
        assert!(number("time_read_p50_us") < 1000.0, "two of three reads hit: {row}");
    }
    let words = ["run", "--design", "nitro", "--flash", "24M", "--ssd", "nitro-mlc", "--origin", "hdd-7200", "--trace"];
    let page = run(sim(&words).arg(&trace));
    assert!(page.contains("at full load, 16 outstanding, MODELLED") && page.contains("time: reads"), "{page}");
}

#[test]
fn each_layer_has_a_time() {
    let scratch = Scratch::new("sim-time-layers");
    let trace = zipf(&scratch);
    let layers = "page,hybrid,caftl,flashtier-lru,weu";
    let rows_in = |mode: &str| {
        let rows = list(&mut compare(&trace, &["--mode", mode, "--ftl", layers, "--origin", "nvme-ssd"]));
        assert_eq!(rows.len(), 10, "{mode}");
        rows
    };
    let (through, back) = (rows_in("write-through"), rows_in("write-back"));
    crate::support::is_told_in("LAB.md", &back[0]);
    for (rows, row) in through.iter().map(|row| (&through, row)).chain(back.iter().map(|row| (&back, row))) {
        assert_eq!(number(row, "time_reads") + number(row, "time_writes"), 4000.0, "{row}");
        assert!(number(row, "time_iops") > 0.0 && number(row, "time_ssd_write_amplification") > 0.0, "{row}");
        assert_eq!(row["ssd_block_bytes"], rows[0]["ssd_block_bytes"], "side by side, blocks are equal: {row}");
    }
}

#[test]
fn a_sweep_has_time_and_keeps_it_apart_from_another() {
    let scratch = Scratch::new("sim-time-sweep");
    let trace = zipf(&scratch);
    let (file, plot, csv) = (scratch.path("it.sweep"), scratch.path("it.svg"), scratch.path("it.csv"));
    let sweep = |flash: &str, words: &[&str]| {
        let mut command = sim(&["sweep", "--design", "lru,nitro", "--flash", flash, "--bound", "off", "--trace"]);
        command.arg(&trace).arg("-o").arg(&file).args(["--ssd", "nitro-mlc"]).args(words);
        command
    };
    let origin = ["--origin", "raid5-7200", "--outstanding", "4"];
    let first = list(&mut sweep("16M", &origin));
    let noted = fs::read_to_string(&file).expect("a file");
    let rows =
        list(sweep("16M,24M", &origin).args(["--metric", "time_iops"]).arg("--plot").arg(&plot).arg("--csv").arg(&csv));
    assert_eq!((rows.len(), &rows[..2]), (4, &first[..]), "what was timed is not timed again");
    assert!(fs::read_to_string(&file).expect("a file").starts_with(&noted), "it is gone on with");
    for row in &rows {
        assert!(number(row, "time_iops") > 0.0 && row["time_outstanding"] == 4, "{row}");
    }
    assert!(fs::read_to_string(plot).expect("a chart").contains("Reads and writes a second"));
    assert!(
        fs::read_to_string(csv).expect("a CSV file").lines().skip(1).all(|line| line.contains(",raid5-7200,full,4,"))
    );
    let (other, pace) = (["--origin", "hdd-7200", "--outstanding", "4"], ["--origin", "raid5-7200"]);
    for words in [&other[..], &pace, &[]] {
        let out = ends(&mut sweep("16M", words));
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && told.contains("is the file of another sweep"), "{words:?}: {told}");
        assert!(!told.contains('{'), "the numbers of an origin are no words: {told}");
    }
    // A sweep that is refused leaves no file.
    fs::remove_file(&file).expect("removed");
    let out = ends(&mut sweep("16M", &["--origin", "raid5-7200", "--pace", "own"]));
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && told.contains("the trace has no times") && !file.exists(), "{told}");
    let out = ends(&mut sweep("16M", &["--metric", "time_iops"]));
    assert!(String::from_utf8_lossy(&out.stderr).contains("--origin PROFILE"));
}

#[test]
fn what_has_no_time_is_refused_in_a_sentence() {
    let scratch = Scratch::new("sim-time-refusals");
    let trace = zipf(&scratch);
    for (words, sentence) in [
        (&["--ssd", "nitro-mlc", "--origin", "tape"][..], "there are hdd-7200"),
        (&["--origin", "hdd-7200"], "--ssd"),
        (&["--ssd", "nitro-mlc", "--pace", "own"], "--origin"),
        (
            &["--ssd", "nitro-mlc:read_ns=0", "--origin", "hdd-7200"],
            "read_ns is 0, but has to be a whole number from 1",
        ),
        (&["--ssd", "nitro-mlc:buffer_bytes=0", "--origin", "hdd-7200"], "buffer_bytes is 0, but has to be"),
        (&["--ssd", "nitro-mlc", "--origin", "hdd-7200", "--pace", "own"], "the trace has no times"),
        (
            &["--ssd", "nitro-mlc", "--origin", "hdd-7200", "--pace", "own", "--outstanding", "3"],
            "leave --outstanding away",
        ),
        (&["--ssd", "nitro-mlc", "--metric", "time_iops"], "--origin PROFILE"),
    ] {
        let words_before = ["compare", "--design", "lru", "--flash", "24M", "--trace"];
        let out = ends(sim(&words_before).arg(&trace).args(words));
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && out.stdout.is_empty(), "{words:?}");
        assert!(told.contains(sentence) && told.trim().lines().count() == 1, "{words:?}: {told}");
    }
    let page = run(&mut sim(&["origins"]));
    assert!(page.contains("raid6-7200") && page.contains("network") && page.lines().count() == 6, "{page}");
}

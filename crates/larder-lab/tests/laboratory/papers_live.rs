//! `larder-lab paper`: the experiments that run the engine's caches on devices timed like media.
//!
//! It runs them at sizes so small that their figures mean nothing, and checks the relations that
//! hold at any size. Parts that take real time run without a check: it asserts no figure of a real
//! clock.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::lab;
use crate::support::{Scratch, ends, run};
use serde_json::Value;

/// The experiments on devices, each with a scale at which it takes seconds.
const SCALES: [(&str, &str); 11] = [
    ("nitro-table2", "0.0002"),
    ("nitro-fig7", "0.00002"),
    ("nitro-fig8", "0.0005"),
    ("cachededup-fig5", "0.0001"),
    ("cachededup-fig8-latency", "0.0005"),
    ("cachededup-fig10", "0.00001"),
    ("cachededup-fig11", "0.00001"),
    ("austere-fig11", "0.005"),
    ("austere-fig12", "0.0005"),
    ("austere-fig13", "0.003"),
    ("clock", "0.01"),
];

fn paper(words: &[&str]) -> Command {
    let mut command = lab(["paper"]);
    command.args(words);
    command
}

fn json(command: &mut Command) -> Value {
    let said = run(command.arg("--json"));
    serde_json::from_str(&said).unwrap_or_else(|err| panic!("no JSON: {err}\n{said}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key}: {value}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().filter(|text| !text.is_empty()).unwrap_or_else(|| panic!("no words {key}: {value}"))
}

fn scale_of(name: &str) -> &'static str {
    SCALES
        .iter()
        .find(|(other, _)| *other == name)
        .map(|(_, scale)| *scale)
        .unwrap_or_else(|| panic!("no scale: {name}"))
}

/// Returns the report of an experiment at its small scale, with a chart.
fn report(name: &str) -> Value {
    let scratch = Scratch::new(&format!("paper-{name}"));
    let svg = scratch.path("it.svg");
    let report = json(paper(&["run", name, "--scale", scale_of(name), "--plot"]).arg(&svg));
    let svg = fs::read_to_string(svg).expect("a file");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
    assert_eq!(text(&report, "experiment"), name);
    for trace in list(&report, "traces") {
        assert!(text(trace, "about").starts_with("GENERATED"), "{name}: {trace}");
    }
    let words = list(&report, "words");
    assert!(words.iter().any(|words| words.as_str().is_some_and(|words| words.contains("clock"))), "{name}: {words:?}");
    for table in list(&report, "tables") {
        let columns = list(table, "columns").len();
        assert!(columns > 0 && !list(table, "series").is_empty(), "{name}: {table}");
        for series in list(table, "series") {
            assert_eq!([list(series, "ours").len(), list(series, "published").len()], [columns; 2], "{name}: {series}");
            assert!(list(series, "ours").iter().any(Value::is_number), "{name}: {series}");
        }
    }
    report
}

/// Returns our figures of a series in the first table of that title and figure.
fn series(report: &Value, title: &str, figure: &str, name: &str) -> Vec<f64> {
    let is_it = |table: &&Value| text(table, "title") == title && text(table, "figure").starts_with(figure);
    let table = list(report, "tables").iter().find(is_it).unwrap_or_else(|| panic!("no {title}, {figure}"));
    let series = list(table, "series").iter().find(|series| text(series, "name") == name);
    let series = series.unwrap_or_else(|| panic!("no {name} in {table}"));
    list(series, "ours").iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect()
}

/// Returns the sentence and exit code of a refused command.
fn refused(command: &mut Command) -> (String, i32) {
    let out = ends(command);
    let sentence = String::from_utf8(out.stderr).expect("UTF-8");
    assert!(out.stdout.is_empty(), "{}", String::from_utf8_lossy(&out.stdout));
    assert!(sentence.starts_with("larder-lab: ") && sentence.trim_end().lines().count() == 1, "{sentence}");
    (sentence, out.status.code().expect("a code"))
}

/// Writes a small trace with content in blocks of 4 KiB.
fn trace(scratch: &Scratch) -> PathBuf {
    let path = scratch.path("mine.trace");
    let words = ["generate", "zipf", "--requests", "2000", "--working-set", "4M", "--chunk", "4K", "--dup", "0.4"];
    run(lab(["trace"]).args(words).args(["--seed", "5", "-o"]).arg(&path));
    path
}

#[test]
fn each_experiment_on_devices_is_listed_with_its_clock() {
    let listed = json(&mut paper(&["list"]));
    let all = listed.as_array().expect("a list");
    let live: Vec<&Value> = all.iter().filter(|experiment| !experiment["clock"].is_null()).collect();
    let mut names: Vec<&str> = live.iter().map(|experiment| text(experiment, "name")).collect();
    let mut known = SCALES.map(|(name, _)| name);
    names.sort_unstable();
    known.sort_unstable();
    assert_eq!(names, known);
    for experiment in live {
        assert!(["virtual", "real"].contains(&text(experiment, "clock")), "{experiment}");
        assert!(!list(experiment, "traces").is_empty() && experiment["takes_traces"].is_boolean(), "{experiment}");
    }
    let page = run(&mut paper(&["list"]));
    let papers = page.lines().filter(|line| line.starts_with(char::is_uppercase)).count();
    assert_eq!(papers, 5, "each paper once, and our own check:\n{page}");
}

/// Random reads of an SSD take the SSD's time, and reads of a disk the disk's.
#[test]
fn nitros_grid_is_whole_and_a_hit_is_quicker_than_a_miss() {
    let all = report("nitro-fig7");
    assert_eq!(list(&all, "tables").len(), 4);
    for variant in ["WEU (D, NC)", "WEU (D, C)"] {
        for ratio in ["1x", "2x", "3x", "5x", "10x"] {
            let name = format!("deduplication {ratio}");
            let times = series(&all, variant, "Read response time", &name);
            let hits = series(&all, variant, "Read hit ratio", &name);
            assert_eq!([times.len(), hits.len()], [8, 8]);
            // So small a working set fits; warm data is on flash or in memory.
            assert!((hits[0] - 100.0).abs() < 1e-9 && times[0] <= 1.05, "{name}: {hits:?} {times:?}");
        }
    }
    assert_eq!(all, report("nitro-fig7"), "the same on the virtual clock, each time");
}

#[test]
fn nitros_table_has_each_variant_and_its_overhead_each_bar() {
    let table2 = report("nitro-table2");
    for trace in ["WebVM", "Homes", "Mail"] {
        assert_eq!(series(&table2, "Warm", "IOPS", trace).len(), 5);
        assert!(series(&table2, "Cold", "Read hit ratio", trace).iter().all(|hits| (0.0..=100.0).contains(hits)));
    }
    let overhead = report("nitro-fig8");
    let hits = |name| series(&overhead, "Boot storm", "Read hit ratio", name);
    assert_eq!(hits("0% hits"), [0.0; 4]);
    assert_eq!(hits("100% hits"), [100.0; 4]);
}

#[test]
fn cachededups_experiments_have_each_design_of_the_engine() {
    for name in ["cachededup-fig5", "cachededup-fig8-latency", "cachededup-fig10", "cachededup-fig11"] {
        let all = report(name);
        for table in list(&all, "tables") {
            let columns: Vec<&str> = list(table, "columns").iter().filter_map(Value::as_str).collect();
            for design in ["LRU", "ARC", "D-LRU", "D-ARC", "CD-ARC", "Nitro"] {
                assert!(columns.contains(&design), "{name}: {columns:?}");
            }
        }
    }
}

#[test]
fn austere_caches_experiments_run() {
    let throughput = report("austere-fig11");
    assert_eq!(series(&throughput, "I/O deduplication ratio 50%", "Throughput", "CD-ARC-DC").len(), 5);
    let cpu = report("austere-fig12");
    let lru = series(&cpu, "WebVM", "Median time", "lru");
    let cd_arc = series(&cpu, "WebVM", "Median time", "CD-ARC-DC");
    assert!(lru[0] == 0.0 && lru[1] == 0.0, "lru neither fingerprints nor compresses: {lru:?}");
    assert!(cd_arc.iter().all(|time| *time > 0.0), "{cd_arc:?}");
    report("austere-fig13");
}

#[test]
fn both_clocks_stand_side_by_side() {
    let all = report("clock");
    for clock in ["virtual clock", "real clock"] {
        assert!(series(&all, "As measured", "IOPS", clock).iter().all(|iops| *iops > 0.0));
    }
}

#[test]
fn a_trace_of_ones_own_takes_the_place_of_generated_ones() {
    let scratch = Scratch::new("paper-live-own");
    let trace = trace(&scratch).display().to_string();
    for (name, called) in [("nitro-table2", "WebVM"), ("cachededup-fig5", "Homes"), ("austere-fig12", "WebVM")] {
        let page = run(&mut paper(&["run", name, "--trace", &format!("{called}={trace}")]));
        assert!(page.contains(&format!("mine as {called}: {trace}, given in the place")), "{page}");
        assert!(page.contains("Ours are figures of the traces that were given: mine as"), "{page}");
        for words in ["generated", "GENERATED", "profile"] {
            assert!(!page.contains(words), "{name} says {words}:\n{page}");
        }
    }
}

/// Concurrent workloads share one cache, whose working set covers all of them; the page names them.
#[test]
fn workloads_share_a_cache() {
    let all = report("cachededup-fig8-latency");
    let says = |report: &Value, words: &str| {
        list(report, "words").iter().any(|said| said.as_str().is_some_and(|said| said.contains(words)))
    };
    assert!(says(&all, "9 clients at once before one cache"), "{all}");
    let scratch = Scratch::new("paper-live-shared");
    let (one, other) = (trace(&scratch).display().to_string(), scratch.path("other.trace"));
    fs::copy(&one, &other).expect("a copy");
    let other = other.display().to_string();
    let alone = json(&mut paper(&["run", "cachededup-fig8-latency", "--trace", &one]));
    assert!(says(&alone, "one trace alone, with 9 requests"), "{alone}");
    let together = json(&mut paper(&["run", "cachededup-fig8-latency", "--trace", &one, "--trace", &other]));
    assert!(says(&together, "2 traces at once before one cache"), "{together}");
    // Each may stand in the place of one of the paper's machines, which share a name.
    let [one, other] = [&one, &other].map(|file| format!("Hadoop={file}"));
    let named = json(&mut paper(&["run", "cachededup-fig8-latency", "--trace", &one, "--trace", &other]));
    assert!(says(&named, "2 traces at once before one cache"), "{named}");
    let rows = |report: &Value| -> Vec<Vec<String>> {
        let names = |table: &Value| list(table, "series").iter().map(|row| text(row, "name").to_owned()).collect();
        list(report, "tables").iter().map(names).collect()
    };
    assert!(rows(&together).iter().all(|names| *names == ["mine.trace + other.trace"]), "{together}");
    // If two machines have the same content, a design that shares content stores it once: more
    // fits, and more hits.
    let hits = |report: &Value, name| series(report, "All traces", "Read hit ratio", name);
    let (before, after) = (hits(&alone, "mine.trace"), hits(&together, "mine.trace + other.trace"));
    let columns = list(&list(&together, "tables")[0], "columns");
    let at = |design: &str| columns.iter().position(|column| column == design).expect("a design");
    let gains = |design: &str| after[at(design)] - before[at(design)];
    assert!(gains("D-LRU") > gains("LRU") + 1.0, "{before:?} {after:?}");
}

#[test]
fn what_an_experiment_cannot_have_is_refused() {
    let scratch = Scratch::new("paper-live-refused");
    let trace = trace(&scratch).display().to_string();
    let (sentence, code) = refused(&mut paper(&["run", "nitro-fig7", "--trace", &trace]));
    assert!(code == 2 && sentence.contains("nitro-fig7") && sentence.contains("takes no --trace"), "{sentence}");
    let (sentence, code) = refused(&mut paper(&["run", "austere-fig7", "--clock", "real"]));
    assert!(code == 2 && sentence.contains("austere-fig7") && sentence.contains("--clock"), "{sentence}");
    let (sentence, code) = refused(&mut paper(&["run", "nitro-fig8", "--clock", "virtual"]));
    assert!(code == 2 && sentence.contains("nitro-fig8") && sentence.contains("real clock only"), "{sentence}");
    let (sentence, code) = refused(&mut paper(&["run", "nitro-fig8", "--path", "/"]));
    assert!(code == 2 && sentence.contains("nitro-fig8") && sentence.contains("takes no --path"), "{sentence}");
    let (sentence, code) = refused(&mut paper(&["run", "nitro-fig7", "--clock", "sundial"]));
    assert!(code == 2 && sentence.contains("--clock") && sentence.contains("virtual or real"), "{sentence}");
    let (sentence, code) = refused(&mut paper(&["run", "nitro-table2", "--scale", "0.0000001"]));
    assert!(code == 1 && sentence.contains("scale"), "{sentence}");
    let (sentence, code) = refused(&mut paper(&["run", "nitro-table2", "--trace", &format!("Hadoop={trace}")]));
    assert!(code == 2 && sentence.contains("Hadoop") && sentence.contains("WebVM, Homes, Mail"), "{sentence}");
}

//! `larder-lab paper`: listed experiments run, each report is whole, an impossible run is refused.
//!
//! It runs experiments at sizes so small that their figures mean nothing; docs/reproduction/ has
//! figures that do. `papers_live.rs` has those on devices.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::lab;
use crate::support::{Scratch, ends, run};
use serde_json::Value;

/// A scale at which an experiment takes a second.
const TINY: &str = "0.0002";

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

/// Returns the names in the list that begin so.
fn names(prefix: &str) -> Vec<String> {
    let listed = json(&mut paper(&["list"]));
    let counting = listed.as_array().expect("a list").iter().filter(|experiment| experiment["clock"].is_null());
    let names = counting.map(|experiment| text(experiment, "name").to_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Returns the sentence and exit code of a refused command.
fn refused(command: &mut Command) -> (String, i32) {
    let out = ends(command);
    let sentence = String::from_utf8(out.stderr).expect("UTF-8");
    assert!(out.stdout.is_empty(), "{}", String::from_utf8_lossy(&out.stdout));
    assert!(sentence.starts_with("larder-lab: ") && sentence.trim_end().lines().count() == 1, "{sentence}");
    (sentence, out.status.code().expect("a code"))
}

/// Checks that a report has all its parts, and each table is a rectangle with a figure in it.
fn assert_whole(report: &Value, name: &str) {
    assert_eq!(text(report, "experiment"), name);
    assert!([text(report, "paper"), text(report, "figure"), text(report, "about")].iter().all(|text| text.len() > 5));
    for trace in list(report, "traces") {
        assert!(text(trace, "about").starts_with("GENERATED"), "{name}: {trace}");
    }
    assert!(!list(report, "words").is_empty(), "{name}");
    assert!(!list(report, "tables").is_empty(), "{name}");
    for table in list(report, "tables") {
        let columns = list(table, "columns").len();
        assert!(columns > 0 && !text(table, "title").is_empty() && !text(table, "figure").is_empty(), "{table}");
        for series in list(table, "series") {
            assert_eq!([list(series, "ours").len(), list(series, "published").len()], [columns; 2], "{name}: {series}");
            assert!(list(series, "ours").iter().any(Value::is_number), "{name}: {series}");
        }
    }
    for comparison in list(report, "comparisons") {
        text(comparison, "what");
        let (low, high) = (&comparison["published"]["low"], &comparison["published"]["high"]);
        assert!(low.as_f64().expect("a number") <= high.as_f64().expect("a number"), "{name}: {comparison}");
        assert!(comparison["ours"]["low"].is_number(), "{name}: {comparison}");
    }
}

/// Writes a trace with content in blocks of 4 KiB.
fn zipf(scratch: &Scratch, working_set: &str) -> PathBuf {
    let path = scratch.path("mine.trace");
    let words =
        ["generate", "zipf", "--requests", "20000", "--working-set", working_set, "--chunk", "4K", "--dup", "0.4"];
    run(lab(["trace"]).args(words).args(["--seed", "5", "-o"]).arg(&path));
    path
}

#[test]
fn the_list_names_each_experiment_with_its_figure() {
    let page = run(&mut paper(&["list"]));
    let all = names("");
    assert!(all.iter().all(|name| page.contains(name.as_str())), "{page}");
    let austere = names("austere-");
    assert_eq!(austere, [5, 6, 7, 8, 9, 10].map(|figure| format!("austere-fig{figure}")));
    let listed = json(&mut paper(&["list"]));
    for experiment in listed.as_array().expect("a list") {
        assert!(text(experiment, "figure").len() > 3 && text(experiment, "about").len() > 5, "{experiment}");
        assert!(!list(experiment, "traces").is_empty(), "{experiment}");
    }
}

/// Checks that each experiment has its output in the documents. `make reproduction` runs those that
/// print the same each time.
#[test]
fn each_experiment_has_its_output_in_the_documents() {
    let documents = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction");
    let paths = fs::read_dir(documents).expect("a folder").map(|entry| entry.expect("an entry").path());
    let outputs: String = paths.map(|path| fs::read_to_string(path).expect("a text")).collect();
    let count = |line: String| outputs.matches(&line).count();
    for experiment in json(&mut paper(&["list"])).as_array().expect("a list") {
        let name = text(experiment, "name");
        let runs_again = count(format!("\n`larder-lab paper run {name}`\n\n```\n"));
        // Contents of disks are the whole experiment: a generated trace says nothing.
        if ["caftl-fig1", "caftl-fig7"].contains(&name) {
            assert!(runs_again == 0 && count(format!(": `larder-lab paper run {name} --trace ")) == 1, "{name}");
        } else if experiment["clock"] == "real" {
            let recorded = count(format!("\nAs recorded, on the real clock: `larder-lab paper run {name}`"));
            assert_eq!((runs_again, recorded), (0, 1), "{name}");
        } else {
            assert_eq!(runs_again, 1, "{name}");
        }
    }
}

#[test]
fn each_of_austere_caches_experiments_runs() {
    for name in names("austere-") {
        let report = json(&mut paper(&["run", &name, "--scale", TINY]));
        assert_whole(&report, &name);
    }
}

#[test]
fn a_report_is_text_a_csv_file_and_a_chart_and_the_same_each_time() {
    let scratch = Scratch::new("paper-report");
    let (csv, svg) = (scratch.path("it.csv"), scratch.path("it.svg"));
    let mut command = paper(&["run", "austere-fig10", "--scale", TINY, "--csv"]);
    let page = run(command.arg(&csv).arg("--plot").arg(&svg));
    for words in ["Figure 10", "WebVM: GENERATED", "in brackets the paper's", "[36.7]", "The text says", "160.9"] {
        assert!(page.contains(words), "no {words:?} in\n{page}");
    }
    let csv = fs::read_to_string(csv).expect("a file");
    let mut lines = csv.lines();
    assert_eq!(lines.next().map(|line| line.split(',').count()), Some(8));
    assert!(csv.contains("Read hits,Read hit ratio (%),WebVM,1x,"), "{csv}");
    // Two tables of three traces and four sizes, and five comparisons.
    assert_eq!(lines.count(), 2 * 3 * 4 + 5);
    let svg = fs::read_to_string(svg).expect("a file");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for words in ["Index RAM by size of the LBA index", "Read hit ratio (%)", "WebVM, the paper"] {
        assert!(svg.contains(words), "no {words:?} in the chart");
    }
    assert_eq!(page, run(&mut paper(&["run", "austere-fig10", "--scale", TINY])));
}

#[test]
fn traces_of_ones_own_take_the_place_of_generated_ones() {
    let scratch = Scratch::new("paper-own");
    let trace = zipf(&scratch, "32M");
    let named = format!("homes={}", trace.display());
    let mut command = paper(&["run", "austere-fig10", "--trace", &named, "--trace"]);
    let report = json(command.arg(&trace));
    let traces: Vec<&str> = list(&report, "traces").iter().map(|trace| text(trace, "name")).collect();
    assert_eq!(traces, ["mine as Homes", "mine.trace"]);
    let compared = |what: &str| {
        let comparison = list(&report, "comparisons").iter().find(|one| text(one, "what").starts_with(what));
        comparison.unwrap_or_else(|| panic!("no {what}"))["ours"].is_null()
    };
    assert!(!compared("Homes: memory") && compared("WebVM: memory"));
}

/// A file whose beginning does not tell its format is read in the named one.
///
/// It is refused by its lines if they do not fit.
#[test]
fn the_format_of_a_trace_may_be_named() {
    let scratch = Scratch::new("paper-format");
    let (trace, file) = (scratch.path("plain"), scratch.path("tale"));
    run(lab(["trace", "convert", "--to", "austere", "-o"]).arg(&trace).arg(zipf(&scratch, "32M")));
    let prose = "Once upon a time.\n".repeat(3000) + &fs::read_to_string(&trace).expect("a file");
    fs::write(&file, prose).expect("a file");
    let of = |trace: &PathBuf, words: &[&str]| {
        let mut command = paper(&["run", "austere-fig10", "--skip-bad", "--trace"]);
        command.arg(trace).args(words);
        command
    };
    let (sentence, code) = refused(&mut of(&file, &[]));
    assert!(code == 1 && sentence.contains("tale") && sentence.contains("no format fits"), "{sentence}");
    let told = |report: Value| (report["tables"].clone(), report["comparisons"].clone());
    // The same except for its name.
    let named = |report: Value| serde_json::to_string(&told(report)).expect("JSON").replace("tale", "plain");
    assert_eq!(named(json(&mut of(&file, &["--format", "austere"]))), named(json(&mut of(&trace, &[]))));
    let (sentence, code) = refused(&mut of(&file, &["--format", "prose"]));
    assert!(code == 2 && sentence.contains("--format") && sentence.contains("austere"), "{sentence}");
    let (sentence, code) = refused(&mut paper(&["run", "austere-fig10", "--format", "content"]));
    assert!(code == 2 && sentence.contains("--trace"), "{sentence}");
}

/// The report on a trace of one's own says only true things: nothing about generated ones.
#[test]
fn a_report_names_the_trace_that_stands_in_and_says_nothing_of_others() {
    let scratch = Scratch::new("paper-words");
    let trace = zipf(&scratch, "64M").display().to_string();
    for name in names("") {
        let listed = json(&mut paper(&["list"]));
        let experiment = listed.as_array().expect("a list").iter().find(|one| text(one, "name") == name);
        let called = list(experiment.expect("it is listed"), "traces")[0].as_str().expect("a name").to_owned();
        let svg = scratch.path("it.svg");
        let mut command = paper(&["run", &name, "--trace", &format!("{called}={trace}"), "--plot"]);
        let page = run(command.arg(&svg));
        assert!(page.contains(&format!("mine as {called}: {trace}, given in the place")), "{page}");
        assert!(page.contains("Ours are figures of the traces that were given: mine as"), "{page}");
        let svg = fs::read_to_string(svg).expect("a file");
        for words in ["generated", "GENERATED", "profile"] {
            assert!(!page.contains(words) && !svg.contains(words), "{name} says {words}:\n{page}");
        }
    }
}

/// The experiments of CAFTL run as they are listed, over small generated workloads.
#[test]
fn some_of_caftls_experiments_run_on_generated_workloads() {
    let scale = "0.05";
    for name in ["caftl-fig2", "caftl-fig7", "caftl-fig16"] {
        assert_whole(&json(&mut paper(&["run", name, "--scale", scale])), name);
    }
    assert_eq!(names("caftl-").len(), 13);
}

/// The content that a trace leaves on its disk: overwritten or trimmed pages are not there.
#[test]
fn what_a_trace_trims_is_not_on_its_disk() {
    let scratch = Scratch::new("paper-trims");
    let trace = scratch.path("trims.trace");
    let write =
        |number: u32, page: u32, content: u32| format!("{number} 1 x {} 8 W 0 0 {content:016x} 4096\n", page * 8);
    // Pages 0 to 3 are A, B, A, C in the end, and the last two are trimmed.
    let writes: String =
        [(0, 1), (1, 9), (2, 1), (3, 3), (1, 2)].iter().zip(1..).map(|(of, at)| write(at, of.0, of.1)).collect();
    fs::write(&trace, writes + "6 1 x 16 16 T 0 0 0 0\n").expect("a trace");
    let report = json(paper(&["run", "caftl-fig1", "--trace"]).arg(&trace));
    let ours = |report: &Value| list(&list(&list(report, "tables")[0], "series")[0], "ours").clone();
    assert_eq!(ours(&report), [0.0], "of two pages, both alone");
    let report = json(paper(&["run", "caftl-fig7", "--trace"]).arg(&trace));
    assert_eq!(ours(&report).first().and_then(Value::as_f64), Some(0.0), "{report}");
}

/// Pages of files, of a folder and of an image: each file begins one.
///
/// A link and a second name bring none.
#[test]
fn pages_of_what_one_has_are_looked_at() {
    let scratch = Scratch::new("paper-pages");
    let folder = scratch.path("tree");
    fs::create_dir_all(folder.join("inner")).expect("a folder");
    let page = |byte: u8| vec![byte; 4096];
    // Six pages: two are the same, two zeroes, and the short one is like a page with zeroes behind
    // it.
    fs::write(folder.join("a"), [page(1), page(2)].concat()).expect("a file");
    fs::write(folder.join("b"), page(0).repeat(2)).expect("a file");
    fs::write(folder.join("inner/c"), [7; 100]).expect("a file");
    fs::write(folder.join("inner/d"), [[7; 100].as_slice(), &[0; 3996]].concat()).expect("a file");
    fs::write(folder.join("empty"), []).expect("a file");
    fs::hard_link(folder.join("a"), folder.join("inner/a2")).expect("a second name");
    std::os::unix::fs::symlink("a", folder.join("link")).expect("a link");
    let image = scratch.path("disk.img");
    // More than one read's length.
    fs::write(&image, [page(3).repeat(300), page(4)].concat()).expect("an image");
    let mut command = paper(&["run", "caftl-fig1", "--path"]);
    let report = json(command.arg(&folder).arg("--path").arg(&image));
    let traces: Vec<&str> = list(&report, "traces").iter().map(|trace| text(trace, "name")).collect();
    assert_eq!(traces, ["tree", "disk.img"]);
    let of = |at: usize| list(&list(&list(&report, "tables")[0], "series")[at], "ours").clone();
    let percent = |value: &Value| (value.as_f64().expect("a number") * 10.0).round() / 10.0;
    assert_eq!(of(0).iter().map(percent).collect::<Vec<_>>(), [33.3, 99.3]);
    assert_eq!(of(1).iter().map(percent).collect::<Vec<_>>(), [16.7, 0.0]);
    let report = json(paper(&["run", "caftl-fig7", "--path"]).arg(&image));
    let rates = list(&list(&list(&report, "tables")[0], "series")[0], "ours");
    assert!(rates.last().is_some_and(Value::is_number), "128 bits: {rates:?}");

    let nothing = scratch.path("nothing");
    let (sentence, code) = refused(paper(&["run", "caftl-fig1", "--path"]).arg(&nothing));
    assert!(code == 1 && sentence.contains("nothing"), "{sentence}");
    fs::create_dir(&nothing).expect("a folder");
    let (sentence, code) = refused(paper(&["run", "caftl-fig1", "--path"]).arg(&nothing));
    assert!(code == 1 && sentence.contains("no file"), "{sentence}");
    let (sentence, code) = refused(&mut paper(&["run", "caftl-fig1", "--path", "/dev/null"]));
    assert!(code == 1 && sentence.contains("expected a file, a folder or a disk"), "{sentence}");
    // The bytes of a packed file do not tell its content.
    let packed = scratch.path("image.zst");
    fs::write(&packed, [vec![0x28, 0xb5, 0x2f, 0xfd], page(3)].concat()).expect("a file");
    let (sentence, code) = refused(paper(&["run", "caftl-fig1", "--path"]).arg(&packed));
    assert!(code == 1 && sentence.contains("packed with zstd") && sentence.contains("--trace"), "{sentence}");
    for name in ["caftl-fig8", "clock"] {
        let (sentence, code) = refused(paper(&["run", name, "--path"]).arg(&image));
        assert!(code == 2 && sentence.contains(name), "{sentence}");
    }
    let (sentence, code) = refused(paper(&["run", "caftl-fig1", "--scale", "1", "--path"]).arg(&image));
    assert!(code == 2 && sentence.contains("--scale"), "{sentence}");
}

/// An experiment over a grid of caches takes sizes and modes; any takes some of its traces.
#[test]
fn a_grid_of_caches_can_be_narrowed() {
    let words = ["run", "pareto", "--only", "bursts", "--scale", "0.1", "--flash", "20%,40%", "--mode", "write-back"];
    let scratch = Scratch::new("paper-grid");
    let svg = scratch.path("it.svg");
    let page = run(paper(&words).arg("--plot").arg(&svg));
    for words in ["Bursts, write-back: Read hit ratio (%)", "20%    40%", "bound, contents revealed", "larder"] {
        assert!(page.contains(words), "no {words:?} in\n{page}");
    }
    assert!(!page.contains("Zipf") && !page.contains("write-through:"), "{page}");
    let svg = fs::read_to_string(svg).expect("a chart");
    assert!(svg.contains("Written to flash (MiB)") && svg.contains("RAM of the index (MiB)"));
    for words in [&["--flash", "10%"][..], &["--mode", "write-back"]] {
        let (sentence, code) = refused(paper(&["run", "austere-fig7"]).args(words));
        assert!(code == 2 && sentence.contains(words[0]) && sentence.contains("run pareto"), "{sentence}");
    }
    for words in [&["--flash", "10"][..], &["--flash", "0%"], &["--mode", "back"], &["--only", "Zip"]] {
        let (sentence, code) = refused(paper(&["run", "pareto"]).args(words));
        assert!(code == 2 && sentence.contains(words[1]), "{sentence}");
    }
}

#[test]
fn what_cannot_be_run_is_refused() {
    let scratch = Scratch::new("paper-refused");
    let trace = zipf(&scratch, "32M").display().to_string();
    let (sentence, code) = refused(&mut paper(&["run", "austere-fig99"]));
    assert!(
        code == 2 && sentence.contains("austere-fig99") && sentence.contains("larder-lab paper list"),
        "{sentence}"
    );
    let (sentence, code) = refused(&mut paper(&["run", "austere-fig7", "--trace", &format!("Webvn={trace}")]));
    assert!(code == 2 && sentence.contains("Webvn") && sentence.contains("WebVM, Homes, Mail"), "{sentence}");
    let (sentence, code) = refused(&mut paper(&["run", "austere-fig9", "--trace", &trace, "--trace", &trace]));
    assert!(code == 1 && sentence.contains("one trace"), "{sentence}");
    let (sentence, code) = refused(&mut paper(&["run", "austere-fig7", "--trace", "/no/such=file"]));
    assert!(code == 1 && sentence.contains("/no/such=file"), "{sentence}");
    for words in
        [&["--scale", "0"] as &[&str], &["--scale", "x"], &["--scale", "1", "--trace", &trace], &["--trace", "a="]]
    {
        let (sentence, code) = refused(paper(&["run", "austere-fig7"]).args(words));
        assert!(code == 2 && sentence.contains(words[0]), "{sentence}");
    }
    let (sentence, code) = refused(&mut paper(&["run", "austere-fig7", "--scale", "0.0000001"]));
    assert!(code == 1 && sentence.contains("scale"), "{sentence}");
    let bare = scratch.path("ids.bin");
    fs::write(&bare, [7u32, 9, 7].map(u32::to_le_bytes).concat()).expect("a file");
    let (sentence, code) = refused(paper(&["run", "austere-fig7", "--format", "block-ids", "--trace"]).arg(&bare));
    assert!(code == 1 && sentence.contains("ids.bin") && sentence.contains("no content"), "{sentence}");
    let plot = scratch.path("it.png");
    let (sentence, code) = refused(paper(&["run", "austere-fig7", "--plot"]).arg(&plot));
    assert!(code == 2 && sentence.contains("SVG"), "{sentence}");
}

//! `larder-lab sim … --ssd`: a row for each design and layer, in every form of report.
//!
//! It also tests refusals; `larder-sim` tests the figures themselves.

use std::{fs, path::PathBuf};

use crate::common::{lab, list, number, sim};
use crate::support::{Scratch, ends, run};

fn zipf(scratch: &Scratch) -> PathBuf {
    crate::common::zipf(scratch, "40000", "64M")
}

#[test]
fn each_design_on_each_layer_is_a_row_in_a_table_a_list_a_file_and_a_chart() {
    let scratch = Scratch::new("sim-drives");
    let trace = zipf(&scratch);
    let (csv, plot) = (scratch.path("it.csv"), scratch.path("it.svg"));
    let words = ["compare", "--design", "lru,nitro", "--flash", "24M", "--bound", "off", "--trace"];
    let drive = ["--ssd", "caftl:over_provisioning_percent=20", "--ftl", "page,caftl", "--metric", "ssd_erasures"];
    let page = run(sim(&words).arg(&trace).args(drive).arg("--csv").arg(&csv).arg("--plot").arg(&plot));
    for words in ["lru:ftl=page ", "lru:ftl=caftl ", "nitro:ftl=page ", "nitro:ftl=caftl ", "erased", "min/mean/max"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let rows = list(sim(&words).arg(&trace).args(drive));
    let names: Vec<&str> = rows.iter().filter_map(|row| row["setup"].as_str()).collect();
    assert_eq!(names, ["lru:ftl=page", "lru:ftl=caftl", "nitro:ftl=page", "nitro:ftl=caftl"]);
    for row in &rows {
        let whole = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("no number {key}: {row}"));
        let causes =
            |key: &str| -> u64 { row[key].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum() };
        assert_eq!(causes("ssd_erasures_by_cause"), whole("ssd_erasures"));
        assert_eq!(causes("ssd_programs_by_cause"), whole("ssd_pages_programmed"));
        assert_eq!(causes("ssd_reads_by_cause"), whole("ssd_pages_read"));
        assert!(whole("ssd_erasures") > 0 && whole("ssd_wear_max") >= whole("ssd_wear_min"), "{row}");
        assert_eq!(row["ssd_over_provisioning_percent"], 20.0);
        let life = (row["ssd_life_years"].is_number(), row["ssd_life_note"].is_null());
        assert!(life == (true, true) || life == (false, false), "years, or why there are none: {row}");
    }
    assert!(rows[1]["ssd_pages_deduplicated"].as_u64() > rows[0]["ssd_pages_deduplicated"].as_u64());
    let csv = fs::read_to_string(csv).expect("a CSV file");
    assert!(csv.lines().next().is_some_and(|head| head.contains(",ssd_programs_by_cause.collection,")), "{csv}");
    let columns = csv.lines().next().unwrap_or_default().split(',').count();
    assert!(csv.lines().count() == 5 && csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
    assert!(fs::read_to_string(plot).expect("a chart").contains("Blocks erased of each design"));
    // Without a drive a row has none of its keys.
    let bare = list(sim(&words).arg(&trace));
    assert!(bare.iter().all(|row| row.get("ssd").is_none() && row.get("ssd_erasures").is_none()));
    assert_eq!(bare[1]["read_hits"], rows[2]["read_hits"], "a drive changes no answer");
    let words = ["run", "--design", "nitro", "--flash", "24M", "--ssd", "nitro-mlc", "--trace"];
    let page = run(sim(&words).arg(&trace));
    assert!(page.contains("nitro-mlc with page-trim") && page.contains("drive: life"), "{page}");
    let labelled = page.lines().filter(|line| line.starts_with("  drive"));
    let apart = |line: &&str| line.trim_start().split("  ").filter(|part| !part.is_empty()).count() == 2;
    assert!(labelled.clone().count() > 8 && labelled.clone().all(|line| apart(&line)), "{page}");
}

/// Erasures count blocks: side by side, these have one size, for any flash and any layer.
///
/// A design makes a flash of some size from its chunks, and a layer needs blocks of some size.
#[test]
fn drives_side_by_side_have_equal_blocks() {
    let scratch = Scratch::new("sim-drives-equal");
    let trace = zipf(&scratch);
    let on = |flash: &str, words: &[&str]| {
        let mut command = sim(&["compare", "--flash", flash, "--bound", "off", "--trace"]);
        command.arg(&trace).args(words);
        command
    };
    // An odd flash, so that designs lie on either side of the limit for halved blocks; a layer
    // whose blocks must fit its units.
    let of_chunks = ["--design", "lru,d-lru,austere,nitro", "--ssd", "tlc-nvme", "--ftl", "page,caftl"];
    let of_units = ["--design", "lru,nitro", "--ssd", "tlc-nvme:capacity=24G", "--ftl", "page-trim,weu"];
    for (flash, words) in [("6000c", &of_chunks[..]), ("24M", &of_units)] {
        let alone = |design: &str, layer: &str| {
            let mut command = sim(&["run", "--design", design, "--flash", flash, "--trace"]);
            let said = run(command.arg(&trace).args(["--ssd", words[3], "--ftl", layer, "--json"]));
            serde_json::from_str::<serde_json::Value>(&said).expect("an object")["ssd_block_bytes"].clone()
        };
        let rows = list(&mut on(flash, words));
        let block = &rows[0]["ssd_block_bytes"];
        let mut differ = false;
        for row in &rows {
            assert_eq!(&row["ssd_block_bytes"], block, "{row}");
            assert_eq!(number(row, "ssd_bytes_erased"), number(row, "ssd_erasures") * number(row, "ssd_block_bytes"));
            differ |= alone(row["design"].as_str().expect("a name"), row["ftl"].as_str().expect("a name")) != *block;
        }
        assert!(differ, "{flash}: alone, some have others, or this shows nothing");
        let told = String::from_utf8_lossy(&ends(&mut on(flash, words)).stderr).into_owned();
        assert!(told.contains("so that erasures can be compared"), "{told}");
    }
}

/// A buffer is not cut with the drive: if it has all of the cache, little is erased.
///
/// The report says so.
#[test]
fn a_buffer_that_decides_how_much_is_erased_is_told() {
    let scratch = Scratch::new("sim-drives-buffer");
    let trace = zipf(&scratch);
    let said = |command: &str, drive: &str, layer: &str| {
        let words = ["--design", "lru", "--flash", "16M", "--json", "--ssd", drive, "--ftl", layer, "--trace"];
        let out = ends(sim(&[command]).args(words).arg(&trace));
        let row = String::from_utf8_lossy(&out.stdout);
        let row: serde_json::Value = serde_json::from_str(&row).unwrap_or_else(|error| panic!("{error}: {row}"));
        let row = row.as_array().and_then(|rows| rows.first()).unwrap_or(&row).clone();
        (number(&row, "ssd_erasures"), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let words = ["run", "--design", "nitro", "--flash", "16M", "--ssd", "nitro-mlc", "--ftl", "weu", "--trace"];
    let told = String::from_utf8_lossy(&ends(sim(&words).arg(&trace)).stderr).into_owned();
    assert!(!told.contains("buffer"), "WEUs are whole units: {told}");
    for command in ["run", "compare"] {
        let (erased, told) = said(command, "nitro-mlc", "weu");
        assert!(told.contains("erasures are the buffer's doing"), "{command}: {told}");
        assert!(told.contains("lru:ftl=weu on 16M:") && told.contains("nitro-mlc:buffer_bytes=SIZE"), "{told}");
        let (of_small, told) = said(command, "nitro-mlc:buffer_bytes=1M", "weu");
        assert!(of_small > 10.0 * erased && !told.contains("buffer"), "{command}: {erased}, {of_small}, {told}");
        let (_, told) = said(command, "nitro-mlc", "page-trim");
        assert!(!told.contains("buffer"), "units of a page are not gathered: {told}");
    }
}

/// A page that several writes fill equals another that a single write fills.
///
/// That holds with a clock and without.
#[test]
fn pages_of_several_chunks_are_deduplicated() {
    let scratch = Scratch::new("sim-drives-pages");
    let trace = scratch.path("boots.trace.zst");
    let words = ["trace", "generate", "boot-storm", "--scale", "0.05", "-o"];
    run(lab(words).arg(&trace));
    let row = |layer: &str| {
        let words = ["run", "--design", "lru", "--flash", "16M", "--chunk", "4K", "--origin", "nvme-ssd", "--json"];
        let drive = ["--ssd", "tlc-nvme:buffer_bytes=1M", "--ftl", layer, "--trace"];
        let out = run(sim(&words).args(drive).arg(&trace));
        serde_json::from_str::<serde_json::Value>(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    };
    let (plain, caftl) = (row("page-trim"), row("caftl"));
    assert_eq!(number(&plain, "ssd_page_bytes"), 4.0 * 4096.0, "a page has four chunks");
    let pages = |row| number(row, "ssd_host_pages_written");
    assert_eq!(pages(&plain), pages(&caftl));
    let found = number(&caftl, "ssd_pages_deduplicated");
    assert!(found > pages(&caftl) / 3.0, "{found} of {} pages", pages(&caftl));
    let amplified = |row| number(row, "time_ssd_write_amplification");
    assert!(amplified(&caftl) < 0.7 * amplified(&plain), "{} and {}", amplified(&caftl), amplified(&plain));
}

#[test]
fn a_sweep_keeps_rows_on_drives_apart_from_those_without() {
    let scratch = Scratch::new("sim-drives-sweep");
    let trace = zipf(&scratch);
    let file = scratch.path("it.sweep");
    let sweep = |words: &[&str]| {
        let mut command = sim(&["sweep", "--design", "lru", "--flash", "16M,24M", "--bound", "off", "--trace"]);
        command.arg(&trace).arg("-o").arg(&file).args(words);
        command
    };
    let first = list(&mut sweep(&["--ssd", "caftl", "--ftl", "page"]));
    assert_eq!(first.len(), 2);
    let more = list(&mut sweep(&["--ssd", "caftl", "--ftl", "page,page-trim"]));
    assert_eq!((more.len(), &more[0]["ssd_erasures"]), (4, &first[0]["ssd_erasures"]));
    for words in [&[][..], &["--ssd", "nitro-mlc"], &["--ssd", "caftl:packages=4"]] {
        let out = ends(&mut sweep(words));
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && told.contains("is the file of another sweep"), "{told}");
        assert!(!told.contains('{'), "the numbers of a drive are no words: {told}");
    }
}

/// With a layer beside it that needs smaller blocks, a drive is another one.
#[test]
fn a_sweep_keeps_rows_apart_whose_drives_have_other_blocks() {
    let scratch = Scratch::new("sim-drives-sweep-blocks");
    let trace = zipf(&scratch);
    let file = scratch.path("equal.sweep");
    let sweep = |layers: &str| {
        let mut command = sim(&["sweep", "--design", "nitro", "--flash", "24M", "--bound", "off", "--trace"]);
        command.arg(&trace).arg("-o").arg(&file).args(["--ssd", "tlc-nvme:capacity=24G", "--ftl", layers]);
        command
    };
    let (alone, beside) = (list(&mut sweep("page-trim")), list(&mut sweep("page-trim,weu")));
    assert!(number(&alone[0], "ssd_block_bytes") > number(&beside[0], "ssd_block_bytes"), "{alone:?} {beside:?}");
    assert_eq!(beside[0]["ssd_block_bytes"], beside[1]["ssd_block_bytes"]);
    assert_eq!(list(&mut sweep("page-trim")), alone, "what was noted of it alone is there still");
}

#[test]
fn what_no_drive_can_be_is_refused_in_a_sentence() {
    let scratch = Scratch::new("sim-drives-refusals");
    let trace = zipf(&scratch);
    for (words, sentence) in [
        (&["--ftl", "page"][..], "--ssd"),
        (&["--ssd", "floppy"], "there are caftl"),
        (&["--ssd", "caftl", "--ftl", "paged"], "there are page, "),
        (&["--ssd", "caftl:packages=0"], "packages is 0, but has to be a whole number from 1 to 1024"),
        (&["--ssd", "caftl:capacity=15T"], "capacity is 16492674416640, but has to be a whole number from 1 to 15"),
        (&["--ssd", "caftl:capacity=1G:capacity=2G"], "capacity is given twice"),
        (
            &["--ssd", "caftl:program_ns=9007199254740992:packages=1:dies_per_package=1", "--origin", "nvme-ssd"],
            "program_ns is 9007199254740992, but has to be a whole number from 1 to 100000000",
        ),
        (&["--ssd", "caftl:over_provisioning_percent=0"], "over_provisioning_percent is 0, but has to be at least "),
        (
            &["--design", "d-lru", "--ssd", "caftl", "--ftl", "flashtier"],
            "write --accounting paper --orphans forget, or take another layer",
        ),
        (
            &["--ssd", "caftl:collection_threshold_percent=99"],
            "collection_threshold_percent is 99, but has to be so little",
        ),
        (&["--ssd", "caftl:capacity=1M"], "capacity is 1048576, but has to be"),
        (&["--metric", "ssd_erasures"], "--ssd PROFILE"),
    ] {
        let out = ends(sim(&["compare", "--flash", "24M", "--trace"]).arg(&trace).args(words));
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && out.stdout.is_empty(), "{words:?}");
        assert!(told.contains(sentence) && told.trim().lines().count() == 1, "{words:?}: {told}");
    }
    let words = ["run", "--design", "nitro", "--flash", "3000c", "--ssd", "nitro-mlc", "--ftl", "weu", "--trace"];
    let told = String::from_utf8_lossy(&ends(sim(&words).arg(&trace)).stderr).into_owned();
    assert!(told.contains("say --flash in bytes") && told.trim().lines().count() == 1, "{told}");
    let words = ["run", "--design", "lru", "--flash", "24M", "--ssd", "caftl", "--ftl", "page,caftl", "--trace"];
    let out = ends(sim(&words).arg(&trace));
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(told.contains("run takes one translation layer") && out.status.code() == Some(2), "{told}");
    let words = ["compare", "--design", "lru", "--flash", "24M", "--metric", "time_iops", "--trace"];
    let out = ends(sim(&words).arg(&trace));
    assert_eq!(out.status.code(), Some(2), "what is asked for does not go together: {out:?}");
    for (command, words) in [("profiles", "over_provisioning_percent"), ("ftls", "page-trim")] {
        assert!(run(&mut sim(&[command])).contains(words), "{command}");
    }
    let page = run(&mut sim(&["profiles"]));
    assert!(page.contains("a page: 25 us to read, 200 us to program, 100 us over the bus; 1500 us to erase"), "{page}");
}

/// Returns a text's commands that name translation layers, each as its words behind
/// `larder-lab sim`.
fn commands_with_layers(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let commands = joined.lines().filter_map(|line| line.trim().strip_prefix("larder-lab sim "));
    let words = commands.map(|line| line.split('#').next().unwrap_or_default().split_whitespace().map(str::to_owned));
    words.map(Iterator::collect).filter(|words: &Vec<String>| words.iter().any(|word| word == "--ftl")).collect()
}

#[test]
fn the_examples_with_translation_layers_do_what_they_say() {
    let scratch = Scratch::new("sim-drives-examples");
    let trace = zipf(&scratch);
    let lab = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/LAB.md")).expect("the document");
    let help = run(&mut sim(&["compare", "--help"]));
    let (of_lab, of_help) = (commands_with_layers(&lab), commands_with_layers(&help));
    assert!(of_lab.len() >= 3 && !of_help.is_empty(), "{of_lab:?} {of_help:?}");
    for words in of_lab.iter().chain(&of_help) {
        let mut command = sim(&[]);
        for word in words {
            match word.as_str() {
                "disk.trace.zst" => command.arg(&trace),
                chart if chart.ends_with(".svg") => command.arg(scratch.path(chart)),
                word => command.arg(word),
            };
        }
        let page = run(&mut command);
        assert!(page.contains("ftl="), "{words:?}: {page}");
    }
}

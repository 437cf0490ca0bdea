//! The rules of the house, checked over the source tree. They cover the dependencies between
//! crates, the heads of files, the length of files, and marks of unfinished or machine-bound work.
//!
//! It reads text, and the tables of designs, and parses just enough of it. It deliberately leaves
//! style to rustfmt and clippy. Files that import each other are the matter of [`circles`], types
//! with one name of [`names`]. Shared state and long functions are that of [`owners`], provisional
//! designs of [`seam`], and the pages for newcomers of [`pages`].

mod circles;
mod names;
mod owners;
mod pages;
mod seam;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_engine::designs::ENGINE_DESIGNS;
use larder_format::{DesignId, layout::StoreKind};

/// A file may have this many lines before its tests; most have far fewer.
const SOURCE_LINES_MAX: usize = 500;
/// No tracked file is larger: a repository is no place for images.
const TRACKED_BYTES_MAX: u64 = 1 << 20;

/// The test programs of which each suite is a module.
const PROGRAMS_OF_MANY: &[&str] = &[
    "check",
    "decisions",
    "drives",
    "engine",
    "format",
    "laboratory",
    "nbd",
    "papers",
    "program",
    "simulator",
    "traces",
];

/// Every crate and the crates of ours that it depends on, those for its tests alone with a `*`.
/// `ARCHITECTURE.md` draws the same arrows.
const ARROWS: &[(&str, &[&str])] = &[
    ("larder-types", &[]),
    ("larder-format", &[]),
    ("larder-device", &[]),
    ("larder-trace", &[]),
    ("larder-codec", &["larder-types", "larder-format"]),
    ("larder-core", &["larder-types"]),
    ("larder-engine", &["larder-format", "larder-device", "larder-core", "larder-codec"]),
    ("larder-check", &["larder-format", "larder-device", "larder-core", "larder-codec", "larder-engine"]),
    ("larder-ssd", &["larder-types"]),
    ("larder-sim", &["larder-format", "larder-core", "larder-ssd", "larder-trace"]),
    ("larder-follow", &["larder-format", "larder-core", "larder-sim"]),
    (
        "larder-papers",
        &[
            "larder-format",
            "larder-device",
            "larder-core",
            "larder-codec",
            "larder-engine",
            "larder-ssd",
            "larder-sim",
            "larder-trace",
        ],
    ),
    ("larder-serve", &["larder-device"]),
    (
        "larder",
        &[
            "larder-format",
            "larder-device",
            "larder-core",
            "larder-codec",
            "larder-engine",
            "larder-check",
            "larder-trace",
            "larder-serve",
        ],
    ),
    (
        "larder-lab",
        &[
            "larder-format*",
            "larder-device",
            "larder-core*",
            "larder-codec*",
            "larder-engine",
            "larder-follow*",
            "larder-trace",
            "larder-ssd",
            "larder-sim",
            "larder-papers",
            "larder",
        ],
    ),
    (
        "larder-measure",
        &["larder-format", "larder-device", "larder-core", "larder-engine", "larder-trace", "larder-serve"],
    ),
];

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("crates/larder lies two folders below the root").to_path_buf()
}

/// Returns tracked and new files (those that git does not ignore).
///
/// Without git, it returns every file outside `target`.
fn files() -> Vec<PathBuf> {
    let root = root();
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output();
    let mut found: Vec<PathBuf> = match listed {
        Ok(out) if out.status.success() && !out.stdout.is_empty() => String::from_utf8(out.stdout)
            .expect("file names are UTF-8")
            .split('\0')
            .filter(|name| !name.is_empty())
            .map(|name| root.join(name))
            .collect(),
        _ => {
            let mut all = Vec::new();
            let mut folders = vec![root.clone()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(&folder).expect("a readable folder") {
                    let path = entry.expect("a readable entry").path();
                    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
                    if path.is_dir() && !path.is_symlink() {
                        if name != "target" && name != ".git" {
                            folders.push(path);
                        }
                    } else {
                        all.push(path);
                    }
                }
            }
            all
        }
    };
    found.retain(|path| path.is_file());
    assert!(found.len() > 20, "the tree has more than {} files", found.len());
    found
}

fn rust_files() -> Vec<(PathBuf, String)> {
    files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
            (path, text)
        })
        .collect()
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Returns the code of a file: without comments and inline tests.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let uncommented = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text[..end].lines().map(uncommented).collect::<Vec<_>>().join("\n")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the places where `code` has this word, as a whole.
fn places_of<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_whole = move |at: &usize| !code[..*at].ends_with(is_word) && !code[*at + word.len()..].starts_with(is_word);
    code.match_indices(word).map(|(at, _)| at).filter(is_whole)
}

/// Returns whether `code` has this word, as a whole.
fn has_word(code: &str, word: &str) -> bool {
    places_of(code, word).next().is_some()
}

/// Returns the crates of ours that a manifest depends on, those for its tests alone with a `*`.
///
/// `[dependencies]`, `[build-dependencies]`, `[dev-dependencies]` and their
/// `[target.….dependencies]` forms all count.
fn our_dependencies(manifest: &str) -> BTreeSet<String> {
    let (mut found, mut of_tests) = (BTreeSet::new(), BTreeSet::new());
    let (mut in_dependencies, mut in_tests) = (false, false);
    for line in manifest.lines().map(str::trim) {
        let name = if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']').trim();
            in_dependencies = section.ends_with("dependencies");
            in_tests = section.contains("dev-dependencies");
            // [dependencies.larder-core]
            section.rsplit_once('.').filter(|(head, _)| head.ends_with("dependencies")).map(|(_, name)| name)
        } else {
            Some(line).filter(|_| in_dependencies)
        };
        if let Some(name) = name.filter(|name| name.starts_with("larder")) {
            let name = name.split(|c: char| c != '-' && !c.is_ascii_alphanumeric()).next().unwrap_or_default();
            if in_tests { &mut of_tests } else { &mut found }.insert(name.to_owned());
        }
    }
    let alone: Vec<String> = of_tests.difference(&found).map(|name| format!("{name}*")).collect();
    found.extend(alone);
    found
}

#[test]
fn arrows_between_crates_are_those_of_the_design() {
    let mut arrows = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates/") {
        let folder = entry.expect("a readable entry").path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let name = folder.file_name().and_then(|n| n.to_str()).expect("a crate's name").to_owned();
        let mut used = our_dependencies(&manifest);
        // A crate that names itself turns a feature on for its own tests.
        used.remove(&format!("{name}*"));
        arrows.insert((name, used));
    }
    let of_design = ARROWS.iter().map(|(name, used)| ((*name).to_owned(), used.iter().copied().map(str::to_owned)));
    let of_design: BTreeSet<_> = of_design.map(|(name, used)| (name, used.collect())).collect();
    assert_eq!(arrows, of_design, "arrows of the manifests, and those of this test");
}

/// Packages of the laboratory alone: the program that serves data links none of them.
const OF_THE_LABORATORY: [&str; 7] =
    ["flate2", "larder-follow", "larder-papers", "larder-sim", "larder-ssd", "lzma-rust2", "plotters"];

/// Cargo resolves the features, which the manifests alone do not show.
#[test]
fn the_program_that_serves_data_links_nothing_of_the_laboratory() {
    let tree = |package: &str| -> BTreeSet<String> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        // Tests apart.
        let edges = ["tree", "--edges", "normal,build"];
        let words = ["--locked", "--offline", "--prefix", "none", "--package", package];
        let out = Command::new(cargo).args(edges).args(words).current_dir(root()).output().expect("cargo");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let named = String::from_utf8(out.stdout).expect("names");
        named.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    };
    let product = tree("larder");
    assert!(product.contains("larder-engine") && product.contains("zstd"), "{product:?}");
    let linked: Vec<&str> = OF_THE_LABORATORY.into_iter().filter(|name| product.contains(*name)).collect();
    assert!(linked.is_empty(), "larder depends on {linked:?}");
    let laboratory = tree("larder-lab");
    let has = |name: &&str| laboratory.contains(*name);
    assert!(["plotters", "lzma-rust2", "larder-ssd"].iter().all(has), "{laboratory:?}");
    assert!(!has(&"larder-follow"), "the follower of logs is for tests alone: {laboratory:?}");
}

#[test]
fn the_programs_leave_the_features_of_tests_off() {
    for package in ["larder", "larder-lab"] {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let words = ["tree", "--edges", "features,normal,build", "--locked", "--offline", "--prefix", "none"];
        let out = Command::new(cargo).args(words).args(["--package", package]).current_dir(root()).output();
        let out = out.expect("cargo");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let tree = String::from_utf8(out.stdout).expect("names");
        assert!(tree.contains("larder-engine feature \"default\""), "the reader sees features: {tree}");
        for feature in ["decision-log", "few-hash-bits", "lock-times"] {
            assert!(!tree.contains(&format!("feature \"{feature}\"")), "{package} has {feature}: {tree}");
        }
    }
}

#[test]
fn the_manifest_reader_sees_every_form() {
    let manifest = "[package]\nname = \"larder-x\"\n[dependencies]\nlarder-core.workspace = true\nblake3 = \"1\"\n\
                    [dev-dependencies]\nlarder-sim = { path = \"../larder-sim\" }\n\
                    larder-core = { features = [\"x\"] }\n[dev-dependencies.larder-lab]\npath = \"x\"\n\
                    [target.'cfg(unix)'.dependencies]\nlarder-serve = \"1\"\n[dependencies.larder-trace]\npath = \"x\"\n";
    let expected = ["larder-core", "larder-lab*", "larder-serve", "larder-sim*", "larder-trace"];
    assert_eq!(our_dependencies(manifest).iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn every_source_file_says_what_it_is() {
    let silent: Vec<String> = rust_files()
        .iter()
        .filter(|(_, text)| {
            // cargo-fuzz wants `#![no_main]` first.
            let opening = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
            !opening.is_some_and(|line| line.starts_with("//!") && line.len() > "//! ".len())
        })
        .map(|(path, _)| short(path))
        .collect();
    assert!(silent.is_empty(), "files that do not open with //!:\n{}", silent.join("\n"));
}

#[test]
fn source_files_stay_readable() {
    let long: Vec<String> = rust_files()
        .iter()
        .filter(|(path, _)| {
            let path = short(path);
            path.contains("/src/") && !path.ends_with("/tests.rs") && !path.contains("/tests/")
        })
        .map(|(path, text)| {
            let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
            (lines, path)
        })
        .filter(|(lines, _)| *lines > SOURCE_LINES_MAX)
        .map(|(lines, path)| format!("{lines} lines: {}", short(path)))
        .collect();
    assert!(long.is_empty(), "files over {SOURCE_LINES_MAX} lines without their tests:\n{}", long.join("\n"));
}

#[test]
fn nothing_unfinished_is_committed() {
    // Spelled in two parts, so that this file does not find itself.
    let marks = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore")];
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        for (number, line) in text.lines().enumerate() {
            for mark in marks.iter().filter(|mark| line.contains(**mark)) {
                found.push(format!("{}:{}: {mark}", short(&path), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "unfinished:\n{}", found.join("\n"));
}

/// Code that reads, writes, evicts, recovers or verifies asks the store without knowing its kind.
///
/// Some sizes tell the kind, too. A few files beside the stores have them for a plan or a dump.
#[test]
fn only_the_stores_know_which_store_it_is() {
    const MARKS: [(&str, &[&str]); 6] = [
        ("StoreKind", &[]),
        ("has_segments", &[]),
        ("Buckets", &[]),
        ("Weus", &[]),
        ("bucket_slots", &["create.rs", "decision_log.rs", "dump.rs", "dump/shapes.rs"]),
        ("region_bytes()", &["dump.rs", "region.rs"]),
    ];
    let mut asked = 0;
    let (mut found, mut used) = (Vec::new(), BTreeSet::new());
    for (path, text) in rust_files() {
        let path = short(&path);
        let (knows, file) = match path.split_once("/src/") {
            Some(("crates/larder-engine", file)) => (file.starts_with("store") || file == "designs.rs", file),
            Some(("crates/larder-check", file)) => (file == "audit.rs", file),
            _ => continue,
        };
        if knows || path.contains("tests") {
            continue;
        }
        for (number, line) in code(&text).lines().enumerate() {
            asked += usize::from(line.contains("geometry.store."));
            for (mark, may) in MARKS.iter().filter(|(mark, _)| line.contains(mark)) {
                match may.contains(&file) {
                    true => _ = used.insert((*mark, file.to_owned())),
                    false => found.push(format!("{path}:{}: {}", number + 1, line.trim())),
                }
            }
        }
    }
    assert!(found.is_empty(), "a store is told from others:\n{}", found.join("\n"));
    assert!(asked > 5, "the engine asks its store: {asked}");
    assert_eq!(used.len(), MARKS.iter().map(|(_, may)| may.len()).sum::<usize>(), "files that need not know: {used:?}");
}

/// The offline tools enter the engine by its walk over metadata, and by the room that is open to
/// them.
#[test]
fn the_offline_tools_enter_the_engine_by_one_room() {
    const OPEN: [&str; 6] = ["EngineError", "Tuning", "offline", "recover", "superblock", "walk"];
    let (mut named, mut found) = (BTreeSet::new(), Vec::new());
    for (path, text) in rust_files() {
        let path = short(&path);
        if !path.starts_with("crates/larder-check/src/") || path.contains("tests") {
            continue;
        }
        for (_, rest) in text.match_indices("larder_engine::").map(|(at, head)| text.split_at(at + head.len())) {
            // The heads of the paths in a tree of imports.
            let tree = rest.strip_prefix('{').map(|tree| &tree[..tree.find(';').unwrap_or(tree.len())]);
            let mut depth = 0;
            let heads = tree.unwrap_or(rest).split_inclusive([',', '{', '}']).filter_map(|part| {
                let is_head = depth == 0;
                depth += part.matches('{').count() as i32 - part.matches('}').count() as i32;
                let head = part.trim_start().split(|c: char| c != '_' && !c.is_alphanumeric()).next()?;
                (is_head && !head.is_empty()).then_some(head)
            });
            for head in heads.take(if tree.is_some() { usize::MAX } else { 1 }) {
                named.insert(head.to_owned());
                if !OPEN.contains(&head) {
                    found.push(format!("{path}: larder_engine::{head}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "these enter the engine elsewhere:\n{}", found.join("\n"));
    assert_eq!(named.iter().map(String::as_str).collect::<Vec<_>>(), OPEN, "the rooms in use");
}

/// A design and an engine speak in the words of the contract.
///
/// In the engine no file except the stores names a design. The offline tools name none, and neither
/// does the tests' follower of an engine's log. In the core only the table of designs, their own
/// modules, and the common code over slots of one chunk do.
#[test]
fn only_the_tables_know_which_design_it_is() {
    let of_table: Vec<String> = larder_core::DESIGNS.iter().map(|design| design.name.replace('-', "_")).collect();
    for design in &of_table {
        let file = format!("crates/larder-core/src/designs/{design}.rs");
        assert!(root().join(&file).is_file(), "a design's file has its name: {file}");
    }
    let designs: Vec<&str> = of_table.iter().map(String::as_str).chain(["slotted"]).collect();
    let knows = |path: &str| match path.split_once("/src/") {
        Some(("crates/larder-engine", file)) => file.starts_with("store/"),
        Some(("crates/larder-check", _)) => false,
        Some(("crates/larder-core", file)) => ["designs", "slotted", "named.rs"].iter().any(|of| file.starts_with(of)),
        Some(("crates/larder-follow", _)) => false,
        _ => true,
    };
    let mut looked = 0;
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        let path = short(&path);
        if knows(&path) || path.contains("tests") {
            continue;
        }
        looked += 1;
        let code = text.lines().enumerate().take_while(|(_, line)| *line != "#[cfg(test)]");
        for (number, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let mut words = line.split(|symbol: char| symbol != '_' && !symbol.is_alphanumeric());
            let is_path = |word: &str| line.contains(&format!("{word}::"));
            // A number of the format is a name, too.
            let is_design =
                |rest: &str| rest.starts_with(char::is_uppercase) && rest[1..].starts_with(char::is_lowercase);
            let is_number = line.split("DesignId::").skip(1).any(is_design);
            if is_number || words.any(|word| designs.contains(&word) && is_path(word)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "a design is told from others:\n{}", found.join("\n"));
    assert!(looked > 50, "files that must not know: {looked}");
}

/// The methods of a trait of `larder-core/src/design`: all of them, and those without a default.
fn methods_of(file: &str, name: &str) -> (usize, usize) {
    let path = root().join("crates/larder-core/src").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let begin = text.find(&format!("pub trait {name}")).unwrap_or_else(|| panic!("{file} has the trait {name}"));
    let body = &text[begin..begin + text[begin..].find("\n}").expect("a trait ends")];
    let methods: Vec<&str> = body.split("\n    fn ").skip(1).collect();
    let is_required = |method: &&&str| method.find(';').is_some_and(|end| !method[..end].contains('{'));
    (methods.len(), methods.iter().filter(is_required).count())
}

/// The seam between decisions and engine does not widen.
#[test]
fn a_design_knows_few_methods() {
    // The aim is 35. The aims and the reason of the distance are in docs/TESTING.md.
    const KNOWN_MAX: usize = 46;
    const REMEMBERED_MAX: usize = 5;
    // The aim is 12.
    const WRITTEN_MAX: usize = 29;
    let parts = [
        ("design.rs", "Design"),
        ("design/mapping.rs", "Mapping"),
        ("design/slots.rs", "Slots"),
        ("design/persist.rs", "Persist"),
    ];
    let counts = parts.map(|(file, name)| methods_of(file, name));
    let known: usize = counts.iter().map(|(known, _)| known).sum();
    let written: usize = counts.iter().map(|(_, written)| written).sum();
    let (remembered, _) = methods_of("design/memory.rs", "Memory");
    println!("a new design knows {known} methods and writes {written} of them, with a memory {remembered} more");
    assert!(written > 10, "the reader sees {written} methods");
    assert!(known <= KNOWN_MAX, "{known} methods: {KNOWN_MAX} at most");
    assert!(written <= WRITTEN_MAX, "{written} methods without a default: {WRITTEN_MAX} at most");
    assert!(remembered <= REMEMBERED_MAX, "{remembered} methods of a memory: {REMEMBERED_MAX} at most");

    // A design whose index is in RAM names nothing of the optional part.
    let designs = root().join("crates/larder-core/src");
    let mut named = Vec::new();
    for (path, text) in rust_files() {
        let Ok(below) = path.strip_prefix(&designs) else { continue };
        if !(below.starts_with("designs") || below.starts_with("slotted")) || below.starts_with("designs/austere") {
            continue;
        }
        let naming = text.lines().filter(|line| line.contains("Provisional"));
        named.extend(naming.map(|line| format!("{}: {}", short(&path), line.trim())));
    }
    assert!(named.is_empty(), "these name the optional part of a design:\n{}", named.join("\n"));
}

#[test]
fn the_long_suites_take_every_design() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("a Makefile");
    let listed = |name: &str| -> Vec<String> {
        let line = makefile.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" ?= "));
        line.expect("a list of designs").split(' ').map(str::to_owned).collect()
    };
    let of_store = |is_of_weus: bool| -> Vec<&str> {
        let wanted = ENGINE_DESIGNS.iter().filter(|design| (design.kind() == StoreKind::Weus) == is_of_weus);
        wanted.map(|design| design.name).collect()
    };
    assert_eq!(listed("DESIGNS"), of_store(true), "the designs over WEUs");
    assert_eq!(listed("SLOT_DESIGNS"), of_store(false), "the others");
}

#[test]
fn each_number_of_a_design_is_in_the_document() {
    let told = fs::read_to_string(root().join("docs/FORMAT.md")).expect("the document");
    let numbers = DesignId::ALL.iter().map(|design| format!("{} {}", design.code(), design.name()));
    let wanted = format!("| 65 | 1 | design | {} |\n", numbers.collect::<Vec<_>>().join(", "));
    assert!(told.contains(&wanted), "not in FORMAT.md: {wanted}");
}

/// Returns the place of a suite below `tests`.
///
/// A suite is a file, or a folder with a `main.rs`, and a program by itself. Or it is a file, or a
/// folder with a `mod.rs`, in the folder of a program of many.
fn suite_name(below: &str) -> Option<String> {
    match below.split('/').collect::<Vec<_>>()[..] {
        [file] => Some(file.to_owned()),
        // Suites share `common.rs`.
        [program, "main.rs" | "common.rs"] if PROGRAMS_OF_MANY.contains(&program) => None,
        [program, file] if PROGRAMS_OF_MANY.contains(&program) => Some(file.to_owned()),
        [folder, "main.rs"] => Some(format!("{folder}/")),
        // Suites share `support` and all other such folders.
        [program, folder, "mod.rs"] if PROGRAMS_OF_MANY.contains(&program) && folder != "support" => {
            Some(format!("{folder}/"))
        }
        _ => None,
    }
}

/// Returns the path and the place of each suite.
fn suites() -> Vec<(String, String)> {
    let paths = rust_files().into_iter().map(|(path, _)| short(&path)).filter(|path| path.starts_with("crates/"));
    let named = |path: String| {
        // Unit tests lie beside the sources, and are named by a folder at most.
        let (_, below) = path.split_once("/tests/").filter(|(of, _)| !of.contains("/src"))?;
        let named = suite_name(below)?;
        Some((path, named))
    };
    paths.filter_map(named).collect()
}

#[test]
fn each_suite_is_told_in_the_document() {
    let told = fs::read_to_string(root().join("docs/TESTING.md")).expect("the document");
    let suites = suites();
    // Alone or at the end of a path, for `trims.rs` is a part of `kept_trims.rs`.
    let is_told = |named: &str| ["`", "/"].iter().any(|before| told.contains(&format!("{before}{named}`")));
    let missing: BTreeSet<&String> = suites.iter().filter(|(_, named)| !is_told(named)).map(|(path, _)| path).collect();
    assert!(missing.is_empty(), "not in TESTING.md: {missing:?}");
    assert!(suites.len() > 100, "suites: {}", suites.len());
}

/// The columns of the table of promises, with the parts of paths by which a suite belongs to one.
/// The first column that fits has the suite.
const COLUMNS: [(&str, &[&str]); 12] = [
    ("`simulation`", &["larder-engine/tests/simulation/"]),
    ("`crash_sweep`", &["larder-engine/tests/engine/crash_sweep.rs"]),
    ("`power`", &["larder/tests/program/power/"]),
    ("`house`", &["larder/tests/program/house.rs"]),
    ("planted", &["larder/tests/program/breakages.rs"]),
    ("real clients", &["larder/tests/program/clients.rs", "larder/tests/program/filesystems.rs"]),
    ("scheduled and real threads", &["/tests/interleavings/", "/tests/threads/"]),
    ("formats, fuzz", &["larder-format/", "/fuzz_seeds.rs", "/mutated_images.rs", "/tests/nbd/bytes.rs"]),
    ("NBD", &["larder-serve/"]),
    ("program", &["larder/", "larder-lab/"]),
    ("engine, offline tools", &["larder-engine/", "larder-check/"]),
    (
        "models of core, simulator, traces",
        &["larder-core/", "larder-sim/", "larder-ssd/", "larder-follow/", "larder-papers/", "larder-trace/"],
    ),
];

/// Returns column and name of each suite, as the table of promises has them.
///
/// The name has its crate in front if a suite of another crate has the same one in this column.
fn suites_in_columns() -> BTreeSet<(&'static str, String)> {
    let placed = suites().into_iter().map(|(path, named)| {
        let is_in = |part: &&str| match part.starts_with('/') {
            true => path.contains(*part),
            false => path.starts_with(&format!("crates/{part}")),
        };
        let column = COLUMNS.iter().find(|(_, parts)| parts.iter().any(is_in));
        let column = column.unwrap_or_else(|| panic!("a column of the table has {path}"));
        let of_crate = path.split('/').nth(1).expect("a crate").to_owned();
        (column.0, named.trim_end_matches('/').trim_end_matches(".rs").to_owned(), of_crate)
    });
    let placed: Vec<_> = placed.collect();
    let is_alone =
        |at: (&str, &str)| placed.iter().filter(|(column, name, _)| (*column, name.as_str()) == at).count() == 1;
    let named = placed.iter().map(|(column, name, of_crate)| match is_alone((column, name)) {
        true => (*column, name.clone()),
        false => (*column, format!("{of_crate}/{name}")),
    });
    named.collect()
}

/// The table of promises has each suite in its column, and no name that is not one.
#[test]
fn each_suite_holds_a_promise() {
    let told = fs::read_to_string(root().join("docs/TESTING.md")).expect("the document");
    let at = told.find("\n| promise |").expect("its table") + 1;
    let table = told[at..].split("\n\n").next().expect("its rows");
    let mut rows = table.lines().map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let columns = rows.next().expect("its head");
    let mut named: BTreeSet<(&str, String)> = BTreeSet::new();
    for row in rows {
        for (column, cell) in columns.iter().zip(row).skip(1) {
            named.extend(cell.split('`').skip(1).step_by(2).map(|name| (*column, name.to_owned())));
            // The column's own suite.
            if cell.contains('●') && column.starts_with('`') {
                named.insert((column, column.trim_matches('`').to_owned()));
            }
        }
    }
    let suites = suites_in_columns();
    let differ: Vec<_> = named.symmetric_difference(&suites).collect();
    assert!(differ.is_empty(), "in the table of promises alone, or missing there: {differ:?}");
    assert!(suites.len() > 100, "suites: {}", suites.len());
}

/// Each command that names a test program, with a filter or without, has tests to run.
///
/// A command that names a missing program fails, but a filter without a test passes, and has tried
/// nothing.
#[test]
fn commands_select_tests_that_are_there() {
    let names: Vec<String> = files().iter().map(|path| short(path)).collect();
    let is_there = |tail: String| names.iter().any(|name| name.starts_with("crates/") && name.ends_with(&tail));
    let (mut missing, mut looked) = (BTreeSet::new(), 0);
    for path in names.iter().filter(|name| ["Makefile", ".sh", ".md"].iter().any(|end| name.ends_with(end))) {
        let text = fs::read_to_string(root().join(path)).expect("a text");
        let suites = text.lines().find_map(|line| line.strip_prefix("SLOT_SUITES := ")).unwrap_or_default();
        let suites: String = suites.split(' ').map(|suite| format!("{suite}:: ")).collect();
        for line in text.lines().filter(|line| line.contains("--test ")) {
            let line = line.replace("$(SLOT_SUITES:%=%::)", &suites);
            let words: Vec<&str> = line.split([' ', '`', '"']).collect();
            let programs = words.windows(2).filter(|pair| pair[0] == "--test").map(|pair| pair[1]);
            for program in programs {
                looked += 1;
                if !is_there(format!("/tests/{program}.rs")) && !is_there(format!("/tests/{program}/main.rs")) {
                    missing.insert(format!("{path}: the program {program}"));
                }
                let suites = words.iter().filter_map(|word| Some(word.split_once("::")?.0));
                for suite in suites.filter(|suite| suite.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()))
                {
                    looked += 1;
                    let is_suite = |end: &str| is_there(format!("/tests/{program}/{suite}{end}"));
                    if !is_suite(".rs") && !is_suite("/mod.rs") {
                        missing.insert(format!("{path}: {suite} of {program}"));
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "commands name what is not there: {missing:#?}");
    assert!(looked > 40, "programs and suites that are named: {looked}");
}

#[test]
fn tracked_files_are_small() {
    let large: Vec<String> = files()
        .iter()
        .filter_map(|path| {
            let bytes = fs::metadata(path).ok()?.len();
            (bytes > TRACKED_BYTES_MAX).then(|| format!("{bytes} bytes: {}", short(path)))
        })
        .collect();
    assert!(large.is_empty(), "files over {TRACKED_BYTES_MAX} bytes:\n{}", large.join("\n"));
}

#[test]
fn no_path_of_one_machine_is_committed() {
    let homes = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];
    let mut found = Vec::new();
    for path in files() {
        // Images and fixtures of the format are not text.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            // A path begins at the start of a word; inside a word it is no home directory.
            let begins = |home: &&&str| {
                line.match_indices(**home).any(|(at, _)| {
                    !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "_-.}/".contains(c))
                        || line[..at].ends_with("://")
                })
            };
            for home in homes.iter().filter(begins) {
                found.push(format!("{}:{}: {home}", short(&path), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "paths of one machine:\n{}", found.join("\n"));
}

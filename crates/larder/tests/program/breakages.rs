//! Breaks the contract on purpose and sees that the suite catches it: a suite that cannot fail proves nothing.
//!
//! `breakages/breakages.toml` lists the ways. That each of them still fits the source is checked always; that each is
//! caught takes a build and a run each, so it is done with `LARDER_BREAKAGES=1` (`make breakages`), in a copy of the
//! tree. `LARDER_BREAKAGES=words,words` takes those with some of these words in their name.
//!
//! Invariants: the tree itself is not changed. The suite passes over the unbroken copy first. A breakage is caught where a
//! test of a suite that builds fails and says so; a tree that does not build, or a run that ends otherwise, shows nothing and
//! is a failure of this test.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use toml::de::{DeTable, DeValue};

/// A part of what is run: tests of one program.
struct Suite {
    package: &'static str,
    program: &'static str,
    /// The module, or all of them.
    module: &'static str,
}

const fn suite(package: &'static str, program: &'static str, module: &'static str) -> Suite {
    Suite { package, program, module }
}

/// What is run, in this order, until one of them fails.
const SUITES: &[Suite] = &[
    suite("larder-engine", "simulation", ""),
    suite("larder-engine", "engine", "recovery::"),
    suite("larder-engine", "engine", "degraded::"),
    suite("larder-engine", "engine", "stalled::"),
    suite("larder-engine", "engine", "contract::"),
    suite("larder-engine", "engine", "faults::"),
    suite("larder-engine", "engine", "durability::"),
    suite("larder-engine", "engine", "sibling_addresses::"),
    suite("larder-core", "decisions", "nitro_model::"),
    suite("larder-core", "decisions", "bucketed::"),
    suite("larder-core", "decisions", "restarts::"),
    suite("larder-engine", "engine", "crash_sweep::"),
    suite("larder", "program", "degraded::"),
    suite("larder", "program", "signals::"),
    suite("larder", "program", "ends::"),
];
/// Lines of the contract.
const LINES: u64 = 11;

struct Breakage {
    name: String,
    line: u64,
    file: PathBuf,
    find: String,
    replace: String,
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("crates/larder lies two folders below the root").to_path_buf()
}

fn breakages() -> Vec<Breakage> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/breakages/breakages.toml");
    let text = fs::read_to_string(path).expect("the list");
    let table = DeTable::parse(&text).unwrap_or_else(|error| panic!("breakages.toml: {error}"));
    let Some(DeValue::Array(entries)) = table.get_ref().get("breakage").map(|value| value.get_ref()) else {
        panic!("no entries");
    };
    let value = |entry: &DeValue, key: &str| match entry.get(key).map(|value| value.get_ref()) {
        Some(DeValue::String(text)) => text.to_string(),
        Some(DeValue::Integer(number)) => number.as_str().to_owned(),
        _ => panic!("no {key}: {entry:?}"),
    };
    entries
        .iter()
        .map(|entry| entry.get_ref())
        .map(|entry| Breakage {
            name: value(entry, "name"),
            line: value(entry, "line").parse().expect("a line of the contract"),
            file: value(entry, "file").into(),
            find: value(entry, "find"),
            replace: value(entry, "replace"),
        })
        .collect()
}

impl Breakage {
    /// The broken source.
    fn apply(&self, root: &Path) -> String {
        let source = fs::read_to_string(root.join(&self.file)).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        assert_eq!(source.matches(&self.find).count(), 1, "{}: `find` is not there once", self.name);
        source.replace(&self.find, &self.replace)
    }
}

#[test]
fn each_breakage_fits_the_source_and_each_line_has_one() {
    let all = breakages();
    let mut lines = BTreeSet::new();
    for breakage in &all {
        assert_ne!(breakage.apply(&root()), fs::read_to_string(root().join(&breakage.file)).expect("read before"));
        lines.insert(breakage.line);
    }
    assert!(all.len() >= 12);
    assert_eq!(lines, (1..=LINES).collect(), "a line of the contract that is never broken is not shown to be tested");
}

#[test]
fn each_breakage_is_told_in_the_document() {
    let text = fs::read_to_string(root().join("docs/TESTING.md")).expect("the document");
    let (_, table) = text.split_once("\n| line | broken so | caught by |\n").expect("its table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let told: BTreeSet<String> = rows.map(|row| row.rsplitn(2, " | ").last().expect("a row").to_owned()).collect();
    let made = breakages().iter().map(|breakage| format!("| {} | {}", breakage.line, breakage.name)).collect();
    let differ: Vec<&String> = told.symmetric_difference(&made).collect();
    assert!(differ.is_empty(), "in the table or in the list alone: {differ:#?}");
}

/// Tracked and new files of the tree.
fn copy_tree(to: &Path) {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git");
    assert!(listed.status.success(), "the tree is not a git repository");
    for name in String::from_utf8(listed.stdout).expect("UTF-8").split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root().join(name), to.join(name));
        if from.is_file() {
            fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
            fs::copy(from, to).expect("a copy");
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.module.is_empty() { self.program } else { self.module.trim_end_matches(':') };
        write!(f, "{name} of {}", self.package)
    }
}

fn cargo(tree: &Path, suite: &Suite, more: &[&str]) -> (bool, String) {
    let out = Command::new(env!("CARGO"))
        .args(["test", "-p", suite.package, "--test", suite.program])
        .args(more)
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", root().join("target/breakages"))
        .env_remove("LARDER_BREAKAGES")
        .stdin(Stdio::null())
        .output()
        .expect("cargo");
    let text = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Whether a suite passes over the tree; a failure must be one of its tests, and there must be some.
fn passes(tree: &Path, suite: &Suite, name: &str) -> bool {
    let (builds, said) = cargo(tree, suite, &["--no-run"]);
    assert!(builds, "{name}: {suite} does not build:\n{said}");
    let (passes, said) = cargo(tree, suite, &["--", suite.module]);
    let ends = |with: &str| said.lines().any(|line| line.starts_with("test ") && line.ends_with(with));
    assert!(passes || ends(" ... FAILED"), "{name}: {suite} ends without a failed test:\n{said}");
    assert!(!passes || ends(" ... ok"), "{name}: {suite} has no test:\n{said}");
    passes
}

#[test]
fn each_breakage_is_caught() {
    let Ok(wanted) = std::env::var("LARDER_BREAKAGES") else {
        println!("skipped: breaking the contract on purpose takes long; `make breakages` does it");
        return;
    };
    let tree = root().join("target/breakages-tree");
    let _ = fs::remove_dir_all(&tree);
    copy_tree(&tree);
    let all = breakages();
    let is_wanted = |name: &str| wanted == "1" || wanted.split(',').any(|words| name.contains(words));
    let chosen: Vec<_> = all.iter().filter(|breakage| is_wanted(&breakage.name)).collect();
    assert!(!chosen.is_empty(), "no breakage has {wanted:?} in its name");
    for suite in SUITES {
        assert!(passes(&tree, suite, "unbroken"), "{suite} fails over the unbroken tree");
    }
    println!("unbroken: all {} suites pass", SUITES.len());
    let mut missed = Vec::new();
    for breakage in chosen {
        let path = tree.join(&breakage.file);
        let whole = fs::read_to_string(&path).expect("a source file");
        fs::write(&path, breakage.apply(&tree)).expect("written");
        let caught = SUITES.iter().find(|suite| !passes(&tree, suite, &breakage.name));
        fs::write(&path, whole).expect("mended");
        match caught {
            Some(suite) => println!("line {:2}: {}: caught by {suite}", breakage.line, breakage.name),
            None => {
                println!("line {:2}: {}: NOT CAUGHT", breakage.line, breakage.name);
                missed.push(&breakage.name);
            }
        }
    }
    assert!(missed.is_empty(), "the suite does not notice: {missed:?}");
}

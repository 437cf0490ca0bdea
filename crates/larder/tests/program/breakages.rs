//! Breaks the contract on purpose, and checks that the suites catch it. A suite that cannot fail
//! proves nothing.
//!
//! `breakages/breakages.toml` lists the ways. Every run checks that each of them still fits the
//! source, and that the suites catch one of them. The check of all takes a build and a run each. So
//! `LARDER_BREAKAGES=1` (`make breakages`) does it, in a copy of the tree.
//! `LARDER_BREAKAGES=words,words` takes those with some of these words in their name.
//!
//! Invariants: the tree itself stays as it is. A suite passes over the unbroken copy first. A suite
//! catches a breakage if it builds, and one of its tests fails and says so. It has [`LIMIT`] of
//! suite time for that, builds excluded. A tree that does not build, or a run that ends otherwise,
//! shows nothing and fails this test. If a breakage names its suites, one of these has to catch it.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use toml::de::{DeTable, DeValue};

use crate::support::ends_within;

/// Suite time within which a breakage is caught.
const LIMIT: Duration = Duration::from_secs(120);
/// Lines of the contract.
const LINES: u64 = 11;
/// The breakage that every run of the tests catches: the crate that it breaks builds in a moment.
const ALWAYS: &str = "a write that the kernel cut short goes on at the wrong place, in calls";

/// Programs of tests, each with its package. A crate's own unit tests have the name of its folder.
const PROGRAMS: &[(&str, &str)] = &[
    ("simulation", "larder-engine"),
    ("engine", "larder-engine"),
    ("check", "larder-check"),
    ("interleavings", "larder-engine"),
    ("threads", "larder-engine"),
    ("decisions", "larder-core"),
    ("format", "larder-format"),
    ("nbd", "larder-serve"),
    ("program", "larder"),
    ("larder-device", "larder-device"),
    ("larder-serve", "larder-serve"),
    ("larder-engine", "larder-engine"),
    ("larder-check", "larder-check"),
];

/// A part of a run: tests of one program, as `PROGRAM MODULE::` or `PROGRAM`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Suite {
    package: &'static str,
    program: &'static str,
    /// The module, or a part of a test's name; empty for all of them.
    module: String,
}

impl Suite {
    fn named(text: &str) -> Suite {
        let (program, module) = text.split_once(' ').unwrap_or((text, ""));
        let found = PROGRAMS.iter().find(|(name, _)| *name == program);
        let &(program, package) = found.unwrap_or_else(|| panic!("breakages.toml: no suite {text:?}"));
        Suite { package, program, module: module.to_owned() }
    }

    fn is_unit_tests(&self) -> bool {
        self.program == self.package
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", format!("{} {}", self.program, self.module.trim_end_matches(':')).trim_end())
    }
}

/// The suites for a breakage that names none: they run in this order, until one of them fails.
const SUITES: &[&str] = &[
    "simulation",
    "engine recovery::",
    "engine degraded::",
    "engine stalled::",
    "engine contract::",
    "engine faults::",
    "engine durability::",
    "engine sibling_addresses::",
    "decisions nitro_model::",
    "decisions bucketed::",
    "decisions restarts::",
    "engine crash_sweep::",
    "program degraded::",
    "program signals::",
    "program ends::",
];

struct Breakage {
    name: String,
    line: u64,
    file: PathBuf,
    find: String,
    replace: String,
    /// The suites for it, the quickest first: they run until one of them catches it.
    by: Vec<Suite>,
    /// True if the breakage names its suites: no other one need catch it.
    names_suites: bool,
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
    let suites = |entry: &DeValue| match entry.get("by").map(|value| value.get_ref()) {
        Some(DeValue::Array(names)) => names
            .iter()
            .map(|name| match name.get_ref() {
                DeValue::String(name) => Suite::named(name),
                other => panic!("breakages.toml: {other:?} is no suite"),
            })
            .collect(),
        Some(other) => panic!("breakages.toml: `by` is a list of suites, not {other:?}"),
        None => SUITES.iter().map(|name| Suite::named(name)).collect(),
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
            by: suites(entry),
            names_suites: entry.get("by").is_some(),
        })
        .collect()
}

impl Breakage {
    /// Returns the broken source.
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
    assert!(all.len() >= 40);
    assert_eq!(lines, (1..=LINES).collect(), "a line of the contract that is never broken is not shown to be tested");
    let names: BTreeSet<&str> = all.iter().map(|breakage| breakage.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "two breakages have one name");
}

/// The document has each breakage, with a suite that catches it.
#[test]
fn each_breakage_is_told_in_the_document() {
    let text = fs::read_to_string(root().join("docs/TESTING.md")).expect("the document");
    let (_, table) = text.split_once("\n| line | broken so | caught by |\n").expect("its table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let told: BTreeSet<String> = rows.map(|row| row.rsplitn(2, " | ").last().expect("a row").to_owned()).collect();
    let made = breakages().iter().map(|breakage| format!("| {} | {}", breakage.line, breakage.name)).collect();
    let differ: Vec<&String> = told.symmetric_difference(&made).collect();
    assert!(differ.is_empty(), "in the table or in the list alone: {differ:#?}");
    for breakage in breakages().iter().filter(|breakage| breakage.names_suites) {
        let row = format!("| {} | {} | ", breakage.line, breakage.name);
        let told = text.lines().find_map(|line| line.strip_prefix(&row)).expect("it is in the table");
        let is_named = breakage.by.iter().any(|suite| told.starts_with(&suite.to_string()));
        assert!(is_named, "{}: the document says {told}, which is none of its suites", breakage.name);
    }
}

/// Copies the tracked and new files of the tree.
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

/// A copy of the tree, for builds and runs of suites.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
    /// True if it builds in a moment, and runs slowly.
    is_quick: bool,
}

/// The end of a suite.
enum Verdict {
    Passed,
    /// A test failed; with the seed that replays it, if the test prints one.
    Failed(Option<String>),
    TimeIsOver,
}

impl Copy {
    fn new(name: &str) -> Copy {
        let tree = root().join("target").join(format!("{name}-tree"));
        let _ = fs::remove_dir_all(&tree);
        copy_tree(&tree);
        Copy { tree, target: root().join("target").join(name), is_quick: false }
    }

    /// Returns a cargo command that builds all tests with the features of all crates together.
    ///
    /// So it builds their dependencies once.
    fn cargo(&self, suite: &Suite) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.arg("test");
        match suite.is_unit_tests() {
            true => cargo.args(["-p", suite.package, "--lib"]),
            false => cargo.args(["--workspace", "--test", suite.program]),
        };
        for variable in ["LARDER_BREAKAGES", "LARDER_SEED", "LARDER_DESIGN"] {
            cargo.env_remove(variable);
        }
        cargo.env("CARGO_PROFILE_TEST_DEBUG", "0");
        if self.is_quick {
            cargo.env("CARGO_PROFILE_TEST_OPT_LEVEL", "0");
        }
        cargo.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target).stdin(Stdio::null());
        cargo
    }

    fn build(&self, suite: &Suite, name: &str) {
        let out = self.cargo(suite).arg("--no-run").output().expect("cargo");
        assert!(out.status.success(), "{name}: {suite} does not build:\n{}", said(&out.stdout, &out.stderr));
    }

    /// Runs a built suite. A failure must be one of its tests, and the suite must have tests.
    fn run(&self, suite: &Suite, name: &str, limit: Duration) -> Verdict {
        let Some(out) = ends_within(self.cargo(suite).args(["--", &suite.module]), limit) else {
            return Verdict::TimeIsOver;
        };
        let (passes, text) = (out.status.success(), said(&out.stdout, &out.stderr));
        let ends = |with: &str| text.lines().any(|line| line.starts_with("test ") && line.ends_with(with));
        // The output of a check in a thread of its own stands between its name and its end.
        let fails = ends(" ... FAILED") || text.lines().any(|line| line == "FAILED");
        assert!(passes || fails, "{name}: {suite} ends without a failed test:\n{text}");
        assert!(!passes || ends(" ... ok"), "{name}: {suite} has no test:\n{text}");
        if passes { Verdict::Passed } else { Verdict::Failed(seed_in(&text)) }
    }

    /// Breaks the tree, runs suites until one of them fails, and mends the tree.
    ///
    /// Returns the row of the table; an error if none fails.
    fn catches(&self, breakage: &Breakage) -> Result<String, String> {
        let Breakage { name, line, by, .. } = breakage;
        let path = self.tree.join(&breakage.file);
        let whole = fs::read_to_string(&path).expect("a source file");
        fs::write(&path, breakage.apply(&self.tree)).expect("written");
        let mut spent = Duration::ZERO;
        let mut caught = None;
        for suite in by {
            self.build(suite, name);
            let began = Instant::now();
            let verdict = self.run(suite, name, LIMIT.saturating_sub(spent));
            spent += began.elapsed();
            match verdict {
                Verdict::Passed => {}
                Verdict::TimeIsOver => break,
                Verdict::Failed(seed) => {
                    caught = Some((suite, seed));
                    break;
                }
            }
        }
        fs::write(&path, whole).expect("mended");
        let seconds = spent.as_secs_f64();
        match caught {
            Some((suite, Some(seed))) => Ok(format!("| {line} | {name} | {suite}, seed {seed}, {seconds:.0} s |")),
            Some((suite, None)) => Ok(format!("| {line} | {name} | {suite}, {seconds:.0} s |")),
            None => Err(format!("| {line} | {name} | NOT CAUGHT, {seconds:.0} s |")),
        }
    }

    /// Runs the suite over the unbroken tree.
    ///
    /// Tests of the program ask for `larder-lab`, too. Cargo builds it for the tests of its own.
    fn passes(&self, suite: &Suite) {
        if suite.program == "program" {
            let laboratory = Suite { program: "laboratory", ..suite.clone() };
            self.build(&laboratory, "unbroken");
        }
        self.build(suite, "unbroken");
        let verdict = self.run(suite, "unbroken", Duration::from_secs(1200));
        assert!(matches!(verdict, Verdict::Passed), "{suite} fails over the unbroken tree");
    }
}

fn said(stdout: &[u8], stderr: &[u8]) -> String {
    String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned()
}

/// Returns the first seed that a failed test prints.
fn seed_in(text: &str) -> Option<String> {
    let after = text.split("LARDER_SEED=").nth(1)?;
    let seed: String = after.chars().take_while(char::is_ascii_digit).collect();
    Some(seed).filter(|seed| !seed.is_empty())
}

#[test]
fn one_breakage_is_caught_always() {
    let all = breakages();
    let breakage = all.iter().find(|breakage| breakage.name == ALWAYS).expect("it is in the list");
    let copy = Copy { is_quick: true, ..Copy::new("breakage-always") };
    // The run of all tests shows that the suite passes over the unbroken tree.
    println!("{}", copy.catches(breakage).unwrap_or_else(|row| panic!("{row}")));
}

#[test]
fn each_breakage_is_caught() {
    let Ok(wanted) = std::env::var("LARDER_BREAKAGES") else {
        println!("skipped: breaking the contract on purpose takes long; `make breakages` does it");
        return;
    };
    let copy = Copy::new("breakages");
    let all = breakages();
    let is_wanted = |name: &str| wanted == "1" || wanted.split(',').any(|words| name.contains(words));
    let chosen: Vec<_> = all.iter().filter(|breakage| is_wanted(&breakage.name)).collect();
    assert!(!chosen.is_empty(), "no breakage has {wanted:?} in its name");
    println!("| line | broken so | caught by |\n|---|---|---|");
    // Before the first breakage: each change of the tree builds the suites anew.
    let suites: BTreeSet<&Suite> = chosen.iter().flat_map(|breakage| &breakage.by).collect();
    suites.into_iter().for_each(|suite| copy.passes(suite));
    let mut missed = Vec::new();
    for breakage in chosen {
        match copy.catches(breakage) {
            Ok(row) => println!("{row}"),
            Err(row) => {
                println!("{row}");
                missed.push(&breakage.name);
            }
        }
    }
    assert!(missed.is_empty(), "no suite notices, or not in time: {missed:?}");
}

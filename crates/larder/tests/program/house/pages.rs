//! The rules of the pages that introduce the tree: their length, and the truth of the names in
//! them.
//!
//! It reads Markdown line by line. It does not check that a page explains a name rightly.

use super::{ARROWS, files, root, rust_files, short};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// Longest pages, in bytes. A reader gets through each in minutes.
const BYTES_MAX: &[(&str, usize)] =
    &[("ARCHITECTURE.md", 15 << 10), ("README.md", 6 << 10), ("docs/GLOSSARY.md", 6 << 10)];
/// Longest page of a design, in bytes.
const DESIGN_BYTES_MAX: usize = 5 << 10;
/// The folder of these pages, one for each design or group of designs.
const PAGES: &str = "docs/designs/";
/// The place of a file or function that a page names without its crate.
const ENGINE: &str = "crates/larder-engine/src/";

/// Returns the text of a page.
fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}

/// Returns the paths of all files of the tree.
fn paths() -> Vec<String> {
    files().iter().map(|path| short(path)).collect()
}

/// Returns the pages on designs.
fn design_pages() -> Vec<String> {
    paths().into_iter().filter(|path| path.starts_with(PAGES) && path.ends_with(".md")).collect()
}

/// Returns the pages that name files and functions.
fn naming_pages() -> Vec<String> {
    let fixed = [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/GLOSSARY.md",
        "docs/LAB.md",
        "docs/OPERATING.md",
        "docs/TESTING.md",
    ];
    fixed.map(str::to_owned).into_iter().chain(design_pages()).collect()
}

/// Returns the lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// Returns the words in backticks, outside fenced code.
fn marked(text: &str) -> Vec<String> {
    prose(text).flat_map(|line| line.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Returns whether `text` has `word` with no part of a word on either side.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

/// The files of the tree, and the text of its sources.
struct Tree {
    paths: Vec<String>,
    sources: BTreeMap<String, String>,
}

impl Tree {
    fn read() -> Tree {
        let paths = paths();
        let is_source = |path: &&String| path.ends_with(".rs") && path.contains("/src/");
        let sources = paths.iter().filter(is_source).map(|path| (path.clone(), page(path))).collect();
        Tree { paths, sources }
    }

    /// Returns whether a file or folder has this name, which is the end of its path.
    fn has(&self, name: &str) -> bool {
        let inner = format!("/{name}");
        self.paths.iter().any(|path| match name.ends_with('/') {
            true => path.starts_with(name) || path.contains(&inner),
            false => path == name || path.ends_with(&inner),
        })
    }

    /// Returns whether the engine's file `module.rs` has the function.
    fn has_function(&self, module: &str, function: &str) -> bool {
        let path = format!("{ENGINE}{module}.rs");
        self.sources.get(&path).is_some_and(|text| has_word(text, &format!("fn {function}")))
    }

    /// Returns whether a source that declares or implements the type has this function or variant.
    fn has_member(&self, owner: &str, member: &str) -> bool {
        let heads = ["struct", "enum", "trait", "impl", "for"].map(|word| format!("{word} {owner}"));
        self.sources.values().any(|text| {
            let is_variant = |line: &str| {
                let rest = line.trim_start().strip_prefix(member);
                rest.is_some_and(|rest| rest.starts_with([',', ' ', '(', '{']))
            };
            heads.iter().any(|head| has_word(text, head))
                && (has_word(text, &format!("fn {member}")) || text.lines().any(is_variant))
        })
    }

    /// Returns whether the tree has this name; `None` if it is no name of a file or function.
    fn knows(&self, name: &str) -> Option<bool> {
        if let Some((owner, member)) = name.split_once("::") {
            let is_name = |word: &str| word.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
            if !is_name(owner) || !is_name(member) {
                return None;
            }
            let is_type = owner.starts_with(char::is_uppercase);
            return Some(if is_type { self.has_member(owner, member) } else { self.has_function(owner, member) });
        }
        let is_path = !name.contains([' ', '*', ':']) && !name.starts_with(['/', '-', '.']);
        let is_file = [".rs", ".toml", ".sh", ".md", ".svg", "/"].iter().any(|end| name.ends_with(end));
        (is_path && is_file).then(|| self.has(name))
    }
}

#[test]
fn pages_for_newcomers_are_short() {
    let limits = BYTES_MAX.iter().map(|&(path, max)| (path.to_owned(), max));
    let designs = design_pages().into_iter().map(|path| (path, DESIGN_BYTES_MAX));
    let long: Vec<String> = limits
        .chain(designs)
        .filter_map(|(path, max)| {
            let bytes = page(&path).len();
            (bytes > max).then(|| format!("{bytes} bytes, {max} at most: {path}"))
        })
        .collect();
    assert!(long.is_empty(), "pages that are too long:\n{}", long.join("\n"));
}

#[test]
fn each_file_and_function_that_a_page_names_is_there() {
    let tree = Tree::read();
    let (mut missing, mut looked) = (BTreeSet::new(), 0);
    for path in naming_pages() {
        for name in marked(&page(&path)) {
            let Some(is_there) = tree.knows(&name) else { continue };
            looked += 1;
            if !is_there {
                missing.insert(format!("{path}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "names without a file or function: {missing:#?}");
    assert!(looked > 350, "names: {looked}");
}

/// A file of the same crate has its inner path alone; one of another crate has the crate, too.
#[test]
fn each_source_that_a_head_names_is_there() {
    let tree = Tree::read();
    let (mut missing, mut looked) = (BTreeSet::new(), 0);
    for (path, text) in rust_files() {
        let path = short(&path);
        let own = path.split_inclusive('/').take(if path.starts_with("crates/") { 2 } else { 1 }).collect::<String>();
        let head = text.lines().filter(|line| line.starts_with("//!"));
        let marked = head.flat_map(|line| line.split('`').skip(1).step_by(2));
        for name in marked.filter(|name| name.ends_with(".rs") && tree.knows(name).is_some()) {
            looked += 1;
            let inner = format!("/{name}");
            let has_crate = name.starts_with("larder") || name.starts_with("fuzz/");
            let is_it = |of: &String| *of == *name || of.ends_with(&inner) && (has_crate || of.starts_with(&own));
            if !tree.paths.iter().any(is_it) {
                missing.insert(format!("{path}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "heads name files that are not there: {missing:#?}");
    assert!(looked > 120, "names: {looked}");
}

#[test]
fn a_wrong_name_is_found() {
    let tree = Tree::read();
    let right =
        ["write_back::put_dirty", "State::map_dirty", "Provisional::unread", "store/", "nbd/request.rs", "deny.toml"];
    let wrong =
        ["write_back::put_dirt", "read::put_dirty", "Provisional::unred", "stores/", "nbd/asks.rs", "request.r.rs"];
    let none = ["--trim keep", "BlockDevice", "larder sim", "/dev/nbd0", "nbd://HOST"];
    assert!(right.iter().all(|name| tree.knows(name) == Some(true)), "{:?}", right.map(|name| tree.knows(name)));
    assert!(wrong.iter().all(|name| tree.knows(name) == Some(false)), "{:?}", wrong.map(|name| tree.knows(name)));
    assert!(none.iter().all(|name| tree.knows(name).is_none()), "{:?}", none.map(|name| tree.knows(name)));
    let text = "`a.rs` and `b`\n```\n`c.rs`\n```\n  `d.rs`";
    assert_eq!(marked(text), ["a.rs", "b", "d.rs"]);
}

/// The title of the page names its designs in backticks.
#[test]
fn each_design_has_its_page() {
    let mut titles: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in design_pages() {
        for name in marked(page(&path).lines().next().unwrap_or_default()) {
            titles.entry(name).or_default().push(path.clone());
        }
    }
    let named: BTreeSet<&str> = titles.keys().map(String::as_str).collect();
    let designs: BTreeSet<&str> = larder_core::DESIGNS.iter().map(|design| design.name).collect();
    assert_eq!(named, designs, "designs in the titles of pages, and in the table");
    let twice: Vec<_> = titles.iter().filter(|(_, pages)| pages.len() > 1).collect();
    assert!(twice.is_empty(), "designs with several pages: {twice:?}");
    let architecture = page("ARCHITECTURE.md");
    let unlinked: Vec<String> =
        design_pages().into_iter().filter(|path| !architecture.contains(&format!("({path})"))).collect();
    assert!(unlinked.is_empty(), "pages without a link in ARCHITECTURE.md: {unlinked:?}");
}

#[test]
fn the_architecture_draws_the_arrows_between_crates() {
    let text = page("ARCHITECTURE.md");
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let mut drawn: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| `larder")).map(cells) {
        let [_, name, _, used, _] = &row[..] else { panic!("a row of a crate has three cells: {row:?}") };
        let used = used.split(", ").filter(|used| *used != "none");
        drawn.insert(name.trim_matches('`').to_owned(), used.map(str::to_owned).collect());
    }
    let brief = |name: &str| name.strip_prefix("larder-").unwrap_or(name).to_owned();
    let arrows: BTreeMap<String, BTreeSet<String>> =
        ARROWS.iter().map(|(name, used)| ((*name).to_owned(), used.iter().map(|used| brief(used)).collect())).collect();
    assert_eq!(drawn, arrows, "crates and arrows in ARCHITECTURE.md, and those of this test");
}

#[test]
fn the_glossary_has_each_term_once_in_order() {
    let text = page("docs/GLOSSARY.md");
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| term"));
    let terms: Vec<String> = rows.map(|row| row[2..].split(" |").next().unwrap_or_default().to_lowercase()).collect();
    let mut sorted = terms.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(terms, sorted);
    assert!(terms.len() > 50, "terms: {}", terms.len());
}

/// Returns the anchor that a forge makes of a heading.
fn anchor(heading: &str) -> String {
    let plain = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = plain.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let paths: BTreeSet<String> = paths().into_iter().collect();
    let (mut dead, mut looked) = (BTreeSet::new(), 0);
    for path in paths.iter().filter(|path| path.ends_with(".md")) {
        let text = page(path);
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for target in prose(&text).flat_map(|line| line.split("](").skip(1)) {
            let target = target.split([')', ' ']).next().unwrap_or_default();
            if target.contains("://") {
                continue;
            }
            looked += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let mut steps: Vec<&str> = folder.split('/').filter(|step| !step.is_empty()).collect();
            for step in file.split('/').filter(|step| !step.is_empty()) {
                match step {
                    ".." => drop(steps.pop()),
                    step => steps.push(step),
                }
            }
            let of = if file.is_empty() { path.clone() } else { steps.join("/") };
            let is_there = paths.contains(&of) || paths.iter().any(|path| path.starts_with(&format!("{of}/")));
            let has_heading = || {
                let linked = page(&of);
                prose(&linked).any(|line| line.starts_with('#') && anchor(line) == heading)
            };
            if !is_there || !heading.is_empty() && !has_heading() {
                dead.insert(format!("{path}: {target}"));
            }
        }
    }
    assert!(dead.is_empty(), "links that lead nowhere: {dead:#?}");
    assert!(looked > 60, "links: {looked}");
}

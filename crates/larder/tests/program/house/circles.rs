//! Files of a crate that import each other, however indirectly.
//!
//! A file is a module of a crate. It imports each file that its paths from `crate`, `super` and
//! `self` lead to. Tests do not count, nor does the root of a crate.
//!
//! It reads text: a path that a macro builds escapes it.

use super::{root, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Module = Vec<String>;

/// Returns the code of a file: without comments and inline tests.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let uncommented = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text[..end].lines().map(uncommented).collect::<Vec<_>>().join("\n")
}

/// Returns the paths of a `use` tree, with `before` in front.
fn expand(tree: &str, before: &[String], paths: &mut Vec<Module>) {
    let tree = tree.trim();
    let words =
        |text: &str| text.split("::").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let Some(open) = tree.find('{') else {
        let plain: Vec<String> = words(tree.split(" as ").next().unwrap_or_default());
        paths.push([before, &plain].concat());
        return;
    };
    let head: Vec<String> = words(&tree[..open]);
    let head = [before, &head].concat();
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut from) = (0, 0);
    for (at, sign) in inner.char_indices().chain([(inner.len(), ',')]) {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[from..at].trim().is_empty() {
                    expand(&inner[from..at], &head, paths);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns all paths that a file names from `crate`, `super` and `self`.
fn paths(code: &str) -> Vec<Module> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let tree = &code[at + 4..];
        let tree = &tree[..tree.find(';').unwrap_or(0)];
        if ["crate", "super", "self"].iter().any(|start| tree.trim_start().starts_with(start)) {
            expand(tree, &[], &mut paths);
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let end = code[at..].find(|c| !is_word(c)).map_or(code.len(), |end| at + end);
            // The head of a tree of imports alone leads nowhere.
            if !code[at..end].ends_with("::") {
                expand(&code[at..end], &[], &mut paths);
            }
        }
    }
    paths
}

/// Returns the module of a file below `src`.
fn module_of(below: &Path) -> Module {
    let mut parts: Module = below.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// Returns the file that a path from `at` leads to.
fn target(path: &[String], at: &Module, files: &BTreeMap<Module, String>) -> Module {
    let mut from = at.clone();
    let mut rest = path;
    match rest.first().map(String::as_str) {
        Some("crate") => {
            from.clear();
            rest = &rest[1..];
        }
        Some("self") => rest = &rest[1..],
        _ => {
            while rest.first().is_some_and(|word| word == "super") {
                from.pop();
                rest = &rest[1..];
            }
        }
    }
    from.extend(rest.iter().cloned());
    while !from.is_empty() && !files.contains_key(&from) {
        from.pop();
    }
    from
}

/// Returns the files that reach each other.
fn circles(files: &BTreeMap<Module, String>) -> Vec<Vec<String>> {
    let imports: BTreeMap<&Module, BTreeSet<Module>> = files
        .iter()
        .map(|(module, code)| {
            let found = paths(code).into_iter().map(|path| target(&path, module, files));
            (module, found.filter(|found| found != module && !found.is_empty()).collect())
        })
        .collect();
    let reached = |from: &Module| {
        let mut found: BTreeSet<&Module> = BTreeSet::new();
        let mut left: Vec<&Module> = imports[from].iter().collect();
        while let Some(next) = left.pop() {
            if found.insert(next) {
                left.extend(&imports[next]);
            }
        }
        found
    };
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = files.keys().map(|module| (module, reached(module))).collect();
    let mut told: BTreeSet<&Module> = BTreeSet::new();
    let mut circles = Vec::new();
    for module in files.keys().filter(|module| reached[module].contains(module)) {
        if told.contains(module) {
            continue;
        }
        let circle: Vec<&Module> =
            files.keys().filter(|it| reached[module].contains(it) && reached[it].contains(module)).collect();
        circles.push(circle.iter().map(|module| module.join("/")).collect());
        told.extend(circle);
    }
    circles
}

#[test]
fn the_reader_sees_a_circle() {
    let file = |path: &[&str], text: &str| (path.iter().map(|&part| part.to_owned()).collect::<Module>(), code(text));
    let files = BTreeMap::from([
        file(&["a"], "use crate::b::{c::D, e};"),
        file(&["b", "c"], "//! crate::a\nfn f() { super::g::h() }"),
        file(&["b", "g"], "use super::super::a;\n#[cfg(test)]\nmod tests {\n use crate::lone;\n}"),
        file(&["lone"], "use crate::{a, b::c::{D as E}};"),
    ]);
    assert_eq!(circles(&files), [["a", "b/c", "b/g"]]);
}

#[test]
fn no_two_files_import_each_other() {
    let mut crates: BTreeMap<String, BTreeMap<Module, String>> = BTreeMap::new();
    for (path, text) in rust_files() {
        let below = path.strip_prefix(root()).unwrap_or(&path);
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let ["crates", name, "src", ..] = parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>()[..] else { continue };
        if parts.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let below = below.iter().skip(3).collect::<std::path::PathBuf>();
        crates.entry(name.to_owned()).or_default().insert(module_of(&below), code(&text));
    }
    assert!(crates.len() > 5, "the tree has more than {} crates", crates.len());
    let mut wrong = Vec::new();
    for (name, files) in &crates {
        let circles = circles(files);
        let found: usize = circles.iter().map(Vec::len).sum();
        println!("{name}: {} files, {found} of them in circles", files.len());
        if found > 0 {
            wrong.push(format!("{name}: {found} files in circles: {circles:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

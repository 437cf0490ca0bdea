//! Files of a crate that import each other, however indirectly.
//!
//! A file is a module of a crate, and it imports each file that a path of its leads to. A path
//! begins with `crate`, `super` or `self`, with a child of the file (`mod child;`), or with a name
//! that a `use` of the file binds. It leads to the file with the item: the test follows each `use`
//! on the way, so a path through a facade leads behind the facade.
//!
//! `pub use child::Item;` alone is no import: it gives the item to others. It is one if the file
//! names the item again. Tests do not count.
//!
//! It reads text: a path that a macro builds escapes it, and a method that is called on a value.

use super::{code, has_word, is_word, places_of, root, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Module = Vec<String>;

/// A longer way from re-export to re-export is a `use` that leads back to itself.
const STEPS_MAX: usize = 20;

/// A path of a `use`, with the name that it binds.
struct Import {
    path: Module,
    name: String,
    /// The file gives the item to others.
    is_public: bool,
}

/// The paths of a file.
struct File {
    imports: Vec<Import>,
    /// The code without its imports.
    rest: String,
}

type Files = BTreeMap<Module, File>;

fn split(path: &str) -> Module {
    path.split("::").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Adds the imports of a `use` tree, with `before` in front.
fn expand(tree: &str, before: &[String], is_public: bool, imports: &mut Vec<Import>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut path = [before, &split(path)].concat();
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = if name.is_empty() { path.last().cloned().unwrap_or_default() } else { name.trim().to_owned() };
        imports.push(Import { path, name, is_public });
        return;
    };
    let head = [before, &split(&tree[..open])].concat();
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut from) = (0, 0);
    for (at, sign) in inner.char_indices().chain([(inner.len(), ',')]) {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[from..at].trim().is_empty() {
                    expand(&inner[from..at], &head, is_public, imports);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns a visible item without `pub` or `pub(…)`, and whether it had that.
fn unveiled(item: &str) -> (&str, bool) {
    let item = item.trim_start();
    let Some(rest) = item.strip_prefix("pub") else { return (item, false) };
    let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
    (rest.trim_start(), true)
}

/// Takes the paths of a file from its text.
fn file(text: &str) -> File {
    let mut found = File { imports: Vec::new(), rest: String::new() };
    let code = code(text);
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let (item, is_public) = unveiled(line);
        if let Some(tree) = item.strip_prefix("use ") {
            let mut tree = tree.to_owned();
            while !tree.contains(';') {
                let Some(line) = lines.next() else { break };
                tree.push_str(line);
            }
            expand(tree.split(';').next().unwrap_or_default(), &[], is_public, &mut found.imports);
        } else {
            found.rest.push_str(line);
            found.rest.push('\n');
        }
    }
    found
}

impl Import {
    /// Returns the path without its last word.
    fn head(&self) -> &[String] {
        &self.path[..self.path.len() - 1]
    }
}

impl File {
    fn words(&self) -> impl Iterator<Item = &str> {
        self.rest.split(|c| !is_word(c)).filter(|word| !word.is_empty())
    }

    /// Tells whether the file names something again that it imports.
    fn names(&self, name: &str) -> bool {
        places_of(&self.rest, name).any(|at| !self.rest[..at].ends_with(['.', ':']))
            || self.imports.iter().any(|it| it.path[0] == name && it.path.len() > 1)
    }

    /// Returns the import that binds a name.
    fn import_of(&self, name: &str) -> Option<&Import> {
        self.imports.iter().find(|import| import.name == name && import.path[0] != name)
    }

    /// Tells whether the item stands in this file.
    fn declares(&self, name: &str) -> bool {
        let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
        kinds.iter().any(|kind| has_word(&self.rest, &format!("{kind} {name}")))
    }

    /// Returns the paths in the code, without those of imports.
    fn inline_paths(&self) -> Vec<Module> {
        let runs = self.rest.split(|c: char| !is_word(c) && c != ':');
        runs.filter(|run| run.contains("::") && !run.starts_with(':')).map(split).collect()
    }
}

/// Returns the file that a path of the file `at` leads to; none if it leads out of the crate.
fn target(path: &[String], at: &Module, files: &Files, steps: usize) -> Option<Module> {
    let (first, mut rest) = path.split_first()?;
    let mut from = at.clone();
    match first.as_str() {
        "crate" => from.clear(),
        "self" => {}
        "super" => {
            from.pop();
        }
        name => {
            from.push(name.to_owned());
            if !files.contains_key(&from) {
                return behind(name, rest, at, files, steps);
            }
        }
    }
    while let Some((word, left)) = rest.split_first() {
        let below = [from.as_slice(), std::slice::from_ref(word)].concat();
        if word == "super" {
            from.pop();
        } else if files.contains_key(&below) {
            from = below;
        } else {
            let found = behind(word, left, &from, files, steps);
            let is_bound = files.get(&from).is_some_and(|file| file.import_of(word).is_some());
            return if is_bound { found } else { found.or(Some(from)) };
        }
        rest = left;
    }
    Some(from)
}

/// Returns the file of an item that the file `at` imports under this name.
fn behind(name: &str, rest: &[String], at: &Module, files: &Files, steps: usize) -> Option<Module> {
    let here = files.get(at).filter(|_| steps < STEPS_MAX)?;
    if let Some(import) = here.import_of(name) {
        return target(&[&import.path, rest].concat(), at, files, steps + 1);
    }
    let globs = here.imports.iter().filter(|import| import.name == "*");
    globs.filter_map(|glob| target(glob.head(), at, files, steps + 1)).find_map(|file| {
        let there = files.get(&file)?;
        let is_given = there.imports.iter().any(|import| import.is_public && [name, "*"].contains(&&*import.name));
        if there.declares(name) {
            return Some(file);
        }
        let below = [file.as_slice(), &[name.to_owned()]].concat();
        if files.contains_key(&below) {
            return target(&[&["crate".to_owned()], below.as_slice(), rest].concat(), at, files, steps + 1);
        }
        behind(name, rest, &file, files, steps + 1).filter(|_| is_given)
    })
}

/// Returns the files that a file imports.
fn imported(at: &Module, files: &Files) -> BTreeSet<Module> {
    let file = &files[at];
    let used = file.imports.iter().filter(|import| {
        let given = || target(import.head(), at, files, 0).and_then(|given| files.get(&given));
        let is_all = import.name == "*" && given().is_some_and(|given| file.words().any(|word| given.declares(word)));
        !import.is_public || is_all || file.names(&import.name)
    });
    let paths = used.map(|import| import.path.clone()).chain(file.inline_paths());
    paths
        .filter_map(|path| target(&path, at, files, 0))
        .filter(|found| found != at && files.contains_key(found))
        .collect()
}

/// Returns the files that reach each other.
fn circles(files: &Files) -> Vec<Vec<String>> {
    let imports: BTreeMap<&Module, BTreeSet<Module>> = files.keys().map(|at| (at, imported(at, files))).collect();
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
        let name = |module: &Module| if module.is_empty() { "the root".to_owned() } else { module.join("/") };
        for from in &circle {
            for to in circle.iter().filter(|to| imports[from].contains(**to)) {
                println!("  {} imports {}", name(from), name(to));
            }
        }
        circles.push(circle.iter().map(|module| name(module)).collect());
        told.extend(circle);
    }
    circles
}

/// Returns the module of a file below `src`.
fn module_of(below: &Path) -> Module {
    let mut parts: Module = below.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// Returns the circles of a made-up crate; `""` is its root.
fn circles_of(texts: &[(&str, &str)]) -> Vec<Vec<String>> {
    let module = |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    circles(&texts.iter().map(|&(path, text)| (module(path), file(text))).collect())
}

#[test]
fn the_reader_sees_a_circle() {
    let files = [
        ("a", "use crate::b::{c::D, e};"),
        ("b", ""),
        ("b/c", "//! crate::lone\nfn f() { super::g::h() }"),
        ("b/g", "use super::super::a;\n#[cfg(test)]\nmod tests {\n use crate::lone;\n}"),
        ("lone", "use crate::{a, b::c::{D as E}};"),
    ];
    assert_eq!(circles_of(&files), [["a", "b/c", "b/g"]]);
}

#[test]
fn a_file_that_uses_its_child_imports_it() {
    let child = ("a/child", "use super::Word;\npub enum Kind { One, Two }");
    for parent in [
        "mod child;\nuse child::f;\nstruct Word;",
        "mod child;\npub(crate) use child::{f, g};\nfn h() { if f() {} }",
        "mod child;\npub use child::f as g;\nfn h() { g::<u8>() }",
        "mod child;\nfn h() { (child::f)() }",
        "mod child;\nfn h() { self::child::f() }",
        "mod child;\nuse self::{child::Kind};\nuse Kind::*;",
        "mod child;\npub use child::Kind;\nuse Kind::{One, Two};",
        "mod child;\npub use child::*;\nfn h() -> Kind {}",
    ] {
        assert_eq!(circles_of(&[("a", parent), child]), [["a", "a/child"]], "{parent}");
    }
    for parent in [
        "mod child;\npub use child::f;",
        "mod child;\npub use child::{f, g as h};\nfn g() { self.f(); other::f() }",
        "mod child;\nfn h() { other::child::f() }",
        "mod child;\nuse other::child::f;",
        "mod child;\npub use child::*;\nfn kind() {}",
    ] {
        assert_eq!(circles_of(&[("a", parent), child]), Vec::<Vec<String>>::new(), "{parent}");
    }
}

#[test]
fn a_path_through_a_facade_leads_behind_it() {
    let facades = [
        "pub use one::One;\npub use two::{Two};",
        "pub use two::{Two as Three, Two};\nuse one::{f, One};",
        "pub use self::one::*;\npub(super) use two::*;",
        "pub use super::a::two::Two;\npub use crate::a::one as uno;\npub use uno::One;",
    ];
    let one = ("a/one", "use super::Two;\npub struct One<T>(T);");
    for facade in facades {
        for two in [
            "use super::One;\npub fn f() {}\npub struct Two;",
            "use crate::a;\npub struct Two(a::One);",
            "use crate::a as b;\npub struct Two(b::One);",
            "pub struct Two(crate::One);",
        ] {
            let root = ("", "mod a;\npub use a::{One, Two};");
            let found = circles_of(&[root, ("a", facade), one, ("a/two", two)]);
            assert!(found.iter().flatten().any(|file| file == "a/two"), "{facade} {two}: {found:?}");
            assert!(found.iter().flatten().any(|file| file == "a/one"), "{facade} {two}: {found:?}");
        }
        let found = circles_of(&[("a", facade), one, ("a/two", "pub struct Two;")]);
        assert!(found.is_empty(), "{facade}: {found:?}");
        let foreign = format!("{facade}\npub use other::Foreign;");
        let found = circles_of(&[("a", &foreign), one, ("a/two", "use super::Foreign;\npub struct Two;")]);
        assert!(found.is_empty(), "another crate's: {found:?}");
    }
}

#[test]
fn a_module_that_a_glob_gives_has_its_files() {
    let root = ("", "mod designs;\npub use designs::*;");
    let nitro = ("designs/nitro", "use crate::arc::ghosts::Ghost;");
    let ghosts = ("designs/arc/ghosts", "use super::super::nitro::f;");
    let found = circles_of(&[root, ("designs", "pub mod arc;"), ("designs/arc", "mod ghosts;"), nitro, ghosts]);
    assert_eq!(found, [["designs/arc/ghosts", "designs/nitro"]]);
}

#[test]
fn a_use_that_leads_back_to_itself_ends() {
    let files =
        [("a", "pub use crate::b::X;\npub use crate::b::*;"), ("b", "pub use crate::a::X;\npub use crate::a::*;")];
    circles_of(&files);
    circles_of(&[("", "mod a;"), ("a", "use super::c;\nuse c::b;\nuse b::c;\nfn f() { c::b() }")]);
}

#[test]
fn the_root_of_a_crate_counts() {
    let files = [("", "mod a;\nfn main() { a::f() }\nfn help() {}"), ("a", "use crate::help;")];
    assert_eq!(circles_of(&files), [["the root", "a"]]);
}

#[test]
fn no_two_files_import_each_other() {
    let mut crates: BTreeMap<String, Files> = BTreeMap::new();
    for (path, text) in rust_files() {
        let below = path.strip_prefix(root()).unwrap_or(&path);
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let ["crates", name, "src", ..] = parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>()[..] else { continue };
        if parts.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let below = below.iter().skip(3).collect::<std::path::PathBuf>();
        let files = crates.entry(name.to_owned()).or_default();
        // A library with a program beside it has two roots.
        if parts.last().is_none_or(|last| last != "main.rs" || !files.contains_key(&Vec::new())) {
            files.insert(module_of(&below), file(&text));
        }
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

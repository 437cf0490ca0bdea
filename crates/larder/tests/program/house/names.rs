//! One name for one type: types that other files see have different names.
//!
//! A reader of two files would take one for the other. Two rules hold. Types that any file of a
//! crate may import have different names within that crate. So have public types of all crates, but
//! for programs, which no crate can import. Only a type at the top of a file counts.
//!
//! It reads text: a type that a macro makes escapes it. It leaves private types alone.

use super::{root, rust_files};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// Crates that are programs alone.
const PROGRAMS: &[&str] = &["larder-lab", "larder-measure"];

/// A type that other files see.
#[derive(Debug, PartialEq)]
struct Visible<'a> {
    name: &'a str,
    /// Other crates see it, too.
    is_public: bool,
}

/// Returns the types at the top of a file that others may import, above its tests.
fn visible_types(text: &str) -> impl Iterator<Item = Visible<'_>> {
    let source = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    source.lines().filter_map(|line| {
        let (is_public, rest) = match line.strip_prefix("pub ") {
            Some(rest) => (true, rest),
            None => (false, line.strip_prefix("pub(")?.split_once(") ")?.1),
        };
        let mut words = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&words.next()?);
        words.next().filter(|name| is_type && !name.is_empty()).map(|name| Visible { name, is_public })
    })
}

/// Returns the crates' own files that are not tests: crate, path and text.
fn sources() -> Vec<(String, PathBuf, String)> {
    let of_source = |(path, text): (PathBuf, String)| {
        let below = path.strip_prefix(root()).unwrap_or(&path).to_owned();
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let ["crates", name, "src", ..] = parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>()[..] else {
            return None;
        };
        let is_test = parts.iter().any(|part| part == "tests" || part == "tests.rs");
        (!is_test).then(|| (name.to_owned(), below.clone(), text))
    };
    rust_files().into_iter().filter_map(of_source).collect()
}

#[test]
fn the_reader_sees_the_types_that_others_see() {
    let text = "pub struct A<T>;\nstruct B;\n    pub enum C {}\npub(crate) enum D {}\npub trait E: F {}\npub fn g() {}\n\
                pub(in crate::a) type H = u8;\n#[cfg(test)]\nmod tests {\n}\npub struct I;\n";
    let found: Vec<_> = visible_types(text).map(|of| (of.name, of.is_public)).collect();
    assert_eq!(found, [("A", true), ("D", false), ("E", true), ("H", false)]);
}

#[test]
fn types_that_other_files_of_a_crate_see_have_different_names() {
    let mut files: BTreeMap<(String, String), Vec<PathBuf>> = BTreeMap::new();
    for (of_crate, path, text) in sources() {
        for of in visible_types(&text) {
            files.entry((of_crate.clone(), of.name.to_owned())).or_default().push(path.clone());
        }
    }
    assert!(files.len() > 600, "the tree has more than {} such types", files.len());
    files.retain(|_, paths| paths.len() > 1);
    assert!(files.is_empty(), "one name, several files of a crate: {files:#?}");
}

#[test]
fn public_types_of_different_crates_have_different_names() {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (of_crate, _, text) in sources() {
        if PROGRAMS.contains(&of_crate.as_str()) {
            continue;
        }
        for of in visible_types(&text).filter(|of| of.is_public) {
            crates.entry(of.name.to_owned()).or_default().insert(of_crate.clone());
        }
    }
    assert!(crates.len() > 200, "the tree has more than {} public types", crates.len());
    crates.retain(|_, by| by.len() > 1);
    assert!(crates.is_empty(), "one name, several crates: {crates:#?}");
}

//! One name for one type.
//!
//! A reader of two files would take one for the other. Two rules hold. Types of a crate have
//! different names, private ones too. So have public types of all crates, but for programs, which
//! no crate can import. Only a type at the top of a file counts.
//!
//! It reads text: a type that a macro makes escapes it.

use super::{code, is_word, root, rust_files};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// Crates that are programs alone.
const PROGRAMS: &[&str] = &["larder-lab", "larder-measure"];

/// A type at the top of a file.
#[derive(Debug, PartialEq)]
struct Type<'a> {
    name: &'a str,
    /// Other crates see it.
    is_public: bool,
}

/// Returns the types at the top of a file, by its code.
fn types(code: &str) -> impl Iterator<Item = Type<'_>> {
    code.lines().filter_map(|line| {
        let (is_public, rest) = match (line.strip_prefix("pub "), line.strip_prefix("pub(")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest.split_once(") ")?.1),
            (None, None) => (false, line),
        };
        let mut words = rest.split(|letter: char| !is_word(letter));
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&words.next()?);
        words.next().filter(|name| is_type && !name.is_empty()).map(|name| Type { name, is_public })
    })
}

/// Returns the crates' own files that are not tests: crate, path and code.
fn sources() -> Vec<(String, PathBuf, String)> {
    let of_source = |(path, text): (PathBuf, String)| {
        let below = path.strip_prefix(root()).unwrap_or(&path).to_owned();
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let ["crates", name, "src", ..] = parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>()[..] else {
            return None;
        };
        let is_test = parts.iter().any(|part| part == "tests" || part == "tests.rs");
        (!is_test).then(|| (name.to_owned(), below.clone(), code(&text)))
    };
    rust_files().into_iter().filter_map(of_source).collect()
}

#[test]
fn the_reader_sees_types_and_those_of_them_that_are_public() {
    let text = "pub struct A<T>;\nstruct B;\n    pub enum C {}\npub(crate) enum D {}\npub trait E: F {}\npub fn g() {}\n\
                pub(in crate::a) type H = u8;\n// struct J;\n#[cfg(test)]\nmod tests {\n}\npub struct I;\n";
    let code = code(text);
    let found: Vec<_> = types(&code).map(|of| (of.name, of.is_public)).collect();
    assert_eq!(found, [("A", true), ("B", false), ("D", false), ("E", true), ("H", false)]);
}

#[test]
fn types_of_a_crate_have_different_names() {
    let mut files: BTreeMap<(String, String), Vec<PathBuf>> = BTreeMap::new();
    for (of_crate, path, code) in sources() {
        for of in types(&code) {
            files.entry((of_crate.clone(), of.name.to_owned())).or_default().push(path.clone());
        }
    }
    println!("{} names of types", files.len());
    assert!(files.len() > 1200, "the tree has more than {} types", files.len());
    files.retain(|_, paths| paths.len() > 1);
    assert!(files.is_empty(), "one name, several files of a crate: {files:#?}");
}

#[test]
fn public_types_of_different_crates_have_different_names() {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (of_crate, _, code) in sources() {
        if PROGRAMS.contains(&of_crate.as_str()) {
            continue;
        }
        for of in types(&code).filter(|of| of.is_public) {
            crates.entry(of.name.to_owned()).or_default().insert(of_crate.clone());
        }
    }
    assert!(crates.len() > 200, "the tree has more than {} public types", crates.len());
    crates.retain(|_, by| by.len() > 1);
    assert!(crates.is_empty(), "one name, several crates: {crates:#?}");
}

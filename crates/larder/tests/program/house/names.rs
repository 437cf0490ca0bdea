//! Public types of different crates have different names.
//!
//! A reader of two crates would take one for the other. A type is public if it stands at the top of
//! a file and says `pub`. Types of programs, which no crate can import, do not count.
//!
//! It reads text: a type that a macro makes escapes it.

use super::{root, rust_files};
use std::collections::{BTreeMap, BTreeSet};

/// Crates that are programs alone.
const PROGRAMS: &[&str] = &["larder-lab", "larder-measure"];

/// Returns the public types at the top of a file, above its tests.
fn public_types(text: &str) -> impl Iterator<Item = &str> {
    let source = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    source.lines().filter_map(|line| {
        let mut words = line.strip_prefix("pub ")?.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&words.next()?);
        words.next().filter(|name| is_type && !name.is_empty())
    })
}

#[test]
fn the_reader_sees_public_types_alone() {
    let text = "pub struct A<T>;\nstruct B;\n    pub enum C {}\npub(crate) enum D {}\npub trait E: F {}\npub fn g() {}\n\
                pub type H = u8;\n#[cfg(test)]\nmod tests {\n}\npub struct I;\n";
    assert_eq!(public_types(text).collect::<Vec<_>>(), ["A", "E", "H"]);
}

#[test]
fn public_types_of_different_crates_have_different_names() {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in rust_files() {
        let below = path.strip_prefix(root()).unwrap_or(&path);
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let ["crates", name, "src", ..] = parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>()[..] else { continue };
        if PROGRAMS.contains(&name) || parts.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        for of in public_types(&text) {
            crates.entry(of.to_owned()).or_default().insert(name.to_owned());
        }
    }
    assert!(crates.len() > 200, "the tree has more than {} public types", crates.len());
    let shared: Vec<_> = crates.iter().filter(|(_, by)| by.len() > 1).collect();
    assert!(shared.is_empty(), "one name, several crates: {shared:?}");
}

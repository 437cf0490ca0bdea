//! The engine's shared state is a set of owners, and all functions fit a screen.
//!
//! An owner is a type of our crates whose fields no other file sees, except the file of its own
//! verb. So no function writes a field of a stranger. A trait hides its fields by itself.
//!
//! It reads text, as rustfmt leaves it: a function that a macro makes escapes it.

use super::{root, rust_files, short};
use std::fs;

/// A function has this many lines, from its name to its end.
const FUNCTION_LINES_MAX: usize = 60;

/// Longer functions. Each is one expression that lists the fields of a structure on flash.
const TABLES: [(&str, &str); 1] = [("crates/larder-format/src/superblock.rs", "to_raw")];

/// Parts without a state of their own to protect. They are values that stay while a cache is open,
/// and counts and signals, which are for all.
const FOR_ALL: [&str; 5] = ["Counters", "Geometry", "Opening", "Signals", "Tuning"];

/// Returns the text between the braces or parentheses of a type, if `text` has it.
fn body_of<'a>(text: &'a str, kind: &str, name: &str) -> Option<&'a str> {
    let begins = |rest: &str| !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric());
    let head = format!("{kind} {name}");
    let (at, _) = text.match_indices(&head).find(|&(at, _)| begins(&text[at + head.len()..]))?;
    let rest = &text[at + head.len()..];
    let open = rest.find(['{', '(', ';'])?;
    let end = match &rest[open..=open] {
        "{" => rest.find("\n}").or_else(|| rest.find('}')),
        "(" => rest.find(");"),
        _ => Some(open),
    };
    rest.get(open + usize::from(end != Some(open))..end?)
}

/// Returns the fields of a struct with braces: their names and types.
fn fields(body: &str) -> Vec<(&str, &str)> {
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let fields = lines.filter_map(|line| line.trim_end_matches(',').split_once(": "));
    fields.map(|(name, of)| (name.rsplit(' ').next().unwrap_or(name), of)).collect()
}

/// Returns the name of a field's type, without the pointers to it.
fn name_of(of: &str) -> &str {
    let mut name = of;
    for pointer in ["Option<", "Arc<", "dyn "] {
        name = name.strip_prefix(pointer).unwrap_or(name);
    }
    name.split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or(name)
}

/// Returns the fault of a field's type, by the sources that may have its definition.
fn fault(name: &str, sources: &[String]) -> Option<String> {
    if FOR_ALL.contains(&name) || sources.iter().any(|text| body_of(text, "pub trait", name).is_some()) {
        return None;
    }
    let Some(body) = sources.iter().find_map(|text| body_of(text, "struct", name)) else {
        return Some(format!("{name} is no struct or trait of ours"));
    };
    let is_seen = |field: &&str| field.starts_with("pub ") || field.starts_with("pub(crate) ");
    let seen = body.split([',', '\n']).map(str::trim).find(is_seen)?;
    Some(format!("others see of {name}: {seen}"))
}

#[test]
fn the_reader_tells_owners_from_bare_fields() {
    let sources = [
        "pub struct Log {\n    entries: VecDeque<u8>,\n}\n".to_owned(),
        "pub(crate) struct Logs(pub Mutex<u8>);\npub trait Device: Send {\n    fn f(&self);\n}\n".to_owned(),
        "pub enum Fence {\n    Down,\n}\n/// As pub x.\nstruct Pins {\n    pub(super) own: u8,\n    pub(crate) all: u8,\n}\n".to_owned(),
        "pub struct Mode(AtomicU8);\npub struct Unit;\n".to_owned(),
    ];
    let state = "pub struct State {\n    /// The log: a queue.\n    pub(crate) log: Log,\n    device: Arc<dyn Device>,\n\
                     lost: BTreeMap<u64, u64>,\n    pub failed: Option<Arc<Mode>>,\n    fence: Fence,\n    pins: Pins,\n\
                     logs: Logs,\n    unit: Unit,\n}\n";
    let fields = fields(body_of(state, "struct", "State").expect("a struct"));
    let faults: Vec<_> = fields.into_iter().map(|(name, of)| (name, fault(name_of(of), &sources))).collect();
    let told: Vec<_> = faults.iter().filter_map(|(name, fault)| Some((*name, fault.as_deref()?))).collect();
    let expected = [
        ("lost", "BTreeMap is no struct or trait of ours"),
        ("fence", "Fence is no struct or trait of ours"),
        ("pins", "others see of Pins: pub(crate) all: u8"),
        ("logs", "others see of Logs: pub Mutex<u8>"),
    ];
    assert_eq!(told, expected);
    assert_eq!(faults.len(), 8);
}

#[test]
fn the_state_and_the_shared_parts_are_owners() {
    let of_crates = |path: &str| path.starts_with("crates/") && path.contains("/src/") && !path.contains("tests");
    let sources: Vec<String> =
        rust_files().into_iter().filter(|(path, _)| of_crates(&short(path))).map(|(_, text)| text).collect();
    let mut wrong = Vec::new();
    for (file, name, fields_min) in [("state.rs", "State", 15), ("shared.rs", "Shared", 25)] {
        let path = root().join("crates/larder-engine/src").join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let fields = fields(body_of(&text, "pub struct", name).expect("its struct"));
        assert!(fields.len() >= fields_min, "the reader sees {} fields of {name}", fields.len());
        for (field, of) in fields {
            wrong.extend(fault(name_of(of), &sources).map(|fault| format!("{name}::{field}: {fault}")));
        }
    }
    assert!(wrong.is_empty(), "these have no owner:\n{}", wrong.join("\n"));
}

/// Returns the functions of a file above its tests: name and lines.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().take_while(|line| *line != "#[cfg(test)]").collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let Some((before, after)) = code.split_once("fn ") else { continue };
        let is_head = before.split(' ').all(|word| {
            ["", "pub", "async", "const", "unsafe"].contains(&word) || word.starts_with("pub(") && word.ends_with(')')
        });
        let name = after.split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or_default();
        if !is_head || name.is_empty() || line.ends_with([';', '}']) {
            continue;
        }
        let ends = |line: &&str| {
            let rest = line.strip_prefix(indent).unwrap_or_default();
            rest == "}" || rest.starts_with(')') && rest.ends_with(';')
        };
        let more = lines[at + 1..].iter().position(ends).expect("a function ends");
        found.push((name, more + 2));
    }
    found
}

#[test]
fn the_reader_counts_the_lines_of_functions() {
    let text = "pub(crate) async fn a(\n    x: u8,\n) -> u8 {\n    if x {\n    }\n}\n\ntrait T {\n    fn b();\n    fn c(\n    );\n\
                    fn d() {}\n}\n// fn e() {\nfn f() {\n    fn g() {\n    }\n}\n#[cfg(test)]\nfn h() {\n}\n";
    assert_eq!(functions(text), [("a", 6), ("c", 2), ("f", 4), ("g", 2)]);
}

#[test]
fn functions_fit_a_screen() {
    let (mut looked, mut long, mut tables) = (0, Vec::new(), 0);
    for (path, text) in rust_files() {
        let path = short(&path);
        if !path.starts_with("crates/") || !path.contains("/src/") || path.contains("tests") {
            continue;
        }
        for (name, lines) in functions(&text) {
            looked += 1;
            match TABLES.contains(&(path.as_str(), name)) {
                true => tables += 1,
                false if lines > FUNCTION_LINES_MAX => long.push(format!("{lines} lines: {path}: {name}")),
                false => {}
            }
        }
    }
    assert!(looked > 5000, "the reader sees {looked} functions");
    assert_eq!(tables, TABLES.len(), "a table is gone");
    assert!(long.is_empty(), "functions over {FUNCTION_LINES_MAX} lines:\n{}", long.join("\n"));
}

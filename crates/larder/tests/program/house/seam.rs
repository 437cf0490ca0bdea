//! The seam between the engine and a provisional design: one module of the engine talks to it.
//!
//! A design's answer may lie on flash, and its slots may be freed ahead. So other files need not
//! know that, they ask the module whether an answer is sure, and have it made sure.
//!
//! It reads text: calls and definitions, with any receiver, and no comments.

use super::{code, has_word, is_word, root, rust_files, short};
use std::{collections::BTreeSet, fs};

const ENGINE: &str = "crates/larder-engine/src/";
const CHECK: &str = "crates/larder-check/src/";

/// A decider answers these for every design.
const FOR_ALL: [&str; 5] = ["slot_of", "maps_to", "use_now", "keeps_zeroes", "open_slot_for"];
/// Checkpoints, restarts and checks pass these on.
const IN_CHECKPOINTS: [&str; 6] =
    ["page_count", "export_page", "restore_page", "stored_runs", "is_found_in", "forget_clean"];
/// The files of the engine that pass them on; those of the offline tools all may.
const PASSING_ON: [&str; 5] = ["checkpoint/blocks.rs", "replay.rs", "rebuild.rs", "origin_state.rs", "decision_log.rs"];
/// Verbs that other types have, too. As verbs of the state and the design they are the protocol's.
const NAMESAKES: [&str; 2] = ["keep", "tell"];
/// Types of the protocol, and the files beside the module that name them.
const TYPES: [(&str, &[&str]); 2] = [("Deferred", &["state_lock.rs"]), ("Question", &[])];
/// The files beside the module that call it.
const CALLERS_MAX: usize = 14;

/// Returns code without blanks: a call may begin a line.
fn squeezed(code: &str) -> String {
    code.split_whitespace().collect()
}

/// Returns whether `code` calls or defines this verb.
fn says(code: &str, verb: &str) -> bool {
    let heads: &[&str] = match NAMESAKES.contains(&verb) {
        true => &["design().", "decide().", "state.", "lock()."],
        false => &[".", "::", "fn"],
    };
    heads.iter().any(|head| code.contains(&format!("{head}{verb}(")))
}

/// Returns the sources of engine and offline tools: path, file below its crate, code.
fn sources() -> Vec<(String, String, String)> {
    let all = rust_files().into_iter().map(|(path, text)| (short(&path), text));
    let ours = all.filter_map(|(path, text)| {
        let file = path.strip_prefix(ENGINE).or(path.strip_prefix(CHECK))?.to_owned();
        (!file.contains("tests")).then(|| (path, file, code(&text)))
    });
    ours.collect()
}

fn is_in_module(path: &str) -> bool {
    path.strip_prefix(ENGINE).is_some_and(|file| file.starts_with("region"))
}

#[test]
fn the_reader_sees_calls_definitions_and_words() {
    let code = squeezed(&code(
        "/// design.settle(lba)\nstate\n    .unread(lba);\nself.tell(asker);\n#[cfg(test)]\nmod tests {\nx.settle()\n",
    ));
    assert_eq!(code, "state.unread(lba);self.tell(asker);");
    assert!(says(&code, "unread") && !says(&code, "settle") && !says(&code, "tell"));
    assert!(says("self.state.lock().tell(slot)", "tell") && says("fnsettle(", "settle"));
    assert!(has_word("&mut Deferred,", "Deferred") && has_word("(Deferred)", "Deferred"));
    assert!(!has_word("NotDeferred", "Deferred") && !has_word("Deferred_", "Deferred"));
}

#[test]
fn one_module_of_the_engine_asks_provisional_designs() {
    let design = root().join("crates/larder-core/src/design/provisional.rs");
    let design = fs::read_to_string(design).expect("the optional part");
    let verbs = design.split("\n    fn ").skip(1).filter_map(|method| method.split_once('(')).map(|(name, _)| name);
    let verbs: Vec<&str> = verbs.filter(|name| !FOR_ALL.contains(name)).collect();
    assert!(verbs.len() > 15, "the reader sees {verbs:?}");
    let (mut asked, mut elsewhere) = (BTreeSet::new(), Vec::new());
    for (path, file, code) in sources() {
        let calls = squeezed(&code);
        for verb in verbs.iter().filter(|verb| says(&calls, verb)) {
            let may_pass_on = path.starts_with(CHECK) || PASSING_ON.contains(&&*file);
            match is_in_module(&path) {
                true => _ = asked.insert(*verb),
                false if IN_CHECKPOINTS.contains(verb) && may_pass_on => {}
                false => elsewhere.push(format!("{path}: {verb}")),
            }
        }
        for (word, may) in TYPES {
            if has_word(&code, word) && !is_in_module(&path) && !may.contains(&&*file) {
                elsewhere.push(format!("{path}: {word}"));
            }
        }
    }
    assert!(asked.len() > 15, "the module asks {asked:?}");
    assert!(elsewhere.is_empty(), "these talk to a provisional design outside region/:\n{}", elsewhere.join("\n"));
}

#[test]
fn few_files_call_that_module() {
    let sources: Vec<_> = sources().into_iter().map(|(path, file, code)| (path, file, squeezed(&code))).collect();
    let of_module = sources.iter().filter(|(path, ..)| is_in_module(path)).map(|(_, _, code)| code);
    let heads = ["pub(crate)fn", "pub(crate)asyncfn"];
    let verbs = of_module.flat_map(|code| heads.iter().flat_map(|head| code.split(head).skip(1)));
    let name = |rest: &str| rest.chars().take_while(|c| is_word(*c)).collect();
    let verbs: BTreeSet<String> = verbs.map(name).collect();
    assert!(verbs.len() > 15, "the reader sees {verbs:?}");
    let calls = |code: &str| verbs.iter().any(|verb| code.contains(&format!(".{verb}(")));
    let callers: Vec<&str> = sources
        .iter()
        .filter(|(path, _, code)| !is_in_module(path) && calls(code))
        .map(|(_, file, _)| &**file)
        .collect();
    println!("{} files call region/: {}", callers.len(), callers.join(", "));
    assert!(callers.len() <= CALLERS_MAX, "{} files call region/, {CALLERS_MAX} may: {callers:?}", callers.len());
}

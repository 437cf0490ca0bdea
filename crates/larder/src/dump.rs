//! `larder dump`: prints what is on the flash of a cache that is not served.
//!
//! For people, a line for each entry, with the names that the JSON has.
//!
//! What it does not do: judge; `verify` does.

use crate::{
    args::{DumpArgs, DumpPart},
    error::{Failure, Outcome},
    output,
    verify::open_offline,
};
use larder_device::driver::block_on;
use larder_engine::{EngineError, dump};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Keys that come first in a line, in this order.
const NAMES: &[&str] = &[
    "region",
    "block",
    "seq",
    "kind",
    "lba",
    "chunk_count",
    "slot",
    "generation",
    "state",
    "class",
    "segment_seq",
    "weu_offset",
    "flash_offset",
    "stored_bytes",
    "bytes",
    "count",
    "encoding",
    "dirty",
    "duplicate",
    "sectors",
];

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &DumpArgs) -> Outcome {
    let flash = open_offline(&args.flash, "dump")?;
    let (device, superblock, limit) = (&*flash.device, &flash.superblock, args.limit);
    let failed = |error: EngineError| Failure::engine(&flash.path, &error);
    let dumped = match args.part {
        DumpPart::Superblock => {
            let twins = block_on(dump::superblocks(device));
            if !args.json {
                return twins.iter().try_for_each(|twin| output::say(&(text(&value(twin)?) + "\n")));
            }
            json!({ "superblocks": value(&twins)? })
        }
        DumpPart::Layout => value(&dump::layout(superblock))?,
        DumpPart::Checkpoint => match block_on(dump::checkpoint(device, superblock, limit)).map_err(failed)? {
            Some(checkpoint) => listed(value(&checkpoint)?, "blocks"),
            None => json!({ "checkpoint_id": null, "blocks": [] }),
        },
        DumpPart::Log => {
            let log = block_on(dump::log(device, superblock, limit)).map_err(failed)?;
            listed(value(&log)?, "log")
        }
        DumpPart::Slots => {
            let slots = block_on(dump::slots(device, limit)).map_err(failed)?;
            listed(json!({ "slots": value(&slots)? }), "slots")
        }
        DumpPart::Mappings => {
            let mappings = block_on(dump::mappings(device, limit)).map_err(failed)?;
            listed(json!({ "mappings": value(&mappings)? }), "mappings")
        }
        DumpPart::Segments => {
            let segments = block_on(dump::segments(device, limit)).map_err(failed)?;
            listed(json!({ "segments": value(&segments)? }), "segments")
        }
    };
    match args.json {
        true => output::say_json(&dumped),
        false => output::say(&text(&dumped)),
    }
}

fn value(dumped: &impl Serialize) -> Outcome<Value> {
    serde_json::to_value(dumped).map_err(|error| Failure::failed(format_args!("the dump is no JSON: {error}")))
}

/// Puts the list at `key` in the place of the listing there, and its total beside it.
fn listed(mut dumped: Value, key: &str) -> Value {
    if let Some(object) = dumped.as_object_mut()
        && let Some(Value::Object(mut listing)) = object.remove(key)
    {
        object.insert(format!("{key}_total"), listing.remove("total").unwrap_or_default());
        object.insert(key.to_owned(), listing.remove("entries").unwrap_or_default());
    }
    dumped
}

/// For people: first what is one value, a line each; then each list, a line an entry.
fn text(dumped: &Value) -> String {
    let mut out = String::new();
    let Some(object) = dumped.as_object() else { return format!("{dumped}\n") };
    for (key, value) in ordered(object).filter(|(_, value)| !value.is_array()) {
        out.push_str(&format!("{key:<26}{}\n", plain(value)));
    }
    for (key, list) in object.iter().filter_map(|(key, value)| Some((key, value.as_array()?))) {
        lines(&mut out, list, "");
        let total = object.get(&format!("{key}_total")).and_then(Value::as_u64).unwrap_or(list.len() as u64);
        if total > list.len() as u64 {
            out.push_str(&format!("{} of {total} {key}; --limit shows more\n", list.len()));
        }
    }
    out
}

fn lines(out: &mut String, list: &[Value], indent: &str) {
    for entry in list {
        let empty = Map::new();
        let object = entry.as_object().unwrap_or(&empty);
        let pairs: Vec<String> = ordered(object)
            .filter(|(_, value)| !value.is_array() && !value.is_null())
            .map(|(key, value)| format!("{key}={}", plain(value)))
            .collect();
        out.push_str(&format!("{indent}{}\n", pairs.join(" ")));
        for inner in object.values().filter_map(Value::as_array) {
            lines(out, inner, "  ");
        }
    }
}

/// The pairs of an object: what names the entry first, the rest by the alphabet.
fn ordered(object: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let is_name = |key: &str| NAMES.contains(&key);
    let names = NAMES.iter().filter_map(|key| object.get_key_value(*key));
    names.chain(object.iter().filter(move |(key, _)| !is_name(key)))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains(' ') || text.is_empty() => format!("\"{text}\""),
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_reads_as_lines() {
        let dumped = json!({ "frames": 2, "log": { "total": 3, "entries": [
            { "seq": 1, "kind": "map" }, { "seq": 2, "kind": "slot freed", "mode": null, "records": [{ "lba": 9 }] },
        ] } });
        let text = text(&listed(dumped, "log"));
        let wanted = "frames                    2\nlog_total                 3\nseq=1 kind=map\n\
                      seq=2 kind=\"slot freed\"\n  lba=9\n2 of 3 log; --limit shows more\n";
        assert_eq!(text, wanted);
    }
}

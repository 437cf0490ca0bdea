//! `larder dump`: prints the content of the flash of a cache that is not served.
//!
//! For people, a line for each entry, with the names that the JSON has.
//!
//! It leaves judgement to `verify`.

use crate::{
    args::{DumpArgs, DumpPart},
    error::{Failure, Outcome},
    flash::Flash,
    memory::refuse_too_large,
    output,
    verify::open_offline,
};
use larder_check::dump::{self, RecordAt};
use larder_device::driver::block_on;
use larder_engine::EngineError;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Keys that come first in a line, in this order.
const NAMES: &[&str] = &[
    "region",
    "block",
    "area",
    "frame_seq",
    "seq",
    "kind",
    "lba",
    "chunk_count",
    "fingerprint",
    "slot",
    "generation",
    "state",
    "class",
    "segment_seq",
    "durable_frame_seq",
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

/// Bytes of a line of a hexadecimal dump.
const HEX_LINE_BYTES: usize = 32;

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &DumpArgs) -> Outcome {
    check_usage(args)?;
    let flash = open_offline(&args.flash, "dump")?;
    if !args.part.reads_as_it_lies() {
        refuse_too_large(&flash)?;
    }
    let dumped = dumped(args, &flash)?;
    match args.part {
        _ if args.json => output::say_json(&dumped),
        DumpPart::Superblock => {
            let twins = dumped["superblocks"].as_array().map_or(&[][..], Vec::as_slice);
            twins.iter().try_for_each(|twin| output::say(&(text(twin) + "\n")))
        }
        DumpPart::Record => output::say(&record_text(dumped)),
        _ => output::say(&text(&dumped)),
    }
}

/// Returns the part that was asked for.
fn dumped(args: &DumpArgs, flash: &Flash) -> Outcome<Value> {
    let (device, superblock, limit) = (&*flash.device, &flash.superblock, args.limit);
    let failed = |error: EngineError| Failure::engine(&flash.path, &error);
    Ok(match args.part {
        DumpPart::Superblock => json!({ "superblocks": value(&block_on(dump::superblocks(device)))? }),
        DumpPart::Layout => value(&dump::layout(superblock))?,
        DumpPart::Checkpoint => checkpoint(args, flash)?,
        DumpPart::Log => log(args, flash)?,
        DumpPart::Slots => {
            let (slots, salvaged) = block_on(dump::slots(device, limit)).map_err(failed)?;
            listed(json!({ "slots": value(&slots)?, "salvaged": salvaged }), "slots")
        }
        DumpPart::Mappings => {
            let (mappings, salvaged) = block_on(dump::mappings(device, args.lba, limit)).map_err(failed)?;
            listed(json!({ "mappings": value(&mappings)?, "salvaged": salvaged }), "mappings")
        }
        DumpPart::Trims => {
            let (trims, salvaged) = block_on(dump::trims(device, limit)).map_err(failed)?;
            listed(json!({ "trims": value(&trims)?, "salvaged": salvaged }), "trims")
        }
        DumpPart::Fingerprints => {
            let (known, salvaged) = block_on(dump::fingerprints(device, limit)).map_err(failed)?;
            listed(json!({ "fingerprints": value(&known)?, "salvaged": salvaged }), "fingerprints")
        }
        DumpPart::Segments => segments(args, flash)?,
        DumpPart::Record => {
            let which = match (args.lba, args.at) {
                (Some(lba), _) => RecordAt::Chunk(lba),
                (None, at) => RecordAt::FlashOffset(at.unwrap_or_default()),
            };
            value(&block_on(dump::record(device, superblock, which, args.hex)).map_err(failed)?)?
        }
        DumpPart::History => {
            let lba = args.lba.unwrap_or_default();
            let history = block_on(dump::history(device, superblock, lba, limit)).map_err(failed)?;
            listed(value(&history)?, "log")
        }
    })
}

fn checkpoint(args: &DumpArgs, flash: &Flash) -> Outcome<Value> {
    let (device, superblock, limit) = (&*flash.device, &flash.superblock, args.limit);
    let failed = |error: EngineError| Failure::engine(&flash.path, &error);
    Ok(match args.block {
        Some(block) => {
            let found = block_on(dump::checkpoint_block(device, superblock, args.area, block, limit));
            each_listed(listed(value(&found.map_err(failed)?)?, "blocks"), "blocks", "entries")
        }
        None => match block_on(dump::checkpoint(device, superblock, args.area, limit)) {
            Some(checkpoint) => listed(value(&checkpoint)?, "blocks"),
            None => json!({ "checkpoint_id": null, "blocks": [] }),
        },
    })
}

fn log(args: &DumpArgs, flash: &Flash) -> Outcome<Value> {
    let (device, superblock, limit) = (&*flash.device, &flash.superblock, args.limit);
    if args.all {
        let frames = block_on(dump::frames(device, superblock, limit));
        return Ok(listed(json!({ "frames": value(&frames)? }), "frames"));
    }
    let log = match args.at {
        Some(offset) => block_on(dump::frame(device, superblock, offset, limit)),
        None => block_on(dump::log(device, superblock, limit)),
    };
    let log = log.map_err(|error| Failure::engine(&flash.path, &error))?;
    Ok(listed(value(&log)?, "log"))
}

fn segments(args: &DumpArgs, flash: &Flash) -> Outcome<Value> {
    let (device, superblock, limit) = (&*flash.device, &flash.superblock, args.limit);
    let failed = |error: EngineError| Failure::engine(&flash.path, &error);
    let found = match args.slot {
        Some(slot) => {
            let segments = block_on(dump::slot_segments(device, superblock, slot, limit)).map_err(failed)?;
            json!({ "segments": value(&segments)? })
        }
        None => {
            let (segments, salvaged) = block_on(dump::segments(device, limit)).map_err(failed)?;
            json!({ "segments": value(&segments)?, "salvaged": salvaged })
        }
    };
    Ok(listed(found, "segments"))
}

/// Refuses an option without meaning for the chosen part, and a part that lacks one.
fn check_usage(args: &DumpArgs) -> Outcome {
    use DumpPart::{Checkpoint, History, Log, Mappings, Record, Segments};
    let belongs: [(&str, bool, &[DumpPart], &str); 7] = [
        ("--area", args.area.is_some(), &[Checkpoint], "checkpoint"),
        ("--block", args.block.is_some(), &[Checkpoint], "checkpoint"),
        ("--all", args.all, &[Log], "log"),
        ("--at", args.at.is_some(), &[Log, Record], "log and record"),
        ("--slot", args.slot.is_some(), &[Segments], "segments"),
        ("--lba", args.lba.is_some(), &[Record, History, Mappings], "record, history and mappings"),
        ("--hex", args.hex, &[Record], "record"),
    ];
    for (option, given, parts, names) in belongs {
        if given && !parts.contains(&args.part) {
            return Err(Failure::Usage(format!("{option} goes with {names}: `larder dump --help` explains")));
        }
    }
    let wrong = match (args.part, args.lba, args.at, args.all) {
        (History, None, ..) => "history needs a chunk: --lba N",
        (Record, None, None, _) => "record needs a chunk, --lba N, or a place, --at OFFSET",
        (Record, Some(_), Some(_), _) => "a record is named by --lba or by --at, not by both",
        (Log, _, Some(_), true) => "--all and --at ask for different things: give one",
        _ => return Ok(()),
    };
    Err(Failure::Usage(wrong.to_owned()))
}

/// Returns a record for people: its fields, then its bytes in lines.
fn record_text(mut record: Value) -> String {
    let taken: Vec<(&str, Option<Value>)> = ["content_hex", "stored_hex"]
        .into_iter()
        .map(|key| (key, record.as_object_mut().and_then(|object| object.remove(key))))
        .collect();
    let mut out = text(&record);
    for (key, hex) in taken {
        let Some(Value::String(hex)) = hex else { continue };
        out.push_str(&format!("{}\n", if key == "stored_hex" { "as stored:" } else { "content:" }));
        let digits = hex.as_bytes();
        for (number, line) in digits.chunks(2 * HEX_LINE_BYTES).enumerate() {
            out.push_str(&format!("{:08x}  {}\n", number * HEX_LINE_BYTES, String::from_utf8_lossy(line)));
        }
    }
    out
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

/// Does the same for the list at `inner` in each entry of the list at `key`.
fn each_listed(mut dumped: Value, key: &str, inner: &str) -> Value {
    for entry in dumped.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
        *entry = listed(entry.take(), inner);
    }
    dumped
}

/// Returns text for people: first the single values, a line each; then each list, a line an entry.
fn text(dumped: &Value) -> String {
    let mut out = String::new();
    let Some(object) = dumped.as_object() else { return format!("{dumped}\n") };
    for (key, value) in ordered(object).filter(|(_, value)| !value.is_array()) {
        out.push_str(&format!("{key:<26}{}\n", plain(value)));
    }
    for (key, list) in object.iter().filter_map(|(key, value)| Some((key, value.as_array()?))) {
        lines(&mut out, list, "");
        is_all(&mut out, object, (key, list), "");
    }
    out
}

/// Notes that a list was cut short, if it was.
fn is_all(out: &mut String, object: &Map<String, Value>, (key, list): (&str, &[Value]), indent: &str) {
    let total = object.get(&format!("{key}_total")).and_then(Value::as_u64).unwrap_or(list.len() as u64);
    if total > list.len() as u64 {
        out.push_str(&format!("{indent}{} of {total} {key}; --limit shows more\n", list.len()));
    }
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
        for (key, inner) in object.iter().filter_map(|(key, value)| Some((key, value.as_array()?))) {
            lines(out, inner, "  ");
            is_all(out, object, (key, inner), "  ");
        }
    }
}

/// Returns the pairs of an object: the names of the entry first, the rest by the alphabet.
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

    #[test]
    fn a_list_inside_a_list_says_whether_it_is_all() {
        let dumped = json!({ "blocks": { "total": 1, "entries": [
            { "block": 4, "entries": { "total": 2, "entries": [{ "slot": 9, "generation": null }] } },
        ] } });
        let text = text(&each_listed(listed(dumped, "blocks"), "blocks", "entries"));
        let wanted =
            "blocks_total              1\nblock=4 entries_total=2\n  slot=9\n  1 of 2 entries; --limit shows more\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_record_is_told_with_its_bytes_in_lines() {
        let text = record_text(json!({ "lba": 7, "content_hex": "00".repeat(33), "decodes": true }));
        let (first, second) = (format!("00000000  {}\n", "00".repeat(32)), "00000020  00\n");
        assert!(text.ends_with(&format!("content:\n{first}{second}")), "{text}");
        assert!(text.starts_with("lba                       7\n"), "{text}");
    }
}

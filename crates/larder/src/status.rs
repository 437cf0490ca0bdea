//! `larder status`: the content and activity of a cache, from its server or else from its flash.
//!
//! Invariants: both ways give the same keys, unless counting takes too much memory; reading the
//! flash writes nothing.
//!
//! It leaves checks of the content to `verify`.

use crate::{
    args::StatusArgs,
    client::{self, unhex},
    error::{Failure, Outcome},
    flash::{Access, Flash, asking_flash},
    held::{self, Server},
    memory::why_not_counted,
    origin::{refused_origin, shown},
    output::{self, aligned},
    size::{count, human},
    state_dir::{StateDir, kept_of},
    volume::{Reached, reach},
    waiting::{saying_which, saying_why},
};
use larder_device::driver::block_on;
use larder_engine::{
    Status, Tuning,
    conditions::{Condition, Severity, detached, read_only, state_unknown},
    designs,
    recover::recover,
    status::{compression_name, mode_name},
};
use larder_format::Superblock;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;

/// The status as it is printed.
#[derive(Serialize)]
pub struct Report {
    /// The path of the flash.
    pub flash: String,
    /// Its UUID, as hexadecimal digits.
    pub flash_uuid: String,
    /// The volume's name.
    pub volume: String,
    /// True if a process serves it.
    pub served: bool,
    /// NBD connections open now.
    pub nbd_connections: u64,
    /// The rest.
    #[serde(flatten)]
    pub status: Status,
}

impl Report {
    /// Returns a report on the cache with this superblock.
    pub fn new(flash: &Path, superblock: &Superblock, status: Status) -> Report {
        Report {
            flash: flash.display().to_string(),
            flash_uuid: client::hex(&superblock.flash_uuid),
            volume: superblock.volume_name.to_string(),
            served: false,
            nbd_connections: 0,
            status,
        }
    }

    /// Returns it as JSON.
    ///
    /// # Errors
    /// A sentence.
    pub fn to_json(&self) -> client::Reply {
        serde_json::to_value(self).map_err(|error| format!("the status is no JSON: {error}"))
    }
}

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &StatusArgs) -> Outcome {
    let value = match &args.state {
        Some(state) if !asking_flash(&args.flash, || args.flash.exists()) => of_missing(state, &args.flash)?,
        _ => match reach(&args.flash, args.state.as_deref(), "status", Access::Read)? {
            Reached::Served(value) => value,
            Reached::Alone(flash) => match why_not_counted(&flash) {
                None => offline(&flash, args.state.as_deref())?.to_json().map_err(Failure::failed)?,
                Some(why) => uncounted(&flash, &why, args.state.as_deref()),
            },
        },
    };
    match args.json {
        true => output::say_json(&value),
        false => output::say(&page(&value)),
    }
}

/// Returns the status from the process that serves the origin of a missing flash.
fn of_missing(state: &Path, flash: &Path) -> Outcome<Value> {
    let record = StateDir::of_missing(state, flash)?.record();
    if let Some(uuid) = unhex(&record.flash_uuid)
        && let Server::Answered(answer) = saying_why(&uuid, || held::ask(&uuid, flash, None, "status"))?
    {
        return Ok(answer);
    }
    let fence = record.fence.map_or_else(|| "no fence is up".to_owned(), |why| format!("a fence is up ({why})"));
    Err(Failure::failed(format_args!("{} is missing, and its origin has no server; {fence}", flash.display())))
}

/// Returns the status from the flash, and from the state directory that it names, or `state`.
fn offline(flash: &Flash, state: Option<&Path>) -> Outcome<Report> {
    let recovered = block_on(recover(&*flash.device, None, &Tuning::default()))
        .map_err(|error| Failure::engine(&flash.path, &error))?;
    // A fault of the directory does not hinder a report on the flash.
    let kept = saying_which("the state directory", || kept_of(state, &recovered.superblock));
    let fence = kept.map(|record| record.and_then(|record| record.raised()));
    let fence = fence.map_err(|failure| failure.sentence().unwrap_or_default());
    let mut status = Status::of_unopened(&recovered, fence);
    if let Some(sentence) = refused_origin(&recovered) {
        let what = format!("this flash is not served before this is mended: {sentence}");
        status.add_conditions(vec![Condition { name: "origin_refused", severity: Severity::Degraded, what }]);
    }
    Ok(Report::new(&flash.path, &recovered.superblock, status))
}

/// Returns the status from the superblock alone, if counting would take too much memory.
///
/// Keys without a value there are missing.
fn uncounted(flash: &Flash, why: &str, state: Option<&Path>) -> Value {
    let Flash { path, superblock, .. } = flash;
    let layout = &superblock.layout;
    let mut conditions: Vec<Condition> = read_only(superblock).into_iter().collect();
    if superblock.detached {
        conditions.push(detached());
    } else {
        let kept = saying_which("the state directory", || kept_of(state, superblock));
        match kept.map(|record| record.and_then(|record| record.fence)) {
            Ok(None) => {}
            Ok(Some(fence)) => {
                let what = format!("the fence is up: the origin was written while this flash was away ({fence})");
                conditions.push(Condition { name: "fence_up", severity: Severity::Degraded, what });
            }
            Err(failure) => conditions.push(state_unknown(&failure.sentence().unwrap_or_default())),
        }
    }
    let health = conditions.first().map_or("not known", |condition| &condition.what).to_owned();
    conditions.push(Condition { name: "content_not_counted", severity: Severity::Notice, what: why.to_owned() });
    json!({
        "flash": path.display().to_string(),
        "flash_uuid": client::hex(&superblock.flash_uuid),
        "volume": superblock.volume_name.to_string(),
        "served": false,
        "nbd_connections": 0,
        "health": health,
        "conditions": conditions,
        "design": designs::find(superblock.design).map_or("unknown", |design| design.name),
        "mode": mode_name(superblock.mode),
        "chunk_bytes": layout.chunk_bytes,
        "slot": layout.store().slot_name(),
        "slot_bytes": layout.slot_bytes,
        "weu_bytes": layout.slot_bytes,
        "slots": layout.slot_count,
        "compression": compression_name(superblock.compression),
        "dedup": superblock.dedup,
        "fp_index_percent": superblock.fp_index_percent,
        "flash_bytes": layout.flash_bytes,
        "origin": superblock.origin.uri.to_string(),
        "origin_bytes": superblock.origin.size_bytes,
    })
}

/// A status, whose values are read by their names; it lacks some if it is an older server's.
#[derive(Clone, Copy)]
struct Told<'a>(&'a Value);

impl Told<'_> {
    fn text(self, key: &str) -> String {
        self.0.get(key).and_then(Value::as_str).unwrap_or("?").to_owned()
    }

    fn number(self, key: &str) -> u64 {
        self.0.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns the number under the first of these names that is there.
    fn number_of(self, keys: [&str; 2]) -> u64 {
        keys.into_iter().find_map(|key| self.0.get(key)).and_then(Value::as_u64).unwrap_or(0)
    }

    fn bytes(self, key: &str) -> String {
        human(self.number(key))
    }

    fn ratio(self, key: &str) -> f64 {
        self.0.get(key).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn truth(self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    fn of(self, part: &str, whole: &str) -> String {
        let share = 100.0 * self.number(part) as f64 / self.number(whole).max(1) as f64;
        format!("{} of {} ({share:.1}%)", self.bytes(part), self.bytes(whole))
    }

    /// Returns the kind of a slot, which older servers do not name.
    fn slot(&self) -> &str {
        self.0.get("slot").and_then(Value::as_str).unwrap_or("WEU")
    }
}

/// Returns the status as a page for people.
fn page(value: &Value) -> String {
    let told = Told(value);
    let mut out = match told.text("volume").as_str() {
        "" => "Larder cache\n".to_owned(),
        name => format!("Larder cache {name}\n"),
    };
    add_head(&mut out, told);
    let conditions = told.0.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for condition in conditions {
        let part = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or("?").to_owned();
        out.push_str(&format!("  {:8}  {}: {}\n", part("severity"), part("name"), part("what")));
    }
    if told.0.get("dirty_bytes").is_none() && told.0.get("slots").is_some() {
        return out;
    }
    add_content(&mut out, told);
    if told.truth("served") {
        add_counts(&mut out, told);
    }
    out
}

fn add_head(out: &mut String, told: Told<'_>) {
    let served = match told.truth("served") {
        true => format!("yes, {} connections", told.number("nbd_connections")),
        false => "no".to_owned(),
    };
    let dedup =
        if told.truth("dedup") { format!("on, FP index {}%", told.number("fp_index_percent")) } else { "off".into() };
    let origin = format!("{} ({})", shown(&told.text("origin")), told.bytes("origin_bytes"));
    let chunk = match told.slot() {
        "chunk" => told.bytes("chunk_bytes"),
        slot => format!("{}, {slot} {}", told.bytes("chunk_bytes"), human(told.number_of(["slot_bytes", "weu_bytes"]))),
    };
    aligned(
        out,
        &[
            ("health", told.text("health")),
            ("served", served),
            ("flash", format!("{} ({})", told.text("flash"), told.bytes("flash_bytes"))),
            ("origin", origin),
            ("mode", told.text("mode")),
            ("design", told.text("design")),
            ("chunk", chunk),
            ("compression", told.text("compression")),
            ("deduplication", dedup),
        ],
    );
}

fn add_content(out: &mut String, told: Told<'_>) {
    out.push_str("Content\n");
    aligned(
        out,
        &[
            (
                "cached",
                format!("{}, of them zero {}", told.bytes("logical_bytes_cached"), told.bytes("zero_bytes_cached")),
            ),
            ("flash used", told.of("flash_bytes_used", "flash_bytes")),
            ("dirty", told.bytes("dirty_bytes")),
            ("trimmed, not yet told", told.bytes("trimmed_bytes")),
            ("trimmed, kept", told.bytes("kept_trim_bytes")),
            ("damaged dirty chunks", count(told.number("lost_chunks"))),
            ("metadata log used", format!("{}%", told.number("log_used_percent"))),
            ("wear budget", wear_of(told)),
            (
                "LBA index",
                format!("{}, {} entries", told.bytes("lba_index_ram_bytes"), count(told.number("lba_index_entries"))),
            ),
            (
                "FP index",
                format!("{}, {} entries", told.bytes("fp_index_ram_bytes"), count(told.number("fp_index_entries"))),
            ),
            ("dirty list", told.bytes("dirty_list_ram_bytes")),
        ],
    );
}

/// Returns the wear budget, and the bytes of it that are written.
fn wear_of(told: Told<'_>) -> String {
    match told.number("wear_budget_bytes_a_day") {
        0 => "none".into(),
        budget => format!(
            "{} of {} in 24 hours, {} of it for the log",
            told.bytes("wear_spent_bytes"),
            human(budget),
            told.bytes("wear_reserve_bytes")
        ),
    }
}

/// Adds the counts since the cache was opened.
fn add_counts(out: &mut String, told: Told<'_>) {
    // Runs of subchunks are evicted, each with one record.
    let evicted = if told.slot() == "WEU" { "evicted WEUs" } else { "evicted chunks" };
    out.push_str("Since it was opened\n");
    let (flash_written, plain) = (told.number("flash_bytes_written"), told.number("plain_cache_bytes_written"));
    let written = match plain {
        0 => human(flash_written),
        plain => format!(
            "{} (a plain cache: {}, {:.0}%)",
            human(flash_written),
            human(plain),
            100.0 * flash_written as f64 / plain as f64
        ),
    };
    aligned(
        out,
        &[
            ("reads", format!("{}, {}", count(told.number("reads")), told.bytes("read_bytes"))),
            (
                "read hits",
                format!("{:.1}% of {} chunks", 100.0 * told.ratio("read_hit_ratio"), count(told.number("read_chunks"))),
            ),
            ("writes", format!("{}, {}", count(told.number("writes")), told.bytes("write_bytes"))),
            ("flushes", count(told.number("flushes"))),
            ("deduplication", format!("{:.2} to 1", told.ratio("dedup_ratio"))),
            ("compression", format!("{:.2} to 1", told.ratio("compression_ratio"))),
            ("flash written", written),
            ("origin read", told.bytes("origin_bytes_read")),
            ("origin written", told.bytes("origin_bytes_written")),
            (evicted, count(told.number_of(["evicted_slots", "evicted_weus"]))),
            ("insertions dropped", count(told.number("insertions_dropped"))),
            ("damaged records met", count(told.number("corrupt_records"))),
            ("warm start", if told.truth("warm_restart") { "yes".to_owned() } else { "no".to_owned() }),
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_page_is_aligned_and_takes_any_value() {
        let value = json!({
            "volume": "disk", "health": "ok", "served": true, "flash": "/f", "flash_bytes": 1 << 30,
            "flash_bytes_used": 1 << 29, "read_hit_ratio": 0.875, "reads": 1234, "flash_bytes_written": 50,
            "plain_cache_bytes_written": 100, "origin": "file:///o",
        });
        let page = page(&value);
        assert!(page.starts_with("Larder cache disk\n  health                    ok\n"), "{page}");
        for words in ["512 MiB of 1.00 GiB (50.0%)", "87.5% of 0 chunks", "1,234, 0 B", "(a plain cache: 100 B, 50%)"] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert!(super::page(&Value::Null).contains("served                    no"));
    }

    #[test]
    fn the_page_of_an_older_server_has_its_names() {
        for (slot_bytes, evicted) in [("slot_bytes", "evicted_slots"), ("weu_bytes", "evicted_weus")] {
            let page = page(&json!({ "served": true, "chunk_bytes": 8192, slot_bytes: 2 << 20, evicted: 77 }));
            assert!(page.contains("8.00 KiB, WEU 2.00 MiB") && page.contains("77"), "{page}");
        }
    }
}

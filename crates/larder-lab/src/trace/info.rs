//! `larder-lab trace info`: the figures of a trace.
//!
//! `larder_trace::info` and docs/TRACES.md define each figure.
//!
//! It does not count; `larder-trace` does.

use crate::args::InfoArgs;
use larder::{
    error::{Failure, Outcome},
    output,
    size::{count, exact, human},
};
use larder_trace::{
    ContentInfo, FormatId, Info, InfoCollector, Packing, Position, TraceError, TraceErrorKind, TraceResult,
    info::SizeCounts,
};
use serde_json::{Value, json};
use std::path::Path;

use super::{
    failure,
    opening::{Use, open, provenance_name, provenance_words},
    watch::Watch,
};

/// The counts, and their format.
struct Counted {
    format: FormatId,
    packing: &'static str,
    info: Info,
    lines_skipped: u64,
    requests_empty: u64,
}

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &InfoArgs) -> Outcome {
    let watch = Watch::new()?;
    let counted = collect(args, &watch);
    let lines_skipped = watch.finish();
    let counted = counted.map_err(|error| failure(&error, Some(&args.input.file), Some(&args.input.file)))?;
    let counted = Counted { lines_skipped, requests_empty: watch.empty_requests(), ..counted };
    if counted.info.requests == 0 {
        return Err(Failure::failed(format_args!("{}: no request is in it", args.input.file.display())));
    }
    match args.json {
        true => output::say_json(&object(&args.input.file, &counted)),
        false => output::say(&page(&args.input.file, &counted)),
    }
}

fn collect(args: &InfoArgs, watch: &Watch) -> TraceResult<Counted> {
    let reader = open(&args.input, Use::Once, watch)?;
    let (format, packing) = (reader.format(), packing_name(reader.packing()));
    let mut collector = InfoCollector::new(args.block);
    for record in watch.reading(reader, "counting") {
        let record = record?;
        if let (Some(block), true) = (args.block, record.content.is_some())
            && record.len_bytes != u64::from(block)
        {
            let message = format!(
                "the content of this trace is in blocks of {}, which is what is counted in: leave out --block, or \
                 `larder-lab trace convert --chunk` it first",
                exact(record.len_bytes)
            );
            return Err(TraceError::new(TraceErrorKind::Content, "", Position::Whole, message));
        }
        collector.observe(&record);
    }
    Ok(Counted { format, packing, info: collector.finish(), lines_skipped: 0, requests_empty: 0 })
}

fn packing_name(packing: Packing) -> &'static str {
    match packing {
        Packing::Plain => "none",
        Packing::Zstd => "zstd",
        Packing::Gzip => "gzip",
        Packing::Xz => "xz",
    }
}

/// Returns an object for programs: shares are of 1, names carry units.
fn object(file: &Path, counted: &Counted) -> Value {
    let info = &counted.info;
    let mut object = json!({
        "file": file.display().to_string(),
        "format": counted.format.name(),
        "packing": counted.packing,
        "lines_skipped": counted.lines_skipped,
        "requests_empty": counted.requests_empty,
        "block_bytes": info.block_bytes,
        "requests": info.requests,
        "blocks": info.blocks,
        "read_blocks": info.read_blocks,
        "write_blocks": info.write_blocks,
        "read_bytes": info.read_bytes,
        "write_bytes": info.write_bytes,
        "trims": info.trims,
        "trim_bytes": info.trim_bytes,
        "flushes": info.flushes,
        "write_to_read_ratio": info.write_to_read_ratio(),
        "working_set_blocks": info.working_set_blocks,
        "working_set_bytes": info.working_set_bytes(),
        "written_set_blocks": info.written_set_blocks,
        "written_set_bytes": info.written_set_bytes(),
        "end_bytes": info.end_bytes,
        "sequential_share": info.sequential_share(),
        "duration_us": info.duration_us,
        "back_steps": info.back_steps.count,
        "back_step_worst_us": info.back_steps.worst_us,
        "read_sizes": sizes(&info.read_sizes),
        "write_sizes": sizes(&info.write_sizes),
        "content_left_out": info.content_left_out,
        "content": info.content.map(|content| match is_labelled(counted.format) {
            true => provenance_name(content.provenance),
            false => "unlabelled",
        }),
    });
    if let (Some(content), Some(object)) = (&info.content, object.as_object_mut())
        && let Value::Object(more) = content_object(info, content)
    {
        object.extend(more);
    }
    object
}

/// Returns whether the format labels made-up content, or never holds any.
fn is_labelled(format: FormatId) -> bool {
    format != FormatId::Austere
}

/// Returns the source of the content, as far as the file says.
fn content_words(counted: &Counted) -> &'static str {
    match &counted.info.content {
        None => "none",
        Some(_) if !is_labelled(counted.format) => "as the file has it; this format has no marks for made-up content",
        Some(content) => provenance_words(content.provenance),
    }
}

fn content_object(info: &Info, content: &ContentInfo) -> Value {
    json!({
        "unique_blocks": content.unique_blocks,
        "unique_bytes": info.unique_bytes(),
        "duplicate_write_blocks": content.duplicate_writes.all,
        "duplicate_write_share": info.duplicate_write_share(),
        "duplicate_write_share_without_zeroes": info.duplicate_write_share_without_zeroes(),
        "io_dedup_ratio": info.io_dedup_ratio(),
        "dedup_ratio": info.dedup_ratio(),
        "same_content_rewrite_blocks": content.same_content_rewrites,
        "same_content_rewrite_share": info.same_content_share(),
        "zero_share": info.zero_share(),
        "zero_write_share": info.zero_write_share(),
        "compression_ratio": info.compression_ratio(),
        "compression_ratio_without_zeroes": info.compression_ratio_without_zeroes(),
        "stored_bytes": content.stored_bytes,
        "sized_blocks": content.sized_blocks.all,
        "reads_checked_blocks": content.reads_checked,
        "reads_mismatched_blocks": content.reads_mismatched,
        "reads_after_trim_blocks": content.reads_after_trim,
        "reads_after_trim_not_zero_blocks": content.reads_after_trim_not_zero,
    })
}

fn sizes(sizes: &SizeCounts) -> Value {
    let histogram: Vec<Value> = sizes
        .histogram()
        .into_iter()
        .map(|(bytes, requests)| json!({ "bytes_max": bytes, "requests": requests }))
        .collect();
    json!({
        "requests": sizes.requests(),
        "mean_bytes": sizes.mean_bytes(),
        "median_bytes": sizes.percentile_bytes(0.5),
        "p90_bytes": sizes.percentile_bytes(0.9),
        "p99_bytes": sizes.percentile_bytes(0.99),
        "max_bytes": sizes.max_bytes(),
        "histogram": histogram,
    })
}

/// A table with its numbers under one another.
#[derive(Default)]
struct Table(String);

impl Table {
    /// Adds a line over the rows that follow.
    fn head(&mut self, text: &str) {
        self.0.push_str(&format!("{text}\n"));
    }

    /// Adds a label, a number, and its unit.
    fn row(&mut self, label: &str, number: impl std::fmt::Display, unit: impl std::fmt::Display) {
        // A value that only forwards its text has no width: it must be text first.
        let line = format!("  {label:<32}{:>14}  {unit}", number.to_string());
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }

    /// Adds blocks: their bytes, and their number.
    fn blocks(&mut self, label: &str, blocks: u64, block_bytes: u64) {
        let (number, unit) = split(blocks * block_bytes);
        self.row(label, number, format_args!("{unit}, {} blocks", count(blocks)));
    }

    /// Adds a share of 1, in percent.
    fn percent(&mut self, label: &str, share: Option<f64>, of: &str) {
        match share {
            Some(share) => self.row(label, format_args!("{:.1}", 100.0 * share), format_args!("% of {of}")),
            None => self.row(label, "-", ""),
        }
    }

    /// Adds a ratio to 1.
    fn ratio(&mut self, label: &str, ratio: Option<f64>, unit: &str) {
        match ratio {
            Some(ratio) => self.row(label, format_args!("{ratio:.2}"), unit),
            None => self.row(label, "-", ""),
        }
    }
}

/// Returns a size as a number and its unit.
fn split(bytes: u64) -> (String, String) {
    let text = human(bytes);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    (number.to_owned(), unit.to_owned())
}

/// Returns the page for people.
fn page(file: &Path, counted: &Counted) -> String {
    let info = &counted.info;
    let mut table = Table::default();
    let packing = if counted.packing == "none" { String::new() } else { format!(", packed with {}", counted.packing) };
    table.head(&format!("{}: {}{packing}; content: {}", file.display(), counted.format, content_words(counted)));
    table.head(&format!("Requests, in blocks of {}", exact(info.block_bytes)));
    table.row("requests", count(info.requests), "");
    table.row("reads", count(info.read_blocks), format_args!("blocks, {}", human(info.read_bytes)));
    table.row("writes", count(info.write_blocks), format_args!("blocks, {}", human(info.write_bytes)));
    table.row("trims", count(info.trims), format_args!("of {}", human(info.trim_bytes)));
    table.row("flushes", count(info.flushes), "");
    table.ratio("write-to-read ratio", info.write_to_read_ratio(), "");
    table.blocks("working set", info.working_set_blocks, info.block_bytes);
    table.blocks("written set", info.written_set_blocks, info.block_bytes);
    let (number, unit) = split(info.end_bytes);
    table.row("highest address", number, unit);
    table.percent("sequential", info.sequential_share(), "reads and writes");
    for (name, sizes) in [("read", &info.read_sizes), ("write", &info.write_sizes)] {
        size_rows(&mut table, name, sizes);
    }
    if let Some(content) = &info.content {
        table.head(&format!("Content ({})", content_words(counted)));
        content_rows(&mut table, info, content);
        let whole = format!("lines of content that are no whole block of {}", exact(info.block_bytes));
        table.row("left out", count(info.content_left_out), whole);
    }
    table.head("Order");
    match info.duration_us {
        Some(us) => table.row("duration", format_args!("{:.3}", us as f64 / 1e6), "s"),
        None => table.row("duration", "-", "the trace has no times"),
    }
    let worst = match info.back_steps.worst_us {
        0 => String::new(),
        us => format!("the worst {:.3} ms", us as f64 / 1e3),
    };
    table.row("back steps", count(info.back_steps.count), worst);
    table.row("skipped lines", count(counted.lines_skipped), "");
    table.row("requests of length 0", count(counted.requests_empty), "");
    table.0
}

fn size_rows(table: &mut Table, name: &str, sizes: &SizeCounts) {
    let Some(mean) = sizes.mean_bytes() else { return };
    let (number, unit) = split(mean.round() as u64);
    let at = |share| sizes.percentile_bytes(share).map_or("-".to_owned(), human);
    let rest = format!("{unit}; median {}, 90% {}, 99% {}, most {}", at(0.5), at(0.9), at(0.99), at(1.0));
    table.row(&format!("{name} size"), number, rest);
}

fn content_rows(table: &mut Table, info: &Info, content: &ContentInfo) {
    table.blocks("unique data", content.unique_blocks, info.block_bytes);
    table.percent("duplicate writes", info.duplicate_write_share(), "writes");
    table.percent("  without zeroes", info.duplicate_write_share_without_zeroes(), "writes that are not zeroes");
    table.percent("I/O deduplication ratio", info.io_dedup_ratio(), "writes");
    table.ratio("deduplication ratio", info.dedup_ratio(), "to 1");
    table.percent("same-content rewrites", info.same_content_share(), "writes");
    table.percent("zeroes", info.zero_share(), "reads and writes");
    table.percent("zeroes written", info.zero_write_share(), "writes");
    table.ratio("compression", info.compression_ratio(), "to 1");
    table.ratio("  without zeroes", info.compression_ratio_without_zeroes(), "to 1");
    let mismatched = format!("of {} reads of written content", count(content.reads_checked));
    table.row("read otherwise than written", count(content.reads_mismatched), mismatched);
    let not_zero = format!("of {} reads of trimmed content", count(content.reads_after_trim));
    table.row("not zero after a trim", count(content.reads_after_trim_not_zero), not_zero);
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_trace::{ContentId, Op, Provenance, Record, TraceContent};

    fn counted(provenance: Provenance) -> Counted {
        let mut collector = InfoCollector::new(None);
        for (number, op) in [Op::Write, Op::Write, Op::Read, Op::Flush].into_iter().enumerate() {
            let mut record = Record::new(number as u64, op, 4096 * number as u64, 4096);
            if op == Op::Flush {
                record = Record::new(number as u64, op, 0, 0);
            } else {
                let fingerprint = ContentId([0, 7]);
                record.content =
                    Some(TraceContent { fingerprint, stored_bytes: Some(2048), is_zero: false, provenance });
            }
            record.time_us = Some(1500 * number as u64);
            collector.observe(&record);
        }
        Counted {
            format: FormatId::Content,
            packing: "zstd",
            info: collector.finish(),
            lines_skipped: 2,
            requests_empty: 3,
        }
    }

    #[test]
    fn the_page_has_its_numbers_under_one_another() {
        let page = page(Path::new("/t"), &counted(Provenance::Recorded));
        assert!(page.starts_with("/t: content, packed with zstd; content: recorded\n"), "{page}");
        for line in page.lines().filter(|line| line.starts_with("  ")) {
            let (left, right) = line.split_at(2 + 32 + 14);
            assert!(!left.ends_with(' ') && (right.is_empty() || right.starts_with("  ")), "{line}");
        }
        for words in [
            "  requests                                     4\n",
            "  writes                                       2  blocks, 8.00 KiB\n",
            "  duplicate writes                          50.0  % of writes\n",
            "  duration                                 0.004  s\n",
            "  skipped lines                                2\n",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }

    #[test]
    fn what_was_made_up_is_labelled() {
        let made = counted(Provenance::Made);
        assert!(page(Path::new("/t"), &made).contains("Content (MADE UP)\n"));
        assert_eq!(object(Path::new("/t"), &made)["content"], "made_up");
        let object = object(Path::new("/t"), &counted(Provenance::SizeMade));
        assert_eq!(object["content"], "sizes_made_up");
        assert_eq!((&object["unique_bytes"], &object["dedup_ratio"]), (&json!(4096), &json!(3.0)));
    }
}

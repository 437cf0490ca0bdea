//! `larder-lab sim run`: one trace, one cache.
//!
//! It does not compare.

use crate::{
    args::{RunArgs, Switch},
    trace::watch::Watch,
};
use larder::{
    error::{Failure, Outcome},
    output,
    size::{count, human},
};
use larder_sim::{
    report::{
        Row,
        drive::has_drive,
        plotted,
        table::{no_reads, years},
        time::has_time,
    },
    setup::{Options, Setup},
};

use super::{
    compare::tell_buffers,
    replay::{Bounds, Pass, check, common, survey, with_own},
    source::Source,
    spec::policy,
    ssd::drives,
    time,
};

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &RunArgs) -> Outcome {
    let watch = Watch::new()?;
    let row = replay(args, &watch);
    watch.finish();
    let row = row?;
    match args.json {
        true => output::say_json(&row),
        false => output::say(&page(&row)),
    }
}

fn replay(args: &RunArgs, watch: &Watch) -> Outcome<Row> {
    time::check(&args.time, None)?;
    let [drive] = drives(&args.drive)[..] else {
        return Err(Failure::Usage("run takes one translation layer; compare takes several".to_owned()));
    };
    let options = Options { drive, ..common(&args.cache, args.room.ram) };
    let source = Source::open(&args.input, args.cache.chunk, watch)?;
    let asked = Setup {
        design: args.design.design,
        chunk_bytes: source.chunk_bytes(),
        flash: args.room.flash,
        policy: policy(args.cache.mode),
        options,
    };
    let setups = [with_own(&args.design, asked)];
    check(&setups, None)?;
    let survey = survey(&source, &args.input, &setups)?;
    tell_buffers(&setups, survey.as_ref());
    let bounds = if args.bound == Switch::On { Bounds::On } else { Bounds::Off };
    let words = "replaying".to_owned();
    let pass = Pass { source: &source, warmup: args.input.warmup, survey, words, threads: 1 };
    let origin_bytes = time::origin_bytes(&args.time, &pass, &setups)?;
    let mut rows = pass.rows(&setups, bounds)?;
    time::add(&args.time, &pass, &setups, origin_bytes, &mut rows)?;
    Ok(rows.into_iter().next().unwrap_or_default())
}

/// A row of figures, whose values are read by their names.
#[derive(Clone, Copy)]
struct Cells<'a>(&'a Row);

impl Cells<'_> {
    fn text(self, key: &str) -> String {
        self.0.get(key).and_then(|value| value.as_str()).unwrap_or("none").to_owned()
    }

    fn whole(self, key: &str) -> u64 {
        self.0.get(key).and_then(|value| value.as_u64()).unwrap_or(0)
    }

    fn number(self, key: &str, digits: usize) -> String {
        plotted(self.0, key).map_or("none".to_owned(), |value| format!("{value:.digits$}"))
    }

    fn percent(self, key: &str) -> String {
        plotted(self.0, key).map_or("none".to_owned(), |value| format!("{value:.2} %"))
    }
}

/// Lines of the page: names and texts.
type PageLines = Vec<(&'static str, String)>;

/// Returns the page for people.
fn page(row: &Row) -> String {
    let cells = Cells(row);
    let mut out = format!(
        "{}, {}, on {} in chunks of {}; content: {}\n",
        cells.text("setup"),
        cells.text("mode"),
        cells.text("trace"),
        human(cells.whole("chunk_bytes")),
        content_words(row)
    );
    let mut rows = of_cache(cells);
    if has_drive(row) {
        rows.extend(of_drive(cells));
    }
    if has_time(row) {
        rows.extend(of_time(cells));
    }
    if cells.whole("warmup_requests") > 0 {
        rows.insert(1, ("warm-up, not counted", format!("{} requests", count(cells.whole("warmup_requests")))));
    }
    rows.extend(of_bound(cells));
    if cells.whole("back_steps") > 0 {
        rows.push(("times that step back", count(cells.whole("back_steps"))));
    }
    if cells.whole("lines_skipped") > 0 {
        rows.push(("bad lines passed over", count(cells.whole("lines_skipped"))));
    }
    output::aligned(&mut out, &rows);
    out
}

fn of_cache(cells: Cells<'_>) -> PageLines {
    let per_chunk = cells.number("index_ram_bytes_per_mapped_chunk", 1);
    let per_gib = cells.0.get("index_ram_bytes_per_cached_gib").and_then(|value| value.as_f64());
    let index_ram = match per_gib {
        Some(per_gib) => format!(": {per_chunk} bytes a chunk, {} a GiB", human(per_gib as u64)),
        None => String::new(),
    };
    let data = human(cells.whole("flash_data_bytes"));
    vec![
        ("flash", format!("{}, {data} of it for chunks", human(cells.whole("flash_bytes")))),
        ("requests of chunks", format!("{}, {} reads", count(cells.whole("requests")), count(cells.whole("reads")))),
        ("read hit ratio", no_reads(cells.0).map_or(cells.percent("read_hit_ratio"), |why| format!("none: {why}"))),
        ("write hit ratio", cells.percent("write_hit_ratio")),
        ("total miss ratio", cells.percent("total_miss_ratio")),
        ("deduplication ratio", cells.number("dedup_ratio", 2)),
        ("compression ratio", cells.number("compression_ratio", 2)),
        ("flash: data written", human(cells.whole("flash_bytes_written"))),
        ("flash: metadata written", human(cells.whole("flash_metadata_bytes_written"))),
        ("flash: data read", human(cells.whole("flash_bytes_read"))),
        ("flash: metadata read", human(cells.whole("flash_metadata_bytes_read"))),
        ("write reduction ratio", cells.percent("write_reduction_ratio")),
        ("origin reads", format!("{} chunks", count(cells.whole("origin_chunks_read")))),
        ("origin writes", format!("{} chunks", count(cells.whole("origin_chunks_written")))),
        ("WEU erasures", count(cells.whole("weu_erasures"))),
        ("ghost hits", count(cells.whole("ghost_hits"))),
        ("stale share", cells.percent("stale_ratio")),
        ("mapped chunks", count(cells.whole("mapped_chunks"))),
        ("index RAM", human(cells.whole("index_ram_bytes")) + &index_ram),
        ("speed", format!("{} million requests/s", cells.number("requests_per_second", 2))),
    ]
}

fn of_drive(cells: Cells<'_>) -> PageLines {
    let geometry = format!(
        "{} with {}: {} blocks of {}, pages of {}; {}% more than the host has",
        cells.text("ssd"),
        cells.text("ftl"),
        count(cells.whole("ssd_blocks")),
        human(cells.whole("ssd_block_bytes")),
        human(cells.whole("ssd_page_bytes")),
        cells.number("ssd_spare_percent", 1)
    );
    let pages = |key: &str| format!("{} pages", count(cells.whole(key)));
    let wear = format!(
        "least {}, mean {}, most {}; coefficient of variation {}",
        cells.whole("ssd_wear_min"),
        cells.number("ssd_wear_mean", 2),
        cells.whole("ssd_wear_max"),
        cells.number("ssd_wear_variation", 2)
    );
    let life = match cells.0.get("ssd_life_note").and_then(|note| note.as_str()) {
        Some(why) => format!("none: {why}"),
        None => format!(
            "{} years; of the block erased most {}",
            years(cells.0, "ssd_life_years"),
            years(cells.0, "ssd_life_years_worst_block")
        ),
    };
    vec![
        ("drive", geometry),
        (
            "drive: erasures",
            format!("{} blocks, {}", count(cells.whole("ssd_erasures")), human(cells.whole("ssd_bytes_erased"))),
        ),
        (
            "drive: written by the cache",
            format!(
                "{}; {} to the layer",
                human(cells.whole("ssd_host_bytes_written")),
                pages("ssd_host_pages_written")
            ),
        ),
        (
            "drive: programmed",
            format!("{}; {} copied", pages("ssd_pages_programmed"), count(cells.whole("ssd_pages_copied"))),
        ),
        ("drive: read", pages("ssd_pages_read")),
        ("drive: deduplicated", pages("ssd_pages_deduplicated")),
        ("drive: write amplification", cells.number("ssd_write_amplification", 3)),
        ("drive: erasures a block", wear),
        ("drive: life", life),
    ]
}

fn of_time(cells: Cells<'_>) -> PageLines {
    let pace = match cells.0.get("time_outstanding").and_then(|value| value.as_u64()) {
        Some(outstanding) => format!("at full load, {outstanding} outstanding"),
        None => "at the trace's own pace".to_owned(),
    };
    let times = |kind: &str| {
        let of = |what: &str| cells.number(&format!("time_{kind}_{what}_us"), 3);
        format!("mean {}, half {}, 95% {}, 99% {}, most {} ms", of("mean"), of("p50"), of("p95"), of("p99"), of("max"))
    };
    let busy =
        format!("planes {}, origin {}", cells.percent("time_ssd_busy_ratio"), cells.percent("time_origin_busy_ratio"));
    let mut rows = vec![
        ("time", format!("before {}, {pace}, MODELLED", cells.text("time_origin"))),
        ("time: IOPS", cells.number("time_iops", 0)),
        ("time: reads", times("read")),
        ("time: writes", times("write")),
    ];
    if cells.0.contains_key("ssd") {
        rows.extend([("time: the drive's reads", times("ssd_read")), ("time: the drive's writes", times("ssd_write"))]);
    }
    rows.extend([
        ("time: at work", busy),
        ("time: write amplification", cells.number("time_ssd_write_amplification", 3)),
    ]);
    rows
}

/// Returns the bounds, or the reason why there are none.
fn of_bound(cells: Cells<'_>) -> PageLines {
    let mut rows = Vec::new();
    if let Some(upper) = cells.0.get("bound_read_hit_ratio_upper").and_then(|value| value.as_f64()) {
        let lower = cells.0.get("bound_read_hit_ratio_lower").and_then(|value| value.as_f64()).unwrap_or(0.0);
        let bound = format!("{:.2} % read hits at most; {:.2} % can be had", 100.0 * upper, 100.0 * lower);
        rows.push(("bound", bound));
        let mib = |key| cells.0.get(key).and_then(|value| value.as_f64()).unwrap_or(0.0) / f64::from(1 << 20);
        let (least, enough) = (mib("bound_flash_bytes_lower"), mib("bound_flash_bytes_upper"));
        rows.push(("bound: written", format!("{least:.1} MiB at least; {enough:.1} MiB are enough")));
        let revealed =
            cells.0.get("bound_revealed_read_hit_ratio_upper").and_then(|value| value.as_f64()).unwrap_or(0.0);
        rows.push(("bound: contents revealed", format!("{:.2} % read hits at most", 100.0 * revealed)));
    }
    if let Some(why) = cells.0.get("bound_withdrawn").and_then(|why| why.as_str()) {
        rows.push(("bound", why.to_owned()));
    }
    rows
}

/// Returns the source of the content.
fn content_words(row: &Row) -> &'static str {
    match row.get("content").and_then(|content| content.as_str()) {
        None => "none, so each chunk has its own",
        Some("made_up") => "MADE UP",
        Some("sizes_made_up") => "recorded, but compressed sizes are MADE UP",
        Some("unlabelled") => "as the file has it; this format has no marks for made-up content",
        Some(_) => "recorded",
    }
}

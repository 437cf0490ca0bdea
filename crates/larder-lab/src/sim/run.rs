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
    let options = Options { drive, ..common(&args.cache, args.ram) };
    let source = Source::open(&args.input, args.cache.chunk, watch)?;
    let asked = Setup {
        design: args.design.design,
        chunk_bytes: source.chunk_bytes(),
        flash: args.flash,
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

/// Returns the page for people.
fn page(row: &Row) -> String {
    let text = |key: &str| row.get(key).and_then(|value| value.as_str()).unwrap_or("none").to_owned();
    let whole = |key: &str| row.get(key).and_then(|value| value.as_u64()).unwrap_or(0);
    let number = |key: &str, digits: usize| match plotted(row, key) {
        Some(value) => format!("{value:.digits$}"),
        None => "none".to_owned(),
    };
    let percent = |key: &str| plotted(row, key).map_or("none".to_owned(), |value| format!("{value:.2} %"));
    let per_chunk = number("index_ram_bytes_per_mapped_chunk", 1);
    let per_gib = row.get("index_ram_bytes_per_cached_gib").and_then(|value| value.as_f64());
    let index_ram = match per_gib {
        Some(per_gib) => format!(": {per_chunk} bytes a chunk, {} a GiB", human(per_gib as u64)),
        None => String::new(),
    };
    let mut out = format!(
        "{}, {}, on {} in chunks of {}; content: {}\n",
        text("setup"),
        text("mode"),
        text("trace"),
        human(whole("chunk_bytes")),
        content_words(row)
    );
    let data = human(whole("flash_data_bytes"));
    let mut rows = vec![
        ("flash", format!("{}, {data} of it for chunks", human(whole("flash_bytes")))),
        ("requests of chunks", format!("{}, {} reads", count(whole("requests")), count(whole("reads")))),
        ("read hit ratio", no_reads(row).map_or(percent("read_hit_ratio"), |why| format!("none: {why}"))),
        ("write hit ratio", percent("write_hit_ratio")),
        ("total miss ratio", percent("total_miss_ratio")),
        ("deduplication ratio", number("dedup_ratio", 2)),
        ("compression ratio", number("compression_ratio", 2)),
        ("flash: data written", human(whole("flash_bytes_written"))),
        ("flash: metadata written", human(whole("flash_metadata_bytes_written"))),
        ("flash: data read", human(whole("flash_bytes_read"))),
        ("flash: metadata read", human(whole("flash_metadata_bytes_read"))),
        ("write reduction ratio", percent("write_reduction_ratio")),
        ("origin reads", format!("{} chunks", count(whole("origin_chunks_read")))),
        ("origin writes", format!("{} chunks", count(whole("origin_chunks_written")))),
        ("WEU erasures", count(whole("weu_erasures"))),
        ("ghost hits", count(whole("ghost_hits"))),
        ("stale share", percent("stale_ratio")),
        ("mapped chunks", count(whole("mapped_chunks"))),
        ("index RAM", human(whole("index_ram_bytes")) + &index_ram),
        ("speed", format!("{} million requests/s", number("requests_per_second", 2))),
    ];
    if has_drive(row) {
        let geometry = format!(
            "{} with {}: {} blocks of {}, pages of {}; {}% more than the host has",
            text("ssd"),
            text("ftl"),
            count(whole("ssd_blocks")),
            human(whole("ssd_block_bytes")),
            human(whole("ssd_page_bytes")),
            number("ssd_spare_percent", 1)
        );
        let pages = |key: &str| format!("{} pages", count(whole(key)));
        let wear = format!(
            "least {}, mean {}, most {}; coefficient of variation {}",
            whole("ssd_wear_min"),
            number("ssd_wear_mean", 2),
            whole("ssd_wear_max"),
            number("ssd_wear_variation", 2)
        );
        let life = match row.get("ssd_life_note").and_then(|note| note.as_str()) {
            Some(why) => format!("none: {why}"),
            None => format!(
                "{} years; of the block erased most {}",
                years(row, "ssd_life_years"),
                years(row, "ssd_life_years_worst_block")
            ),
        };
        rows.extend([
            ("drive", geometry),
            (
                "drive: erasures",
                format!("{} blocks, {}", count(whole("ssd_erasures")), human(whole("ssd_bytes_erased"))),
            ),
            (
                "drive: written by the cache",
                format!("{}; {} to the layer", human(whole("ssd_host_bytes_written")), pages("ssd_host_pages_written")),
            ),
            (
                "drive: programmed",
                format!("{}; {} copied", pages("ssd_pages_programmed"), count(whole("ssd_pages_copied"))),
            ),
            ("drive: read", pages("ssd_pages_read")),
            ("drive: deduplicated", pages("ssd_pages_deduplicated")),
            ("drive: write amplification", number("ssd_write_amplification", 3)),
            ("drive: erasures a block", wear),
            ("drive: life", life),
        ]);
    }
    if has_time(row) {
        let pace = match row.get("time_outstanding").and_then(|value| value.as_u64()) {
            Some(outstanding) => format!("at full load, {outstanding} outstanding"),
            None => "at the trace's own pace".to_owned(),
        };
        let times = |kind: &str| {
            let of = |what: &str| number(&format!("time_{kind}_{what}_us"), 3);
            format!(
                "mean {}, half {}, 95% {}, 99% {}, most {} ms",
                of("mean"),
                of("p50"),
                of("p95"),
                of("p99"),
                of("max")
            )
        };
        let busy = format!("planes {}, origin {}", percent("time_ssd_busy_ratio"), percent("time_origin_busy_ratio"));
        rows.extend([
            ("time", format!("before {}, {pace}, MODELLED", text("time_origin"))),
            ("time: IOPS", number("time_iops", 0)),
            ("time: reads", times("read")),
            ("time: writes", times("write")),
        ]);
        if row.contains_key("ssd") {
            rows.extend([
                ("time: the drive's reads", times("ssd_read")),
                ("time: the drive's writes", times("ssd_write")),
            ]);
        }
        rows.extend([
            ("time: at work", busy),
            ("time: write amplification", number("time_ssd_write_amplification", 3)),
        ]);
    }
    if whole("warmup_requests") > 0 {
        rows.insert(1, ("warm-up, not counted", format!("{} requests", count(whole("warmup_requests")))));
    }
    if let Some(upper) = row.get("bound_read_hit_ratio_upper").and_then(|value| value.as_f64()) {
        let lower = row.get("bound_read_hit_ratio_lower").and_then(|value| value.as_f64()).unwrap_or(0.0);
        let bound = format!("{:.2} % read hits at most; {:.2} % can be had", 100.0 * upper, 100.0 * lower);
        rows.push(("bound", bound));
        let mib = |key| row.get(key).and_then(|value| value.as_f64()).unwrap_or(0.0) / f64::from(1 << 20);
        let (least, enough) = (mib("bound_flash_bytes_lower"), mib("bound_flash_bytes_upper"));
        rows.push(("bound: written", format!("{least:.1} MiB at least; {enough:.1} MiB are enough")));
        let revealed = row.get("bound_revealed_read_hit_ratio_upper").and_then(|value| value.as_f64()).unwrap_or(0.0);
        rows.push(("bound: contents revealed", format!("{:.2} % read hits at most", 100.0 * revealed)));
    }
    if let Some(why) = row.get("bound_withdrawn").and_then(|why| why.as_str()) {
        rows.push(("bound", why.to_owned()));
    }
    if whole("back_steps") > 0 {
        rows.push(("times that step back", count(whole("back_steps"))));
    }
    if whole("lines_skipped") > 0 {
        rows.push(("bad lines passed over", count(whole("lines_skipped"))));
    }
    output::aligned(&mut out, &rows);
    out
}

/// Returns the source of the content.
fn content_words(row: &Row) -> &'static str {
    match row.get("content").and_then(|content| content.as_str()) {
        None => "none, so each chunk has its own",
        Some("made_up") => "MADE UP",
        Some("sizes_made_up") => "recorded, but compressed sizes are MADE UP",
        Some("unlabelled") => "as the file has it; this format cannot say what was made up",
        Some(_) => "recorded",
    }
}

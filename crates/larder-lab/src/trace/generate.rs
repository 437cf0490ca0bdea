//! `larder-lab trace generate`: traces like those of the papers.
//!
//! Invariants: a value without an option has its paper's figure, times `--scale`. An option without
//! a meaning for the requested kind is wrong usage.
//!
//! It does not generate; `larder_trace::generate` does.

use crate::args::{FormatArgs, GenerateArgs, InputArgs, ShapeArgs};
use larder::{
    error::{Failure, Outcome},
    output,
    trace::out::OutFile,
};
use larder_trace::{
    Compressibility, Record, TraceResult,
    generate::{
        BootStorm, BootStormConfig, PROFILES, ProfileTrace, RandomReads, RandomReadsConfig, Restore, RestoreConfig,
        Snapshots, SnapshotsConfig, SyntheticBoot, SyntheticBootConfig, WorkloadProfile, ZipfConfig, ZipfTrace,
        boot_template,
    },
};
use serde_json::json;
use std::{fs, path::Path};

use super::{
    failure,
    opening::{Use, open},
    watch::Watch,
    written::{self, Lines, WrittenReport},
};

type GeneratedRecords = Box<dyn Iterator<Item = TraceResult<Record>>>;

/// Microseconds in a second.
const SECOND_US: f64 = 1e6;

/// A generator that is no profile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GenerateKind {
    Zipf,
    RandomReads,
    BootStorm,
    Snapshots,
    Restore,
}

impl GenerateKind {
    const ALL: [GenerateKind; 5] = [
        GenerateKind::Zipf,
        GenerateKind::RandomReads,
        GenerateKind::BootStorm,
        GenerateKind::Snapshots,
        GenerateKind::Restore,
    ];

    fn name(self) -> &'static str {
        match self {
            GenerateKind::Zipf => "zipf",
            GenerateKind::RandomReads => "random-reads",
            GenerateKind::BootStorm => "boot-storm",
            GenerateKind::Snapshots => "snapshots",
            GenerateKind::Restore => "restore",
        }
    }

    /// Returns the source of its figures.
    fn source(self) -> &'static str {
        match self {
            GenerateKind::Zipf => {
                "AustereCache 5.1, synthetic traces: 128 MiB of 5 GiB, Zipf 1.0, half of the writes duplicates"
            }
            GenerateKind::RandomReads => {
                "Nitro 6.2 and Figure 7: working set 1 to 10 times the cache, deduplication 1 to 10"
            }
            GenerateKind::BootStorm => {
                "Nitro 5.2 and 6.2: 60 machines, 90% of the distinct contents in all of them, addresses shifted by 0 to 15%"
            }
            GenerateKind::Snapshots => "Nitro 5.2, restore trace: 100 days of 38 GiB, 2.3% overwritten in a day",
            GenerateKind::Restore => "Nitro 5.2 and 6.3: the snapshots, and each read back in requests of 512 KiB",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// One sentence; then nothing was written (for a grid, no further file).
pub fn run(args: &GenerateArgs) -> Outcome {
    if args.list {
        return output::say(&list());
    }
    let name = args.kind.as_deref().unwrap_or_default();
    let path = args.output.as_deref().unwrap_or(Path::new(""));
    let kind = GenerateKind::ALL.into_iter().find(|kind| kind.name() == name);
    let profile = PROFILES.into_iter().find(|profile| profile.name == name);
    if kind.is_none() && profile.is_none() {
        return Err(Failure::Usage(format!(
            "no generator is called '{name}': `larder-lab trace generate --list` names them all"
        )));
    }
    check_usage(args, kind)?;
    if args.shape.grid {
        return grid(args, path);
    }
    let watch = Watch::new()?;
    let out = OutFile::create(path, args.force)?;
    let records = match (kind, profile) {
        (Some(kind), _) => records(kind, args, &watch),
        (None, Some(profile)) => of_profile(profile, args),
        (None, None) => return Err(Failure::Usage(format!("no generator is called '{name}'"))),
    };
    write(records, args, out, &watch)?.say(args.json)
}

/// Returns the names, with the sources of their figures.
fn list() -> String {
    let kinds = GenerateKind::ALL.map(|kind| (kind.name(), kind.source()));
    let profiles = PROFILES.iter().map(|profile| (profile.name, profile.source));
    kinds.into_iter().chain(profiles).map(|(name, source)| format!("{name:<20}{source}\n")).collect()
}

/// Refuses options without a meaning for the kind; a profile is no kind.
fn check_usage(args: &GenerateArgs, kind: Option<GenerateKind>) -> Outcome {
    use GenerateKind::{BootStorm, RandomReads, Restore, Snapshots, Zipf};
    let shape = &args.shape;
    let belongs: [(&str, bool, &[GenerateKind]); 22] = [
        ("--requests", shape.requests.is_some(), &[Zipf, RandomReads]),
        ("--disk", shape.disk.is_some(), &[Zipf, BootStorm, Snapshots, Restore]),
        ("--working-set", shape.working_set.is_some(), &[Zipf]),
        ("--chunk", shape.chunk.is_some(), &[Zipf, RandomReads]),
        ("--zipf", shape.zipf.is_some(), &[Zipf]),
        ("--write-to-read", shape.write_to_read.is_some(), &[Zipf]),
        ("--dup", shape.dup.is_some(), &[Zipf, Snapshots, Restore]),
        ("--dedup-ratio", shape.dedup_ratio.is_some(), &[RandomReads, BootStorm]),
        ("--cache", shape.cache.is_some(), &[RandomReads]),
        ("--working-set-ratio", shape.working_set_ratio.is_some(), &[RandomReads]),
        ("--grid", shape.grid, &[RandomReads]),
        ("--vms", shape.vms.is_some(), &[BootStorm]),
        ("--overlap", shape.overlap.is_some(), &[BootStorm]),
        ("--shift", shape.shift.is_some(), &[BootStorm]),
        ("--spread", shape.spread.is_some(), &[BootStorm]),
        ("--boot", shape.boot.is_some(), &[BootStorm]),
        ("--days", shape.days.is_some(), &[Snapshots, Restore]),
        ("--overwrite", shape.overwrite.is_some(), &[Snapshots, Restore]),
        ("--days-from", shape.days_from.is_some(), &[Restore]),
        ("--restore-days", !shape.restore_days.is_empty(), &[Restore]),
        ("--io", shape.io.is_some(), &[Restore]),
        ("--no-writes", shape.no_writes, &[Restore]),
    ];
    for (option, given, kinds) in belongs {
        if given && !kind.is_some_and(|kind| kinds.contains(&kind)) {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            return Err(Failure::Usage(format!("{option} goes with {}", names.join(", "))));
        }
    }
    let recording = if shape.boot.is_some() { Some("--boot") } else { shape.days_from.as_ref().map(|_| "--days-from") };
    match recording {
        Some(option) if args.scale != 1.0 => {
            Err(Failure::Usage(format!("--scale has no sense with {option}: a recording has its own size")))
        }
        Some("--boot") if shape.dedup_ratio.is_some() => {
            Err(Failure::Usage("--dedup-ratio has no sense with --boot: a recording has its own content".to_owned()))
        }
        _ => Ok(()),
    }
}

fn write(
    records: TraceResult<GeneratedRecords>,
    args: &GenerateArgs,
    out: OutFile,
    watch: &Watch,
) -> Outcome<WrittenReport> {
    let path = out.path().to_owned();
    let input = args.shape.boot.as_deref().or(args.shape.days_from.as_deref());
    let explain = |error: &_| failure(error, input, Some(&path));
    let records = records.map_err(|error| explain(&error))?;
    let written = written::write(watch.making(records), args.to, Lines::Requests, out, explain);
    watch.finish();
    let mut report = written?;
    report.seed = Some(args.seed);
    Ok(report)
}

/// Generates all points of the grid of random reads, a file each.
fn grid(args: &GenerateArgs, folder: &Path) -> Outcome {
    if !folder.is_dir() {
        fs::create_dir(folder).map_err(|error| {
            let reason = larder::error::system_reason(&error);
            Failure::failed(format_args!("the folder {} cannot be made: {reason}", folder.display()))
        })?;
    }
    let watch = Watch::new()?;
    let mut reports = Vec::new();
    for point in random_reads(args).grid() {
        let RandomReadsConfig { working_set_ratio, dedup_ratio, .. } = point;
        let name = format!("ws{working_set_ratio:02}-dedup{dedup_ratio:02}.{}", args.to.extension());
        let out = OutFile::create(&folder.join(name), args.force)?;
        let records = RandomReads::new(point).map(|records| Box::new(records) as GeneratedRecords);
        let report = write(records, args, out, &watch)?;
        if !args.json {
            report.say(false)?;
        }
        reports.push(report);
    }
    if args.json { output::say_json(&json!({ "files": reports })) } else { Ok(()) }
}

fn of_profile(profile: WorkloadProfile, args: &GenerateArgs) -> TraceResult<GeneratedRecords> {
    Ok(Box::new(ProfileTrace::new(profile, args.scale, compress(args), args.seed)?))
}

fn records(kind: GenerateKind, args: &GenerateArgs, watch: &Watch) -> TraceResult<GeneratedRecords> {
    Ok(match kind {
        GenerateKind::Zipf => Box::new(ZipfTrace::new(zipf(args))?),
        GenerateKind::RandomReads => Box::new(RandomReads::new(random_reads(args))?),
        GenerateKind::BootStorm => boot_storm(args, watch)?,
        GenerateKind::Snapshots => Box::new(Snapshots::new(snapshots(args))?),
        GenerateKind::Restore => restore(args, watch)?,
    })
}

fn compress(args: &GenerateArgs) -> Compressibility {
    Compressibility { mean: args.compress, variance: args.variance, seed: args.seed }
}

/// Returns a figure of a paper, times the scale.
fn scaled(args: &GenerateArgs, figure: u64) -> u64 {
    (figure as f64 * args.scale).round() as u64
}

fn zipf(args: &GenerateArgs) -> ZipfConfig {
    let (shape, base) = (&args.shape, ZipfConfig::default());
    ZipfConfig {
        storage_bytes: shape.disk.unwrap_or_else(|| scaled(args, base.storage_bytes)),
        working_set_bytes: shape.working_set.unwrap_or_else(|| scaled(args, base.working_set_bytes)),
        chunk_bytes: shape.chunk.unwrap_or(base.chunk_bytes),
        zipf: shape.zipf.unwrap_or(base.zipf),
        write_to_read: shape.write_to_read.unwrap_or(base.write_to_read),
        io_dedup_ratio: shape.dup.unwrap_or(base.io_dedup_ratio),
        compress: compress(args),
        requests: shape.requests.unwrap_or_else(|| scaled(args, base.requests)),
        seed: args.seed,
    }
}

fn random_reads(args: &GenerateArgs) -> RandomReadsConfig {
    let (shape, base) = (&args.shape, RandomReadsConfig::default());
    RandomReadsConfig {
        cache_bytes: shape.cache.unwrap_or_else(|| scaled(args, base.cache_bytes)),
        working_set_ratio: shape.working_set_ratio.unwrap_or(base.working_set_ratio),
        dedup_ratio: shape.dedup_ratio.unwrap_or(base.dedup_ratio),
        chunk_bytes: shape.chunk.unwrap_or(base.chunk_bytes),
        compress: compress(args),
        requests: shape.requests.unwrap_or_else(|| scaled(args, base.requests)),
        seed: args.seed,
    }
}

/// Returns the options of a trace that serves as input.
fn input(path: &Path) -> InputArgs {
    InputArgs { file: path.to_owned(), how: FormatArgs::default(), unit: None, skip_bad: false }
}

fn boot_storm(args: &GenerateArgs, watch: &Watch) -> TraceResult<GeneratedRecords> {
    let (shape, base) = (&args.shape, BootStormConfig::default());
    let disk_bytes = shape.disk.unwrap_or_else(|| scaled(args, base.disk_bytes));
    let seconds = |seconds: f64| (seconds * SECOND_US) as u64;
    let template = match &shape.boot {
        Some(path) => {
            let from = shape.disk_from.unwrap_or(0);
            let recording = open(&input(path), Use::Once, watch)?;
            let disk = from..from.saturating_add(disk_bytes);
            boot_template(recording, shape.tag.as_deref(), disk, shape.until.map(seconds))?
        }
        None => {
            let base = SyntheticBootConfig::default();
            let boot = SyntheticBoot::new(SyntheticBootConfig {
                boot_bytes: scaled(args, base.boot_bytes),
                disk_bytes,
                dedup_ratio: shape.dedup_ratio.unwrap_or(base.dedup_ratio),
                compress: compress(args),
                seed: args.seed,
                ..base
            })?;
            boot.collect::<TraceResult<Vec<Record>>>()?
        }
    };
    let config = BootStormConfig {
        vms: shape.vms.unwrap_or(base.vms),
        overlap: shape.overlap.unwrap_or(base.overlap),
        shift_max: shape.shift.unwrap_or(base.shift_max),
        disk_bytes,
        spread_us: shape.spread.map_or(base.spread_us, seconds),
        seed: args.seed,
    };
    Ok(Box::new(BootStorm::new(template, config)?))
}

fn snapshots(args: &GenerateArgs) -> SnapshotsConfig {
    let (shape, base) = (&args.shape, SnapshotsConfig::default());
    SnapshotsConfig {
        image_bytes: shape.disk.unwrap_or_else(|| scaled(args, base.image_bytes)),
        days: shape.days.unwrap_or(base.days),
        overwrite_share: shape.overwrite.unwrap_or(base.overwrite_share),
        duplication: shape.dup.unwrap_or(base.duplication),
        compress: compress(args),
        seed: args.seed,
    }
}

fn restore(args: &GenerateArgs, watch: &Watch) -> TraceResult<GeneratedRecords> {
    let ShapeArgs { restore_days, io, no_writes, days_from, .. } = &args.shape;
    let base = RestoreConfig::default();
    let config = RestoreConfig {
        days: restore_days.iter().copied().collect(),
        io_bytes: io.map_or(base.io_bytes, |bytes| u32::try_from(bytes).unwrap_or(0)),
        with_writes: !no_writes,
    };
    if let Some(path) = days_from {
        // Each restored day is another pass.
        let (input, watch) = (input(path), watch.clone());
        return Ok(Box::new(Restore::new(move || open(&input, Use::Replay, &watch), config)?));
    }
    let snapshots = snapshots(args);
    Ok(Box::new(Restore::new(move || Snapshots::new(snapshots), config)?))
}

//! From requested setups to rows: it makes the caches, reads the trace, and computes the bounds.
//!
//! One reading of the trace serves several caches.
//!
//! Invariants: rows come in the order of their setups. The bound of a row is that of its flash,
//! under any RAM budget.
//!
//! It does not choose setups, or print.

use crate::args::{CacheArgs, Switch, TraceInput};
use larder::{
    error::{Failure, Outcome},
    output,
    size::count,
};
use larder_sim::{
    bound::BoundTraces,
    lab::{BoundListener, Collected, LabListener, broadcast},
    measure::{Measures, Meter},
    replay::Batches,
    report::{Row, RowBound, RowBounds, TraceFacts, row},
    setup::{Accounting, FlashAmount, OptionId, Options, Setup},
    survey::Survey,
};
use std::{collections::BTreeMap, num::NonZero};

use super::{
    source::Source,
    spec::{Change, DesignSpec, Warmup},
};

/// The most requests for which a bound is computed by default: it takes up to some 150 bytes for
/// each.
const BOUND_REQUESTS_MAX: u64 = 8 << 20;

/// The condition for computing the bounds of replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// Never.
    Off,
    /// Unless the trace is long.
    Auto,
    /// In any case.
    On,
}

impl Bounds {
    /// Returns the choice of the command line.
    pub fn of(asked: Option<Switch>) -> Bounds {
        match asked {
            None => Bounds::Auto,
            Some(Switch::On) => Bounds::On,
            Some(Switch::Off) => Bounds::Off,
        }
    }

    fn requests_max(self) -> Option<u64> {
        match self {
            Bounds::Off => None,
            Bounds::Auto => Some(BOUND_REQUESTS_MAX),
            Bounds::On => Some(u64::MAX),
        }
    }
}

/// Returns the options of the command line for all designs.
pub fn common(args: &CacheArgs, ram: Option<u64>) -> Options {
    let is_on = |switch: Switch| switch == Switch::On;
    Options {
        dedup: args.dedup.map(is_on),
        compress: args.compress.map(is_on),
        subchunk_bytes: args.subchunk,
        lba_entries: args.lba_entries,
        ram_bytes: ram,
        weu_bytes: args.weu,
        fp_index_percent: args.fp_index,
        granularity: args.granularity,
        orphans: args.orphans,
        accounting: args.accounting,
        drive: None,
    }
}

/// Returns the setup of a design: the request, all of which it must have, and its own options.
pub fn with_own(spec: &DesignSpec, mut asked: Setup) -> Setup {
    spec.changes.iter().for_each(|change| change.apply(&mut asked));
    asked
}

/// Does the same, but keeps only those requested options that the design has.
pub fn fitted(spec: &DesignSpec, asked: Setup) -> Setup {
    let mut own = Setup { options: Options::default(), ..asked };
    let accountings = spec.changes.iter().filter(|change| matches!(change, Change::Accounting(_)));
    accountings.for_each(|change| change.apply(&mut own));
    let options = own.options.or_from(&asked.options, spec.design);
    with_own(spec, Setup { options, ..asked })
}

/// Checks that each option goes to some design.
///
/// # Errors
/// A sentence.
pub fn check_common(options: &Options, designs: &[DesignSpec]) -> Outcome {
    let is_taken = |id, accounting| designs.iter().any(|spec| spec.design.takes(id, accounting));
    let accounting = |spec: &DesignSpec| {
        let own = spec.changes.iter().find_map(|change| match change {
            Change::Accounting(what) => Some(*what),
            _ => None,
        });
        own.or(options.accounting).unwrap_or_default()
    };
    let is_lost = |id: &OptionId| !designs.iter().any(|spec| spec.design.takes(*id, accounting(spec)));
    match options.given().find(is_lost) {
        Some(id) => {
            let names: Vec<&str> = designs.iter().map(|spec| spec.design.name).collect();
            let needs = if is_taken(id, Accounting::Paper) { " without --accounting paper" } else { "" };
            Err(Failure::Usage(format!("none of {} has an option --{}{needs}", names.join(", "), id.name())))
        }
        None => Ok(()),
    }
}

/// Surveys the trace in advance, as far as these setups need it.
///
/// # Errors
/// A sentence.
pub fn survey(source: &Source<'_>, input: &TraceInput, setups: &[Setup]) -> Outcome<Option<Survey>> {
    let of_set = setups.iter().any(|setup| matches!(setup.flash, FlashAmount::PercentOfWorkingSet(_)));
    let is_share = matches!(input.warmup, Warmup::Percent(percent) if percent > 0.0);
    if of_set || is_share { source.survey().map(Some) } else { Ok(None) }
}

/// Makes the cache of each setup.
///
/// # Errors
/// A sentence with the name of the first impossible one.
pub fn check(setups: &[Setup], survey: Option<&Survey>) -> Outcome {
    for setup in setups {
        setup.check().map_err(Failure::Usage)?;
        let is_known = survey.is_some() || !matches!(setup.flash, FlashAmount::PercentOfWorkingSet(_));
        if is_known {
            can_be(setup, survey).map_err(|sentence| refused(setup, &sentence))?;
        }
    }
    Ok(())
}

/// Checks whether such a cache can be.
///
/// # Errors
/// A sentence.
pub fn can_be(setup: &Setup, survey: Option<&Survey>) -> Result<(), String> {
    setup.build(survey.map_or(0, |survey| survey.working_set_chunks)).map(drop)
}

/// Returns a refusal, which names the design.
pub fn refused(setup: &Setup, sentence: &str) -> Failure {
    let name = setup.design.name;
    match sentence.contains(name) {
        true => Failure::failed(sentence),
        false => Failure::failed(format_args!("{name}: {sentence}")),
    }
}

/// The options of a pass over the trace.
pub struct Pass<'a> {
    /// The trace.
    pub source: &'a Source<'a>,
    /// The requests before the count begins.
    pub warmup: Warmup,
    /// The survey of the trace.
    pub survey: Option<Survey>,
    /// The progress text for people.
    pub words: String,
    /// Threads that replay.
    pub threads: usize,
}

impl Pass<'_> {
    /// Replays the trace through each of these caches, and computes their bounds.
    ///
    /// # Errors
    /// A sentence.
    pub fn rows(&self, setups: &[Setup], bounds: Bounds) -> Outcome<Vec<Row>> {
        let warmup = self.warmup_requests();
        let working_set = self.working_set_chunks();
        let mut meters = Vec::new();
        for setup in setups {
            let built = setup.build(working_set).map_err(|sentence| refused(setup, &sentence))?;
            meters.push(Meter::new(built, setup.chunk_bytes, warmup));
        }
        let mut collector = bounds.requests_max().map(|most| BoundListener::new(warmup, most));
        let explain = |error| self.source.explain(&error);
        let requests = self.source.requests(self.words.clone()).map_err(explain)?;
        let mut batches = Batches::new(requests, self.source.chunk_bytes());
        let mut listeners: Vec<&mut dyn LabListener> =
            meters.iter_mut().map(|meter| meter as &mut dyn LabListener).collect();
        listeners.extend(collector.as_mut().map(|collector| collector as &mut dyn LabListener));
        broadcast(&mut batches, &mut listeners, self.threads).map_err(explain)?;
        let seconds = batches.seconds();
        let facts = TraceFacts { seconds, ..self.source.facts(batches.into_requests()) };
        let measures: Vec<Measures> = meters.into_iter().map(Meter::finish).collect();
        let bounds = match collector.map(BoundListener::finish) {
            None => Vec::new(),
            Some(Collected::Trace(traces)) => row_bounds(&traces, setups, &measures),
            Some(Collected::Contradicted(reads)) => vec![RowBound::Withdrawn { reads }; setups.len()],
            Some(Collected::TooLong) => {
                let most = count(BOUND_REQUESTS_MAX);
                output::note(&format!("note: the trace has more than {most} requests: without --bound on, no bound"));
                Vec::new()
            }
        };
        let rows = setups.iter().zip(&measures).enumerate();
        Ok(rows.map(|(at, (setup, measures))| row(setup, measures, &facts, bounds.get(at))).collect())
    }

    /// Returns the distinct chunks that the trace touches, if that matters.
    pub fn working_set_chunks(&self) -> u64 {
        self.survey.map_or(0, |survey| survey.working_set_chunks)
    }

    /// Returns the reads and writes of chunks that are not counted.
    pub fn warmup_requests(&self) -> u64 {
        match self.warmup {
            Warmup::Requests(requests) => requests,
            Warmup::Percent(percent) => {
                let requests = self.survey.map_or(0, |survey| survey.requests);
                (requests as f64 * percent / 100.0) as u64
            }
        }
    }
}

/// Returns the bounds of each row.
///
/// A flash in bytes may hold chunks in all of it, since a bound has no metadata. A flash in chunks
/// has the size that the roomiest design makes of it.
fn row_bounds(traces: &BoundTraces, setups: &[Setup], measures: &[Measures]) -> Vec<RowBound> {
    let mut capacities: BTreeMap<String, u64> = BTreeMap::new();
    for (setup, measures) in setups.iter().zip(measures) {
        let bytes = match setup.flash {
            FlashAmount::DataChunks(_) => measures.flash_data_bytes,
            FlashAmount::Bytes(_) | FlashAmount::PercentOfWorkingSet(_) => measures.flash_bytes,
        };
        let most = capacities.entry(setup.flash.to_string()).or_default();
        *most = bytes.max(*most);
    }
    let bytes: Vec<u64> = capacities.values().copied().collect();
    let chunk = setups.first().map_or(1, |setup| u64::from(setup.chunk_bytes));
    let known = traces.addresses.with_sizes(&bytes);
    let revealed = traces.contents.read_hit_ratios_in_bytes(&bytes);
    let all = bytes.iter().zip(known).zip(revealed).map(|((bytes, compressed), revealed_ratio)| RowBounds {
        compressed,
        uncompressed_ratio: traces.addresses.read_hit_ratio_in_chunks(bytes / chunk),
        revealed_ratio,
    });
    let by_flash: BTreeMap<&str, RowBounds> = capacities.keys().map(String::as_str).zip(all).collect();
    setups
        .iter()
        .filter_map(|setup| by_flash.get(setup.flash.to_string().as_str()).copied().map(RowBound::Known))
        .collect()
}

/// Returns the default number of concurrent replays.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

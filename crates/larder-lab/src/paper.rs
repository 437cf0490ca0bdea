//! `larder-lab paper`: the papers' experiments, listed and run.
//!
//! Those that count, by replay, have their files in `larder-papers/src/`. Those that measure the
//! engine's caches, on devices with the timing of real media, are in `larder-papers/src/live/`.
//!
//! Invariants: outputs and traces are checked before any replay or output.
//!
//! It does not know the experiments.

mod pages;

use crate::{
    args::{FormatArgs, InputArgs, NamedTrace, PaperCommand, PaperRunArgs},
    sim::{outputs::Outputs, replay::processors, spec::policy},
    trace::{self, Use, watch::Watch},
};
use larder::{
    error::{Failure, Outcome},
    output,
};
use larder_papers::{
    Experiment, Grid, Heading, Lab, PaperReport, Records, StandIn, Workload, experiments,
    live::{self, Clocks, LiveRun, Means, Source},
};
use larder_sim::report::plot;
use serde_json::{Value, json};

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(command: &PaperCommand) -> Outcome {
    match command {
        PaperCommand::List(args) => list(args.json),
        PaperCommand::Run(args) => run_one(args),
    }
}

/// An experiment of either kind.
#[derive(Clone, Copy)]
enum Any {
    Counts(&'static Experiment),
    Takes(&'static LiveRun),
}

impl Any {
    fn named(name: &str) -> Outcome<Any> {
        let counts = Experiment::named(name).map(Any::Counts);
        counts.or_else(|| LiveRun::named(name).map(Any::Takes)).ok_or_else(|| {
            Failure::Usage(format!("there is no experiment {name:?}: `larder-lab paper list` names them all"))
        })
    }

    /// Returns all experiments, those of one paper one after the other.
    fn all() -> Vec<Any> {
        let mut all: Vec<Any> = experiments().map(Any::Counts).chain(live::all().map(Any::Takes)).collect();
        let mut papers: Vec<&str> = Vec::new();
        for any in &all {
            let paper = any.heading().paper;
            if !papers.contains(&paper) {
                papers.push(paper);
            }
        }
        all.sort_by_key(|any| papers.iter().position(|paper| *paper == any.heading().paper));
        all
    }

    fn heading(&self) -> Heading {
        match self {
            Any::Counts(experiment) => experiment.heading(),
            Any::Takes(live) => live.heading,
        }
    }

    fn stand_ins(&self) -> &'static [StandIn] {
        match self {
            Any::Counts(experiment) => experiment.stand_ins,
            Any::Takes(LiveRun { source: Source::Traces(stand_ins), .. }) => stand_ins,
            Any::Takes(_) => &[],
        }
    }

    /// Returns the names of its traces, or of its own requests.
    fn traces(&self) -> Vec<&'static str> {
        match self {
            Any::Takes(LiveRun { source: Source::Made { name, .. }, .. }) => vec![name],
            _ => self.stand_ins().iter().map(|stand_in| stand_in.name).collect(),
        }
    }

    /// Returns its clock, and whether it takes traces.
    fn nature(&self) -> (Option<&'static str>, bool) {
        match self {
            Any::Counts(_) => (None, true),
            Any::Takes(live) => {
                let clock = match live.clocks {
                    Clocks::Either => "virtual",
                    Clocks::RealOnly(_) => "real",
                };
                (Some(clock), matches!(live.source, Source::Traces(_)))
            }
        }
    }
}

fn list(as_json: bool) -> Outcome {
    let all = Any::all();
    if as_json {
        let object = |any: &Any| {
            let Heading { name, paper, figure, about } = any.heading();
            let (clock, takes_traces) = any.nature();
            json!({
                "name": name, "paper": paper, "figure": figure, "about": about, "traces": any.traces(),
                "takes_traces": takes_traces, "clock": clock,
            })
        };
        return output::say_json(&all.iter().map(object).collect::<Vec<Value>>());
    }
    let width = all.iter().map(|any| any.heading().name.len()).max().unwrap_or(0);
    let mut page = String::new();
    let mut last = "";
    for any in all {
        let Heading { name, paper, figure, about } = any.heading();
        if paper != last {
            page.push_str(&format!("{}{paper}\n", if last.is_empty() { "" } else { "\n" }));
            last = paper;
        }
        page.push_str(&format!("  {name:<width$}  {figure}: {about}\n"));
    }
    output::say(&page)
}

/// Names and their descriptions, for a report.
type Named = Vec<(String, String)>;

fn run_one(args: &PaperRunArgs) -> Outcome {
    let any = Any::named(&args.name)?;
    check_grid(any, args)?;
    let watch = Watch::new()?;
    let outputs = Outputs::new(args.json, args.csv.as_deref(), args.plot.as_deref())?;
    let result = match any {
        Any::Counts(_) if args.clock.is_some() => {
            Err(Failure::Usage(format!("{} counts, and no clock runs meanwhile: leave --clock away", args.name)))
        }
        Any::Counts(experiment) => counted(experiment, args, &watch),
        Any::Takes(live) => measured(live, args, &watch),
    };
    watch.finish();
    let (report, traces) = result?;
    let traces: Vec<(&str, &str)> = traces.iter().map(|(name, about)| (name.as_str(), about.as_str())).collect();
    let heading = any.heading();
    outputs.write(
        || plot::svg(&report.charts).map_err(Failure::failed),
        || report.csv(),
        || report.json(&heading, &traces),
        || report.text(&heading, &traces),
    )
}

fn titles(workloads: &[Workload<'_>]) -> Named {
    workloads.iter().map(|workload| (workload.title().to_owned(), workload.about().to_owned())).collect()
}

fn counted(experiment: &'static Experiment, args: &PaperRunArgs, watch: &Watch) -> Outcome<(PaperReport, Named)> {
    let grid = grid(args);
    let workloads = workloads(Any::Counts(experiment), args, watch)?;
    let titles = titles(&workloads);
    let report = experiment.report(&mut Lab::new(workloads, processors()).over(grid)).map_err(Failure::failed)?;
    Ok((report, titles))
}

/// Returns the grid of the command line; the experiment's own where it says nothing.
fn grid(args: &PaperRunArgs) -> Grid {
    let mut grid = Grid::default();
    if !args.flash.is_empty() {
        grid.percents = args.flash.clone();
    }
    if !args.mode.is_empty() {
        grid.policies = args.mode.iter().map(|mode| policy(*mode)).collect();
    }
    grid
}

/// Refuses sizes and modes for an experiment that has its own.
fn check_grid(any: Any, args: &PaperRunArgs) -> Outcome {
    let given = match (args.flash.is_empty(), args.mode.is_empty()) {
        (true, true) => return Ok(()),
        (false, _) => "--flash",
        (true, false) => "--mode",
    };
    if matches!(any, Any::Counts(experiment) if experiment.has_grid()) {
        return Ok(());
    }
    let names: Vec<&str> = experiments().filter(|one| one.has_grid()).map(|one| one.name).collect();
    let (name, others) = (any.heading().name, names.join(", "));
    Err(Failure::Usage(format!(
        "{name} has sizes and modes of its own, and takes no {given}: leave it out, or run {others}"
    )))
}

/// Returns the stand-ins that were asked for.
fn chosen(experiment: Any, only: &[String]) -> Outcome<Vec<&'static StandIn>> {
    let all = experiment.stand_ins();
    let is = |stand_in: &StandIn, name: &String| stand_in.name.eq_ignore_ascii_case(name);
    if let Some(unknown) = only.iter().find(|name| !all.iter().any(|stand_in| is(stand_in, name))) {
        let (experiment, names) = (experiment.heading().name, experiment.traces().join(", "));
        return Err(Failure::Usage(format!("{experiment} generates no trace {unknown:?}; it has {names}")));
    }
    let is_chosen = |stand_in: &&StandIn| only.is_empty() || only.iter().any(|name| is(stand_in, name));
    Ok(all.iter().filter(is_chosen).collect())
}

fn measured(live: &'static LiveRun, args: &PaperRunArgs, watch: &Watch) -> Outcome<(PaperReport, Named)> {
    let time = live.time(args.clock).map_err(Failure::Usage)?;
    let (workloads, titles, scale) = match &live.source {
        Source::Traces(_) => {
            let workloads = workloads(Any::Takes(live), args, watch)?;
            let titles = titles(&workloads);
            (workloads, titles, 1.0)
        }
        Source::Made { name, about, scale } => {
            if !args.trace.is_empty() || !args.path.is_empty() || !args.only.is_empty() {
                let experiment = live.heading.name;
                let given = match (args.trace.is_empty(), args.path.is_empty()) {
                    (false, _) => "--trace",
                    (true, false) => "--path",
                    (true, true) => "--only",
                };
                return Err(Failure::Usage(format!(
                    "{experiment} makes its requests itself and takes no {given}: --scale makes it larger"
                )));
            }
            let scale = args.scale.unwrap_or(*scale);
            (Vec::new(), vec![((*name).to_owned(), format!("GENERATED: {about}, scale {scale}"))], scale)
        }
    };
    let threads = processors();
    let mut lab = Lab::new(workloads, threads);
    let means = Means { scale, time, threads, ending: watch.ending() };
    let mut report = (live.run)(&mut lab, &means).map_err(Failure::failed)?;
    if lab.has_generated() {
        report.charts.iter_mut().for_each(|chart| chart.subtitle.push_str("; GENERATED traces"));
    }
    report.words.push(means.about_devices());
    Ok((report, titles))
}

/// Returns the given traces, or those that stand in.
fn workloads<'a>(experiment: Any, args: &PaperRunArgs, watch: &'a Watch) -> Outcome<Vec<Workload<'a>>> {
    if !args.path.is_empty() {
        let is_of_disks = matches!(experiment, Any::Counts(experiment) if experiment.is_of_disks());
        if !is_of_disks {
            let names: Vec<&str> = experiments().filter(|one| one.is_of_disks()).map(|one| one.name).collect();
            return Err(Failure::Usage(format!(
                "{} is not about what disks hold, and takes no --path: {} do",
                experiment.heading().name,
                names.join(" and ")
            )));
        }
        return args.path.iter().map(|path| pages::given(path, watch)).collect();
    }
    if args.trace.is_empty() {
        let generated = |stand_in: &'static StandIn| generated(stand_in, args.scale, watch);
        return chosen(experiment, &args.only)?.into_iter().map(generated).collect();
    }
    args.trace.iter().map(|trace| given(experiment, trace, args, watch)).collect()
}

fn generated<'a>(stand_in: &'static StandIn, scale: Option<f64>, watch: &'a Watch) -> Outcome<Workload<'a>> {
    let scale = scale.unwrap_or(stand_in.scale);
    let open = move |_: &str| Ok(Box::new(watch.making((stand_in.records)(scale)?)) as Records<'a>);
    // A failure to generate is reported here, before any replay.
    let can_be = (stand_in.records)(scale).map(drop);
    can_be.map_err(|error| Failure::failed(format_args!("{}: {error}", stand_in.name)))?;
    let about = format!("GENERATED in place of the paper's: {}, scale {scale}", stand_in.about);
    Ok(Workload::new(stand_in.name, about, open))
}

fn given<'a>(experiment: Any, trace: &NamedTrace, args: &PaperRunArgs, watch: &'a Watch) -> Outcome<Workload<'a>> {
    let known = |name: &String| {
        let known = experiment.stand_ins().iter().find(|stand_in| stand_in.name.eq_ignore_ascii_case(name));
        known.map(|stand_in| stand_in.name.to_owned()).ok_or_else(|| {
            let (experiment, names) = (experiment.heading().name, experiment.traces().join(", "));
            Failure::Usage(format!("{experiment} has no trace {name:?}; it has {names}"))
        })
    };
    let file = trace.file.clone();
    let named = trace.name.as_ref().map(known).transpose()?;
    let short = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let about = match &named {
        Some(name) => format!("{}, given in the place of the paper's {name}", file.display()),
        None => format!("{}, as given", file.display()),
    };
    // Charts have little room.
    let stem = short.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(&short);
    let title = named.as_ref().map_or(short.clone(), |name| format!("{stem} as {name}"));
    let name = named.unwrap_or(short);
    let how = FormatArgs { format: args.format, columns: args.columns };
    let input = InputArgs { file, how, unit: None, skip_bad: args.skip_bad };
    trace::open(&input, Use::Replay, watch).map_err(|error| trace::failure(&error, Some(&input.file), None))?;
    let open = move |what: &str| {
        let reading = watch.reading(trace::open(&input, Use::Replay, watch)?, what.to_owned());
        Ok(Box::new(reading) as Records<'a>)
    };
    Ok(Workload::new(name, about, open).given(title))
}

//! `larder paper`: the papers' experiments, listed and run.
//!
//! Invariants: outputs and traces are checked before anything is replayed.
//!
//! What it does not do: know the experiments; `larder_sim::paper` does.

use crate::{
    args::{InputArgs, NamedTrace, PaperCommand, PaperRunArgs},
    error::{Failure, Outcome},
    output,
    sim::{outputs::Outputs, replay::processors},
    trace::{self, Use, watch::Watch},
};
use larder_sim::{
    paper::{Experiment, Lab, Records, StandIn, Workload, experiments},
    report::plot,
};
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

fn list(as_json: bool) -> Outcome {
    if as_json {
        let object = |experiment: &Experiment| {
            let Experiment { name, paper, figure, about, stand_ins, .. } = experiment;
            let traces: Vec<&str> = stand_ins.iter().map(|stand_in| stand_in.name).collect();
            json!({ "name": name, "paper": paper, "figure": figure, "about": about, "traces": traces })
        };
        return output::say_json(&experiments().map(object).collect::<Vec<Value>>());
    }
    let width = experiments().map(|experiment| experiment.name.len()).max().unwrap_or(0);
    let mut page = String::new();
    let mut last = "";
    for Experiment { name, paper, figure, about, .. } in experiments() {
        if *paper != last {
            page.push_str(&format!("{}{paper}\n", if last.is_empty() { "" } else { "\n" }));
            last = paper;
        }
        page.push_str(&format!("  {name:<width$}  {figure}: {about}\n"));
    }
    output::say(&page)
}

fn run_one(args: &PaperRunArgs) -> Outcome {
    let experiment = Experiment::named(&args.name).map_err(Failure::failed)?;
    let outputs = Outputs::new(args.json, args.csv.as_deref(), args.plot.as_deref())?;
    let watch = Watch::new()?;
    let workloads = workloads(experiment, args, &watch)?;
    let traces: Vec<(String, String)> =
        workloads.iter().map(|workload| (workload.title().to_owned(), workload.about().to_owned())).collect();
    let report = experiment.report(&mut Lab::new(workloads, processors()));
    watch.finish();
    let report = report.map_err(Failure::failed)?;
    let traces: Vec<(&str, &str)> = traces.iter().map(|(name, about)| (name.as_str(), about.as_str())).collect();
    outputs.write(
        || plot::svg(&report.charts).map_err(Failure::failed),
        || report.csv(),
        || report.json(experiment, &traces),
        || report.text(experiment, &traces),
    )
}

/// The traces that were given, or those that stand in.
fn workloads<'a>(experiment: &Experiment, args: &PaperRunArgs, watch: &'a Watch) -> Outcome<Vec<Workload<'a>>> {
    if args.trace.is_empty() {
        let generated = |stand_in: &'static StandIn| generated(stand_in, args.scale, watch);
        return experiment.stand_ins.iter().map(generated).collect();
    }
    args.trace.iter().map(|trace| given(experiment, trace, args, watch)).collect()
}

fn generated<'a>(stand_in: &'static StandIn, scale: Option<f64>, watch: &'a Watch) -> Outcome<Workload<'a>> {
    let scale = scale.unwrap_or(stand_in.scale);
    let open = move |_: &str| Ok(Box::new(watch.making((stand_in.records)(scale)?)) as Records<'a>);
    // What cannot be generated is refused here, before anything else is replayed.
    let can_be = (stand_in.records)(scale).map(drop);
    can_be.map_err(|error| Failure::failed(format_args!("{}: {error}", stand_in.name)))?;
    let about = format!("GENERATED in place of the paper's: {}, scale {scale}", stand_in.about);
    Ok(Workload::new(stand_in.name, about, open))
}

fn given<'a>(
    experiment: &Experiment,
    trace: &NamedTrace,
    args: &PaperRunArgs,
    watch: &'a Watch,
) -> Outcome<Workload<'a>> {
    let known = |name: &String| {
        let known = experiment.stand_ins.iter().find(|stand_in| stand_in.name.eq_ignore_ascii_case(name));
        known.map(|stand_in| stand_in.name.to_owned()).ok_or_else(|| {
            let names: Vec<&str> = experiment.stand_ins.iter().map(|stand_in| stand_in.name).collect();
            let (experiment, names) = (experiment.name, names.join(", "));
            Failure::failed(format_args!("{experiment} has no trace {name:?}; it has {names}"))
        })
    };
    let file = trace.file.clone();
    let named = trace.name.as_ref().map(known).transpose()?;
    let short = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let about = match &named {
        Some(name) => format!("{}, given in the place of the paper's {name}", file.display()),
        None => format!("{}, as given", file.display()),
    };
    // In charts there is little room.
    let stem = short.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(&short);
    let title = named.as_ref().map_or(short.clone(), |name| format!("{stem} as {name}"));
    let name = named.unwrap_or(short);
    let input = InputArgs { file, format: args.format, unit: None, skip_bad: args.skip_bad };
    trace::open(&input, Use::Replay, watch).map_err(|error| trace::failure(&error, Some(&input.file), None))?;
    let open = move |what: &str| {
        let reading = watch.reading(trace::open(&input, Use::Replay, watch)?, what.to_owned());
        Ok(Box::new(reading) as Records<'a>)
    };
    Ok(Workload::new(name, about, open).given(title))
}

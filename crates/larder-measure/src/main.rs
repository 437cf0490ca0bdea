//! `larder-measure`: measures the cache against a base of comparison, and reports its aims.
//!
//! Role: one table on standard output and the same rows in `target/bench.json`. Each letter is a
//! file: [`hits_ram`] (a), [`hits_flash`] (b), [`misses`] (c), [`writes`] (d, e), [`nbd`] (f),
//! [`flushes`] (g), [`index_ram`] (h), [`recovery`] (i), [`no_flip`] (j), [`decisions`] (k),
//! [`hits_threads`] (l), [`writes_threads`] (m), [`writes_one_chunk`] (n),
//! [`decisions_recorded`] (o).
//!
//! Invariants: both sides of a comparison run in one program run, in turns. The median of the
//! turns' ratios counts, since machines are noisy. A missed aim is printed as missed. Both sides
//! touch as much memory, in the same pattern.
//!
//! It does not fail if an aim is missed, or measure a durable medium's latency.

mod alloc;
mod caches;
mod data;
mod decisions;
mod decisions_recorded;
mod devices;
mod driven;
mod flushes;
mod hits_flash;
mod hits_ram;
mod hits_threads;
mod index_ram;
mod measure;
mod misses;
mod nbd;
mod nbd_writers;
mod no_flip;
mod options;
mod recovery;
mod report;
mod threads;
mod writes;
mod writes_one_chunk;
mod writes_threads;

use larder_device::driver::io_backend;
use measure::Res;
use options::Options;
use report::Row;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

const USAGE: &str = "usage: larder-measure [--only a,b,…] [--quick] [--dir FOLDER] [--json FILE]

  --only LETTERS  measure these only (a to o)
  --quick         fewer and shorter rounds: a look, not a measurement
  --dir FOLDER    where scratch files go (default target/bench-scratch); (b) measures the file system there
  --json FILE     where the rows go (default target/bench.json)";

type Bench = fn(&Options) -> Res<Vec<Row>>;

const BENCHES: [(char, &str, Bench); 15] = [
    ('a', "reads that hit, RAM", hits_ram::run),
    ('b', "reads that hit, flash file", hits_flash::run),
    ('c', "reads that miss", misses::run),
    ('d', "unique writes", writes::unique),
    ('e', "duplicate writes", writes::duplicate),
    ('f', "reads through NBD", nbd::run),
    ('g', "writes with flushes", flushes::run),
    ('h', "index RAM", index_ram::run),
    ('i', "recovery", recovery::run),
    ('j', "the cost of no stale copy", no_flip::run),
    ('k', "decisions", decisions::run),
    ('l', "reads that hit, many threads", hits_threads::run),
    ('m', "writes, many threads", writes_threads::run),
    ('n', "writes of many clients to one chunk", writes_one_chunk::run),
    ('o', "decisions on recordings", decisions_recorded::run),
];

fn options() -> Result<Options, String> {
    let mut options =
        Options { only: None, quick: false, dir: "target/bench-scratch".into(), json: "target/bench.json".into() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value"));
        match arg.as_str() {
            "--only" => {
                let letters: Vec<char> = value()?.chars().filter(|c| *c != ',').collect();
                if let Some(strange) = letters.iter().find(|c| !BENCHES.iter().any(|(letter, ..)| letter == *c)) {
                    return Err(format!("no measurement is called \"{strange}\"; there are a to o"));
                }
                options.only = Some(letters);
            }
            "--quick" => options.quick = true,
            "--dir" => options.dir = value()?.into(),
            "--json" => options.json = value()?.into(),
            _ => return Err(format!("\"{arg}\" is not known")),
        }
    }
    Ok(options)
}

fn print_machine() {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("?").to_owned();
    println!("CPU: {}, {cores} cores; load average {load}", model.trim_start_matches([' ', '\t', ':']));
    println!("I/O: {}", io_backend());
    if load.parse::<f64>().is_ok_and(|load| load > cores as f64 / 2.0) {
        println!("The machine is busy with other work: trust the ratios more than the rates, and neither much.");
    }
    println!();
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = std::fs::create_dir_all(&options.dir) {
        eprintln!("The folder {} cannot be made: {error}.", options.dir.display());
        return ExitCode::FAILURE;
    }
    print_machine();
    let mut rows = Vec::new();
    let mut failed = false;
    for (letter, name, bench) in BENCHES {
        if options.only.as_ref().is_some_and(|only| !only.contains(&letter)) {
            continue;
        }
        eprintln!("({letter}) {name} …");
        match bench(&options) {
            Ok(more) => rows.extend(more),
            Err(error) => {
                failed = true;
                rows.push(Row::without_value(&letter.to_string(), &format!("{name}: failed: {error}")));
            }
        }
    }
    // Only a folder that is ours and empty goes.
    let _ = std::fs::remove_dir(&options.dir);
    report::print_table(&rows);
    if let Err(error) = report::write_json(&rows, &options.json) {
        eprintln!("{} cannot be written: {error}.", options.json.display());
        failed = true;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

//! The outputs of a report: a table or JSON on standard output, a CSV file, a chart.
//!
//! Invariants: the files are checked and begun before any replay. They replace files of their name
//! only when they are whole.
//!
//! It does not make rows or charts.

use crate::args::ReportArgs;
use larder::{
    error::{Failure, Outcome},
    output,
    trace::out::OutFile,
};
use larder_sim::report::{Row, csv, plot::Chart};
use serde::Serialize;
use std::{io::Write, path::Path};

/// The requested outputs.
pub struct Outputs {
    json: bool,
    csv: Option<CsvTo>,
    plot: Option<OutFile>,
}

enum CsvTo {
    Stdout,
    File(OutFile),
}

impl Outputs {
    /// Returns the outputs of the command line.
    ///
    /// # Errors
    /// A sentence about a file that cannot be written.
    pub fn of(args: &ReportArgs) -> Outcome<Outputs> {
        Outputs::new(args.json, args.csv.as_deref(), args.plot.as_deref())
    }

    /// Returns outputs: JSON in place of the table, a CSV file, a chart.
    ///
    /// JSON and CSV cannot both go to standard output.
    ///
    /// # Errors
    /// As [`Outputs::of`].
    pub fn new(json: bool, csv: Option<&Path>, plot: Option<&Path>) -> Outcome<Outputs> {
        let csv = match csv {
            None => None,
            Some(path) if path == Path::new("-") && json => {
                let why =
                    "--json and --csv - both go to standard output: name a file for one of them, as in --csv rows.csv";
                return Err(Failure::Usage(why.to_owned()));
            }
            Some(path) if path == Path::new("-") => Some(CsvTo::Stdout),
            Some(path) => Some(CsvTo::File(OutFile::create(path, true)?)),
        };
        let plot = plot.map(|path| is_svg(path).and_then(|()| OutFile::create(path, true))).transpose()?;
        Ok(Outputs { json, csv, plot })
    }

    /// Writes rows.
    ///
    /// # Errors
    /// A sentence.
    pub fn write_rows(
        self,
        rows: &[Row],
        chart: impl FnOnce() -> Outcome<Chart>,
        table: impl FnOnce() -> String,
    ) -> Outcome {
        self.write(|| chart()?.svg().map_err(Failure::failed), || csv(rows), || rows, table)
    }

    /// Writes the report; only requested outputs are made.
    ///
    /// # Errors
    /// A sentence.
    pub fn write<J: Serialize>(
        self,
        svg: impl FnOnce() -> Outcome<String>,
        csv: impl FnOnce() -> String,
        json: impl FnOnce() -> J,
        text: impl FnOnce() -> String,
    ) -> Outcome {
        if let Some(file) = self.plot {
            write_file(file, &svg()?)?;
        }
        match self.csv {
            Some(CsvTo::Stdout) => return output::say(&csv()),
            Some(CsvTo::File(file)) => write_file(file, &csv())?,
            None => {}
        }
        match self.json {
            true => output::say_json(&json()),
            false => output::say(&text()),
        }
    }
}

fn is_svg(path: &Path) -> Outcome {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.eq_ignore_ascii_case("svg") {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "--plot {}: charts are SVG files: name one that ends in .svg (rsvg-convert and browsers make other formats of it)",
            path.display()
        ))),
    }
}

fn write_file(out: OutFile, text: &str) -> Outcome {
    let written = (&*out.file()).write_all(text.as_bytes());
    written.map_err(|error| {
        let reason = larder::error::system_reason(&error);
        Failure::failed(format_args!("{} cannot be written: {reason}", out.path().display()))
    })?;
    out.commit().map(drop)
}

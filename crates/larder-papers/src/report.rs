//! The report of an experiment: our tables and the published ones, comparisons, words and charts.
//!
//! A comparison puts a claim of the paper's text beside our figure.
//!
//! Invariants: a table is a rectangle: each series has a figure, or none, for each of its columns.
//!
//! It does not compute.

use std::fmt;

use serde_json::{Value, json};

use super::Heading;
use larder_sim::report::{
    csv_cell,
    plot::{Chart, ChartKind, Role, Scale, Series},
};

/// A range of figures; often both ends are the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Span {
    /// Makes a span of one figure.
    pub fn at(value: f64) -> Span {
        Span { low: value, high: value }
    }

    /// Makes a span from one to the other.
    pub fn of(low: f64, high: f64) -> Span {
        Span { low, high }
    }

    /// Returns the least and the most of some; `None` of none.
    pub fn over(values: impl IntoIterator<Item = f64>) -> Option<Span> {
        let joined = |span: Option<Span>, value: f64| {
            let span = span.unwrap_or(Span::at(value));
            Some(Span { low: span.low.min(value), high: span.high.max(value) })
        };
        values.into_iter().fold(None, joined)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.low))?;
        if self.low != self.high { write!(f, " to {}", shown(self.high)) } else { Ok(()) }
    }
}

/// Writes a figure for people.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size > 0.0 && size < 0.1 => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    name: String,
    ours: Vec<Option<f64>>,
    published: Vec<Option<f64>>,
}

/// Series of figures over the same columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    title: String,
    y_label: String,
    x_label: String,
    columns: Vec<String>,
    lines: Vec<Line>,
}

impl Table {
    /// Makes an empty one of a subject ("WebVM").
    ///
    /// The labels are name and unit of its figures ("Read hit ratio (%)"), and of its columns.
    pub fn new(
        title: impl Into<String>,
        y_label: impl Into<String>,
        x_label: impl Into<String>,
        columns: impl IntoIterator<Item = impl ToString>,
    ) -> Table {
        let columns = columns.into_iter().map(|column| column.to_string()).collect();
        Table { title: title.into(), y_label: y_label.into(), x_label: x_label.into(), columns, lines: Vec::new() }
    }

    /// Adds a series of ours, a figure or none a column.
    pub fn push(&mut self, name: impl Into<String>, ours: impl IntoIterator<Item = Option<f64>>) {
        let mut ours: Vec<Option<f64>> = ours.into_iter().collect();
        ours.resize(self.columns.len(), None);
        self.lines.push(Line { name: name.into(), ours, published: vec![None; self.columns.len()] });
    }

    /// Adds the paper's figure at a place of the table.
    ///
    /// It ignores a missing place: a trace or a size may have been left out.
    pub fn publish(&mut self, name: &str, column: &str, value: f64) {
        let at = self.columns.iter().position(|other| other == column);
        let line = self.lines.iter_mut().find(|line| line.name == name);
        if let Some(cell) = at.zip(line).and_then(|(at, line)| line.published.get_mut(at)) {
            *cell = Some(value);
        }
    }

    /// Returns its subject.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns name and unit of its figures.
    pub fn label(&self) -> &str {
        &self.y_label
    }

    /// Returns our figures of a series, by its name.
    pub fn ours(&self, name: &str) -> Option<&[Option<f64>]> {
        self.lines.iter().find(|line| line.name == name).map(|line| line.ours.as_slice())
    }

    /// Draws its figures as lines along the columns, whose names are numbers, perhaps with a unit
    /// behind.
    pub fn lines(&self, title: impl Into<String>, subtitle: impl Into<String>, x: Scale, y: Scale) -> Chart {
        let number = |column: &String| {
            let digits = column.trim_end_matches(|char: char| !char.is_ascii_digit());
            digits.parse().unwrap_or(f64::NAN)
        };
        let at: Vec<f64> = self.columns.iter().map(number).collect();
        self.chart(title.into(), subtitle.into(), y, ChartKind::Lines { x }, &at)
    }

    /// Draws its figures as bars, a group for each column.
    pub fn bars(&self, title: impl Into<String>, subtitle: impl Into<String>, y: Scale) -> Chart {
        let at: Vec<f64> = (0..self.columns.len()).map(|at| at as f64).collect();
        self.chart(title.into(), subtitle.into(), y, ChartKind::Bars(self.columns.clone()), &at)
    }

    fn chart(&self, title: String, subtitle: String, y: Scale, kind: ChartKind, at: &[f64]) -> Chart {
        let points = |values: &[Option<f64>]| {
            let some = at.iter().zip(values).filter_map(|(x, y)| Some((*x, (*y)?)));
            some.collect::<Vec<(f64, f64)>>()
        };
        let mut series = Vec::new();
        for line in &self.lines {
            let Line { name, ours, published } = line;
            series.push(Series { name: name.clone(), points: points(ours), role: Role::Measured });
            let published = points(published);
            if !published.is_empty() {
                // The paper's figures are of its own trace, for any stand-in here ("mine as
                // WebVM").
                let name = name.rsplit(" as ").next().unwrap_or(name);
                series.push(Series { name: format!("{name}, the paper's"), points: published, role: Role::Published });
            }
        }
        let (x_label, y_label) = (self.x_label.clone(), self.y_label.clone());
        Chart { title, subtitle, x_label, y_label, y, kind, series }
    }

    fn has_published(&self) -> bool {
        self.lines.iter().any(|line| line.published.iter().any(Option::is_some))
    }

    /// Writes it for people: the columns' names, and a line a series.
    ///
    /// The paper's figures stand in brackets behind ours.
    fn text(&self) -> String {
        let cell = |ours: &Option<f64>, published: &Option<f64>| {
            let ours = ours.map_or("-".to_owned(), shown);
            published.map_or(ours.clone(), |published| format!("{ours} [{}]", shown(published)))
        };
        let cells: Vec<Vec<String>> = self
            .lines
            .iter()
            .map(|line| line.ours.iter().zip(&line.published).map(|(ours, paper)| cell(ours, paper)).collect())
            .collect();
        let names = self.lines.iter().map(|line| line.name.chars().count());
        let first = names.max().unwrap_or(0).max(self.x_label.chars().count());
        let width = |at: usize| {
            let column = self.columns.get(at).map_or(0, |column| column.chars().count());
            cells.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).fold(column, usize::max)
        };
        let row = |name: &str, cells: &[String]| {
            let cells = cells.iter().enumerate().map(|(at, cell)| format!("  {cell:>0$}", width(at)));
            format!("  {name:<first$}{}\n", cells.collect::<String>())
        };
        let note = if self.has_published() { "; in brackets the paper's" } else { "" };
        let mut text = format!("{}: {}{note}\n", self.title, self.y_label);
        text.push_str(&row(&self.x_label, &self.columns));
        for (line, cells) in self.lines.iter().zip(&cells) {
            text.push_str(&row(&line.name, cells));
        }
        text
    }

    fn json(&self) -> Value {
        let series = self
            .lines
            .iter()
            .map(|Line { name, ours, published }| json!({ "name": name, "ours": ours, "published": published }));
        json!({
            "title": self.title,
            "figure": self.y_label,
            "columns_are": self.x_label,
            "columns": self.columns,
            "series": series.collect::<Vec<Value>>(),
        })
    }
}

/// A claim of the paper's text on several figures together, and our finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The subject, with its unit.
    pub what: String,
    /// The figure in the paper's text.
    pub published: Span,
    /// The figure of our tables; `None` if its traces were not replayed.
    pub ours: Option<Span>,
}

/// The result of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PaperReport {
    /// Our figures, with the published ones of single points.
    pub tables: Vec<Table>,
    /// The text's claims on several figures.
    pub comparisons: Vec<Comparison>,
    /// Words on the differences and their reasons, and on our own choices: a sentence or a few
    /// each.
    pub words: Vec<String>,
    /// Charts for a talk.
    pub charts: Vec<Chart>,
}

impl PaperReport {
    /// Writes it for people. `traces` are names of traces with their real sources.
    pub fn text(&self, heading: &Heading, traces: &[(&str, &str)]) -> String {
        let Heading { name, paper, figure, about } = heading;
        let mut text = format!("{name}: {paper}, {figure}: {about}\n");
        for (name, about) in traces {
            text.push_str(&format!("  {name}: {about}\n"));
        }
        for table in &self.tables {
            text.push_str(&format!("\n{}", table.text()));
        }
        if !self.comparisons.is_empty() {
            text.push_str(&format!("\nThe text says\n{}", self.comparisons_text()));
        }
        for words in &self.words {
            text.push_str(&format!("\n{}\n", wrapped(words)));
        }
        text
    }

    fn comparisons_text(&self) -> String {
        let rows: Vec<[String; 3]> = std::iter::once(["".to_owned(), "the paper".to_owned(), "ours".to_owned()])
            .chain(self.comparisons.iter().map(|Comparison { what, published, ours }| {
                [what.clone(), published.to_string(), ours.map_or("-".to_owned(), |ours| ours.to_string())]
            }))
            .collect();
        let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        let [first, second, third] = [0, 1, 2].map(|at| width(at).unwrap_or(0));
        let line =
            |[what, published, ours]: &[String; 3]| format!("  {what:<first$}  {published:>second$}  {ours:>third$}\n");
        rows.iter().map(line).collect()
    }

    /// Writes it for programs.
    pub fn json(&self, heading: &Heading, traces: &[(&str, &str)]) -> Value {
        let span = |span: &Span| json!({ "low": span.low, "high": span.high });
        let comparisons = self.comparisons.iter().map(|Comparison { what, published, ours }| {
            json!({ "what": what, "published": span(published), "ours": ours.as_ref().map(span) })
        });
        json!({
            "experiment": heading.name,
            "paper": heading.paper,
            "figure": heading.figure,
            "about": heading.about,
            "traces": traces.iter().map(|(name, about)| json!({ "name": name, "about": about })).collect::<Vec<_>>(),
            "tables": self.tables.iter().map(Table::json).collect::<Vec<_>>(),
            "comparisons": comparisons.collect::<Vec<_>>(),
            "words": self.words,
        })
    }

    /// Writes a line for each figure of a table, and for each comparison.
    ///
    /// A single figure is in the low columns and the high ones.
    pub fn csv(&self) -> String {
        let mut text = "table,figure,series,column,ours_low,ours_high,published_low,published_high\n".to_owned();
        let mut line = |names: [&str; 4], ours: Option<Span>, published: Option<Span>| {
            let numbers = [ours, published].map(|span| match span {
                Some(Span { low, high }) => format!("{low},{high}"),
                None => ",".to_owned(),
            });
            let names = names.map(|name| csv_cell(Some(&Value::from(name))));
            text.push_str(&format!("{},{}\n", names.join(","), numbers.join(",")));
        };
        for table in &self.tables {
            for series in &table.lines {
                for ((column, ours), published) in table.columns.iter().zip(&series.ours).zip(&series.published) {
                    let names = [table.title.as_str(), table.y_label.as_str(), series.name.as_str(), column.as_str()];
                    line(names, ours.map(Span::at), published.map(Span::at));
                }
            }
        }
        for Comparison { what, published, ours } in &self.comparisons {
            line(["", what.as_str(), "", ""], *ours, Some(*published));
        }
        text
    }
}

/// Breaks words into lines of at most 110 characters.
fn wrapped(words: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 110 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;

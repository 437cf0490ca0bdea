//! The rows of the report: measured values, aims, and the verdict.
//!
//! Invariants: a row's value is in the unit of its text, in the table and in the JSON alike.
//!
//! It does not measure, or judge by anything but the number.

use crate::measure::Res;
use serde_json::{Value, json};
use std::path::Path;

/// The aim of a value.
#[derive(Clone, Copy)]
pub enum Aim {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// One figure.
pub struct Row {
    id: String,
    what: String,
    /// `None` if there is no measurement; `what` has the reason.
    value: Option<f64>,
    aim: Option<Aim>,
}

impl Row {
    /// Makes a figure with an aim.
    pub fn aimed(id: &str, what: impl Into<String>, value: f64, aim: Aim) -> Row {
        Row { id: id.into(), what: what.into(), value: Some(value), aim: Some(aim) }
    }

    /// Makes a figure without an aim.
    pub fn told(id: &str, what: impl Into<String>, value: f64) -> Row {
        Row { id: id.into(), what: what.into(), value: Some(value), aim: None }
    }

    /// Makes a row without a figure, and with the reason.
    pub fn without_value(id: &str, what: &str) -> Row {
        Row { id: id.into(), what: what.into(), value: None, aim: None }
    }

    fn met(&self) -> Option<bool> {
        let value = self.value?;
        Some(match self.aim? {
            Aim::AtLeast(least) => value >= least,
            Aim::AtMost(most) => value <= most,
        })
    }

    fn aim_text(&self) -> Option<String> {
        Some(match self.aim? {
            Aim::AtLeast(least) => format!(">= {}", number(least)),
            Aim::AtMost(most) => format!("<= {}", number(most)),
        })
    }

    fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "what": self.what,
            "value": self.value,
            "aim": self.aim_text(),
            "met": self.met(),
        })
    }
}

/// Formats a number for people: grouped thousands above 1000, else up to three decimals.
fn number(value: f64) -> String {
    if value.abs() < 1000.0 {
        let text = format!("{value:.3}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Prints the table, and the number of aims that are met.
pub fn print_table(rows: &[Row]) {
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            let met = match row.met() {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "-",
            };
            [
                row.id.clone(),
                row.what.clone(),
                row.value.map_or("-".into(), number),
                row.aim_text().unwrap_or("-".into()),
                met.into(),
            ]
        })
        .collect();
    let head = ["id", "what", "value", "aim", "met"].map(String::from);
    let width = |column: usize| {
        let all = cells.iter().chain([&head]);
        all.filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2), width(3), width(4)];
    for [id, what, value, aim, met] in [&head].into_iter().chain(&cells) {
        let [w0, w1, w2, w3, w4] = widths;
        println!("{id:<w0$}  {what:<w1$}  {value:>w2$}  {aim:>w3$}  {met:>w4$}");
    }
    let aims = rows.iter().filter_map(Row::met);
    let (met, all) = aims.fold((0, 0), |(met, all), one| (met + u32::from(one), all + 1));
    println!("\n{met} of {all} aims met.");
}

/// Writes the rows as a JSON list.
pub fn write_json(rows: &[Row], path: &Path) -> Res<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let list = Value::Array(rows.iter().map(Row::to_json).collect());
    std::fs::write(path, format!("{list:#}\n"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(number(1_234_567.8), "1,234,568");
        assert_eq!(number(0.5), "0.5");
        assert_eq!(number(0.9701), "0.97");
        assert_eq!(number(-1234.0), "-1,234");
        assert_eq!(number(12.0), "12");
    }

    #[test]
    fn aims_are_judged_by_the_number() {
        assert_eq!(Row::aimed("a", "x", 0.5, Aim::AtLeast(0.5)).met(), Some(true));
        assert_eq!(Row::aimed("a", "x", 1.31, Aim::AtMost(1.3)).met(), Some(false));
        assert_eq!(Row::told("a", "x", 1.0).met(), None);
        let json = Row::aimed("a", "x", 2.0, Aim::AtLeast(1.0)).to_json();
        assert_eq!(json["aim"], ">= 1");
        assert_eq!((&json["value"], &json["met"]), (&2.0.into(), &true.into()));
    }
}

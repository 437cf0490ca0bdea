//! An axis with ticks at round numbers, 1, 2 or 5 times a power of ten, or at the measured ones.
//!
//! Invariants: an axis has a length, even if all values are one.
//!
//! It does not draw.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::series::Scale;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
    /// The places of ticks; empty if the axis chooses them.
    marks: Vec<f64>,
}

/// Marks at most.
const MARKS_MAX: usize = 9;
/// Share of the axis between two marks at least, for the room that their numbers take.
const MARKS_APART: f64 = 0.045;

impl Axis {
    /// Makes an axis for values from `low` to `high`, with a little room above.
    ///
    /// A linear one has 0 on it: it begins there, or below if a value is negative.
    pub fn over(low: f64, high: f64, scale: Scale) -> Axis {
        match scale {
            Scale::Log => Axis { low: low * 0.8, high: high * 1.25, scale, marks: Vec::new() },
            Scale::Linear => {
                let (low, high) = (low.min(0.0), high.max(0.0));
                let span = if high > low { high - low } else { 1.0 };
                let from = if low < 0.0 { low - 0.08 * span } else { 0.0 };
                Axis { low: from, high: high + 0.08 * span, scale, marks: Vec::new() }
            }
        }
    }

    /// Makes an axis for values from `low` to `high`, with a little room on both sides.
    pub fn around(low: f64, high: f64, scale: Scale) -> Axis {
        match scale {
            Scale::Log => {
                let room = (high / low).powf(0.04).max(1.05);
                Axis { low: low / room, high: high * room, scale, marks: Vec::new() }
            }
            Scale::Linear => {
                let room = if high > low { 0.04 * (high - low) } else { high.abs().max(1.0) * 0.5 };
                let from = if low >= 0.0 { (low - room).max(0.0) } else { low - room };
                Axis { low: from, high: high + room, scale, marks: Vec::new() }
            }
        }
    }

    /// Puts its ticks at these numbers, if they are few, short, and not too close to each other.
    pub fn marked(mut self, mut values: Vec<f64>) -> Axis {
        values.sort_by(f64::total_cmp);
        values.dedup();
        let is_short = |value: &f64| (value * 10.0).fract() == 0.0 && (0.0..10_000.0).contains(value);
        let is_apart = |pair: &[f64]| self.share(pair[1]) - self.share(pair[0]) >= MARKS_APART;
        let fits = (2..=MARKS_MAX).contains(&values.len()) && values.iter().all(is_short);
        if fits && values.windows(2).all(is_apart) {
            self.marks = values;
        }
        self
    }

    /// Returns the lowest number on it.
    pub fn low(&self) -> f64 {
        self.low
    }

    fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    fn ticks(&self, most: usize) -> Vec<f64> {
        if !self.marks.is_empty() {
            return self.marks.clone();
        }
        let most = most.clamp(2, 12);
        if self.scale == Scale::Log {
            for factors in [&[1.0, 2.0, 5.0][..], &[1.0], &[]] {
                let ticks = self.log_ticks(factors);
                if ticks.len() >= 2 && ticks.len() <= most {
                    return ticks;
                }
            }
            // Less than a decade with two ticks, or very many decades.
            let decades = (self.high / self.low).log10();
            if decades < 1.0 {
                return linear_ticks(self.low, self.high, most);
            }
            let stride = (decades / most as f64).ceil() as usize;
            return self.log_ticks(&[1.0]).into_iter().step_by(stride.max(1)).collect();
        }
        linear_ticks(self.low, self.high, most)
    }

    fn log_ticks(&self, factors: &[f64]) -> Vec<f64> {
        let (from, to) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let all = (from..=to).flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

fn linear_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let rough = (high - low) / most as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step - 1e-9).ceil();
    (0..=most).map(|at| (first + at as f64) * step).take_while(|tick| *tick <= high + step * 1e-9).collect()
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let length = f64::from(limit.1 - limit.0);
        limit.0 + (self.share(*value) * length).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        self.ticks(hint.bold_points())
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// Writes a number on an axis.
pub fn tick(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        size if size >= 9.999e8 => (value / 1e9, "G"),
        size if size >= 9.999e5 => (value / 1e6, "M"),
        size if size >= 9.999e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.4}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{}{suffix}", if text == "-0" { "0" } else { text })
}

/// Writes a number at a bar, to about three digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 9_999.5 => {
            tick((value / 10f64.powf(size.log10().floor() - 2.0)).round() * 10f64.powf(size.log10().floor() - 2.0))
        }
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => tick((value * 100.0).round() / 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: Axis, most: usize) -> Vec<String> {
        axis.ticks(most).into_iter().map(tick).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(
            ticks(Axis::over(3.0, 94.0, Scale::Linear), 11),
            ["0", "10", "20", "30", "40", "50", "60", "70", "80", "90", "100"]
        );
        assert_eq!(ticks(Axis::around(97.0, 99.0, Scale::Linear), 6), ["97", "97.5", "98", "98.5", "99"]);
        assert_eq!(ticks(Axis::around(8.0, 1024.0, Scale::Log), 10), ["10", "20", "50", "100", "200", "500", "1000"]);
        assert_eq!(
            ticks(Axis::around(1.0, 1e9, Scale::Log), 11),
            ["1", "10", "100", "1000", "10k", "100k", "1M", "10M", "100M", "1G"]
        );
        assert!(ticks(Axis::around(100.0, 120.0, Scale::Log), 8).len() >= 2);
    }

    #[test]
    fn ticks_are_where_was_measured_if_that_is_readable() {
        let marked = |values: &[f64], scale| ticks(Axis::around(values[0], 64.0, scale).marked(values.to_vec()), 6);
        assert_eq!(marked(&[8.0, 16.0, 32.0, 64.0], Scale::Log), ["8", "16", "32", "64"]);
        assert_eq!(marked(&[12.5, 64.0, 12.5], Scale::Linear), ["12.5", "64"]);
        let usual = ticks(Axis::around(8.0, 64.0, Scale::Linear), 6);
        for odd in [
            &[8.0, 8.5, 64.0][..],
            &[8.0, 8.333, 64.0],
            &[8.0],
            &[8.0, 14.0, 20.0, 26.0, 32.0, 38.0, 44.0, 50.0, 56.0, 64.0],
        ] {
            assert_eq!(marked(odd, Scale::Linear), usual, "{odd:?}");
        }
    }

    #[test]
    fn an_axis_of_amounts_has_zero_on_it() {
        for (low, high) in [(97.0, 99.0), (1_900.0, 2_600.0), (3.0, 94.0), (5.0, 5.0), (0.0, 0.0), (1e-9, 2e-9)] {
            assert_eq!(Axis::over(low, high, Scale::Linear).low(), 0.0, "{low} to {high}");
        }
        let below = Axis::over(-50.0, -40.0, Scale::Linear);
        assert!(below.low() < -50.0 && below.range().contains(&0.0), "{below:?}");
        assert!(Axis::over(40.0, 50.0, Scale::Log).low() > 30.0, "a logarithmic one has no 0");
    }

    #[test]
    fn an_axis_of_one_value_has_a_length() {
        for value in [0.0, 1.0, -5.0, 1e9] {
            for axis in [Axis::over(value, value, Scale::Linear), Axis::around(value, value, Scale::Linear)] {
                assert!(axis.low < axis.high && axis.ticks(5).len() >= 2, "{axis:?}");
                assert!((axis.low..=axis.high).contains(&value), "{axis:?}");
            }
        }
        let axis = Axis::around(64.0, 64.0, Scale::Log);
        assert_eq!(axis.map(&64.0, (0, 100)), 50);
        assert_eq!(Axis::around(1.0, 100.0, Scale::Log).map(&10.0, (0, 1000)), 500);
        assert_eq!(Axis::over(0.0, 100.0, Scale::Linear).map(&0.0, (300, 0)), 300, "upside down");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 2.5, 20_000.0, 1e6, 2.5e9, -0.0].map(tick), ["0", "2.5", "20k", "1M", "2.5G", "0"]);
        assert_eq!([0.123, 5.678, 42.36, 765.4, 123_456.0].map(number), ["0.12", "5.68", "42.4", "765", "123k"]);
    }
}

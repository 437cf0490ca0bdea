//! Series of points, the steps of axes, and the colours of lines that are not data.
//!
//! It does not draw.

use plotters::prelude::RGBColor;

pub(super) const INK: RGBColor = RGBColor(34, 34, 34);

pub(super) const GRID: RGBColor = RGBColor(225, 225, 225);

/// The steps of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal differences.
    #[default]
    Linear,
    /// Equal steps are equal factors.
    Log,
}

/// The role of the points of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Measured: a line with markers, or bars.
    #[default]
    Measured,
    /// Measured, and the subject of the chart: its line is thick and dark, over all others.
    Subject,
    /// One figure for the whole horizontal axis: a line without markers, from the first point to
    /// the last.
    Level,
    /// Something to compare with, such as a bound: drawn dashed and dark, in bar charts as a line
    /// across.
    Reference,
    /// Published single figures for the series before this one: hollow markers or bars, and no
    /// line.
    ///
    /// The points between them are unknown.
    Published,
}

/// Points that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Points, by `x` but in [paths](super::ChartKind::Paths).
    pub points: Vec<(f64, f64)>,
    /// Their role, which decides how they are drawn.
    pub role: Role,
}

impl Series {
    /// Returns the width of its line.
    pub(super) fn line_px(&self) -> u32 {
        if self.role == Role::Subject { 5 } else { 2 }
    }

    /// Returns whether each of its points has a marker in charts of lines.
    pub(super) fn has_markers(&self) -> bool {
        matches!(self.role, Role::Measured | Role::Published | Role::Subject)
    }
}

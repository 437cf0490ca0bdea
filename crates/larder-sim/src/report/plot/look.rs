//! The look of a series: a colour and a marker. Colours are those of Okabe and Ito.
//!
//! Invariants: a series of published figures has the colour and the marker of the one before it,
//! hollow.
//!
//! It does not draw lines.

use plotters::prelude::*;

use super::series::{GRID, INK, Role, Series};

const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 60),
    RGBColor(110, 110, 110),
];

/// Corners of the markers, in pixels around their middle.
const SHAPES: [&[(i32, i32)]; 5] = [
    &[(-5, -2), (-2, -5), (2, -5), (5, -2), (5, 2), (2, 5), (-2, 5), (-5, 2)],
    &[(0, -6), (6, 5), (-6, 5)],
    &[(-5, -5), (5, -5), (5, 5), (-5, 5)],
    &[(0, -7), (6, 0), (0, 7), (-6, 0)],
    &[(-6, -5), (6, -5), (0, 6)],
];

/// See the module.
#[derive(Clone, Copy)]
pub struct PlotLook {
    /// The colour of lines, bars and markers.
    pub colour: RGBColor,
    shape: usize,
    is_hollow: bool,
}

/// Returns the look of each series; references and subjects take none of the colours.
pub fn looks(series: &[Series]) -> Vec<PlotLook> {
    let mut next = 0;
    let of = |series: &Series| {
        match series.role {
            Role::Reference | Role::Subject => return PlotLook { colour: INK, shape: 0, is_hollow: false },
            // It has the look of the series before it.
            Role::Published => {}
            Role::Measured | Role::Level => next += 1,
        }
        let at: usize = if next == 0 { 0 } else { next - 1 };
        // When colours come round, shapes have moved on.
        let shape = (at + at / COLOURS.len()) % SHAPES.len();
        let colour = COLOURS.get(at % COLOURS.len()).copied().unwrap_or(GRID);
        PlotLook { colour, shape, is_hollow: series.role == Role::Published }
    };
    series.iter().map(of).collect()
}

impl PlotLook {
    /// Returns the style inside a marker or bar.
    pub fn filling(&self) -> ShapeStyle {
        if self.is_hollow { WHITE.filled() } else { self.colour.filled() }
    }

    /// Returns the style of its border.
    pub fn border(&self) -> ShapeStyle {
        self.colour.stroke_width(if self.is_hollow { 2 } else { 1 })
    }

    /// Draws the inside of a marker.
    pub fn marker(&self) -> Polygon<(i32, i32)> {
        Polygon::new(self.corners().to_vec(), self.filling())
    }

    /// Draws the line around it.
    pub fn outline(&self) -> PathElement<(i32, i32)> {
        let corners = self.corners();
        let round: Vec<(i32, i32)> = corners.iter().chain(corners.first()).copied().collect();
        PathElement::new(round, self.border())
    }

    fn corners(&self) -> &'static [(i32, i32)] {
        SHAPES.get(self.shape).copied().unwrap_or_default()
    }
}

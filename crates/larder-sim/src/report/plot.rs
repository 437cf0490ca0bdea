//! Charts as SVG: lines over a linear or logarithmic axis, or groups of bars, with axes, units, grid and legend.
//!
//! Colours are those of Okabe and Ito, which people with any colour vision tell apart; markers differ, too. Text is in the
//! viewer's own sans-serif.
//!
//! Invariants: what is plotted is finite; on a logarithmic axis it is above 0. Other points are left out.
//!
//! What it does not do: choose what to show.

mod axis;

use axis::Axis;
use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

/// Size of a chart in pixels.
const SIZE: (u32, u32) = (1000, 580);
/// Size of each of several charts.
const PANEL_SIZE: (u32, u32) = (760, 480);
/// Charts side by side at most.
const PANELS_ACROSS_MAX: usize = 3;
/// Pixels of a line of the legend.
const LEGEND_LINE: i32 = 24;
/// Characters of the legend's widest line at most; longer names are cut.
const LEGEND_CHARS_MAX: usize = 34;
/// Lines under a group of bars at most.
const CATEGORY_LINES: usize = 4;

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
const INK: RGBColor = RGBColor(34, 34, 34);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// How an axis counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal differences.
    #[default]
    Linear,
    /// Equal steps are equal factors.
    Log,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A line with markers for each series.
    Lines {
        /// How the horizontal axis counts.
        x: Scale,
    },
    /// A group of bars for each of these; point `(i, y)` of a series belongs to the `i`-th.
    Bars(Vec<String>),
}

/// Points that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// Points, by `x`.
    pub points: Vec<(f64, f64)>,
    /// Something to compare with, such as a bound: drawn dashed and dark, in bar charts as a line across.
    pub is_reference: bool,
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What is shown.
    pub title: String,
    /// Of what, in smaller letters; may be empty.
    pub subtitle: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// How the vertical axis counts. A linear one begins at 0 where that wastes little.
    pub y: Scale,
    /// What is drawn.
    pub kind: Kind,
    /// What is plotted.
    pub series: Vec<Series>,
}

/// Charts as one SVG document, side by side and below one another, in their order.
///
/// # Errors
/// A sentence: nothing to plot in one of them, or none at all.
pub fn svg(charts: &[Chart]) -> Result<String, String> {
    let charts: Vec<Chart> = charts.iter().map(Chart::checked).collect::<Result<_, String>>()?;
    if charts.is_empty() {
        return Err("there is nothing to plot".to_owned());
    }
    let across = if charts.len() == 4 { 2 } else { charts.len().min(PANELS_ACROSS_MAX) };
    let down = charts.len().div_ceil(across);
    let (width, height) = if charts.len() == 1 { SIZE } else { PANEL_SIZE };
    let mut svg = String::new();
    {
        let size = (width * across as u32, height * down as u32);
        let whole = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn =
            charts.iter().zip(whole.split_evenly((down, across))).try_for_each(|(chart, area)| chart.draw(area));
        drawn.and_then(|()| whole.present()).map_err(|error| format!("the chart cannot be drawn: {error}"))?;
    }
    Ok(svg)
}

impl Chart {
    /// The chart as an SVG document.
    ///
    /// # Errors
    /// A sentence: nothing to plot.
    pub fn svg(&self) -> Result<String, String> {
        svg(std::slice::from_ref(self))
    }

    fn checked(&self) -> Result<Chart, String> {
        let chart = self.without_oddities();
        match chart.series.iter().all(|series| series.points.is_empty()) {
            true => Err(format!("there is nothing to plot: no replay has a figure for {:?}", self.y_label)),
            false => Ok(chart),
        }
    }

    fn without_oddities(&self) -> Chart {
        let mut chart = self.clone();
        let x_scale = self.x_scale();
        for series in &mut chart.series {
            let fits = |value: f64, scale| value.is_finite() && (scale == Scale::Linear || value > 0.0);
            series.points.retain(|(x, y)| fits(*x, x_scale) && fits(*y, self.y));
            if !matches!(self.kind, Kind::Bars(_)) {
                series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
            }
        }
        chart
    }

    fn x_scale(&self) -> Scale {
        match self.kind {
            Kind::Lines { x } => x,
            Kind::Bars(_) => Scale::Linear,
        }
    }

    fn values(&self, of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let all = self.series.iter().flat_map(|series| &series.points).map(of);
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    }

    fn draw(&self, root: DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), DrawingError> {
        root.fill(&WHITE)?;
        let (width, _) = root.dim_in_pixel();
        root.draw(&Text::new(cut(&self.title, 80), (24, 16), font(24).style(FontStyle::Bold).color(&INK)))?;
        root.draw(&Text::new(cut(&self.subtitle, 130), (24, 48), font(15).color(&INK.mix(0.75))))?;
        let body = root.margin(78, 14, 14, 14);
        let widest = self.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        let legend_width = 64 + 7 * widest.min(LEGEND_CHARS_MAX) as i32;
        let (chart, legend) = body.split_horizontally(width as i32 - 28 - legend_width);
        match &self.kind {
            Kind::Lines { x } => self.lines(&chart, *x)?,
            Kind::Bars(categories) => self.bars(&chart, categories)?,
        }
        self.legend(&legend)
    }

    fn y_axis(&self) -> Axis {
        let (low, high) = self.values(|point| point.1);
        match matches!(self.kind, Kind::Bars(_)) && self.y == Scale::Linear {
            // A bar is as long as its number is large.
            true => Axis::over(low.min(0.0), high, self.y),
            false => Axis::over(low, high, self.y),
        }
    }

    fn lines(&self, area: &Area<'_>, x: Scale) -> Result<(), DrawingError> {
        let (low, high) = self.values(|point| point.0);
        let at = self.series.iter().flat_map(|series| series.points.iter().map(|point| point.0)).collect();
        let mut chart = ChartBuilder::on(area)
            .x_label_area_size(56)
            .y_label_area_size(72)
            .build_cartesian_2d(Axis::around(low, high, x).marked(at), self.y_axis())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(font(14).color(&INK))
            .axis_desc_style(font(16).color(&INK))
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .x_label_formatter(&|value| axis::tick(*value))
            .y_label_formatter(&|value| axis::tick(*value))
            .draw()?;
        for (series, look) in self.series.iter().zip(self.looks()) {
            if series.is_reference {
                let dashed = DashedLineSeries::new(series.points.iter().copied(), 8, 5, look.colour.stroke_width(2));
                chart.draw_series(dashed)?;
            } else {
                chart.draw_series(LineSeries::new(series.points.iter().copied(), look.colour.stroke_width(2)))?;
                chart.draw_series(series.points.iter().map(|&(x, y)| EmptyElement::at((x, y)) + look.marker()))?;
            }
        }
        Ok(())
    }

    fn bars(&self, area: &Area<'_>, categories: &[String]) -> Result<(), DrawingError> {
        let span = -0.5..categories.len() as f64 - 0.5;
        let lines = categories.iter().map(|name| name.split(':').count()).max().unwrap_or(1).clamp(2, CATEGORY_LINES);
        let mut chart = ChartBuilder::on(area)
            .x_label_area_size(26 + 15 * lines as i32)
            .y_label_area_size(72)
            .build_cartesian_2d(RangedCoordf64::from(span.clone()), self.y_axis())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(font(14).color(&INK))
            .axis_desc_style(font(16).color(&INK))
            .y_desc(&self.y_label)
            .y_label_formatter(&|value| axis::tick(*value))
            .draw()?;
        let plain = self.series.iter().filter(|series| !series.is_reference).count().max(1);
        let bar = 0.76 / plain as f64;
        // What is negative hangs down from 0.
        let floor = self.y_axis().low();
        let floor = if self.y == Scale::Linear { floor.max(0.0) } else { floor };
        if floor > self.y_axis().low() {
            chart.draw_series(LineSeries::new([(span.start, floor), (span.end, floor)], INK))?;
        }
        let mut at = 0;
        for (series, look) in self.series.iter().zip(self.looks()) {
            if series.is_reference {
                for &(x, y) in &series.points {
                    let across = [(x - 0.45, y), (x + 0.45, y)];
                    chart.draw_series(DashedLineSeries::new(across, 8, 5, look.colour.stroke_width(2)))?;
                }
                continue;
            }
            let left = -0.38 + bar * f64::from(at);
            at += 1;
            let number = font(if plain > 4 { 10 } else { 13 }).color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom));
            for &(x, y) in &series.points {
                let corners = [(x + left + 0.04 * bar, floor), (x + left + 0.96 * bar, y)];
                chart.draw_series([Rectangle::new(corners, look.colour.filled())])?;
                let top =
                    EmptyElement::at((x + left + 0.5 * bar, y)) + Text::new(axis::number(y), (0, -3), number.clone());
                chart.draw_series([top])?;
            }
        }
        self.category_labels(area, &chart, categories)
    }

    /// Names under the groups, and the axis' own name under those.
    fn category_labels(
        &self,
        area: &Area<'_>,
        chart: &ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Axis>>,
        categories: &[String],
    ) -> Result<(), DrawingError> {
        let (left, top) = area.get_base_pixel();
        let (width, height) = area.dim_in_pixel();
        let room = (width as usize - 72) / categories.len().max(1) / 8;
        let style = font(14).color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
        for (at, name) in categories.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(at as f64, self.y_axis().low()));
            // Options have lines of their own, as far as there is room.
            for (line, piece) in name.split(':').take(CATEGORY_LINES).enumerate() {
                let below = y - top + 7 + 15 * line as i32;
                area.draw(&Text::new(cut(piece, room.max(3)), (x - left, below), style.clone()))?;
            }
        }
        let middle = ((width as i32 + 72) / 2, height as i32 - 8);
        area.draw(&Text::new(
            self.x_label.clone(),
            middle,
            font(16).color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom)),
        ))
    }

    fn legend(&self, area: &Area<'_>) -> Result<(), DrawingError> {
        let is_bars = matches!(self.kind, Kind::Bars(_));
        for (line, (series, look)) in self.series.iter().zip(self.looks()).enumerate() {
            let y = 14 + LEGEND_LINE * line as i32;
            if is_bars && !series.is_reference {
                area.draw(&Rectangle::new([(14, y - 7), (42, y + 7)], look.colour.filled()))?;
            } else if series.is_reference {
                for from in [12, 24, 36] {
                    area.draw(&PathElement::new([(from, y), (from + 8, y)], look.colour.stroke_width(2)))?;
                }
            } else {
                area.draw(&PathElement::new([(12, y), (44, y)], look.colour.stroke_width(2)))?;
                area.draw(&(EmptyElement::at((28, y)) + look.marker()))?;
            }
            let style = font(14).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(cut(&series.name, LEGEND_CHARS_MAX), (52, y), style))?;
        }
        Ok(())
    }

    /// Colour and marker of each series; references take none of the colours.
    fn looks(&self) -> impl Iterator<Item = Look> {
        let mut next = 0;
        let looks: Vec<Look> = self
            .series
            .iter()
            .map(|series| {
                if series.is_reference {
                    return Look { colour: INK, shape: 0 };
                }
                next += 1;
                // Where colours come round, shapes have moved on.
                Look { colour: COLOURS[(next - 1) % COLOURS.len()], shape: (next - 1 + (next - 1) / COLOURS.len()) % 5 }
            })
            .collect();
        looks.into_iter()
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawingError = DrawingAreaErrorKind<std::io::Error>;

fn font(size: i32) -> FontDesc<'static> {
    ("sans-serif", size).into_font()
}

/// A text of at most so many characters.
fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// How a series looks.
#[derive(Clone, Copy)]
struct Look {
    colour: RGBColor,
    shape: usize,
}

impl Look {
    fn marker(&self) -> Polygon<(i32, i32)> {
        let corners: &[(i32, i32)] = match self.shape {
            0 => &[(-5, -2), (-2, -5), (2, -5), (5, -2), (5, 2), (2, 5), (-2, 5), (-5, 2)],
            1 => &[(0, -6), (6, 5), (-6, 5)],
            2 => &[(-5, -5), (5, -5), (5, 5), (-5, 5)],
            3 => &[(0, -7), (6, 0), (0, 7), (-6, 0)],
            _ => &[(-6, -5), (6, -5), (0, 6)],
        };
        Polygon::new(corners.to_vec(), self.colour.filled())
    }
}

#[cfg(test)]
mod tests;

//! Charts as SVG: lines or groups of bars, with axes, units, grid and legend.
//!
//! An axis of lines is linear or logarithmic. Colours are those of Okabe and Ito, which people with
//! any colour vision tell apart; markers differ, too. Text is in the viewer's own sans-serif.
//!
//! The rule of vertical axes, for lines and bars alike: a linear one begins at 0, or at the lowest
//! negative value; none is cut. Figures that need another range get a logarithmic axis, which has
//! no 0, and which its name announces.
//!
//! Invariants: plotted points are finite; on a logarithmic axis they are above 0. Other points are
//! left out. No name of a series or group is cut: names are broken into lines or numbered, and the
//! picture grows.
//!
//! It leaves the choice of figures to its caller.

mod axis;
mod look;
mod series;
mod words;

use axis::Axis;
use look::looks;
use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use series::{GRID, INK};
pub use series::{Role, Scale, Series};
use words::{CHAR_PX, KEY_LINE_PX, LINE_PX, Labels, broken};

/// Size of a chart in pixels.
const SIZE: (u32, u32) = (1000, 580);
/// Size of each of several charts.
const PANEL_SIZE: (u32, u32) = (760, 480);
/// Charts side by side at most.
const PANELS_ACROSS_MAX: usize = 3;
/// Pixels of a line of the legend.
const LEGEND_LINE: i32 = 24;
/// Characters of the legend's widest line at most; longer names take several.
const LEGEND_CHARS_MAX: usize = 34;
/// Pixels of the heads over a chart.
const HEAD_PX: u32 = 78;
/// Pixels around it.
const MARGIN_PX: u32 = 14;
/// Pixels of the numbers and the name of the vertical axis.
const Y_AXIS_PX: u32 = 72;
/// Size of an axis' name, and the least.
const NAME_PX: u32 = 16;
const NAME_PX_MIN: u32 = 9;
/// The part of a chart's height below its vertical axis.
const NAME_MARGIN_PX: u32 = 60;
/// Pixels of a bar at least, with the gap to the next: its number stands over it.
const BAR_PX_MIN: u32 = 34;

/// The form of a chart.
#[derive(Clone, Debug, PartialEq)]
pub enum ChartKind {
    /// A line with markers for each series.
    Lines {
        /// The steps of the horizontal axis.
        x: Scale,
    },
    /// The same, from point to point in their own order: two figures of each of several caches.
    Paths {
        /// The steps of the horizontal axis.
        x: Scale,
    },
    /// A group of bars for each of these; point `(i, y)` of a series belongs to the `i`-th.
    Bars(Vec<String>),
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The subject.
    pub title: String,
    /// Its setting, in smaller letters; may be empty.
    pub subtitle: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// The steps of the vertical axis.
    pub y: Scale,
    /// The form.
    pub kind: ChartKind,
    /// The plotted series.
    pub series: Vec<Series>,
}

/// Draws charts as one SVG document, side by side and below one another, in their order.
///
/// # Errors
/// A sentence: a chart is empty, or no chart is given.
pub fn svg(charts: &[Chart]) -> Result<String, String> {
    let charts: Vec<Chart> = charts.iter().map(Chart::checked).collect::<Result<_, String>>()?;
    if charts.is_empty() {
        return Err("there is nothing to plot".to_owned());
    }
    let across = if charts.len() == 4 { 2 } else { charts.len().min(PANELS_ACROSS_MAX) };
    let down = charts.len().div_ceil(across);
    let least = if charts.len() == 1 { SIZE } else { PANEL_SIZE };
    let width = charts.iter().map(Chart::width_px).fold(least.0, u32::max);
    let height = charts.iter().map(|chart| chart.height_px(width, least.1)).fold(least.1, u32::max);
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
    /// Draws the chart as an SVG document.
    ///
    /// # Errors
    /// A sentence: the chart is empty.
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
            if matches!(self.kind, ChartKind::Lines { .. }) {
                series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
            }
        }
        chart
    }

    fn x_scale(&self) -> Scale {
        match self.kind {
            ChartKind::Lines { x } | ChartKind::Paths { x } => x,
            ChartKind::Bars(_) => Scale::Linear,
        }
    }

    fn values(&self, of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let all = self.series.iter().flat_map(|series| &series.points).map(of);
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    }

    /// Returns the number of bars of each group.
    fn bars_a_group(&self) -> usize {
        self.series.iter().filter(|series| series.role != Role::Reference).count().max(1)
    }

    fn legend_px(&self) -> u32 {
        let widest = self.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        64 + CHAR_PX * widest.min(LEGEND_CHARS_MAX) as u32
    }

    /// Returns the pixels across at least.
    fn width_px(&self) -> u32 {
        let ChartKind::Bars(names) = &self.kind else { return 0 };
        let bars = BAR_PX_MIN * (names.len() * self.bars_a_group()) as u32;
        let chart = 2 * MARGIN_PX + Y_AXIS_PX + self.legend_px() + bars;
        chart.max(2 * MARGIN_PX + Labels::key_column_px(names))
    }

    /// Returns the pixels down, at this width: `least`, and the key to numbered names.
    ///
    /// A long legend makes it more.
    fn height_px(&self, width: u32, least: u32) -> u32 {
        let lines = |series: &Series| broken(&series.name, LEGEND_CHARS_MAX).len().max(1) as u32;
        let legend: u32 = self.series.iter().map(|series| LEGEND_LINE as u32 + LINE_PX * (lines(series) - 1)).sum();
        let key = self.labels(width).map_or(0, |(names, labels)| labels.key_px(names.len()));
        (least + key).max(HEAD_PX + MARGIN_PX + legend)
    }

    /// Returns the groups' names, and their labels in a picture of this width.
    fn labels(&self, width: u32) -> Option<(&[String], Labels)> {
        let ChartKind::Bars(names) = &self.kind else { return None };
        let body = width.saturating_sub(2 * MARGIN_PX);
        Some((names, Labels::of(names, body.saturating_sub(Y_AXIS_PX + self.legend_px()), body)))
    }

    fn draw(&self, root: DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), DrawingError> {
        root.fill(&WHITE)?;
        let (width, height) = root.dim_in_pixel();
        root.draw(&Text::new(cut(&self.title, 80), (24, 16), font(24).style(FontStyle::Bold).color(&INK)))?;
        root.draw(&Text::new(cut(&self.subtitle, 130), (24, 48), font(15).color(&INK.mix(0.75))))?;
        let body = root.margin(HEAD_PX, MARGIN_PX, MARGIN_PX, MARGIN_PX);
        let across = width.saturating_sub(2 * MARGIN_PX + self.legend_px()) as i32;
        let Some((names, labels)) = self.labels(width) else {
            let (chart, legend) = body.split_horizontally(across);
            self.lines(&chart)?;
            return self.legend(&legend);
        };
        let key_px = labels.key_px(names.len());
        let (body, key) = body.split_vertically(height.saturating_sub(HEAD_PX + MARGIN_PX + key_px) as i32);
        let (chart, legend) = body.split_horizontally(across);
        self.bars(&chart, names, &labels)?;
        if let Labels::Numbered { columns } = labels {
            draw_key(&key, names, columns)?;
        }
        self.legend(&legend)
    }

    fn y_axis(&self) -> Axis {
        let (low, high) = self.values(|point| point.1);
        Axis::over(low, high, self.y)
    }

    /// Returns name and unit of the vertical axis, with a note on a logarithmic one.
    fn y_name(&self) -> String {
        match self.y {
            Scale::Linear => self.y_label.clone(),
            Scale::Log => format!("{}, logarithmic axis", self.y_label),
        }
    }

    /// Returns the size of the axes' names: that of the vertical one must fit its axis.
    fn name_px(&self, area: &Area<'_>) -> i32 {
        let axis_px = area.dim_in_pixel().1.saturating_sub(NAME_MARGIN_PX);
        // A character is about half as wide as high.
        let fitting = axis_px * 2 / (self.y_name().chars().count() as u32).max(1);
        fitting.clamp(NAME_PX_MIN, NAME_PX) as i32
    }

    fn lines(&self, area: &Area<'_>) -> Result<(), DrawingError> {
        let (low, high) = self.values(|point| point.0);
        let at = self.series.iter().flat_map(|series| series.points.iter().map(|point| point.0)).collect();
        let mut chart = ChartBuilder::on(area)
            .x_label_area_size(56)
            .y_label_area_size(Y_AXIS_PX)
            .build_cartesian_2d(Axis::around(low, high, self.x_scale()).marked(at), self.y_axis())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(font(14).color(&INK))
            .axis_desc_style(font(self.name_px(area)).color(&INK))
            .x_desc(&self.x_label)
            .y_desc(self.y_name())
            .x_label_formatter(&|value| axis::tick(*value))
            .y_label_formatter(&|value| axis::tick(*value))
            .draw()?;
        // Published figures come last, with the subject: they are few, and a line would hide them.
        let is_over = |series: &Series| matches!(series.role, Role::Published | Role::Subject);
        let (over, below): (Vec<_>, Vec<_>) =
            self.series.iter().zip(looks(&self.series)).partition(|(series, _)| is_over(series));
        for (series, look) in below.into_iter().chain(over) {
            let points = || series.points.iter().copied();
            match series.role {
                Role::Reference => {
                    chart.draw_series(DashedLineSeries::new(points(), 8, 5, look.colour.stroke_width(2)))?;
                }
                Role::Measured | Role::Level | Role::Subject => {
                    chart.draw_series(LineSeries::new(points(), look.colour.stroke_width(series.line_px())))?;
                }
                Role::Published => {}
            }
            if series.has_markers() {
                chart.draw_series(points().map(|at| EmptyElement::at(at) + look.marker() + look.outline()))?;
            }
        }
        Ok(())
    }

    fn bars(&self, area: &Area<'_>, names: &[String], labels: &Labels) -> Result<(), DrawingError> {
        let span = -0.5..names.len() as f64 - 0.5;
        let mut chart = ChartBuilder::on(area)
            .x_label_area_size(26 + LINE_PX * labels.lines().max(2))
            .y_label_area_size(Y_AXIS_PX)
            .build_cartesian_2d(RangedCoordf64::from(span.clone()), self.y_axis())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(font(14).color(&INK))
            .axis_desc_style(font(self.name_px(area)).color(&INK))
            .y_desc(self.y_name())
            .y_label_formatter(&|value| axis::tick(*value))
            .draw()?;
        let plain = self.bars_a_group();
        let bar = 0.76 / plain as f64;
        // Negative bars hang down from 0.
        let floor = self.y_axis().low();
        let floor = if self.y == Scale::Linear { floor.max(0.0) } else { floor };
        if floor > self.y_axis().low() {
            chart.draw_series(LineSeries::new([(span.start, floor), (span.end, floor)], INK))?;
        }
        let mut at = 0;
        let crowded = plain > 4 || names.len() * plain > 16;
        for (series, look) in self.series.iter().zip(looks(&self.series)) {
            if series.role == Role::Reference {
                for &(x, y) in &series.points {
                    let across = [(x - 0.45, y), (x + 0.45, y)];
                    chart.draw_series(DashedLineSeries::new(across, 8, 5, look.colour.stroke_width(2)))?;
                }
                continue;
            }
            let left = -0.38 + bar * f64::from(at);
            at += 1;
            let number = font(if crowded { 10 } else { 13 }).color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom));
            for &(x, y) in &series.points {
                let corners = [(x + left + 0.04 * bar, floor), (x + left + 0.96 * bar, y)];
                chart.draw_series([Rectangle::new(corners, look.filling())])?;
                if series.role == Role::Published {
                    chart.draw_series([Rectangle::new(corners, look.border())])?;
                }
                let top =
                    EmptyElement::at((x + left + 0.5 * bar, y)) + Text::new(axis::number(y), (0, -3), number.clone());
                chart.draw_series([top])?;
            }
        }
        self.group_labels(area, &chart, names.len(), labels)
    }

    /// Draws names or numbers under the groups, and the axis' own name under those.
    fn group_labels(
        &self,
        area: &Area<'_>,
        chart: &ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Axis>>,
        groups: usize,
        labels: &Labels,
    ) -> Result<(), DrawingError> {
        let (left, top) = area.get_base_pixel();
        let (width, height) = area.dim_in_pixel();
        let style = font(14).color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
        for at in 0..groups {
            let (x, y) = chart.backend_coord(&(at as f64, self.y_axis().low()));
            let lines = match labels {
                Labels::Whole(names) => names.get(at).cloned().unwrap_or_default(),
                Labels::Numbered { .. } => vec![(at + 1).to_string()],
            };
            for (line, text) in lines.into_iter().enumerate() {
                let below = y - top + 7 + LINE_PX as i32 * line as i32;
                area.draw(&Text::new(text, (x - left, below), style.clone()))?;
            }
        }
        let middle = ((width + Y_AXIS_PX) as i32 / 2, height as i32 - 8);
        let style = font(16).color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom));
        area.draw(&Text::new(self.x_label.clone(), middle, style))
    }

    fn legend(&self, area: &Area<'_>) -> Result<(), DrawingError> {
        let is_bars = matches!(self.kind, ChartKind::Bars(_));
        let mut y = 14;
        for (series, look) in self.series.iter().zip(looks(&self.series)) {
            match series.role {
                Role::Reference => {
                    for from in [12, 24, 36] {
                        area.draw(&PathElement::new([(from, y), (from + 8, y)], look.colour.stroke_width(2)))?;
                    }
                }
                _ if is_bars => {
                    area.draw(&Rectangle::new([(14, y - 7), (42, y + 7)], look.filling()))?;
                    area.draw(&Rectangle::new([(14, y - 7), (42, y + 7)], look.border()))?;
                }
                Role::Measured | Role::Level | Role::Subject => {
                    area.draw(&PathElement::new([(12, y), (44, y)], look.colour.stroke_width(series.line_px())))?;
                }
                Role::Published => {}
            }
            if !is_bars && series.has_markers() {
                area.draw(&(EmptyElement::at((28, y)) + look.marker() + look.outline()))?;
            }
            for (line, text) in broken(&series.name, LEGEND_CHARS_MAX).into_iter().enumerate() {
                let style = font(14).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
                y += if line > 0 { LINE_PX as i32 } else { 0 };
                area.draw(&Text::new(text, (52, y), style))?;
            }
            y += LEGEND_LINE;
        }
        Ok(())
    }
}

/// Draws the names behind the numbers under the groups, in columns that read downwards.
fn draw_key(area: &Area<'_>, names: &[String], columns: usize) -> Result<(), DrawingError> {
    let rows = names.len().div_ceil(columns.max(1)).max(1);
    let column_px = Labels::key_column_px(names);
    for (at, name) in names.iter().enumerate() {
        let x = 14 + (at / rows) as i32 * column_px as i32;
        let y = 10 + (at % rows) as i32 * KEY_LINE_PX as i32;
        let place = |side| font(14).color(&INK).pos(Pos::new(side, VPos::Center));
        area.draw(&Text::new((at + 1).to_string(), (x + 14, y), place(HPos::Right)))?;
        area.draw(&Text::new(name.clone(), (x + 22, y), place(HPos::Left)))?;
    }
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawingError = DrawingAreaErrorKind<std::io::Error>;

fn font(size: i32) -> FontDesc<'static> {
    ("sans-serif", size).into_font()
}

/// Cuts a text to at most so many characters.
fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests;

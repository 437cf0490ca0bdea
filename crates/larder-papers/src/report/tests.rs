//! A report shows its figures in each of its forms.

use super::*;
use crate::experiments;

fn table() -> Table {
    let mut table = Table::new("WebVM", "Read hits (%)", "Size (%)", [12.5, 100.0]);
    table.push("ours alone", [Some(3.0), None]);
    table.push("both, \"quoted\"", [Some(1234.5), Some(0.25)]);
    table.publish("both, \"quoted\"", "100", 36.7);
    table.publish("nobody", "100", 1.0);
    table.publish("ours alone", "50", 1.0);
    table
}

fn report() -> PaperReport {
    let comparison = |ours| Comparison { what: "more (%)".to_owned(), published: Span::of(0.5, 30.7), ours };
    let comparisons = vec![comparison(Span::over([4.0, 2.0])), comparison(None)];
    PaperReport { tables: vec![table()], comparisons, words: vec!["why ".repeat(60)], charts: Vec::new() }
}

#[test]
fn text_has_the_published_figure_behind_ours() {
    let experiment = experiments().next().expect("an experiment");
    let text = report().text(&experiment.heading(), &[("WebVM", "GENERATED")]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].ends_with("WebVM: GENERATED"), "{text}");
    assert_eq!(lines[3], "WebVM: Read hits (%); in brackets the paper's");
    assert_eq!(lines[4], "  Size (%)        12.5          100");
    assert_eq!(lines[5], "  ours alone      3.00            -");
    assert_eq!(lines[6], "  both, \"quoted\"  1234  0.25 [36.7]");
    assert!(text.contains("more (%)  0.50 to 30.7  2.00 to 4.00\n"), "{text}");
    assert!(text.contains("more (%)  0.50 to 30.7             -\n"), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn json_and_csv_have_the_same_figures() {
    let experiment = experiments().next().expect("an experiment");
    let json = report().json(&experiment.heading(), &[("WebVM", "GENERATED")]);
    assert_eq!(json["tables"][0]["series"][1]["published"], json!([null, 36.7]));
    assert_eq!(json["comparisons"][0]["ours"], json!({ "low": 2.0, "high": 4.0 }));
    assert_eq!(json["comparisons"][1]["ours"], Value::Null);
    let csv = report().csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[2], "WebVM,Read hits (%),ours alone,100,,,,");
    assert_eq!(lines[4], "WebVM,Read hits (%),\"both, \"\"quoted\"\"\",100,0.25,0.25,36.7,36.7");
    assert_eq!(lines[5], ",more (%),,,2,4,0.5,30.7");
    assert_eq!(lines[6], ",more (%),,,,,0.5,30.7");
}

#[test]
fn published_points_are_a_series_of_their_own_in_charts() {
    let chart = table().lines("title", "", Scale::Log, Scale::Linear);
    let points: Vec<(&str, &[(f64, f64)])> =
        chart.series.iter().map(|series| (series.name.as_str(), series.points.as_slice())).collect();
    assert_eq!(points[0], ("ours alone", [(12.5, 3.0)].as_slice()));
    assert_eq!(
        chart.series.iter().map(|series| series.role).collect::<Vec<_>>(),
        [Role::Measured, Role::Measured, Role::Published]
    );
    assert_eq!(points[2], ("both, \"quoted\", the paper's", [(100.0, 36.7)].as_slice()));
    let bars = table().bars("title", "", Scale::Linear);
    assert_eq!(bars.series[1].points, [(0.0, 1234.5), (1.0, 0.25)]);
    let columns = Table::new("", "", "", ["1x", "8x"]).lines("", "", Scale::Log, Scale::Linear);
    assert_eq!(columns.series.len(), 0);
}

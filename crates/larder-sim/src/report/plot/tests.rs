//! A chart is a document that XML readers take, with all words and all points in it.

use super::*;

fn lines() -> Chart {
    let sizes: [f64; 7] = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
    let series = |name: &str, scale: f64, is_reference: bool| Series {
        name: name.to_owned(),
        points: sizes.iter().map(|size| (*size, 95.0 * (1.0 - (-size * scale / 200.0).exp()))).collect(),
        role: if is_reference { Role::Reference } else { Role::Measured },
    };
    Chart {
        title: "Read hits & flash size".to_owned(),
        subtitle: "webvm.trace.zst, chunks of 4K, <write-through>".to_owned(),
        x_label: "Flash (MiB)".to_owned(),
        y_label: "Read hit ratio (%)".to_owned(),
        y: Scale::Linear,
        kind: ChartKind::Lines { x: Scale::Log },
        series: vec![
            series("lru", 0.5, false),
            series("arc", 0.6, false),
            series("d-lru", 0.8, false),
            series("d-arc", 0.9, false),
            series("austere", 1.1, false),
            series("nitro", 1.3, false),
            series("nitro:granularity=extent:dedup=off:weu=1M", 1.2, false),
            series("larder", 1.6, false),
            series("a ninth", 1.7, false),
            series("bound", 2.5, true),
        ],
    }
}

fn bars() -> Chart {
    let series = |name: &str, points: &[f64], is_reference: bool| Series {
        name: name.to_owned(),
        points: points.iter().enumerate().map(|(at, y)| (at as f64, *y)).collect(),
        role: if is_reference { Role::Reference } else { Role::Measured },
    };
    Chart {
        kind: ChartKind::Bars(["webvm", "homes", "mail"].map(str::to_owned).to_vec()),
        series: vec![
            series("lru", &[31.4, 20.0, 55.5], false),
            series("d-arc", &[44.0, 33.27, 81.0], false),
            series("nitro", &[52.1, 35.0, 84.9], false),
            series("bound", &[70.0, 61.0, 92.0], true),
        ],
        x_label: "Trace".to_owned(),
        ..lines()
    }
}

fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}\n{svg}"));
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    texts.map(|node| node.text().unwrap_or_default().trim().to_owned()).collect()
}

fn count(svg: &str, tag: &str, attribute: &str, value: &str) -> usize {
    let document = roxmltree::Document::parse(svg).expect("XML");
    let has = |node: &roxmltree::Node<'_, '_>| node.attribute(attribute) == Some(value);
    document.descendants().filter(|node| node.has_tag_name(tag) && has(node)).count()
}

#[test]
fn lines_have_axes_units_legend_and_a_marker_for_each_point() {
    let svg = lines().svg().expect("drawn");
    let said = texts(&svg);
    for words in ["Read hits & flash size", "webvm.trace.zst, chunks of 4K, <write-through>", "Flash (MiB)"] {
        assert!(said.contains(&words.to_owned()), "{words}: {said:?}");
    }
    for words in ["Read hit ratio (%)", "lru", "d-arc", "bound", "100", "16", "1024", "0"] {
        assert!(said.contains(&words.to_owned()), "{words}: {said:?}");
    }
    let long = ["nitro:granularity=extent:", "dedup=off:weu=1M"];
    assert!(long.iter().all(|line| said.iter().any(|text| text == line)), "a long name takes two lines: {said:?}");
    // Seven points and one in the legend, in the first colour; the ninth series has the colour
    // again.
    assert_eq!(count(&svg, "polygon", "fill", "#0072B2"), 2 * 8);
    assert_eq!(count(&svg, "polygon", "fill", "#D55E00"), 8);
}

#[test]
fn bars_stand_in_groups_with_their_numbers() {
    let svg = bars().svg().expect("drawn");
    let said = texts(&svg);
    for words in ["webvm", "homes", "mail", "Trace", "31.4", "33.3", "84.9", "bound"] {
        assert!(said.contains(&words.to_owned()), "{words}: {said:?}");
    }
    assert_eq!(count(&svg, "rect", "fill", "#0072B2"), 3 + 1);
    assert_eq!(count(&svg, "rect", "fill", "#009E73"), 3 + 1);
}

#[test]
fn a_bar_begins_at_zero_also_where_one_is_negative() {
    let mut chart = bars();
    chart.series.truncate(1);
    chart.series[0].points = vec![(0.0, -1.0), (1.0, 50.0), (2.0, 1.0)];
    let svg = chart.svg().expect("drawn");
    let document = roxmltree::Document::parse(&svg).expect("XML");
    let bar = |node: roxmltree::Node<'_, '_>| {
        let number = |name| node.attribute(name).and_then(|text| text.parse::<i32>().ok()).expect("a number");
        (number("y"), number("height"))
    };
    let fill = |node: &roxmltree::Node<'_, '_>| node.has_tag_name("rect") && node.attribute("fill") == Some("#0072B2");
    let found: Vec<(i32, i32)> = document.descendants().filter(fill).map(bar).collect();
    let [(below, down), (top, tall), (above, up), ..] = found[..] else { panic!("{found:?}") };
    assert!(down.abs_diff(up) <= 1 && tall > 30 * up, "{found:?}");
    assert!(below.abs_diff(above + up) <= 1 && below.abs_diff(top + tall) <= 1, "they begin side by side: {found:?}");
}

#[test]
fn what_cannot_be_plotted_is_left_out() {
    let mut chart = lines();
    chart.series.truncate(1);
    chart.series[0].points = vec![(0.0, 1.0), (f64::NAN, 2.0), (4.0, f64::INFINITY), (64.0, 9.0)];
    let svg = chart.svg().expect("one point is left");
    assert_eq!(count(&svg, "polygon", "fill", "#0072B2"), 2);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    chart.series[0].points.pop();
    assert!(chart.svg().unwrap_err().contains("nothing to plot"));
    for y in [Scale::Linear, Scale::Log] {
        let mut flat = Chart { y, ..lines() };
        flat.series.iter_mut().for_each(|series| series.points.iter_mut().for_each(|point| *point = (5.0, 5.0)));
        assert!(flat.svg().is_ok());
    }
}

#[test]
fn several_charts_are_one_document_with_all_their_words() {
    for panels in 1..=7 {
        let charts: Vec<Chart> = (0..panels)
            .map(|at| Chart { title: format!("panel {at}"), ..if at % 2 == 0 { lines() } else { bars() } })
            .collect();
        let document = svg(&charts).expect("a document");
        let found = texts(&document);
        assert!((0..panels).all(|at| found.contains(&format!("panel {at}"))), "{panels}");
    }
    assert!(svg(&[]).is_err());
    let empty = Chart { series: Vec::new(), ..lines() };
    assert!(svg(&[lines(), empty]).unwrap_err().contains("nothing to plot"));
}

#[test]
fn designs_with_options_have_names_that_are_whole_and_apart() {
    for count in [2, 9, 14, 40] {
        let names: Vec<String> = (0..count)
            .map(|at| format!("nitro:fp-index={}:granularity={}", 10 + at, ["weu", "extent"][at % 2]))
            .collect();
        let points = (0..count).map(|at| (at as f64, 1000.0 + at as f64)).collect();
        let chart = Chart {
            kind: ChartKind::Bars(names.clone()),
            series: vec![Series { name: "hits".to_owned(), points, role: Role::Measured }],
            ..bars()
        };
        let document = chart.svg().expect("drawn");
        let said = texts(&document);
        assert!(!said.iter().any(|text| text.contains('…')), "{said:?}");
        let whole = |at: usize| said.contains(&names[at]) && said.contains(&(at + 1).to_string());
        let pieces = |at: usize| names[at].split(':').all(|piece| said.contains(&piece.to_owned()));
        assert!((0..count).all(whole) || (0..count).all(pieces), "{count}: {said:?}");
        // The numbers over the bars and the words of the key lie in the picture, and side by side.
        let tree = roxmltree::Document::parse(&document).expect("XML");
        let number =
            |node: roxmltree::Node<'_, '_>, name| node.attribute(name).and_then(|text| text.parse::<i32>().ok());
        let height = number(tree.root_element(), "height").expect("a height");
        let below = tree.descendants().filter(|node| node.has_tag_name("text")).filter_map(|node| number(node, "y"));
        assert!(below.max() < Some(height), "{count}");
        let is_over = |node: &roxmltree::Node<'_, '_>| {
            let text = node.text().unwrap_or_default().trim();
            text.len() == 4 && text.starts_with("10") && node.attribute("text-anchor") == Some("middle")
        };
        let mut across: Vec<i32> = tree.descendants().filter(is_over).filter_map(|node| number(node, "x")).collect();
        across.sort_unstable();
        assert_eq!(across.len(), count, "{said:?}");
        assert!(across.windows(2).all(|two| two[1] - two[0] >= 24), "{count}: {across:?}");
    }
}

#[test]
fn a_long_legend_makes_the_picture_taller() {
    let mut chart = lines();
    let one = chart.series[0].clone();
    chart.series = (0..60).map(|at| Series { name: format!("design {at}"), ..one.clone() }).collect();
    let document = chart.svg().expect("drawn");
    let tree = roxmltree::Document::parse(&document).expect("XML");
    let number = |node: roxmltree::Node<'_, '_>, name| node.attribute(name).and_then(|text| text.parse::<i32>().ok());
    let lowest = tree.descendants().filter(|node| node.has_tag_name("text")).filter_map(|node| number(node, "y")).max();
    assert!(lowest < number(tree.root_element(), "height"), "{lowest:?}");
}

#[test]
fn a_linear_axis_begins_at_zero_and_a_logarithmic_one_says_what_it_is() {
    let mut chart = lines();
    chart.series.truncate(1);
    chart.series[0].points = vec![(4.0, 1930.0), (8.0, 2100.0), (16.0, 2590.0)];
    let said = texts(&chart.svg().expect("drawn"));
    assert!(said.contains(&"0".to_owned()) && !said.iter().any(|text| text.contains("logarithmic")), "{said:?}");
    let said = texts(&Chart { y: Scale::Log, ..chart }.svg().expect("drawn"));
    assert!(said.contains(&"Read hit ratio (%), logarithmic axis".to_owned()), "{said:?}");
}

#[test]
fn published_figures_are_hollow_markers_without_a_line() {
    let mut chart = lines();
    chart.series.truncate(1);
    let lines_of = |chart: &Chart| chart.svg().expect("drawn").matches("<polyline").count();
    let series = |role| Series { name: "the paper's".to_owned(), points: vec![(16.0, 36.7), (1024.0, 70.4)], role };
    let (alone, markers) = (lines_of(&chart), count(&chart.svg().expect("drawn"), "polygon", "fill", "#FFFFFF"));
    chart.series.push(series(Role::Published));
    assert_eq!(
        count(&chart.svg().expect("drawn"), "polygon", "fill", "#FFFFFF"),
        markers + 3,
        "two and one in the legend"
    );
    // The lines around the markers alone.
    assert_eq!(lines_of(&chart), alone + 3);
    chart.series[1].role = Role::Level;
    let level = chart.svg().expect("drawn");
    assert_eq!((lines_of(&chart), level.matches("<polygon").count()), (alone + 2, 8), "a line, and one in the legend");
}

#[test]
fn a_path_keeps_the_order_of_its_points_and_a_line_does_not() {
    let points = vec![(3.0, 10.0), (1.0, 20.0), (2.0, 30.0)];
    let of = |kind| {
        let series = Series { name: "larder".to_owned(), points: points.clone(), role: Role::Subject };
        let chart = Chart { kind, series: vec![series], ..lines() };
        let svg = chart.svg().expect("a chart");
        assert!(texts(&svg).contains(&"larder".to_owned()), "{svg}");
        chart.checked().expect("points").series[0].points.clone()
    };
    assert_eq!(of(ChartKind::Paths { x: Scale::Log }), points);
    assert_eq!(of(ChartKind::Lines { x: Scale::Log }), [points[1], points[2], points[0]]);
}

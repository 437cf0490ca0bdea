//! A chart is a document that XML readers take, with all words and all points in it.

use super::*;

fn lines() -> Chart {
    let sizes: [f64; 7] = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
    let series = |name: &str, scale: f64, is_reference| Series {
        name: name.to_owned(),
        points: sizes.iter().map(|size| (*size, 95.0 * (1.0 - (-size * scale / 200.0).exp()))).collect(),
        is_reference,
    };
    Chart {
        title: "Read hits & flash size".to_owned(),
        subtitle: "webvm.trace.zst, chunks of 4K, <write-through>".to_owned(),
        x_label: "Flash (MiB)".to_owned(),
        y_label: "Read hit ratio (%)".to_owned(),
        y: Scale::Linear,
        kind: Kind::Lines { x: Scale::Log },
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
    let series = |name: &str, points: &[f64], is_reference| Series {
        name: name.to_owned(),
        points: points.iter().enumerate().map(|(at, y)| (at as f64, *y)).collect(),
        is_reference,
    };
    Chart {
        kind: Kind::Bars(["webvm", "homes", "mail"].map(str::to_owned).to_vec()),
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
    assert!(said.iter().any(|text| text.ends_with('…')), "a long name is cut");
    // Seven points and one in the legend, in the first colour; the ninth series has the colour again.
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

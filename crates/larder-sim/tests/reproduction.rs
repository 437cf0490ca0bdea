//! docs/REPRODUCTION.md against itself: figures that it has twice are the same at both places.
//!
//! What it does not do: make the figures again.

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/REPRODUCTION.md");
const TRACES: [&str; 3] = ["WebVM", "Homes", "Mail"];

/// What lies between a line and the next heading of any depth.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}"));
    rest.split("\n#").next().unwrap_or(rest)
}

/// A trace's line of a printed table: ours, without what is in brackets.
fn printed(section: &str, table: &str, trace: &str) -> Vec<f64> {
    let (_, rest) = section.split_once(table).unwrap_or_else(|| panic!("no table {table:?}"));
    let line = rest.lines().skip(2).find(|line| line.trim_start().starts_with(trace)).expect("a line of the trace");
    line.split_whitespace().skip(1).filter(|word| !word.ends_with(']')).map(number).collect()
}

fn number(word: &str) -> f64 {
    word.trim().parse().unwrap_or_else(|_| panic!("{word:?} is no number"))
}

/// "Model and engine side by side" is what the pages of `nitro-table2` and `nitro-table2-modelled` print, in whole percent.
#[test]
fn model_and_engine_side_by_side_are_what_their_pages_print() {
    let page = std::fs::read_to_string(PAGE).expect("the page");
    let table = "Warm: IOPS more than without a cache (%)";
    let engine = section(&page, "### Table 2: IOPS and read response time");
    let model = section(&page, "### Table 2 again, from modelled time");
    let (_, beside) = model.split_once("model and engine side by side:").expect("the table of both");
    let mut lines = beside.lines().filter(|line| line.starts_with("| "));
    let mut times = Vec::new();
    for trace in TRACES {
        let mut extents = Vec::new();
        for (who, section) in [("paper", None), ("model", Some(model)), ("engine", Some(engine))] {
            let mut lines = lines.by_ref().skip_while(|line| !line.contains(&format!("| {who} |")));
            let cells: Vec<&str> = lines.next().expect("a line").split('|').map(str::trim).collect();
            assert!(who != "paper" || cells[1] == trace, "{cells:?} is of {trace}");
            let Some(section) = section else { continue };
            let told: Vec<f64> = cells[3..8].iter().map(|cell| number(cell)).collect();
            let printed = printed(section, table, trace);
            let is_same = told.iter().zip(&printed).all(|(told, printed)| (told - printed).abs() <= 0.5);
            assert!(is_same && printed.len() == 5, "{trace}, {who}: {told:?} beside, and its page has {printed:?}");
            extents.push(printed[0]);
        }
        times.push(extents[1] / extents[0]);
    }
    let (least, most) = times.iter().fold((f64::MAX, 0.0f64), |(low, high), one| (low.min(*one), high.max(*one)));
    let words = format!("the engine's lru gains {least:.1} to {most:.1} times as much as the model's extents");
    assert!(model.contains(&words), "the page does not say that {words}");
}

//! docs/REPRODUCTION.md against the outputs in docs/reproduction/.
//!
//! Each figure of the page is in its outputs. The repeated figures of Nitro's Table 2 are the same
//! at all places.
//!
//! It does not make the figures again; `scripts/reproduction.sh` does.

use std::fs;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
const TRACES: [&str; 3] = ["WebVM", "Homes", "Mail"];

fn document(name: &str) -> String {
    fs::read_to_string(format!("{DOCS}/{name}")).unwrap_or_else(|err| panic!("docs/{name}: {err}"))
}

/// Returns the text between a line and the next heading of any depth.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}"));
    rest.split("\n#").next().unwrap_or(rest)
}

/// Returns a trace's line of a printed table: ours, and the paper's, which is in brackets.
fn printed(section: &str, table: &str, trace: &str) -> (Vec<f64>, Vec<f64>) {
    let (_, rest) = section.split_once(table).unwrap_or_else(|| panic!("no table {table:?}"));
    let line = rest.lines().skip(2).find(|line| line.trim_start().starts_with(trace)).expect("a line of the trace");
    let words = line.split_whitespace().skip(1);
    let (papers, ours): (Vec<&str>, Vec<&str>) = words.partition(|word| word.ends_with(']'));
    let papers = papers.into_iter().map(|word| number(word.trim_matches(['[', ']'])));
    (ours.into_iter().map(number).collect(), papers.collect())
}

fn number(word: &str) -> f64 {
    word.trim().parse().unwrap_or_else(|_| panic!("{word:?} is no number"))
}

/// Checks "Model and engine side by side" against `nitro-table2` and `nitro-table2-modelled`.
/// Figures differ by at most `off_by`. Returns those of the model and of the engine, of each trace.
fn beside(page: &str, heads: &str, table: &str, off_by: f64) -> Vec<[Vec<f64>; 2]> {
    let engine = section(page, "## Table 2: IOPS and read response time");
    let model = section(page, "## Table 2 again, from modelled time");
    let (_, beside) = model.split_once(heads).unwrap_or_else(|| panic!("no table {heads:?}"));
    let mut lines = beside.lines().filter(|line| line.starts_with("| "));
    let mut line = |who: &str| -> (String, Vec<f64>) {
        let line = lines.find(|line| line.contains(&format!("| {who} |"))).expect("a line");
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (cells[1].to_owned(), cells[3..8].iter().map(|cell| number(cell)).collect())
    };
    let is_same = |told: &[f64], printed: &[f64]| {
        printed.len() == 5 && told.iter().zip(printed).all(|(told, printed)| (told - printed).abs() <= off_by)
    };
    let of_trace = |trace: &str| {
        let (name, papers) = line("paper");
        assert_eq!(name, trace);
        [("model", model), ("engine", engine)].map(|(who, section)| {
            let (told, (ours, in_brackets)) = (line(who).1, printed(section, table, trace));
            assert!(is_same(&told, &ours), "{trace}, {who}: {told:?} beside, and its page has {ours:?}");
            assert!(is_same(&papers, &in_brackets), "{trace}, the paper: {papers:?} beside, and {in_brackets:?}");
            ours
        })
    };
    TRACES.into_iter().map(of_trace).collect()
}

#[test]
fn model_and_engine_side_by_side_are_what_their_pages_print() {
    let page = document("reproduction/nitro.md");
    let heads = "Model and engine side by side, warm: ";
    let iops = beside(
        &page,
        &format!("{heads}IOPS more than without a cache (%):"),
        "Warm: IOPS more than without a cache (%)",
        0.5,
    );
    beside(&page, &format!("{heads}read response time less (%):"), "Warm: Read response time less (%)", 0.0);
    let times = iops.iter().map(|[model, engine]| engine[0] / model[0]);
    let (least, most) = times.fold((f64::MAX, 0.0f64), |(low, high), one| (low.min(one), high.max(one)));
    let words = format!("the engine's lru gains {least:.1} to {most:.1} times as much as the model's extents");
    for document in [page, document("REPRODUCTION.md")] {
        assert!(document.contains(&words), "a page does not say that {words}");
    }
}

/// Returns the numbers in a text, without their signs: "1,354" is one, and "27, 20" are two.
///
/// Code and the targets of links hold none.
fn numbers(text: &str) -> Vec<f64> {
    let plain: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let links = plain.split("](");
    let plain: String = links.enumerate().map(|(at, part)| if at == 0 { part } else { after_link(part) }).collect();
    let chars: Vec<char> = plain.chars().collect();
    let digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let (mut found, mut word) = (Vec::new(), String::new());
    for (at, &char) in chars.iter().enumerate() {
        let groups = char == ',' && (1..=3).all(|ahead| digit(at + ahead)) && !digit(at + 4);
        if digit(at) || (char == '.' && digit(at + 1) && !word.is_empty()) {
            word.push(char);
        } else if !groups && !word.is_empty() {
            found.push(number(&word));
            word.clear();
        }
    }
    found.extend((!word.is_empty()).then(|| number(&word)));
    found
}

fn after_link(part: &str) -> &str {
    part.split_once(')').map_or(part, |(_, rest)| rest)
}

#[test]
fn each_figure_of_the_page_is_in_its_outputs() {
    let page = document("REPRODUCTION.md");
    let mut looked = 0;
    for section in page.split("\n## ").skip(1) {
        let (_, rest) = section.split_once("[Outputs](").expect("a link to the outputs");
        let name = rest.split(')').next().expect("a name");
        let outputs: Vec<f64> = document(name).lines().flat_map(printed_numbers).collect();
        let told = numbers(section);
        looked += told.len();
        let missing: Vec<f64> = told.into_iter().filter(|number| !outputs.contains(number)).collect();
        assert!(missing.is_empty(), "not in docs/{name}: {missing:?}");
    }
    assert!(looked > 600, "figures: {looked}");
}

/// Returns the numbers of a line of an output, where code is no exception.
fn printed_numbers(line: &str) -> Vec<f64> {
    numbers(&line.replace('`', " "))
}

//! Finds the format of a trace if the file itself names it.
//!
//! Detection goes by a mark alone. A mark is the first line of an iolog, a header with just the
//! columns of a format, or content that no other format has. Such content is a fingerprint among
//! columns of one kind, or an event of blkparse.
//!
//! All other formats are columns of numbers or letters, and several of them may fit. Then detection
//! guesses nothing: it names the formats that fit, and asks the caller. A trace with a few bad
//! lines keeps its format; the reader names the bad lines.
//!
//! Invariants: detection finds no binary format, for none has a mark. The same bytes give the same
//! answer.
//!
//! It does not look at the file's name. It leaves archives and the like to [`foreign`].

mod binary;

use crate::{
    error::{Complaint, Position, TraceError, TraceErrorKind, TraceResult, shown},
    foreign,
    formats::{
        FormatId, LineFormat, Parser, ParserOptions, alibaba,
        blkparse::{choose_action, looks_like_device},
        csv, msr, spc, systor17, tencent,
    },
    input::Input,
    sink::Sink,
};

/// Bytes of the unpacked trace that detection reads.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
/// Lines that detection reads.
const LINES_MAX: usize = 64;
/// Digits of the shortest fingerprint.
const FINGERPRINT_DIGITS: usize = 16;

/// Finds the format of a trace whose reading has not begun, and takes no bytes. For a packed file
/// that was cut, the bytes before the cut decide.
pub(crate) fn detect(input: &mut Input) -> TraceResult<FormatId> {
    // If nothing fits the few bytes, the cut is the reason.
    let found = detect_head(input);
    found.map_err(|error| input.take_failure().unwrap_or(error))
}

fn detect_head(input: &mut Input) -> TraceResult<FormatId> {
    let head = input.peek_head(HEAD_BYTES)?.to_vec();
    let head = foreign::without_mark(head.get(..HEAD_BYTES).unwrap_or(&head));
    let unknown =
        |message: String| TraceError::new(TraceErrorKind::UnknownFormat, input.name(), Position::Whole, message);
    if head.is_empty() {
        return Err(unknown("cannot tell the format of an empty file".into()));
    }
    if !is_text(head) {
        return Err(unknown(match &binary::fitting(head)[..] {
            [] => binary::reasons(head),
            fitting => cannot_tell("a binary file", fitting),
        }));
    }
    let lines = first_lines(head, input.is_at_end());
    detect_text(head, &lines).map_err(unknown)
}

/// Returns whether most lines are text. Numbers of four bytes or more contain zeroes or other
/// control characters.
fn is_text(head: &[u8]) -> bool {
    let lines = head.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let (mut text, mut all) = (0, 0);
    for line in lines {
        // Most of a line is ASCII; a process name may have any bytes.
        let is_ascii = line.iter().filter(|byte| byte.is_ascii()).count() * 2 > line.len();
        text += usize::from(is_ascii && line.iter().all(is_text_byte));
        all += 1;
    }
    all == 0 || text * 2 > all
}

/// Returns whether a byte is no control character.
fn is_text_byte(byte: &u8) -> bool {
    *byte >= b' ' && *byte != 0x7f || matches!(byte, b'\t' | b'\r' | b'\n')
}

/// Returns the first lines that are whole, not empty and no comments. A file of one line may lack
/// its end.
fn first_lines(head: &[u8], is_whole_file: bool) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = head.split(|&byte| byte == b'\n').collect();
    if lines.len() > 1 || !is_whole_file {
        lines.pop();
    }
    let lines = lines.into_iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let is_some = |line: &&[u8]| !matches!(line.trim_ascii(), [] | [b'#', ..]);
    lines.filter(is_some).take(LINES_MAX).collect()
}

/// A text format, and its first bad line with the complaint if the format does not fit.
type Fit = (FormatId, Result<(), (usize, Complaint)>);

fn detect_text(head: &[u8], lines: &[&[u8]]) -> Result<FormatId, String> {
    let first = lines.first().copied().unwrap_or_default();
    if let Some(format) = named_by(first) {
        return Ok(format);
    }
    let options = ParserOptions { block_bytes: None, action: choose_action(head), columns: None };
    let texts = FormatId::ALL.into_iter().filter(|format| !format.is_binary());
    let fits: Vec<Fit> =
        texts.filter_map(|format| Some((format, fit(&mut Parser::new(format, options)?, lines)))).collect();
    let fitting = fits.iter().filter(|(_, fit)| fit.is_ok()).map(|(format, _)| *format);
    let fitting: Vec<FormatId> = fitting.collect();
    if let Some(format) = fitting.iter().find(|format| is_marked(**format, lines)) {
        return Ok(*format);
    }
    if !fitting.is_empty() {
        return Err(cannot_tell("the file", &fitting));
    }
    // Numbers may look like a few short lines.
    match binary::fitting(head) {
        fitting if !fitting.is_empty() && !head.iter().all(is_text_byte) => Err(cannot_tell("a binary file", &fitting)),
        _ => Err(no_text_fits(first, &fits)),
    }
}

/// Returns the sentence that asks for the format if several fit.
fn cannot_tell(what: &str, fitting: &[FormatId]) -> String {
    let named: Vec<String> = fitting.iter().map(|format| format!("{format} ({})", format.layout())).collect();
    let options: Vec<String> = fitting.iter().map(|format| format!("--format {format}")).collect();
    format!(
        "cannot tell the format: {what} does not name it, and looks most like {}: name it with {}",
        named.join(" or "),
        options.join(" or ")
    )
}

/// Returns the format that a first line names.
fn named_by(first: &[u8]) -> Option<FormatId> {
    let is_named = |format: &FormatId| match format {
        FormatId::Csv => csv::is_marked(first),
        FormatId::Msr => msr::is_marked(first),
        FormatId::Systor17 => systor17::is_marked(first),
        FormatId::Alibaba => alibaba::is_marked(first),
        FormatId::Tencent => tencent::is_marked(first),
        FormatId::Spc => spc::is_marked(first),
        _ => false,
    };
    FormatId::ALL.into_iter().find(is_named)
}

/// Returns whether the lines that fit a format fit no other.
fn is_marked(format: FormatId, lines: &[&[u8]]) -> bool {
    match format {
        FormatId::Fio | FormatId::Blkparse | FormatId::Content => true,
        FormatId::Days | FormatId::Fiu | FormatId::Austere => lines.iter().any(|line| has_fingerprint(line)),
        _ => false,
    }
}

/// Returns whether a line has a fingerprint. It is hexadecimal with letters, since a time or an
/// address may be as long.
fn has_fingerprint(line: &[u8]) -> bool {
    let columns = line.split(|byte| byte.is_ascii_whitespace());
    columns.into_iter().any(|column| {
        let is_hex = column.len() >= FINGERPRINT_DIGITS && column.iter().all(u8::is_ascii_hexdigit);
        is_hex && column.iter().any(u8::is_ascii_alphabetic)
    })
}

/// Returns the sentence about text that fits no format.
fn no_text_fits(first: &[u8], fits: &[Fit]) -> String {
    let complaints = fits.iter().filter_map(|(format, fit)| fit.err().map(|reason| (*format, reason)));
    if is_fio_head(first)
        && let Some((_, (_, complaint))) = complaints.clone().find(|(format, _)| *format == FormatId::Fio)
    {
        return format!("this is a fio iolog: expected {}, found {}", complaint.expected, shown(first));
    }
    let columns = columns_of(first);
    let near: Vec<String> = complaints
        .filter(|(format, _)| is_near(*format, first, columns))
        .map(|(format, (line, complaint))| format!("{format} wants {} in line {line}", complaint.expected))
        .collect();
    let mut message = format!("no format fits: the first line has {columns} columns");
    match near.is_empty() {
        false => message.push_str(&format!("; {}", near.join("; "))),
        true => {
            let known: Vec<&str> = fits.iter().map(|(format, _)| format.name()).collect();
            message.push_str(&format!("; known text formats are {}", known.join(", ")));
        }
    }
    message.push_str("; --columns names other columns");
    message
}

/// Returns whether a line is the head of an iolog, perhaps of an unknown version.
fn is_fio_head(line: &[u8]) -> bool {
    line.trim_ascii().starts_with(b"fio version ")
}

/// Returns whether a line was perhaps meant for a format.
fn is_near(format: FormatId, line: &[u8], columns: usize) -> bool {
    let has_commas = line.contains(&b',');
    match format {
        FormatId::Blkparse => looks_like_device(line),
        FormatId::Csv => has_commas && !looks_like_device(line),
        _ => shape(format) == Some((columns, has_commas)),
    }
}

/// Returns the number of columns of a format, if it is fixed, and whether commas separate them.
fn shape(format: FormatId) -> Option<(usize, bool)> {
    match format {
        FormatId::Content => Some((10, false)),
        FormatId::Fiu => Some((9, false)),
        FormatId::Msr => Some((7, true)),
        FormatId::Systor17 => Some((6, true)),
        FormatId::Alibaba | FormatId::Tencent | FormatId::Spc => Some((5, true)),
        FormatId::Austere | FormatId::Ssdsim => Some((5, false)),
        FormatId::Days | FormatId::ArcLis => Some((4, false)),
        FormatId::Blkparse | FormatId::Fio | FormatId::Csv | FormatId::Columns => None,
        FormatId::OracleGeneral | FormatId::BlockIds | FormatId::Vscsi1 | FormatId::Vscsi2 => None,
    }
}

/// Counts the columns of a line. Commas separate them, or blanks if the line has no comma.
fn columns_of(line: &[u8]) -> usize {
    match line.iter().filter(|&&byte| byte == b',').count() {
        0 => line.split(|byte| byte.is_ascii_whitespace()).filter(|column| !column.is_empty()).count(),
        commas => commas + 1,
    }
}

/// Returns the first complaint and its line unless most lines parse.
fn fit(parser: &mut Parser, lines: &[&[u8]]) -> Result<(), (usize, Complaint)> {
    match parser {
        Parser::Content(parser) => fit_lines(parser, lines),
        Parser::Days(parser) => fit_lines(parser, lines),
        Parser::Fiu(parser) => fit_lines(parser, lines),
        Parser::Austere(parser) => fit_lines(parser, lines),
        Parser::Blkparse(parser) => fit_lines(parser, lines),
        Parser::Fio(parser) => fit_lines(parser, lines),
        Parser::ArcLis(parser) => fit_lines(parser, lines),
        Parser::Ssdsim(parser) => fit_lines(parser, lines),
        Parser::Rows(parser) => fit_lines(parser, lines),
        Parser::OracleGeneral(_) | Parser::BlockIds(_) | Parser::Vscsi1(_) | Parser::Vscsi2(_) => {
            Err((0, Complaint::expected("binary records")))
        }
    }
}

fn fit_lines(parser: &mut impl LineFormat, lines: &[&[u8]]) -> Result<(), (usize, Complaint)> {
    let mut sink = Sink::new(None);
    let mut first = None;
    let mut bad = 0;
    for (at, line) in lines.iter().enumerate() {
        // An impossible size or address is a bad request, not another format.
        if let Err(complaint) = parser.line(line, &mut sink)
            && complaint.kind == TraceErrorKind::BadRecord
        {
            bad += 1;
            first.get_or_insert((at + 1, complaint));
        }
    }
    match first {
        Some(reason) if bad * 2 >= lines.len() => Err(reason),
        _ if lines.is_empty() => Err((0, Complaint::expected("a whole line"))),
        _ => Ok(()),
    }
}

//! Which format a trace has, told by its first bytes or lines.
//!
//! A text format fits when most of the first lines parse; the strict formats are tried first, so that no lax one takes
//! their files. A first line that is a header of csv says what the file is, whatever follows. `binary.rs` tells the binary
//! formats apart. A trace with a few bad lines, of text or not, has its format for all that: whoever reads it says which
//! lines are bad.
//!
//! What it does not do: look at the file's name.

mod binary;

use crate::{
    error::{Complaint, Position, TraceError, TraceErrorKind, TraceResult, shown},
    formats::{
        FormatId, LineFormat, Parser,
        blkparse::{choose_action, looks_like_device},
        csv,
    },
    input::Input,
    sink::Sink,
};

/// Bytes of the trace that are looked at, after unpacking.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
/// Lines that are looked at.
const LINES_MAX: usize = 64;

/// Finds the format of a trace that has not been read yet; takes nothing of it. Of a packed file that was cut, what there
/// is tells it.
pub(crate) fn detect(input: &mut Input) -> TraceResult<FormatId> {
    // Where nothing fits the little that there is, the cut is the reason.
    let found = detect_head(input);
    found.map_err(|error| input.take_failure().unwrap_or(error))
}

fn detect_head(input: &mut Input) -> TraceResult<FormatId> {
    let head = input.peek_head(HEAD_BYTES)?.to_vec();
    let head = &head[..head.len().min(HEAD_BYTES)];
    let unknown =
        |message: String| TraceError::new(TraceErrorKind::UnknownFormat, input.name(), Position::Whole, message);
    if head.is_empty() {
        return Err(unknown("cannot tell the format of an empty file".into()));
    }
    if !is_text(head) {
        return binary::detect(head).map_err(unknown);
    }
    let lines = first_lines(head, input.is_at_end());
    detect_text(head, &lines)
        // Numbers may look like a few short lines.
        .or_else(|reason| binary::detect(head).ok().filter(|_| !head.iter().all(is_text_byte)).ok_or(reason))
        .map_err(unknown)
}

/// Whether most lines are text. Numbers of four bytes or more have zeroes among them, or other control characters.
fn is_text(head: &[u8]) -> bool {
    let lines = head.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let (mut text, mut all) = (0, 0);
    for line in lines {
        // ASCII for the most part: names of processes may be anything.
        let is_ascii = line.iter().filter(|byte| byte.is_ascii()).count() * 2 > line.len();
        text += usize::from(is_ascii && line.iter().all(is_text_byte));
        all += 1;
    }
    all == 0 || text * 2 > all
}

/// No control character, that is.
fn is_text_byte(byte: &u8) -> bool {
    *byte >= b' ' && *byte != 0x7f || matches!(byte, b'\t' | b'\r' | b'\n')
}

/// The first lines that are whole and not empty. A file of one line may lack its end.
fn first_lines(head: &[u8], is_whole_file: bool) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = head.split(|&byte| byte == b'\n').collect();
    if lines.len() > 1 || !is_whole_file {
        lines.pop();
    }
    let lines = lines.into_iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.trim_ascii().is_empty()).take(LINES_MAX).collect()
}

fn detect_text(head: &[u8], lines: &[&[u8]]) -> Result<FormatId, String> {
    if lines.first().is_some_and(|line| csv::is_header(line)) {
        return Ok(FormatId::Csv);
    }
    let mut reasons = Vec::new();
    for format in FormatId::ALL.into_iter().filter(|format| !format.is_binary()) {
        let mut parser = Parser::new(format, None, choose_action(head));
        match fit(&mut parser, lines) {
            Ok(()) => return Ok(format),
            Err(reason) => reasons.push((format, reason)),
        }
    }
    let first = lines.first().copied().unwrap_or_default();
    if let Some((_, (_, complaint))) = reasons.iter().find(|(format, _)| *format == FormatId::Fio && is_fio_head(first))
    {
        return Err(format!("this is a fio iolog: expected {}, found {}", complaint.expected, shown(first)));
    }
    let columns = columns_of(first);
    let mut message = format!("no format fits: the first line has {columns} columns");
    let near: Vec<String> = reasons
        .iter()
        .filter(|(format, _)| is_near(*format, first, columns))
        .map(|(format, reason)| format!("{format} wants {} in line {}", reason.1.expected, reason.0))
        .collect();
    if near.is_empty() {
        message.push_str("; known text formats are");
        for (format, _) in &reasons {
            message.push_str(&format!(" {format} ({}),", format.layout()));
        }
        message.pop();
    } else {
        message.push_str(&format!("; {}", near.join("; ")));
    }
    Err(message)
}

/// Whether a line is the head of an iolog, perhaps of a version that nobody here knows.
fn is_fio_head(line: &[u8]) -> bool {
    line.trim_ascii().starts_with(b"fio version ")
}

/// Whether a line may have been meant for a format.
fn is_near(format: FormatId, line: &[u8], columns: usize) -> bool {
    let has_commas = line.contains(&b',');
    match format {
        FormatId::Blkparse => looks_like_device(line),
        FormatId::Csv => has_commas && !looks_like_device(line),
        _ => format_columns(format) == Some(columns) && has_commas == (format == FormatId::Msr),
    }
}

/// How many columns a format has, where that is always the same.
fn format_columns(format: FormatId) -> Option<usize> {
    match format {
        FormatId::Content => Some(10),
        FormatId::Fiu => Some(9),
        FormatId::Msr => Some(7),
        FormatId::Austere | FormatId::Ssdsim => Some(5),
        FormatId::Days | FormatId::ArcLis => Some(4),
        FormatId::Blkparse | FormatId::Fio | FormatId::Csv | FormatId::OracleGeneral | FormatId::BlockIds => None,
    }
}

/// Columns of a line: as many as commas make, or blanks where there are none.
fn columns_of(line: &[u8]) -> usize {
    match line.iter().filter(|&&byte| byte == b',').count() {
        0 => line.split(|byte| byte.is_ascii_whitespace()).filter(|column| !column.is_empty()).count(),
        commas => commas + 1,
    }
}

/// Whether most lines parse; else the first complaint and its line.
fn fit(parser: &mut Parser, lines: &[&[u8]]) -> Result<(), (usize, Complaint)> {
    match parser {
        Parser::Content(parser) => fit_lines(parser, lines),
        Parser::Days(parser) => fit_lines(parser, lines),
        Parser::Fiu(parser) => fit_lines(parser, lines),
        Parser::Austere(parser) => fit_lines(parser, lines),
        Parser::Msr(parser) => fit_lines(parser, lines),
        Parser::Blkparse(parser) => fit_lines(parser, lines),
        Parser::Fio(parser) => fit_lines(parser, lines),
        Parser::ArcLis(parser) => fit_lines(parser, lines),
        Parser::Ssdsim(parser) => fit_lines(parser, lines),
        Parser::Csv(parser) => fit_lines(parser, lines),
        Parser::OracleGeneral(_) | Parser::BlockIds(_) => Err((0, Complaint::expected("binary records"))),
    }
}

fn fit_lines(parser: &mut impl LineFormat, lines: &[&[u8]]) -> Result<(), (usize, Complaint)> {
    let mut sink = Sink::new(None);
    let mut first = None;
    let mut bad = 0;
    for (at, line) in lines.iter().enumerate() {
        // A size or an address that cannot be is a bad request, not another format.
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

//! The log of decisions as lines of text: one event a line, and its answer after a colon.
//!
//! ```text
//! larder-decisions 1
//! opened nitro 4096 2097152 4096 64 64 112 90000 57344 1 0
//! read 17 0 8 : miss
//! open clean 17 00112233445566778899aabbccddeeff 1830 : slot 3
//! insert 17 clean 00112233445566778899aabbccddeeff packed 1830 : stored 3 64 1830
//! ```
//!
//! One blank separates the words of a line. Numbers are decimal, and sizes are in bytes. A
//! fingerprint has 32 hexadecimal digits; `-` stands for none. A sector bitmap has 64, bit `i` of
//! byte `i / 8` for sector `i`.
//!
//! | line | [`Event`] |
//! |---|---|
//! | `opened DESIGN CHUNK SLOT SECTOR HEADER ENTRY SLOTS MAPPINGS FINGERPRINTS SEGMENT FOUND [BUCKET CHUNKS]` | [`Opened`], its fields in their order |
//! | `read LBA FIRST END [held-back]` | a read; sectors `FIRST` to before `END` |
//! | `use LBA` | the use of a hit on flash, which other reads may have found beside it |
//! | `merge LBA [held-back]` | the lookup of a partial write |
//! | `look FINGERPRINT` | a look for content ahead of its insertion |
//! | `insert LBA clean\|SEQ zero` | zeroes are inserted |
//! | `insert LBA clean\|SEQ FINGERPRINT raw N\|packed N\|known` | a chunk is inserted |
//! | `fragment LBA SEQ SECTORS raw N\|packed N` | a fragment is stored |
//! | `change FIRST COUNT again\|gone` | the origin is about to be written |
//! | `forget LBA` | |
//! | `trim FIRST COUNT SEQ` | |
//! | `full clean\|dirty FINGERPRINT raw N\|packed N` | a record did not fit |
//! | `open clean\|dirty LBA FINGERPRINT BYTES` | a slot is opened for a record of `BYTES` |
//! | `told SLOT` | a metadata slot was read |
//! | `taken SEGMENT` | one is about to be written |
//! | `settled LBA durable\|gone` | one may name a clean chunk, or need not |
//! | `committed SEQ` | they may name writes below this number |
//! | `commit needed\|all` | |
//! | `reuse LBA` | slots that were freed ahead go for a chunk |
//! | `seal`, `sweep`, `choose`, `evict`, `release`, `fault` | |
//! | `written SEGMENT` | |
//! | `drop some\|all MAX` | |
//! | `clean LBA SEQ` | |
//! | `clean-run FIRST COUNT SEQ` | |
//!
//! Answers: `miss`, `zero`, `hit SLOT OFFSET BYTES`, `stored SLOT OFFSET BYTES`, `slot SLOT`,
//! `none`, `count N`. A line without an answer has none, or none was noted.
//!
//! Invariants: a written event reads back as the same event, and a parsed line is written as the
//! same line.
//!
//! It does not split a file into lines.

use larder_core::{
    Fingerprint, Lba, SectorMap, SlotId, StreamClass,
    decisions::{Answer, BucketLayout, Event, NewContent, Opened, Spot, Stored},
    design::Wanted,
};
use std::fmt::{Display, Formatter, Result as FmtResult};

/// The first line of a log.
pub const FIRST_LINE: &str = "larder-decisions 1";
/// Maximum length of a line, in bytes.
pub const LINE_BYTES_MAX: usize = 512;

/// The largest chunk number.
const LBA_MAX: u64 = (1 << 40) - 1;

/// An event, an answer or a part of one, in the words of a line.
pub struct InWords<'a, T>(pub &'a T);

/// Bytes as digits.
struct Hex<'a>(&'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// An optional fingerprint.
struct Known<'a>(&'a Option<Fingerprint>);

impl Display for Known<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        match self.0 {
            Some(fingerprint) => Hex(&fingerprint.0).fmt(f),
            None => f.write_str("-"),
        }
    }
}

impl Display for InWords<'_, Stored> {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        write!(f, "{} {}", if self.0.raw { "raw" } else { "packed" }, self.0.bytes)
    }
}

impl Display for InWords<'_, Spot> {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        write!(f, "{} {} {}", self.0.slot.0, self.0.offset, self.0.bytes)
    }
}

fn class_name(class: StreamClass) -> &'static str {
    match class {
        StreamClass::Clean => "clean",
        StreamClass::Dirty => "dirty",
    }
}

fn write_opened(f: &mut Formatter<'_>, opened: &Opened) -> FmtResult {
    let o = opened;
    write!(f, "opened {} {} {} {} {}", o.design, o.chunk_bytes, o.slot_bytes, o.sector_bytes, o.header_bytes)?;
    write!(f, " {} {} {} {}", o.entry_bytes, o.slot_count, o.mappings_max, o.fp_entries_max)?;
    write!(f, " {} {}", o.first_segment, o.found)?;
    o.buckets.iter().try_for_each(|buckets| write!(f, " {} {}", buckets.slots, buckets.chunk_count))
}

fn write_insert(f: &mut Formatter<'_>, lba: Lba, content: &NewContent, dirty: Option<u64>) -> FmtResult {
    write!(f, "insert {} ", lba.0)?;
    match dirty {
        Some(seq) => write!(f, "{seq} ")?,
        None => f.write_str("clean ")?,
    }
    match content {
        NewContent::Zero => f.write_str("zero"),
        NewContent::Chunk { fingerprint, stored: Some(stored) } => {
            write!(f, "{} {}", Known(fingerprint), InWords(stored))
        }
        NewContent::Chunk { fingerprint, stored: None } => write!(f, "{} known", Known(fingerprint)),
    }
}

impl Display for InWords<'_, Event> {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let held = |held_back: &bool| if *held_back { " held-back" } else { "" };
        match self.0 {
            Event::Opened(opened) => write_opened(f, opened),
            Event::Read { lba, first, end, held_back } => {
                write!(f, "read {} {first} {end}{}", lba.0, held(held_back))
            }
            Event::Use { lba } => write!(f, "use {}", lba.0),
            Event::Merge { lba, held_back } => write!(f, "merge {}{}", lba.0, held(held_back)),
            Event::Look { fingerprint } => write!(f, "look {}", Hex(&fingerprint.0)),
            Event::Insert { lba, content, dirty } => write_insert(f, *lba, content, *dirty),
            Event::Fragment { lba, sectors, stored, seq } => {
                write!(f, "fragment {} {seq} {} {}", lba.0, Hex(&sectors.to_bytes()), InWords(stored))
            }
            Event::Change { first, count, again } => {
                write!(f, "change {} {count} {}", first.0, if *again { "again" } else { "gone" })
            }
            Event::Forget { lba } => write!(f, "forget {}", lba.0),
            Event::Trim { first, count, seq } => write!(f, "trim {} {count} {seq}", first.0),
            Event::Full { class, fingerprint, stored } => {
                write!(f, "full {} {} {}", class_name(*class), Known(fingerprint), InWords(stored))
            }
            Event::Open { class, wanted: Wanted { lba, fingerprint, stored_len } } => {
                write!(f, "open {} {} {} {stored_len}", class_name(*class), lba.0, Known(fingerprint))
            }
            Event::Told { slot } => write!(f, "told {}", slot.0),
            Event::Taken { segment } => write!(f, "taken {segment}"),
            Event::Settled { lba, is_durable } => {
                write!(f, "settled {} {}", lba.0, if *is_durable { "durable" } else { "gone" })
            }
            Event::Committed { upto } => write!(f, "committed {upto}"),
            Event::Commit { all } => write!(f, "commit {}", if *all { "all" } else { "needed" }),
            Event::Seal => f.write_str("seal"),
            Event::Written { segment } => write!(f, "written {segment}"),
            Event::Sweep => f.write_str("sweep"),
            Event::Drop { all, max } => write!(f, "drop {} {max}", if *all { "all" } else { "some" }),
            Event::Choose => f.write_str("choose"),
            Event::Keep { slot } => write!(f, "keep {}", slot.0),
            Event::Refuse { wanted: Wanted { lba, fingerprint, stored_len } } => {
                write!(f, "refuse {} {} {stored_len}", lba.0, Known(fingerprint))
            }
            Event::Evict => f.write_str("evict"),
            Event::Release => f.write_str("release"),
            Event::Reuse { lba } => write!(f, "reuse {}", lba.0),
            Event::Clean { lba, seq } => write!(f, "clean {} {seq}", lba.0),
            Event::CleanRun { first, count, seq } => write!(f, "clean-run {} {count} {seq}", first.0),
            Event::Fault => f.write_str("fault"),
        }
    }
}

impl Display for InWords<'_, Answer> {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        match self.0 {
            Answer::Done => f.write_str("nothing"),
            Answer::Miss => f.write_str("miss"),
            Answer::Zero => f.write_str("zero"),
            Answer::Hit(spot) => write!(f, "hit {}", InWords(spot)),
            Answer::Stored(spot) => write!(f, "stored {}", InWords(spot)),
            Answer::Slot(slot) => write!(f, "slot {}", slot.0),
            Answer::NoSlot => f.write_str("none"),
            Answer::Count(count) => write!(f, "count {count}"),
        }
    }
}

/// Formats an event and its answer as a line.
pub fn line(event: &Event, answer: &Answer) -> String {
    match answer {
        Answer::Done => InWords(event).to_string(),
        answer => format!("{} : {}", InWords(event), InWords(answer)),
    }
}

/// Parses the event of line `number` (counted from 1, for errors) and its answer, if it has one.
///
/// # Errors
/// One sentence that names the line, the expected word and the actual one.
pub fn parse(number: u64, line: &str) -> Result<(Event, Option<Answer>), String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("line {number}: it has {} bytes; a line has {LINE_BYTES_MAX} at most", line.len()));
    }
    let (event, answer) = match line.split_once(" : ") {
        Some((event, answer)) => (event, Some(answer)),
        None => (line, None),
    };
    let event = Words::of(number, event).all(Words::event)?;
    let answer = answer.map(|answer| Words::of(number, answer).all(Words::answer)).transpose()?;
    Ok((event, answer))
}

/// The words of a line.
struct Words<'a> {
    number: u64,
    rest: Option<&'a str>,
}

impl<'a> Words<'a> {
    fn of(number: u64, text: &'a str) -> Self {
        Words { number, rest: Some(text) }
    }

    fn all<T>(mut self, take: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        let taken = take(&mut self)?;
        match self.rest {
            None => Ok(taken),
            Some(rest) => Err(self.wrong("the end of the line", rest)),
        }
    }

    fn wrong(&self, expected: &str, found: &str) -> String {
        let found: String = found.chars().take(40).collect();
        format!("line {}: expected {expected}, found {found:?}", self.number)
    }

    fn next(&mut self, expected: &str) -> Result<&'a str, String> {
        let Some(rest) = self.rest else {
            return Err(format!("line {}: expected {expected}, found the end of the line", self.number));
        };
        let (word, rest) = rest.split_once(' ').map_or((rest, None), |(word, rest)| (word, Some(rest)));
        self.rest = rest;
        Ok(word)
    }

    fn number<T: TryFrom<u64>>(&mut self, expected: &str) -> Result<T, String> {
        let word = self.next(expected)?;
        self.number_in(word, expected)
    }

    fn number_in<T: TryFrom<u64>>(&self, word: &str, expected: &str) -> Result<T, String> {
        // Each number has one spelling: no sign, no leading zeroes.
        let is_plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
        let number = word.parse::<u64>().ok().filter(|_| is_plain).and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| self.wrong(expected, word))
    }

    fn lba(&mut self) -> Result<Lba, String> {
        let expected = "the number of a chunk";
        let word = self.next(expected)?;
        match self.number_in(word, expected)? {
            lba if lba <= LBA_MAX => Ok(Lba(lba)),
            _ => Err(self.wrong(expected, word)),
        }
    }

    /// Reads one of two words; returns whether it is the first.
    fn either(&mut self, yes: &str, no: &str) -> Result<bool, String> {
        let expected = format!("`{yes}` or `{no}`");
        match self.next(&expected)? {
            word if word == yes => Ok(true),
            word if word == no => Ok(false),
            word => Err(self.wrong(&expected, word)),
        }
    }

    fn held_back(&mut self) -> Result<bool, String> {
        match self.rest {
            None => Ok(false),
            Some("held-back") => {
                self.rest = None;
                Ok(true)
            }
            Some(rest) => Err(self.wrong("`held-back` or the end of the line", rest)),
        }
    }

    fn class(&mut self) -> Result<StreamClass, String> {
        Ok(if self.either("clean", "dirty")? { StreamClass::Clean } else { StreamClass::Dirty })
    }

    fn hex<const N: usize>(&self, word: &str, expected: &str) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        let digits = word.as_bytes();
        let digit = |at: usize| match digits.get(at) {
            Some(digit @ b'0'..=b'9') => Some(digit - b'0'),
            Some(digit @ b'a'..=b'f') => Some(digit - b'a' + 10),
            _ => None,
        };
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = match (digit(2 * i), digit(2 * i + 1)) {
                (Some(high), Some(low)) if digits.len() == 2 * N => high << 4 | low,
                _ => return Err(self.wrong(expected, word)),
            };
        }
        Ok(bytes)
    }

    fn fingerprint(&mut self) -> Result<Option<Fingerprint>, String> {
        let expected = "a fingerprint of 32 hexadecimal digits, or `-`";
        match self.next(expected)? {
            "-" => Ok(None),
            word => self.hex(word, expected).map(|bytes| Some(Fingerprint(bytes))),
        }
    }

    fn stored(&mut self) -> Result<Stored, String> {
        let raw = self.either("raw", "packed")?;
        Ok(Stored { raw, bytes: self.number("a number of bytes")? })
    }

    fn content(&mut self) -> Result<NewContent, String> {
        if self.rest == Some("zero") {
            self.rest = None;
            return Ok(NewContent::Zero);
        }
        let fingerprint = self.fingerprint()?;
        if self.rest == Some("known") {
            self.rest = None;
            return Ok(NewContent::Chunk { fingerprint, stored: None });
        }
        Ok(NewContent::Chunk { fingerprint, stored: Some(self.stored()?) })
    }

    fn dirty(&mut self) -> Result<Option<u64>, String> {
        let expected = "`clean` or the number of a write";
        match self.next(expected)? {
            "clean" => Ok(None),
            word => self.number_in(word, expected).map(Some),
        }
    }

    fn opened(&mut self) -> Result<Opened, String> {
        Ok(Opened {
            design: self.next("the name of a design")?.to_owned(),
            chunk_bytes: self.number("the size of a chunk")?,
            slot_bytes: self.number("the size of a slot")?,
            sector_bytes: self.number("the size of a sector")?,
            header_bytes: self.number("the size of a segment's header")?,
            entry_bytes: self.number("the size of an entry of a segment's table")?,
            slot_count: self.number("a number of slots")?,
            mappings_max: self.number("a number of mappings")?,
            fp_entries_max: self.number("a number of fingerprints")?,
            first_segment: self.number("the number of a segment")?,
            found: self.number("a number of chunks and slots")?,
            buckets: self.rest.is_some().then(|| self.buckets()).transpose()?,
        })
    }

    fn buckets(&mut self) -> Result<BucketLayout, String> {
        Ok(BucketLayout {
            slots: self.number("a number of slots of a bucket")?,
            chunk_count: self.number("a number of chunks")?,
        })
    }

    fn wanted(&mut self) -> Result<Wanted, String> {
        Ok(Wanted { lba: self.lba()?, fingerprint: self.fingerprint()?, stored_len: self.number("a number of bytes")? })
    }

    fn event(&mut self) -> Result<Event, String> {
        let seq = "the number of a write";
        Ok(match self.next("an event")? {
            "opened" => Event::Opened(self.opened()?),
            "read" => Event::Read {
                lba: self.lba()?,
                first: self.number("a sector of a chunk")?,
                end: self.number("a sector of a chunk")?,
                held_back: self.held_back()?,
            },
            "use" => Event::Use { lba: self.lba()? },
            "merge" => Event::Merge { lba: self.lba()?, held_back: self.held_back()? },
            "look" => {
                let word = self.next("a fingerprint")?;
                Event::Look { fingerprint: Fingerprint(self.hex(word, "a fingerprint of 32 hexadecimal digits")?) }
            }
            "insert" => Event::Insert { lba: self.lba()?, dirty: self.dirty()?, content: self.content()? },
            "fragment" => {
                let (lba, seq, word) = (self.lba()?, self.number(seq)?, self.next("a sector bitmap")?);
                let bytes = self.hex(word, "a sector bitmap of 64 hexadecimal digits")?;
                Event::Fragment { lba, seq, sectors: SectorMap::from_bytes(&bytes), stored: self.stored()? }
            }
            "change" => Event::Change {
                first: self.lba()?,
                count: self.number("a number of chunks")?,
                again: self.either("again", "gone")?,
            },
            "forget" => Event::Forget { lba: self.lba()? },
            "trim" => {
                Event::Trim { first: self.lba()?, count: self.number("a number of chunks")?, seq: self.number(seq)? }
            }
            "full" => Event::Full { class: self.class()?, fingerprint: self.fingerprint()?, stored: self.stored()? },
            "open" => Event::Open { class: self.class()?, wanted: self.wanted()? },
            "told" => Event::Told { slot: SlotId(self.number("the number of a slot")?) },
            "settled" => Event::Settled { lba: self.lba()?, is_durable: self.either("durable", "gone")? },
            "committed" => Event::Committed { upto: self.number(seq)? },
            "taken" => Event::Taken { segment: self.number("the number of a segment")? },
            "commit" => Event::Commit { all: self.either("all", "needed")? },
            "seal" => Event::Seal,
            "written" => Event::Written { segment: self.number("the number of a segment")? },
            "sweep" => Event::Sweep,
            "drop" => Event::Drop { all: self.either("all", "some")?, max: self.number("a number of chunks")? },
            "choose" => Event::Choose,
            "keep" => Event::Keep { slot: SlotId(self.number("the number of a slot")?) },
            "refuse" => Event::Refuse { wanted: self.wanted()? },
            "evict" => Event::Evict,
            "release" => Event::Release,
            "reuse" => Event::Reuse { lba: self.lba()? },
            "clean" => Event::Clean { lba: self.lba()?, seq: self.number(seq)? },
            "clean-run" => Event::CleanRun {
                first: self.lba()?,
                count: self.number("a number of chunks")?,
                seq: self.number(seq)?,
            },
            "fault" => Event::Fault,
            word => return Err(self.wrong("an event", word)),
        })
    }

    fn spot(&mut self) -> Result<Spot, String> {
        Ok(Spot {
            slot: SlotId(self.number("the number of a slot")?),
            offset: self.number("an offset in a slot")?,
            bytes: self.number("a number of bytes")?,
        })
    }

    fn answer(&mut self) -> Result<Answer, String> {
        Ok(match self.next("an answer")? {
            "miss" => Answer::Miss,
            "zero" => Answer::Zero,
            "hit" => Answer::Hit(self.spot()?),
            "stored" => Answer::Stored(self.spot()?),
            "slot" => Answer::Slot(SlotId(self.number("the number of a slot")?)),
            "none" => Answer::NoSlot,
            "count" => Answer::Count(self.number("a number")?),
            word => return Err(self.wrong("an answer", word)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn lines_read_back_as_they_were_written() {
        let sectors = "ff".repeat(32);
        let lines = [
            "opened nitro 4096 2097152 4096 64 64 112 90000 57344 1 0".to_owned(),
            "opened austere 8192 4096 4096 0 0 240 2000 240 1 0 32 20000".into(),
            "read 17 0 8 : miss".into(),
            "use 17 : slot 3".into(),
            "read 1099511627775 3 4 held-back : hit 3 64 1830".into(),
            "merge 17 : zero".into(),
            "merge 17 held-back".into(),
            format!("look {F} : miss"),
            "insert 17 clean zero".into(),
            format!("insert 17 clean {F} packed 1830 : stored 3 64 1830"),
            format!("insert 17 12 {F} known : hit 3 64 1830"),
            "insert 17 12 - raw 4096 : stored 3 4096 4096".into(),
            format!("fragment 17 13 {sectors} packed 77 : stored 3 64 77"),
            "change 5 3 again : count 0".into(),
            "change 5 3 gone".into(),
            "forget 5".into(),
            "trim 0 16384 14".into(),
            format!("full dirty {F} raw 4096"),
            "full clean - packed 1".into(),
            format!("open clean 17 {F} 1830 : slot 4"),
            "open dirty 17 - 4096 : none".into(),
            "told 12 : hit 12 0 1830".into(),
            "told 4294967295 : miss".into(),
            "taken 77 : slot 12".into(),
            "settled 17 durable".into(),
            "settled 17 gone".into(),
            "committed 5".into(),
            "commit all".into(),
            "commit needed : count 4096".into(),
            "seal".into(),
            "written 18446744073709551615 : count 8192".into(),
            "sweep : count 3".into(),
            "drop some 100 : count 7".into(),
            "drop all 0".into(),
            "choose : slot 0".into(),
            "evict : none".into(),
            "release : slot 0".into(),
            "clean 17 12 : count 1".into(),
            "clean-run 0 16384 14".into(),
            "fault".into(),
        ];
        for text in lines {
            let (event, answer) = parse(1, &text).unwrap();
            assert_eq!(line(&event, &answer.unwrap_or(Answer::Done)), text);
        }
    }

    #[test]
    fn what_is_no_event_is_refused_with_its_line() {
        for (text, sentence) in [
            ("", "line 7: expected an event, found \"\""),
            ("reed 1", "line 7: expected an event, found \"reed\""),
            ("read 1 0", "line 7: expected a sector of a chunk, found the end of the line"),
            ("read 1 0 70000", "line 7: expected a sector of a chunk, found \"70000\""),
            ("read  1 0 8", "line 7: expected the number of a chunk, found \"\""),
            ("read 01 0 8", "line 7: expected the number of a chunk, found \"01\""),
            ("forget 1099511627776", "line 7: expected the number of a chunk, found \"1099511627776\""),
            ("read +1 0 8", "line 7: expected the number of a chunk, found \"+1\""),
            ("read 1 0 8 back", "line 7: expected `held-back` or the end of the line, found \"back\""),
            ("open clean 1 - ", "line 7: expected a number of bytes, found \"\""),
            ("told 4294967296", "line 7: expected the number of a slot, found \"4294967296\""),
            (
                "opened austere 8192 4096 4096 0 0 240 2000 240 1 0 32",
                "line 7: expected a number of chunks, found the end of the line",
            ),
            ("seal ", "line 7: expected the end of the line, found \"\""),
            ("look 00", "line 7: expected a fingerprint of 32 hexadecimal digits, found \"00\""),
            ("insert 1 dirty zero", "line 7: expected `clean` or the number of a write, found \"dirty\""),
            ("insert 1 clean - big 7", "line 7: expected `raw` or `packed`, found \"big\""),
            ("commit : maybe", "line 7: expected `all` or `needed`, found the end of the line"),
            ("seal : maybe", "line 7: expected an answer, found \"maybe\""),
            ("seal : count 1 2", "line 7: expected the end of the line, found \"2\""),
            (
                "clean-run 0 1 18446744073709551616",
                "line 7: expected the number of a write, found \"18446744073709551616\"",
            ),
        ] {
            assert_eq!(parse(7, text).unwrap_err(), sentence);
        }
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        assert_eq!(parse(7, &long).unwrap_err(), "line 7: it has 513 bytes; a line has 512 at most");
    }

    #[test]
    fn no_line_panics() {
        // Every prefix of a line, and every prefix with one changed byte.
        let full = format!("insert 17 12 {F} packed 1830 : stored 3 64 1830");
        for at in 0..full.len() {
            let _ = parse(1, &full[..at]);
            for byte in [" ", ":", "0", "-", "z", "\u{e9}", "\t"] {
                let changed = format!("{}{byte}{}", &full[..at], &full[at + 1..]);
                if let Ok((event, answer)) = parse(1, &changed) {
                    assert_eq!(line(&event, &answer.unwrap_or(Answer::Done)), changed);
                }
            }
        }
    }
}

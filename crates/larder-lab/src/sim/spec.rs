//! Caches in the command line's notation: sizes, designs with own options, parameters of a sweep.
//!
//! Invariants: a complaint names the right form.
//!
//! It does not check whether a design has an option; `larder_sim::setup` does.

use crate::args::ModeArg;
use clap::ValueEnum;
use larder::size;
use larder_sim::{
    cache::WritePolicy,
    report::{METRICS, drive, time},
    setup::{Accounting, FlashAmount, Granularity, Options, Orphans, ReplayDesign, Setup},
};

/// The requests before counting begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// So many requests of chunks.
    Requests(u64),
    /// This share of them, in percent.
    Percent(f64),
}

/// A design, with options of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct DesignSpec {
    /// The design.
    pub design: &'static ReplayDesign,
    /// The options behind its name.
    pub changes: Vec<Change>,
}

/// One set option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Bytes of a chunk.
    Chunk(u32),
    /// The time at which writes reach the origin.
    Mode(WritePolicy),
    /// Contents are stored once.
    Dedup(bool),
    /// Chunks are stored compressed.
    Compress(bool),
    /// Bytes of a subchunk.
    Subchunk(u32),
    /// Addresses that the cache can know.
    LbaEntries(u64),
    /// Bytes of RAM for the index.
    Ram(u64),
    /// Bytes of a WEU.
    Weu(u32),
    /// Size of the FP index in percent.
    FpIndex(u8),
    /// The unit of eviction.
    Granularity(Granularity),
    /// The fate of data without an address.
    Orphans(Orphans),
    /// The costs that are charged.
    Accounting(Accounting),
}

impl Change {
    /// Sets it.
    pub fn apply(self, setup: &mut Setup) {
        let Options {
            dedup,
            compress,
            subchunk_bytes,
            lba_entries,
            ram_bytes,
            weu_bytes,
            fp_index_percent,
            granularity,
            orphans,
            accounting,
            drive: _,
        } = &mut setup.options;
        match self {
            Change::Chunk(bytes) => setup.chunk_bytes = bytes,
            Change::Mode(policy) => setup.policy = policy,
            Change::Dedup(on) => *dedup = Some(on),
            Change::Compress(on) => *compress = Some(on),
            Change::Subchunk(bytes) => *subchunk_bytes = Some(bytes),
            Change::LbaEntries(entries) => *lba_entries = Some(entries),
            Change::Ram(bytes) => *ram_bytes = Some(bytes),
            Change::Weu(bytes) => *weu_bytes = Some(bytes),
            Change::FpIndex(percent) => *fp_index_percent = Some(percent),
            Change::Granularity(what) => *granularity = Some(what),
            Change::Orphans(what) => *orphans = Some(what),
            Change::Accounting(what) => *accounting = Some(what),
        }
    }

    fn parse(name: &str, value: &str) -> Result<Change, String> {
        let with_name = |why: String| format!("{name}: {why}");
        let parsed = match name {
            "chunk" => size::parse_chunk(value).map(Change::Chunk),
            "mode" => mode(value).map(Change::Mode),
            "dedup" => switch(value).map(Change::Dedup),
            "compress" => switch(value).map(Change::Compress),
            "subchunk" => bytes(value).map(Change::Subchunk),
            "lba-entries" => crate::args::request_count(value).map(Change::LbaEntries),
            "ram" => ram(value).map(Change::Ram),
            "weu" => size::parse_weu(value).map(Change::Weu),
            "fp-index" => percent(value).map(Change::FpIndex),
            "granularity" => granularity(value).map(Change::Granularity),
            "orphans" => orphans(value).map(Change::Orphans),
            "accounting" => accounting(value).map(Change::Accounting),
            _ => return Err(format!("{name}: the options are {}", CHANGES.join(", "))),
        };
        parsed.map_err(with_name)
    }
}

/// Names that [`Change::parse`] takes.
const CHANGES: [&str; 12] = [
    "chunk",
    "mode",
    "dedup",
    "compress",
    "subchunk",
    "lba-entries",
    "ram",
    "weu",
    "fp-index",
    "granularity",
    "orphans",
    "accounting",
];

/// An option and the values that a sweep gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The option's name.
    pub name: String,
    /// Its values, as written and as parsed.
    pub values: Vec<(String, Change)>,
}

/// Parses `subchunk=1K,2K,4K`.
pub fn parameter(text: &str) -> Result<Parameter, String> {
    let (name, values) = text.split_once('=').ok_or("write OPTION=VALUE,VALUE, as in subchunk=2K,4K")?;
    if matches!(name, "ram" | "flash") {
        return Err(format!("{name} has an option of its own: --{name} {values}"));
    }
    let parse = |value: &str| Ok((value.to_owned(), Change::parse(name, value)?));
    let values = values.split(',').map(parse).collect::<Result<Vec<_>, String>>()?;
    Ok(Parameter { name: name.to_owned(), values })
}

/// Parses `nitro:dedup=off:fp-index=50`.
pub fn design(text: &str) -> Result<DesignSpec, String> {
    let mut pieces = text.split(':');
    let design = ReplayDesign::named(pieces.next().unwrap_or_default())?;
    let changes = pieces.map(|piece| {
        let (name, value) =
            piece.split_once('=').ok_or("behind a design write :OPTION=VALUE, as in nitro:dedup=off")?;
        match name {
            // The replayed trace must be the same for all designs side by side.
            "chunk" => Err("chunk: all designs have the same; write --chunk".to_owned()),
            _ => Change::parse(name, value),
        }
    });
    Ok(DesignSpec { design, changes: changes.collect::<Result<Vec<_>, String>>()? })
}

/// Parses `64M`, `10%` or `5000c`.
pub fn flash(text: &str) -> Result<FlashAmount, String> {
    let too_small = || "a flash of nothing caches nothing: write a size above 0".to_owned();
    let amount = if let Some(share) = text.strip_suffix('%') {
        let percent = share.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
        FlashAmount::PercentOfWorkingSet(percent.ok_or("a share of the working set is a number and %, as in 10%")?)
    } else if let Some(chunks) = text.strip_suffix('c') {
        FlashAmount::DataChunks(chunks.parse().map_err(|_| "data chunks are a whole number and c, as in 5000c")?)
    } else {
        let wrong = "write bytes (64M), a share of the working set (10%), or data chunks (5000c)";
        FlashAmount::Bytes(size::parse(text).map_err(|_| wrong)?)
    };
    match amount {
        FlashAmount::Bytes(0) | FlashAmount::DataChunks(0) => Err(too_small()),
        FlashAmount::PercentOfWorkingSet(0.0) => Err(too_small()),
        amount => Ok(amount),
    }
}

/// Parses a RAM budget.
pub fn ram(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        0 => Err("a RAM budget is above 0; leave it out for none".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Parses bytes that fit 32 bits, at least 1.
pub fn bytes(text: &str) -> Result<u32, String> {
    let bytes = u32::try_from(size::parse(text)?).map_err(|_| "that is too large; a chunk is the most".to_owned())?;
    if bytes == 0 { Err("write a size above 0".to_owned()) } else { Ok(bytes) }
}

/// Parses 0 to 100, with % or without.
pub fn percent(text: &str) -> Result<u8, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| "write a whole number of percent from 0 to 100".to_owned())
}

/// Parses one of a closed list, by its name.
fn one_of<T: Copy>(text: &str, known: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    known.iter().copied().find(|&one| name(one) == text).ok_or_else(|| {
        let names: Vec<&str> = known.iter().copied().map(name).collect();
        format!("write one of {}", names.join(", "))
    })
}

/// Parses `weu` or `extent`.
pub fn granularity(text: &str) -> Result<Granularity, String> {
    one_of(text, &[Granularity::Weu, Granularity::Extent], Granularity::name)
}

/// Parses `keep` or `forget`.
pub fn orphans(text: &str) -> Result<Orphans, String> {
    one_of(text, &[Orphans::Keep, Orphans::Forget], Orphans::name)
}

/// Parses `engine` or `paper`.
pub fn accounting(text: &str) -> Result<Accounting, String> {
    one_of(text, &[Accounting::Engine, Accounting::Paper], Accounting::name)
}

/// Parses `100000` or `20%`.
pub fn warmup(text: &str) -> Result<Warmup, String> {
    let wrong = || "write a number of requests, or a share of them from 0% to 100%".to_owned();
    match text.strip_suffix('%') {
        Some(share) => {
            let percent = share.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
            percent.map(Warmup::Percent).ok_or_else(wrong)
        }
        None => text.parse().map(Warmup::Requests).map_err(|_| wrong()),
    }
}

/// Parses the name of a figure.
pub fn metric(text: &str) -> Result<&'static str, String> {
    let names = || METRICS.iter().map(|(name, _)| *name);
    names().find(|name| *name == text).ok_or_else(|| {
        // A name that begins with a drive, or with time, means one of its figures.
        let is_near = |name: &&str| {
            [drive::PREFIX, time::PREFIX].iter().all(|prefix| name.starts_with(prefix) == text.starts_with(prefix))
        };
        format!("write one of {}", names().filter(is_near).collect::<Vec<_>>().join(", "))
    })
}

fn switch(text: &str) -> Result<bool, String> {
    one_of(text, &[true, false], |on| if on { "on" } else { "off" })
}

fn mode(text: &str) -> Result<WritePolicy, String> {
    let mode = ModeArg::from_str(text, false).map_err(|_| "write one of write-back, write-through, write-around")?;
    Ok(policy(mode))
}

/// Returns the write policy of a mode.
pub fn policy(mode: ModeArg) -> WritePolicy {
    match mode {
        ModeArg::Back => WritePolicy::Back,
        ModeArg::Through => WritePolicy::Through,
        ModeArg::Around => WritePolicy::Around,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_is_bytes_a_share_or_chunks() {
        assert_eq!(flash("64M"), Ok(FlashAmount::Bytes(64 << 20)));
        assert_eq!(flash("12.5%"), Ok(FlashAmount::PercentOfWorkingSet(12.5)));
        assert_eq!(flash("5000c"), Ok(FlashAmount::DataChunks(5000)));
        for text in ["", "x", "-1", "10 %", "NaN%", "-3%", "inf%", "1.5c", "c", "0", "0c", "0%", "5000C"] {
            assert!(flash(text).is_err(), "{text}");
        }
        assert_eq!((warmup("20%"), warmup("7")), (Ok(Warmup::Percent(20.0)), Ok(Warmup::Requests(7))));
        for text in ["", "101%", "-1", "NaN%", "x%"] {
            assert!(warmup(text).is_err(), "{text}");
        }
    }

    #[test]
    fn designs_and_parameters_have_options_by_name() {
        let spec = design("nitro:dedup=off:fp-index=50%:ram=4M:mode=write-around").expect("a design");
        let policy = WritePolicy::Around;
        assert_eq!(
            spec.changes,
            [Change::Dedup(false), Change::FpIndex(50), Change::Ram(4 << 20), Change::Mode(policy)]
        );
        let mut setup = Setup {
            design: spec.design,
            chunk_bytes: 4096,
            flash: FlashAmount::Bytes(1 << 30),
            policy: WritePolicy::Back,
            options: Options::default(),
        };
        spec.changes.iter().for_each(|change| change.apply(&mut setup));
        assert_eq!((setup.label().as_str(), setup.policy), ("nitro:dedup=off:ram=4M:fp-index=50", policy));
        let swept = parameter("subchunk=2K,4K").expect("a parameter");
        assert_eq!(
            swept.values,
            [("2K".to_owned(), Change::Subchunk(2048)), ("4K".to_owned(), Change::Subchunk(4096))]
        );
        for name in CHANGES {
            assert!(Change::parse(name, "?").unwrap_err().starts_with(name), "{name}");
        }
        for (text, words) in
            [("flash=1M", "--flash 1M"), ("ram=1M", "--ram 1M"), ("wings=2", "granularity"), ("weu", "OPTION=")]
        {
            assert!(parameter(text).unwrap_err().contains(words), "{text}");
        }
        for (text, words) in [("fast", "there are larder"), ("lru:x", ":OPTION=VALUE"), ("lru:chunk=8K", "--chunk")] {
            assert!(design(text).unwrap_err().contains(words), "{text}");
        }
    }
}

//! The formats, one file each. A text format parses a line, a binary one a record of fixed length; both put what they
//! find into the [`Sink`](crate::sink::Sink).
//!
//! Invariants: parsers keep no more than a few words of state, so that a trace of any length streams.
//!
//! What it does not do: read, unpack, count lines or skip what is bad; `reader.rs` does that for all.

pub(crate) mod arc_lis;
pub(crate) mod austere;
pub(crate) mod blkparse;
pub(crate) mod block_ids;
pub(crate) mod content;
pub(crate) mod csv;
pub(crate) mod days;
pub(crate) mod fio;
pub(crate) mod fiu;
pub(crate) mod msr;
pub(crate) mod oracle_general;
pub(crate) mod ssdsim;

use std::{fmt, str::FromStr};

use crate::{
    error::{Complaint, TraceError},
    sink::Sink,
};

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FormatId {
    /// Our ten columns: `time_us request tag lba sectors R|W|T|F 0 0 fingerprint lz4_bytes`.
    Content,
    /// Daily images: `day block fingerprint lz4_bytes`.
    Days,
    /// FIU IODedup: `ts_ns pid process lba sectors R|W major minor md5`, one MD5 for 4 KiB or for each 512 B.
    Fiu,
    /// AustereCache: `address length R|W sha1 compression_ratio`.
    Austere,
    /// MSR Cambridge: `timestamp,host,disk,Read|Write,offset,size,response_time`.
    Msr,
    /// The default output of `blkparse`.
    Blkparse,
    /// fio iolog, version 2 or 3.
    Fio,
    /// ARC's block references: `first_page pages ignored request`.
    ArcLis,
    /// SSDsim and MQSim: `time_ns device lba sectors 0|1`.
    Ssdsim,
    /// libCacheSim csv with a header that names its columns.
    Csv,
    /// libCacheSim oracleGeneral: 24 bytes a request.
    OracleGeneral,
    /// Bare little-endian u32 block numbers.
    BlockIds,
}

impl FormatId {
    /// All formats, in the order in which detection tries them: the strict ones first.
    pub const ALL: [FormatId; 12] = [
        FormatId::Content,
        FormatId::Days,
        FormatId::Fiu,
        FormatId::Austere,
        FormatId::Msr,
        FormatId::Fio,
        FormatId::Blkparse,
        FormatId::Csv,
        FormatId::Ssdsim,
        FormatId::ArcLis,
        FormatId::OracleGeneral,
        FormatId::BlockIds,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            FormatId::Content => "content",
            FormatId::Days => "days",
            FormatId::Fiu => "fiu",
            FormatId::Austere => "austere",
            FormatId::Msr => "msr",
            FormatId::Blkparse => "blkparse",
            FormatId::Fio => "fio",
            FormatId::ArcLis => "arc-lis",
            FormatId::Ssdsim => "ssdsim",
            FormatId::Csv => "csv",
            FormatId::OracleGeneral => "oracle-general",
            FormatId::BlockIds => "block-ids",
        }
    }

    /// What a line or record of it holds, for help and errors.
    pub fn layout(self) -> &'static str {
        match self {
            FormatId::Content => "time_us request tag lba sectors R|W|T|F 0 0 fingerprint lz4_bytes",
            FormatId::Days => "day block fingerprint lz4_bytes",
            FormatId::Fiu => "ts_ns pid process lba sectors R|W major minor md5",
            FormatId::Austere => "address length R|W sha1 compression_ratio",
            FormatId::Msr => "timestamp,host,disk,Read|Write,offset,size,response_time",
            FormatId::Blkparse => "blkparse's lines: 8,0 cpu sequence seconds pid action rwbs sector + sectors",
            FormatId::Fio => "\"fio version 2 iolog\" or \"fio version 3 iolog\" in the first line",
            FormatId::ArcLis => "first_page pages ignored request",
            FormatId::Ssdsim => "time_ns device lba sectors 0|1",
            FormatId::Csv => "a header that names columns: time,op,size,lbn",
            FormatId::OracleGeneral => "24 bytes: u32 time, u64 id, u32 size, i64 next",
            FormatId::BlockIds => "u32 block numbers",
        }
    }

    /// Whether the format has fingerprints.
    pub fn has_content(self) -> bool {
        matches!(self, FormatId::Content | FormatId::Days | FormatId::Fiu | FormatId::Austere)
    }

    /// Whether the format is binary.
    pub fn is_binary(self) -> bool {
        matches!(self, FormatId::OracleGeneral | FormatId::BlockIds)
    }
}

impl fmt::Display for FormatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FormatId {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<FormatId, TraceError> {
        FormatId::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            let names: Vec<&str> = FormatId::ALL.iter().map(|format| format.name()).collect();
            TraceError::parameter(format!("no trace format {name:?}; there are {}", names.join(", ")))
        })
    }
}

/// Bytes of a sector, the unit of most addresses.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// A format of text lines.
pub(crate) trait LineFormat {
    /// Takes one line, which may hold no request at all.
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint>;
}

/// A format of binary records.
pub(crate) trait BinaryFormat {
    /// Bytes of a record.
    const RECORD_BYTES: usize;

    /// Takes one record of that many bytes.
    fn record(&mut self, bytes: &[u8], sink: &mut Sink) -> Result<(), Complaint>;
}

/// A parser with its state.
pub(crate) enum Parser {
    Content(content::ContentLines),
    Days(days::Days),
    Fiu(fiu::Fiu),
    Austere(austere::Austere),
    Msr(msr::Msr),
    Blkparse(blkparse::Blkparse),
    Fio(fio::Fio),
    ArcLis(arc_lis::ArcLis),
    Ssdsim(ssdsim::Ssdsim),
    Csv(csv::Csv),
    OracleGeneral(oracle_general::OracleGeneral),
    BlockIds(block_ids::BlockIds),
}

impl Parser {
    /// A parser at the beginning of a trace. `block_bytes`: what a block number stands for, where the format does not say;
    /// `action`: the action of blkparse that counts.
    pub fn new(format: FormatId, block_bytes: Option<u32>, action: u8) -> Parser {
        match format {
            FormatId::Content => Parser::Content(content::ContentLines),
            FormatId::Days => Parser::Days(days::Days),
            FormatId::Fiu => Parser::Fiu(fiu::Fiu),
            FormatId::Austere => Parser::Austere(austere::Austere),
            FormatId::Msr => Parser::Msr(msr::Msr::default()),
            FormatId::Blkparse => Parser::Blkparse(blkparse::Blkparse::new(action)),
            FormatId::Fio => Parser::Fio(fio::Fio::default()),
            FormatId::ArcLis => Parser::ArcLis(arc_lis::ArcLis::new(block_bytes)),
            FormatId::Ssdsim => Parser::Ssdsim(ssdsim::Ssdsim::default()),
            FormatId::Csv => Parser::Csv(csv::Csv::new(block_bytes)),
            FormatId::OracleGeneral => Parser::OracleGeneral(oracle_general::OracleGeneral::new(block_bytes)),
            FormatId::BlockIds => Parser::BlockIds(block_ids::BlockIds::new(block_bytes)),
        }
    }
}

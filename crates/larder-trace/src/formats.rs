//! The formats, one file each.
//!
//! A text format parses a line, a binary format a record of fixed length. Both put their records
//! into the [`Sink`](crate::sink::Sink).
//!
//! Invariants: parsers keep a few words of state, and the names of devices or files, so that a
//! trace of any length streams.
//!
//! It does not read, unpack, count lines or skip bad input. It leaves this to `reader.rs`, for all
//! formats.

pub(crate) mod alibaba;
pub(crate) mod arc_lis;
pub(crate) mod austere;
pub(crate) mod blkparse;
pub(crate) mod block_ids;
pub mod columns;
pub(crate) mod content;
pub(crate) mod csv;
pub(crate) mod days;
pub(crate) mod fio;
pub(crate) mod fiu;
pub(crate) mod msr;
pub(crate) mod oracle_general;
pub(crate) mod rows;
pub(crate) mod scsi;
pub(crate) mod spc;
pub(crate) mod ssdsim;
pub(crate) mod systor17;
pub(crate) mod tencent;
pub(crate) mod vscsi;

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
    /// FIU IODedup: `ts_ns pid process lba sectors R|W major minor md5`. One MD5 is for 4 KiB or
    /// for each 512 B.
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
    /// A virtual SCSI disk, version 1: 32 bytes a request.
    Vscsi1,
    /// A virtual SCSI disk, version 2: 40 bytes a request.
    Vscsi2,
    /// Alibaba: `device_id,opcode,offset,length,timestamp`.
    Alibaba,
    /// Tencent: `timestamp,offset,size,io_type,volume_id`.
    Tencent,
    /// SYSTOR '17: `Timestamp,Response,IOType,LUN,Offset,Size`.
    Systor17,
    /// UMass, in the format of the Storage Performance Council: `asu,lba,size,opcode,timestamp`.
    Spc,
    /// Rows whose columns [the caller names](columns::Columns).
    Columns,
}

impl FormatId {
    /// All formats, in the order of their candidates: the strict ones first.
    pub const ALL: [FormatId; 19] = [
        FormatId::Content,
        FormatId::Days,
        FormatId::Fiu,
        FormatId::Austere,
        FormatId::Msr,
        FormatId::Fio,
        FormatId::Blkparse,
        FormatId::Csv,
        FormatId::Systor17,
        FormatId::Alibaba,
        FormatId::Spc,
        FormatId::Tencent,
        FormatId::Ssdsim,
        FormatId::ArcLis,
        FormatId::Vscsi1,
        FormatId::Vscsi2,
        FormatId::OracleGeneral,
        FormatId::BlockIds,
        FormatId::Columns,
    ];

    /// Returns the name on the command line.
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
            FormatId::Vscsi1 => "vscsi1",
            FormatId::Vscsi2 => "vscsi2",
            FormatId::Alibaba => "alibaba",
            FormatId::Tencent => "tencent",
            FormatId::Systor17 => "systor17",
            FormatId::Spc => "spc",
            FormatId::Columns => "columns",
        }
    }

    /// Returns the fields of a line or record, for help and errors.
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
            FormatId::Vscsi1 => "32 bytes: u32 serial, bytes, pieces, u16 command, version, u64 sector, microseconds",
            FormatId::Vscsi2 => {
                "40 bytes: u16 command, version, u32 serial, bytes, pieces, u64 sector, microseconds, response"
            }
            FormatId::Alibaba => "device_id,R|W,offset,length,microseconds",
            FormatId::Tencent => "seconds,sector,sectors,0|1,volume_id",
            FormatId::Systor17 => "Timestamp,Response,IOType,LUN,Offset,Size",
            FormatId::Spc => "asu,sector,bytes,R|W,seconds",
            FormatId::Columns => "what --columns says",
        }
    }

    /// Returns whether the format has fingerprints.
    pub fn has_content(self) -> bool {
        matches!(self, FormatId::Content | FormatId::Days | FormatId::Fiu | FormatId::Austere)
    }

    /// Returns whether the format is binary.
    pub fn is_binary(self) -> bool {
        matches!(self, FormatId::OracleGeneral | FormatId::BlockIds | FormatId::Vscsi1 | FormatId::Vscsi2)
    }

    /// Returns whether `--unit` gives the block size that a block number counts in.
    pub fn counts_blocks(self) -> bool {
        matches!(self, FormatId::ArcLis | FormatId::BlockIds | FormatId::Csv | FormatId::OracleGeneral)
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
    /// True if the reader passes over lines that begin with `#`.
    const HAS_COMMENTS: bool = true;

    /// Takes one line, which may hold no request.
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint>;
}

/// A format of binary records.
pub(crate) trait BinaryFormat {
    /// Bytes of a record.
    const RECORD_BYTES: usize;

    /// Takes one record of `RECORD_BYTES` bytes.
    fn record(&mut self, bytes: &[u8], sink: &mut Sink) -> Result<(), Complaint>;
}

/// A parser with its state.
pub(crate) enum Parser {
    Content(content::ContentLines),
    Days(days::Days),
    Fiu(fiu::Fiu),
    Austere(austere::Austere),
    Blkparse(blkparse::Blkparse),
    Fio(fio::Fio),
    ArcLis(arc_lis::ArcLis),
    Ssdsim(ssdsim::Ssdsim),
    /// All formats with one request a row.
    Rows(rows::Rows),
    OracleGeneral(oracle_general::OracleGeneral),
    BlockIds(block_ids::BlockIds),
    Vscsi1(vscsi::Vscsi<{ vscsi::V1_BYTES }>),
    Vscsi2(vscsi::Vscsi<{ vscsi::V2_BYTES }>),
}

/// The options of a parser beside the format.
#[derive(Clone, Copy)]
pub(crate) struct ParserOptions {
    /// The block size that a block number counts in, if the format has none of its own.
    pub block_bytes: Option<u32>,
    /// The action of blkparse that counts.
    pub action: u8,
    /// The columns, if the caller names them.
    pub columns: Option<columns::Columns>,
}

impl Parser {
    /// Makes a parser at the beginning of a trace. `None` if the caller has to name columns.
    pub fn new(format: FormatId, options: ParserOptions) -> Option<Parser> {
        let ParserOptions { block_bytes, action, columns } = options;
        Some(match format {
            FormatId::Content => Parser::Content(content::ContentLines),
            FormatId::Days => Parser::Days(days::Days),
            FormatId::Fiu => Parser::Fiu(fiu::Fiu),
            FormatId::Austere => Parser::Austere(austere::Austere),
            FormatId::Msr => Parser::Rows(msr::rows()),
            FormatId::Blkparse => Parser::Blkparse(blkparse::Blkparse::new(action)),
            FormatId::Fio => Parser::Fio(fio::Fio::new()),
            FormatId::ArcLis => Parser::ArcLis(arc_lis::ArcLis::new(block_bytes)),
            FormatId::Ssdsim => Parser::Ssdsim(ssdsim::Ssdsim::new()),
            FormatId::Csv => Parser::Rows(csv::rows(block_bytes)),
            FormatId::OracleGeneral => Parser::OracleGeneral(oracle_general::OracleGeneral::new(block_bytes)),
            FormatId::BlockIds => Parser::BlockIds(block_ids::BlockIds::new(block_bytes)),
            FormatId::Vscsi1 => Parser::Vscsi1(vscsi::Vscsi),
            FormatId::Vscsi2 => Parser::Vscsi2(vscsi::Vscsi),
            FormatId::Alibaba => Parser::Rows(alibaba::rows()),
            FormatId::Tencent => Parser::Rows(tencent::rows()),
            FormatId::Systor17 => Parser::Rows(systor17::rows()),
            FormatId::Spc => Parser::Rows(spc::rows()),
            FormatId::Columns => Parser::Rows(columns::rows(&columns?)),
        })
    }
}

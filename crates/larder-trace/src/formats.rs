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
mod id;
mod kinds;
pub(crate) mod msr;
pub(crate) mod oracle_general;
pub(crate) mod rows;
pub(crate) mod scsi;
pub(crate) mod spc;
pub(crate) mod ssdsim;
pub(crate) mod systor17;
pub(crate) mod tencent;
pub(crate) mod vscsi;

pub use id::FormatId;
pub(crate) use kinds::{BinaryFormat, LineFormat, SECTOR_BYTES};

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

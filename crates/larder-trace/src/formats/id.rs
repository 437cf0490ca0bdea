//! The names of the formats, and the facts of each.
//!
//! It does not parse.

use crate::error::TraceError;
use std::{fmt, str::FromStr};

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
    /// Rows whose columns [the caller names](super::columns::Columns).
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
            FormatId::Columns => "as --columns says",
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

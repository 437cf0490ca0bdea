//! A run as data: the parts of the world, and the events of each of its lives.
//!
//! A *life* is one opening of the cache, with its requests, its faults, and its end.
//!
//! Invariants: executing the same plan gives the same run; the order of completions is in the plan,
//! as a seed.
//!
//! It does not draw plans ([`crate::draw`]), execute them ([`crate::life`]), or make them smaller
//! ([`crate::shrink`]).

use crate::content::Fill;
use larder_device::{IoErrorKind, IoOp};
use larder_engine::Tuning;
use larder_format::{Compression, DesignId, WriteMode};
use std::fmt;

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub shape: Shape,
    pub lives: Vec<Life>,
}

/// The parts of a world.
#[derive(Clone, Debug)]
pub struct Shape {
    pub design: DesignId,
    pub chunk_bytes: u32,
    pub slot_bytes: u32,
    pub flash_bytes: u64,
    pub origin_bytes: u64,
    pub origin_sector_bytes: u32,
    /// True if a discarded range reads as zeroes: on the flash, and on the origin.
    pub discard_zeroes: [bool; 2],
    /// The flash's own sector: frames and segments are padded to it.
    pub flash_physical_sector_bytes: u32,
    pub mode: WriteMode,
    pub compression: Compression,
    pub dedup: bool,
    pub fp_index_percent: u8,
    /// The length in bytes that the flash, and the origin, write at once or not at all.
    pub tear_bytes: [u32; 2],
    /// True if a fence can be kept off the flash.
    pub fence: bool,
    /// The bytes of the wear budget that are left beside its reserve on a new flash, if it has one.
    ///
    /// No time passes that would give some back.
    pub wear_left: Option<u64>,
    pub tuning: Tuning,
}

/// One opening of the cache.
#[derive(Clone, Debug)]
pub struct Life {
    /// The seed for the order of all completions.
    pub schedule_seed: u64,
    /// Dirty data behind a fence may be dropped.
    pub discard_fenced: bool,
    /// The whole volume is read before all other requests.
    pub check_first: bool,
    /// The whole volume is read after all other requests.
    pub check_last: bool,
    pub clients: Vec<Client>,
    /// The operator's requests, each after so many requests of clients have begun.
    pub operator: Vec<(usize, OperatorOp)>,
    pub faults: Vec<Fault>,
    pub end: End,
}

/// A client: its requests, begun in this order, so many in flight at once.
#[derive(Clone, Debug)]
pub struct Client {
    pub depth: usize,
    pub ops: Vec<Op>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Op {
    /// Unique in the plan, and not 0.
    pub number: u32,
    pub what: What,
    /// The client goes away after so many looks for the answer.
    pub gives_up_after: Option<u32>,
}

/// Sectors of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub at: usize,
    pub count: usize,
}

impl Run {
    pub fn end(&self) -> usize {
        self.at + self.count
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug)]
pub enum What {
    Read(Run),
    Write { run: Run, fill: Fill, fua: bool },
    Zero { run: Run, no_hole: bool, fua: bool },
    Trim(Run),
    Flush,
}

/// A request of an operator to an open cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorOp {
    DestageAll,
    Checkpoint,
    SetMode(WriteMode),
    Settle,
    /// Ends the cache while requests are in flight.
    Close,
    /// Detaches the cache for ever.
    Detach,
}

/// A moment of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Before this step of the scheduler.
    Step(u64),
    /// The moment before the last of so many changes takes effect.
    ///
    /// The changes are writes, flushes, discards and zeroings, counted when they are submitted.
    Change(u64),
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Flash,
    Origin,
}

/// A fault, and its moment.
#[derive(Clone, Debug)]
pub struct Fault {
    pub at: At,
    pub what: FaultKind,
}

/// A kind of fault.
///
/// Places are in parts of 2^16 of the device or region, so that a plan needs no layout.
#[derive(Clone, Copy, Debug)]
pub enum FaultKind {
    /// Operations fail, everywhere or in a range of this start and length.
    ///
    /// They fail so often, or for the rest of the life.
    Fail {
        device: Device,
        op: IoOp,
        kind: IoErrorKind,
        range: Option<(u16, u16)>,
        times: u64,
    },
    /// The device is gone for the rest of the life, or until it is back.
    Gone(Device),
    Back(Device),
    /// The device takes no write to a place that holds nothing yet.
    Full(Device),
    /// One operation takes that long, in microseconds of the scheduler's clock.
    Slow(Device, u64),
    /// One write of the flash goes elsewhere.
    Misdirect {
        place: u16,
    },
    /// One write of the flash is lost.
    LoseWrite,
    /// One read of the flash brings other bits.
    Misread {
        seed: u64,
    },
    /// No fence can be kept.
    NoFence,
    /// Bits flip on the flash.
    Flip {
        region: Region,
        place: u16,
        seed: u64,
    },
}

/// A part of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    Twin(usize),
    Checkpoints,
    Log,
    Slots,
}

/// The end of a life.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub how: Ending,
    /// The moment of the end, unless the life is over before.
    pub at: Option<At>,
    /// The last step of the life: with a lasting fault nothing may change any more.
    pub latest: Option<u64>,
    /// The flash is replaced by an empty one afterwards.
    pub flash_lost: bool,
}

/// The kind of a life's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Closed, when all is done; then the power goes, or not.
    Close,
    /// The cache is dropped, and its process goes on.
    Drop,
    /// The process is killed.
    Kill,
    /// The power goes.
    PowerLoss,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.at, self.end())
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fua = |fua: bool| if fua { " (FUA)" } else { "" };
        write!(f, "{}: ", self.number)?;
        match self.what {
            What::Read(run) => write!(f, "read sectors {run}"),
            What::Flush => f.write_str("flush"),
            What::Trim(run) => write!(f, "trim sectors {run}"),
            What::Zero { run, fua: forced, .. } => write!(f, "zero sectors {run}{}", fua(forced)),
            What::Write { run, fill, fua: forced } => {
                let what = match fill {
                    Fill::Noise | Fill::Text => format!("v{}", self.number),
                    Fill::Pool(content) => format!("p{content}"),
                    Fill::Zeroes => "zeroes".to_owned(),
                };
                write!(f, "write sectors {run} = {what}{}", fua(forced))
            }
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::Fail { device, op, range, times, .. } => {
                let where_to = if range.is_some() { " of a range" } else { "" };
                match *times {
                    u64::MAX => write!(f, "from now on each {op:?}{where_to} on {device:?} fails"),
                    times => write!(f, "the next {times} {op:?}{where_to} on {device:?} fail"),
                }
            }
            FaultKind::Gone(device) => write!(f, "{device:?} is gone"),
            FaultKind::Back(device) => write!(f, "{device:?} is back"),
            FaultKind::Full(device) => write!(f, "{device:?} is full"),
            FaultKind::Slow(device, _) => write!(f, "an operation of {device:?} takes long"),
            FaultKind::Misdirect { .. } => f.write_str("the next write of the flash goes elsewhere"),
            FaultKind::LoseWrite => f.write_str("the next write of the flash is lost"),
            FaultKind::Misread { .. } => f.write_str("the next read of the flash brings other bits"),
            FaultKind::NoFence => f.write_str("no fence can be kept from now on"),
            FaultKind::Flip { region, .. } => write!(f, "bits flip in {region:?}"),
        }
    }
}

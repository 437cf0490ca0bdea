//! The sink of the parsers: one check of sizes, addresses and times for all formats.
//!
//! Invariants: every record that passes obeys the limits of `record.rs`, for any file. A time that
//! steps back is counted, and the record keeps its place in the file's order.
//!
//! It does not read or parse.

use hashbrown::HashMap;

use crate::{
    error::{Complaint, TraceErrorKind},
    record::{ADDRESS_MAX, Op, REQUEST_BYTES_MAX, Record},
};

/// Bytes of the region that each device or file of a trace gets, in the order of appearance.
const REGION_BYTES: u64 = 1 << 52;
/// The most devices or files of one trace.
const REGIONS_MAX: u64 = 256;
/// Bytes of the region that each of a cloud's many volumes gets.
const VOLUME_BYTES: u64 = 1 << 44;
const VOLUMES_MAX: u64 = 65_536;
const _: () = assert!(REGION_BYTES * REGIONS_MAX == ADDRESS_MAX && VOLUME_BYTES * VOLUMES_MAX == ADDRESS_MAX);

/// Times below the greatest time before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackSteps {
    /// Number of such records.
    pub count: u64,
    /// The greatest distance, in microseconds.
    pub worst_us: u64,
}

/// The greatest time so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    latest_us: u64,
    pub back_steps: BackSteps,
}

impl Clock {
    #[inline]
    pub fn observe(&mut self, time_us: u64) {
        if time_us < self.latest_us {
            self.back_steps.count += 1;
            self.back_steps.worst_us = self.back_steps.worst_us.max(self.latest_us - time_us);
        } else {
            self.latest_us = time_us;
        }
    }
}

/// Records of a few lines on their way to the caller.
pub(crate) struct Sink {
    pub records: Vec<Record>,
    pub clock: Clock,
    /// Requests of length 0 that were passed over.
    pub empty: u64,
    device_bytes: u64,
    requests: u64,
}

impl Sink {
    /// Makes a sink. No request may reach past `device_bytes`.
    pub fn new(device_bytes: Option<u64>) -> Sink {
        let device_bytes = device_bytes.unwrap_or(ADDRESS_MAX).min(ADDRESS_MAX);
        Sink { records: Vec::new(), clock: Clock::default(), empty: 0, device_bytes, requests: 0 }
    }

    /// Returns a number for the next request, from 1, if the format has none.
    pub fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Counts a request that moves no blocks, and so is none.
    pub fn pass_empty(&mut self) {
        self.empty += 1;
    }

    /// Takes a record, or returns a complaint about it.
    #[inline]
    pub fn push(&mut self, record: Record) -> Result<(), Complaint> {
        check(&record, self.device_bytes)?;
        if let Some(time_us) = record.time_us {
            self.clock.observe(time_us);
        }
        self.records.push(record);
        Ok(())
    }

    /// Takes a record of the device that has this region.
    pub fn push_in(&mut self, region: Region, mut record: Record) -> Result<(), Complaint> {
        check(&record, self.device_bytes.min(region.bytes))?;
        record.offset_bytes += region.base;
        if let Some(time_us) = record.time_us {
            self.clock.observe(time_us);
        }
        self.records.push(record);
        Ok(())
    }
}

const PAST_ADDRESS_MAX: &str = "expected a request that ends at byte 1152921504606846976 at most (1 EiB, Larder's largest address), \
     found one that reaches past it";
const PAST_REGION: &str = "expected a request that ends at byte 4503599627370496 of its device or file at most (4 PiB, Larder's largest address in this format), found one that reaches past it";
const PAST_VOLUME: &str = "expected a request that ends at byte 17592186044416 of its device at most (16 TiB, Larder's largest address in this format), found one that reaches past it";
const _: () = assert!(ADDRESS_MAX == 1_152_921_504_606_846_976 && REGION_BYTES == 4_503_599_627_370_496);
const _: () = assert!(VOLUME_BYTES == 17_592_186_044_416);

#[inline]
fn check(record: &Record, device_bytes: u64) -> Result<(), Complaint> {
    let complaint = |kind, expected| Err(Complaint { kind, expected });
    if record.op == Op::Flush {
        return Ok(());
    }
    if record.len_bytes == 0 {
        return Err(Complaint::ZERO_SIZE);
    }
    if record.len_bytes > REQUEST_BYTES_MAX && record.op != Op::Trim {
        return complaint(TraceErrorKind::TooLong, "expected a read or write of at most 1 GiB, found a longer one");
    }
    match record.offset_bytes.checked_add(record.len_bytes) {
        Some(end) if end <= device_bytes => Ok(()),
        _ if device_bytes == ADDRESS_MAX => complaint(TraceErrorKind::PastEnd, PAST_ADDRESS_MAX),
        _ if device_bytes == REGION_BYTES => complaint(TraceErrorKind::PastEnd, PAST_REGION),
        _ if device_bytes == VOLUME_BYTES => complaint(TraceErrorKind::PastEnd, PAST_VOLUME),
        _ => {
            complaint(TraceErrorKind::PastEnd, "expected a request on the device, found one that reaches past its end")
        }
    }
}

/// The part of the address space that a device or file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    base: u64,
    bytes: u64,
}

/// The devices or files of a trace, in the order of appearance.
pub(crate) struct Regions {
    names: HashMap<Box<[u8]>, u64>,
    region_bytes: u64,
}

impl Regions {
    /// Makes at most 256 regions, of 4 PiB.
    pub fn few() -> Regions {
        Regions { names: HashMap::new(), region_bytes: REGION_BYTES }
    }

    /// Makes at most 65,536 regions, of 16 TiB.
    pub fn many() -> Regions {
        Regions { region_bytes: VOLUME_BYTES, ..Regions::few() }
    }

    /// Returns the region of `name`.
    #[inline]
    pub fn region(&mut self, name: &[u8]) -> Result<Region, Complaint> {
        let number = match self.names.get(name) {
            Some(&known) => known,
            None => self.add(name)?,
        };
        Ok(Region { base: number * self.region_bytes, bytes: self.region_bytes })
    }

    fn add(&mut self, name: &[u8]) -> Result<u64, Complaint> {
        let next = self.names.len() as u64;
        if next == ADDRESS_MAX / self.region_bytes {
            return Err(Complaint::expected(match self.region_bytes {
                REGION_BYTES => "at most 256 devices or files in one trace",
                _ => "at most 65536 devices in one trace",
            }));
        }
        self.names.insert(name.into(), next);
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_for_every_record() {
        let mut sink = Sink::new(Some(1 << 30));
        let kind = |sink: &mut Sink, op, offset, len| sink.push(Record::new(1, op, offset, len)).map_err(|c| c.kind);
        assert_eq!(kind(&mut sink, Op::Read, 0, 0), Err(TraceErrorKind::ZeroSize));
        assert_eq!(kind(&mut sink, Op::Trim, 0, 0), Err(TraceErrorKind::ZeroSize));
        assert_eq!(kind(&mut sink, Op::Write, 0, (1 << 30) + 1), Err(TraceErrorKind::TooLong));
        assert_eq!(kind(&mut sink, Op::Write, 4096, 1 << 30), Err(TraceErrorKind::PastEnd));
        assert_eq!(kind(&mut sink, Op::Trim, u64::MAX, 2), Err(TraceErrorKind::PastEnd));
        assert_eq!(kind(&mut sink, Op::Write, 0, 1 << 30), Ok(()));
        assert_eq!(kind(&mut sink, Op::Flush, 0, 0), Ok(()));
        let mut sink = Sink::new(None);
        assert_eq!(kind(&mut sink, Op::Trim, 1, ADDRESS_MAX), Err(TraceErrorKind::PastEnd));
        assert_eq!(kind(&mut sink, Op::Trim, 0, ADDRESS_MAX), Ok(()));
    }

    #[test]
    fn regions_keep_devices_apart() {
        for (mut regions, bytes, most) in
            [(Regions::few(), REGION_BYTES, REGIONS_MAX), (Regions::many(), VOLUME_BYTES, VOLUMES_MAX)]
        {
            let bases = [&b""[..], b"b", b"", b"c", b"b"].map(|name| regions.region(name).expect("room").base / bytes);
            assert_eq!(bases, [0, 1, 0, 2, 1]);
            for at in 3..most {
                let region = regions.region(at.to_string().as_bytes()).expect("room");
                assert_eq!(region, Region { base: at * bytes, bytes });
            }
            assert!(regions.region(b"one more").is_err());
            assert_eq!(regions.region(b"c").expect("it is there").base, 2 * bytes);
        }
    }
}

//! Where parsers put their records: one check for all formats of sizes, addresses and times.
//!
//! Invariants: whatever a file says, what passes here obeys the limits of `record.rs`. A time that steps back is
//! counted, and the record stands where the file has it.
//!
//! What it does not do: read or parse.

use crate::{
    error::{Complaint, TraceErrorKind},
    record::{ADDRESS_MAX, Op, REQUEST_BYTES_MAX, Record},
};

/// Traces of several devices or files: each gets a region of the address space, in the order in which they appear.
pub(crate) const REGION_BYTES: u64 = 1 << 52;
/// Devices or files of one trace.
pub(crate) const REGIONS_MAX: usize = 256;

/// Times that are less than the greatest before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackSteps {
    /// How many records.
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
    device_bytes: u64,
    requests: u64,
}

impl Sink {
    /// `device_bytes`: no request may reach past it.
    pub fn new(device_bytes: Option<u64>) -> Sink {
        let device_bytes = device_bytes.unwrap_or(ADDRESS_MAX).min(ADDRESS_MAX);
        Sink { records: Vec::new(), clock: Clock::default(), device_bytes, requests: 0 }
    }

    /// A number for the next request, where the format has none: from 1.
    pub fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Takes a record, or says what is wrong with it.
    #[inline]
    pub fn push(&mut self, record: Record) -> Result<(), Complaint> {
        check(&record, self.device_bytes)?;
        if let Some(time_us) = record.time_us {
            self.clock.observe(time_us);
        }
        self.records.push(record);
        Ok(())
    }

    /// Takes a record of the device whose addresses begin at `base`.
    pub fn push_in(&mut self, base: u64, mut record: Record) -> Result<(), Complaint> {
        check(&record, self.device_bytes.min(REGION_BYTES))?;
        record.offset_bytes += base;
        if let Some(time_us) = record.time_us {
            self.clock.observe(time_us);
        }
        self.records.push(record);
        Ok(())
    }
}

const PAST_ADDRESS_MAX: &str = "expected a request that ends at byte 1152921504606846976 at most (1 EiB, the largest address that Larder takes), \
     found one that reaches past it";
const PAST_REGION: &str = "expected a request that ends at byte 4503599627370496 of its device or file at most (4 PiB, the largest address \
     that Larder takes in this format), found one that reaches past it";
const _: () = assert!(ADDRESS_MAX == 1_152_921_504_606_846_976 && REGION_BYTES == 4_503_599_627_370_496);

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
        _ => {
            complaint(TraceErrorKind::PastEnd, "expected a request on the device, found one that reaches past its end")
        }
    }
}

/// The devices or files of a trace, by the order in which they appear.
#[derive(Default)]
pub(crate) struct Regions {
    names: Vec<Box<[u8]>>,
    last: usize,
}

impl Regions {
    /// The first address of the region of `name`.
    #[inline]
    pub fn base(&mut self, name: &[u8]) -> Result<u64, Complaint> {
        if self.names.get(self.last).is_none_or(|last| &**last != name) {
            self.last = match self.names.iter().position(|known| &**known == name) {
                Some(at) => at,
                None if self.names.len() < REGIONS_MAX => {
                    self.names.push(name.into());
                    self.names.len() - 1
                }
                None => return Err(Complaint::expected("at most 256 devices or files in one trace")),
            };
        }
        Ok(self.last as u64 * REGION_BYTES)
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
        let mut regions = Regions::default();
        let bases = [&b"a"[..], b"b", b"a", b"c", b"b"].map(|name| regions.base(name).unwrap() / REGION_BYTES);
        assert_eq!(bases, [0, 1, 0, 2, 1]);
        for at in 0..REGIONS_MAX {
            let _ = regions.base(at.to_string().as_bytes());
        }
        assert!(regions.base(b"one more").is_err());
    }
}

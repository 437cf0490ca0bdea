//! Requests of a trace against a drive, at the trace's own pace or at full load.
//!
//! At full load, a fixed number of requests is outstanding.
//!
//! It does not keep answers; [`OperationTimes`] has the latencies.

use super::{Drive, DriveRequest, Nanos, OperationTimes};

/// Makes each request at its time. Requests that overlap wait for nothing but the drive.
pub fn at_own_pace(drive: &mut Drive, requests: impl IntoIterator<Item = (Nanos, DriveRequest)>) -> OperationTimes {
    for (at, request) in requests {
        drive.advance_to(at);
        drive.submit(request);
    }
    drive.finish();
    drive.times()
}

/// Makes each request as soon as fewer than `outstanding` are not over, at least one.
pub fn at_full_load(
    drive: &mut Drive,
    outstanding: usize,
    requests: impl IntoIterator<Item = DriveRequest>,
) -> OperationTimes {
    for request in requests {
        while drive.in_flight() >= outstanding.max(1) && drive.step() {}
        drive.submit(request);
    }
    drive.finish();
    drive.times()
}

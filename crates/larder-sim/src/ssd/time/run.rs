//! Requests of a trace against a drive: at the trace's own pace, or as fast as it goes with so many outstanding.
//!
//! What it does not do: keep what was answered; [`Times`] has how long it took.

use super::{Drive, Nanos, Request, Times};

/// Makes each request at its time. Those that come while others are not over wait for nothing but the drive.
pub fn at_own_pace(drive: &mut Drive, requests: impl IntoIterator<Item = (Nanos, Request)>) -> Times {
    for (at, request) in requests {
        drive.advance_to(at);
        drive.submit(request);
    }
    drive.finish();
    drive.times()
}

/// Makes each request as soon as fewer than `outstanding` are not over, at least one.
pub fn at_full_load(drive: &mut Drive, outstanding: usize, requests: impl IntoIterator<Item = Request>) -> Times {
    for request in requests {
        while drive.in_flight() >= outstanding.max(1) && drive.step() {}
        drive.submit(request);
    }
    drive.finish();
    drive.times()
}

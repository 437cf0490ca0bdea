//! The bytes of a disk on its platter, and the time of the arm to reach them.
//!
//! Bytes lie on one spiral from the outer to the inner edge, and turns further in hold fewer of
//! them. Track skew is perfect, so a sequential transfer never waits. A seek takes the time to the
//! next track, plus a term with the square root of its distance: the arm accelerates half the way.
//! The square root is of Ruemmler and Wilkes, who have a line for long seeks ("An Introduction to
//! Disk Drive Modeling", IEEE Computer 27(3), 1994). This model takes the root alone, from a
//! drive's mean seek. The mean of the root over two random places is 8/15, which fixes the curve by
//! its mean.
//!
//! Invariant: the angle under the head is that of the clock, a whole turn each
//! [`Platter::turn_ns`].
//!
//! It does not queue, or know requests.

use super::profile::DiskFigures;
use larder_ssd::time::Nanos;

/// A wait that misses a whole turn by less than this part of it is rounding.
const ANGLE_ROUNDING: f64 = 1e-5;

/// See the module.
pub struct Platter {
    turn_ns: f64,
    turn: Nanos,
    /// Bytes of the outermost turn.
    track_bytes: f64,
    /// Bytes by which turns shrink for each byte further in.
    shrink: f64,
    tracks: f64,
    seek_least_ns: f64,
    seek_slope_ns: f64,
}

impl Platter {
    /// Makes the platter of a disk of so many bytes, at least one turn of them.
    pub fn new(figures: &DiskFigures, size_bytes: u64) -> Platter {
        let turn = figures.turn_ns();
        let turn_seconds = turn as f64 / 1e9;
        let track_bytes = figures.outer_bytes_per_second as f64 * turn_seconds;
        let shrink = (track_bytes - figures.inner_bytes_per_second as f64 * turn_seconds) / size_bytes.max(1) as f64;
        let seek_least_ns = figures.seek_track_ns as f64;
        let seek_slope_ns = (figures.seek_mean_ns as f64 - seek_least_ns) * 15.0 / 8.0;
        let turn_ns = turn as f64;
        let mut platter = Platter { turn_ns, turn, track_bytes, shrink, tracks: 1.0, seek_least_ns, seek_slope_ns };
        platter.tracks = platter.turns_to(size_bytes).max(1.0);
        platter
    }

    /// Returns the nanoseconds of a turn.
    pub fn turn_ns(&self) -> Nanos {
        self.turn
    }

    /// Returns the turns of the spiral from the outer edge to a byte.
    pub fn turns_to(&self, offset: u64) -> f64 {
        match self.shrink > 0.0 {
            true => -(-self.shrink * offset as f64 / self.track_bytes).ln_1p() / self.shrink,
            false => offset as f64 / self.track_bytes,
        }
    }

    /// Returns the byte that lies this many turns from the outer edge.
    pub fn byte_at(&self, turns: f64) -> u64 {
        match self.shrink > 0.0 {
            true => (-(-self.shrink * turns).exp_m1() * self.track_bytes / self.shrink) as u64,
            false => (turns * self.track_bytes) as u64,
        }
    }

    /// Returns the nanoseconds in which the bytes between these turns pass the head.
    pub fn sweep_ns(&self, from: f64, to: f64) -> Nanos {
        ((to - from) * self.turn_ns) as Nanos
    }

    /// Returns the nanoseconds from `now` until a head over `from` is over `to`.
    ///
    /// It is the seek, and the rest of the turn.
    pub fn position_ns(&self, now: Nanos, from: f64, to: f64) -> Nanos {
        let distance = (from - to).abs();
        let seek = if from.floor() == to.floor() || distance < ANGLE_ROUNDING {
            0.0
        } else {
            self.seek_least_ns + self.seek_slope_ns * (distance / self.tracks).min(1.0).sqrt()
        };
        let arrival = (now % self.turn) as f64 + seek;
        let wait = (to - arrival / self.turn_ns).rem_euclid(1.0);
        let wait = if wait > 1.0 - ANGLE_ROUNDING { 0.0 } else { wait };
        (seek + wait * self.turn_ns) as Nanos
    }
}

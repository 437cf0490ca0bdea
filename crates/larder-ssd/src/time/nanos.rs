//! The unit of time.
//!
//! It keeps no time.

/// Nanoseconds: since the drive was switched on, or of a duration.
pub type Nanos = u64;

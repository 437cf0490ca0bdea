//! Values on the command line: from text to number.
//!
//! Invariants: a complaint names the allowed values.
//!
//! It leaves sizes, and the values of a cache's options, to `larder`.

/// Parses a share of 0 to 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share is a number from 0 to 1, as in 0.25".to_owned())
}

/// Parses a number that is not below 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "write a number of 0 or more, as in 2.5".to_owned())
}

/// Parses the factor of a generator's sizes.
pub(super) fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale: &f64| *scale > 0.0 && *scale <= 1000.0);
    scale.ok_or_else(|| "a scale is a number above 0 and up to 1000, as in 0.01".to_owned())
}

/// Parses a number of requests, or the number of one: from 1.
pub fn request_count(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "write a whole number from 1 on".to_owned())
}

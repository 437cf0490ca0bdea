//! A search for the largest cache within a limit.
//!
//! It does not know the limit.

/// Finds the largest number from 1 to `most` that `fits`, if 1 does.
///
/// If a number fits, every smaller one has to fit, too.
pub(super) fn largest(most: u64, mut fits: impl FnMut(u64) -> bool) -> Option<u64> {
    if most == 0 || !fits(1) {
        return None;
    }
    if fits(most) {
        return Some(most);
    }
    let (mut low, mut high) = (1, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_fits_is_found() {
        for most in 0..40 {
            for limit in 0..45 {
                let found = largest(most, |n| n <= limit);
                assert_eq!(found, Some(most.min(limit)).filter(|&n| n > 0), "{limit} of {most}");
            }
        }
    }
}

//! The prices of the cache: hits against bytes of flash, and the rent of a byte.
//!
//! A byte written has a [`Price`] in hits. A byte that stays pays a rent: the value that the last
//! victims took with them, for each byte that they freed.
//!
//! Invariants: a rent is an average of victims, 0 before the first.
//!
//! It does not know contents.

/// Hits that a written byte is worth at most.
const PRICE_MAX: f64 = 0.02 / 4096.0;
/// The share of reads from which a byte has that price.
const READ_SHARE_USUAL: f64 = 0.25;
/// The share of reads below which there is too little to win at any lower price.
const READ_SHARE_LEAST: f64 = 0.01;
/// Requests that the share of reads is of, at least and at most.
const REQUESTS_MIN: f64 = 16_384.0;
const REQUESTS_MAX: f64 = 262_144.0;
/// The share of an index by recency that a content has at least.
pub const RECENT_VALUE_SHARE: f64 = 0.02;
/// The weight of a victim in the rent.
const WEIGHT: f64 = 0.05;
/// The rents that a new record has to earn: it displaces others, which would go soon.
const ENTRY_RENTS: f64 = 3.0;
/// The value of a record that is stored again, in rents, under each rule.
const KEPT_RENTS: f64 = 1.5;
const KEPT_RENTS_RECENT: f64 = 4.0;

/// The price of a written byte.
///
/// A volume that is rarely read has few hits to win. At one price for all, it would store nothing.
/// A volume that is never read, as a target of backups, has to store nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Price {
    /// Reads among the last requests.
    read_share: f64,
    /// The number of these.
    requests: f64,
}

impl Price {
    /// Notes a request.
    #[inline]
    pub fn note(&mut self, is_read: bool) {
        self.requests = (self.requests + 1.0).min(REQUESTS_MAX);
        self.read_share += (f64::from(u8::from(is_read)) - self.read_share) / self.requests;
    }

    /// Returns the hits that a written byte is worth.
    #[inline]
    pub fn of_byte(&self) -> f64 {
        let is_cheaper = self.requests >= REQUESTS_MIN && self.read_share >= READ_SHARE_LEAST;
        PRICE_MAX * if is_cheaper { (self.read_share / READ_SHARE_USUAL).min(1.0) } else { 1.0 }
    }
}

/// The rents of a byte for each request, under each rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rents {
    recent: f64,
    chosen: f64,
}

impl Rents {
    /// Returns both rents.
    pub fn parts(&self) -> [f64; 2] {
        [self.recent, self.chosen]
    }

    /// Takes both rents back, if they are ones.
    pub fn restore(&mut self, [recent, chosen]: [f64; 2]) {
        if [recent, chosen].iter().all(|rent| rent.is_finite() && *rent >= 0.0) {
            *self = Rents { recent, chosen };
        }
    }

    /// Returns the rent of a byte.
    pub fn now(&self, keeps_recent: bool) -> f64 {
        if keeps_recent { self.recent } else { self.chosen }
    }

    /// Returns the rent that a new record is asked for.
    pub fn at_entry(&self, keeps_recent: bool) -> f64 {
        if keeps_recent { 0.0 } else { self.chosen * ENTRY_RENTS }
    }

    /// Returns the value of a byte from which a record outlives its slot.
    pub fn for_another_life(&self, keeps_recent: bool) -> f64 {
        if keeps_recent { self.recent * KEPT_RENTS_RECENT } else { self.chosen * KEPT_RENTS }
    }

    /// Notes that a victim lost this value for each byte that it freed.
    pub fn note(&mut self, keeps_recent: bool, lost: f64) {
        let rent = if keeps_recent { &mut self.recent } else { &mut self.chosen };
        *rent = if *rent == 0.0 { lost } else { *rent + (lost - *rent) * WEIGHT };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the price after many requests, one in `one_in` of which reads.
    fn after(requests: u32, one_in: u32) -> f64 {
        let mut price = Price::default();
        (0..requests).for_each(|at| price.note(at % one_in == 0));
        price.of_byte() / PRICE_MAX
    }

    #[test]
    fn hits_are_dearer_where_reads_are_rare() {
        assert_eq!(after(10_000, 50), 1.0, "too few requests tell nothing");
        assert_eq!(after(100_000, 2), 1.0, "half of the requests are usual");
        let rare = after(400_000, 50);
        assert!((0.07..0.12).contains(&rare), "one in 50 is a twelfth of one in four: {rare}");
        assert_eq!(after(800_000, 1000), 1.0, "one in 1,000 is next to none");
    }

    #[test]
    fn a_phase_of_writes_changes_little_in_a_volume_that_was_read() {
        let mut price = Price::default();
        (0..300_000).for_each(|_| price.note(true));
        (0..60_000).for_each(|_| price.note(false));
        assert_eq!(price.of_byte(), PRICE_MAX);
    }
}

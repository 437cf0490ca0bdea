//! The prices of the cache: hits against bytes of flash, and the rent of a byte.
//!
//! A byte written has the price of [`PRICE`] hits. A byte that stays pays a rent: the value that
//! the last victims took with them, for each byte that they freed.
//!
//! Invariants: a rent is an average of victims, 0 before the first.
//!
//! It does not know contents.

/// Hits that a written byte is worth.
pub const PRICE: f64 = 0.02 / 4096.0;
/// The share of an index by recency that a content has at least.
pub const RECENT_VALUE_SHARE: f64 = 0.02;
/// The weight of a victim in the rent.
const WEIGHT: f64 = 0.05;
/// The rents that a new record has to earn: it displaces others, which would go soon.
const ENTRY_RENTS: f64 = 3.0;
/// The value of a record that is stored again, in rents, under each rule.
const KEPT_RENTS: f64 = 1.5;
const KEPT_RENTS_RECENT: f64 = 4.0;

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

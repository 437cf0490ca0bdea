//! Parses fields and numbers of a line of bytes.
//!
//! Invariants: parsing allocates nothing, never panics, and needs no UTF-8. Numbers that overflow
//! 64 bits are refused, not wrapped.
//!
//! It does not know the meaning of a column.

use crate::{error::Complaint, record::ContentId};

/// A line and the place of the next column. Blanks or tabs separate columns.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Begins a line whose columns blanks or tabs separate.
    pub fn blanks(line: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: line }
    }

    /// Returns the bytes that were not taken yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the next column, `None` at the end of the line.
    #[inline]
    pub fn field(&mut self) -> Option<&'a [u8]> {
        self.skip_blanks();
        let len = self.rest.iter().position(|&byte| is_blank(byte)).unwrap_or(self.rest.len());
        let (field, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        (!field.is_empty()).then_some(field)
    }

    /// Returns the next column, or a complaint.
    #[inline]
    pub fn need(&mut self, expected: &'static str) -> Result<&'a [u8], Complaint> {
        self.field().ok_or(Complaint::expected(expected))
    }

    /// Returns the next column as a decimal number.
    #[inline]
    pub fn number(&mut self, expected: &'static str) -> Result<u64, Complaint> {
        self.skip_blanks();
        // Each digit is read once: the number ends at the end of the column.
        let mut value = 0u64;
        let mut rest = self.rest;
        let mut digits = 0;
        while let [byte @ b'0'..=b'9', tail @ ..] = rest {
            let digit = u64::from(byte - b'0');
            // 19 digits always fit.
            value = if digits < 19 {
                value * 10 + digit
            } else {
                value.checked_mul(10).and_then(|value| value.checked_add(digit)).ok_or(Complaint::expected(expected))?
            };
            digits += 1;
            rest = tail;
        }
        let ends = rest.first().is_none_or(|&byte| is_blank(byte));
        if digits == 0 || !ends {
            return Err(Complaint::expected(expected));
        }
        self.rest = rest;
        Ok(value)
    }

    /// Complains if anything but blanks is left.
    #[inline]
    pub fn end(&mut self, expected: &'static str) -> Result<(), Complaint> {
        self.skip_blanks();
        if self.rest.is_empty() { Ok(()) } else { Err(Complaint::expected(expected)) }
    }

    #[inline]
    fn skip_blanks(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }
}

#[inline]
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Parses a decimal number and nothing else.
pub(crate) fn decimal(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Parses seconds with up to nine digits after the point, in nanoseconds.
pub(crate) fn seconds_as_ns(field: &[u8]) -> Option<u64> {
    let (whole, billionths) = fixed_point(field)?;
    whole.checked_mul(1_000_000_000)?.checked_add(billionths)
}

/// Parses a time in units of `unit_ns` (at most a second), perhaps with a fraction, in
/// microseconds.
pub(crate) fn time_as_us(field: &[u8], unit_ns: u64) -> Option<u64> {
    let (whole, billionths) = fixed_point(field)?;
    let unit_ns = u128::from(unit_ns);
    let ns = u128::from(whole) * unit_ns + u128::from(billionths) * unit_ns / 1_000_000_000;
    u64::try_from(ns / 1000).ok()
}

/// Parses a number, perhaps with a fraction: the part before the point, and billionths.
fn fixed_point(field: &[u8]) -> Option<(u64, u64)> {
    let (whole, fraction) = match memchr::memchr(b'.', field) {
        Some(at) => (field.get(..at)?, field.get(at + 1..)?),
        None => (field, &b""[..]),
    };
    let mut billionths = 0;
    for at in 0..9 {
        let digit = match fraction.get(at) {
            Some(byte @ b'0'..=b'9') => u64::from(byte - b'0'),
            Some(_) => return None,
            None => 0,
        };
        billionths = billionths * 10 + digit;
    }
    if fraction.iter().any(|byte| !byte.is_ascii_digit()) {
        return None;
    }
    Some((decimal(whole)?, billionths))
}

/// Parses a ratio: digits, a point, digits; no sign, no exponent.
pub(crate) fn ratio(field: &[u8]) -> Option<f64> {
    let is_plain = field.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    if !is_plain || field.len() > 40 {
        return None;
    }
    std::str::from_utf8(field).ok()?.parse().ok()
}

const NO_DIGIT: u8 = 0xff;

/// The value of each hexadecimal digit, of either case.
static HEX: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = digit as u8;
        table[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
};

/// Parses 1 to 16 hexadecimal digits.
#[inline]
pub(crate) fn hex64(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let mut value = 0u64;
    // Bit 7 of any entry that is no digit stays in `seen`.
    let mut seen = 0u8;
    for &byte in digits {
        let digit = HEX.get(usize::from(byte)).copied().unwrap_or(NO_DIGIT);
        seen |= digit;
        value = value << 4 | u64::from(digit & 15);
    }
    (seen < 16).then_some(value)
}

/// Parses a fingerprint of 16 or 32 hexadecimal digits, or the first 32 of 40 (SHA-1).
#[inline]
pub(crate) fn fingerprint(digits: &[u8]) -> Option<ContentId> {
    match digits.len() {
        16 => Some(ContentId([0, hex64(digits)?])),
        32 => {
            let (high, low) = digits.split_at_checked(16)?;
            Some(ContentId([hex64(high)?, hex64(low)?]))
        }
        40 => {
            hex64(digits.get(32..)?)?;
            fingerprint(digits.get(..32)?)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_apart_by_blanks() {
        let mut cursor = Cursor::blanks(b"  12\tab  18446744073709551615 ");
        assert_eq!(cursor.number("n").unwrap(), 12);
        assert_eq!(cursor.field().unwrap(), b"ab");
        assert_eq!(cursor.number("n").unwrap(), u64::MAX);
        assert!(cursor.end("end").is_ok() && cursor.field().is_none());
        for bad in [&b""[..], b" ", b"-1", b"1x", b"18446744073709551616", b"99999999999999999999999", b"1.5"] {
            assert_eq!(Cursor::blanks(bad).number("n"), Err(Complaint::expected("n")), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn numbers_of_all_kinds() {
        assert_eq!(seconds_as_ns(b"12.000000345"), Some(12_000_000_345));
        assert_eq!(seconds_as_ns(b"0.5"), Some(500_000_000));
        assert_eq!(seconds_as_ns(b"3"), Some(3_000_000_000));
        assert_eq!(seconds_as_ns(b"1.0000000009"), Some(1_000_000_000));
        for bad in [&b"."[..], b"", b"1.x", b"1.000000000x", b"1e3", b"99999999999999999999.0"] {
            assert_eq!(seconds_as_ns(bad), None, "{}", bad.escape_ascii());
        }
        assert_eq!(time_as_us(b"1.0000019", 1_000_000_000), Some(1_000_001));
        assert_eq!(time_as_us(b"1577808144360767", 1000), Some(1_577_808_144_360_767));
        assert_eq!(time_as_us(b"2.5", 1_000_000), Some(2500));
        assert_eq!(time_as_us(b"128166372003061629", 100), Some(12_816_637_200_306_162));
        assert_eq!([time_as_us(b"18446744073709551615", 1_000_000_000), time_as_us(b"-1", 1)], [None; 2]);
        assert_eq!(ratio(b"2.045118"), Some(2.045118));
        assert_eq!([ratio(b"inf"), ratio(b"-1"), ratio(b"1e9"), ratio(b""), ratio(b".")], [None; 5]);
        assert_eq!(hex64(b"93d76fe148c689ba"), Some(0x93d7_6fe1_48c6_89ba));
        assert_eq!([hex64(b""), hex64(b"0g"), hex64(b"00000000000000000")], [None; 3]);
        let sha1 = fingerprint(b"d7e03103f071f8c0b630b4339ccfe98b07c38c67").unwrap();
        assert_eq!(sha1.to_string(), "d7e03103f071f8c0b630b4339ccfe98b");
        assert_eq!(fingerprint(b"d7e03103f071f8c0b630b4339ccfe98b07c38cxx"), None);
    }
}

//! Sizes: parsed from an operator's form, `8K`, `2M`, `1G`, and written for people.
//!
//! Sizes are binary, so 8K is 8192. It does not know the sizes that an option allows, apart from
//! those two that have a rule of their own.

use larder_format::size::SUFFIXES;
pub use larder_format::size::exact;

/// Parses a size: digits and at most one suffix of K, M, G, T, P, E, with or without `iB` behind
/// it.
///
/// # Errors
/// The form of a size.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || "a size is a whole number with K, M, G or T behind it, as in 8K, 2M or 1G".to_owned();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() {
        return Err(wrong());
    }
    let suffix = suffix.strip_suffix("iB").filter(|unit| !unit.is_empty()).unwrap_or(suffix);
    let shift = match suffix.as_bytes() {
        [] | [b'B'] => 0,
        [letter] => {
            let power = SUFFIXES.iter().position(|suffix| *suffix == letter.to_ascii_uppercase()).ok_or_else(wrong)?;
            10 * (power as u32 + 1)
        }
        _ => return Err(wrong()),
    };
    let too_large = || format!("no size is that large: the largest is {}", exact(1 << 62));
    let number: u64 = number.parse().map_err(|_| too_large())?;
    number.checked_mul(1 << shift).filter(|&bytes| bytes <= 1 << 62).ok_or_else(too_large)
}

/// Parses the size of a chunk.
///
/// # Errors
/// The sizes that a chunk may have.
pub fn parse_chunk(text: &str) -> Result<u32, String> {
    use larder_format::layout::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
    power_of_two(text, "a chunk", CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
}

/// Parses the size of a WEU.
///
/// # Errors
/// The sizes that a WEU may have.
pub fn parse_weu(text: &str) -> Result<u32, String> {
    use larder_format::layout::{WEU_BYTES_MAX, WEU_BYTES_MIN};
    power_of_two(text, "a WEU", WEU_BYTES_MIN, WEU_BYTES_MAX)
}

fn power_of_two(text: &str, what: &str, min: u32, max: u32) -> Result<u32, String> {
    let bytes = parse(text).ok().and_then(|bytes| u32::try_from(bytes).ok());
    bytes
        .filter(|bytes| bytes.is_power_of_two() && (min..=max).contains(bytes))
        .ok_or_else(|| format!("{what} is a power of two from {} to {}", exact(min.into()), exact(max.into())))
}

/// Writes a size for people, to about three digits: `1.50 GiB`.
pub fn human(bytes: u64) -> String {
    let power = (bytes.max(1).ilog2() / 10).min(SUFFIXES.len() as u32);
    match power.checked_sub(1).and_then(|at| SUFFIXES.get(at as usize)) {
        None => format!("{bytes} B"),
        Some(suffix) => {
            let value = bytes as f64 / f64::from(power * 10).exp2();
            let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
            format!("{value:.digits$} {}iB", *suffix as char)
        }
    }
}

/// Writes a count with its thousands apart: `12,345`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in
            [("0", 0), ("512", 512), ("8K", 8192), ("8k", 8192), ("2MiB", 2 << 20), ("1G", 1 << 30), ("3T", 3 << 40)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_no_size() {
        for text in ["", "K", "-1", "1.5G", "8X", "8KK", "iB", "8 K", "٣K", "99999999999999999999G", "16E"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn chunks_and_weus_have_rules() {
        assert_eq!(parse_chunk("8K"), Ok(8192));
        assert_eq!(parse_weu("512K"), Ok(512 << 10));
        for text in ["6000", "2K", "256K", "0", "many", "4G"] {
            assert_eq!(parse_chunk(text), Err("a chunk is a power of two from 4K to 128K".to_owned()), "{text}");
        }
        assert_eq!(parse_weu("3M"), Err("a WEU is a power of two from 512K to 4M".to_owned()));
    }

    #[test]
    fn sizes_are_printed_as_they_are_written() {
        assert_eq!(
            [human(0), human(999), human(1536), human(100 << 20), human(3 << 29)],
            ["0 B", "999 B", "1.50 KiB", "100 MiB", "1.50 GiB"]
        );
        assert_eq!([count(7), count(1234), count(1_234_567)], ["7", "1,234", "1,234,567"]);
        assert_eq!(human(u64::MAX), "16.0 EiB");
    }
}

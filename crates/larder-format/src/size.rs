//! Sizes in an operator's form: `8K`, `2M`, `1G`; binary, so 8K is 8192.
//!
//! Role: the one place that writes a size for a sentence that asks for another option value.
//!
//! It leaves reading them to the command line.

/// Suffixes, each 1024 times the one before.
pub const SUFFIXES: &[u8] = b"KMGTPE";

/// Writes a size as an option would name it, to the byte: `8K`, or `6000 bytes`.
pub fn exact(bytes: u64) -> String {
    let power = (bytes.trailing_zeros() / 10).min(SUFFIXES.len() as u32);
    match power.checked_sub(1).and_then(|at| SUFFIXES.get(at as usize)) {
        Some(suffix) if bytes > 0 => format!("{}{}", bytes >> (10 * power), *suffix as char),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_printed_as_they_are_written() {
        assert_eq!([exact(0), exact(6000), exact(8192), exact(3 << 29)], ["0 bytes", "6000 bytes", "8K", "1536M"]);
        assert_eq!([exact(1), exact(1 << 62), exact(u64::MAX)], ["1 bytes", "4E", "18446744073709551615 bytes"]);
    }
}

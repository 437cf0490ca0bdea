//! Made-up content for the tests: deterministic duplicates, text that compresses, noise, and holes.
//!
//! It deliberately takes nothing from the machine, so that a failure comes back with its seed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A small generator of numbers (xorshift64*), enough for content.
pub struct Numbers(u64);

impl Numbers {
    pub fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Returns bytes that neither compress nor repeat.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut numbers = Numbers::seeded(seed);
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        out.extend_from_slice(&numbers.next().to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// Returns words: they compress to less than half.
pub fn text(seed: u64, bytes: usize) -> Vec<u8> {
    const WORDS: &[&str] =
        &["flash", "origin", "chunk", "segment", "larder", "of", "the", "a", "written", "once", "and"];
    let mut numbers = Numbers::seeded(seed);
    let mut out = Vec::with_capacity(bytes + 32);
    while out.len() < bytes {
        let number = numbers.next();
        out.extend_from_slice(WORDS[(number % WORDS.len() as u64) as usize].as_bytes());
        out.extend_from_slice(format!(" {}\n", number >> 52).as_bytes());
    }
    out.truncate(bytes);
    out
}

/// Returns a disk image of 64 KiB pieces.
///
/// They are noise, text, copies of earlier pieces (some not aligned to a chunk), and holes.
pub fn disk(seed: u64, bytes: usize) -> Vec<u8> {
    const PIECE: usize = 64 << 10;
    let mut numbers = Numbers::seeded(seed);
    let mut out: Vec<u8> = Vec::with_capacity(bytes + PIECE);
    while out.len() < bytes {
        let number = numbers.next();
        match number % 5 {
            0 => out.extend(noise(number, PIECE)),
            1 => out.extend(text(number, PIECE)),
            2 => out.resize(out.len() + PIECE, 0),
            kind if out.len() > PIECE => {
                let from = numbers.below((out.len() - PIECE) as u64) as usize;
                let from = from & if kind == 3 { !(PIECE - 1) } else { !511 };
                out.extend_from_within(from..from + PIECE);
            }
            _ => out.extend(text(number, PIECE)),
        }
    }
    out.truncate(bytes);
    out
}

/// Fills a folder with some 200 files in folders, and a copy of all of them: about twice `bytes`.
pub fn tree(folder: &Path, seed: u64, bytes: u64) {
    let mut numbers = Numbers::seeded(seed);
    let each = bytes / 200;
    for number in 0..200_u64 {
        let part = folder.join(format!("first/part-{}", number % 9));
        fs::create_dir_all(&part).expect("a folder");
        let length = (numbers.below(2 * each) + 1) as usize;
        let content = if number % 3 == 0 { noise(seed + number, length) } else { text(seed + number, length) };
        fs::write(part.join(format!("file-{number}")), content).expect("a file");
    }
    fs::write(folder.join("first/empty"), b"").expect("an empty file");
    symlink("part-0/file-0", folder.join("first/link")).expect("a link");
    super::run(super::system("cp").arg("-a").arg(folder.join("first")).arg(folder.join("second")));
}

/// Returns one line a file: its checksum and its name, in order of names.
pub fn checksums(folder: &Path) -> String {
    let script = "find . -type f -print0 | sort -z | xargs -0 -r sha256sum";
    super::run(super::system("sh").args(["-c", script]).current_dir(folder))
}

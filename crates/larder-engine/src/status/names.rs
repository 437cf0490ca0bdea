//! The words of the status for modes and compressions.
//!
//! Invariants: programs may rely on them.
//!
//! It does not read a word.

use larder_format::{Compression, WriteMode};

/// Returns the name of a write mode on the command line.
pub fn mode_name(mode: WriteMode) -> &'static str {
    match mode {
        WriteMode::Back => "write-back",
        WriteMode::Through => "write-through",
        WriteMode::Around => "write-around",
    }
}

/// Returns the name of a compression on the command line.
pub fn compression_name(compression: Compression) -> &'static str {
    match compression {
        Compression::Off => "off",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    }
}

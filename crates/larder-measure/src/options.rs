//! The options of the command line.
//!
//! It does not read the command line.

use std::path::PathBuf;

/// See the module.
pub struct Options {
    /// The letters of the measurements; all without them.
    pub only: Option<Vec<char>>,
    /// Fewer and shorter rounds.
    pub quick: bool,
    /// Folder of scratch files; it exists.
    pub dir: PathBuf,
    /// The file of the rows.
    pub json: PathBuf,
}

impl Options {
    /// Returns the rounds of a comparison; odd, so that the median is one of them.
    pub fn rounds(&self) -> usize {
        if self.quick { 5 } else { 15 }
    }

    /// Returns `full`, or a quarter of it for a quick look.
    pub fn scaled(&self, full: usize) -> usize {
        if self.quick { full / 4 } else { full }
    }
}

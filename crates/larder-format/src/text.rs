//! Short texts with a fixed room on flash.

use crate::error::FormatError;
use core::fmt;

/// A text of at most `BYTES_MAX` bytes of UTF-8 without a zero byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Text<const BYTES_MAX: usize>(String);

/// The origin's URI, or its path.
pub type OriginUri = Text<1024>;

/// The path of a directory on the machine that serves.
pub type DirectoryPath = Text<512>;

/// The volume's name.
pub type VolumeName = Text<64>;

impl<const BYTES_MAX: usize> Text<BYTES_MAX> {
    /// Makes a text.
    ///
    /// # Errors
    /// [`FormatError::BadText`] when it is too long or holds a zero byte.
    pub fn new(text: impl Into<String>) -> Result<Self, FormatError> {
        let text = text.into();
        if text.len() > BYTES_MAX || text.as_bytes().contains(&0) {
            return Err(FormatError::BadText { bytes_max: BYTES_MAX });
        }
        Ok(Text(text))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns its bytes, padded with zeroes, and their number before padding.
    pub(crate) fn to_padded(&self) -> ([u8; BYTES_MAX], u16) {
        let mut padded = [0; BYTES_MAX];
        for (to, from) in padded.iter_mut().zip(self.0.bytes()) {
            *to = from;
        }
        (padded, self.0.len() as u16)
    }

    /// Returns the text in padded bytes, if it is one; the padding is not checked.
    pub(crate) fn from_padded(padded: &[u8; BYTES_MAX], len: u16) -> Option<Self> {
        let text = core::str::from_utf8(padded.get(..usize::from(len))?).ok()?;
        Text::new(text).ok()
    }
}

impl<const BYTES_MAX: usize> fmt::Display for Text<BYTES_MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

//! The record of one cache in its state file: a fence, and the data to serve the origin alone.
//!
//! Invariants: a record of an earlier version is read. A file with a field that this program does
//! not know is refused.
//!
//! It does not read or write files.

use larder_engine::fence::Raised;
use larder_format::COUNTER_MAX;
use serde::{Deserialize, Serialize};

/// Longest state file, in bytes.
pub const FILE_BYTES_MAX: u64 = 64 << 10;

/// Version of the file's form. Version 1 lacks `destaged`, and version 2 all that came later.
pub const VERSION: u32 = 3;

/// The state of one cache in its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateRecord {
    /// The version of the file's form.
    pub version: u32,
    /// The flash's UUID in hexadecimal digits.
    pub flash_uuid: String,
    /// The path of the flash when it was last served.
    pub flash: String,
    /// The same path as it was named; a link may go with the device.
    pub flash_named: String,
    /// The volume's name.
    pub volume: String,
    /// The URI of the origin.
    pub origin: String,
    /// Its size.
    pub origin_bytes: u64,
    /// Identifies the origin beyond its size; 0 for nothing.
    pub origin_identity: u64,
    /// The write mode, by name: `write-back` as soon as the origin may lack something.
    pub mode: String,
    /// The reason for the fence, if it is up.
    pub fence: Option<String>,
    /// Bytes of dirty data and trimmed ranges that the flash had when the fence went up.
    #[serde(default)]
    pub fence_dirty_bytes: u64,
    /// The number of the newest superblock when the fence went up; 0 if unknown.
    #[serde(default)]
    pub fence_superblock: u64,
    /// Behind the fence all dirty data went to the origin: the flash's dirty data is older.
    #[serde(default)]
    pub destaged: bool,
    /// The number of the superblock on the flash at least; a flash with a lower one is a copy.
    #[serde(default)]
    pub superblock_sequence: u64,
    /// The flash knows of this file; without that, the flash may be served without the file.
    pub registered: bool,
}

impl StateRecord {
    /// Returns the fence, if it is up.
    pub fn raised(&self) -> Option<Raised> {
        self.fence.clone().map(|why| Raised {
            why,
            dirty_bytes: self.fence_dirty_bytes,
            superblock_sequence: self.fence_superblock,
            is_destaged: self.destaged,
        })
    }
}

/// No superblock has such a number: a thousand updates a second for millions of years.
const SUPERBLOCK_MAX: u64 = COUNTER_MAX / 2;

/// Parses a state file.
///
/// # Errors
/// The fault, in a few words.
pub fn parse(bytes: &[u8]) -> Result<StateRecord, String> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    let record: StateRecord = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if [record.fence_superblock, record.superblock_sequence].iter().any(|&number| number >= SUPERBLOCK_MAX) {
        return Err("it names a superblock with a number that no flash reaches".to_owned());
    }
    let is_later = [record.fence_dirty_bytes, record.fence_superblock, record.superblock_sequence] != [0; 3];
    match record.version {
        1 if !record.destaged && !is_later => Ok(record),
        2 if !is_later => Ok(record),
        VERSION => Ok(record),
        version => Err(format!("its version is {version}, and is not one that this Larder knows with such fields")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> StateRecord {
        StateRecord {
            version: VERSION,
            flash_uuid: "00".repeat(16),
            flash: "/ssd/cache".into(),
            flash_named: "/ssd/link".into(),
            volume: "disk".into(),
            origin: "file:///disk".into(),
            origin_bytes: 1 << 30,
            origin_identity: 7,
            mode: "write-through".into(),
            fence: Some("the device is gone".into()),
            fence_dirty_bytes: 4096,
            fence_superblock: 8,
            destaged: false,
            superblock_sequence: 9,
            registered: true,
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let text = serde_json::to_vec(&record()).expect("plain values");
        assert_eq!(parse(&text), Ok(record()));
    }

    #[test]
    fn a_record_of_an_earlier_version_is_read() {
        let earlier = r#"{ "version": 1, "flash_uuid": "UUID", "flash": "/ssd/cache", "flash_named": "/ssd/link",
            "volume": "disk", "origin": "file:///disk", "origin_bytes": 1073741824, "origin_identity": 7,
            "mode": "write-through", "fence": "the device is gone", "registered": true }"#;
        let earlier = earlier.replace("UUID", &record().flash_uuid);
        let expected =
            StateRecord { version: 1, fence_dirty_bytes: 0, fence_superblock: 0, superblock_sequence: 0, ..record() };
        assert_eq!(parse(earlier.as_bytes()), Ok(expected.clone()));
        let second = earlier.replace("\"version\": 1", "\"version\": 2, \"destaged\": true");
        assert_eq!(parse(second.as_bytes()), Ok(StateRecord { version: 2, destaged: true, ..expected }));
    }

    #[test]
    fn nothing_else_is_taken_for_a_record() {
        let text = serde_json::to_string(&record()).expect("plain values");
        for bad in [
            String::new(),
            "{}".into(),
            text.replace("\"version\":3", "\"version\":4"),
            text.replace("\"version\":3", "\"version\":2"),
            text.replace("\"version\":3", "\"version\":1"),
            text.replace("\"fence\"", "\"fench\""),
            text.replace("\"superblock_sequence\":9", &format!("\"superblock_sequence\":{}", u64::MAX)),
            text.replace("\"superblock_sequence\":9", &format!("\"superblock_sequence\":{}", COUNTER_MAX / 2)),
            text.replace("\"fence_superblock\":8", &format!("\"fence_superblock\":{COUNTER_MAX}")),
            text.replace("\"origin_bytes\":1073741824", "\"origin_bytes\":-1"),
            format!("{text}{text}"),
            " ".repeat(FILE_BYTES_MAX as usize + 1),
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}

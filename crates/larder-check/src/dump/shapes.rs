//! The shapes in which a dump tells its findings: names with units, for JSON and for lines.
//!
//! It does not read anything.

use serde::Serialize;

/// A region of the flash.
#[derive(Clone, Debug, Serialize)]
pub struct Region {
    /// Its name.
    pub region: &'static str,
    /// Byte offset on the flash.
    pub flash_offset: u64,
    /// Size.
    pub bytes: u64,
}

/// The division of the flash.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // the layout's own documentation describes them
pub struct LayoutDump {
    pub flash_bytes: u64,
    /// `weus`, `slots` of one chunk, or `buckets` of subchunks.
    pub store: &'static str,
    pub chunk_bytes: u32,
    pub slot_bytes: u32,
    /// `slot_bytes` under its older name.
    pub weu_bytes: u32,
    pub sector_bytes: u32,
    pub slot_count: u32,
    pub bucket_slots: u32,
    pub mappings_max: u64,
    pub fragments_max: u64,
    pub zero_ranges_max: u64,
    pub fp_entries_max: u64,
    pub design_pages_max: u64,
    pub short_checkpoints: bool,
    /// The regions, in the order of the flash.
    pub regions: Vec<Region>,
}

/// A list that may be cut short.
#[derive(Clone, Debug, Serialize)]
pub struct Listing<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// The number of entries in all.
    pub total: u64,
}

impl<T> Listing<T> {
    pub(super) fn new() -> Self {
        Listing { entries: Vec::new(), total: 0 }
    }

    pub(super) fn add(&mut self, limit: usize, entry: impl FnOnce() -> T) {
        if self.entries.len() < limit {
            self.entries.push(entry());
        }
        self.total += 1;
    }
}

/// A block of a checkpoint.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointBlockDump {
    /// Its index.
    pub block: u32,
    /// The number of its checkpoint.
    pub checkpoint_id: u64,
    /// Byte offset on the flash.
    pub flash_offset: u64,
    /// Its size.
    pub bytes: u64,
    /// The kind of its entries.
    pub kind: String,
    /// The number of its entries.
    pub count: u64,
}

/// Blocks of a checkpoint area that have the same number: as a rule, one.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointBlocksDump {
    /// The number of the area, 0 or 1.
    pub area: u8,
    /// It holds the checkpoint that counts.
    pub named_by_superblock: bool,
    /// The blocks.
    pub blocks: Listing<CheckpointEntriesDump>,
}

/// A block of a checkpoint with its entries.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointEntriesDump {
    /// The block.
    #[serde(flatten)]
    pub block: CheckpointBlockDump,
    /// Its entries, in their order; slots and fingerprints come least recent first.
    pub entries: Listing<CheckpointEntryDump>,
}

/// An entry of a checkpoint.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum CheckpointEntryDump {
    /// A slot of the flash.
    Slot(SlotEntryDump),
    /// A mapping or a fragment.
    Mapping(MappingDump),
    /// A zero range.
    ZeroRange(ZeroRangeDump),
    /// A fingerprint.
    Fingerprint(FingerprintDump),
    /// A page of the design.
    DesignPage(DesignPageDump),
}

/// A slot, as a checkpoint has it.
#[derive(Clone, Debug, Serialize)]
pub struct SlotEntryDump {
    /// Its number.
    pub slot: u32,
    /// Its generation; for a free slot the last one; `None` if it was never used.
    pub generation: Option<u32>,
    /// `free`, `open` or `sealed`.
    pub state: String,
    /// `clean` or `dirty`: the class of its data.
    pub class: String,
}

/// A trimmed run, as a checkpoint has it.
#[derive(Clone, Debug, Serialize)]
pub struct ZeroRangeDump {
    /// The first chunk.
    pub lba: u64,
    /// Number of chunks.
    pub chunk_count: u64,
    /// The origin lacks the zeroes.
    pub dirty: bool,
    /// The origin must keep the range allocated.
    pub no_hole: bool,
    /// A client trimmed it and asked for no zeroes: the origin need not be told.
    pub advisory: bool,
}

/// A trimmed run of which the origin is not told yet.
#[derive(Clone, Debug, Serialize)]
pub struct TrimDump {
    /// The first chunk.
    pub lba: u64,
    /// Number of chunks.
    pub chunk_count: u64,
    /// The sequence number of the log entry that trimmed it; 0 if the checkpoint has it.
    pub seq: u64,
    /// The origin must keep the range allocated.
    pub no_hole: bool,
    /// A client trimmed it and asked for no zeroes: the origin need not be told.
    pub advisory: bool,
}

/// A fingerprint that is known, and its record.
#[derive(Clone, Debug, Serialize)]
pub struct FingerprintDump {
    /// The fingerprint, as hexadecimal digits.
    pub fingerprint: String,
    /// The record.
    #[serde(flatten)]
    pub place: PlaceDump,
}

/// A page of the design, as a checkpoint has it.
#[derive(Clone, Debug, Serialize)]
pub struct DesignPageDump {
    /// Its number.
    pub page: u32,
    /// The number of its bytes; only the design knows their meaning.
    pub bytes: u64,
}

/// The content of a checkpoint area.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointDump {
    /// The number of the area, 0 or 1.
    pub area: u8,
    /// It holds the checkpoint that counts.
    pub named_by_superblock: bool,
    /// Byte offset on the flash.
    pub flash_offset: u64,
    /// The fault of the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The header.
    #[serde(flatten)]
    pub header: Option<CheckpointHeaderDump>,
    /// Bytes outside any whole block.
    pub no_block_bytes: u64,
    /// Whole blocks, of any checkpoint.
    pub blocks: Listing<CheckpointBlockDump>,
}

/// The header of a checkpoint.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // the header's own documentation describes them
pub struct CheckpointHeaderDump {
    pub checkpoint_id: u64,
    pub total_bytes: u64,
    pub block_count: u32,
    pub slots: u64,
    pub mappings: u64,
    pub fragments: u64,
    pub zero_ranges: u64,
    pub fingerprints: u64,
    pub design_pages: u64,
    pub log_start_offset: u64,
    pub log_start_frame_seq: u64,
    pub entry_seq_next: u64,
}

/// A frame of the log, without its entries.
#[derive(Clone, Debug, Serialize)]
pub struct FrameDump {
    /// Its number.
    pub frame_seq: u64,
    /// Byte offset on the flash.
    pub flash_offset: u64,
    /// Its size.
    pub bytes: u32,
    /// The sequence number of its first entry.
    pub first_entry_seq: u64,
    /// Number of entries.
    pub count: u64,
    /// The newest frame that was durable when it was written.
    pub durable_frame_seq: u64,
    /// Its checksum matches. Otherwise the rest of these fields is unproven.
    pub whole: bool,
    /// It is not older than the checkpoint.
    pub needed: bool,
}

/// All entries of checkpoint and log about a chunk.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryDump {
    /// The chunk.
    pub lba: u64,
    /// The checkpoint's entries.
    pub checkpoint: Vec<MappingDump>,
    /// The log's entries, oldest first, including those that free a slot with a record of the
    /// chunk.
    pub log: Listing<LogEntryDump>,
}

/// One record.
#[derive(Clone, Debug, Serialize)]
pub struct OneRecordDump {
    /// The chunk that it was stored for.
    pub lba: u64,
    /// `chunk` or `fragment`.
    pub kind: &'static str,
    /// That chunk is mapped to it.
    pub mapped: bool,
    /// Byte offset of its payload on the flash.
    pub flash_offset: u64,
    /// Its place.
    #[serde(flatten)]
    pub place: PlaceDump,
    /// Valid sectors of a fragment, as `first-last` runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sectors: Option<String>,
    /// Its checksum matches.
    pub checksum_matches: bool,
    /// Its bytes decode to the right length.
    pub decodes: bool,
    /// The decoded length.
    pub decoded_bytes: u64,
    /// The fingerprint of the decoded content, as hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The decoded content, as hexadecimal digits; for a fragment its valid sectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_hex: Option<String>,
    /// The stored bytes, if they do not decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_hex: Option<String>,
}

/// An entry of the log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogEntryDump {
    /// Its sequence number.
    pub seq: u64,
    /// The number of its frame.
    pub frame_seq: u64,
    /// That frame's byte offset on the flash.
    pub frame_flash_offset: u64,
    /// The kind of the entry.
    pub kind: &'static str,
    /// The (first) chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lba: Option<u64>,
    /// Number of chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_count: Option<u64>,
    /// The record.
    #[serde(flatten)]
    pub place: Option<PlaceDump>,
    /// The origin lacks the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty: Option<bool>,
    /// The mapping shares a record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<bool>,
    /// Valid sectors of a fragment, as `first-last` runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sectors: Option<String>,
    /// For *map*: the fingerprint, as hexadecimal digits, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// For *trim*: the origin must keep the range allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_hole: Option<bool>,
    /// For *trim*: a client trimmed it and asked for no zeroes, so the origin need not be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advisory: Option<bool>,
    /// For *clean*: the newest entry that it covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map_seq: Option<u64>,
    /// For *slot freed*: the slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed_slot: Option<u32>,
    /// For *slot freed*: the generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed_generation: Option<u32>,
    /// The new write mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
}

/// The metadata log since the checkpoint.
#[derive(Clone, Debug, Serialize)]
pub struct LogDump {
    /// Frames.
    pub frames: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The number that the next frame gets.
    pub next_frame_seq: u64,
    /// The entries.
    pub log: Listing<LogEntryDump>,
}

/// The place of a record.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlaceDump {
    /// The slot.
    pub slot: u32,
    /// Its generation.
    pub generation: u32,
    /// Byte offset in the slot.
    pub weu_offset: u32,
    /// Bytes as stored.
    pub stored_bytes: u32,
    /// The encoding of the record.
    pub encoding: &'static str,
    /// The record's checksum.
    pub record_crc: u32,
}

/// A slot of the flash.
#[derive(Clone, Debug, Serialize)]
pub struct SlotDump {
    /// Its number.
    pub slot: u32,
    /// Byte offset on the flash.
    pub flash_offset: u64,
    /// The count of its reuses.
    pub generation: u32,
    /// `free` or `sealed`; after an opening no slot is open.
    pub state: String,
    /// `clean` or `dirty`: the class of its data.
    pub class: String,
    /// Chunks mapped into it.
    pub mapped_chunks: u64,
    /// Dirty ones among them.
    pub dirty_chunks: u64,
}

/// The mapping of a chunk.
#[derive(Clone, Debug, Serialize)]
pub struct MappingDump {
    /// The chunk.
    pub lba: u64,
    /// `chunk`, `fragment` or `zero`; in a history `trimmed run`, too.
    pub kind: &'static str,
    /// The origin lacks the content.
    pub dirty: bool,
    /// The mapping shares another's record.
    pub duplicate: bool,
    /// Its record.
    #[serde(flatten)]
    pub place: Option<PlaceDump>,
    /// Valid sectors of a fragment, as `first-last` runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sectors: Option<String>,
}

/// A segment.
#[derive(Clone, Debug, Serialize)]
pub struct SegmentDump {
    /// The slot.
    pub slot: u32,
    /// Its generation.
    pub generation: u32,
    /// Byte offset in the slot.
    pub weu_offset: u32,
    /// Its number.
    pub segment_seq: u64,
    /// The newest durable frame of the log at the close of the segment, if the header names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable_frame_seq: Option<u64>,
    /// Its size.
    pub bytes: u32,
    /// `clean` or `dirty`.
    pub class: String,
    /// The fault of its table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Number of records in its table.
    pub records_total: u64,
    /// Its records.
    pub records: Vec<RecordDump>,
}

/// A record in a segment's table.
#[derive(Clone, Debug, Serialize)]
pub struct RecordDump {
    /// The chunk of the record.
    pub lba: u64,
    /// `chunk` or `fragment`.
    pub kind: &'static str,
    /// Its place.
    #[serde(flatten)]
    pub place: PlaceDump,
    /// Its fingerprint, as hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Valid sectors of a fragment, as `first-last` runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sectors: Option<String>,
}

//! The superblock, kept twice: the kind of the flash, its owner, and the start of recovery.
//!
//! Role: [`Superblock::encode`] and [`Superblock::decode`] for one twin, [`choose`] for the pair.
//!
//! Invariants: the first 20 bytes (magic, version, length, checksum) mean the same in every
//! version. A program thus recognises a newer flash, and does not take it for a corrupt one. A twin
//! is whole or refused. The fields of features that this program may ignore are encoded again as
//! they were decoded.
//!
//! It does not write the twins. Their order is A, flush, B, flush, both with the same sequence
//! number.

mod noted;
mod twins;
mod wear;

pub use noted::{DurableFrame, OriginState};
pub use twins::{Chosen, choose};
pub use wear::{WEAR_RECORD_BINS, WEAR_RECORD_BYTES, WearRecord};

use crate::codes::{Compression, DesignId, WriteMode};
use crate::error::{FormatError, Structure};
use crate::features::{
    COMPATIBLE_KNOWN, FEATURE_BUCKETS, FEATURE_DETACHED, FEATURE_DURABLE_FRAME, FEATURE_KEPT_TRIMS,
    FEATURE_LOG_POSITIONS, FEATURE_ORIGIN_STATE, FEATURE_SHORT_CHECKPOINTS, FEATURE_STATE_DIR, FEATURE_WEAR,
    INCOMPATIBLE_KNOWN, READABLE,
};
use crate::limits::{CHUNKS_MAX, ENTRIES_MIN, SUPERBLOCK_OFFSETS, StoreKind};
use crate::text::{DirectoryPath, OriginUri, VolumeName};
use crate::wire::{self, Le16, Le32, Le64};
use crate::{COUNTER_MAX, FORMAT_VERSION};
use crate::{layout::Layout, log::LogStart};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of one twin.
pub const SUPERBLOCK_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"LARDERSB";
const STRUCTURE: Structure = Structure::Superblock;

/// The storage that is cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its size.
    pub size_bytes: u64,
    /// A number that its device derives from its serial number or its file's identity; 0 for none.
    pub identity: u64,
    /// Its URI when the cache was created or last served.
    pub uri: OriginUri,
}

/// The checkpoint to recover from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointPointer {
    /// The area that holds it: 0 or 1.
    pub area: u8,
    /// Its number; each checkpoint has a higher one.
    pub checkpoint_id: u64,
    /// Its size with its header, bytes.
    pub bytes: u64,
}

/// The superblock's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Counts the rewrites of the superblock; the twin with the higher count is the newer.
    pub sequence: u64,
    /// Drawn at creation.
    pub flash_uuid: [u8; 16],
    /// Unknown feature bits that a reader may ignore, and must keep.
    pub features_compat: u64,
    /// Segment headers, and metadata slots, name the newest durable frame of the log.
    pub log_positions: bool,
    /// The log and checkpoints may hold trims apart from zeroes that a client asked for.
    pub kept_trims: bool,
    /// The origin as an orderly end left it; see [`Superblock::origin_state_now`].
    pub origin_state: Option<OriginState>,
    /// The newest frame of the log known to be durable; see [`Superblock::durable_frame_now`].
    pub durable_frame: Option<DurableFrame>,
    /// The wear budget, and the bytes of the last day; none before the first budget.
    pub wear: Option<Box<WearRecord>>,
    /// Unknown incompatible features that let a program read, but not write on this flash.
    pub features_read_only: u64,
    /// The bytes of unknown features behind the last known field, without the zeroes at the end.
    ///
    /// Those of a wear record are zeroes.
    pub kept: Vec<u8>,
    /// The cache was detached: it must not be opened any more.
    pub detached: bool,
    /// The moment when the origin gets a write.
    pub mode: WriteMode,
    /// The design that decides.
    pub design: DesignId,
    /// The compressor for new records.
    pub compression: Compression,
    /// True if new records are deduplicated.
    pub dedup: bool,
    /// True if the last run ended with everything noted.
    ///
    /// It is cleared, durably, before the first write after opening.
    pub clean_shutdown: bool,
    /// The part of the index RAM that goes to the FP index, 0 to 100.
    pub fp_index_percent: u8,
    /// The RAM budget of the indexes.
    pub ram_budget_bytes: u64,
    /// The key of the fingerprint, so that no outsider can prepare collisions.
    pub hash_key: [u8; 32],
    /// The division of the flash.
    pub layout: Layout,
    /// The storage that is cached.
    pub origin: Origin,
    /// The volume's name.
    pub volume_name: VolumeName,
    /// The directory for the state that may not be on the flash, a fence above all; empty for none.
    pub state_dir: DirectoryPath,
    /// The newest checkpoint, `None` before the first.
    pub checkpoint: Option<CheckpointPointer>,
    /// The place where replay starts: the checkpoint's log start, or the log's first frame.
    pub log_start: LogStart,
    /// The sequence number of the first entry at `log_start`.
    pub entry_seq_next: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    version: Le32,
    length: Le32,
    crc: Le32,
    reserved_0: [u8; 4],
    sequence: Le64,
    flash_uuid: [u8; 16],
    features_compat: Le64,
    features_incompat: Le64,
    mode: u8,
    design: u8,
    compression: u8,
    dedup: u8,
    clean_shutdown: u8,
    fp_index_percent: u8,
    checkpoint_present: u8,
    checkpoint_area: u8,
    chunk_bytes: Le32,
    weu_bytes: Le32,
    sector_bytes: Le32,
    slot_count: Le32,
    flash_bytes: Le64,
    checkpoint_offset: [Le64; 2],
    checkpoint_area_bytes: Le64,
    log_offset: Le64,
    log_bytes: Le64,
    weu_offset: Le64,
    mappings_max: Le64,
    fragments_max: Le64,
    zero_ranges_max: Le64,
    fp_entries_max: Le64,
    ram_budget_bytes: Le64,
    hash_key: [u8; 32],
    origin_bytes: Le64,
    origin_identity: Le64,
    checkpoint_id: Le64,
    checkpoint_bytes: Le64,
    log_start_offset: Le64,
    log_start_frame_seq: Le64,
    entry_seq_next: Le64,
    uri_len: Le16,
    volume_name_len: Le16,
    reserved_1: [u8; 4],
    volume_name: [u8; 64],
    uri: [u8; 1024],
    state_dir_len: Le16,
    state_dir: [u8; 512],
    reserved_2: [u8; 2],
    bucket_slots: Le32,
    region_offset: Le64,
    design_pages_max: Le64,
    origin_state: [Le64; 4],
    durable_frame: [Le64; 2],
    rest: [u8; REST_BYTES],
}

/// Bytes behind the last field that is always known. A wear record comes first, if there is one.
/// The others are zeroes, unless an unknown readable feature has a field there.
const REST_BYTES: usize = 2144;
const CRC_OFFSET: usize = 16;
wire::assert_wire!(
    RawSuperblock, SUPERBLOCK_BYTES,
    magic @ 0, version @ 8, length @ 12, crc @ CRC_OFFSET, sequence @ 24, flash_uuid @ 32, features_compat @ 48,
    features_incompat @ 56, mode @ 64, design @ 65, compression @ 66, dedup @ 67, clean_shutdown @ 68,
    fp_index_percent @ 69, checkpoint_present @ 70, checkpoint_area @ 71, chunk_bytes @ 72, weu_bytes @ 76,
    sector_bytes @ 80, slot_count @ 84, flash_bytes @ 88, checkpoint_offset @ 96, checkpoint_area_bytes @ 112,
    log_offset @ 120, log_bytes @ 128, weu_offset @ 136, mappings_max @ 144, fragments_max @ 152,
    zero_ranges_max @ 160, fp_entries_max @ 168, ram_budget_bytes @ 176, hash_key @ 184, origin_bytes @ 216,
    origin_identity @ 224, checkpoint_id @ 232, checkpoint_bytes @ 240, log_start_offset @ 248,
    log_start_frame_seq @ 256, entry_seq_next @ 264, uri_len @ 272, volume_name_len @ 274, volume_name @ 280,
    uri @ 344, state_dir_len @ 1368, state_dir @ 1370, reserved_2 @ 1882, bucket_slots @ 1884,
    region_offset @ 1888, design_pages_max @ 1896, origin_state @ 1904, durable_frame @ 1936, rest @ 1952,
);

impl Superblock {
    /// Returns the feature bits that a reader must know.
    pub fn features_incompat(&self) -> u64 {
        let state_dir = if self.state_dir.as_str().is_empty() { 0 } else { FEATURE_STATE_DIR };
        let detached = if self.detached { FEATURE_DETACHED } else { 0 };
        let buckets = if self.layout.store() == StoreKind::Buckets { FEATURE_BUCKETS } else { 0 };
        let positions = if self.log_positions { FEATURE_LOG_POSITIONS } else { 0 };
        let trims = if self.kept_trims { FEATURE_KEPT_TRIMS } else { 0 };
        let short = if self.layout.short_checkpoints { FEATURE_SHORT_CHECKPOINTS } else { 0 };
        state_dir | detached | buckets | positions | trims | short | self.features_read_only
    }

    /// Returns the word of the compatible features on the flash, known and unknown.
    pub fn compatible_word(&self) -> u64 {
        let state = self.origin_state.map_or(0, |_| FEATURE_ORIGIN_STATE);
        let frame = self.durable_frame.map_or(0, |_| FEATURE_DURABLE_FRAME);
        let wear = self.wear.as_ref().map_or(0, |_| FEATURE_WEAR);
        self.features_compat | state | frame | wear
    }

    /// Returns the origin's state at the last end, if that end was orderly and the device gave a
    /// mark.
    pub fn origin_state_now(&self) -> Option<OriginState> {
        self.origin_state.filter(|state| state.sequence == self.sequence)
    }

    /// Returns the newest frame that was durable when the superblock was written, 0 for none.
    pub fn durable_frame_now(&self) -> u64 {
        self.durable_frame.filter(|noted| noted.sequence == self.sequence).map_or(0, |noted| noted.frame_seq)
    }

    /// Notes that the frame of this number is durable, and with it each one before.
    pub fn note_durable_frame(&mut self, frame_seq: u64) {
        self.durable_frame = Some(DurableFrame { sequence: self.sequence, frame_seq });
    }

    /// Takes the next sequence number. The origin's state and the durable frame stay valid.
    pub fn advance(&mut self) {
        let (origin_state, durable_frame) = (self.origin_state_now(), self.durable_frame_now());
        self.sequence += 1;
        self.origin_state = origin_state.map(|state| OriginState { sequence: self.sequence, ..state });
        let noted = DurableFrame { sequence: self.sequence, frame_seq: durable_frame };
        self.durable_frame = self.durable_frame.and(Some(noted));
    }

    /// Refuses a flash that this program may only read, and fields that no reader takes.
    ///
    /// # Errors
    /// [`FormatError::NewerVersion`] with the features that forbid it; errors of the fields.
    pub fn check_writable(&self) -> Result<(), FormatError> {
        match self.features_read_only {
            0 => self.check(),
            features => Err(FormatError::NewerVersion { structure: STRUCTURE, version: FORMAT_VERSION, features }),
        }
    }

    /// Returns the first eight bytes of the UUID, which mark each other structure as this flash's.
    pub fn flash_tag(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.flash_uuid;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Encodes a twin, with fields that [`Superblock::decode`] would refuse, too: keep them valid.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut raw = self.to_raw();
        raw.crc = Le32::new(wire::crc_with_hole(raw.as_bytes(), CRC_OFFSET));
        zerocopy::transmute!(raw)
    }

    /// Decodes a twin.
    ///
    /// # Errors
    /// As [`FormatError`] says: not a Larder flash, corrupt, newer, or invalid in a field.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let raw: RawSuperblock = wire::read(bytes, STRUCTURE)?;
        let computed = wire::crc_with_hole(raw.as_bytes(), CRC_OFFSET);
        wire::check_prefix((&raw.magic, &MAGIC), (raw.crc.get(), computed), raw.version.get(), STRUCTURE)?;
        let features = raw.features_incompat.get() & !INCOMPATIBLE_KNOWN;
        if features & !READABLE != 0 {
            return Err(FormatError::NewerVersion { structure: STRUCTURE, version: raw.version.get(), features });
        }
        let superblock = Self::from_raw(&raw)?;
        let mut again = superblock.to_raw();
        again.crc = raw.crc;
        again.version = raw.version;
        wire::check_canonical(&again, &raw, STRUCTURE)?;
        superblock.check()?;
        Ok(superblock)
    }

    /// Checks rules over several fields; [`Superblock::decode`] does it, and so should a writer.
    ///
    /// # Errors
    /// [`FormatError::Invalid`], or one of the layout's errors.
    pub fn check(&self) -> Result<(), FormatError> {
        self.layout.check()?;
        let sector = u64::from(self.layout.sector_bytes);
        if self.origin.size_bytes == 0 {
            return Err(invalid("the origin is empty"));
        }
        if self.fp_index_percent > 100 {
            return Err(invalid("the FP index takes more than all of the RAM"));
        }
        if self.log_start.offset_in_log > self.layout.log_bytes || !self.log_start.offset_in_log.is_multiple_of(sector)
        {
            return Err(invalid("the log does not start inside the log"));
        }
        if self.checkpoint.is_some_and(|c| c.area > 1 || c.bytes > self.layout.checkpoint_area_bytes) {
            return Err(invalid("the checkpoint does not fit its area"));
        }
        let chunks = self.origin.size_bytes.div_ceil(self.layout.chunk_bytes.into());
        if chunks > CHUNKS_MAX {
            return Err(invalid("the origin has too many chunks"));
        }
        if self.layout.mappings_max < ENTRIES_MIN.min(chunks) {
            return Err(invalid("a limit is too small"));
        }
        let checkpoint_id = self.checkpoint.map_or(0, |checkpoint| checkpoint.checkpoint_id);
        let durable_frame = self.durable_frame_now();
        if [self.sequence, checkpoint_id, self.log_start.frame_seq, self.entry_seq_next, durable_frame]
            .iter()
            .any(|&count| count >= COUNTER_MAX)
        {
            return Err(invalid("a counter is too high"));
        }
        Ok(())
    }

    fn to_raw(&self) -> RawSuperblock {
        let (uri, uri_len) = self.origin.uri.to_padded();
        let (state_dir, state_dir_len) = self.state_dir.to_padded();
        let (volume_name, volume_name_len) = self.volume_name.to_padded();
        let checkpoint = self.checkpoint.unwrap_or(CheckpointPointer { area: 0, checkpoint_id: 0, bytes: 0 });
        let layout = &self.layout;
        let mut rest = [0; REST_BYTES];
        rest.iter_mut().zip(&self.kept).for_each(|(to, &from)| *to = from);
        if let Some(wear) = &self.wear {
            rest[..WEAR_RECORD_BYTES].copy_from_slice(&wear.encode());
        }
        RawSuperblock {
            magic: MAGIC,
            version: Le32::new(FORMAT_VERSION),
            length: Le32::new(SUPERBLOCK_BYTES as u32),
            crc: Le32::new(0),
            reserved_0: [0; 4],
            sequence: Le64::new(self.sequence),
            flash_uuid: self.flash_uuid,
            features_compat: Le64::new(self.compatible_word()),
            features_incompat: Le64::new(self.features_incompat()),
            mode: self.mode.code(),
            design: self.design.code(),
            compression: self.compression.code(),
            dedup: self.dedup.into(),
            clean_shutdown: self.clean_shutdown.into(),
            fp_index_percent: self.fp_index_percent,
            checkpoint_present: self.checkpoint.is_some().into(),
            checkpoint_area: checkpoint.area,
            chunk_bytes: Le32::new(layout.chunk_bytes),
            weu_bytes: Le32::new(layout.slot_bytes),
            sector_bytes: Le32::new(layout.sector_bytes),
            slot_count: Le32::new(layout.slot_count),
            flash_bytes: Le64::new(layout.flash_bytes),
            checkpoint_offset: layout.checkpoint_offset.map(Le64::new),
            checkpoint_area_bytes: Le64::new(layout.checkpoint_area_bytes),
            log_offset: Le64::new(layout.log_offset),
            log_bytes: Le64::new(layout.log_bytes),
            weu_offset: Le64::new(layout.slots_offset),
            mappings_max: Le64::new(layout.mappings_max),
            fragments_max: Le64::new(layout.fragments_max),
            zero_ranges_max: Le64::new(layout.zero_ranges_max),
            fp_entries_max: Le64::new(layout.fp_entries_max),
            ram_budget_bytes: Le64::new(self.ram_budget_bytes),
            hash_key: self.hash_key,
            origin_bytes: Le64::new(self.origin.size_bytes),
            origin_identity: Le64::new(self.origin.identity),
            checkpoint_id: Le64::new(checkpoint.checkpoint_id),
            checkpoint_bytes: Le64::new(checkpoint.bytes),
            log_start_offset: Le64::new(self.log_start.offset_in_log),
            log_start_frame_seq: Le64::new(self.log_start.frame_seq),
            entry_seq_next: Le64::new(self.entry_seq_next),
            uri_len: Le16::new(uri_len),
            volume_name_len: Le16::new(volume_name_len),
            reserved_1: [0; 4],
            volume_name,
            uri,
            state_dir_len: Le16::new(state_dir_len),
            state_dir,
            reserved_2: [0; 2],
            bucket_slots: Le32::new(layout.bucket_slots),
            region_offset: Le64::new(layout.region_offset),
            design_pages_max: Le64::new(layout.design_pages_max),
            origin_state: self.origin_state.map_or(Default::default(), |state| state.words()),
            durable_frame: self.durable_frame.map_or(Default::default(), |frame| frame.words()),
            rest,
        }
    }

    fn from_raw(raw: &RawSuperblock) -> Result<Self, FormatError> {
        let checkpoint = flag(raw.checkpoint_present)?.then_some(CheckpointPointer {
            area: raw.checkpoint_area,
            checkpoint_id: raw.checkpoint_id.get(),
            bytes: raw.checkpoint_bytes.get(),
        });
        Ok(Superblock {
            sequence: raw.sequence.get(),
            flash_uuid: raw.flash_uuid,
            features_compat: raw.features_compat.get() & !COMPATIBLE_KNOWN,
            log_positions: raw.features_incompat.get() & FEATURE_LOG_POSITIONS != 0,
            kept_trims: raw.features_incompat.get() & FEATURE_KEPT_TRIMS != 0,
            origin_state: noted(raw, FEATURE_ORIGIN_STATE).then(|| OriginState::of_words(raw.origin_state)),
            durable_frame: noted(raw, FEATURE_DURABLE_FRAME).then(|| DurableFrame::of_words(raw.durable_frame)),
            wear: noted(raw, FEATURE_WEAR).then(|| wear_of(raw)),
            features_read_only: raw.features_incompat.get() & !INCOMPATIBLE_KNOWN & READABLE,
            kept: kept(raw),
            detached: raw.features_incompat.get() & FEATURE_DETACHED != 0,
            mode: WriteMode::from_code(raw.mode).ok_or_else(|| invalid("an unknown write mode"))?,
            design: DesignId::from_code(raw.design).ok_or_else(|| invalid("an unknown design"))?,
            compression: Compression::from_code(raw.compression).ok_or_else(|| invalid("an unknown compression"))?,
            dedup: flag(raw.dedup)?,
            clean_shutdown: flag(raw.clean_shutdown)?,
            fp_index_percent: raw.fp_index_percent,
            ram_budget_bytes: raw.ram_budget_bytes.get(),
            hash_key: raw.hash_key,
            layout: Layout {
                flash_bytes: raw.flash_bytes.get(),
                chunk_bytes: raw.chunk_bytes.get(),
                slot_bytes: raw.weu_bytes.get(),
                sector_bytes: raw.sector_bytes.get(),
                superblock_offsets: SUPERBLOCK_OFFSETS,
                checkpoint_offset: raw.checkpoint_offset.map(Le64::get),
                checkpoint_area_bytes: raw.checkpoint_area_bytes.get(),
                log_offset: raw.log_offset.get(),
                log_bytes: raw.log_bytes.get(),
                region_offset: raw.region_offset.get(),
                slots_offset: raw.weu_offset.get(),
                slot_count: raw.slot_count.get(),
                bucket_slots: raw.bucket_slots.get(),
                mappings_max: raw.mappings_max.get(),
                fragments_max: raw.fragments_max.get(),
                zero_ranges_max: raw.zero_ranges_max.get(),
                fp_entries_max: raw.fp_entries_max.get(),
                design_pages_max: raw.design_pages_max.get(),
                short_checkpoints: raw.features_incompat.get() & FEATURE_SHORT_CHECKPOINTS != 0,
            },
            origin: origin_of(raw)?,
            volume_name: VolumeName::from_padded(&raw.volume_name, raw.volume_name_len.get())
                .ok_or_else(|| invalid("the volume's name is no text"))?,
            state_dir: DirectoryPath::from_padded(&raw.state_dir, raw.state_dir_len.get())
                .ok_or_else(|| invalid("the state directory's path is no text"))?,
            checkpoint,
            log_start: LogStart { offset_in_log: raw.log_start_offset.get(), frame_seq: raw.log_start_frame_seq.get() },
            entry_seq_next: raw.entry_seq_next.get(),
        })
    }
}

fn origin_of(raw: &RawSuperblock) -> Result<Origin, FormatError> {
    let uri = OriginUri::from_padded(&raw.uri, raw.uri_len.get());
    Ok(Origin {
        size_bytes: raw.origin_bytes.get(),
        identity: raw.origin_identity.get(),
        uri: uri.ok_or_else(|| invalid("the origin's URI is no text"))?,
    })
}

fn wear_of(raw: &RawSuperblock) -> Box<WearRecord> {
    let (bytes, _) = raw.rest.split_first_chunk().expect("a record is shorter than the rest");
    Box::new(WearRecord::decode(bytes))
}

fn noted(raw: &RawSuperblock, feature: u64) -> bool {
    raw.features_compat.get() & feature != 0
}

/// Returns the bytes to keep behind the known fields: none without an unknown feature.
fn kept(raw: &RawSuperblock) -> Vec<u8> {
    let compatible = raw.features_compat.get() & !COMPATIBLE_KNOWN;
    let incompatible = raw.features_incompat.get() & !INCOMPATIBLE_KNOWN;
    let mut rest = raw.rest;
    if noted(raw, FEATURE_WEAR) {
        rest[..WEAR_RECORD_BYTES].fill(0);
    }
    let used = rest.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    match compatible | incompatible {
        0 => Vec::new(),
        _ => rest.into_iter().take(used).collect(),
    }
}

fn invalid(what: &'static str) -> FormatError {
    FormatError::Invalid { structure: STRUCTURE, what }
}

fn flag(byte: u8) -> Result<bool, FormatError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(invalid("a flag is neither 0 nor 1")),
    }
}

//! The superblock's twins, field by field, each by itself.
//!
//! It does not choose between the twins; an opening does.

use super::values::hex;
use larder_device::BlockDevice;
use larder_engine::{
    EngineError,
    offline::{compression_name, mode_name},
    walk,
};
use larder_format::{Superblock, layout::SUPERBLOCK_OFFSETS};
use serde::Serialize;

/// One superblock twin.
#[derive(Clone, Debug, Serialize)]
pub struct SuperblockDump {
    /// Byte offset on the flash.
    pub flash_offset: u64,
    /// The fault of the twin, if it is damaged.
    pub error: Option<String>,
    /// Its fields.
    #[serde(flatten)]
    pub fields: Option<SuperblockFields>,
}

/// The fields of a superblock, its layout apart.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // the superblock's own documentation describes them
pub struct SuperblockFields {
    pub sequence: u64,
    pub flash_uuid: String,
    pub volume_name: String,
    pub design: String,
    pub mode: &'static str,
    pub compression: &'static str,
    pub dedup: bool,
    pub fp_index_percent: u8,
    pub ram_budget_bytes: u64,
    pub clean_shutdown: bool,
    pub origin: String,
    pub origin_bytes: u64,
    pub origin_identity: u64,
    pub checkpoint_id: Option<u64>,
    pub checkpoint_area: Option<u8>,
    pub checkpoint_bytes: Option<u64>,
    pub log_start_offset: u64,
    pub log_start_frame_seq: u64,
    pub entry_seq_next: u64,
    pub durable_frame_seq: u64,
    /// The sequence of the superblock at the note of the origin's state.
    pub origin_state_sequence: Option<u64>,
    pub origin_state_bytes: Option<u64>,
    pub origin_state_epoch: Option<u64>,
    pub origin_state_changes: Option<u64>,
    /// The budget of 24 hours, with the bytes that a durable record counts and lends.
    pub wear_day_bytes: Option<u64>,
    pub wear_at_seconds: Option<u64>,
    pub wear_lent_bytes: Option<u64>,
    pub wear_counted_bytes: Option<u64>,
    /// The words of feature bits on the flash, and the bits that this program does not know.
    pub features_compat: u64,
    pub features_compat_unknown: u64,
    pub features_incompat: u64,
    pub features_incompat_unknown: u64,
    pub detached: bool,
    pub state_dir: String,
}

/// Returns both superblock twins.
pub async fn superblocks(flash: &dyn BlockDevice) -> Vec<SuperblockDump> {
    let twins = walk::twins(flash).await;
    let dump = |(flash_offset, twin): (u64, Result<Superblock, EngineError>)| match twin {
        Ok(superblock) => SuperblockDump { flash_offset, error: None, fields: Some(fields(&superblock)) },
        Err(error) => SuperblockDump { flash_offset, error: Some(error.to_string()), fields: None },
    };
    SUPERBLOCK_OFFSETS.into_iter().zip(twins).map(dump).collect()
}

fn fields(superblock: &Superblock) -> SuperblockFields {
    let (checkpoint, origin_state) = (superblock.checkpoint, superblock.origin_state);
    let wear = superblock.wear.as_deref();
    SuperblockFields {
        sequence: superblock.sequence,
        flash_uuid: hex(&superblock.flash_uuid),
        volume_name: superblock.volume_name.to_string(),
        design: format!("{:?}", superblock.design).to_lowercase(),
        mode: mode_name(superblock.mode),
        compression: compression_name(superblock.compression),
        dedup: superblock.dedup,
        fp_index_percent: superblock.fp_index_percent,
        ram_budget_bytes: superblock.ram_budget_bytes,
        clean_shutdown: superblock.clean_shutdown,
        origin: superblock.origin.uri.to_string(),
        origin_bytes: superblock.origin.size_bytes,
        origin_identity: superblock.origin.identity,
        checkpoint_id: checkpoint.map(|checkpoint| checkpoint.checkpoint_id),
        checkpoint_area: checkpoint.map(|checkpoint| checkpoint.area),
        checkpoint_bytes: checkpoint.map(|checkpoint| checkpoint.bytes),
        log_start_offset: superblock.log_start.offset_in_log,
        log_start_frame_seq: superblock.log_start.frame_seq,
        entry_seq_next: superblock.entry_seq_next,
        durable_frame_seq: superblock.durable_frame_now(),
        origin_state_sequence: origin_state.map(|state| state.sequence),
        origin_state_bytes: origin_state.map(|state| state.size_bytes),
        origin_state_epoch: origin_state.map(|state| state.epoch),
        origin_state_changes: origin_state.map(|state| state.changes),
        wear_day_bytes: wear.map(|wear| wear.day_bytes),
        wear_at_seconds: wear.map(|wear| wear.at_seconds),
        wear_lent_bytes: wear.map(|wear| wear.lent_bytes),
        wear_counted_bytes: wear.map(|wear| wear.bytes().sum()),
        features_compat: superblock.compatible_word(),
        features_compat_unknown: superblock.features_compat,
        features_incompat: superblock.features_incompat(),
        features_incompat_unknown: superblock.features_read_only,
        detached: superblock.detached,
        state_dir: superblock.state_dir.to_string(),
    }
}

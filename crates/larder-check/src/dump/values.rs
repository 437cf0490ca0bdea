//! Places, mappings and bytes as a dump writes them, and the state of a flash that it shows.
//!
//! It does not list anything.

use super::shapes::{FingerprintDump, MappingDump, PlaceDump};
use crate::{
    region::{StoredRun, clean_mappings},
    verify::{
        recovered,
        salvage::{Salvaged, salvage},
    },
};
use larder_core::{Lookup, Place};
use larder_device::BlockDevice;
use larder_engine::EngineError;
use larder_format::{Encoding, Superblock};

/// The state that an opening would find. If that is refused, it is the start of a repair, and
/// `salvaged`.
pub(super) struct StateOf {
    /// The state.
    pub found: Salvaged,
    /// Metadata is damaged: the state is its readable part.
    pub salvaged: bool,
}

pub(super) async fn state_of(flash: &dyn BlockDevice) -> Result<StateOf, EngineError> {
    match recovered(flash).await {
        Ok(found) => Ok(StateOf { found, salvaged: false }),
        Err(_) => Ok(StateOf { found: salvage(flash, false).await?, salvaged: true }),
    }
}

pub(super) fn fingerprint_dump(fingerprint: &[u8; 16], place: &Place) -> FingerprintDump {
    FingerprintDump { fingerprint: hex(fingerprint), place: core_place(place) }
}

pub(super) fn mapping_dump(lba: u64, lookup: &Lookup, dirty: bool) -> MappingDump {
    let zero = MappingDump { lba, kind: "zero", dirty, duplicate: false, place: None, sectors: None };
    match lookup {
        Lookup::Chunk { place, duplicate } => {
            MappingDump { kind: "chunk", duplicate: *duplicate, place: Some(core_place(place)), ..zero }
        }
        Lookup::Fragment { place, sectors } => MappingDump {
            kind: "fragment",
            place: Some(core_place(place)),
            sectors: Some(runs(&sectors.to_bytes())),
            ..zero
        },
        Lookup::Zero => zero,
        Lookup::Miss => MappingDump { kind: "none", ..zero },
    }
}

/// Returns the mappings by address, of the design and of the metadata slots of its `runs`.
pub(super) fn sorted_mappings(found: &Salvaged, runs: &[StoredRun]) -> Vec<(u64, Lookup, bool)> {
    let design = &found.design;
    let pieces = (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece));
    let all = pieces.chain(clean_mappings(runs, design));
    let mut mappings: Vec<_> = all.map(|mapping| (mapping.lba.0, mapping.lookup, mapping.dirty)).collect();
    mappings.sort_by_key(|(lba, ..)| *lba);
    mappings
}

/// Returns an error for a chunk that the volume does not have.
pub(super) fn check_lba(superblock: &Superblock, lba: u64) -> Result<(), EngineError> {
    let chunks = superblock.origin.size_bytes.div_ceil(u64::from(superblock.layout.chunk_bytes));
    if lba < chunks {
        return Ok(());
    }
    Err(EngineError::Invalid(format!(
        "there is no chunk {lba}: the volume has chunks 0 to {}",
        chunks.saturating_sub(1)
    )))
}

pub(super) fn place_of(place: &larder_format::FlashPlace) -> PlaceDump {
    PlaceDump {
        slot: place.slot,
        generation: place.generation,
        weu_offset: place.offset,
        stored_bytes: place.stored_len,
        encoding: encoding_name(Some(place.encoding)),
        record_crc: place.crc,
    }
}

pub(super) fn core_place(place: &Place) -> PlaceDump {
    PlaceDump {
        slot: place.slot.0,
        generation: place.generation,
        weu_offset: place.offset,
        stored_bytes: place.stored_len,
        encoding: encoding_name(Encoding::from_code(place.encoding)),
        record_crc: place.crc,
    }
}

fn encoding_name(encoding: Option<Encoding>) -> &'static str {
    match encoding {
        Some(Encoding::Raw) => "raw",
        Some(Encoding::Lz4) => "lz4",
        Some(Encoding::Zstd) => "zstd",
        None => "unknown",
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a sector bitmap as runs: `0-3,7`.
pub(super) fn runs(sectors: &[u8; 32]) -> String {
    let map = larder_core::SectorMap::from_bytes(sectors);
    let run = |(first, end): (usize, usize)| match end - first {
        1 => first.to_string(),
        _ => format!("{first}-{}", end - 1),
    };
    map.runs(256).map(run).collect::<Vec<_>>().join(",")
}

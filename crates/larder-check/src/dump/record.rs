//! Printing one record: of a chunk, or at a place on the flash, with its checks and its content.
//!
//! It does not hide bytes that fail their check: it reports the failure.

use super::{
    segments::{lying, slot_bytes},
    shapes::OneRecordDump,
    values::{StateOf, check_lba, core_place, hex, runs, sorted_mappings, state_of},
};
use crate::{region::stored_runs, verify::window::Window};
use larder_codec::{Codec, decode};
use larder_core::{Lba, Lookup, Place, SectorMap, types::SECTOR_BYTES};
use larder_device::BlockDevice;
use larder_engine::{
    EngineError,
    offline::{check_superblock, checksum_holds, from_format},
};
use larder_format::{Encoding, RecordContent, Superblock};

/// Alignment of reads: the largest sector of a device.
const READ_ALIGN: u64 = 4096;

/// The choice of a record.
#[derive(Clone, Copy, Debug)]
pub enum RecordAt {
    /// The record of a chunk.
    Chunk(u64),
    /// The record that has this byte of the flash.
    FlashOffset(u64),
}

/// Returns a record, checked, and with its decoded content if `content` asks for it.
///
/// # Errors
/// There is no such record.
pub async fn record(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    which: RecordAt,
    content: bool,
) -> Result<OneRecordDump, EngineError> {
    let none = |sentence: String| Err(EngineError::Invalid(sentence));
    let (place, lba, sectors, mapped) = match which {
        RecordAt::Chunk(lba) => {
            check_lba(superblock, lba)?;
            let StateOf { found, .. } = state_of(flash).await?;
            let runs = stored_runs(flash, superblock, &found.design).await;
            let mapping = sorted_mappings(&found, &runs).into_iter().find(|(at, ..)| *at == lba);
            match mapping.map_or(Lookup::Miss, |(_, lookup, _)| lookup) {
                Lookup::Chunk { place, .. } => (place, lba, None, true),
                Lookup::Fragment { place, sectors } => (place, lba, Some(sectors), true),
                Lookup::Zero => return none(format!("chunk {lba} is all zeroes, and has no record")),
                Lookup::Miss => return none(format!("chunk {lba} is not cached: the origin has it")),
            }
        }
        RecordAt::FlashOffset(offset) => listed_at(flash, superblock, offset).await?,
    };
    let stored = record_bytes(flash, superblock, &place).await;
    let stored = stored.as_slice();
    let checksum_matches = checksum_holds(&place, stored);
    let chunk_bytes = superblock.layout.chunk_bytes as usize;
    let mut decoded = vec![0; sectors.map_or(chunk_bytes, |sectors| sectors.count() * SECTOR_BYTES).min(chunk_bytes)];
    let encoding = Encoding::from_code(place.encoding);
    let decodes = encoding.is_some_and(|encoding| decode(encoding, stored, &mut decoded));
    let codec = Codec::new(superblock.hash_key, superblock.compression, 1, true);
    let fingerprint = codec.fingerprint(&decoded).filter(|_| decodes && sectors.is_none());
    Ok(OneRecordDump {
        lba,
        kind: if sectors.is_some() { "fragment" } else { "chunk" },
        mapped,
        flash_offset: superblock.layout.slot_offset(place.slot.0).unwrap_or_default() + u64::from(place.offset),
        place: core_place(&place),
        sectors: sectors.map(|sectors| runs(&sectors.to_bytes())),
        checksum_matches,
        decodes,
        decoded_bytes: decoded.len() as u64,
        fingerprint: fingerprint.map(|fingerprint| hex(&fingerprint.0)),
        content_hex: (content && decodes).then(|| hex(&decoded)),
        stored_hex: (content && !decodes).then(|| hex(stored)),
    })
}

/// Returns the bytes of a record; unreadable ones are zero.
async fn record_bytes(flash: &dyn BlockDevice, superblock: &Superblock, place: &Place) -> Vec<u8> {
    let at = superblock.layout.slot_offset(place.slot.0).unwrap_or_default() + u64::from(place.offset);
    let (start, end) = (at / READ_ALIGN * READ_ALIGN, (at + u64::from(place.stored_len)).next_multiple_of(READ_ALIGN));
    let mut window = Window::new(flash, start, end.min(superblock.layout.flash_bytes));
    let bytes = window.bytes(start, (end - start) as usize).await;
    let skip = (at - start) as usize;
    bytes.get(skip..skip + place.stored_len as usize).unwrap_or_default().to_vec()
}

/// Returns the record that has a byte of the flash, by its segment's table, or else by its
/// mappings.
async fn listed_at(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    offset: u64,
) -> Result<(Place, u64, Option<SectorMap>, bool), EngineError> {
    let layout = &superblock.layout;
    let slot_bytes_each = u64::from(layout.slot_bytes);
    let end = layout.slots_offset + u64::from(layout.slot_count) * slot_bytes_each;
    if !(layout.slots_offset..end).contains(&offset) {
        return Err(EngineError::Invalid(format!(
            "flash offset {offset} is in no slot: those are at {} to {end}",
            layout.slots_offset
        )));
    }
    check_superblock(superblock)?;
    if !superblock.layout.store().lists_records() {
        return mapped_at(flash, superblock, offset).await;
    }
    let slot = ((offset - layout.slots_offset) / slot_bytes_each) as u32;
    let at = ((offset - layout.slots_offset) % slot_bytes_each) as u32;
    let stored = slot_bytes(flash, superblock, slot).await?;
    for segment in lying(&stored, superblock, slot)? {
        let header = &segment.header;
        for record in segment.records.as_deref().unwrap_or_default() {
            if (record.offset..record.offset.saturating_add(record.stored_len)).contains(&at) {
                let sectors = match &record.content {
                    RecordContent::Chunk(_) => None,
                    RecordContent::Fragment(sectors) => Some(SectorMap::from_bytes(sectors)),
                };
                let place = from_format(&record.place(slot, header.generation));
                let state = state_of(flash).await?;
                let mapped = matches!(
                    state.found.design.peek(Lba(record.lba)),
                    Lookup::Chunk { place: at, .. } | Lookup::Fragment { place: at, .. } if at == place
                );
                return Ok((place, record.lba, sectors, mapped));
            }
        }
    }
    Err(EngineError::Invalid(format!("no segment of slot {slot} lists a record at flash offset {offset}")))
}

/// Returns the record that has a byte of the flash, by its mappings.
async fn mapped_at(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    offset: u64,
) -> Result<(Place, u64, Option<SectorMap>, bool), EngineError> {
    let StateOf { found, .. } = state_of(flash).await?;
    let runs = stored_runs(flash, superblock, &found.design).await;
    for (lba, lookup, _) in sorted_mappings(&found, &runs) {
        let (place, sectors) = match lookup {
            Lookup::Chunk { place, .. } => (place, None),
            Lookup::Fragment { place, sectors } => (place, Some(sectors)),
            Lookup::Zero | Lookup::Miss => continue,
        };
        let start = superblock.layout.slot_offset(place.slot.0).unwrap_or_default() + u64::from(place.offset);
        if (start..start + u64::from(place.stored_len)).contains(&offset) {
            return Ok((place, lba, sectors, true));
        }
    }
    Err(EngineError::Invalid(format!("no chunk is mapped to a record at flash offset {offset}")))
}

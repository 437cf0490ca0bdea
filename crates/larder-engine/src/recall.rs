//! Recall: the records that a design's history names, with the help of their record tables.
//!
//! A checkpoint of such a design has entries for few clean mappings. The history says which records
//! have one of the address that they were stored for. The table of each record has the address.
//!
//! Invariants: it runs behind the whole checkpoint, and before the log. A mapping or a trim of the
//! checkpoint stands above it. A record that no table has is forgotten: its chunk is clean.
//!
//! It does not decide which records a history names.

use crate::{
    replay::Replay,
    walk::{InOrder, READS_IN_FLIGHT, Reader, tables},
};
use larder_format::Superblock;

/// Restores the records that the history in the checkpoint names.
pub async fn recall(reader: Reader<'_>, superblock: &Superblock, replay: &mut Replay) {
    let mut reads = InOrder::new();
    loop {
        while reads.len() < READS_IN_FLIGHT
            && let Some(named) = replay.design.next_recalled()
        {
            let upto = named.records.iter().map(|record| record.offset).max();
            reads.push(async move {
                let records = match upto {
                    Some(upto) => tables::records(reader, superblock, named.slot.0, named.generation, upto).await,
                    None => Vec::new(),
                };
                (named, records)
            });
        }
        let Some((named, records)) = reads.next().await else { return };
        replay.recall(&named, &records);
    }
}

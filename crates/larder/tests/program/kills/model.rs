//! The contents that each sector may hold, by the contract: the newest flushed one, or a later one.
//!
//! Contents have numbers, and the content of a number is the same in each chunk, so that chunks
//! repeat. Number 0 is zeroes. The content of a sector after a crash counts as settled: it must
//! stay until it is overwritten.
//!
//! It deliberately does no I/O. Its callers make sure that no two changes of one sector are in
//! flight at once.

use std::collections::BTreeSet;
use std::ops::Range;

use larder_device::rng::Rng;

pub const SECTOR: usize = 512;
/// A chunk of 8 KiB, the default.
pub const SECTORS_PER_CHUNK: usize = 16;

/// The number of a content.
pub type Content = u32;

/// Writes the bytes of a content in one sector, by its place in the chunk.
pub fn bytes_of(content: Content, sector: usize, out: &mut [u8]) {
    let place = (sector % SECTORS_PER_CHUNK) as u16;
    out.fill(0);
    if content == 0 {
        return;
    }
    // Every third compresses well.
    let noise = if content.is_multiple_of(3) { 64 } else { SECTOR };
    Rng::new(u64::from(content) << 16 | u64::from(place)).fill(&mut out[..noise]);
    out[..4].copy_from_slice(&content.to_le_bytes());
    out[4..6].copy_from_slice(&place.to_le_bytes());
}

/// Returns the content of a sector; `None` if it is no whole one.
pub fn content_of(bytes: &[u8], sector: usize) -> Option<Content> {
    let content = Content::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
    let mut whole = [0; SECTOR];
    bytes_of(content, sector, &mut whole);
    (bytes == whole).then_some(content)
}

#[derive(Clone, Default)]
struct Track {
    settled: Content,
    /// The later writes, oldest first, acknowledged or not.
    since: Vec<Content>,
    /// The number of acknowledged ones in `since`.
    completed: usize,
    /// The number of changes before `since`.
    before: u64,
}

impl Track {
    fn newest(&self) -> Content {
        self.completed.checked_sub(1).map_or(self.settled, |at| self.since[at])
    }

    fn settle_until(&mut self, change: u64) {
        // A crash in between may have settled more.
        let count = (change.saturating_sub(self.before) as usize).min(self.since.len());
        if count > 0 {
            self.settled = self.since[count - 1];
            self.since.drain(..count);
            self.before += count as u64;
            self.completed = self.completed.saturating_sub(count);
        }
    }
}

/// The completed writes when a flush was issued: sectors, and the change of each.
pub struct Snapshot(Vec<(usize, u64)>);

/// The sectors of the volume.
pub struct Model {
    tracks: Vec<Track>,
    unsettled: BTreeSet<usize>,
}

impl Model {
    /// Returns the model of a volume of zeroes.
    pub fn new(sectors: usize) -> Self {
        Model { tracks: vec![Track::default(); sectors], unsettled: BTreeSet::new() }
    }

    /// Issues a change.
    pub fn begin(&mut self, sectors: Range<usize>, content: Content) {
        for sector in sectors {
            self.tracks[sector].since.push(content);
            self.unsettled.insert(sector);
        }
    }

    /// Notes its acknowledgement; `durable` if it had FUA.
    pub fn complete(&mut self, sectors: Range<usize>, durable: bool) {
        for sector in sectors {
            let track = &mut self.tracks[sector];
            track.completed = track.since.len();
            if durable {
                track.settle_until(u64::MAX);
            }
        }
    }

    /// Issues a flush.
    pub fn flush_begins(&self) -> Snapshot {
        let at = |&sector: &usize| (sector, self.tracks[sector].before + self.tracks[sector].completed as u64);
        Snapshot(self.unsettled.iter().map(at).collect())
    }

    /// Notes its acknowledgement.
    pub fn flush_completes(&mut self, snapshot: &Snapshot) {
        for &(sector, change) in &snapshot.0 {
            self.tracks[sector].settle_until(change);
            if self.tracks[sector].since.is_empty() {
                self.unsettled.remove(&sector);
            }
        }
    }

    /// Checks reads of sectors that no request in flight changes.
    pub fn check_newest(&self, first: usize, bytes: &[u8]) -> Result<(), String> {
        for (number, piece) in bytes.chunks(SECTOR).enumerate() {
            let sector = first + number;
            let (found, newest) = (content_of(piece, sector), self.tracks[sector].newest());
            if found != Some(newest) {
                return Err(format!("sector {sector} reads as {found:?}, and {newest} was written last"));
            }
        }
        Ok(())
    }

    /// Checks reads after a crash. The content is settled from here on.
    pub fn settle(&mut self, first: usize, bytes: &[u8]) -> Result<(), String> {
        for (number, piece) in bytes.chunks(SECTOR).enumerate() {
            let sector = first + number;
            let track = &mut self.tracks[sector];
            let found = content_of(piece, sector);
            let Some(content) = found.filter(|found| *found == track.settled || track.since.contains(found)) else {
                return Err(format!(
                    "sector {sector} reads as {found:?} after the crash; flushed was {}, then came {:?}, {} of these acknowledged",
                    track.settled, track.since, track.completed
                ));
            };
            *track = Track { settled: content, before: track.before + track.since.len() as u64, ..Track::default() };
            self.unsettled.remove(&sector);
        }
        Ok(())
    }
}

//! Contents of pages, against a model of their bytes.

use std::cell::Cell;

use super::*;
use crate::seeded::{Rng, for_seeds};
use larder_ssd::{
    geometry::DriveGeometry,
    kinds::FtlKind,
    profile::{DriveProfile, PROFILES},
};

fn chunk(start: u64, number: u8) -> RawChunk {
    RawChunk { start, len: 8192, fingerprint: Fingerprint([number; 16]) }
}

fn of_pages(page_bytes: u64) -> PageContents {
    let geometry = DriveGeometry { page_bytes: page_bytes as u32, ..PROFILES[0].geometry };
    let kind = FtlKind::named("caftl").expect("a layer that asks");
    let ftl = kind.make_for(&DriveProfile { geometry, ..PROFILES[0] }, None).expect("a drive");
    PageContents::of(&*ftl)
}

fn contents(raw: &[RawChunk], page_bytes: u64) -> Vec<Option<Fingerprint>> {
    let mut contents = of_pages(page_bytes);
    contents.write(raw, 0, 0..32 << 10);
    (0..(32 << 10) / page_bytes).map(|page| contents.get(page)).collect()
}

#[test]
fn a_page_is_known_where_raw_chunks_cover_it() {
    let raw = [chunk(4096, 1), chunk(12288, 2), chunk(20480, 1)];
    let pages = contents(&raw, 4096);
    assert_eq!((pages[0], pages[7]), (None, None));
    assert!(pages[1..7].iter().all(Option::is_some));
    assert_eq!((pages[1], pages[2]), (pages[5], pages[6]), "the same parts of equal chunks");
    assert!(pages[1] != pages[2] && pages[1] != pages[3]);
    let large = contents(&raw, 8192);
    assert_eq!((large[0], large[3]), (None, None), "a half of each is not known");
    assert!(large[1].is_some() && large[1] != large[2]);
    assert_eq!(contents(&[chunk(8192, 7)], 8192)[1], Some(Fingerprint([7; 16])), "a whole chunk is itself");
    let both = contents(&[chunk(0, 1), chunk(8192, 2), chunk(16384, 1), chunk(24576, 2)], 16384);
    assert!(both[0].is_some() && both[0] == both[1]);
    assert_ne!(both[0], contents(&[chunk(0, 2), chunk(8192, 1)], 16384)[0]);
}

#[test]
fn zeroes_are_zeroes_whatever_page_they_are_on() {
    let zeroes: Vec<_> = [4096, 12288, 20480].map(|start| chunk(start, 0)).to_vec();
    for page_bytes in [4096, 8192, 16384] {
        let pages = contents(&zeroes, page_bytes);
        assert!(pages.iter().flatten().all(|page| *page == Content::ZEROES), "{page_bytes}");
    }
}

#[test]
fn layers_that_do_not_ask_cost_nothing() {
    let kind = FtlKind::named("page-trim").expect("a layer");
    let mut contents = PageContents::of(&*kind.make_for(&PROFILES[0], None).expect("a drive"));
    contents.write(&[chunk(0, 1)], 0, 0..8192);
    assert_eq!(contents.pages.allocation_size(), 0);
    assert!(contents.page_writes(0..2).all(|page| page.content.is_none()));
}

/// Bytes of a sector, and the parts of a page, all known: the chunk and its part in each sector.
const SECTOR: u64 = 512;
type Made = Vec<(Fingerprint, u64)>;

/// Writes of one chunk and of many, of parts and over parts, and trims.
///
/// Two pages count as equal exactly if they consist of the same sectors of the same chunks, for any
/// pieces that these came in.
#[test]
fn pages_are_equal_where_they_are_made_of_the_same() {
    let (of_several, equal) = (Cell::new(0), Cell::new(0));
    for_seeds(0..40, |seed| {
        let mut rng = Rng::new(seed);
        let page_sectors = 8 << rng.below(3);
        let (pages, laid_at) = (24, SECTOR * 8 * rng.below(3));
        let mut contents = of_pages(page_sectors * SECTOR);
        let mut model: Vec<Option<(Fingerprint, u64)>> = vec![None; (pages * page_sectors) as usize];
        let (mut by_content, mut by_made) = (HashMap::<Fingerprint, Made>::new(), HashMap::<Made, Fingerprint>::new());
        for _ in 0..400 {
            let from = rng.below(pages * page_sectors);
            let to = (from + 1 + rng.below(3 * page_sectors)).min(pages * page_sectors);
            if rng.chance(5) {
                let whole = from.div_ceil(page_sectors)..to / page_sectors;
                if !whole.is_empty() {
                    contents.trim(whole.clone());
                    model[(whole.start * page_sectors) as usize..(whole.end * page_sectors) as usize].fill(None);
                }
                continue;
            }
            // Chunks of this write's size, some of them unknown; the first may begin before the
            // written bytes.
            let chunk_sectors = [4, 8, 12, 32][rng.below(4) as usize];
            let mut raw = Vec::new();
            let mut at = from.saturating_sub(rng.below(chunk_sectors));
            model[from as usize..to as usize].fill(None);
            while at < to {
                let number = rng.below(5) as u8;
                if number < 4 {
                    let mut chunk = chunk(laid_at + at * SECTOR, number);
                    chunk.len = (chunk_sectors * SECTOR) as u32;
                    // Chunks of two sizes are never of equal content, except zeroes.
                    chunk.fingerprint.0[8] = if number == 0 { 0 } else { chunk_sectors as u8 };
                    raw.push(chunk);
                    for sector in at.max(from)..(at + chunk_sectors).min(to) {
                        let place = if number == 0 { 0 } else { sector - at };
                        model[sector as usize] = Some((chunk.fingerprint, place));
                    }
                }
                at += chunk_sectors;
            }
            contents.write(&raw, laid_at, from * SECTOR..to * SECTOR);
            for page in from / page_sectors..to.div_ceil(page_sectors) {
                let sectors = &model[(page * page_sectors) as usize..((page + 1) * page_sectors) as usize];
                let made: Option<Made> = sectors.iter().copied().collect();
                let told = contents.get(page);
                assert_eq!(told.is_some(), made.is_some(), "page {page}");
                let (Some(told), Some(made)) = (told, made) else { continue };
                let covers = from <= page * page_sectors && (page + 1) * page_sectors <= to;
                of_several.set(of_several.get() + u64::from(!covers));
                equal.set(equal.get() + u64::from(by_content.contains_key(&told)));
                assert_eq!(
                    by_content.entry(told).or_insert_with(|| made.clone()),
                    &made,
                    "page {page}: equal is not alike"
                );
                assert_eq!(*by_made.entry(made).or_insert(told), told, "page {page}: alike is not equal");
            }
        }
    });
    assert!(of_several.get() > 1000 && equal.get() > 1000, "{of_several:?}, {equal:?}");
}

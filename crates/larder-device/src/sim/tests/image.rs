//! The bytes of a device: durable ones, ones that a crash keeps, undefined ones.

use crate::{
    IoBuf,
    rng::Rng,
    sim::{
        image::Medium,
        pages::{Change, Content, SECTOR_BYTES},
    },
};

fn data(offset: u64, byte: u8, len: usize) -> Change {
    let content = Content::Data(IoBuf::copy_of(&vec![byte; len]).freeze());
    Change { offset, len: len as u64, content }
}

fn zeroes(offset: u64, len: u64) -> Change {
    Change { offset, len, content: Content::Zeroes }
}

fn byte(medium: &Medium, offset: u64) -> u8 {
    let mut byte = [0];
    medium.read(offset, &mut byte);
    byte[0]
}

fn all(medium: &Medium, len: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut current, mut durable) = (vec![0; len], vec![0; len]);
    medium.read(0, &mut current);
    medium.read_durable(0, &mut durable);
    (current, durable)
}

#[test]
fn a_durable_change_is_not_covered_by_an_older_one_after_a_crash() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut medium = Medium::new(512);
        medium.change(data(0, 1, 8192));
        medium.change_durably(&data(2048, 2, 1024));
        assert_eq!(medium.unflushed_bytes(), 8192 - 1024);
        medium.power_loss(&mut rng);
        assert_eq!((byte(&medium, 2048), byte(&medium, 3071)), (2, 2), "seed {seed}");
        assert!(byte(&medium, 2047) <= 1 && byte(&medium, 3072) <= 1, "seed {seed}");
    }
}

#[test]
fn tearing_parts_a_change_without_loss_and_at_atoms_only() {
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let (len, atom) = (SECTOR_BYTES * (1 + rng.below(64)), [512, 4096][seed as usize % 2]);
        let (some, others) = data(512, 1, len as usize).tear(atom, &mut rng);
        let mut parts: Vec<_> = some.iter().chain(&others).map(|part| (part.offset, part.end())).collect();
        parts.sort_unstable();
        assert_eq!(parts.first().map(|part| part.0), Some(512), "seed {seed}");
        assert_eq!(parts.last().map(|part| part.1), Some(512 + len), "seed {seed}");
        assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0), "seed {seed}");
        assert!(parts.iter().skip(1).all(|part| part.0.is_multiple_of(atom)), "seed {seed}: {parts:?}");
    }
}

#[test]
fn a_flush_covers_what_came_before_it_only() {
    let mut medium = Medium::new(512);
    medium.change(data(0, 1, 512));
    let upto = medium.next_change();
    medium.change(data(512, 2, 512));
    medium.flush(upto);
    let mut out = [9; 1024];
    medium.read_durable(0, &mut out);
    assert_eq!((out[0], out[512]), (1, 0));
    assert_eq!(medium.unflushed_bytes(), 512);
}

/// Compares the images that share pages with images of plain bytes.
#[test]
fn images_are_what_plain_bytes_would_be() {
    const BYTES: usize = 48 << 10;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut medium = Medium::new(512);
        let (mut current, mut durable) = (vec![0; BYTES], vec![0; BYTES]);
        let mut log: Vec<(u64, u8, std::ops::Range<usize>, Vec<bool>)> = Vec::new();
        for step in 0..60 {
            let from = rng.index(BYTES / 512) * 512;
            let to = from + (1 + rng.index(((BYTES - from) / 512).min(20))) * 512;
            let value = if rng.chance(1, 3) { 0 } else { 1 + (step % 250) as u8 };
            let change = match value {
                0 => zeroes(from as u64, (to - from) as u64),
                _ => data(from as u64, value, to - from),
            };
            match rng.below(8) {
                0 => {
                    let upto = rng.below(medium.next_change() + 1);
                    medium.flush(upto);
                    log.retain(|(number, value, range, still)| {
                        if *number < upto {
                            range.clone().filter(|at| still[at - range.start]).for_each(|at| durable[at] = *value);
                        }
                        *number >= upto
                    });
                }
                1 => {
                    medium.change_durably(&change);
                    current[from..to].fill(value);
                    durable[from..to].fill(value);
                    for (_, _, range, still) in &mut log {
                        range
                            .clone()
                            .filter(|at| (from..to).contains(at))
                            .for_each(|at| still[at - range.start] = false);
                    }
                }
                2 if rng.chance(1, 4) => {
                    medium.lose(0, |_, _| {});
                    current.copy_from_slice(&durable);
                    log.clear();
                }
                _ => {
                    log.push((medium.next_change(), value, from..to, vec![true; to - from]));
                    medium.change(change);
                    current[from..to].fill(value);
                }
            }
            assert!(all(&medium, BYTES) == (current.clone(), durable.clone()), "seed {seed}, step {step}");
            let unflushed =
                log.iter().map(|(_, _, _, still)| still.iter().filter(|&&still| still).count()).sum::<usize>();
            assert_eq!(medium.unflushed_bytes(), unflushed as u64, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn a_clone_goes_its_own_way() {
    let mut medium = Medium::new(512);
    medium.change_durably(&data(0, 1, 8192));
    medium.change(data(4096, 2, 512));
    let mut other = medium.clone();
    other.change(data(0, 3, 512));
    other.flush(u64::MAX);
    medium.lose(0, |_, _| {});
    assert_eq!((byte(&medium, 0), byte(&medium, 4096)), (1, 1));
    assert_eq!((byte(&other, 0), byte(&other, 4096)), (3, 2));
}

#[test]
fn extents_and_zeroes_follow_the_pages() {
    let mut medium = Medium::new(512);
    medium.change(data(1 << 30, 1, 8192));
    let extents: Vec<_> = medium.extents(0, 1 << 40).iter().map(|extent| (extent.len, extent.hole)).collect();
    assert_eq!(extents, [(1 << 30, true), (8192, false), ((1 << 40) - (1 << 30) - 8192, true)]);
    medium.change(zeroes(512, (1 << 40) - 512));
    assert_eq!(medium.extents(0, 1 << 40).len(), 1);
    assert_eq!(byte(&medium, 1 << 30), 0);
}

#[test]
fn what_is_undefined_may_change_with_each_power_loss_until_it_is_rewritten() {
    let (mut old, mut zero, mut other, mut changed) = (0, 0, 0, 0);
    for seed in 0..100 {
        let mut medium = Medium::new(512);
        medium.change_durably(&data(0, 7, 16 << 10));
        let content = Content::Undefined { seed, from: 1024 };
        medium.change(Change { offset: 1024, len: 8192, content });
        // Flushed or not, a discarded sector has no promised content.
        medium.flush(u64::MAX);
        medium.change_durably(&data(2048, 9, 512));
        let mut before = None;
        for _ in 0..4 {
            let (now, durable) = all(&medium, 16 << 10);
            assert!(now == durable);
            assert_eq!((now[1023], now[2048], now[2559], now[1024 + 8192]), (7, 9, 9, 7), "seed {seed}");
            match now[3000] {
                7 => old += 1,
                0 => zero += 1,
                _ => other += 1,
            }
            changed += u32::from(before.is_some_and(|before| before != now));
            before = Some(now);
            medium.power_loss(&mut Rng::new(u64::from(seed)));
        }
    }
    assert!(old > 50 && zero > 50 && other > 50 && changed > 200, "{old} {zero} {other} {changed}");
}

/// A sector's expected content: its durable byte, and the numbered changes since, forgotten or not.
#[derive(Clone, Default)]
struct Expected {
    durable: u8,
    changes: Vec<(u64, u8, bool)>,
}

impl Expected {
    fn current(&self) -> u8 {
        self.changes.last().map_or(self.durable, |change| change.1)
    }

    fn flush(&mut self, upto: u64) {
        if let Some(newest) = self.changes.iter().rposition(|&(number, _, forgotten)| number < upto && !forgotten) {
            self.durable = self.changes[newest].1;
            self.changes.drain(..=newest);
        }
    }
}

/// Tests flushes, failed flushes, durable writes and reopenings in any order, one byte a sector.
#[test]
fn what_a_failed_flush_forgot_no_flush_makes_durable() {
    const SECTORS: u64 = 24;
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut medium = Medium::new(512);
        let mut expected = vec![Expected::default(); SECTORS as usize];
        for step in 0..60 {
            let first = rng.below(SECTORS);
            let count = 1 + rng.below(SECTORS - first);
            let run = first as usize..(first + count) as usize;
            let (offset, len, value) = (first * SECTOR_BYTES, count * SECTOR_BYTES, 1 + rng.below(250) as u8);
            let number = medium.next_change();
            match rng.below(10) {
                0..4 => {
                    medium.change(data(offset, value, len as usize));
                    expected[run].iter_mut().for_each(|sector| sector.changes.push((number, value, false)));
                }
                4 => {
                    medium.change(zeroes(offset, len));
                    expected[run].iter_mut().for_each(|sector| sector.changes.push((number, 0, false)));
                }
                5 => {
                    medium.change_durably(&data(offset, value, len as usize));
                    let durable = |sector: &mut Expected| *sector = Expected { durable: value, changes: Vec::new() };
                    expected[run].iter_mut().for_each(durable);
                }
                6..8 => {
                    let upto = number - rng.below(4).min(number);
                    medium.flush(upto);
                    expected.iter_mut().for_each(|sector| sector.flush(upto));
                }
                8 => {
                    let upto = number - rng.below(4).min(number);
                    medium.flush_failed(Some(upto));
                    let changes = expected.iter_mut().flat_map(|sector| &mut sector.changes);
                    changes.filter(|change| change.0 < upto).for_each(|change| change.2 = true);
                }
                _ => {
                    medium.recall();
                    let (_, durable) = all(&medium, (SECTORS * SECTOR_BYTES) as usize);
                    for (sector, durable) in expected.iter_mut().zip(durable.chunks(SECTOR_BYTES as usize)) {
                        let may_be = |change: &&(u64, u8, bool)| change.2 && change.1 == durable[0];
                        assert!(sector.durable == durable[0] || sector.changes.iter().any(|change| may_be(&change)));
                        sector.durable = durable[0];
                        sector.changes.retain(|change| !change.2);
                    }
                }
            }
            let (current, durable) = all(&medium, (SECTORS * SECTOR_BYTES) as usize);
            for (at, sector) in expected.iter().enumerate() {
                let at = at * SECTOR_BYTES as usize;
                let found = (current[at], durable[at]);
                assert_eq!(found, (sector.current(), sector.durable), "seed {seed}, step {step}, offset {at}");
            }
        }
        medium.flush(u64::MAX);
        medium.recall();
        assert_eq!(medium.unflushed_bytes(), 0, "seed {seed}");
    }
}

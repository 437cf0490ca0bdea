//! [`Frozen`]: the undecided instant of a crash, to be decided in every way, one after the other.
//!
//! The undecided parts are, for each device, the volatile changes, oldest first, and then the
//! operations in flight. Each such *piece* is kept, dropped or torn, independent of the others.
//!
//! Invariants: two choices differ in the content of some sector. Exceptions are pieces longer than
//! three atoms, and pieces that cover each other. An atom does not count if the piece leaves its
//! durable content and no earlier piece touches it.
//!
//! It does not cut a piece of more than three such atoms in every way; it takes six of them.

use super::{
    body::Body,
    image::Medium,
    op::leave_behind,
    pages::{Change, Content, PAGE_BYTES, Pages},
};
use crate::rng::Rng;
use std::{
    collections::HashSet,
    ops::Range,
    sync::{Arc, OnceLock},
};

/// The most atoms of a piece that is cut in every way.
const ATOMS_CUT_IN_EVERY_WAY_MAX: usize = 3;
/// Ways to cut a longer one: none, all, first atom, last, first half, all but one in the middle.
const WAYS_TO_CUT_A_LONG_ONE: u64 = 6;

/// The instant of a crash, undecided. It is cheap, since it shares its bytes with the devices.
pub struct Frozen {
    devices: Vec<FrozenDevice>,
    /// In the order of submission: the device, and the changes still possible.
    in_flight: Vec<(usize, Vec<Change>)>,
    pieces: OnceLock<Vec<UndecidedChange>>,
}

struct FrozenDevice {
    device: Arc<Body>,
    medium: Medium,
}

/// A change that may be kept, dropped or torn, and its relevant atoms.
struct UndecidedChange {
    device: usize,
    change: Change,
    in_flight: bool,
    /// The numbers of the atoms that it would change, in order.
    atoms: Vec<u64>,
}

impl UndecidedChange {
    /// Returns in how many ways it can end.
    fn ways(&self) -> u64 {
        match self.atoms.len() {
            atoms @ 0..=ATOMS_CUT_IN_EVERY_WAY_MAX => 1 << atoms,
            _ => WAYS_TO_CUT_A_LONG_ONE,
        }
    }

    fn way_that_keeps_all(&self) -> u64 {
        if self.atoms.len() <= ATOMS_CUT_IN_EVERY_WAY_MAX { self.ways() - 1 } else { 1 }
    }

    /// Returns the kept part for way number `way`: two ranges of its list of atoms, perhaps empty.
    ///
    /// Way 0 keeps nothing.
    fn kept(&self, way: u64) -> [Range<usize>; 2] {
        let atoms = self.atoms.len();
        if atoms <= ATOMS_CUT_IN_EVERY_WAY_MAX {
            // A bit for each atom. Only these two of three bits do not follow each other.
            return match way {
                0 => [0..0, 0..0],
                0b101 => [0..1, 2..3],
                _ => [way.trailing_zeros() as usize..way.ilog2() as usize + 1, 0..0],
            };
        }
        match way {
            0 => [0..0, 0..0],
            1 => [0..atoms, 0..0],
            2 => [0..1, 0..0],
            3 => [atoms - 1..atoms, 0..0],
            4 => [0..atoms / 2, 0..0],
            _ => [0..atoms / 2, atoms / 2 + 1..atoms],
        }
    }

    fn for_kept(&self, way: u64, tear_bytes: u64, mut f: impl FnMut(Change)) {
        for range in self.kept(way).into_iter().filter(|range| !range.is_empty()) {
            let (first, last) = (self.atoms[range.start], self.atoms[range.end - 1]);
            self.change.part(first * tear_bytes, (last + 1) * tear_bytes).into_iter().for_each(&mut f);
        }
    }
}

impl Frozen {
    pub(super) fn new(devices: Vec<Arc<Body>>, in_flight: Vec<(Arc<Body>, Vec<Change>)>) -> Frozen {
        let number = |wanted: &Arc<Body>| devices.iter().position(|device| Arc::ptr_eq(device, wanted));
        let in_flight =
            in_flight.into_iter().filter_map(|(device, rest)| number(&device).map(|number| (number, rest))).collect();
        let frozen = |device: Arc<Body>| {
            let medium = device.medium.lock().clone();
            FrozenDevice { device, medium }
        };
        Frozen { devices: devices.into_iter().map(frozen).collect(), in_flight, pieces: OnceLock::new() }
    }

    /// Returns how many power losses differ; `u64::MAX` for more than fit.
    pub fn choices(&self) -> u64 {
        self.pieces().iter().fold(1, |choices, piece| choices.saturating_mul(piece.ways()))
    }

    /// Returns how many kills differ: only operations in flight are undecided then.
    pub fn choices_of_a_kill(&self) -> u64 {
        let in_flight = self.pieces().iter().filter(|piece| piece.in_flight);
        in_flight.fold(1, |choices, piece| choices.saturating_mul(piece.ways()))
    }

    /// Returns the number of undecided changes, of all devices.
    pub fn undecided(&self) -> usize {
        self.pieces().iter().filter(|piece| piece.ways() > 1).count()
    }

    /// Puts the devices into the state of power loss number `choice`; 0 drops everything.
    ///
    /// Calls may repeat, after any change to the devices in between.
    ///
    /// # Panics
    /// If there are fewer choices. The runtime of the devices must have ended.
    pub fn thaw(&self, choice: u64) {
        let mut images = self.images_without_what_is_undecided(choice);
        self.decide(choice, |_| true, |device, change| images[device].change_durably(&change));
        self.put(images);
    }

    /// Puts the devices into the state of a power loss that takes nothing.
    pub fn thaw_all_kept(&self) {
        let mut images = self.images_without_what_is_undecided(u64::MAX);
        for piece in self.pieces() {
            let tear_bytes = images[piece.device].tear_bytes();
            piece.for_kept(piece.way_that_keeps_all(), tear_bytes, |change| {
                images[piece.device].change_durably(&change);
            });
        }
        self.put(images);
    }

    fn images_without_what_is_undecided(&self, salt: u64) -> Vec<Medium> {
        let mut images: Vec<Medium> = self.devices.iter().map(|device| device.medium.clone()).collect();
        images.iter_mut().for_each(|image| image.lose(salt, |_, _| {}));
        images
    }

    /// Puts the devices into the state of a kill.
    ///
    /// Completed operations are there, no more durable than before. `choice` of
    /// [`Frozen::choices_of_a_kill`] decides the operations in flight.
    ///
    /// # Panics
    /// As [`Frozen::thaw`].
    pub fn thaw_killed(&self, choice: u64) {
        let mut images: Vec<Medium> = self.devices.iter().map(|device| device.medium.clone()).collect();
        self.decide(choice, |piece| piece.in_flight, |device, change| images[device].change(change));
        self.put(images);
    }

    /// Puts the devices into the state of a random power loss, drawn as in
    /// [`super::SimRuntime::crash`].
    ///
    /// Tears go beyond the numbered ones, and few or all losses are as likely as half of them.
    pub fn thaw_drawn(&self, rng: &mut Rng) {
        let mut images = self.images_with_what_was_in_flight(rng);
        images.iter_mut().for_each(|image| image.power_loss(rng));
        self.put(images);
    }

    /// Puts the devices into the state of a random kill, drawn as in [`super::SimRuntime::kill`].
    pub fn thaw_killed_drawn(&self, rng: &mut Rng) {
        let images = self.images_with_what_was_in_flight(rng);
        self.put(images);
    }

    fn images_with_what_was_in_flight(&self, rng: &mut Rng) -> Vec<Medium> {
        let mut images: Vec<Medium> = self.devices.iter().map(|device| device.medium.clone()).collect();
        let mut in_flight: Vec<&(usize, Vec<Change>)> = self.in_flight.iter().collect();
        rng.shuffle(&mut in_flight);
        for (device, rest) in in_flight {
            leave_behind(&mut images[*device], rest.clone(), rng);
        }
        images
    }

    fn put(&self, images: Vec<Medium>) {
        for (device, image) in self.devices.iter().zip(images) {
            *device.device.medium.lock() = image;
        }
    }

    fn decide(&self, mut choice: u64, of: impl Fn(&UndecidedChange) -> bool, mut keep: impl FnMut(usize, Change)) {
        for piece in self.pieces().iter().filter(|piece| of(piece)) {
            let ways = piece.ways();
            let tear_bytes = self.devices[piece.device].medium.tear_bytes();
            piece.for_kept(choice % ways, tear_bytes, |change| keep(piece.device, change));
            choice /= ways;
        }
        assert_eq!(choice, 0, "there are fewer choices");
    }

    fn pieces(&self) -> &[UndecidedChange] {
        self.pieces.get_or_init(|| {
            let mut pieces = Vec::new();
            for (number, FrozenDevice { medium, .. }) in self.devices.iter().enumerate() {
                let mut touched = HashSet::new();
                let mut add = |change: &Change, in_flight| {
                    let atoms = atoms_that_matter(medium, change, &touched);
                    touched.extend(atoms.iter().copied());
                    if !atoms.is_empty() {
                        pieces.push(UndecidedChange { device: number, change: change.clone(), in_flight, atoms });
                    }
                };
                medium.unflushed().for_each(|change| add(change, false));
                let in_flight = self.in_flight.iter().filter(|(device, _)| *device == number);
                in_flight.flat_map(|(_, rest)| rest).for_each(|change| add(change, true));
            }
            pieces
        })
    }
}

/// Returns the atoms that differ between a kept and a dropped change.
fn atoms_that_matter(medium: &Medium, change: &Change, touched: &HashSet<u64>) -> Vec<u64> {
    let tear_bytes = medium.tear_bytes();
    let differs = |atom: u64| {
        let (from, to) = ((atom * tear_bytes).max(change.offset), ((atom + 1) * tear_bytes).min(change.end()));
        touched.contains(&atom) || !is_in(medium.durable(), change, from, to)
    };
    match change.content {
        Content::Data(_) => change.atoms(tear_bytes).filter(|&atom| differs(atom)).collect(),
        Content::Undefined { .. } if change.len <= PAGE_BYTES << 20 => change.atoms(tear_bytes).collect(),
        // It may have terabytes, so holes stay holes.
        _ => {
            let pages = medium.pages_touched(change).into_iter();
            let atoms = pages.flat_map(|page| page * PAGE_BYTES / tear_bytes..(page + 1) * PAGE_BYTES / tear_bytes);
            let all = change.atoms(tear_bytes);
            let earlier = touched.iter().copied().filter(|atom| all.contains(atom));
            let mut atoms: Vec<u64> = atoms.filter(|atom| all.contains(atom)).chain(earlier).collect();
            atoms.sort_unstable();
            atoms.dedup();
            atoms.retain(|&atom| differs(atom));
            atoms
        }
    }
}

/// Returns whether the image already holds the change's content between these offsets.
fn is_in(image: &Pages, change: &Change, from: u64, to: u64) -> bool {
    if image.is_undefined(from, to - from) {
        return false;
    }
    let mut there = [0; PAGE_BYTES as usize];
    let there = &mut there[..(to - from) as usize];
    image.read(from, there, 0);
    match &change.content {
        Content::Data(data) => *there == data[(from - change.offset) as usize..(to - change.offset) as usize],
        Content::Zeroes => there.iter().all(|&byte| byte == 0),
        Content::Undefined { .. } => false,
    }
}

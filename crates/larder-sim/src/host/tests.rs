//! The host's side beside a model of the buffer.
//!
//! Each sector that was written is on the drive with its newest content in the end. Each unit that
//! was touched was written, absorbed, or given up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use super::*;
use crate::{
    devices::{Gathering, RawChunk},
    seeded::{Rng, for_seeds},
    waiting::SECTOR_BYTES,
};
use larder_core::Fingerprint;
use larder_ssd::{
    array::FlashArray,
    ftl::WrittenPages,
    geometry::{DriveGeometry, Ppa},
    kinds::FTLS,
    profile::PROFILES,
};

/// A request to a layer.
#[derive(Debug)]
enum Call {
    Write(Vec<PageWrite>),
    Read(u32),
    Trim(Range<u32>),
}

/// A layer that notes its requests.
struct Noting {
    inner: Box<dyn Ftl>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Noting {
    fn note(&self, call: Call) {
        self.calls.lock().expect("one thread").push(call);
    }
}

impl Ftl for Noting {
    fn write(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> WrittenPages {
        self.note(Call::Write(pages.to_vec()));
        self.inner.write(pages, sink)
    }
    fn read(&mut self, lpn: Lpn, sink: &mut dyn OpSink) -> bool {
        self.note(Call::Read(lpn.0));
        self.inner.read(lpn, sink)
    }
    fn trim(&mut self, pages: Range<u32>, sink: &mut dyn OpSink) {
        self.note(Call::Trim(pages.clone()));
        self.inner.trim(pages, sink);
    }
    fn locate(&self, lpn: Lpn) -> Option<Ppa> {
        self.inner.locate(lpn)
    }
    fn logical_pages(&self) -> u32 {
        self.inner.logical_pages()
    }
    fn write_unit_pages(&self) -> u32 {
        self.inner.write_unit_pages()
    }
    fn takes_trims(&self) -> bool {
        self.inner.takes_trims()
    }
    fn deduplicates(&self) -> bool {
        true
    }
    fn counts(&self) -> &DriveCounts {
        self.inner.counts()
    }
    fn array(&self) -> &FlashArray {
        self.inner.array()
    }
    fn ram_bytes(&self) -> u64 {
        self.inner.ram_bytes()
    }
    fn check(&self) {
        self.inner.check();
    }
}

const PAGE_BYTES: u64 = 4096;
const PAGE_SECTORS: u64 = PAGE_BYTES / SECTOR_BYTES;
const GEOMETRY: DriveGeometry = DriveGeometry {
    packages: 2,
    dies_per_package: 1,
    planes_per_die: 2,
    blocks_per_plane: 48,
    pages_per_block: 16,
    page_bytes: PAGE_BYTES as u32,
    over_provisioning_percent: 25.0,
};
/// Units that the buffer has room for.
const UNITS: u64 = 6;

/// Sectors, each with the number of the write of its content.
type Sectors = BTreeMap<u64, u64>;

/// A host over a layer that notes, and the expected places of the sectors.
struct Beside {
    name: &'static str,
    host: Host,
    calls: Arc<Mutex<Vec<Call>>>,
    unit_sectors: u64,
    version: u64,
    newest: Sectors,
    on_drive: Sectors,
    /// By unit.
    waiting: BTreeMap<u64, Sectors>,
    /// Units that writes touched, each as often as one did.
    touched: u64,
    /// Units that the layer was handed.
    units_written: u64,
    counts: HostCounts,
    forgotten: u64,
    given_up: u64,
    /// The newest version when a page was last trimmed.
    trimmed: BTreeMap<u64, u64>,
    reads_of_waiting: u64,
    /// Pages that waited with parts of units, and were written with a known content.
    known_of_waited: u64,
}

impl Beside {
    fn new(kind: &FtlKind) -> Beside {
        let weu_bytes = GEOMETRY.pages_per_block as u64 * PAGE_BYTES * 2;
        let make =
            || kind.make_for(&DriveProfile { geometry: GEOMETRY, ..PROFILES[0] }, Some(weu_bytes)).expect("a layer");
        let unit_bytes = u64::from(make().write_unit_pages()) * PAGE_BYTES;
        let profile = DriveProfile { geometry: GEOMETRY, buffer_bytes: UNITS * unit_bytes, ..PROFILES[0] };
        let mut host = Host::new(&profile, kind, Some(weu_bytes)).expect("a drive");
        let calls = Arc::default();
        host.ftl = Box::new(Noting { inner: make(), calls: Arc::clone(&calls) });
        host.contents = PageContents::of(&*host.ftl);
        Beside {
            name: kind.name,
            host,
            calls,
            unit_sectors: unit_bytes / SECTOR_BYTES,
            version: 0,
            newest: Sectors::new(),
            on_drive: Sectors::new(),
            waiting: BTreeMap::new(),
            touched: 0,
            units_written: 0,
            counts: HostCounts::default(),
            forgotten: 0,
            given_up: 0,
            trimmed: BTreeMap::new(),
            reads_of_waiting: 0,
            known_of_waited: 0,
        }
    }

    /// Has the host make one request of sectors, and returns the layer's requests.
    fn ask(&mut self, action: DeviceAction, sectors: &Range<u64>, seals: &[u64]) -> Vec<Call> {
        let mut gathering = Gathering::default();
        gathering.turn(true);
        let pages = sectors.start.div_ceil(PAGE_SECTORS)..sectors.end / PAGE_SECTORS;
        let raw: Vec<RawChunk> = pages
            .map(|page| RawChunk {
                start: page * PAGE_BYTES,
                len: PAGE_BYTES as u32,
                fingerprint: written(page, self.version),
            })
            .collect();
        if !sectors.is_empty() {
            let (start, len) = (sectors.start * SECTOR_BYTES, (sectors.end - sectors.start) * SECTOR_BYTES);
            gathering.add_with(Device::Flash, action, start, len, 0, &raw);
        }
        let unit_bytes = self.unit_sectors * SECTOR_BYTES;
        seals.iter().for_each(|unit| gathering.seal(unit * unit_bytes..(unit + 1) * unit_bytes));
        let mut requests = Requests::default();
        gathering.take(&mut requests);
        self.host.carry_out(&requests);
        std::mem::take(&mut self.calls.lock().expect("one thread"))
    }

    fn write(&mut self, sectors: Range<u64>) {
        self.version += 1;
        let calls = self.ask(DeviceAction::Write, &sectors, &[]);
        self.counts.bytes_written += (sectors.end - sectors.start) * SECTOR_BYTES;
        // The waiting parts of a unit that is written whole: they may be written before that, and
        // never after.
        let mut superseded = BTreeMap::new();
        for unit in sectors.start / self.unit_sectors..sectors.end.div_ceil(self.unit_sectors) {
            self.touched += 1;
            let all = unit * self.unit_sectors..(unit + 1) * self.unit_sectors;
            let part = sectors.start.max(all.start)..sectors.end.min(all.end);
            self.newest.extend(part.clone().map(|sector| (sector, self.version)));
            if part == all {
                superseded.extend(self.waiting.remove(&unit).map(|waited| (unit, waited)));
            } else {
                self.counts.writes_absorbed += u64::from(self.waiting.contains_key(&unit));
                self.waiting.entry(unit).or_default().extend(part.map(|sector| (sector, self.version)));
            }
        }
        let whole = sectors.start.div_ceil(self.unit_sectors)..sectors.end / self.unit_sectors;
        self.hear(calls, whole, superseded);
    }

    /// Lays the layer's writes on the drive: whole units of this write, or waiting parts.
    fn hear(&mut self, calls: Vec<Call>, whole: Range<u64>, mut superseded: BTreeMap<u64, Sectors>) {
        let (name, unit_pages) = (self.name, self.unit_sectors / PAGE_SECTORS);
        let mut read = BTreeSet::new();
        // Waiting parts of them may have come before: the last is of this write.
        let is_whole =
            |call: &Call| matches!(call, Call::Write(pages) if u64::from(pages[0].lpn.0) == whole.start * unit_pages);
        let of_whole = calls.iter().rposition(|call| !whole.is_empty() && is_whole(call));
        for (number, call) in calls.into_iter().enumerate() {
            let pages = match call {
                Call::Write(pages) => pages,
                Call::Read(lpn) => {
                    assert!(read.insert(u64::from(lpn)), "{name}: page {lpn} is read twice");
                    continue;
                }
                Call::Trim(pages) => panic!("{name}: a write has trimmed {pages:?}"),
            };
            assert_eq!(pages.len() as u64 % unit_pages, 0, "{name}: whole units");
            self.units_written += pages.len() as u64 / unit_pages;
            if of_whole == Some(number) {
                assert_eq!(pages.len() as u64, (whole.end - whole.start) * unit_pages, "{name}: all at once");
                for page in &pages {
                    let lpn = u64::from(page.lpn.0);
                    assert_eq!(page.content, Some(written(lpn, self.version)), "{name}: page {lpn}");
                    let sectors = lpn * PAGE_SECTORS..(lpn + 1) * PAGE_SECTORS;
                    self.on_drive.extend(sectors.map(|sector| (sector, self.version)));
                }
                self.forgotten += superseded.len() as u64;
                self.counts.writes_absorbed += superseded.len() as u64;
                superseded.clear();
                continue;
            }
            let unit = u64::from(pages[0].lpn.0) / unit_pages;
            let waited = self.waiting.remove(&unit).or_else(|| superseded.remove(&unit));
            let waited = waited.unwrap_or_else(|| panic!("{name}: nothing of unit {unit} waits, and it is written"));
            for lpn in std::mem::take(&mut read) {
                let mut sectors = lpn * PAGE_SECTORS..(lpn + 1) * PAGE_SECTORS;
                assert_eq!(lpn / unit_pages, unit, "{name}: it is read to complete the unit");
                assert!(sectors.any(|sector| !waited.contains_key(&sector)), "{name}: page {lpn} is new");
                self.counts.pages_read_to_complete += 1;
            }
            self.counts.units_completed += u64::from((waited.len() as u64) < self.unit_sectors);
            self.on_drive.extend(waited);
            for page in &pages {
                let lpn = u64::from(page.lpn.0);
                let first = lpn * PAGE_SECTORS;
                let versions = (first..first + PAGE_SECTORS).map(|sector| self.on_drive.get(&sector));
                let versions: BTreeSet<_> = versions.collect();
                // The content of a write is known for the pages that are whole in it.
                let version = versions.first().copied().flatten().filter(|_| versions.len() == 1);
                let version = version.filter(|&version| self.trimmed.get(&lpn).is_none_or(|trimmed| trimmed < version));
                assert_eq!(page.content, version.map(|&version| written(lpn, version)), "{name}: page {lpn}");
                self.known_of_waited += u64::from(version.is_some());
            }
        }
        assert!(superseded.is_empty() && read.is_empty(), "{name}: what was read or superseded is written");
        assert!(self.waiting.len() as u64 <= UNITS, "{name}: {} units wait", self.waiting.len());
    }

    /// Reads a page from the drive, unless all of its requested bytes wait.
    fn read(&mut self, sectors: Range<u64>) {
        let calls = self.ask(DeviceAction::Read, &sectors, &[]);
        let mut expected = Vec::new();
        for page in sectors.start / PAGE_SECTORS..sectors.end.div_ceil(PAGE_SECTORS) {
            let (from, to) = (page * PAGE_SECTORS, (page + 1) * PAGE_SECTORS);
            let waiting = self.waiting.get(&(from / self.unit_sectors));
            let waits = |sector| waiting.is_some_and(|waiting| waiting.contains_key(&sector));
            match (sectors.start.max(from)..sectors.end.min(to)).all(waits) {
                true => self.reads_of_waiting += 1,
                false => expected.push(page as u32),
            }
        }
        let reads = calls.iter().map(|call| if let Call::Read(lpn) = call { *lpn } else { panic!("{call:?}") });
        assert_eq!(reads.collect::<Vec<_>>(), expected, "{}: {sectors:?}", self.name);
    }

    fn trim(&mut self, sectors: Range<u64>) {
        let calls = self.ask(DeviceAction::Trim, &sectors, &[]);
        let pages = sectors.start.div_ceil(PAGE_SECTORS)..sectors.end / PAGE_SECTORS;
        if pages.is_empty() {
            return assert!(calls.is_empty(), "{}: {calls:?}", self.name);
        }
        let is_told = matches!(&calls[..], [Call::Trim(told)] if *told == (pages.start as u32..pages.end as u32));
        assert!(is_told, "{}: {calls:?} for pages {pages:?}", self.name);
        self.trimmed.extend(pages.clone().map(|page| (page, self.version)));
        for sector in pages.start * PAGE_SECTORS..pages.end * PAGE_SECTORS {
            self.newest.remove(&sector);
            self.on_drive.remove(&sector);
        }
        let (sectors, before) = (self.unit_sectors, self.waiting.len());
        let is_gone = |unit: u64| {
            pages.start * PAGE_SECTORS <= unit * sectors && (unit + 1) * sectors <= pages.end * PAGE_SECTORS
        };
        self.waiting.retain(|unit, _| !is_gone(*unit));
        self.given_up += (before - self.waiting.len()) as u64;
    }

    /// Tells that these units get no more.
    fn seal(&mut self, units: &[u64]) {
        let calls = self.ask(DeviceAction::Write, &(0..0), units);
        self.hear(calls, 0..0, BTreeMap::new());
        assert!(units.iter().all(|unit| !self.waiting.contains_key(unit)), "{}: {units:?} wait", self.name);
    }

    fn check(&self) {
        let name = self.name;
        assert_eq!(self.host.counts(), self.counts, "{name}");
        let waiting = self.waiting.len() as u64;
        let all = self.units_written + self.counts.writes_absorbed + self.given_up + waiting;
        assert_eq!(self.touched, all, "{name}: units are written, absorbed, given up or wait");
        let drive = self.host.drive_counts();
        let pages = self.units_written * self.unit_sectors / PAGE_SECTORS;
        assert_eq!(drive.host_pages_written, pages, "{name}: the layer gets what it is handed");
        let by_host = drive.programs[larder_ssd::op::Cause::Host as usize];
        assert_eq!(by_host + drive.pages_deduplicated, pages, "{name}: programs of the host");
        self.host.ftl().check();
        for (sector, version) in &self.newest {
            let waits = self.waiting.get(&(sector / self.unit_sectors)).and_then(|waiting| waiting.get(sector));
            let is = waits.or(self.on_drive.get(sector));
            assert_eq!(is, Some(version), "{name}: sector {sector} reads as its newest content");
        }
        // A larger unit is written whole, with its trimmed parts.
        if waiting == 0 && self.unit_sectors == PAGE_SECTORS {
            assert_eq!(self.on_drive, self.newest, "{name}: what was trimmed does not come back");
        }
    }
}

/// Returns the content of a page after a write.
fn written(page: u64, version: u64) -> Fingerprint {
    Fingerprint((u128::from(version) << 64 | u128::from(page + 1)).to_le_bytes())
}

#[test]
fn each_sector_is_its_newest_content_on_every_layer() {
    for kind in FTLS {
        for_seeds(0..4, |seed| {
            let mut rng = Rng::new(seed);
            let mut beside = Beside::new(kind);
            let unit = beside.unit_sectors;
            let units = u64::from(beside.host.ftl().logical_pages()) * PAGE_SECTORS / unit;
            for step in 0..6000 {
                // Few units are hot, more than the buffer holds.
                let at = if rng.chance(80) { rng.below(12) } else { rng.below(units) };
                let whole = at * unit..(at + 1 + rng.below(3)).min(units) * unit;
                let first = at * unit + rng.below(unit);
                let part = first..(first + 1 + rng.below(unit)).min(units * unit);
                match rng.below(20) {
                    0..4 => beside.write(whole),
                    // Within a unit: a part that makes another complete is then the last of its
                    // write.
                    4..13 => beside.write(part.start..part.end.min((at + 1) * unit)),
                    13 => beside.write(whole.start..part.end.max(whole.end)),
                    14..16 => beside.read(part),
                    16 => beside.trim(whole),
                    17 => beside.trim(part),
                    18 => beside.write(at * unit + unit / 2..whole.end),
                    _ => beside.seal(&[at]),
                }
                if step % 100 == 0 {
                    beside.check();
                }
            }
            let waiting: Vec<u64> = beside.waiting.keys().copied().collect();
            beside.seal(&waiting);
            beside.check();
            assert!(beside.waiting.is_empty());
            let Beside { counts, forgotten, given_up, reads_of_waiting, known_of_waited, .. } = &beside;
            assert_eq!(*known_of_waited > 20, unit > PAGE_SECTORS, "{}: {known_of_waited} known", kind.name);
            let covered = [counts.writes_absorbed - forgotten, counts.units_completed, counts.pages_read_to_complete];
            assert!(covered.iter().all(|&some| some > 20), "{}: {counts:?}", kind.name);
            assert!(
                *forgotten > 20 && *given_up > 20 && *reads_of_waiting > 20,
                "{}: {forgotten} forgotten, {given_up} given up, {reads_of_waiting} read",
                kind.name
            );
        });
    }
}

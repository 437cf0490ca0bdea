//! Draws plans: a seed gives all events of a run.
//!
//! Invariants: a seed gives one plan. Worlds are as small as the format allows, so that evictions,
//! checkpoints and a full cache are everyday. Several clients work on the same few chunks, so that
//! requests overlap.
//!
//! It does not look at an execution.

use crate::{
    content::{Fill, WRITE_SECTORS_MAX},
    design,
    plan::{At, Client, Device, End, Ending, Fault, FaultKind, Life, Op, OperatorOp, Plan, Region, Run, Shape, What},
};
use larder_core::types::SECTOR_BYTES;
use larder_device::{IoErrorKind, IoOp, faulty::FOR_EVER, rng::Rng};
use larder_engine::{Tuning, config::TrimPolicy};
use larder_format::{Compression, DesignId, WriteMode};

const MODES: [WriteMode; 3] = [WriteMode::Back, WriteMode::Through, WriteMode::Around];
/// The last step of a life with a lasting fault, which may never end by itself.
const STEPS_WITH_FAULT_MAX: u64 = 30_000;
/// The last change of a life that is to stop in its opening: superblock twins and their flushes.
const OPENING_CHANGES_MAX: u64 = 6;
/// The other contents of a small flash with slots of one chunk, in bytes.
const METADATA_BYTES: u64 = 640 << 10;
/// The fewest of such slots.
const SLOTS_MIN: u64 = 12;
/// One seed in so many has a wear budget.
const SEEDS_A_WEAR_BUDGET: u64 = 7;
/// The least bytes of it that are left at first, beside the reserve, and the doublings of them.
const WEAR_LEFT_MIN: u64 = 4 << 10;
const WEAR_LEFT_DOUBLINGS: u64 = 12;
/// Sectors on which the clients of a life meet.
const HOT_SECTORS_MAX: u64 = 512;

impl Plan {
    /// Returns the plan of a seed.
    pub fn draw(seed: u64) -> Plan {
        let mut rng = Rng::new(seed);
        let crowd = rng.chance(1, 4);
        let mut shape = draw_shape(&mut rng, design::drawn(seed), crowd);
        // Without draws, so that a seed's plan stays the same: at once, soon, and by default.
        shape.tuning.share_after_reads = [0, 1, shape.tuning.share_after_reads][(seed % 3) as usize];
        shape.tuning.durable_writes = seed % 5 == 4;
        shape.tuning.trim = [TrimPolicy::Zero, TrimPolicy::Keep, TrimPolicy::Pass][(seed / 3 % 3) as usize];
        shape.wear_left = (seed % SEEDS_A_WEAR_BUDGET == 3)
            .then(|| WEAR_LEFT_MIN << (seed / SEEDS_A_WEAR_BUDGET % WEAR_LEFT_DOUBLINGS));
        let mut source = Source {
            sectors: (shape.origin_bytes / SECTOR_BYTES as u64) as usize,
            chunk_sectors: shape.chunk_bytes as usize / SECTOR_BYTES,
            number: 0,
            // A share of the runs has faults at all, and few of them damage metadata.
            faults: rng.chance(2, 5),
            damage: rng.chance(1, 6),
            heavy: rng.chance(1, 5),
            wears_out: shape.wear_left.is_some(),
            drill: None,
            crowd,
            rng,
        };
        if source.rng.chance(1, 4) {
            source.drill = Some([Device::Flash, Device::Origin][source.rng.index(2)]);
            (source.faults, source.damage) = (true, false);
        }
        let count = 3 + source.rng.index(8);
        let mut lives: Vec<Life> = (0..count).map(|life| source.life(life)).collect();
        lives.push(source.last_life());
        Plan { shape, lives }
    }
}

/// The time for which a cache waits for a flash without room, if limited.
const FLASH_FULL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// Draws the shape of a world; for `crowd` see [`Source`].
fn draw_shape(rng: &mut Rng, design: DesignId, crowd: bool) -> Shape {
    let slot_bytes: u32 = if rng.chance(1, 8) { 1 << 20 } else { 512 << 10 };
    let origin_sector_bytes = if rng.chance(1, 6) { 4096 } else { 512 };
    // Rarely a multiple of the chunk: otherwise the last chunk is short.
    let spread_kib = if rng.chance(1, 8) { 7 << 9 } else { 2 << 9 };
    let origin_bytes = (512 << 10) + rng.below(spread_kib) * 1024;
    let mut tuning = Tuning {
        dirty_low_percent: 5 + rng.below(20) as u8,
        dirty_high_percent: 30,
        dirty_max_percent: 40 + rng.below(30) as u8,
        destage_rate_bytes_per_s: if rng.chance(1, 2) { 0 } else { 64 << 20 },
        insert_queue_bytes_max: 1 << (17 + rng.below(5)),
        prefetch_bytes_max: if rng.chance(1, 4) { 0 } else { 512 << 10 },
        commit_interval_ms: 1 + rng.below(50),
        ..Tuning::default()
    };
    tuning.flash_full_timeout = tuning.commit_interval_ms.is_multiple_of(2).then_some(FLASH_FULL_TIMEOUT);
    let drawn_flash_bytes = u64::from(slot_bytes) * (8 + rng.below(3));
    let mut shape = Shape {
        design,
        chunk_bytes: [4096, 4096, 8192, 8192, 16384, 32768, 131_072][rng.index(7)],
        slot_bytes,
        flash_bytes: drawn_flash_bytes,
        origin_bytes: origin_bytes / 4096 * 4096 + if origin_sector_bytes == 512 { rng.below(8) * 512 } else { 0 },
        origin_sector_bytes,
        discard_zeroes: [rng.chance(3, 4), rng.chance(1, 2)],
        flash_physical_sector_bytes: [512, 4096][rng.index(2)],
        mode: [WriteMode::Back, WriteMode::Back, WriteMode::Through, WriteMode::Around][rng.index(4)],
        compression: [Compression::Lz4, Compression::Lz4, Compression::Zstd, Compression::Off][rng.index(4)],
        dedup: rng.chance(5, 6),
        tear_bytes: [[512, 4096][rng.index(2)], [512, 4096][rng.index(2)]],
        fence: rng.chance(2, 3),
        fp_index_percent: [100, 100, 75, 50, 25, 0][rng.index(6)],
        wear_left: None,
        tuning,
    };
    if design::is_slotted(design) {
        // With room for a part of the origin only, because slots of one chunk fill the flash.
        if crowd {
            shape.chunk_bytes = 4096;
        }
        let chunk = u64::from(shape.chunk_bytes);
        let slots = SLOTS_MIN + rng.below(if crowd { 30 } else { 1 + shape.origin_bytes / chunk });
        shape.flash_bytes = METADATA_BYTES + slots * chunk;
    }
    shape
}

/// The source of the lives' draws.
struct Source {
    rng: Rng,
    sectors: usize,
    chunk_sectors: usize,
    number: u32,
    faults: bool,
    damage: bool,
    /// The wear budget may be used up: the flash fails then.
    wears_out: bool,
    /// Many long writes, of bytes that do not compress.
    heavy: bool,
    /// A drill: the same few faults of this device, beside many checkpoints and destages.
    ///
    /// It shows the effects of one failed flush on all work under way.
    drill: Option<Device>,
    /// Many addresses and few contents, the same in several lives, over small slots.
    ///
    /// The designs remember more addresses than they have slots.
    crowd: bool,
}

impl Source {
    fn life(&mut self, life: usize) -> Life {
        let short = self.rng.chance(1, 6);
        let hot = self.hot_run();
        let ops = match short {
            true => 0,
            false if self.heavy => 20 + self.rng.index(60),
            false => 6 + self.rng.index(if self.crowd { 150 } else { 50 }),
        };
        let clients = self.clients(life, ops, hot);
        let operator = self.operator(ops);
        let how = [Ending::Close, Ending::Drop, Ending::Kill, Ending::Kill, Ending::PowerLoss, Ending::PowerLoss]
            [self.rng.index(6)];
        // Steps differ widely from one shape to another: the moments are spread over orders of
        // magnitude.
        let at = match how {
            _ if short => Some(match self.rng.below(2) {
                0 => At::Change(1 + self.rng.below(OPENING_CHANGES_MAX)),
                _ => At::Step(1 + self.rng.below(120)),
            }),
            Ending::Close | Ending::Drop => None,
            _ if self.rng.chance(1, 5) => None,
            _ => Some(self.moment(ops)),
        };
        let faults = self.faults_of_life(ops);
        let mut end = End { how, at, latest: None, flash_lost: life > 0 && self.rng.chance(1, 12) };
        let lasting = self.damage
            || self.wears_out
            || faults.iter().any(|fault| {
                // Lost dirty data keeps its slot, too.
                !matches!(fault.what, FaultKind::Back(_) | FaultKind::Slow(..) | FaultKind::Fail { times: 0..=20, .. })
            });
        match (lasting, end.at) {
            (true, None) => end.at = Some(At::Step(STEPS_WITH_FAULT_MAX)),
            (true, Some(_)) => end.latest = Some(STEPS_WITH_FAULT_MAX),
            (false, _) => {}
        }
        Life {
            schedule_seed: self.rng.next_u64(),
            discard_fenced: self.faults && self.rng.chance(1, 3),
            check_first: self.rng.chance(1, 2),
            check_last: self.rng.chance(1, 3),
            clients,
            operator,
            faults,
            end,
        }
    }

    /// Opens the cache once more, and looks at everything.
    fn last_life(&mut self) -> Life {
        Life {
            schedule_seed: self.rng.next_u64(),
            discard_fenced: true,
            check_first: true,
            check_last: false,
            clients: Vec::new(),
            operator: Vec::new(),
            faults: Vec::new(),
            end: End { how: Ending::Close, at: None, latest: None, flash_lost: false },
        }
    }

    /// Draws a moment in a life of so many requests.
    ///
    /// A life has about as many changes as requests, and ten times as many steps.
    fn moment(&mut self, ops: usize) -> At {
        let ops = ops as u64;
        match self.rng.below(8) {
            0..4 => At::Change(1 + self.rng.below(8 + ops)),
            4..7 => At::Step(1 + self.rng.below(40 + 12 * ops)),
            // In the background, when the clients are done.
            _ => At::Step(1 + self.rng.below(200 + 60 * ops)),
        }
    }

    fn hot_run(&mut self) -> Run {
        let count = (1 + self.rng.below(HOT_SECTORS_MAX) as usize).min(self.sectors);
        Run { at: self.rng.index(self.sectors - count + 1), count }
    }

    fn clients(&mut self, life: usize, ops: usize, hot: Run) -> Vec<Client> {
        if ops == 0 {
            return Vec::new();
        }
        let count = 1 + self.rng.index(4);
        let (writes, sizes) = match self.heavy {
            true => (60 + self.rng.below(30), 1 + self.rng.index(2)),
            false => (20 + self.rng.below(50), self.rng.index(3)),
        };
        (0..count)
            .map(|_| Client {
                depth: [1, 1, 2, 4, 8][self.rng.index(5)],
                ops: (0..ops / count + 1).map(|_| self.op(life, writes, sizes, hot)).collect(),
            })
            .collect()
    }

    fn op(&mut self, life: usize, writes: u64, sizes: usize, hot: Run) -> Op {
        self.number += 1;
        let run = self.run(sizes, hot);
        let rng = &mut self.rng;
        let what = match rng.below(100) {
            draw if draw < writes => {
                let fill = match rng.below(10) {
                    _ if self.heavy && rng.chance(3, 4) => Fill::Noise,
                    0 => Fill::Zeroes,
                    1 if self.drill.is_some() => Fill::Zeroes,
                    1..3 => Fill::Noise,
                    3..6 => Fill::Text,
                    // Few contents a life, so that chunks repeat.
                    _ => Fill::Pool((if self.crowd { life / 4 } else { life } * 8) as u32 + rng.below(6) as u32),
                };
                What::Write { run, fill, fua: rng.chance(1, 10) }
            }
            90..95 => match (rng.chance(1, 3), rng.chance(1, 8)) {
                (false, false) if self.number.is_multiple_of(2) => What::Trim(run),
                (no_hole, fua) => What::Zero { run, no_hole, fua },
            },
            95..100 => What::Flush,
            _ => What::Read(run),
        };
        let gives_up_after = rng.chance(1, 50).then(|| rng.below(4) as u32);
        Op { number: self.number, what, gives_up_after }
    }

    fn run(&mut self, sizes: usize, hot: Run) -> Run {
        let rng = &mut self.rng;
        let chunk = self.chunk_sectors;
        let max = match rng.below(16).max(if self.heavy { 8 } else { 0 }) {
            0..4 => 1,
            4..8 => 8,
            8..12 => [chunk, chunk, 2 * chunk + 1][sizes],
            12..15 => [17, 2 * chunk, if self.crowd { 32 } else { 8 } * chunk][sizes],
            _ => [64, 256, 700][sizes],
        };
        let max = max.min(self.sectors).min(WRITE_SECTORS_MAX);
        let count = if rng.chance(1, 3) { max } else { 1 + rng.index(max) };
        let area = if rng.chance(if self.crowd { 2 } else { 3 }, 4) && hot.count >= count {
            hot
        } else {
            Run { at: 0, count: self.sectors }
        };
        let mut at = area.at + rng.index(area.count - count + 1);
        if rng.chance(1, 2) {
            // Often aligned, so that whole chunks and duplicates occur.
            at = at / chunk * chunk;
        }
        Run { at, count: count.min(self.sectors - at) }
    }

    fn operator(&mut self, ops: usize) -> Vec<(usize, OperatorOp)> {
        if ops == 0 {
            return Vec::new();
        }
        let counts = if self.drill.is_some() { [1, 2, 4, 4, 6] } else { [0, 1, 1, 2, 4] };
        let count = counts[self.rng.index(5)];
        (0..count)
            .map(|_| {
                let op = match self.rng.below(60) {
                    0..46 if self.drill.is_some() && self.rng.chance(1, 2) => OperatorOp::Checkpoint,
                    0..15 => OperatorOp::DestageAll,
                    15..30 => OperatorOp::Checkpoint,
                    30..46 => OperatorOp::SetMode(MODES[self.rng.index(3)]),
                    46..56 => OperatorOp::Settle,
                    56..59 => OperatorOp::Close,
                    _ => OperatorOp::Detach,
                };
                (self.rng.index(ops), op)
            })
            .collect()
    }

    fn faults_of_life(&mut self, ops: usize) -> Vec<Fault> {
        if !self.faults || self.rng.chance(1, if self.drill.is_some() { 5 } else { 2 }) {
            return Vec::new();
        }
        let count = 1 + self.rng.index(3);
        let mut faults: Vec<Fault> = (0..count).map(|_| Fault { at: self.moment(ops), what: self.fault() }).collect();
        for fault in 0..count {
            if let FaultKind::Gone(device) = faults[fault].what
                && self.rng.chance(1, 3)
            {
                faults.push(Fault { at: self.moment(ops), what: FaultKind::Back(device) });
            }
        }
        faults
    }

    fn fault(&mut self) -> FaultKind {
        let rng = &mut self.rng;
        if self.damage && rng.chance(1, 2) {
            let region = match rng.below(12) {
                0 => Region::Twin(rng.index(2)),
                1 => Region::Checkpoints,
                2 => Region::Log,
                3 => return FaultKind::Misdirect { place: rng.next_u64() as u16 },
                4 => return FaultKind::LoseWrite,
                5 => return FaultKind::Misread { seed: rng.next_u64() },
                _ => Region::Slots,
            };
            return FaultKind::Flip { region, place: rng.next_u64() as u16, seed: rng.next_u64() };
        }
        if let Some(device) = self.drill.filter(|_| rng.chance(3, 4)) {
            let op = [IoOp::Write, IoOp::Flush, IoOp::Flush, IoOp::Read][rng.index(4)];
            let times = if op == IoOp::Write && device == Device::Flash { FOR_EVER } else { 1 };
            return FaultKind::Fail { device, op, kind: IoErrorKind::Io, range: None, times };
        }
        let device = if rng.chance(1, 2) { Device::Flash } else { Device::Origin };
        let op = match rng.below(16) {
            0..5 => IoOp::Read,
            5..9 => IoOp::Write,
            9..11 => IoOp::Flush,
            11 => IoOp::Discard,
            12 => IoOp::WriteZeroes,
            13 => return FaultKind::Gone(device),
            14 => return FaultKind::Full(device),
            _ if rng.chance(1, 2) => return FaultKind::NoFence,
            _ => return FaultKind::Slow(device, 1 << rng.below(20)),
        };
        let range = (op != IoOp::Flush && rng.chance(1, 3)).then(|| (rng.next_u64() as u16, 1 << rng.below(16)));
        let kind = if op != IoOp::Read && rng.chance(1, 4) { IoErrorKind::NoSpace } else { IoErrorKind::Io };
        let times = match rng.below(5) {
            0..3 => 1,
            3 => 1 + rng.below(20),
            _ => FOR_EVER,
        };
        FaultKind::Fail { device, op, kind, range, times }
    }
}

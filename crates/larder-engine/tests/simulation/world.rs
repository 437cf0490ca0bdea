//! The devices, which outlive each life, and their faults.
//!
//! It leaves the judgement of the consequences to [`crate::trouble`].

use crate::{
    fence::MemoryFence,
    plan::{Device, FaultKind, Region, Shape},
    wear::use_up_wear,
};
use larder_device::{
    faulty::Fault,
    rng::{Rng, mix64},
    sim::{SimDevice, SimDeviceOptions, SimRuntime},
};
use larder_engine::{CreateOptions, EngineError, create};
use larder_format::{Layout, superblock::choose};
use std::{sync::Arc, time::Duration};

/// Length of a superblock.
const SUPERBLOCK_BYTES: u64 = 4096;
/// Bits flip within a piece of this length, in bytes.
const FLIPPED_BYTES: u64 = 2048;
/// Tries to find a place that was written.
const FLIP_TRIES: u64 = 32;
/// Parts of a device; a plan's places count them.
const PARTS: u64 = 1 << 16;

/// The devices.
pub struct World {
    pub shape: Shape,
    pub flash: Arc<SimDevice>,
    pub origin: Arc<SimDevice>,
    /// Kept off the flash. A new flash has a new one.
    pub fence: Arc<MemoryFence>,
    layout: Layout,
    /// Flashes so far.
    flashes: u8,
}

impl World {
    /// Makes an origin of zeroes, and an empty cache before it.
    pub fn new(shape: &Shape) -> Result<World, EngineError> {
        let runtime = SimRuntime::new(0);
        let options = SimDeviceOptions {
            sector_bytes: shape.origin_sector_bytes,
            discard_zeroes: shape.discard_zeroes[1],
            tear_bytes: shape.tear_bytes[1],
            ..SimDeviceOptions::default()
        };
        let origin = SimDevice::with_options(&runtime, "origin", shape.origin_bytes, options);
        let (flash, layout) = new_flash(shape, 0)?;
        Ok(World { shape: shape.clone(), flash, origin, fence: MemoryFence::new(), layout, flashes: 1 })
    }

    /// Returns the number of the superblock on the flash; 0 if there is none.
    pub fn superblock_sequence(&self) -> u64 {
        let [first, second] = self.layout.superblock_offsets.map(|at| self.flash.peek(at, SUPERBLOCK_BYTES as usize));
        choose(&first, &second).map_or(0, |chosen| chosen.superblock.sequence)
    }

    /// Hands the devices to the runtime of the next life.
    pub fn attach(&self, runtime: &Arc<SimRuntime>) {
        self.flash.attach(runtime);
        self.origin.attach(runtime);
    }

    /// Moves the flash between sectors of 512 and 4096 bytes before some lives.
    ///
    /// The coarser ones are torn as a whole; later it moves back.
    pub fn move_flash(&mut self, runtime: &Arc<SimRuntime>, life_seed: u64) -> bool {
        let moves = self.shape.flash_physical_sector_bytes == 512 && life_seed.is_multiple_of(3);
        if moves {
            let is_coarse = larder_device::BlockDevice::info(&*self.flash).sector_bytes == 4096;
            let (sector_bytes, tear_bytes) = if is_coarse { (512, self.shape.tear_bytes[0]) } else { (4096, 4096) };
            let options = SimDeviceOptions {
                sector_bytes,
                tear_bytes,
                physical_sector_bytes: sector_bytes,
                discard_zeroes: self.shape.discard_zeroes[0],
            };
            self.flash = self.flash.copied_to(runtime, options);
        }
        moves
    }

    /// Ends the faults of a life that is over.
    pub fn heal(&self) {
        for device in [&self.flash, &self.origin] {
            device.plan().clear();
            device.clear_mischief();
            device.set_gone(false);
            device.set_full(false);
        }
        self.fence.break_down(false);
    }

    /// Puts the same origin behind an empty cache on another flash.
    pub fn with_new_flash(mut self) -> Result<World, EngineError> {
        (self.flash, self.layout) = new_flash(&self.shape, self.flashes)?;
        self.flashes += 1;
        self.fence = MemoryFence::new();
        Ok(self)
    }

    fn device(&self, device: Device) -> &SimDevice {
        match device {
            Device::Flash => &self.flash,
            Device::Origin => &self.origin,
        }
    }

    /// Lets a fault begin.
    pub fn arm(&self, fault: &FaultKind) {
        match *fault {
            FaultKind::Fail { device, op, kind, range, times } => {
                let device = self.device(device);
                let part = larder_device::BlockDevice::info(device).size_bytes / PARTS;
                let range = range.map(|(from, len)| {
                    let start = u64::from(from) * part;
                    start..start + u64::from(len) * part
                });
                device.plan().add(Fault { op: Some(op), range, kind, times });
            }
            FaultKind::Gone(device) => self.device(device).set_gone(true),
            FaultKind::Back(device) => self.device(device).set_gone(false),
            FaultKind::Full(device) => self.device(device).set_full(true),
            FaultKind::Slow(device, micros) => self.device(device).delay_next(None, Duration::from_micros(micros)),
            FaultKind::Misdirect { place } => {
                let size = larder_device::BlockDevice::info(&*self.flash).size_bytes;
                self.flash.misdirect_next_write(u64::from(place) * (size / PARTS) / 4096 * 4096);
            }
            FaultKind::LoseWrite => self.flash.lose_next_write(),
            FaultKind::Misread { seed } => self.flash.misread_next(&mut Rng::new(seed)),
            FaultKind::NoFence => self.fence.break_down(true),
            FaultKind::Flip { region, place, seed } => self.flip(region, place, &mut Rng::new(seed)),
        }
    }

    fn flip(&self, region: Region, place: u16, rng: &mut Rng) {
        let layout = &self.layout;
        let (start, len) = match region {
            Region::Twin(twin) => (layout.superblock_offsets[twin], SUPERBLOCK_BYTES),
            Region::Checkpoints => (layout.checkpoint_offset[0], 2 * layout.checkpoint_area_bytes),
            Region::Log => (layout.log_offset, layout.log_bytes),
            Region::Slots => (layout.slots_offset, u64::from(layout.slot_count) * u64::from(layout.slot_bytes)),
        };
        let pieces = len / FLIPPED_BYTES;
        let first = u64::from(place) * pieces / PARTS;
        // Most of a flash is empty: the search for a written place starts near the plan's one.
        let tries = (0..FLIP_TRIES).map(|i| start + (first + i * i) % pieces * FLIPPED_BYTES);
        let mut written = tries.filter(|&at| self.flash.peek(at, FLIPPED_BYTES as usize).iter().any(|&byte| byte != 0));
        let at = written.next().unwrap_or(start + first * FLIPPED_BYTES);
        self.flash.corrupt(at, FLIPPED_BYTES, rng);
    }
}

fn new_flash(shape: &Shape, number: u8) -> Result<(Arc<SimDevice>, Layout), EngineError> {
    let runtime = SimRuntime::new(mix64(u64::from(number)));
    let options = SimDeviceOptions {
        discard_zeroes: shape.discard_zeroes[0],
        tear_bytes: shape.tear_bytes[0],
        physical_sector_bytes: shape.flash_physical_sector_bytes,
        ..SimDeviceOptions::default()
    };
    let flash = SimDevice::with_options(&runtime, "flash", shape.flash_bytes, options);
    let made = runtime.block_on(create(&*flash, shape.origin_bytes, &shape.options(number)));
    if let (Ok(_), Some(left)) = (&made, shape.wear_left) {
        runtime.block_on(use_up_wear(&*flash, left));
    }
    runtime.kill();
    Ok((flash, made?.layout))
}

impl Shape {
    fn options(&self, number: u8) -> CreateOptions {
        crate::design::fitted(CreateOptions {
            design: self.design,
            chunk_bytes: self.chunk_bytes,
            slot_bytes: self.slot_bytes,
            mode: self.mode,
            compression: self.compression,
            dedup: self.dedup,
            fp_index_percent: self.fp_index_percent,
            flash_uuid: [number + 1; 16],
            hash_key: [9; 32],
            origin_uri: "sim:origin".into(),
            ..CreateOptions::default()
        })
    }
}

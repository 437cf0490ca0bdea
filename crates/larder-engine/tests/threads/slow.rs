//! A device that answers some requests late, so that operations meet inside the cache.
//!
//! Invariants: a late request takes effect on the medium before its delay or after it, by a seeded
//! draw. So both the reply and the effect may come late. A few reads come very late, so that their
//! records could be gone by then.
//!
//! It does not model any device's timing.

use larder_device::{
    BlockDevice, DeviceInfo, Extent, IoBuf, IoFuture, Runtime, SharedBuf, WriteFlags, ZeroFlags, ram::RamDevice,
    rng::Rng, threads::ThreadRuntime,
};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};

/// The number of reads of which one comes very late.
const READS_FOR_ONE_VERY_LATE: u64 = 1500;
/// The longest delay of such a read.
const VERY_LATE_MAX: Duration = Duration::from_millis(250);

/// The slow device.
pub struct Slow {
    pub ram: Arc<RamDevice>,
    timer: Arc<ThreadRuntime>,
    rng: Mutex<Rng>,
    /// The share of late requests.
    late_percent: u64,
    late_micros_max: u64,
}

impl Slow {
    pub fn new(ram: RamDevice, timer: &Arc<ThreadRuntime>, rng: Rng, late_percent: u64, late_micros_max: u64) -> Slow {
        Slow { ram: Arc::new(ram), timer: timer.clone(), rng: Mutex::new(rng), late_percent, late_micros_max }
    }

    fn go<T: Send + 'static>(&self, request: impl FnOnce(&RamDevice) -> IoFuture<T> + Send + 'static) -> IoFuture<T> {
        let (late, micros, effect_first) = {
            let mut rng = self.rng.lock();
            (rng.chance(self.late_percent, 100), rng.below(self.late_micros_max + 1), rng.chance(1, 2))
        };
        if !late {
            return request(&self.ram);
        }
        let delay = self.timer.delay(Duration::from_micros(micros));
        let ram = self.ram.clone();
        if effect_first {
            let done = request(&ram);
            return IoFuture::boxed(async move {
                delay.await?;
                done.await
            });
        }
        IoFuture::boxed(async move {
            delay.await?;
            request(&ram).await
        })
    }
}

impl BlockDevice for Slow {
    fn info(&self) -> &DeviceInfo {
        self.ram.info()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let very_late = {
            let mut rng = self.rng.lock();
            rng.chance(1, READS_FOR_ONE_VERY_LATE).then(|| VERY_LATE_MAX.mul_f64(rng.unit()))
        };
        let Some(by) = very_late else { return self.go(move |ram| ram.read(offset, buf)) };
        let (delay, ram) = (self.timer.delay(by), self.ram.clone());
        IoFuture::boxed(async move {
            delay.await?;
            ram.read(offset, buf).await
        })
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.go(move |ram| ram.write(offset, data, flags))
    }
    fn flush(&self) -> IoFuture<()> {
        self.go(|ram| ram.flush())
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.go(move |ram| ram.discard(offset, len))
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.go(move |ram| ram.write_zeroes(offset, len, flags))
    }
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.go(move |ram| ram.extents(offset, len))
    }
}

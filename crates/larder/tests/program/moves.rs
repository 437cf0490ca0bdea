//! Flashes that move to devices with other sectors, through the real program: 512 to 4096, and
//! back.
//!
//! Loop devices over one file stand for those devices.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::image::noise;
use crate::support::wire::Wire;
use crate::support::{Loop, MIB, Scratch, Server, Volume, ends, have_mounts, have_tools, larder, run, stands_in};
use larder_engine::designs::ENGINE_DESIGNS;

/// No multiple of the coarser sectors: a device of these lacks the last bytes.
const FLASH_BYTES: u64 = 16 * MIB + 1536;
const ORIGIN_BYTES: u64 = 8 * MIB;
/// Dirty data stays on the flash.
const KEEP_DIRTY: [&str; 4] = ["--dirty-low", "60", "--dirty-high", "60"];

/// A cache on a loop device over a file, with a volume of known content.
struct Moving {
    scratch: Scratch,
    volume: Volume,
    device: Option<Loop>,
    content: Vec<u8>,
}

impl Moving {
    /// Makes a cache on sectors of 512 bytes; `None` without loop devices.
    fn new(name: &str, design: &str) -> Option<Self> {
        if stands_in() || !have_tools(name, &["losetup"]) || !have_mounts(name) {
            return None;
        }
        let scratch = Scratch::new(name);
        let device = Loop::in_sectors_of(512, &scratch.file("image", FLASH_BYTES));
        let origin = scratch.file("origin", ORIGIN_BYTES);
        let options = ["--design", design];
        let volume = Volume::on(&scratch, "moving", device.device.clone(), &origin, FLASH_BYTES, &options);
        let moving = Moving { scratch, volume, device: Some(device), content: vec![0; ORIGIN_BYTES as usize] };
        assert_eq!(moving.sector_bytes(), 512, "what it was made on");
        Some(moving)
    }

    /// Puts the same image under another device.
    fn move_to(&mut self, sector_bytes: u32) {
        self.device = None;
        let device = Loop::in_sectors_of(sector_bytes, &self.scratch.path("image"));
        self.volume.flash.clone_from(&device.device);
        self.device = Some(device);
    }

    fn image(&self) -> Vec<u8> {
        fs::read(self.scratch.path("image")).expect("the image")
    }

    /// Returns the sector size in the superblock.
    fn sector_bytes(&self) -> u64 {
        let layout = run(self.command(&["dump", "--json"]).arg("layout"));
        let layout: serde_json::Value = serde_json::from_str(&layout).expect("JSON");
        layout["sector_bytes"].as_u64().expect("a number")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = larder(args);
        command.arg("--flash").arg(&self.volume.flash);
        command
    }

    /// Serves the cache, reads everything, and writes some more, durably.
    fn serve(&mut self, seed: u64) -> Server {
        let server = self.volume.serve_with(&KEEP_DIRTY);
        let mut wire = Wire::connect(&server.socket);
        self.reads_right(&mut wire, seed);
        for number in 0..24 {
            // Whole chunks and parts of them; each is a frame of its own.
            let (at, bytes) = ((number * 37 % 60) << 16, if number % 3 == 0 { 1536 } else { 40 << 10 });
            let data = noise(seed * 1000 + number, bytes);
            wire.write(at, &data);
            wire.flush();
            self.content[at as usize..at as usize + bytes].copy_from_slice(&data);
        }
        self.reads_right(&mut wire, seed);
        server
    }

    fn reads_right(&self, wire: &mut Wire, seed: u64) {
        for (number, piece) in (0..).zip(self.content.chunks(1 << 20)) {
            assert!(wire.read(number << 20, 1 << 20) == piece, "seed {seed}: MiB {number} reads as something else");
        }
    }

    /// Checks that commands which only look find a whole cache on foreign sectors, and write
    /// nothing.
    fn is_whole_untouched(&self) {
        let before = self.image();
        run(&mut self.command(&["verify"]));
        let planned = run(&mut self.command(&["verify", "--repair", "--dry-run"]));
        assert!(planned.contains("nothing"), "{planned}");
        run(&mut self.command(&["status"]));
        for part in ["superblock", "layout", "checkpoint", "log", "slots", "mappings", "segments"] {
            run(self.command(&["dump"]).arg(part));
        }
        run(self.command(&["dump"]).args(["log", "--all"]));
        assert!(self.image() == before, "a command that looks has written");
    }

    /// Ends the cache, and checks that the origin has everything.
    fn ends(self) {
        self.volume.flush();
        run(&mut self.command(&["verify"]));
        assert!(fs::read(&self.volume.origin).expect("the origin") == self.content, "the origin lacks something");
    }
}

/// Moves a cache of each design to coarser sectors after `end`, and back to finer ones.
fn moves_after(name: &str, end: fn(Server)) {
    for (design, seed) in ENGINE_DESIGNS.iter().zip(1..) {
        let Some(mut moving) = Moving::new(name, design.name) else { return };
        end(moving.serve(seed));
        moving.move_to(4096);
        moving.is_whole_untouched();
        moving.serve(seed + 100).kill();
        assert_eq!(moving.sector_bytes(), 4096, "{}: noted on the flash", design.name);
        moving.is_whole_untouched();
        moving.move_to(512);
        moving.is_whole_untouched();
        moving.serve(seed + 200).stop();
        assert_eq!(moving.sector_bytes(), 4096, "{}: finer sectors change nothing", design.name);
        moving.ends();
    }
}

#[test]
fn a_crashed_cache_moves_to_coarser_sectors_and_back() {
    moves_after("moves-crashed", Server::kill);
}

#[test]
fn a_cache_that_ended_moves_to_coarser_sectors_and_back() {
    moves_after("moves-ended", Server::stop);
}

#[test]
fn every_command_works_first_on_coarser_sectors() {
    for (name, args) in [
        ("moves-flush", &["flush"][..]),
        ("moves-set", &["set", "--mode", "write-around"]),
        ("moves-detach", &["detach"]),
    ] {
        let Some(mut moving) = Moving::new(name, "nitro") else { return };
        moving.serve(7).kill();
        moving.move_to(4096);
        run(&mut moving.command(args));
        assert!(fs::read(&moving.volume.origin).expect("the origin") == moving.content, "{args:?}");
        run(&mut moving.command(&["verify"]));
    }
}

#[test]
fn a_damaged_cache_is_repaired_on_coarser_sectors() {
    let Some(mut moving) = Moving::new("moves-repaired", "nitro") else { return };
    moving.serve(9).kill();
    moving.device = None;
    // Damages headers of segments: the records behind them are whole, and the repair writes them
    // elsewhere.
    let mut image = moving.image();
    let heads = image.chunks(512).enumerate().filter(|(_, sector)| sector.starts_with(b"LARDERSG"));
    let heads: Vec<usize> = heads.map(|(number, _)| number * 512).collect();
    assert!(
        heads.len() > 4 && heads.iter().any(|at| at % 4096 != 0),
        "segments lie at sectors of 512 bytes: {heads:?}"
    );
    heads.iter().skip(1).take(3).for_each(|at| image[at + 20] ^= 1);
    fs::write(moving.scratch.path("image"), &image).expect("the image");
    moving.move_to(4096);
    let damaged = ends(&mut moving.command(&["verify"]));
    assert_eq!(damaged.status.code(), Some(1), "{}", String::from_utf8_lossy(&damaged.stdout));
    run(&mut moving.command(&["verify", "--repair"]));
    assert_eq!(moving.sector_bytes(), 4096);
    moving.serve(10).stop();
    moving.ends();
}

#[test]
fn the_file_itself_is_opened_as_the_device_was() {
    let Some(mut moving) = Moving::new("moves-copied", "nitro") else { return };
    moving.serve(11).kill();
    moving.device = None;
    let copy = moving.scratch.path("copy");
    fs::copy(moving.scratch.path("image"), &copy).expect("a copy");
    moving.volume.flash = Path::new(&copy).to_path_buf();
    moving.serve(12).stop();
    moving.ends();
}

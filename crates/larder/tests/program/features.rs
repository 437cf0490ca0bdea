//! Flashes with feature bits of later programs, through the real program: opened, read or refused.
//! Their dirty data stays intact.
//!
//! The bytes of each state are fixtures of `larder-format`; here each is put on a flash with dirty
//! data.

use std::fs;
use std::path::Path;

use crate::refusals::{TWINS, all_refused, commands, patched, refused, used_volume, with_twins};
use crate::support::image::noise;
use crate::support::wire::Wire;
use crate::support::{Scratch, Volume, larder, run, stands_in};
use larder_format::superblock::SUPERBLOCK_BYTES;

/// The offsets of the feature words in a superblock, and of a possible later field.
const COMPATIBLE_AT: usize = 48;
const INCOMPATIBLE_AT: usize = 56;
const LATER_AT: usize = 3500;
const LATER: &[u8] = b"what a later program keeps here";
/// The writes of [`used_volume`]: so many pieces, of so many bytes.
const PIECES: u64 = 32;
const PIECE_BYTES: usize = 64 << 10;

/// Sets bits in the twins of a flash, with a field that belongs to them.
fn with_bits(twin: &mut [u8], at: usize, bits: u64) {
    let before = u64::from_le_bytes(twin[at..at + 8].try_into().expect("a word"));
    patched(twin, LATER_AT, LATER);
    patched(twin, at, &(before | bits).to_le_bytes());
}

fn twins(flash: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(flash).expect("the flash");
    TWINS.into_iter().map(|at| bytes[at..at + SUPERBLOCK_BYTES].to_vec()).collect()
}

/// Checks that the cache reads all written data.
fn has_all(volume: &Volume) {
    let server = volume.serve_with(&["--dirty-low", "60", "--dirty-high", "60"]);
    let mut wire = Wire::connect(&server.socket);
    for number in 0..PIECES {
        let read = wire.read(number * PIECE_BYTES as u64, PIECE_BYTES);
        assert!(read == noise(number, PIECE_BYTES), "piece {number} reads as something else");
    }
    drop(wire);
    server.stop();
}

#[test]
fn a_compatible_feature_and_its_fields_outlive_every_command() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("compatible-features");
    let volume = used_volume(&scratch);
    let good = fs::read(&volume.flash).expect("the flash");
    let bits = 1_u64 << 63 | 1 << 13;
    let flash = with_twins(&scratch, &good, |_, twin| with_bits(twin, COMPATIBLE_AT, bits));
    fs::rename(flash, &volume.flash).expect("a rename");
    let kept = |after: &str| {
        for twin in twins(&volume.flash) {
            let superblock = larder_format::Superblock::decode(&twin).expect("whole");
            assert_eq!(superblock.features_compat & bits, bits, "after {after}");
            assert_eq!(&twin[LATER_AT..LATER_AT + LATER.len()], LATER, "after {after}");
        }
    };
    assert!(volume.number("dirty_bytes") > 0);
    volume.verify();
    has_all(&volume);
    kept("a serving");
    run(larder(["set", "--mode", "write-around", "--flash"]).arg(&volume.flash));
    kept("set");
    // A twin is lost; Larder writes it anew from the other.
    let mut bytes = fs::read(&volume.flash).expect("the flash");
    bytes[TWINS[1] + 200] ^= 1;
    fs::write(&volume.flash, bytes).expect("a flash");
    run(larder(["verify", "--repair", "--flash"]).arg(&volume.flash));
    kept("a repair");
    volume.flush();
    kept("a flush");
    run(larder(["detach", "--flash"]).arg(&volume.flash));
    kept("a detach");
    let origin = fs::read(&volume.origin).expect("the origin");
    assert!((0..PIECES).all(|number| origin[number as usize * PIECE_BYTES..].starts_with(&noise(number, PIECE_BYTES))));
}

#[test]
fn an_incompatible_feature_is_refused_by_its_number_and_dirty_data_is_as_it_was() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("incompatible-features");
    let volume = used_volume(&scratch);
    let good = fs::read(&volume.flash).expect("the flash");
    let other_origin = scratch.file("other-origin", 16 << 20);
    let named = &["bad", "incompatible feature bit 31", "wrote to this flash last, or a newer one"];
    let repairs = |flash: &Path| {
        [&["--repair"][..], &["--repair", "--dry-run"]].map(|options| {
            let mut command = larder(["verify", "--flash"]);
            command.arg(flash).args(options);
            command
        })
    };

    // In one twin or both: no command may read or write the flash.
    for in_twins in [&[0][..], &[1], &[0, 1]] {
        let flash = with_twins(&scratch, &good, |twin, bytes| {
            if in_twins.contains(&twin) {
                with_bits(bytes, INCOMPATIBLE_AT, 1 << 31);
            }
        });
        all_refused(&scratch, &flash, named);
        repairs(&flash).iter_mut().for_each(|command| refused(&scratch, command, named));
        let mut create = larder(["create", "--flash"]);
        refused(&scratch, create.arg(&flash).arg("--origin").arg(&other_origin), &["bad", "bit 31", "--force"]);
    }

    // A bit that lets other programs read: `status`, `verify` and `dump` do, and no command writes.
    let words = &["bad", "bit 40", "must not write", "larder verify"];
    for in_twins in [&[0][..], &[1], &[0, 1]] {
        let flash = with_twins(&scratch, &good, |twin, bytes| {
            if in_twins.contains(&twin) {
                with_bits(bytes, INCOMPATIBLE_AT, 1 << 40);
            }
        });
        let before = fs::read(&flash).expect("the flash");
        for mut command in commands(&flash, &scratch, true).into_iter().chain(repairs(&flash)) {
            refused(&scratch, &mut command, words);
        }
        for command in ["verify", "dump"] {
            run(larder([command, "--flash"]).arg(&flash));
        }
        let status = run(larder(["status", "--json", "--flash"]).arg(&flash));
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let conditions = status["conditions"].as_array().expect("a list");
        assert_eq!(conditions[0]["name"], "read_only_features", "{status}");
        assert_eq!(conditions[0]["severity"], "degraded", "{status}");
        let said = conditions[0]["what"].as_str().expect("a sentence");
        assert!(said.contains("bit 40") && status["health"] == said, "{status}");
        // No opening of this program mends a twin there.
        assert!(conditions.iter().all(|condition| condition["name"] != "superblock_repaired"), "{status}");
        assert!(fs::read(&flash).expect("the flash") == before, "what may only be read was written");
    }
    // The program that knows the bit finds everything.
    has_all(&volume);
}

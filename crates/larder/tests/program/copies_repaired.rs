//! Repairs of a flash beside its state directory, and ends of a cache whose state file stays.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use crate::behind_our_back::{CHUNK, at, content, fails, said, volume};
use crate::copies::{record, state, state_file};
use crate::support::{Scratch, Volume, ends, eventually, larder, stands_in, wire::Wire};

/// The second superblock begins there.
const SECOND_TWIN: u64 = 64 << 10;

fn damage_a_twin(flash: &Path) {
    let file = File::options().write(true).open(flash).expect("the flash");
    file.write_all_at(&[0; 4096], SECOND_TWIN).expect("a write");
}

/// Repairs the volume's flash, and returns the exit code and all that was printed.
fn repair(volume: &Volume, options: &[&str]) -> (Option<i32>, String) {
    let out = ends(larder(["verify", "--repair", "--flash"]).arg(&volume.flash).args(options));
    (out.status.code(), format!("{}{}", String::from_utf8_lossy(&out.stdout), said(&out)))
}

/// Serves, writes, and ends; returns the volume and a copy that was made before the last write.
fn with_older_copy(scratch: &Scratch, state: &str) -> (Volume, std::path::PathBuf) {
    let (volume, copy) = (volume(scratch), scratch.path("copy"));
    let server = volume.serve_with(&["--state", state]);
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &content(1));
    wire.flush();
    fs::copy(&volume.flash, &copy).expect("a copy");
    wire.write(0, &content(2));
    wire.flush();
    drop(wire);
    server.stop();
    (volume, copy)
}

#[test]
fn a_repair_without_its_state_directory_makes_no_older_copy_new() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("repair-without-state");
    let state = state(&scratch);
    let (volume, copy) = with_older_copy(&scratch, &state);
    let (kept, away) = (scratch.path("kept"), scratch.path("away"));
    fs::rename(&volume.flash, &kept).expect("moved");
    fs::rename(&copy, &volume.flash).expect("the copy in its place");
    damage_a_twin(&volume.flash);
    fs::rename(&state, &away).expect("the directory away");
    let before = fs::read(&volume.flash).expect("the flash");
    let (code, told) = repair(&volume, &[]);
    assert!(code == Some(1) && told.contains(&state) && told.contains("--state"), "{told}");
    fs::rename(&away, &state).expect("the directory back");
    let (code, told) = repair(&volume, &[]);
    assert!(code == Some(1) && told.contains("an older copy") && told.contains("--adopt"), "{told}");
    assert!(fs::read(&volume.flash).expect("the flash") == before, "a refusal changes nothing");
    // The flash itself is repaired, and served from then on.
    fs::rename(&volume.flash, &copy).expect("moved back");
    fs::rename(&kept, &volume.flash).expect("the flash in its place");
    damage_a_twin(&volume.flash);
    let (code, told) = repair(&volume, &["--state", &state]);
    assert_eq!(code, Some(0), "{told}");
    let server = volume.serve();
    assert!(Wire::connect(&server.socket).read(0, CHUNK) == content(2));
    server.stop();
    // The operator's order goes before.
    fs::rename(&volume.flash, &kept).expect("moved");
    fs::rename(&copy, &volume.flash).expect("the copy in its place");
    let (code, told) = repair(&volume, &["--adopt"]);
    assert!(code == Some(0) && told.contains("repaired"), "{told}");
}

/// All data is on the origin, as the state file notes; the flash that comes back is repaired first.
#[test]
fn a_repair_behind_a_destaged_fence_changes_nothing_of_the_fence() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("repair-behind-fence");
    let (volume, state) = (volume(&scratch), state(&scratch));
    let copy = scratch.path("copy");
    let server = volume.serve_with(&["--state", &state]);
    let mut wire = Wire::connect(&server.socket);
    (0..16).for_each(|chunk| wire.write(at(chunk), &content(chunk)));
    wire.flush();
    drop(wire);
    fs::copy(&volume.flash, &copy).expect("a copy");
    fs::remove_file(&volume.flash).expect("removed");
    eventually("all data is on the origin", || record(&state)["destaged"] == true);
    server.stop();
    fs::rename(&copy, &volume.flash).expect("the copy in its place");
    damage_a_twin(&volume.flash);
    let (code, told) = repair(&volume, &[]);
    assert_eq!(code, Some(0), "{told}");
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    assert!((0..16).all(|chunk| wire.read(at(chunk), CHUNK) == content(chunk)));
    drop(wire);
    server.stop();
}

#[test]
fn a_detach_is_over_though_its_state_file_stays() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("detach-file-stays");
    let (volume, state) = (volume(&scratch), state(&scratch));
    let server = volume.serve_with(&["--state", &state]);
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &content(1));
    drop(wire);
    volume.wait_for_no_clients();
    let file = state_file(&state);
    // Opening and writing have the superblock noted in the background, which brings the file back.
    eventually("a folder is in the place of the file", || {
        let _ = fs::remove_file(&file);
        fs::create_dir(&file).is_ok()
    });
    let out = ends(larder(["detach", "--flash"]).arg(&volume.flash));
    assert!(out.status.success(), "{}", said(&out));
    assert!(server.ends_with(0).contains(&file.display().to_string()), "the line about the file");
    assert!(fs::read(&volume.origin).expect("the origin")[..CHUNK] == content(1)[..]);
    fails(&ends(larder(["detach", "--flash"]).arg(&volume.flash)), &["detached"]);
}

//! `serve --wear`: the budget is checked, kept over servings, and told in the status.
//!
//! It leaves the effects of a spent budget to the engine's tests.

use crate::support::{MIB, Scratch, Volume, ends, wire::Wire};

/// Returns budget, spent and left bytes.
fn wear(volume: &Volume) -> [u64; 3] {
    ["wear_budget_bytes_a_day", "wear_spent_bytes", "wear_left_bytes"].map(|key| volume.number(key))
}

#[test]
fn a_wear_budget_is_checked_and_goes_on() {
    let scratch = Scratch::new("wear");
    let volume = Volume::create(&scratch, 32 * MIB, 16 * MIB, &[]);
    assert_eq!(wear(&volume), [0; 3]);
    let budgets = "write bytes a day (50G/day), drive writes a day from 0.0001 to 1000 (0.3dwpd), or none";
    for (budget, words) in [
        ("lots", budgets),
        ("0/day", budgets),
        ("50G", budgets),
        ("-1dwpd", budgets),
        ("NaNdwpd", budgets),
        ("1M/day", "a wear budget of 1M a day is too small for this cache"),
        ("0.001dwpd", "is too small for this cache"),
    ] {
        let refused = ends(&mut volume.serve_command(&["--wear", budget]));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(words), "{budget}: {said}");
    }
    assert_eq!(wear(&volume), [0; 3], "a refusal changes nothing");

    let server = volume.serve_with(&["--wear", "2dwpd"]);
    let mut wire = Wire::connect(volume.socket());
    let before = wear(&volume);
    assert_eq!(before[0], 64 * MIB);
    for chunk in 0..256 {
        wire.write(chunk * 8192, &crate::support::image::noise(chunk, 8192));
    }
    wire.flush();
    let after = wear(&volume);
    assert!(after[1] >= before[1] + 2 * MIB && after[1] + after[2] == after[0], "{before:?}, {after:?}");
    drop(wire);
    server.stop();
    let unserved = wear(&volume);
    assert!(unserved[0] == 64 * MIB && unserved[1] >= after[1], "{after:?}, {unserved:?}");

    let server = volume.serve_with(&[]);
    let next = wear(&volume);
    assert!(next[0] == 64 * MIB && next[1] >= after[1], "the last budget goes on: {next:?}");
    server.kill();
    let server = volume.serve_with(&["--wear", "128M/day"]);
    let raised = wear(&volume);
    assert!(raised[0] == 128 * MIB && raised[1] >= next[1], "{next:?}, {raised:?}");
    server.stop();
    let server = volume.serve_with(&["--wear", "none"]);
    assert_eq!(wear(&volume), [0; 3]);
    server.stop();
}

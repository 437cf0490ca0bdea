//! Logs of decisions, worked out by hand: their outcome, and that a log with another answer is
//! refused.

use larder_follow::{
    replay::{Decided, replay},
    text::LINE_BYTES_MAX,
};

/// Chunks of 4 KiB in seven WEUs of 512 KiB; headers and entries of 64 bytes, sectors of 4 KiB.
const OPENED: &str = "opened nitro 4096 524288 4096 64 64 7 2000 2000 5 0";

/// Returns a fingerprint.
fn fp(number: u64) -> String {
    format!("{number:032x}")
}

/// Returns a first read, a fill, hits after it, and the writes of the fill.
fn small() -> Vec<String> {
    vec![
        "larder-decisions 1".into(),
        OPENED.into(),
        "read 7 0 8 : miss".into(),
        format!("look {} : miss", fp(1)),
        format!("open clean 7 {} 1000 : slot 0", fp(1)),
        format!("insert 7 clean {} packed 1000 : stored 0 64 1000", fp(1)),
        // A write of the same content: its commit needs the clean segment.
        format!("insert 8 20 {} known : hit 0 64 1000", fp(1)),
        "read 8 3 4 : hit 0 64 1000".into(),
        "commit needed".into(),
        "written 5 : count 4096".into(),
        // Some sectors of a chunk: those hit, and no other.
        "open dirty 9 - 2048 : slot 1".into(),
        format!("fragment 9 21 0f{} raw 2048 : stored 1 4096 2048", "00".repeat(31)),
        "read 9 0 4 : hit 1 4096 2048".into(),
        "read 9 3 5 : miss".into(),
        "merge 9 : hit 1 4096 2048".into(),
        "insert 10 clean zero".into(),
        "read 10 0 8 : zero".into(),
        "trim 0 8 22".into(),
        "read 7 0 1 : zero".into(),
        "clean-run 0 8 22".into(),
        "read 7 0 1 : miss".into(),
        // An older write of the chunk is on the origin: nothing is clean for that.
        "clean 8 19 : count 0".into(),
        "clean 8 20 : count 1".into(),
        "change 8 1 again".into(),
        "read 8 0 8 : miss".into(),
        "seal".into(),
        "written 6 : count 8192".into(),
        "clean 9 21 : count 1".into(),
        "read 9 0 4 : miss".into(),
        "choose : slot 0".into(),
        "evict : slot 0".into(),
        "release : slot 0".into(),
        "sweep : count 0".into(),
    ]
}

/// Returns the same over slots of one chunk, with D-LRU. A record fills its slot, and is written at
/// once.
fn small_slots() -> Vec<String> {
    vec![
        "larder-decisions 1".into(),
        "opened d-lru 4096 4096 512 0 0 6 2000 2000 5 0".into(),
        "read 7 0 8 : miss".into(),
        format!("look {} : miss", fp(1)),
        format!("open clean 7 {} 4096 : slot 0", fp(1)),
        format!("insert 7 clean {} raw 4096 : stored 0 0 4096", fp(1)),
        format!("insert 8 20 {} known : hit 0 0 4096", fp(1)),
        "read 8 3 4 : hit 0 0 4096".into(),
        "commit needed".into(),
        "written 5 : count 4096".into(),
        "open dirty 9 - 2048 : slot 1".into(),
        format!("fragment 9 21 0f{} raw 2048 : stored 1 0 2048", "00".repeat(31)),
        "read 9 0 4 : hit 1 0 2048".into(),
        "read 9 3 5 : miss".into(),
        "written 6 : count 2048".into(),
        // The design has two slots: the chunk used least recently makes way, and its slot goes once
        // it is clean.
        format!("open clean 10 {} 4096 : slot 2", fp(2)),
        format!("insert 10 clean {} raw 4096 : stored 2 0 4096", fp(2)),
        "choose : slot 0".into(),
        "evict : none".into(),
        "read 8 0 8 : hit 0 0 4096".into(),
        "clean 8 20 : count 1".into(),
        "read 8 0 8 : miss".into(),
        "choose : slot 0".into(),
        "evict : slot 0".into(),
        "release : slot 0".into(),
        "written 7 : count 4096".into(),
        "trim 9 1 22".into(),
        "read 9 0 8 : zero".into(),
        "choose : slot 1".into(),
    ]
}

/// Returns the same over slots for parts of a chunk, with AustereCache. One bucket has eight slots
/// of 4 KiB, for chunks of 8 KiB. Metadata slots that change are numbered among the segments.
fn small_parts() -> Vec<String> {
    vec![
        "larder-decisions 1".into(),
        "opened austere 8192 4096 4096 0 0 8 2000 8 5 0 8 100".into(),
        "read 7 0 16 : miss".into(),
        format!("look {} : miss", fp(1)),
        format!("open clean 7 {} 3000 : slot 0", fp(1)),
        format!("insert 7 clean {} packed 3000 : stored 0 0 3000", fp(1)),
        "written 5 : count 4096".into(),
        // The metadata slot says so once it is written.
        "told 0 : miss".into(),
        "taken 6 : slot 0".into(),
        "told 0 : miss".into(),
        "written 6 : count 0".into(),
        "told 0 : hit 0 0 3000".into(),
        "read 7 0 16 : hit 0 0 3000".into(),
        // Another one has it, too: the first leaves the list until the origin has it.
        format!("insert 8 20 {} known : hit 0 0 3000", fp(1)),
        "taken 7 : slot 0".into(),
        "written 7 : count 0".into(),
        "read 8 0 16 : hit 0 0 3000".into(),
        // Entries below this number are in the log: no waiting entry is.
        "committed 20".into(),
        // Now chunk 8 joins the list, and then chunk 7; a write that found nothing new is over as
        // well.
        "committed 21".into(),
        "settled 7 durable".into(),
        "taken 9 : slot 0".into(),
        "written 9 : count 0".into(),
        "taken 8 : none".into(),
        "written 8 : count 0".into(),
        "read 7 0 16 : hit 0 0 3000".into(),
        "clean 8 20 : count 1".into(),
        "read 8 0 16 : hit 0 0 3000".into(),
        // Two slots, and a fragment, which no other content is like.
        format!("open dirty 9 {} 8192 : slot 1", fp(2)),
        format!("insert 9 22 {} raw 8192 : stored 1 0 8192", fp(2)),
        "written 10 : count 8192".into(),
        "taken 11 : slot 1".into(),
        "written 11 : count 0".into(),
        "open dirty 10 - 2048 : slot 3".into(),
        format!("fragment 10 23 0f{} raw 2048 : stored 3 0 2048", "00".repeat(31)),
        "read 10 0 4 : hit 3 0 2048".into(),
        "read 10 3 5 : miss".into(),
        "written 12 : count 4096".into(),
        "taken 13 : slot 3".into(),
        "written 13 : count 0".into(),
        "trim 9 1 24".into(),
        "read 9 0 16 : zero".into(),
        // It gets the same content again, and the origin loses that.
        "change 7 1 again".into(),
        "read 7 0 16 : miss".into(),
        format!("insert 7 clean {} known : hit 0 0 3000", fp(1)),
        "settled 7 gone".into(),
        // The bucket is full, and nothing refers to the data of chunk 9 in it any more.
        format!("open clean 20 {} 8192 : slot 4", fp(3)),
        format!("insert 20 clean {} raw 8192 : stored 4 0 8192", fp(3)),
        format!("open clean 21 {} 8192 : slot 6", fp(4)),
        format!("insert 21 clean {} raw 8192 : stored 6 0 8192", fp(4)),
        format!("open clean 22 {} 4000 : none", fp(5)),
        "choose : slot 1".into(),
        "choose : none".into(),
        "evict : slot 1".into(),
        "release : slot 1".into(),
        format!("open clean 22 {} 4000 : slot 1", fp(5)),
        format!("insert 22 clean {} packed 4000 : stored 1 0 4000", fp(5)),
        "written 18 : count 4096".into(),
        "taken 19 : slot 1".into(),
        "read 20 0 16 : hit 4 0 8192".into(),
        "read 21 0 16 : hit 6 0 8192".into(),
        "read 22 0 16 : hit 1 0 4000".into(),
        // Until its metadata slot is written, that slot has the chunk that was there before.
        format!("insert 20 25 {} known : hit 1 0 4000", fp(5)),
        "told 1 : hit 1 0 8192".into(),
        "written 19 : count 0".into(),
        "told 1 : hit 1 0 4000".into(),
        "committed 26".into(),
        "settled 22 durable".into(),
        "seal".into(),
    ]
}

fn replayed(lines: &[String]) -> Result<Decided, String> {
    replay(lines.join("\n").as_bytes())
}

#[test]
fn a_log_comes_to_what_was_worked_out() {
    let decided = Decided {
        read_hits: 4,
        read_misses: 5,
        records: 2,
        stored_bytes: 3048,
        duplicates: 1,
        segment_bytes: 12288,
        slots_evicted: 1,
    };
    assert_eq!(replayed(&small()), Ok(decided));
    // Without answers nothing is compared, and the outcome is the same.
    let bare: Vec<String> = small().iter().map(|line| line.split(" : ").next().unwrap().to_owned()).collect();
    assert_eq!(replayed(&bare), Ok(decided));
}

#[test]
fn a_log_over_slots_comes_to_what_was_worked_out() {
    let decided = Decided {
        read_hits: 4,
        read_misses: 3,
        records: 3,
        stored_bytes: 4096 + 2048 + 4096,
        duplicates: 1,
        segment_bytes: 4096 + 2048 + 4096,
        slots_evicted: 1,
    };
    assert_eq!(replayed(&small_slots()), Ok(decided));
}

#[test]
fn a_log_over_parts_of_chunks_comes_to_what_was_worked_out() {
    let decided = Decided {
        read_hits: 9,
        read_misses: 3,
        records: 6,
        stored_bytes: 3000 + 8192 + 2048 + 8192 + 8192 + 4000,
        duplicates: 3,
        segment_bytes: 4096 + 8192 + 4096 + 4096,
        slots_evicted: 1,
    };
    assert_eq!(replayed(&small_parts()), Ok(decided));
}

#[test]
fn each_answer_is_found_here_and_not_believed() {
    no_answer_is_believed(small());
    no_answer_is_believed(small_slots());
    no_answer_is_believed(small_parts());
}

fn no_answer_is_believed(small: Vec<String>) {
    let mut changed = 0;
    for (at, line) in small.iter().enumerate() {
        let Some((event, answer)) = line.split_once(" : ") else { continue };
        for other in ["miss", "zero", "none", "count 77", "slot 6", "hit 0 64 1001", "stored 1 64 1000"] {
            if other != answer {
                let mut lines = small.clone();
                lines[at] = format!("{event} : {other}");
                let error = replayed(&lines).expect_err("another answer");
                let here = format!("line {}: `{event}` is `{other}` in the log, and `{answer}` here", at + 1);
                assert_eq!(error, here);
                changed += 1;
            }
        }
    }
    assert!(changed > 100);
}

#[test]
fn inputs_that_are_changed_are_noticed() {
    let small = small();
    let at = |find: &str| small.iter().position(|line| line.starts_with(find)).unwrap();
    let with = |find: &str, line: String| {
        let mut lines = small.clone();
        lines[at(find)] = line;
        replayed(&lines).unwrap_err()
    };
    // The content of the fill is another one: then the write's is not known.
    let fill = format!("insert 7 clean {} packed 1000 : stored 0 64 1000", fp(2));
    assert!(with("insert 7", fill).contains("the content is not known here"));
    // A record of another length lies elsewhere, and its segment is longer.
    let longer = format!("insert 7 clean {} packed 4000 : stored 0 64 4000", fp(1));
    assert!(with("insert 7", longer).contains("line 7"));
    // No slot was opened, or chosen, or evicted.
    assert!(with("open clean", "sweep".into()).contains("no slot is open here that the record could go to"));
    assert!(with("choose", "sweep".into()).contains("no victim is chosen here"));
    assert!(with("evict", "sweep".into()).contains("no slot is evicted here and not free"));
    assert!(with("written 5", "written 9".into()).contains("no segment 9 is closed here and not written"));
    // The oldest WEU is still being written: another one goes.
    let busy = "line 30: `choose` is `slot 0` in the log, and `slot 1` here";
    assert_eq!(with("written 5", "sweep".into()), busy);
}

#[test]
fn what_cannot_be_is_refused_with_its_line() {
    let after = |line: &str| replayed(&["larder-decisions 1".into(), OPENED.into(), line.into()]).unwrap_err();
    let full = format!("full clean {} raw 4096", fp(1));
    assert_eq!(after(&full), format!("line 3: no slot is open here that could be full (`{full}`)"));
    assert!(after("insert 1 1 - raw 4097").contains("the length of a record is 4097; it is from 1 to 4096"));
    assert!(after("insert 1 1 - packed 0").contains("the length of a record is 0"));
    assert!(after("insert 1 18446744073709551615 zero").contains("the number of a write is 18446744073709551615"));
    assert!(after("change 1099511627775 2 gone").contains("a volume has 1099511627776 chunks at most"));
    assert!(after("trim 5 0 1").contains("the number of chunks is 0"));
    assert!(after("fault").contains("cannot be followed"));
    assert!(after(OPENED).contains("the cache is open already"));
    assert!(after("release").contains("no slot is evicted here and not free"));

    let opened = |line: &str| replayed(&["larder-decisions 1".into(), line.into()]).unwrap_err();
    let used = "line 2: the opening found 3 chunks and used slots; only an empty cache can be followed";
    assert!(opened("opened nitro 4096 524288 4096 64 64 7 2000 2000 5 3").starts_with(used));
    let names = "those of larder, nitro, cd-arc, d-lru, d-arc, lru, arc, austere can";
    let other = "opened fifo 32768 8192 512 0 0 240 2000 0 1 7";
    let refused = format!("line 2: no log of the design \"fifo\" can be followed; {names} (`{other}`)");
    assert_eq!(opened(other), refused);
    // A design with slots for parts of a chunk has buckets, and whole slots a record.
    let parts = |sizes: &str| opened(&format!("opened austere {sizes}"));
    assert!(parts("16384 4096 4096 0 0 240 2000 240 1 0").contains("does not say how many slots a bucket has"));
    assert!(
        parts("16384 4096 512 0 0 240 2000 240 1 0 32 99").contains("the size of a sector is 512; it is from 4096")
    );
    assert!(
        parts("16384 256 256 0 0 240 2000 240 1 0 32 99")
            .contains("the size of a slot is 256; it is from 512 to 16384")
    );
    assert!(parts("16384 4096 4096 0 0 240 2000 240 1 0 500 99").contains("500"));
    assert!(parts("16384 4096 4096 0 0 240 2000 240 1 0 32 0").contains("the number of chunks is 0"));
    // A design with slots of one chunk has nothing else.
    let slots = |sizes: &str| opened(&format!("opened lru {sizes} 200 2000 0 1 0"));
    assert!(slots("4096 8192 4096 0 0").contains("the size of a slot is 8192; it is from 4096 to 4096"));
    assert!(slots("4096 4096 4096 64 0").contains("the size of a segment's header is 64; it is from 0 to 0"));
    assert!(slots("4096 4096 4096 0 64").contains("the size of an entry of a segment's table is 64"));
    assert!(opened("opened nitro 1 524288 4096 64 64 7 2000 2000 5 0").contains("the size of a chunk is 1"));
    assert!(opened("opened nitro 4096 524288 4096 64 64 4294967295 2000 2000 5 0").contains("the number of slots"));
    assert!(opened("opened nitro 4096 524288 4096 64 64 7 1 2000 5 0").contains("1 mappings are too few"));
    assert!(opened("sweep").contains("a log begins with the opening of a cache"));

    assert_eq!(replay(&b""[..]).unwrap_err(), "line 1: expected `larder-decisions 1`, found \"\"");
    assert!(replay(&b"larder-decisions 2\n"[..]).unwrap_err().starts_with("line 1: expected"));
    assert_eq!(replay(&b"larder-decisions 1\n\xff\n"[..]).unwrap_err(), "line 2: expected text, found other bytes");
    let long = format!("larder-decisions 1\n{}", "x".repeat(LINE_BYTES_MAX * 3));
    assert!(replay(long.as_bytes()).unwrap_err().starts_with("line 2: it has"));
}

#[test]
fn no_log_panics() {
    // Lines in another order, twice, or left out: every log has an outcome.
    let over_slots = ["d-lru", "d-arc", "lru", "arc"].map(|design| (design, small_slots(), "d-lru"));
    let over_weus = ["nitro", "cd-arc"].map(|design| (design, small(), "nitro"));
    let over_parts = [("austere", small_parts(), "austere")];
    for (design, small, named) in over_weus.into_iter().chain(over_slots).chain(over_parts) {
        let bare = small.iter().map(|line| line.split(" : ").next().unwrap().replace(named, design));
        let lines: Vec<String> = bare.collect();
        for from in 2..lines.len() {
            for to in 2..lines.len() {
                let mut changed = lines.clone();
                let line = changed.remove(from);
                let _ = replayed(&changed);
                changed.insert(to.min(changed.len()), line.clone());
                let _ = replayed(&changed);
                changed.insert(from, line);
                let _ = replayed(&changed);
            }
        }
    }
}

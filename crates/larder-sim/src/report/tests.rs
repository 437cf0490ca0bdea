//! Rows have all keys, and tables and files show their figures.

use super::{table::table, *};
use crate::{
    cache::{CacheFigures, WritePolicy},
    setup::{FlashAmount, Options, ReplayDesign},
    tally::Tally,
    traffic::Traffic,
};
use std::time::Duration;

fn made(name: &str, read_hits: u64, bounds: bool) -> Row {
    let setup = Setup {
        design: ReplayDesign::named(name).expect("a design"),
        chunk_bytes: 4096,
        flash: FlashAmount::PercentOfWorkingSet(10.0),
        policy: WritePolicy::Through,
        options: Options { ram_bytes: Some(1 << 20), ..Options::default() },
    };
    let measures = Measures {
        chunk_bytes: 4096,
        flash_bytes: 3 << 20,
        flash_data_bytes: 2 << 20,
        warmup_requests: 5,
        tally: Tally { reads: 100, read_hits, writes: 50, write_hits: 25, trims: 3, flushes: 2 },
        traffic: Traffic { flash_data_bytes_written: 7 << 20, chunks_stored: 1792, ..Traffic::default() },
        figures: CacheFigures {
            index_ram_bytes: 1 << 19,
            mapped_chunks: 512,
            live_chunks: 256,
            live_stored_bytes: 1 << 19,
            ..CacheFigures::default()
        },
        elapsed: Duration::from_millis(500),
        drive: None,
    };
    let facts =
        TraceFacts { name: "a, \"b\".csv".to_owned(), content: None, lines_skipped: 1, back_steps: 2, seconds: None };
    let bound = |read_hits_upper, read_hits_lower| Bound {
        reads: 100,
        read_hits_upper,
        read_hits_lower,
        written_lower: 3 << 20,
        written_upper: 5 << 20,
    };
    let bounds_known = RowBounds { compressed: bound(90, 88), uncompressed_ratio: 0.7, revealed_ratio: 0.95 };
    let known = RowBound::Known(bounds_known);
    row(&setup, &measures, &facts, bounds.then_some(&known))
}

#[test]
fn a_row_has_each_key_and_no_other() {
    for bounds in [true, false] {
        let row = made("lru", 40, bounds);
        let mut keys: Vec<&str> = COLUMNS.to_vec();
        keys.sort_unstable();
        assert_eq!(row.keys().map(String::as_str).collect::<Vec<_>>(), keys);
        assert_eq!(row["bound_read_hit_ratio_upper"].is_null(), !bounds);
    }
    let row = made("lru", 40, true);
    assert_eq!((&row["read_hit_ratio"], &row["total_miss_ratio"]), (&json!(0.4), &json!(85.0 / 150.0)));
    assert_eq!((&row["dedup_ratio"], &row["compression_ratio"]), (&json!(2.0), &json!(2.0)));
    assert_eq!(
        (&row["requests_per_second"], &row["index_ram_bytes_per_mapped_chunk"]),
        (&json!(300.0), &json!(1024.0))
    );
    assert_eq!((&row["setup"], &row["flash"]), (&json!("lru:ram=1M"), &json!("10%")));
    assert_eq!(plotted(&row, "read_hit_ratio"), Some(40.0));
    assert_eq!(plotted(&row, "flash_bytes_written"), Some(7.0));
    assert_eq!(plotted(&row, "index_ram_bytes_per_cached_gib"), Some(256.0));
    assert_eq!(plotted(&made("lru", 40, false), "bound_read_hit_ratio_upper"), None);
    let all = [COLUMNS, drive::COLUMNS, time::COLUMNS];
    assert!(METRICS.iter().all(|(metric, _)| all.iter().any(|columns| columns.contains(metric))));
}

#[test]
fn a_ratio_of_nothing_is_null_and_has_no_bound() {
    let setup = Setup {
        design: ReplayDesign::named("lru").expect("a design"),
        chunk_bytes: 4096,
        flash: FlashAmount::DataChunks(9),
        policy: WritePolicy::Through,
        options: Options::default(),
    };
    let facts = TraceFacts::default();
    let nothing = Bound { reads: 0, read_hits_upper: 0, read_hits_lower: 0, written_lower: 0, written_upper: 0 };
    let bound = RowBound::Known(RowBounds { compressed: nothing, uncompressed_ratio: 0.0, revealed_ratio: 0.0 });
    for (warmup_requests, why) in [(0, "no reads in the trace"), (9, "no reads after the warm-up")] {
        let measures = Measures { chunk_bytes: 4096, warmup_requests, ..Measures::default() };
        let row = row(&setup, &measures, &facts, Some(&bound));
        let ratios: Vec<&str> =
            COLUMNS.iter().copied().filter(|key| key.ends_with("_ratio") || key.contains("_per_m")).collect();
        assert!(ratios.len() > 10 && ratios.iter().all(|key| row[*key].is_null()), "{row:?}");
        assert!(row["bound_read_hit_ratio_upper"].is_null() && row["bound_withdrawn"].is_null());
        let text = table(&[row.clone(), row]);
        assert!(text.matches(why).count() == 1 && !text.contains("100.0") && !text.contains("the best"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("lru ") && line.contains(" none ")), "{text}");
    }
    let mut some = made("lru", 0, true);
    for key in ["bound_read_hit_ratio_upper", "bound_read_hit_ratio_lower"] {
        some.insert(key.to_owned(), json!(0.0));
    }
    assert!(table(&[some]).contains("no cache hits any read"));
}

#[test]
fn a_csv_file_has_a_head_and_as_many_cells_in_each_line() {
    let text = csv(&[made("lru", 40, false), made("arc", 50, true)]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0].split(',').count()), (3, COLUMNS.len()));
    assert!(lines[1].contains("\"a, \"\"b\"\".csv\""), "{text}");
    // One comma, in the name, is no border.
    assert_eq!(lines[1].split(',').count(), COLUMNS.len() + 1);
}

#[test]
fn a_table_says_how_far_the_best_is_from_what_is_possible() {
    let text = table(&[made("lru", 40, true), made("arc", 66, true)]);
    assert!(
        text.contains("at most 90.00% of the reads can hit, and 88.00% can be had (70.00% uncompressed)"),
        "{text}"
    );
    assert!(text.contains("the best here, arc, has 73.3% of the most"), "{text}");
    assert!(text.contains("need 3.0 MiB written to flash at least, and 5.0 MiB are enough"), "{text}");
    assert!(text.contains("if the origin reveals contents, at most 95.00% can hit"), "{text}");
    // Common parts of all rows stand over the table.
    let (head, rest) = text.split_once('\n').unwrap();
    for words in ["flash 10% = 3.00 MiB", "mode write-through", "chunk KiB 4", "ram=1M", "content of its own"] {
        assert!(head.contains(words), "{words}: {text}");
    }
    assert!(rest.contains("\nlru ") && rest.contains(" 40.00 ") && !rest.contains("mode"), "{text}");
    assert!(!table(&[made("lru", 40, false)]).contains("bound"));
}

#[test]
fn a_bound_that_was_withdrawn_says_why() {
    for (reads, words) in [(1, "1 read of a chunk finds"), (14, "14 reads of a chunk find")] {
        let why = RowBound::Withdrawn { reads }.why_withdrawn().unwrap();
        let mut rows = [made("lru", 40, false), made("arc", 50, false)];
        assert!(rows.iter().all(|row| row["bound_withdrawn"].is_null()));
        rows.iter_mut().for_each(|row| drop(row.insert("bound_withdrawn".to_owned(), why.clone().into())));
        let text = table(&rows);
        assert_eq!(text.matches(words).count(), 1, "{text}");
        assert!(!text.contains("at most"), "{text}");
    }
    assert!(made("lru", 40, true)["bound_withdrawn"].is_null());
}

#[test]
fn names_leave_out_what_all_share_that_have_it() {
    let with = |setup: &str| {
        let mut row = made(setup.split(':').next().unwrap(), 40, false);
        row.insert("setup".to_owned(), setup.into());
        row
    };
    let rows = ["lru", "d-lru:lba-entries=9", "nitro:lba-entries=9:dedup=off", "nitro:lba-entries=9"].map(with);
    assert_eq!(common_options(&rows), ["lba-entries=9"]);
    assert_eq!(short_names(&rows), ["lru", "d-lru", "nitro:dedup=off", "nitro"]);
    assert_eq!(short_names(&rows[..1]), ["lru"]);
}

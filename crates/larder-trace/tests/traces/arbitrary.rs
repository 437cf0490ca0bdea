//! Arbitrary bytes, plain and packed, in every format: records or an error, never a panic. A reader
//! returns the fields that a format expresses.

use crate::common::{gzip, reader};
use larder_trace::{FormatId, Op, ReaderOptions};
use proptest::{prelude::*, test_runner::RngSeed};

/// The seed of all cases of a run; a failure prints the case.
const SEED: RngSeed = RngSeed::Fixed(20_260);

/// Makes bytes like a trace, so that parsers get past the first column.
fn trace_like() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        any::<u64>().prop_map(|number| number.to_string()),
        any::<u16>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| format!("{number:016x}")),
        any::<u128>().prop_map(|number| format!("{number:032x}")),
        prop::sample::select(vec!["R", "W", "T", "F", "Q", "Read", "Write", "0", "+", "8,0", "-", "1.5", "read", ""])
            .prop_map(str::to_owned),
    ];
    let separator = prop::sample::select(vec![" ", " ", " ", ",", "\n", "\n", "\t", "\r\n"]);
    prop::collection::vec((token, separator), 0..200)
        .prop_map(|parts| parts.into_iter().flat_map(|(token, separator)| (token + separator).into_bytes()).collect())
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..2000), trace_like()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: SEED, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_reader_panics(bytes in any_bytes(), skip_bad: bool, cut in 0.0..1.0) {
        let options = ReaderOptions { skip_bad, ..ReaderOptions::default() };
        let mut packed = zstd::encode_all(&bytes[..], 1).unwrap();
        packed.truncate((packed.len() as f64 * (0.5 + cut)) as usize);
        let mut zipped = gzip(&bytes);
        zipped.truncate((zipped.len() as f64 * (0.5 + cut)) as usize);
        for format in FormatId::ALL.map(Some).into_iter().chain([None]) {
            for bytes in [&bytes, &packed, &zipped] {
                if let Ok(reader) = reader(bytes, format, options) {
                    let mut errors = 0;
                    for record in reader {
                        match record {
                            Ok(record) => prop_assert!(record.op == Op::Flush || record.len_bytes > 0),
                            Err(_) => errors += 1,
                        }
                    }
                    prop_assert!(errors <= 1);
                }
            }
        }
    }

    #[test]
    fn ssdsim_lines_are_read_as_they_are(lba in 0u64..1 << 40, sectors in 1u64..1 << 20, time in 0u64..1 << 50, read: bool) {
        let line = format!("{time} 0 {lba} {sectors} {}\r\n", u8::from(read));
        let record = reader(line.as_bytes(), Some(FormatId::Ssdsim), ReaderOptions::default()).unwrap().next().unwrap().unwrap();
        prop_assert_eq!(record.time_us, Some(time / 1000));
        prop_assert_eq!((record.offset_bytes, record.len_bytes), (lba * 512, sectors * 512));
        prop_assert_eq!(record.op == Op::Read, read);
    }
}

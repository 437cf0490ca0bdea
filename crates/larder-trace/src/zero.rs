//! The fingerprint of a block of zeroes under each hash of the traces.
//!
//! Invariants: the constants are those of `md5sum`, `sha1sum` and `xxh3sum` over files of zeroes.
//!
//! It does not hash.

use crate::record::ContentId;

/// XXH3-64 of 4096 zeroes.
pub const XXH3_4K: ContentId = ContentId([0, 0x93d7_6fe1_48c6_89ba]);

/// Returns the MD5 of `len_bytes` zeroes, for the lengths in FIU traces.
pub(crate) const fn md5(len_bytes: u64) -> Option<ContentId> {
    match len_bytes {
        512 => Some(ContentId::from_u128(0xbf61_9eac_0cdf_3f68_d496_ea93_4413_7e8b)),
        4096 => Some(ContentId::from_u128(0x620f_0b67_a91f_7f74_151b_c5be_745b_7110)),
        _ => None,
    }
}

/// Returns the first 128 bits of the SHA-1 of `len_bytes` zeroes, for chunks of 4 to 128 KiB.
pub(crate) const fn sha1(len_bytes: u64) -> Option<ContentId> {
    Some(ContentId::from_u128(match len_bytes {
        4096 => SHA_4K,
        8192 => SHA_8K,
        16384 => SHA_16K,
        32768 => SHA_32K,
        65536 => SHA_64K,
        131_072 => SHA_128K,
        _ => return None,
    }))
}

const SHA_4K: u128 = 0x1cea_f73d_f40e_531d_f3bf_b26b_4fb7_cd95;
const SHA_8K: u128 = 0x0631_4572_64ff_7f8d_5fb1_edc2_c021_1992;
const SHA_16K: u128 = 0x8972_56b6_709e_1a4d_a9da_ba92_b6bd_e39c;
const SHA_32K: u128 = 0x5188_4318_49b4_6131_52fd_7bdb_a6a3_ff0a;
const SHA_64K: u128 = 0x1adc_95be_be9e_ea8c_112d_40cd_04ab_7a8d;
const SHA_128K: u128 = 0x67df_d19f_3eb3_649d_6f3f_6631_e44d_0bd3;

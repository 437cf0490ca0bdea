//! The one-byte codes that the structures carry.
//!
//! Invariants: a code's number never changes its meaning; a number that is not listed is refused.
//! Zero is no code, except for [`Encoding`] and [`Compression`], so that a zeroed byte is not taken
//! for a choice.
//!
//! It does not know a design beyond its number; the number has a name, by which the program finds
//! the design.

macro_rules! code_enum {
    // With names, of which no two are equal.
    ($(#[$doc:meta])* named $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $code:literal $label:literal,)+ }) => {
        code_enum! { $(#[$doc])* $name { $($(#[$variant_doc])* $variant = $code,)+ } }

        impl $name {
            /// Returns its name, for an operator.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $label,)+
                }
            }

            /// Returns the value that has this name.
            pub const fn named(name: &str) -> Option<Self> {
                let mut all = Self::ALL;
                while let [first, rest @ ..] = all {
                    if is_same(first.name(), name) {
                        return Some(*first);
                    }
                    all = rest;
                }
                None
            }
        }
    };
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $code:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $code,)+
        }

        impl $name {
            /// Every value, in the order of the codes.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// Returns the byte that stands for it on flash.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// Returns the value of a byte, if it has one.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

code_enum! {
    /// The form in which the bytes of a record are stored.
    Encoding {
        /// Uncompressed.
        Raw = 0,
        /// One LZ4 block.
        Lz4 = 1,
        /// One Zstandard frame.
        Zstd = 2,
    }
}

code_enum! {
    /// The compressor for new records; a record that does not shrink is stored raw.
    Compression {
        /// None.
        Off = 0,
        /// LZ4.
        Lz4 = 1,
        /// Zstandard.
        Zstd = 2,
    }
}

code_enum! {
    /// The moment when the origin gets a write.
    WriteMode {
        /// Write-back: at destage, later.
        Back = 1,
        /// Write-through: before the write is acknowledged; the cache keeps a copy.
        Through = 2,
        /// Write-around: before the write is acknowledged; the cached copy is invalidated.
        Around = 3,
    }
}

code_enum! {
    /// The design that decides which chunks are cached.
    named DesignId {
        /// Nitro.
        Nitro = 1 "nitro",
        /// D-LRU of CacheDedup.
        DLru = 2 "d-lru",
        /// D-ARC of CacheDedup.
        DArc = 3 "d-arc",
        /// CD-ARC of CacheDedup.
        CdArc = 4 "cd-arc",
        /// AustereCache.
        Austere = 5 "austere",
        /// LRU without data reduction.
        Lru = 6 "lru",
        /// ARC without data reduction.
        Arc = 7 "arc",
        /// Larder's own.
        Larder = 8 "larder",
    }
}

code_enum! {
    /// The class of a WEU: fresh dirty and fresh clean chunks go to different WEUs.
    WeuClass {
        /// Chunks that were clean when they were stored.
        Clean = 1,
        /// Chunks that were dirty when they were stored.
        Dirty = 2,
    }
}

code_enum! {
    /// The state of a slot when a checkpoint notes it.
    SlotState {
        /// No mapping names it; its generation is the last one used.
        Free = 1,
        /// Being filled with segments.
        Open = 2,
        /// Closed: no segment will be added in this generation.
        Sealed = 3,
    }
}

/// Compares as `==` does, which constants cannot use.
const fn is_same(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    while let ([a, one_rest @ ..], [b, other_rest @ ..]) = (one, other) {
        if *a != *b {
            return false;
        }
        (one, other) = (one_rest, other_rest);
    }
    one.is_empty() && other.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_design_is_found_by_its_name_alone() {
        for &design in DesignId::ALL {
            let name = design.name();
            assert_eq!(DesignId::named(name), Some(design));
            for other in [&name[1..], &name[..name.len() - 1], &format!("{name}s"), &name.to_uppercase()] {
                assert_ne!(DesignId::named(other), Some(design), "{other}");
            }
        }
        assert_eq!(DesignId::named(""), None);
    }
}

//! Names in a chart: broken into lines in little room, or numbered, with a key to the numbers.
//!
//! They are never cut, since names of designs often differ at their ends only.
//!
//! Invariants: all characters of a name are shown.
//!
//! It does not draw.

/// Pixels of a character, about.
pub const CHAR_PX: u32 = 7;
/// Pixels of a line of a key, and of a further line of a name.
pub const LINE_PX: u32 = 15;
/// Pixels between the lines of a key.
pub const KEY_LINE_PX: u32 = 20;
/// Lines under a group of bars at most; names that need more are numbered.
const LINES_MAX: usize = 4;

/// Breaks a name into lines of at most so many characters (one at least).
///
/// It breaks after an option or a word if possible.
pub fn broken(name: &str, chars_max: usize) -> Vec<String> {
    let chars_max = chars_max.max(1);
    let mut lines: Vec<String> = Vec::new();
    for piece in name.split_inclusive([':', ' ']) {
        let chars: Vec<char> = piece.chars().collect();
        match lines.last_mut() {
            // A blank at the end takes no room.
            Some(line) if line.chars().count() + piece.trim_end().chars().count() <= chars_max => line.push_str(piece),
            _ => lines.extend(chars.chunks(chars_max).map(|some| some.iter().collect::<String>())),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// The names under groups of bars.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// Names, each in so many lines.
    Whole(Vec<Vec<String>>),
    /// Numbers from 1; the names stand below in a key of so many columns.
    Numbered {
        /// Columns of the key, which reads downwards.
        columns: usize,
    },
}

impl Labels {
    /// Makes labels for `names` side by side over `across_px`, with a key of at most `key_px`.
    pub fn of(names: &[String], across_px: u32, key_px: u32) -> Labels {
        let room = (across_px / CHAR_PX) as usize / names.len().max(1);
        // A character stays empty, so that neighbours stand apart.
        let room = room.saturating_sub(1).max(1);
        let lines: Vec<Vec<String>> = names.iter().map(|name| Labels::under(name, room)).collect();
        let fits =
            |lines: &Vec<String>| lines.len() <= LINES_MAX && lines.iter().all(|line| line.chars().count() <= room);
        match lines.iter().all(fits) {
            true => Labels::Whole(lines),
            false => Labels::Numbered { columns: (key_px / Labels::key_column_px(names)).max(1) as usize },
        }
    }

    /// Gives each option its own line. A word that is too long stays whole.
    fn under(name: &str, room: usize) -> Vec<String> {
        let longest = name.split([':', ' ']).map(|word| word.chars().count()).max().unwrap_or(0);
        name.split(':').flat_map(|piece| broken(piece, room.max(longest))).collect()
    }

    /// Returns the pixels of a column of the key.
    pub fn key_column_px(names: &[String]) -> u32 {
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as u32;
        CHAR_PX * (longest + 6)
    }

    /// Returns the number of lines under the groups.
    pub fn lines(&self) -> u32 {
        match self {
            Labels::Whole(names) => names.iter().map(Vec::len).max().unwrap_or(1) as u32,
            Labels::Numbered { .. } => 1,
        }
    }

    /// Returns the pixels of the key to `names`.
    pub fn key_px(&self, names: usize) -> u32 {
        match self {
            Labels::Whole(_) => 0,
            Labels::Numbered { columns } => KEY_LINE_PX * names.div_ceil(*columns) as u32 + 12,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_name_is_broken_and_never_cut() {
        assert_eq!(broken("nitro:dedup=off:compress=off", 16), ["nitro:dedup=off:", "compress=off"]);
        assert_eq!(broken("bound (offline optimum)", 15), ["bound (offline", "optimum)"]);
        assert_eq!(broken("granularity=extent", 7), ["granula", "rity=ex", "tent"]);
        assert_eq!(broken("", 5), [""; 0]);
        for room in 0..40 {
            let name = "nitro:granularity=extent:dedup=off:weu=1048576";
            assert_eq!(broken(name, room).concat(), name, "in lines of {room}");
        }
    }

    #[test]
    fn names_that_do_not_fit_are_numbered() {
        let few = names(&["lru", "nitro:dedup=off", "Extent (ND, NC)"]);
        let Labels::Whole(lines) = Labels::of(&few, 400, 900) else { panic!("there is room") };
        assert_eq!(lines[1], ["nitro", "dedup=off"]);
        assert_eq!(lines[2], ["Extent (ND, NC)"]);
        assert_eq!(Labels::of(&few, 3 * 7 * 9, 900), Labels::Numbered { columns: 6 });
        // Five options are more than there are lines.
        assert!(matches!(Labels::of(&names(&["a:b=1:c=2:d=3:e=4"]), 900, 900), Labels::Numbered { .. }));
        let long = names(&["nitro:fp-index=10:granularity=extent"; 3]);
        assert_eq!(Labels::of(&long, 90, 10), Labels::Numbered { columns: 1 });
        assert_eq!(Labels::Numbered { columns: 2 }.key_px(5), 3 * KEY_LINE_PX + 12);
    }
}

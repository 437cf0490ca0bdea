//! The names of an experiment.
//!
//! It does not run one.

/// The names of an experiment: the head of its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    /// The name on the command line.
    pub name: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// The part of the paper.
    pub figure: &'static str,
    /// The subject, in a few words.
    pub about: &'static str,
}

//! The complaints of clap, in paragraphs, as one sentence.
//!
//! It does not check anything itself.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The sentence about a missing command, by the end of the name of the command that wants one.
///
/// The last is about the program itself: its name is empty.
pub type Missing = &'static [(&'static str, &'static str)];

/// Returns clap's paragraphs as one sentence.
pub fn sentence(error: &clap::Error, missing: Missing) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).map(|name| {
        // `--chunk <SIZE>`: the name is enough.
        name.split(' ').next().unwrap_or_default().to_owned()
    });
    match (error.kind(), argument, text(ContextKind::InvalidValue)) {
        (ErrorKind::ValueValidation, Some(name), Some(value)) => {
            let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            format!("{name} {value}: {why}")
        }
        (ErrorKind::InvalidValue, Some(name), Some(value)) => {
            let values = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(values)) if !values.is_empty() => values.join(", "),
                _ => return rendered(error),
            };
            match value.is_empty() {
                true => format!("{name} needs a value: one of {values}"),
                false => format!("{name} {value}: write one of {values}"),
            }
        }
        (ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand, ..) => {
            let of = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let found = missing.iter().find(|(command, _)| of.ends_with(command));
            found.map_or_else(|| rendered(error), |(_, sentence)| (*sentence).to_owned())
        }
        _ => rendered(error),
    }
}

/// Returns the first paragraph of clap's text on one line.
fn rendered(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let paragraph: Vec<&str> = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    paragraph.join(" ").trim_start_matches("error: ").to_owned()
}

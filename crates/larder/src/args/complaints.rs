//! The complaints of clap, in paragraphs, as one sentence.
//!
//! It does not check anything itself.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Returns clap's paragraphs as one sentence.
pub fn sentence(error: &clap::Error) -> String {
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
        (ErrorKind::MissingSubcommand, ..)
            if text(ContextKind::InvalidSubcommand).is_some_and(|command| command.ends_with("trace")) =>
        {
            "say what to do: info, convert, generate or record (`larder trace --help` explains)".to_owned()
        }
        (ErrorKind::MissingSubcommand, ..)
            if text(ContextKind::InvalidSubcommand).is_some_and(|command| command.ends_with("sim")) =>
        {
            "say what to do: run, compare, sweep, designs, profiles, ftls or origins (`larder sim --help` explains)".to_owned()
        }
        (ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand, ..) => {
            "say what to do: create, serve, status, flush, set, detach, verify, dump, trace or sim (`larder --help` explains)"
                .to_owned()
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

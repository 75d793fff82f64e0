//! Printing, for people or for programs.

use std::io::{self, Write as _};

use serde_json::Value;

use super::Output;
use crate::error::Error;

/// The reason why a command ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The command line lacks an argument, or has a wrong one.
    Usage(String),
    /// The action failed.
    Failed(Error),
    /// The reader has closed the pipe. The reader needs no word about it, and a script learns that not all was printed.
    Unread,
    /// The answer cannot be printed: a full disk, for one.
    Unprinted(io::Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        if error.kind() == io::ErrorKind::BrokenPipe { Stop::Unread } else { Stop::Unprinted(error) }
    }
}

/// Printer of answers in one format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer(Output);

impl Printer {
    pub(crate) fn new(output: Output) -> Printer {
        Printer(output)
    }

    /// Prints this text, which must be fit for a terminal, or its data as JSON. An empty text is not even a line.
    pub(crate) fn say(self, text: &str, json: impl FnOnce() -> Value) -> Result<(), Stop> {
        let mut out = io::stdout().lock();
        match self.0 {
            Output::Text if text.is_empty() => {}
            Output::Text => writeln!(out, "{text}")?,
            Output::Json | Output::Svg => writeln!(out, "{}", screen::safe::json(&json().to_string()))?,
        }
        Ok(out.flush()?)
    }

    /// Prints an error that does not end the command.
    pub(crate) fn note(self, text: &str) {
        // Where even stderr fails, there is no other place to report it.
        let _ = writeln!(io::stderr(), "chirp: {}", screen::safe::line(text));
    }
}

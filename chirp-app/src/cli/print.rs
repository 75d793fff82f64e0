//! Printing, for people or for programs.

use std::io::{self, Write as _};

use serde_json::Value;

use super::Output;
use crate::error::Error;

/// Why a command goes no further.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The command line is not enough.
    Usage(String),
    /// It could not be done.
    Failed(Error),
    /// The reader has closed the pipe. The reader needs no word about it, and a script learns that not all was printed.
    Unread,
    /// It cannot be printed: a full disk, for one.
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

/// Where to print, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer(Output);

impl Printer {
    pub(crate) fn new(output: Output) -> Printer {
        Printer(output)
    }

    /// Prints this text, which must be fit for a terminal, or what is meant by it. An empty text is not even a line.
    pub(crate) fn say(self, text: &str, json: impl FnOnce() -> Value) -> Result<(), Stop> {
        let mut out = io::stdout().lock();
        match self.0 {
            Output::Text if text.is_empty() => {}
            Output::Text => writeln!(out, "{text}")?,
            Output::Json | Output::Svg => writeln!(out, "{}", screen::safe::json(&json().to_string()))?,
        }
        Ok(out.flush()?)
    }

    /// Something that went wrong and does not end the command.
    pub(crate) fn note(self, text: &str) {
        // Where even that cannot be said there is nobody to say it to.
        let _ = writeln!(io::stderr(), "chirp: {}", screen::safe::line(text));
    }
}

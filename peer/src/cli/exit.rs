//! How a command ends. Scripts rely on the numbers.

use std::io::Write as _;
use std::process::ExitCode;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The answer is no: key absent, condition not met, not ready.
    No = 1,
    /// The command line or the settings are wrong.
    Usage = 2,
    /// No peer could be reached; nothing was done.
    Unreachable = 3,
    /// A peer refused: authorisation, limits, a value that does not fit.
    Refused = 4,
    /// It may have taken effect or not.
    Unknown = 5,
    /// Nothing was done, and trying again may help.
    TryAgain = 6,
    /// A disk is full or failing (`EX_IOERR` of sysexits.h): what a command did could not be printed; for `scatter run`, the
    /// store failed.
    Disk = 74,
    /// `scatter run`: the peer has to be started again, and then begins anew (`EX_TEMPFAIL` of sysexits.h).
    StartAgain = 75,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Says why, and ends so.
pub fn fail(exit: Exit, why: &str) -> ExitCode {
    note(&format!("scatter: {why}"));
    exit.into()
}

/// A line to stderr. Where that takes nothing there is nobody to tell, and the exit code still tells it.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The exit code of a command that was to print something: what it found out, unless that is that all is well and nobody could
/// be told.
pub fn printed(exit: Exit, written: std::io::Result<()>) -> ExitCode {
    match written {
        Err(error) if exit == Exit::Done => {
            // Whoever closes a pipe has seen enough of it.
            if error.kind() != std::io::ErrorKind::BrokenPipe {
                note(&format!("scatter: cannot print the answer: {error}"));
            }
            Exit::Disk.into()
        }
        _ => exit.into(),
    }
}

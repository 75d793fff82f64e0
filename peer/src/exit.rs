//! Exit codes of commands. Scripts rely on the numbers.

use std::io::Write as _;
use std::process::ExitCode;

/// Exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command is done.
    Done = 0,
    /// The answer is no: key absent, condition not met, not ready.
    No = 1,
    /// The command line or the settings are wrong.
    Usage = 2,
    /// No peer could be reached; nothing was done.
    Unreachable = 3,
    /// A peer refused: authorisation, limits, a value that does not fit.
    Refused = 4,
    /// The operation may have taken effect or not.
    Unknown = 5,
    /// Nothing was done, and trying again may help.
    TryAgain = 6,
    /// A disk is full or failing (`EX_IOERR` of sysexits.h): the result of a command could not be printed; for `scatter run`,
    /// the store failed.
    Disk = 74,
    /// For `scatter run`: the peer has to be started again, and then begins anew (`EX_TEMPFAIL` of sysexits.h).
    StartAgain = 75,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Prints the reason to stderr, and returns the exit code.
pub fn fail(exit: Exit, why: &str) -> ExitCode {
    note(&format!("scatter: {why}"));
    exit.into()
}

/// Prints a line to stderr. An error is ignored: the exit code still reports the result.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns the exit code of a command that prints: `exit`, unless that is `Done` and the output could not be printed.
pub fn printed(exit: Exit, written: std::io::Result<()>) -> ExitCode {
    match written {
        Err(error) if exit == Exit::Done => {
            // A reader that closes a pipe has seen enough of it.
            if error.kind() != std::io::ErrorKind::BrokenPipe {
                note(&format!("scatter: cannot print the answer: {error}"));
            }
            Exit::Disk.into()
        }
        _ => exit.into(),
    }
}

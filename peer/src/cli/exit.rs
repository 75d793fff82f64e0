//! How a command ends. Scripts rely on the numbers.

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
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Says why, and ends so.
pub fn fail(exit: Exit, why: &str) -> ExitCode {
    eprintln!("scatter: {why}");
    exit.into()
}

//! Commands of `scatter-testnet`, a file each.

pub mod experiment;
pub mod lab;
pub mod net;
pub mod soak;
pub mod study;

use std::time::Duration;

/// Receiver of a command's results, a line each.
pub type Print<'a> = &'a dyn Fn(&str);

/// Reason of a command that ends without success, for a person.
pub enum Error {
    /// The command cannot be run as it was typed: exit code 2.
    Refused(String),
    /// The command failed: exit code 1.
    Failed(String),
}

/// Reads a duration: a number, with `s`, `m` or `h` behind it, or seconds.
///
/// # Errors
/// A description for a person, if the text is no duration.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (
            number,
            match &text[number.len()..] {
                "h" => 3600.0,
                "m" => 60.0,
                _ => 1.0,
            },
        ),
        None => (text, 1.0),
    };
    let seconds =
        number.parse::<f64>().map_err(|_| "a duration is a number of seconds, or a number followed by s, m or h")?;
    match Duration::try_from_secs_f64(seconds * unit) {
        Ok(time) if time > Duration::ZERO => Ok(time),
        _ => Err("a duration must be above zero".into()),
    }
}

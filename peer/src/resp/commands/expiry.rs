//! Deadlines: `EX PX EXAT PXAT`, `EXPIRE` and its kin.

use core::time::Duration;

use group::op::{ExpireOnly, Expiry, Op};
use overlay::time::WallMillis;

use crate::resp::call::{Call, Handled};
use crate::resp::errors;
use crate::resp::join::Shape;
use crate::resp::reply::Reply;

/// Notation of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// `EX`
    Seconds,
    /// `PX`
    Millis,
    /// `EXAT`
    AtSeconds,
    /// `PXAT`
    AtMillis,
}

impl Notation {
    /// Returns the notation that a word names.
    pub fn of(word: &[u8]) -> Option<Notation> {
        [
            ("EX", Notation::Seconds),
            ("PX", Notation::Millis),
            ("EXAT", Notation::AtSeconds),
            ("PXAT", Notation::AtMillis),
        ]
        .into_iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, notation)| notation)
    }

    /// Returns a number as milliseconds, or `None` where Redis has no room for it. Redis keeps absolute milliseconds in
    /// 63 bits and refuses numbers that do not fit. This does the same, though the sum here is only for the check.
    fn millis(self, number: i64) -> Option<i64> {
        let millis = match self {
            Notation::Seconds | Notation::AtSeconds => number.checked_mul(1000)?,
            Notation::Millis | Notation::AtMillis => number,
        };
        if self.is_relative() {
            millis.checked_add(wall_millis())?;
        }
        Some(millis)
    }

    fn is_relative(self) -> bool {
        matches!(self, Notation::Seconds | Notation::Millis)
    }

    /// Returns a deadline that is set together with a value; it must be positive.
    ///
    /// # Errors
    ///
    /// An error reply where the number is not positive or too large.
    pub(crate) fn with_value(self, number: i64, command: &str) -> Result<Expiry, Reply> {
        let millis = self.millis(number).filter(|&millis| millis > 0).ok_or_else(|| errors::expire_time(command))?;
        Ok(self.deadline(millis))
    }

    fn deadline(self, millis: i64) -> Expiry {
        match u64::try_from(millis) {
            Ok(millis) if self.is_relative() && millis > 0 => Expiry::In(Duration::from_millis(millis)),
            Ok(millis) if !self.is_relative() => Expiry::At(WallMillis(millis)),
            // In the past on any clock: the key goes at once.
            _ => Expiry::At(WallMillis(0)),
        }
    }
}

/// Returns the wall-clock time, only to check whether a client's number fits at all.
fn wall_millis() -> i64 {
    i64::try_from(environment::unix_ms()).unwrap_or(i64::MAX)
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`
pub fn expire(call: &mut Call<'_>) -> Handled {
    change(call, Notation::Seconds)
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`
pub(crate) fn pexpire(call: &mut Call<'_>) -> Handled {
    change(call, Notation::Millis)
}

/// `EXPIREAT key unix-seconds [NX | XX | GT | LT]`
pub(crate) fn expireat(call: &mut Call<'_>) -> Handled {
    change(call, Notation::AtSeconds)
}

/// `PEXPIREAT key unix-milliseconds [NX | XX | GT | LT]`
pub(crate) fn pexpireat(call: &mut Call<'_>) -> Handled {
    change(call, Notation::AtMillis)
}

/// `PERSIST key`
pub(crate) fn persist(call: &mut Call<'_>) -> Handled {
    call.write(Op::Expire { expiry: Expiry::Clear, only: ExpireOnly::Always }, Shape::Count)
}

fn change(call: &mut Call<'_>, notation: Notation) -> Handled {
    let only = only(call)?;
    let number = call.integer(2)?;
    let millis = notation.millis(number).ok_or_else(|| errors::expire_time(call.name()))?;
    call.write(Op::Expire { expiry: notation.deadline(millis), only }, Shape::Count)
}

/// Parses `[NX | [XX] [GT | LT]]`, by Redis's rules of combination.
fn only(call: &Call<'_>) -> Result<ExpireOnly, Reply> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in call.arguments.from(3).iter() {
        match option.to_ascii_uppercase().as_slice() {
            b"NX" => nx = true,
            b"XX" => xx = true,
            b"GT" => gt = true,
            b"LT" => lt = true,
            _ => {
                return Err(Reply::error(format!("ERR Unsupported option {}", errors::c_string(option, usize::MAX))));
            }
        }
    }
    match (nx, xx, gt, lt) {
        (true, xx, gt, lt) if xx || gt || lt => {
            Err(Reply::error("ERR NX and XX, GT or LT options at the same time are not compatible"))
        }
        (_, _, true, true) => Err(Reply::error("ERR GT and LT options at the same time are not compatible")),
        (true, ..) => Ok(ExpireOnly::Without),
        // No deadline counts as an infinite one, so GT is never met without one and XX adds nothing to it.
        (_, _, true, _) => Ok(ExpireOnly::Later),
        (_, true, _, true) => Ok(ExpireOnly::WithEarlier),
        (_, _, _, true) => Ok(ExpireOnly::Earlier),
        (_, true, ..) => Ok(ExpireOnly::With),
        _ => Ok(ExpireOnly::Always),
    }
}

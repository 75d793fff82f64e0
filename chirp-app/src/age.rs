//! Times for people.

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;

/// Returns how long ago a moment was, in a few characters; the day, where that was more than a week ago.
pub(crate) fn age(at_ms: u64, now_ms: u64) -> String {
    if at_ms > now_ms + 1000 * MINUTE_S {
        return "to come".into(); // The author's clock is wrong, or the author wants it to look so.
    }
    match now_ms.saturating_sub(at_ms) / 1000 {
        0..5 => "now".into(),
        s @ 5..MINUTE_S => format!("{s} s"),
        s @ MINUTE_S..HOUR_S => format!("{} min", s / MINUTE_S),
        s @ HOUR_S..DAY_S => format!("{} h", s / HOUR_S),
        s if s < 7 * DAY_S => format!("{} d", s / DAY_S),
        _ => day(at_ms / 1000),
    }
}

/// Returns the day, as `2026-11-25`, in UTC.
pub(crate) fn day(unix_s: u64) -> String {
    // Years begin in March here, so that the odd day is the last; eras of 400 years are all the same.
    let days = unix_s / DAY_S + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (unix_s, wanted) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_767_225_599, "2025-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(unix_s), wanted);
        }
    }

    #[test]
    fn ages_are_short() {
        let now = 1_000_000_000_000;
        let of = |s: u64| age(now - 1000 * s, now);
        let ages = [0, 59, 60, 3599, 3600, 86_399, 86_400, 8 * 86_400].map(of);
        assert_eq!(ages, ["now", "59 s", "1 min", "59 min", "1 h", "23 h", "1 d", "2001-09-01"]);
        assert_eq!((age(now + 1000, now), age(now + 600_000, now)), ("now".into(), "to come".into()));
        assert!(age(u64::MAX, now).len() < 11 && age(0, u64::MAX / 2).len() < 11);
    }
}

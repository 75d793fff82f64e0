//! Numbers for display, in few columns.

/// Formats bytes: three digits and a unit of 1024.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "K", "M", "G", "T", "P"])
}

/// Formats a count: three digits and a unit of 1000, or all digits where there are few.
pub fn count(count: u64) -> String {
    scaled(count as f64, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// Formats a rate per second.
pub fn rate(rate: f64) -> String {
    match rate {
        rate if !rate.is_finite() => "?".into(),
        rate if rate > 0.0 && rate < 9.95 => format!("{rate:.1}"),
        rate => count(rate.round().max(0.0) as u64),
    }
}

fn scaled(value: f64, unit: f64, names: &[&str]) -> String {
    let (mut value, mut index) = (value, 0);
    while value >= unit * 0.9995 && index + 1 < names.len() {
        value /= unit;
        index += 1;
    }
    let digits = if index == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$}{}", names[index])
}

/// Formats milliseconds, with their unit.
pub fn millis(ms: f64) -> String {
    match ms {
        ms if !ms.is_finite() => "?".into(),
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}

/// Formats a time span: its two largest units at most.
pub fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{:02}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{minutes:02}m"),
        (days, hours, _) => format!("{days}d{hours:02}h"),
    }
}

/// Formats the time of the day, in UTC.
pub fn clock(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Formats a fraction, in percent.
pub fn percent(part: f64) -> String {
    // An empty sum is a negative zero.
    match part * 100.0 + 0.0 {
        percent if percent > 0.0 && percent < 9.95 => format!("{percent:.1}%"),
        percent => format!("{percent:.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_little_room() {
        for (given, shown) in
            [(0, "0B"), (999, "999B"), (1024, "1.0K"), (50_331_810, "48.0M"), (10 << 30, "10.0G"), (u64::MAX, "16384P")]
        {
            assert_eq!(bytes(given), shown);
        }
        for (given, shown) in
            [(0, "0"), (999, "999"), (1000, "1.0k"), (22_163, "22.2k"), (123_456, "123k"), (999_950, "1.0M")]
        {
            assert_eq!(count(given), shown);
        }
        for (given, shown) in [(0.0, "0"), (0.25, "0.2"), (12.4, "12"), (f64::NAN, "?"), (-1.0, "0")] {
            assert_eq!(rate(given), shown);
        }
        for (given, shown) in [(0.27, "0.3 ms"), (12.4, "12 ms"), (2500.0, "2.5 s"), (f64::INFINITY, "?")] {
            assert_eq!(millis(given), shown);
        }
        for (given, shown) in [(5, "5s"), (65, "1m05s"), (7384, "2h03m"), (200_000, "2d07h")] {
            assert_eq!(span(given), shown);
        }
        assert_eq!(
            (clock(1_795_585_144_845), percent(0.255), percent(0.031)),
            ("05:39:04".into(), "26%".into(), "3.1%".into())
        );
    }
}

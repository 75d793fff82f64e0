//! Resources that processes have used. On Linux only: elsewhere the functions return `None`.

use std::time::Duration;

/// Processor time that a process has used, in all its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time in the program itself.
    pub user: Duration,
    /// Time in the kernel, for the program.
    pub system: Duration,
}

impl CpuTime {
    /// Returns the sum of both.
    pub fn total(&self) -> Duration {
        self.user + self.system
    }

    /// Returns the time that was added since an earlier measurement.
    pub fn since(&self, earlier: &CpuTime) -> CpuTime {
        CpuTime { user: self.user.saturating_sub(earlier.user), system: self.system.saturating_sub(earlier.system) }
    }
}

/// Returns the processor time of this process, in steps of a hundredth of a second; `None` where there is no such
/// process, or its time cannot be known.
pub fn cpu_time(pid: u32) -> Option<CpuTime> {
    cpu_time_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, rustix::param::clock_ticks_per_second())
}

fn cpu_time_in(stat: &str, ticks_per_second: u64) -> Option<CpuTime> {
    // The name of the program is in parentheses and may hold any characters.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
    let mut time = || Some(Duration::from_secs_f64(fields.next()?.parse::<f64>().ok()? / ticks_per_second as f64));
    Some(CpuTime { user: time()?, system: time()? })
}

/// Returns the memory that this process holds at the moment, in bytes; `None` as for [`cpu_time`].
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages = statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_found_whatever_the_program_is_called() {
        let stat = "4711 (a) 1 b) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 1 0 1 2";
        let expected = CpuTime { user: Duration::from_millis(1500), system: Duration::from_millis(250) };
        assert_eq!(cpu_time_in(stat, 100), Some(expected));
        assert_eq!(cpu_time_in("nonsense", 100), None);
        assert_eq!(cpu_time_in("1 (x) S 1", 100), None);
    }

    #[test]
    fn this_process_is_there_and_no_other_of_that_number() {
        if cfg!(target_os = "linux") {
            assert!(cpu_time(std::process::id()).is_some());
            assert!(resident_bytes(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        }
        assert_eq!(cpu_time(u32::MAX), None);
    }
}

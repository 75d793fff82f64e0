//! The new start of this process after its incarnation as a member ended.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use overlay::Incarnation;
use store::{Aside, set_aside};

use crate::daemon::Ending;
use crate::exit::Exit;

/// Upper limit of new starts within [`SUCCESSION`]: a fault that returns at once is not repaired by another start.
const RESTARTS_MAX: usize = 5;
/// Restarts that are further apart than this are not counted: a laptop may sleep every day.
const SUCCESSION: Duration = Duration::from_secs(600);
/// Environment variable with the times of this process's latest new starts, in seconds of the machine's clock since its
/// start, separated by commas. The process replaces itself, so it passes them on in the environment.
const RESTARTS: &str = "SCATTER_RESTARTS";

/// Environment variable with the incarnations that are over, each with its lane, where the next start continues on their
/// store.
const FORMER: &str = "SCATTER_FORMER";

/// The state with which a new start begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Anew {
    /// The store as it is: in these lanes these incarnations are over, and their records are a copy to catch up from.
    On(Vec<(u8, Incarnation)>),
    /// The store as it is, as the same members.
    Again,
    /// An empty store; the old one is set aside.
    Without(Aside),
}

/// Starts this process anew, under the same id and with the same settings. Returns only where that is impossible.
pub(super) fn begin_anew(why: &str, store_dir: &Path, anew: &Anew) -> Ending {
    let now = since_boot();
    let restarts = recent(&std::env::var(RESTARTS).unwrap_or_default(), now);
    if restarts.len() >= RESTARTS_MAX {
        let (count, minutes) = (restarts.len(), SUCCESSION.as_secs() / 60);
        let text = format!(
            "{why}; this peer rejoined {count} times within {minutes} minutes, and does not rejoin again: remove the \
            cause of its long silences (the machine sleeps or is overloaded, or --exclude-after is too short), then \
            restart it"
        );
        return Ending::Failed(Exit::No, text);
    }
    match anew {
        Anew::On(_) => tracing::info!(
            "{why}, as after a long sleep or a stop beyond --away: this peer rejoins as a new member, and catches up \
            from its own data"
        ),
        Anew::Again => tracing::info!("this peer starts again"),
        Anew::Without(aside) if store_dir.exists() => match set_aside(store_dir, *aside) {
            Ok(place) => {
                tracing::warn!(
                    "{why}; the old store is kept in {}, and this peer rejoins as a new member",
                    place.display()
                );
            }
            Err(error) => {
                let text = format!("{why}; the store cannot be moved aside: {error}");
                return Ending::Failed(Exit::Disk, text);
            }
        },
        Anew::Without(_) => tracing::warn!("{why}; this peer rejoins as a new member"),
    }
    crate::log::flush();
    let error = replace(&following(&restarts, now), anew);
    Ending::Failed(Exit::StartAgain, format!("{why}; restart this peer: it cannot restart itself ({error})"))
}

/// Returns the incarnation of this lane that is over, where this process replaced another one for that reason.
pub(super) fn former(lane: u8) -> Option<Incarnation> {
    read_former(&std::env::var(FORMER).ok()?).find(|(of, _)| *of == lane).map(|(_, former)| former)
}

fn read_former(text: &str) -> impl Iterator<Item = (u8, Incarnation)> + '_ {
    text.split(',').filter_map(|one| {
        let (lane, former) = one.split_once(':')?;
        Some((lane.parse().ok()?, Incarnation(former.parse().ok()?)))
    })
}

fn write_former(former: &[(u8, Incarnation)]) -> String {
    let all: Vec<String> = former.iter().map(|(lane, former)| format!("{lane}:{}", former.0)).collect();
    all.join(",")
}

/// Replaces this process by a new run of the program. Returns only where that is impossible, with the reason.
fn replace(restarts: &str, anew: &Anew) -> std::io::Error {
    let program = match program() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    match anew {
        Anew::On(former) => command.env(FORMER, write_former(former)),
        Anew::Again | Anew::Without(_) => command.env_remove(FORMER),
    };
    command.args(arguments).env(RESTARTS, restarts).exec()
}

/// Returns the program of this process: its own file, even if another file lies at its path now. An upgrade may have
/// replaced that path, and takes effect when an administrator restarts the peer.
#[cfg(target_os = "linux")]
fn program() -> std::io::Result<PathBuf> {
    Ok("/proc/self/exe".into())
}

/// Returns the program of this process. Where its file was replaced meanwhile, the new file may be another program.
#[cfg(not(target_os = "linux"))]
fn program() -> std::io::Result<PathBuf> {
    std::env::current_exe()
}

/// Returns those of these starts that still count.
fn recent(restarts: &str, now: u64) -> Vec<u64> {
    let times = restarts.split(',').filter_map(|time| time.parse::<u64>().ok());
    times.filter(|time| *time <= now && now - time < SUCCESSION.as_secs()).collect()
}

/// Returns the same list with one more start.
fn following(restarts: &[u64], now: u64) -> String {
    let all: Vec<String> = restarts.iter().chain([&now]).map(u64::to_string).collect();
    all.join(",")
}

/// Returns the seconds since the machine's start, with the time that it slept.
fn since_boot() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    u64::try_from(rustix::time::clock_gettime(clock).tv_sec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every start within the time of the last six counts; starts of other days do not.
    #[test]
    fn only_restarts_in_quick_succession_count() {
        let mut restarts = String::new();
        for day in 1..100 {
            let now = day * 86_400;
            let counted = recent(&restarts, now);
            assert!(counted.is_empty(), "day {day}: {counted:?}");
            restarts = following(&counted, now);
        }
        let now = 100 * 86_400;
        for second in 0..RESTARTS_MAX as u64 {
            let counted = recent(&restarts, now + second);
            assert_eq!(counted.len() as u64, second);
            restarts = following(&counted, now + second);
        }
        assert_eq!(recent(&restarts, now + 60).len(), RESTARTS_MAX);
        assert!(recent(&restarts, now + 2 * SUCCESSION.as_secs()).is_empty());
    }

    #[test]
    fn lives_that_are_over_read_back_as_written() {
        let former = [(0, Incarnation(u64::MAX)), (3, Incarnation(7))];
        assert!(read_former(&write_former(&former)).eq(former));
        assert_eq!(read_former(",x:1,1,300:1,2:-1").count(), 0);
    }

    /// The environment of another program, or of an older version, which passed a count.
    #[test]
    fn odd_words_in_the_environment_count_nothing() {
        assert!(recent("", 1000).is_empty());
        assert!(recent("5", 1000).is_empty());
        assert!(recent("x,-1,99999999999999999999,,2000", 1000).is_empty());
        assert_eq!(recent("400,401,1000", 1000), [401, 1000]);
    }
}

//! A network of real daemons on loopback whose peers come and go, while clients write and read (Scatter §7.2, Fig. 13).
//!
//! Each peer lives for a time drawn from a distribution, is killed with SIGKILL and replaced at once by a new peer with a new key
//! and an empty store. Clients compare the values that they read with the writes that were acknowledged to them.

mod clients;
mod lives;
mod population;
pub(crate) mod register;
mod report;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clients::ChurnClients;
pub use lives::Lives;
use population::Population;
pub use report::ChurnReport;
pub(crate) use report::quantiles;

/// Interval at which a line of figures is printed.
const LINE_EVERY: Duration = Duration::from_secs(30);
/// Pause between two starts of the first peers.
const START_EVERY: Duration = Duration::from_millis(500);
/// Time within which a network must recover after the churn. A key that no peer answers for after this time counts as lost.
const RECOVERY: Duration = Duration::from_secs(60);
/// Pause between two looks at all keys.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct ChurnParameters {
    /// The daemon.
    pub program: PathBuf,
    /// Peers at any time, at least 1.
    pub peers: usize,
    /// Distribution of their lifetimes.
    pub lives: Lives,
    /// Duration of the churn.
    pub time: Duration,
    /// Time from the start of the last of the first peers until clients begin.
    pub warm_up: Duration,
    /// Keys. Each is written by one client.
    pub keys: usize,
    /// Operations a second, half of them writes.
    pub rate: f64,
    /// Seed of lifetimes, contacts and operations. No seed determines the exact times of events on a real machine.
    pub seed: u64,
    /// A directory for data, which is removed afterwards.
    pub work: PathBuf,
    /// Flags for the daemons.
    pub flags: Vec<String>,
}

/// Runs a churn test. `say` gets a line of text every 30 s. `stop` ends the run early; the report is of the time until then.
///
/// # Errors
/// If the daemon cannot be started, or no peer is left. All daemons are ended, and the directory is removed.
pub fn run(churn: &ChurnParameters, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> io::Result<ChurnReport> {
    std::fs::create_dir_all(&churn.work)?;
    let result = churn_in(churn, stop, say);
    let _ = std::fs::remove_dir_all(&churn.work);
    result
}

fn churn_in(churn: &ChurnParameters, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> io::Result<ChurnReport> {
    let mut population = Population::found(churn, stop)?;
    let pause = |population: &mut Population, time: Duration| population.wait(time, stop);
    for _ in 1..churn.peers {
        population.spawn()?;
        pause(&mut population, START_EVERY)?;
    }
    pause(&mut population, churn.warm_up)?;
    say(&format!("{} of {} peers serve after the warm-up", population.serving(), churn.peers));

    let clients = ChurnClients::start(churn, Arc::clone(&population.addresses));
    population.begin_to_die();
    let (begun, mut next_line) = (Instant::now(), LINE_EVERY);
    while begun.elapsed() < churn.time && !stop.load(Ordering::Relaxed) {
        pause(&mut population, Duration::from_millis(50))?;
        population.replace_the_dead()?;
        if begun.elapsed() >= next_line {
            next_line += LINE_EVERY;
            say(&format!("{:5.0} s  {}", begun.elapsed().as_secs_f64(), clients.line(&population)));
        }
    }
    let lasted = begun.elapsed();
    let (counts, registers) = clients.finish();
    say(&format!("the churn is over; a key without an answer after {} s is lost", RECOVERY.as_secs()));
    let until = Instant::now() + RECOVERY;
    let lost = loop {
        let lost = clients::lost(&registers, &population.addresses);
        if lost.is_empty() || Instant::now() >= until || stop.load(Ordering::Relaxed) {
            break lost;
        }
        pause(&mut population, LOOK_EVERY)?;
    };
    Ok(ChurnReport::new(counts, &population, lasted, lost, churn.keys))
}

//! `chirp timeline` and `chirp profile`.

use std::pin::pin;
use std::time::{Duration, Instant};

use serde_json::json;

use super::print::{Printer, Stop};
use super::show;
use crate::age::day;
use crate::chirp::Chirp;
use crate::name::UserName;
use crate::store::Store;
use crate::timeline::{Found, Line, Page, Timeline, rest, seals};

/// Time after which the chirps read so far are shown, and again after as long.
const BATCH: Duration = Duration::from_millis(700);
/// Least pause between two looks for new chirps.
const LOOK: Duration = Duration::from_secs(1);

/// `chirp profile`
pub(crate) async fn profile<S: Store>(chirp: &Chirp<S>, name: &UserName, n: usize, out: &Printer) -> Result<(), Stop> {
    let Page { profile, count, follows, lines } = Page::read(chirp, name, n).await?;
    let key = profile.key.as_ref().map(|key| key.to_text());
    let signs = if key.is_some() { ", signs" } else { "" };
    let since = day(profile.since_ms / 1000);
    let head = format!("{}, here since {since}; {count} chirps, follows {follows}{signs}", profile.name);
    out.say(&head, || {
        json!({
            "user": profile.name.as_str(), "since_unix_ms": profile.since_ms, "chirps": count,
            "follows": follows, "key": key,
        })
    })?;
    print(chirp, &lines, out).await
}

/// `chirp timeline`
pub(crate) async fn timeline<S: Store>(
    chirp: &Chirp<S>,
    user: &UserName,
    n: usize,
    watch: bool,
    out: &Printer,
) -> Result<(), Stop> {
    let mut timeline = Timeline::open(chirp, user).await?;
    let users = timeline.users().len();
    let show = async |lines| print_in_turn(chirp, lines, watch, out).await;
    let mut failed = timeline.read_all(chirp, (n, n), BATCH, show).await?;
    if let Some(first) = failed.pop() {
        out.note(&format!("{} of {users} could not be read", failed.len() + 1));
        if !watch {
            return Err(first.into());
        }
    }
    if watch { go_on(chirp, &mut timeline, n, out).await } else { Ok(()) }
}

/// Looks for new chirps until interrupted.
async fn go_on<S: Store>(chirp: &Chirp<S>, timeline: &mut Timeline, n: usize, out: &Printer) -> Result<(), Stop> {
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    tokio::select! {
        _ = &mut interrupt => Ok(()),
        stop = look_on(chirp, timeline, n, out) => stop,
    }
}

/// Looks again and again; ends only where printing fails.
async fn look_on<S: Store>(chirp: &Chirp<S>, timeline: &mut Timeline, n: usize, out: &Printer) -> Result<(), Stop> {
    let mut is_well = true;
    loop {
        let since = Instant::now();
        let problem = match timeline.poll(chirp, n).await {
            Ok(Found { lines, errors, .. }) => {
                print(chirp, &lines, out).await?;
                errors.into_iter().next()
            }
            Err(error) => Some(error),
        };
        // A problem is printed once, until all is well again.
        if let (Some(problem), true) = (&problem, is_well) {
            out.note(&format!("{problem} (continuing)"));
        }
        is_well = problem.is_none();
        tokio::time::sleep(rest(LOOK, since.elapsed(), is_well)).await;
    }
}

/// Prints lines as they come, newest first; to be watched, newest last.
async fn print_in_turn<S: Store>(
    chirp: &Chirp<S>,
    mut lines: Vec<Line>,
    watch: bool,
    out: &Printer,
) -> Result<(), Stop> {
    if watch {
        lines.reverse();
    }
    print(chirp, &lines, out).await
}

async fn print<S: Store>(chirp: &Chirp<S>, lines: &[Line], out: &Printer) -> Result<(), Stop> {
    let now = environment::unix_ms();
    for (line, seal) in lines.iter().zip(seals(chirp, lines).await) {
        out.say(&show::text(line, seal, now), || show::json(line, seal))?;
    }
    Ok(())
}

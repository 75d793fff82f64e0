//! `chirp timeline` and `chirp profile`.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::json;

use super::print::{Printer, Stop};
use super::show;
use crate::age::day;
use crate::chirp::{Chirp, now_ms};
use crate::error::Error;
use crate::name::UserName;
use crate::store::Store;
use crate::timeline::{Line, Merge, Timeline, seals};

/// What is known by then is shown, and again after as long.
const BATCH: Duration = Duration::from_millis(700);
/// Between two looks for what is new; and at least four times as long as a look takes, so that whoever follows thousands
/// does not keep a peer busy with it.
const LOOK: Duration = Duration::from_secs(1);

/// `chirp profile`
pub(crate) async fn profile<S: Store>(chirp: &Chirp<S>, name: &UserName, n: usize, out: &Printer) -> Result<(), Stop> {
    let profile = chirp.profile(name).await?;
    let (updates, following) = tokio::join!(chirp.updates(name, n), chirp.following(name));
    let (mut updates, follows) = (updates?, following?.users().len());
    let key = profile.key.as_ref().map(|key| key.to_text());
    let signs = if key.is_some() { ", signs" } else { "" };
    let head = format!(
        "{}, here since {}; {} chirps, follows {follows}{signs}",
        profile.name,
        day(profile.since_ms / 1000),
        updates.count
    );
    let records = updates.records.split_off(updates.records.len().saturating_sub(n));
    let lines: Vec<Line> =
        records.into_iter().rev().map(|record| Line { user: profile.name.clone(), record }).collect();
    out.say(&head, || {
        json!({
            "user": profile.name.as_str(), "since_unix_ms": profile.since_ms, "chirps": updates.count,
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
    let (users, mut failed) = (timeline.users().len(), Vec::new());
    let mut merge = Merge::new(n);
    let mut batch = tokio::time::interval_at(tokio::time::Instant::now() + BATCH, BATCH);
    {
        let mut unread = pin!(timeline.unread(chirp, n));
        loop {
            tokio::select! {
                next = unread.next() => match next {
                    None => break,
                    Some((user, Ok(updates))) => {
                        merge.add(&user, updates.records);
                        timeline.read(user, updates.place);
                    }
                    Some((_, Err(error))) => failed.push(error),
                },
                _ = batch.tick() => print_in_turn(chirp, merge.news(), watch, out).await?,
            }
        }
    }
    print_in_turn(chirp, merge.news(), watch, out).await?;
    if let Some(first) = failed.pop() {
        out.note(&format!("{} of {users} could not be read", failed.len() + 1));
        if !watch {
            return Err(first.into());
        }
    }
    if watch { go_on(chirp, &mut timeline, n, out).await } else { Ok(()) }
}

/// Looks for what is new until interrupted.
async fn go_on<S: Store>(chirp: &Chirp<S>, timeline: &mut Timeline, n: usize, out: &Printer) -> Result<(), Stop> {
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    let mut said = None;
    loop {
        let since = Instant::now();
        let look = async {
            let (lines, errors) = timeline.poll(chirp, n).await?;
            Ok::<_, Error>((lines, errors.into_iter().next()))
        };
        let looked = tokio::select! {
            _ = &mut interrupt => return Ok(()),
            looked = look => looked,
        };
        let problem = match looked {
            Ok((lines, problem)) => {
                print(chirp, &lines, out).await?;
                problem
            }
            Err(error) => Some(error),
        };
        // The same is said once, until all is well again.
        let problem = problem.map(|error| error.to_string());
        if problem != said
            && let Some(problem) = &problem
        {
            out.note(&format!("{problem} (going on)"));
        }
        said = problem;
        tokio::select! {
            _ = &mut interrupt => return Ok(()),
            () = tokio::time::sleep(LOOK.max(since.elapsed() * 4)) => {}
        }
    }
}

/// As they come, newest first; to be watched, newest last.
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
    let now = now_ms();
    for (line, seal) in lines.iter().zip(seals(chirp, lines).await) {
        // Who wrote it cannot be told for the moment: it is shown as it is.
        let seal = seal.ok();
        out.say(&show::text(line, seal, now), || show::json(line, seal))?;
    }
    Ok(())
}

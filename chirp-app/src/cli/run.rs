//! Execution of each command.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;

use screen::colour::Palette;
use serde_json::json;

use super::print::{Printer, Stop};
use super::{Command, Output, Settings, UNPRINTED, show, timeline};
use crate::chirp::Chirp;
use crate::error::Error;
use crate::name::UserName;
use crate::remote::Remote;
use crate::signature::UserKey;
use crate::timeline::Line;
use crate::ui::{self, Start, Written};

/// Upper limit of a password file, in bytes; a longer file is another one.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// Runs one command to its end.
pub(crate) fn run(settings: &Settings, command: Command) -> ExitCode {
    let command = match command {
        Command::Ui { once, size } => return ui(settings, once, size),
        Command::Completions { shell } => {
            let mut out = io::stdout().lock();
            return match out.write_all(&super::completions(shell)).and_then(|()| out.flush()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => end(settings, &error.into()),
            };
        }
        _ if settings.output == Output::Svg => return fail(settings, 2, "only `chirp ui --once` can print a picture"),
        command => command,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(settings, 2, &format!("cannot start: {error}")),
    };
    match runtime.block_on(carry_out(settings, command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => end(settings, &stop),
    }
}

/// Prints the reason of an early end, and returns the exit code.
fn end(settings: &Settings, stop: &Stop) -> ExitCode {
    match stop {
        Stop::Unread => ExitCode::from(UNPRINTED),
        Stop::Usage(why) => fail(settings, 2, why),
        Stop::Failed(error) => fail(settings, error.exit(), &error.to_string()),
        Stop::Unprinted(error) => fail(settings, UNPRINTED, &format!("cannot print: {error}")),
    }
}

/// Prints why help could not be printed, unless the reader has closed the pipe.
pub(crate) fn unprinted(error: &io::Error) -> ExitCode {
    if error.kind() != io::ErrorKind::BrokenPipe {
        let _ = writeln!(io::stderr(), "chirp: cannot print: {error}");
    }
    ExitCode::from(UNPRINTED)
}

fn fail(settings: &Settings, exit: u8, why: &str) -> ExitCode {
    let why = screen::safe::line(why);
    // Where that cannot be printed, the exit code still tells it.
    let _ = writeln!(io::stderr(), "chirp: {why}");
    if settings.output == Output::Json {
        let _ = writeln!(io::stdout(), "{}", json!({ "error": why, "exit": exit }));
    }
    ExitCode::from(exit)
}

/// Carries out a command; checks its arguments before it asks any peer.
async fn carry_out(settings: &Settings, command: Command) -> Result<(), Stop> {
    let out = Printer::new(settings.output);
    match command {
        Command::Signup { name } => {
            let name: UserName = name.parse().map_err(Error::from)?;
            let key = sign_up(settings, &name).await?;
            let signs = if key.is_some() { ", and signs" } else { "" };
            out.say(
                &format!("{name} has signed up{signs}"),
                || json!({ "user": name.as_str(), "signs": key.is_some() }),
            )
        }
        Command::Post { text } => {
            let (user, text) = (me(settings)?, text.parse().map_err(Error::from)?);
            let key = key(settings)?;
            let record = connect(settings).await?.post(&user, &text, key.as_ref()).await?;
            let line = Line::new(user, record, environment::unix_ms());
            out.say(&format!("posted as {}", line.user), || show::json(&line, None))
        }
        Command::Follow { name } => {
            let (user, other) = (me(settings)?, name.parse().map_err(Error::from)?);
            let is_new = connect(settings).await?.follow(&user, &other).await?;
            let already = if is_new { "from now on" } else { "already" };
            out.say(
                &format!("{user} follows {other} {already}"),
                || json!({ "user": user.as_str(), "follows": other.as_str(), "new": is_new }),
            )
        }
        Command::Unfollow { name } => {
            let (user, other) = (me(settings)?, name.parse().map_err(Error::from)?);
            connect(settings).await?.unfollow(&user, &other).await?;
            out.say(
                &format!("{user} does not follow {other} any more"),
                || json!({ "user": user.as_str(), "unfollowed": other.as_str() }),
            )
        }
        Command::Following => {
            let user = me(settings)?;
            let following = connect(settings).await?.following(&user).await?;
            let names: Vec<&str> = following.users().map(UserName::as_str).collect();
            out.say(&names.join("\n"), || json!({ "user": user.as_str(), "following": names }))
        }
        Command::Profile { name, n } => {
            let name: UserName = name.parse().map_err(Error::from)?;
            timeline::profile(&connect(settings).await?, &name, n as usize, &out).await
        }
        Command::Timeline { n, watch } => {
            let user = me(settings)?;
            timeline::timeline(&connect(settings).await?, &user, n as usize, watch, &out).await
        }
        Command::Ui { .. } | Command::Completions { .. } => {
            Err(Stop::Usage("this command needs no connection to a peer".into()))
        }
    }
}

/// Signs a user up, and returns the key, where the settings name one.
async fn sign_up(settings: &Settings, name: &UserName) -> Result<Option<UserKey>, Stop> {
    let made = settings.key.as_deref().map(UserKey::open_or_make).transpose().map_err(Error::from)?;
    let (key, is_new) = made.map_or((None, false), |(key, is_new)| (Some(key), is_new));
    let signed_up = async { Ok(connect(settings).await?.sign_up(name, key.as_ref()).await?) }.await;
    match (signed_up, &settings.key) {
        (Ok(()), _) => Ok(key),
        (Err(stop), Some(path)) if is_new && !matches!(stop, Stop::Failed(Error::Unknown(_))) => {
            // No user has this key. Where the file cannot be removed it does no harm.
            let _ = std::fs::remove_file(path);
            Err(stop)
        }
        (Err(stop), _) => Err(stop),
    }
}

/// Returns the name of the user at the keyboard.
fn me(settings: &Settings) -> Result<UserName, Stop> {
    let name = settings.user.clone();
    name.ok_or_else(|| Stop::Usage("set your user name: --user NAME, or CHIRP_USER in the environment".into()))
}

fn key(settings: &Settings) -> Result<Option<UserKey>, Error> {
    Ok(settings.key.as_deref().map(UserKey::open).transpose()?)
}

fn password(settings: &Settings) -> Result<Option<String>, Stop> {
    let Some(path) = &settings.password_file else { return Ok(None) };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(PASSWORD_BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| Stop::Usage(format!("cannot read the password {}: {error}", path.display())))?;
    match text.len() as u64 > PASSWORD_BYTES_MAX {
        true => Err(Stop::Usage(format!("{} is longer than any password", path.display()))),
        false => Ok(Some(text.trim().to_owned())),
    }
}

/// Connects to the first of the addresses that answers.
async fn connect(settings: &Settings) -> Result<Chirp<Remote>, Stop> {
    let remote = Remote::connect(&settings.addr, password(settings)?.as_deref()).await?;
    Ok(Chirp::new(remote, settings.append.into()))
}

/// `chirp ui`
fn ui(settings: &Settings, once: bool, size: Option<(u16, u16)>) -> ExitCode {
    let start = || -> Result<Start, Stop> {
        Ok(Start {
            addresses: settings.addr.clone(),
            password: password(settings)?,
            mode: settings.append.into(),
            user: settings.user.clone(),
            key: key(settings)?.map(Into::into),
        })
    };
    let start = match start() {
        Ok(start) => start,
        Err(stop) => return end(settings, &stop),
    };
    if !once {
        return match ui::run(start) {
            Ok(exit) => ExitCode::from(exit),
            Err(error) => fail(settings, 2, &format!("{error}; `chirp timeline` needs no terminal")),
        };
    }
    let written = match settings.output {
        Output::Svg => Written::Svg,
        Output::Json => {
            return fail(
                settings,
                2,
                "a picture cannot be printed as JSON: `chirp timeline --output json` prints the data",
            );
        }
        Output::Text if io::stdout().is_terminal() && Palette::of_environment() == Palette::Sixteen => Written::Ansi,
        Output::Text => Written::Text,
    };
    let (columns, rows) = size.or_else(screen::terminal::size).unwrap_or(screen::terminal::USUAL);
    match ui::once(start, columns, rows, written) {
        Ok(picture) => {
            let mut out = io::stdout().lock();
            match out.write_all(picture.as_bytes()).and_then(|()| out.flush()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => end(settings, &error.into()),
            }
        }
        Err(error) => fail(settings, error.exit(), &error.to_string()),
    }
}

//! `chirp ui`: Chirp on a terminal.
//!
//! Three parts that know as little of each other as can be. The data (`model`) comes from a thread of its own
//! (`worker`). The state of the person's input (`state`, of which `edit`, `drafts` and `choice` are parts) is a value
//! that keys change. A function of these two alone (`draw`) draws both.

mod choice;
mod drafts;
mod draw;
mod edit;
mod model;
mod state;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use screen::colour::Palette;
use screen::picture;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::terminal::{EnterError, Happening, Screen};

use model::Model;
use state::{Act, State};
pub use worker::Start;
use worker::{Ask, News};

/// Pause between two pictures without an event: ages go on.
const TICK: Duration = Duration::from_millis(250);
/// Upper limit of keys and other events that are taken before the next picture. It takes all that a person types
/// meanwhile, and no more, so that a terminal that never falls silent is drawn on as well.
const AT_ONCE_MAX: usize = 256;
/// Upper limit of the wait of `--once` for a timeline.
const ONCE_MAX: Duration = Duration::from_secs(20);

/// The format of one picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Plain text.
    Text,
    /// Text with colours.
    Ansi,
    /// SVG.
    Svg,
}

/// Shows Chirp until the person leaves, and returns the exit code.
///
/// # Errors
/// Where there is no terminal, or it fails.
pub fn run(start: Start) -> Result<u8, EnterError> {
    let mut screen = Screen::enter()?;
    let (asks, news) = begin(start.clone());
    let palette = Palette::of_environment();
    let (mut model, mut state) = (Model::default(), State::new(start.user.is_none()));
    loop {
        while let Ok(news) = news.try_recv() {
            learn(&mut model, &mut state, news);
        }
        screen.draw(|frame| {
            let area = frame.area();
            state.settle(&model, area);
            draw::draw(&model, &state, environment::unix_ms(), palette, area, frame.buffer_mut());
        })?;
        // The silence of a worker shows that it has gone.
        let ask = |ask| drop(asks.send(ask));
        if let Some(code) = act(&mut model, &mut state, |wait| screen.next(wait), ask)? {
            return Ok(code);
        }
    }
}

/// Takes a piece of news into state and model, where it is of use.
fn learn(model: &mut Model, state: &mut State, news: News) {
    state.note(&news);
    if state.wants(&news) {
        model.take(news);
    }
}

/// Takes the next event and all that have happened by then, so that not every key of many costs a picture. Returns the
/// exit code, where an event was the end.
fn act(
    model: &mut Model,
    state: &mut State,
    mut next: impl FnMut(Duration) -> io::Result<Happening>,
    mut ask: impl FnMut(Ask),
) -> io::Result<Option<u8>> {
    let mut wait = TICK;
    for _ in 0..AT_ONCE_MAX {
        match next(wait)? {
            Happening::Key(key) => match state.key(key, model) {
                Act::None => {}
                Act::Quit => return Ok(Some(0)),
                Act::Ask(asked) => {
                    model.asked(&asked);
                    ask(asked);
                }
            },
            Happening::Paste(text) => state.paste(&text),
            Happening::Resized | Happening::Tick => break,
            Happening::End(end) => return Ok(Some(end.exit_code())),
        }
        wait = Duration::ZERO;
    }
    Ok(None)
}

/// Returns one picture, once its data is read.
///
/// # Errors
/// The first error of the worker, where nothing can be shown; [`crate::Error::TryAgain`] after 20 s.
pub fn once(start: Start, columns: u16, rows: u16, written: Written) -> Result<String, crate::Error> {
    let palette = match written {
        Written::Text => Palette::Plain,
        Written::Ansi | Written::Svg => Palette::Sixteen,
    };
    let is_nobody = start.user.is_none();
    let (mut model, mut state) = (Model::default(), State::new(is_nobody));
    let (_asks, news) = begin(start);
    let until = std::time::Instant::now() + ONCE_MAX;
    while !(model.has_read || is_nobody && model.peer.is_some()) {
        match news.recv_timeout(until.saturating_duration_since(std::time::Instant::now())) {
            Ok(News::Trouble(error) | News::Failed(_, error)) => return Err(error),
            Ok(news) => model.take(news),
            Err(_) => return Err(crate::Error::TryAgain("not everything was read in time".into())),
        }
    }
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    state.settle(&model, area);
    draw::draw(&model, &state, environment::unix_ms(), palette, area, &mut buffer);
    Ok(match written {
        Written::Text => picture::text(&buffer),
        Written::Ansi => picture::ansi(&buffer),
        Written::Svg => picture::svg(&buffer, "chirp"),
    })
}

fn begin(start: Start) -> (Sender<Ask>, Receiver<News>) {
    #[expect(
        clippy::disallowed_methods,
        reason = "neither keys nor the worker wait: a person asks little, and one picture takes all news"
    )]
    let ((asks, asked), (tell, told)) = (channel(), channel());
    std::thread::spawn(move || worker::work(start, asked, tell));
    (asks, told)
}

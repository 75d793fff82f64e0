//! `scatter top`: the dashboard.
//!
//! Its data ([`model`]) comes from the HTTP endpoints of one peer, in the background (`feed`), so that a slow or dead endpoint
//! never delays a key. The picture ([`view`]) is a pure function of that data and of the user's choices ([`state`], changed by
//! `keys`). Another program may show the dashboard with keys and a pane of its own: [`run`].

mod feed;
mod gather;
mod keys;
pub mod model;
mod rows;
pub mod state;
pub mod units;
pub mod view;

use std::time::{Duration, Instant};

use screen::colour::Palette;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::terminal::{End, EnterError, Happening, Screen};

pub use feed::Endpoints;
use feed::Feed;
pub use gather::{Trouble, gather, gather_ring};
use keys::{Does, Rows, press};
use model::Model;
use state::State;
use view::{Scene, Scroll};

/// Interval between two pictures, where nothing else is a reason to draw.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// Time for which the result of a caller's key is shown.
const WORD: Duration = Duration::from_secs(5);

/// Key of a program that shows the dashboard.
pub struct Extra<'a> {
    /// The key: a capital letter, or a digit from 5 on. Small letters and `1` to `4` are the dashboard's own, and take
    /// precedence.
    pub key: char,
    /// Name of the action in one to three words, for foot and help.
    pub what: String,
    /// Performs the action, given the data, and returns its result in a line. Nothing is drawn meanwhile: a long action is
    /// only begun, and reported by a later [`Pane`].
    pub does: Box<dyn FnMut(&Model) -> String + 'a>,
}

/// Part of the overview that belongs to the program that shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pane {
    /// Title above the pane.
    pub title: String,
    /// Lines of the pane, newest last; long ones are broken. They need not be escaped.
    pub lines: Vec<String>,
}

/// Settings of the dashboard.
pub struct Options<'a> {
    /// HTTP endpoints of peers, as HOST:PORT, which are asked for before each round. The dashboard shows the first endpoint
    /// that answers, until it stops answering.
    pub endpoints: Endpoints,
    /// Data that is known already.
    pub model: Model,
    /// Keys of the caller.
    pub extras: Vec<Extra<'a>>,
    /// Pane of the caller, asked for before each picture.
    pub pane: Option<Box<dyn FnMut() -> Pane + 'a>>,
}

/// End of the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The user quit.
    Quit,
    /// The process has to end.
    By(End),
}

/// Shows the dashboard in the terminal until the user or a signal ends it. The terminal is as before when it returns, also by
/// a panic.
///
/// SIGINT, SIGTERM and SIGHUP end it; a caller that goes on for long after that handles them before: see [`Screen::enter`].
///
/// # Errors
///
/// [`EnterError`] where the terminal or the background thread cannot be set up, or the terminal fails.
pub fn run(options: Options<'_>) -> Result<Ended, EnterError> {
    let Options { endpoints, mut model, mut extras, mut pane } = options;
    let palette = Palette::of_environment();
    let feed = Feed::start(endpoints, model.clone())?;
    let mut screen = Screen::enter()?;
    let (mut state, mut version) = (State::default(), 0);
    let shown: Vec<(char, String)> = extras.iter().map(|extra| (extra.key, extra.what.clone())).collect();
    let keys: Vec<char> = extras.iter().map(|extra| extra.key).collect();
    let mut word: Option<(String, Instant)> = None;
    let mut drawn = None;
    loop {
        if !state.frozen {
            version = feed.refresh(&mut model, version);
            state.settle(view::lanes(&model));
        }
        feed.look_at_lane(state.lane);
        word = word.filter(|(_, since)| since.elapsed() < WORD);
        // Asked for also while the picture is frozen: the lines that wait there must not pile up.
        let now = pane.as_mut().map(|pane| pane());
        if !state.frozen {
            drawn = now;
        }
        let (mut height, mut scroll) = (0, Scroll::default());
        screen.draw(|frame| {
            let scene = Scene {
                model: &model,
                state: &state,
                extras: &shown,
                pane: drawn.as_ref(),
                word: word.as_ref().map(|(word, _)| word.as_str()),
            };
            height = frame.area().height;
            scroll = view::draw(scene, palette, frame.buffer_mut());
        })?;
        // There may be fewer lines now, or more room.
        state.scroll = state.scroll.min(scroll.most);
        let key = match screen.next(DRAW_EVERY)? {
            Happening::Key(key) => key,
            Happening::End(end) => return Ok(Ended::By(end)),
            // The dashboard has no text input.
            Happening::Paste(_) | Happening::Resized | Happening::Tick => continue,
        };
        let shown_rows = rows::rows(&model, state.tab, state.chosen());
        let marked = rows::marked(&shown_rows, state.chosen());
        let ids: Vec<String> = shown_rows.into_iter().map(|row| row.id).collect();
        let rows = Rows { ids: &ids, marked, page: view::page(height), lanes: view::lanes(&model), scroll };
        match press(&mut state, key, rows, &keys) {
            Does::Nothing => {}
            Does::Quit => return Ok(Ended::Quit),
            Does::Extra(number) => {
                if let Some(extra) = extras.get_mut(number) {
                    word = Some(((extra.does)(&model), Instant::now()));
                }
            }
        }
    }
}

/// Returns one picture of this size, as it is shown at first.
pub fn picture(model: &Model, palette: Palette, (columns, rows): (u16, u16)) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    let scene = Scene { model, state: &State::default(), extras: &[], pane: None, word: None };
    view::draw(scene, palette, &mut buffer);
    buffer
}

/// Asks these endpoints in order, until one answers, for all data but the ring.
///
/// # Errors
///
/// The most telling trouble, with its endpoint: among several, an answer from a program that is no peer takes precedence.
pub fn look(endpoints: &[String]) -> Result<Model, (String, Trouble)> {
    let mut worst = None;
    for endpoint in endpoints {
        match gather(endpoint, &Model::default()) {
            Ok(model) => return Ok(Model { age_s: Some(0), ..model }),
            Err(trouble) => match (&worst, &trouble) {
                (None, _) | (Some((_, Trouble::Unreachable(_))), Trouble::Refused(_)) => {
                    worst = Some((endpoint.clone(), trouble));
                }
                _ => {}
            },
        }
    }
    Err(worst.unwrap_or_else(|| ("nowhere".into(), Trouble::Unreachable("no endpoint is named".into()))))
}

/// Does the same, and adds the ring as its owners report it now, where they do.
///
/// # Errors
///
/// As for [`look`].
pub fn look_around(endpoints: &[String]) -> Result<Model, (String, Trouble)> {
    let mut model = look(endpoints)?;
    // The picture is of use without the ring.
    model.ring = gather_ring(&model.endpoint, 0).ok();
    model.ring_age_s = model.ring.as_ref().map(|_| 0);
    Ok(model)
}

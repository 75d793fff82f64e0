//! `scatter top`: the dashboard.
//!
//! What it knows ([`model`]) comes from the HTTP endpoints of one peer, in the background (`feed`), so that nothing that is
//! slow or dead ever holds up a key. What is drawn ([`view`]) is a pure function of that and of what the person has chosen
//! ([`state`], changed by `keys`). Another program may show it with keys and a pane of its own: [`run`].

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

/// Between two pictures, where nothing else is a reason to draw.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// How long it is shown what a key of the caller led to.
const WORD: Duration = Duration::from_secs(5);

/// A key of a program that shows the dashboard.
pub struct Extra<'a> {
    /// A capital letter, or a digit from 5 on: small letters and `1` to `4` are the dashboard's own, and go first.
    pub key: char,
    /// What it does, in a word or three, for foot and help.
    pub what: String,
    /// Does it, given what is known, and says what came of it, in a line. Nothing is drawn meanwhile: what takes long is
    /// begun, and reported by a later [`Pane`].
    pub does: Box<dyn FnMut(&Model) -> String + 'a>,
}

/// A part of the overview that belongs to the program that shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pane {
    /// What stands above it.
    pub title: String,
    /// Newest last; long ones are broken. They need not be safe.
    pub lines: Vec<String>,
}

/// How the dashboard is shown.
pub struct Options<'a> {
    /// Where peers may be, as HOST:PORT of their HTTP endpoints: asked before each round. The first that answers is shown,
    /// and stays so until it falls silent.
    pub endpoints: Endpoints,
    /// What is known already.
    pub model: Model,
    /// The caller's keys.
    pub extras: Vec<Extra<'a>>,
    /// The caller's pane, asked for before each picture.
    pub pane: Option<Box<dyn FnMut() -> Pane + 'a>>,
}

/// How the dashboard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The person wanted it so.
    Quit,
    /// The process has to end.
    By(End),
}

/// Shows the dashboard in the terminal until somebody ends it. The terminal is as before when it returns, also by a panic.
///
/// SIGINT, SIGTERM and SIGHUP end it; whoever goes on for long after that sees to them before: see [`Screen::enter`].
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
        // Asked for also where the picture stands still: what it waits to tell must not pile up.
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
            // There is nothing to write here.
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

/// One picture of this size, as it is shown at first.
pub fn picture(model: &Model, palette: Palette, (columns, rows): (u16, u16)) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    let scene = Scene { model, state: &State::default(), extras: &[], pane: None, word: None };
    view::draw(scene, palette, &mut buffer);
    buffer
}

/// Asks these endpoints, in this order, until one answers, for everything but the ring: what there is to know, or why there is
/// none. Of several reasons that somebody answers who is no peer is the one that counts.
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

/// The same, and the ring as its owners say now, where they do.
pub fn look_around(endpoints: &[String]) -> Result<Model, (String, Trouble)> {
    let mut model = look(endpoints)?;
    // The picture has its use without it.
    model.ring = gather_ring(&model.endpoint, 0).ok();
    model.ring_age_s = model.ring.as_ref().map(|_| 0);
    Ok(model)
}

//! First rows and last row of the screen: shown peer, screens, keys; and the screen without any answer.

use peer::names::label;
use screen::ratatui::layout::Rect;
use screen::ratatui::style::Style;
use screen::safe;

use super::Scene;
use super::brush::{Brush, Scroll};
use crate::top::model::Model;
use crate::top::state::Tab;
use crate::top::units;

/// Age in seconds from which answers are marked as old.
const STALE_S: u64 = 4;

/// Draws the shown peer and its state.
pub fn head(scene: Scene<'_>, brush: &mut Brush<'_>, area: Rect) {
    let (model, palette) = (scene.model, brush.palette);
    let mut words = vec![(" scatter top ".to_owned(), palette.chosen())];
    let mut say = |text: String, style: Style| words.extend([(" ".to_owned(), palette.text()), (text, style)]);
    if let Some(status) = &model.status {
        say(label(status.name.as_ref(), &status.peer_id), palette.strong());
        match (&status.leaving, model.ready) {
            (Some(leaving), _) => say(format!("leaving: {}", safe::cut(&leaving.step, 24)), palette.warning()),
            (None, Some(true)) => say("serves".into(), palette.good()),
            (None, Some(false)) => say("DOES NOT SERVE".into(), palette.bad()),
            (None, None) => {}
        }
        say(format!("up {}", units::span(status.uptime_s)), palette.text());
        say(model.endpoint.clone(), palette.faint());
        say(format!("in {}", safe::cut(&status.network, 20)), palette.faint());
        // Not in brackets, because an id behind a name stands in brackets.
        let cluster = model.member(&status.peer_id).map_or("", |(_, member)| &member.cluster);
        if !cluster.is_empty() {
            say(format!("cluster {}", safe::cut(cluster, 12)), palette.faint());
        }
        say(format!("v{}", safe::cut(&status.version, 12)), palette.faint());
    }
    let fresh = freshness(scene, brush);
    let taken = fresh.as_ref().map_or(0, |(text, _)| text.len() as u16 + 1);
    brush.words(Rect { width: area.width.saturating_sub(taken), ..area }, &words);
    if let Some((text, style)) = fresh {
        brush.text_right(area, &text, style);
    }
}

/// Returns a mark where the picture is not up to date.
fn freshness(scene: Scene<'_>, brush: &Brush<'_>) -> Option<(String, Style)> {
    if scene.state.frozen {
        return Some((" FROZEN ".into(), brush.palette.chosen()));
    }
    let age = scene.model.age_s.filter(|age| *age >= STALE_S)?;
    let style = if age >= 3 * STALE_S { brush.palette.bad() } else { brush.palette.warning() };
    Some((format!(" {} OLD ", units::span(age)), style))
}

/// Draws the list of screens.
pub fn tabs(scene: Scene<'_>, brush: &mut Brush<'_>, area: Rect) {
    let palette = brush.palette;
    let mut words = Vec::new();
    for (number, tab) in Tab::ALL.into_iter().enumerate() {
        let style = if tab == scene.state.tab { palette.chosen() } else { palette.text() };
        words.push((format!(" {} {} ", number + 1, tab.title()), style));
        words.push((" ".into(), palette.text()));
    }
    let used = brush.words(area, &words);
    let rest = Rect { x: area.x + used, width: area.width - used, ..area };
    if scene.state.tab == Tab::Overview {
        return;
    }
    let choice = scene.state.chosen();
    let mut right = Vec::new();
    if let Some(column) = crate::top::rows::columns(scene.state.tab).get(choice.sort) {
        let title = if column.title.is_empty() { "text" } else { column.title };
        right.push(format!("by {title} {}", if choice.reverse { "▼" } else { "▲" }));
    }
    if !choice.filter.is_empty() {
        right.push(format!("only \"{}\"", safe::cut(&choice.filter, 20)));
    }
    brush.text_right(rest, &right.join("  "), palette.faint());
}

/// Draws the keys, or the last message.
pub fn foot(scene: Scene<'_>, scroll: Scroll, brush: &mut Brush<'_>, area: Rect) {
    let palette = brush.palette;
    if scene.state.help {
        return keys(&help_keys(scroll), brush, area);
    }
    if scene.state.filtering {
        let filter = &scene.state.chosen().filter;
        let keys = "   Enter keep  Esc drop";
        brush.words(
            area,
            &[
                ("only rows with: ".into(), palette.key()),
                (format!("{filter}_"), palette.strong()),
                (keys.into(), palette.faint()),
            ],
        );
        return;
    }
    let trouble = scene.model.troubles.iter().next().filter(|_| scene.model.status.is_some());
    let said = scene.word.map(|word| (word.to_owned(), palette.strong()));
    let said = said.or_else(|| scene.model.notice.clone().map(|notice| (notice, palette.warning())));
    let said = said.or_else(|| trouble.map(|(who, why)| (format!("{who}: {why}; asking again"), palette.bad())));
    if let Some(said) = said {
        brush.words(area, &[said]);
        return;
    }
    keys(&usual_keys(scene, scroll), brush, area);
}

/// Key and its action.
type Key<'a> = (String, &'a str);

/// Returns the keys of the help.
fn help_keys(scroll: Scroll) -> Vec<Key<'static>> {
    match scroll.most {
        0 => vec![("q".into(), "end"), ("any other key".into(), "goes back")],
        _ => vec![("q".into(), "end"), ("↑↓ PgUp PgDn".into(), "scroll"), ("any other key".into(), "goes back")],
    }
}

/// Returns the keys of the shown screen.
fn usual_keys<'a>(scene: Scene<'a>, scroll: Scroll) -> Vec<Key<'a>> {
    let mut keys: Vec<Key<'_>> = vec![("q".into(), "end"), ("?".into(), "help")];
    if scroll.most > 0 {
        keys.push((super::table::SCROLLS.into(), "scroll"));
    }
    keys.extend(scene.extras.iter().map(|(key, what)| (key.to_string(), what.as_str())));
    keys.extend([
        ("↑↓".into(), "move"),
        ("Tab".into(), "next"),
        ("f".into(), if scene.state.frozen { "go on" } else { "freeze" }),
    ]);
    if scene.state.tab != Tab::Overview {
        keys.extend([("s".into(), "sort"), ("r".into(), "reverse"), ("/".into(), "filter")]);
    } else {
        keys.push(("Enter".into(), "the group"));
    }
    if lanes(scene.model) > 1 {
        keys.push(("n".into(), "lane"));
    }
    keys
}

/// Draws keys and their actions in a row.
fn keys(keys: &[Key<'_>], brush: &mut Brush<'_>, area: Rect) {
    let palette = brush.palette;
    let mut words = Vec::new();
    for (key, what) in keys {
        words.extend([(key.clone(), palette.key()), (format!(" {what}  "), palette.text())]);
    }
    brush.words(area, &words);
}

/// Returns the number of the peer's lanes, as far as its groups show.
pub fn lanes(model: &Model) -> u8 {
    model.own_groups().iter().filter_map(|group| group.lane).max().map_or(1, |lane| lane.saturating_add(1))
}

/// Draws the screen for the time before the first answer.
pub fn nobody(model: &Model, brush: &mut Brush<'_>, area: Rect) {
    let palette = brush.palette;
    let mut lines = vec![vec![("No peer has answered yet.".to_owned(), palette.strong())], Vec::new()];
    for (endpoint, why) in &model.troubles {
        lines.push(vec![(format!("{endpoint}: "), palette.text()), (why.clone(), palette.bad())]);
    }
    if model.troubles.is_empty() {
        lines.push(vec![("Asking.".into(), palette.faint())]);
    }
    lines.push(Vec::new());
    let hint = "It goes on asking. Another peer: scatter top --http HOST:PORT";
    lines.push(vec![(hint.into(), palette.faint())]);
    let inside = brush.frame(area, "nobody there", "");
    let margin = Rect {
        x: inside.x + 2,
        width: inside.width.saturating_sub(2),
        y: inside.y + 1,
        height: inside.height.saturating_sub(1),
    };
    brush.lines(margin, &lines);
}

//! Lines about groups, members, transactions, events and the caller's pane, for any screen with room.

use peer::names::{Names, label};
use peer::status::{GroupStatus, MemberStatus, Told, short_group};
use screen::colour::Palette;
use screen::ratatui::layout::Rect;
use screen::ratatui::style::Style;
use screen::safe;

use super::brush::{Brush, Words};
use crate::top::Pane;
use crate::top::model::{Arc, Model};
use crate::top::rows::{event_tone, group_state};
use crate::top::units;

/// Width of an event's kind in columns: the longest is `repartitioned`, with a blank behind it.
const EVENT_KIND_COLUMNS: usize = 14;

/// Returns a member's sign and its style.
pub fn sign(member: &MemberStatus, palette: Palette) -> (&'static str, Style) {
    match member.role.as_str() {
        "leader" => ("◆", palette.good()),
        "member" => ("●", palette.good()),
        "learner" => ("○", palette.warning()),
        "suspect" => ("?", palette.bad()),
        _ => ("·", palette.faint()),
    }
}

/// Draws the last events, the newest at the top; as many as fit.
pub fn events(model: &Model, brush: &mut Brush<'_>, area: Rect) {
    let inside = brush.frame(area, "events", "in UTC");
    let Some(events) = &model.events else {
        brush.text(inside.x, inside.y, inside.width, "this peer does not tell", brush.palette.faint());
        return;
    };
    let lines: Vec<Words> = events.iter().rev().take(inside.height.into()).map(|told| event(brush, told)).collect();
    if lines.is_empty() {
        brush.text(inside.x, inside.y, inside.width, "nothing yet", brush.palette.faint());
    }
    brush.lines(inside, &lines);
}

fn event(brush: &Brush<'_>, told: &Told) -> Words {
    let palette = brush.palette;
    let often = if told.count > 1 { format!(" ({}x)", told.count) } else { String::new() };
    vec![
        (format!("{} ", units::clock(told.unix_ms)), palette.faint()),
        (safe::left(&told.kind.replace('_', " "), EVENT_KIND_COLUMNS), brush.style(event_tone(&told.kind))),
        (told.text.clone(), palette.text()),
        (often, palette.warning()),
    ]
}

/// Draws the caller's pane: its last lines.
pub fn pane(pane: &Pane, brush: &mut Brush<'_>, area: Rect) {
    let inside = brush.frame(area, &pane.title, "");
    let mut lines: Vec<String> = Vec::new();
    for line in pane.lines.iter().rev() {
        let wrapped = safe::wrap(line, inside.width.into());
        lines.splice(0..0, wrapped);
        if lines.len() >= usize::from(inside.height) {
            break;
        }
    }
    let superfluous = lines.len().saturating_sub(inside.height.into());
    let text = brush.palette.text();
    let lines: Vec<Words> = lines.into_iter().skip(superfluous).map(|line| vec![(line, text)]).collect();
    brush.lines(inside, &lines);
}

/// Returns a group's identity and state in a few lines of `width` columns.
pub fn summary(model: &Model, arcs: &[Arc], group: &GroupStatus, brush: &Brush<'_>, width: u16) -> Vec<Words> {
    let palette = brush.palette;
    let (text, faint, strong) = (palette.text(), palette.faint(), palette.strong());
    let number = arcs.iter().position(|arc| arc.id == group.id);
    let letter = number.map_or("-".into(), crate::top::model::letters);
    let state = group_state(group);
    let share = group.range.share();
    let here = group.primaries.iter().filter(|primary| primary.peer_id == model.me()).count();
    let parts = group.primaries.len();
    // Only the leader knows the load of all members.
    let (load, here_only) = match group.load_ops_per_s {
        Some(load) => (load, ""),
        None => (group.ops_per_s, " here"),
    };
    let names = Names::of_groups([group]);
    let leader = group.leader.as_deref().map_or("NOT KNOWN".into(), |leader| names.label(leader));
    let whole = group.complete as usize >= parts;
    let leader = vec![("leader ".into(), faint), (leader, if group.leader.is_some() { text } else { palette.bad() })];
    let primaries = vec![("primaries ".into(), faint), (format!("{here}/{parts} mine"), text)];
    let mut lines = vec![
        vec![
            (format!("{letter}* "), number.map_or(strong, |number| palette.kind(number).patch(strong))),
            (short_group(&group.id).to_owned(), strong),
            (format!(" {} e{}  ", units::percent(share), group.epoch), text),
            (state.text.clone(), brush.style(state.tone)),
        ],
        vec![
            ("load ".into(), faint),
            (format!("{}/s{here_only}", units::rate(load)), text),
            ("  keys ".into(), faint),
            (format!("{} {}", units::count(group.keys), units::bytes(group.bytes)), text),
        ],
        vec![
            ("complete ".into(), faint),
            (format!("{}/{parts} parts", group.complete), if whole { palette.good() } else { palette.warning() }),
            (copying(group), palette.warning()),
        ],
    ];
    lines.splice(1..1, beside(leader, primaries, faint, width));
    lines
}

/// Puts both in one line where there is room, or else below each other.
fn beside(mut first: Words, second: Words, gap: Style, width: u16) -> Vec<Words> {
    let columns: usize = first.iter().chain(&second).map(|(text, _)| safe::width(text)).sum();
    if columns + 2 > width.into() {
        return vec![first, second];
    }
    first.push(("  ".into(), gap));
    first.extend(second);
    vec![first]
}

fn copying(group: &GroupStatus) -> String {
    match group.transfers.first() {
        None => String::new(),
        Some(transfer) => format!("  copies: {}%", transfer.done_percent),
    }
}

/// Returns the members as signs and names, in as many lines as they need.
pub fn members(group: &GroupStatus, me: &str, brush: &Brush<'_>, width: u16) -> Vec<Words> {
    let mut lines: Vec<Words> = Vec::new();
    let mut room = 0;
    for member in &group.members {
        let (sign, style) = sign(member, brush.palette);
        let mark = if member.peer_id == me { "*" } else { "" };
        let name = format!("{}{mark} ", safe::line(&label(member.name.as_ref(), &member.peer_id)));
        let wide = safe::width(&name) + 1;
        if room < wide {
            lines.push(Vec::new());
            room = usize::from(width);
        }
        room = room.saturating_sub(wide);
        if let Some(line) = lines.last_mut() {
            line.extend([(sign.to_owned(), style), (name, brush.palette.text())]);
        }
    }
    lines
}

/// Returns open transactions and their locks: in one line each, or in two where there is little room.
pub fn transactions(group: &GroupStatus, brush: &Brush<'_>, width: u16) -> Vec<Words> {
    let palette = brush.palette;
    let mut lines: Vec<Words> = Vec::new();
    for open in &group.transactions {
        let decided = open.step == "is committed";
        let short = |ids: &[String]| ids.iter().map(|id| short_group(id)).collect::<Vec<_>>().join(" ");
        let locks = if open.locks.is_empty() { String::new() } else { format!("  locks {}", short(&open.locks)) };
        let with =
            if open.participants.is_empty() { String::new() } else { format!(" with {}", short(&open.participants)) };
        let mut line: Words = vec![
            (format!("{} ", open.operation), if decided { palette.text() } else { palette.warning() }),
            (open.step.clone(), palette.text()),
        ];
        if width < 70 {
            lines.push(std::mem::take(&mut line));
        }
        line.extend([
            (locks, palette.text()),
            (format!("  by {}{with}", short_group(&open.coordinator)), palette.faint()),
        ]);
        lines.push(line);
    }
    lines
}

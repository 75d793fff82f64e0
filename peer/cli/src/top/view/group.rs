//! Groups screen: a table, and the details of the marked group.

use peer::names::{Names, label};
use peer::status::{GroupStatus, MemberStatus, part_of_ring, short_group};
use screen::ratatui::layout::Rect;
use screen::safe;

use super::brush::{Brush, Scroll, Words, above, beside};
use super::{Scene, lists, ring, table};
use crate::top::model::{Model, place};
use crate::top::rows::{columns, marked, rows};
use crate::top::state::Tab;
use crate::top::units;

/// Width in columns from which the marked group stands beside the table.
const WIDE: u16 = 150;

/// Hint at the key that shows details that do not fit.
const MORE: &str = ": Enter";

/// Draws the screen between head and foot. Returns the scroll range of the marked group's details.
pub fn draw(scene: Scene<'_>, brush: &mut Brush<'_>, area: Rect) -> Scroll {
    let choice = scene.state.of(Tab::Groups);
    let shown = rows(scene.model, Tab::Groups, choice);
    let (list, about) = match area.width >= WIDE {
        true => beside(area, area.width / 2),
        // As many rows as there are groups, and half of the room at most; less where the details are being read.
        false => {
            let most = area.height / if scene.state.about { 4 } else { 2 };
            above(area, u16::try_from(shown.len() + 3).unwrap_or(u16::MAX).clamp(4, most.max(4)))
        }
    };
    let title = format!("groups: {}", shown.len());
    let inside = brush.frame(list, &title, &ring::doubt(scene.model));
    table::draw(brush, inside, columns(Tab::Groups), &shown, choice);
    let Some(marked) = shown.get(marked(&shown, choice)) else { return Scroll::default() };
    let known = scene.model.group(&marked.id);
    let part = known.map_or("of others", |group| if about.width >= 80 { &group.part } else { "" });
    let inside = brush.frame(about, &format!("group {}", safe::cut(&marked.id, 32)), part);
    let lines = match known {
        Some(group) => about_known(scene.model, group, brush, inside.width),
        None => about_other(scene.model, &marked.id, brush),
    };
    if scene.state.about {
        return brush.scrolled(inside, &lines, scene.state.scroll, table::SCROLLS);
    }
    brush.lines_or_more(inside, lines, MORE);
    Scroll::default()
}

/// Returns this peer's knowledge of a group that it has a part in, in lines of `width` columns.
fn about_known(model: &Model, group: &GroupStatus, brush: &Brush<'_>, width: u16) -> Vec<Words> {
    let palette = brush.palette;
    let mut lines = lists::summary(model, &model.arcs(), group, brush, width);
    lines.extend(lists::transactions(group, brush, width));
    lines.extend(members(model, group, brush));
    let known = |id: &Option<String>| id.as_deref().map_or("?".to_owned(), |id| short_group(id).to_owned());
    let fresh = match group.links_fresh {
        Some(true) => ", which know it as it is",
        Some(false) => ", not both of which know it as it is yet",
        None => "",
    };
    let neighbours =
        format!("between group {} and group {}{fresh}", known(&group.predecessor), known(&group.successor));
    lines.push(vec![(neighbours, palette.text())]);
    let names = Names::of_groups([group]);
    for transfer in &group.transfers {
        let text = format!(
            "copies {} from {}: {} records, {}, {}%, {} pieces to go",
            transfer.what,
            names.label(&transfer.from),
            units::count(transfer.records),
            units::bytes(transfer.bytes),
            transfer.done_percent,
            transfer.pieces,
        );
        lines.push(vec![(text, palette.warning())]);
    }
    if group.waiting_to_join > 0 {
        lines.push(vec![(format!("{} wait to be let in", group.waiting_to_join), palette.text())]);
    }
    for loss in &group.losses {
        let share = loss.range.share();
        let text = format!(
            "{} of the ring was declared lost, from {} on",
            units::percent(share),
            short_group(&loss.range.start)
        );
        lines.push(vec![(text, palette.bad())]);
    }
    if let Some(why) = &group.halted {
        lines.push(vec![(format!("this peer serves the group no more: {why}"), palette.bad())]);
    }
    let dropped = group.dropped.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
    if dropped > 0 {
        lines.push(vec![(
            format!("{} messages dropped as nonsense, or for want of room", units::count(dropped)),
            palette.warning(),
        )]);
    }
    lines
}

/// Widths of the columns of members: sign and name, role, cluster, parts, round trip, time.
const MEMBER: [usize; 6] = [10, 8, 14, 16, 8, 9];

/// Returns the widths where names need more room than short ids.
fn member_columns(group: &GroupStatus) -> [usize; 6] {
    let label = |member: &MemberStatus| safe::width(&label(member.name.as_ref(), &member.peer_id));
    let [first, others @ ..] = MEMBER;
    let [role, cluster, parts, trip, since] = others;
    // The sign with a blank, the mark of this peer and a blank.
    let name = group.members.iter().map(label).max().unwrap_or(0) + 4;
    [name.max(first), role, cluster, parts, trip, since]
}

/// Returns all members with a line each, and titles above.
pub fn members(model: &Model, group: &GroupStatus, brush: &Brush<'_>) -> Vec<Words> {
    let columns = member_columns(group);
    let mut lines = vec![member_titles(&columns, brush)];
    lines.extend(group.members.iter().map(|member| member_line(model, group, member, &columns, brush)));
    lines
}

/// Returns the columns of the screen that such a line takes.
pub fn members_width(group: &GroupStatus) -> u16 {
    member_columns(group).iter().sum::<usize>() as u16
}

fn member_titles(columns: &[usize; 6], brush: &Brush<'_>) -> Words {
    let faint = brush.palette.faint();
    let titles = ["member", "role", "cluster", "primary of", "trip", "since"];
    titles.iter().zip(columns).map(|(title, width)| (safe::left(title, *width), faint)).collect()
}

fn member_line(
    model: &Model,
    group: &GroupStatus,
    member: &MemberStatus,
    columns: &[usize; 6],
    brush: &Brush<'_>,
) -> Words {
    let palette = brush.palette;
    let (sign, style) = lists::sign(member, palette);
    let mark = if member.peer_id == model.me() { "*" } else { "" };
    let mine = group.primaries.iter().filter(|primary| primary.peer_id == member.peer_id);
    let (parts, share) =
        mine.fold((0, 0.0), |(parts, share), primary| (parts + 1, share + primary.arc().map_or(0.0, part_of_ring)));
    let whole = group.range.share().max(f64::MIN_POSITIVE);
    let primary = match parts {
        0 => "nothing".to_owned(),
        parts => format!("{parts}, {} of it", units::percent(share / whole)),
    };
    let role = if member.role == "suspect" { "SILENT" } else { &member.role };
    let trip = model.traffic(&member.peer_id).and_then(|peer| peer.rtt_ms).map(units::millis);
    let texts = [role, &member.cluster, &primary, trip.as_deref().unwrap_or("-"), &units::span(member.lifetime_s)];
    let name = format!("{}{mark}", label(member.name.as_ref(), &member.peer_id));
    let mut words = vec![(format!("{sign} "), style), (safe::left(&name, columns[0] - 2), palette.text())];
    for (column, (text, width)) in texts.into_iter().zip(&columns[1..]).enumerate() {
        let style = if column == 0 { style } else { palette.text() };
        words.push((safe::left(&safe::cut(text, width - 1), *width), style));
    }
    words
}

/// Returns the owners' report about a group that this peer has no part in.
fn about_other(model: &Model, id: &str, brush: &Brush<'_>) -> Vec<Words> {
    let palette = brush.palette;
    let Some(ring) = &model.ring else { return Vec::new() };
    if let Some(silent) = ring.silent.iter().find(|silent| silent.group.as_deref() == Some(id)) {
        let since = since(silent.since_ms);
        let words =
            format!("no member answers{since}, and no operation on this range; members when it was last heard of:");
        let mut lines: Vec<Words> = vec![
            vec![(format!("range {} to {}", silent.range.start, silent.range.end), palette.faint())],
            vec![(words, palette.bad())],
        ];
        let others = Others::new(model, &silent.members, Names::of_silent(silent));
        lines.extend(silent.members.iter().map(|member| others.line(member, true, "", brush)));
        return lines;
    }
    let Some(located) = ring.groups.iter().find(|located| located.group == id) else { return Vec::new() };
    let (start, share) = place(&located.range);
    let mut lines: Vec<Words> = vec![
        vec![(
            format!(
                "{} of the ring, from {} on; epoch {}",
                units::percent(share),
                units::percent(start),
                located.epoch
            ),
            palette.text(),
        )],
        vec![(format!("range {} to {}", located.range.start, located.range.end), palette.faint())],
    ];
    if let Some(quorum) = located.quorum.as_ref().filter(|quorum| !quorum.held) {
        let since = since(located.unserved_since_ms);
        let words =
            format!("NO MAJORITY{since}: {}, {} needed; no operation is answered", quorum.words(), quorum.needed);
        lines.push(vec![(words, palette.bad())]);
    }
    lines.push(vec![("members, as they say:".into(), palette.faint())]);
    let others = Others::new(model, &located.members, Names::of_located(located));
    for member in &located.members {
        let primary = if *member == located.primary { "  primary where it begins" } else { "" };
        lines.push(others.line(member, located.unheard.contains(member), primary, brush));
    }
    lines
}

/// Formats the time since which a range has not been served; empty where that was found just now.
fn since(unix_ms: Option<u64>) -> String {
    unix_ms.map_or(String::new(), |unix_ms| format!(" since {} UTC", units::clock(unix_ms)))
}

/// Members of a group that this peer has no part in.
struct Others<'a> {
    model: &'a Model,
    names: Names<'a>,
    /// Columns for the longest name, and a blank.
    width: usize,
}

impl<'a> Others<'a> {
    fn new(model: &'a Model, members: &[String], names: Names<'a>) -> Others<'a> {
        let widest = members.iter().map(|member| safe::width(&names.label(member))).max().unwrap_or(0);
        Others { model, names, width: (widest + 1).max(8) }
    }

    /// Formats one member: whether its own group hears it, and the round trip from here.
    fn line(&self, member: &str, unheard: bool, about: &str, brush: &Brush<'_>) -> Words {
        let palette = brush.palette;
        let trip = self.model.traffic(member).and_then(|peer| peer.rtt_ms).map(units::millis).unwrap_or_default();
        let (sign, style, trip) =
            if unheard { ("? ", palette.bad(), "SILENT".to_owned()) } else { ("● ", palette.text(), trip) };
        vec![
            (sign.into(), style),
            (safe::left(&self.names.label(member), self.width), palette.text()),
            (safe::left(&trip, 9), style),
            (about.into(), palette.faint()),
        ]
    }
}

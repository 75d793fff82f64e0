//! Rows of events.

use peer::status::Told;

use super::{Cell, Column, Row, Tone};
use crate::top::model::Model;
use crate::top::units;

const fn column(title: &'static str, width: u16, right: bool, rank: u8) -> Column {
    Column { title, width, most: width, right, rank }
}

pub const COLUMNS: [Column; 4] =
    [column("time", 8, false, 0), column("what", 13, false, 0), column("often", 5, true, 1), column("", 44, false, 0)];

/// Returns the events, oldest first.
pub fn rows(model: &Model) -> Vec<Row> {
    model.events.iter().flatten().map(row).collect()
}

fn row(told: &Told) -> Row {
    let often = match told.count {
        0 | 1 => Cell::default(),
        count => Cell::number(format!("{count}x"), count as f64).tone(Tone::Warning),
    };
    Row {
        id: told.id.to_string(),
        // The text contains the names that a user searches for.
        names: Vec::new(),
        mine: false,
        cells: vec![
            // Sorted by their order in the log: a clock may be set.
            Cell::number(units::clock(told.unix_ms), told.seq as f64).tone(Tone::Faint),
            Cell::text(told.kind.replace('_', " ")).tone(tone(&told.kind)),
            often,
            Cell::text(told.text.clone()),
        ],
    }
}

/// Returns the tone of a kind of event.
pub fn tone(kind: &str) -> Tone {
    match kind {
        "joined" | "heard_again" | "quorum_back" | "ready" => Tone::Good,
        "suspected" | "leaving" | "left" | "learning" => Tone::Warning,
        "excluded" | "repaired" | "quorum_lost" | "not_ready" => Tone::Bad,
        "split" | "merged" | "repartitioned" | "migrated" | "moved" | "led" => Tone::Strong,
        _ => Tone::Text,
    }
}

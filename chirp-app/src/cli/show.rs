//! One chirp as a line.

use serde_json::{Value, json};

use crate::age::age;
use crate::signature::Seal;
use crate::timeline::Line;

/// Returns a chirp for a person: its age, author and text, and whether it is signed. No character in it controls a
/// terminal.
pub(crate) fn text(line: &Line, seal: Option<Seal>, now_ms: u64) -> String {
    let text = screen::safe::line(&line.record.text);
    let words = seal.map_or("not checked", Seal::words);
    let seal = if words.is_empty() { String::new() } else { format!("  [{words}]") };
    format!("{:>10}  {:12}  {text}{seal}", age(line.record.at_ms, now_ms), line.user)
}

/// Returns a chirp for a program.
pub(crate) fn json(line: &Line, seal: Option<Seal>) -> Value {
    let seal = seal.map(|seal| match seal {
        Seal::Unsigned => "unsigned",
        Seal::Missing => "missing",
        Seal::Valid => "valid",
        Seal::Broken => "broken",
    });
    json!({
        "user": line.user.as_str(), "text": line.record.text, "at_unix_ms": line.record.at_ms, "id": line.record.id,
        "signature": seal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn nothing_does_anything_to_a_terminal() {
        let text = "\u{1b}[2Jgone\u{7}\u{202e}x\r\n".to_owned();
        let record = Record { id: "1".into(), at_ms: 0, text, signature: None };
        let line = Line::new("ann".parse().unwrap(), record, 0);
        let shown = super::text(&line, Some(Seal::Broken), 0);
        assert!(!shown.chars().any(|c| c.is_control() || c == '\u{202e}'), "{shown:?}");
        assert!(shown.contains("ann") && shown.contains("gone") && shown.ends_with("[bad signature]"));
        assert!(super::text(&line, None, 0).ends_with("[not checked]"));
    }
}

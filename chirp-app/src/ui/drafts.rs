//! Chirps that are not posted yet: none is lost, and none is glued to another.

use super::edit::LineEditor;
use crate::text::Text;

/// Up to three chirps: one that is being written, one that is on its way, and one that came back while another was
/// begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drafts {
    /// The chirp that is being written; it stays when the person turns away from it.
    pub(crate) line: LineEditor,
    sent: Option<Text>,
    /// A chirp that comes into the line when the next one is begun and the line is empty. There is at most one: at most
    /// one chirp is on its way, and to begin another beside it takes this one first.
    returned: Option<Text>,
}

impl Drafts {
    /// Begins to write, or goes on.
    pub(crate) fn begin(&mut self) {
        if self.is_line_empty()
            && let Some(text) = self.returned.take()
        {
            self.line = LineEditor::of(text.as_str());
        }
    }

    /// Takes the chirp out of the line, on its way.
    ///
    /// # Errors
    /// The reason why it cannot be sent; it stays in the line then.
    pub(crate) fn send(&mut self) -> Result<Text, String> {
        if self.sent.is_some() {
            return Err("the last one is still on its way".to_owned());
        }
        let text: Text = self.line.text().parse().map_err(|error: crate::text::TextError| error.to_string())?;
        self.sent = Some(text.clone());
        self.line.clear();
        Ok(text)
    }

    /// Notes that the chirp on its way is posted.
    pub(crate) fn posted(&mut self) {
        self.sent = None;
    }

    /// Notes that the chirp on its way is not posted, or may not be: the person can edit it. A chirp that was begun
    /// meanwhile comes first.
    pub(crate) fn failed(&mut self, text: &Text) {
        self.sent = None;
        if self.is_line_empty() {
            self.line = LineEditor::of(text.as_str());
        } else {
            self.returned = Some(text.clone());
        }
    }

    /// Returns whether a chirp is on its way.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent.is_some()
    }

    /// Returns whether a chirp waits for the person, beside the one in the line.
    pub(crate) fn has_returned(&self) -> bool {
        self.returned.is_some()
    }

    /// Returns whether the end of the program would lose a chirp.
    pub(crate) fn is_unposted(&self) -> bool {
        self.sent.is_some() || self.returned.is_some() || !self.is_line_empty()
    }

    fn is_line_empty(&self) -> bool {
        self.line.text().trim().is_empty()
    }
}

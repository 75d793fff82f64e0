//! Chirps that are not posted yet: none is lost, and none is glued to another.

use super::edit::Line;
use crate::text::Text;

/// One that is being written, one that is on its way, and one that came back while another was begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drafts {
    /// What is being written; it stays when the person turns to something else.
    pub(crate) line: Line,
    sent: Option<Text>,
    /// Comes into the line when the next is begun and the line is empty. One at most: one at most is on its way, and to
    /// begin another beside it takes this one first.
    returned: Option<Text>,
}

impl Drafts {
    /// The person begins to write, or goes on.
    pub(crate) fn begin(&mut self) {
        if self.is_line_empty()
            && let Some(text) = self.returned.take()
        {
            self.line = Line::of(text.as_str());
        }
    }

    /// Takes what is written out of the line, on its way.
    ///
    /// # Errors
    /// Why it cannot be sent; then it stays where it is.
    pub(crate) fn send(&mut self) -> Result<Text, String> {
        if self.sent.is_some() {
            return Err("the last one is still on its way".to_owned());
        }
        let text: Text = self.line.text().parse().map_err(|error: crate::text::TextError| error.to_string())?;
        self.sent = Some(text.clone());
        self.line.clear();
        Ok(text)
    }

    /// What was on its way is posted.
    pub(crate) fn posted(&mut self) {
        self.sent = None;
    }

    /// It is not, or that is not known: it can be written on. What has been begun meanwhile comes first.
    pub(crate) fn failed(&mut self, text: &Text) {
        self.sent = None;
        if self.is_line_empty() {
            self.line = Line::of(text.as_str());
        } else {
            self.returned = Some(text.clone());
        }
    }

    /// One is on its way.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent.is_some()
    }

    /// One waits for the person, beside the one in the line.
    pub(crate) fn has_returned(&self) -> bool {
        self.returned.is_some()
    }

    /// Something would be lost if the program ended.
    pub(crate) fn is_unposted(&self) -> bool {
        self.sent.is_some() || self.returned.is_some() || !self.is_line_empty()
    }

    fn is_line_empty(&self) -> bool {
        self.line.text().trim().is_empty()
    }
}

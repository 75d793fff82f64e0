//! What is chosen in a list, and which part of it is seen.

use super::model::Model;
use crate::name::UserName;
use crate::timeline::Line;

/// What was chosen: it stays chosen when others come or go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Anchor {
    Chirp(Line),
    User(UserName),
}

/// A row of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// The row that is chosen.
    pub(crate) at: usize,
    /// The first that is seen.
    pub(crate) first: usize,
    /// `None`: a row by its number.
    anchor: Option<Anchor>,
}

impl Choice {
    /// Chooses a chirp of the timeline. At the top it stays at the top, whatever comes.
    pub(crate) fn chirp(&mut self, model: &Model, at: usize) {
        self.at = at.min(model.lines.len().saturating_sub(1));
        let line = model.lines.get(self.at).filter(|_| self.at > 0);
        self.anchor = line.map(|shown| Anchor::Chirp(shown.line.clone()));
    }

    /// Chooses somebody whom the user follows.
    pub(crate) fn user(&mut self, model: &Model, at: usize) {
        self.at = at.min(model.following.len().saturating_sub(1));
        self.anchor = model.following.get(self.at).cloned().map(Anchor::User);
    }

    /// Chooses a row by its number.
    pub(crate) fn row(&mut self, count: usize, at: usize) {
        (self.at, self.anchor) = (at.min(count.saturating_sub(1)), None);
    }

    /// Finds what was chosen where it is by now; where it is gone, what has taken its place is chosen from now on.
    pub(crate) fn find(&mut self, model: &Model) {
        match self.anchor.take() {
            Some(Anchor::Chirp(line)) => match model.place(&line) {
                Ok(at) => (self.at, self.anchor) = (at, Some(Anchor::Chirp(line))),
                Err(at) => self.chirp(model, at),
            },
            Some(Anchor::User(user)) => {
                let at = model.following.iter().position(|known| *known == user);
                self.user(model, at.unwrap_or(self.at));
            }
            None => {}
        }
    }

    /// Moves what is seen such that what is chosen is seen, in so many rows of which each row of the list takes some. Looks
    /// at no more rows than are seen.
    pub(crate) fn scroll(&mut self, rows: usize, height: impl Fn(usize) -> usize) {
        let mut lowest = self.at;
        let mut used = height(self.at);
        while lowest > 0 {
            used += height(lowest - 1);
            if used > rows {
                break;
            }
            lowest -= 1;
        }
        self.first = self.first.clamp(lowest, self.at);
    }
}

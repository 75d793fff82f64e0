//! The chosen row of a list, and the visible part of the list.

use super::model::Model;
use crate::name::UserName;
use crate::timeline::Line;

/// The chosen entry: it stays chosen when other entries come or go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Anchor {
    Chirp(Line),
    User(UserName),
}

/// A chosen row of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// Index of the chosen row.
    pub(crate) at: usize,
    /// Index of the first visible row.
    pub(crate) first: usize,
    /// The chosen entry; `None`: a row by its number.
    anchor: Option<Anchor>,
}

impl Choice {
    /// Chooses a chirp of the timeline. At the top the choice stays at the top when chirps come.
    pub(crate) fn chirp(&mut self, model: &Model, at: usize) {
        self.at = at.min(model.lines.len().saturating_sub(1));
        let line = model.lines.get(self.at).filter(|_| self.at > 0);
        self.anchor = line.map(|shown| Anchor::Chirp(shown.line.clone()));
    }

    /// Chooses a user that the user follows.
    pub(crate) fn user(&mut self, model: &Model, at: usize) {
        self.at = at.min(model.following.len().saturating_sub(1));
        self.anchor = model.following.get(self.at).cloned().map(Anchor::User);
    }

    /// Chooses a row by its number.
    pub(crate) fn row(&mut self, count: usize, at: usize) {
        (self.at, self.anchor) = (at.min(count.saturating_sub(1)), None);
    }

    /// Finds the chosen entry at its present row. Where it is gone, the entry in its place is chosen from now on.
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

    /// Moves the visible part such that the chosen row is visible, in so many rows of the screen, of which each row of
    /// the list takes some. Looks at no more rows than are visible.
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

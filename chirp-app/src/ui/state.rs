//! What the person at the keyboard is about: a value that keys change, and nothing else.

use screen::ratatui::layout::Rect;
use screen::terminal::{KeyCode, KeyEvent, KeyModifiers};

use super::draw;
use super::edit::Line;
use super::model::Model;
use super::worker::{Ask, News};
use crate::error::Error;
use crate::name::UserName;
use crate::text::Text;

/// What is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// What those have posted whom the user follows.
    #[default]
    Timeline,
    /// Whom the user follows.
    Following,
    /// Somebody's page.
    Page,
}

/// What is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// A chirp.
    Chirp,
    /// The name of somebody to follow.
    Follow,
    /// The name of somebody to look at.
    Visit,
    /// The user's own name, at the beginning.
    Name,
    /// The same, and nobody has it: once more takes it.
    SignUp,
}

/// What a key comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    None,
    Quit,
    Ask(Ask),
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) view: View,
    pub(crate) writing: Option<Writing>,
    /// A chirp that is not posted yet stays until it is.
    pub(crate) chirp: Line,
    pub(crate) name: Line,
    /// One is on its way.
    posting: bool,
    /// What is wrong with what was written.
    pub(crate) problem: Option<String>,
    pub(crate) help: bool,
    /// The chosen row of each view, and the first that is seen.
    pub(crate) chosen: [usize; 3],
    pub(crate) first: [usize; 3],
    /// The chosen chirp of the timeline, so that it stays chosen when others come.
    anchor: Option<String>,
    /// Rows that fit, about.
    page: usize,
}

impl State {
    /// At the beginning; `nameless`: who it is has to be asked.
    pub(crate) fn new(nameless: bool) -> State {
        State { writing: nameless.then_some(Writing::Name), page: 1, ..State::default() }
    }

    /// What has come to be known changes what is asked of the person.
    pub(crate) fn note(&mut self, news: &News) {
        match news {
            News::Failed(Ask::Be(name), Error::NoUser(_)) => {
                (self.writing, self.problem) = (Some(Writing::SignUp), None);
                self.name = Line::of(name.as_str());
            }
            News::Failed(Ask::Be(name), error) => {
                (self.writing, self.problem) = (Some(Writing::Name), Some(error.to_string()));
                self.name = Line::of(name.as_str());
            }
            News::Failed(Ask::SignUp(_), error) => {
                (self.writing, self.problem) = (Some(Writing::Name), Some(error.to_string()));
            }
            News::Is(_) => {
                (self.writing, self.problem) = (None, None);
                self.name.clear();
            }
            News::Done(Ask::Post(text), _) => {
                self.posting = false;
                // What has been written meanwhile is another chirp.
                if self.chirp.text().trim() == text.as_str() {
                    self.chirp.clear();
                }
            }
            News::Failed(Ask::Post(_), _) => self.posting = false,
            _ => {}
        }
    }

    /// How many rows there are to choose among.
    fn count(&self, model: &Model) -> usize {
        match self.view {
            View::Timeline => model.lines.len(),
            View::Following => model.following.len(),
            View::Page => model.page.as_ref().map_or(0, |page| page.lines.len()),
        }
    }

    /// Puts what is chosen and what is seen where that can be, in a picture of this size.
    pub(crate) fn settle(&mut self, model: &Model, area: Rect) {
        let (view, count) = (self.view as usize, self.count(model));
        if self.view == View::Timeline
            && let Some(anchor) = &self.anchor
            && let Some(at) = model.lines.iter().position(|shown| shown.line.record.id == *anchor)
        {
            self.chosen[view] = at;
        }
        self.chosen[view] = self.chosen[view].min(count.saturating_sub(1));
        let (heights, rows) = draw::heights(model, self, area);
        let chosen = self.chosen[view];
        self.first[view] = self.first[view].min(chosen);
        let taken = |first: usize| heights[first..=chosen].iter().sum::<usize>();
        while self.first[view] < chosen && chosen < heights.len() && taken(self.first[view]) > rows {
            self.first[view] += 1;
        }
        self.page = rows / 4;
    }

    fn choose(&mut self, model: &Model, at: usize) {
        let at = at.min(self.count(model).saturating_sub(1));
        self.chosen[self.view as usize] = at;
        if self.view == View::Timeline {
            // At the top it stays at the top.
            self.anchor = model.lines.get(at).filter(|_| at > 0).map(|shown| shown.line.record.id.clone());
        }
    }

    /// Who is chosen: the author of a chirp, or somebody whom the user follows.
    pub(crate) fn chosen_user(&self, model: &Model) -> Option<UserName> {
        let at = self.chosen[self.view as usize];
        match self.view {
            View::Timeline => model.lines.get(at).map(|shown| shown.line.user.clone()),
            View::Following => model.following.get(at).cloned(),
            View::Page => model.page.as_ref().map(|page| page.profile.name.clone()),
        }
    }

    /// What a key comes to.
    pub(crate) fn key(&mut self, key: KeyEvent, model: &Model) -> Act {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return Act::Quit;
        }
        if self.help {
            self.help = false;
            return Act::None;
        }
        if let Some(writing) = self.writing {
            return self.write(writing, key);
        }
        let chosen = self.chosen[self.view as usize];
        match key.code {
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char('c' | 'n') if model.user.is_some() => self.begin(Writing::Chirp),
            KeyCode::Char('f') if model.user.is_some() => self.begin(Writing::Follow),
            KeyCode::Char('v') if model.user.is_some() => self.begin(Writing::Visit),
            KeyCode::Char('u') if model.user.is_some() => {
                return self.chosen_user(model).map_or(Act::None, |user| Act::Ask(Ask::Unfollow(user)));
            }
            KeyCode::Char('p') | KeyCode::Enter if self.view != View::Page => {
                return self.chosen_user(model).map_or(Act::None, |user| self.visit(user));
            }
            KeyCode::Tab => {
                self.view = match self.view {
                    View::Timeline => View::Following,
                    View::Following | View::Page => View::Timeline,
                };
            }
            KeyCode::Esc => self.view = View::Timeline,
            KeyCode::Up | KeyCode::Char('k') => self.choose(model, chosen.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(model, chosen + 1),
            KeyCode::PageUp => self.choose(model, chosen.saturating_sub(self.page.max(1))),
            KeyCode::PageDown => self.choose(model, chosen + self.page.max(1)),
            KeyCode::Home | KeyCode::Char('g') => self.choose(model, 0),
            KeyCode::End | KeyCode::Char('G') => self.choose(model, usize::MAX),
            _ => {}
        }
        Act::None
    }

    fn begin(&mut self, writing: Writing) {
        (self.writing, self.problem) = (Some(writing), None);
    }

    fn visit(&mut self, user: UserName) -> Act {
        self.view = View::Page;
        (self.chosen[View::Page as usize], self.first[View::Page as usize]) = (0, 0);
        Act::Ask(Ask::Page(user))
    }

    fn write(&mut self, writing: Writing, key: KeyEvent) -> Act {
        let must_be_named = matches!(writing, Writing::Name | Writing::SignUp);
        match key.code {
            KeyCode::Esc if !must_be_named => {
                self.writing = None;
                self.problem = None;
                self.name.clear();
            }
            KeyCode::Esc => return Act::Quit,
            KeyCode::Enter => return self.finish(writing),
            _ => {
                let line = if writing == Writing::Chirp { &mut self.chirp } else { &mut self.name };
                if line.key(key) {
                    self.problem = None;
                    if writing == Writing::SignUp {
                        self.writing = Some(Writing::Name);
                    }
                }
            }
        }
        Act::None
    }

    /// What was written is meant.
    fn finish(&mut self, writing: Writing) -> Act {
        let act = match writing {
            Writing::Chirp if self.posting => Err("the last one is still on its way".into()),
            Writing::Chirp => self.chirp.text().parse::<Text>().map(Ask::Post).map_err(|error| error.to_string()),
            _ => {
                self.name.text().trim().parse::<UserName>().map_err(|error| error.to_string()).map(|name| match writing
                {
                    Writing::Follow => Ask::Follow(name),
                    Writing::Visit => Ask::Page(name),
                    Writing::SignUp => Ask::SignUp(name),
                    _ => Ask::Be(name),
                })
            }
        };
        match act {
            Err(problem) => {
                self.problem = Some(problem);
                Act::None
            }
            Ok(ask) => {
                match &ask {
                    Ask::Page(user) => {
                        self.writing = None;
                        self.name.clear();
                        return self.visit(user.clone());
                    }
                    // It stays written until it is posted.
                    Ask::Post(_) => (self.writing, self.posting) = (None, true),
                    Ask::Follow(_) => {
                        self.writing = None;
                        self.name.clear();
                    }
                    _ => {}
                }
                Act::Ask(ask)
            }
        }
    }
}

//! The state of the person's input: a value that keys change, and nothing else.

use screen::ratatui::layout::Rect;
use screen::terminal::{KeyCode, KeyEvent, KeyModifiers};

use super::choice::Choice;
use super::drafts::Drafts;
use super::draw::{self, HelpRows};
use super::edit::LineEditor;
use super::model::{Model, Shown, ShownPage};
use super::worker::{Ask, News};
use crate::error::Error;
use crate::name::UserName;

/// The list on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// The posts of the users that the user follows.
    #[default]
    Timeline,
    /// The users that the user follows.
    Following,
    /// The page of a user.
    Page,
}

/// The text that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// A chirp.
    Chirp,
    /// The name of a user to follow.
    Follow,
    /// The name of a user to look at.
    Visit,
    /// The user's own name, at the beginning.
    Name,
    /// The same, and no user has it: Enter again takes it.
    SignUp,
}

/// The result of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    None,
    Quit,
    Ask(Ask),
}

/// The whole state.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) view: View,
    pub(crate) writing: Option<Writing>,
    pub(crate) drafts: Drafts,
    pub(crate) name: LineEditor,
    /// Whether the user's name is on its way, as [`Ask::Be`] or [`Ask::SignUp`]: it cannot be changed, and is not asked
    /// for again, until that is answered, however long it takes to find a peer.
    pub(crate) is_asking: bool,
    /// An error in the written text.
    pub(crate) problem: Option<String>,
    pub(crate) help: bool,
    /// Rows of the help above the visible ones.
    pub(crate) help_first: usize,
    /// Rows of the help that fit.
    pub(crate) help_rows: HelpRows,
    /// Whether the person wants to leave, and was told of the unposted chirp.
    pub(crate) is_leaving: bool,
    /// User of the page that is looked at, whether the page has come or not.
    pub(crate) visited: Option<UserName>,
    /// Whether that page will not come.
    pub(crate) is_page_missing: bool,
    /// Chosen row of each view.
    choices: [Choice; 3],
    /// Rows that fit, about.
    page: usize,
}

impl State {
    /// Makes the first state; `nameless`: the person has to be asked for a name.
    pub(crate) fn new(nameless: bool) -> State {
        State { writing: nameless.then_some(Writing::Name), page: 1, ..State::default() }
    }

    /// Takes a piece of news, which may change the question to the person.
    pub(crate) fn note(&mut self, news: &News) {
        match news {
            News::Failed(Ask::Be(name), error) => {
                (self.writing, self.problem) = match error {
                    Error::NoUser(_) => (Some(Writing::SignUp), None),
                    _ => (Some(Writing::Name), Some(error.to_string())),
                };
                (self.name, self.is_asking) = (LineEditor::of(name.as_str()), false);
            }
            News::Failed(Ask::SignUp(_), error) => {
                (self.writing, self.problem) = (Some(Writing::Name), Some(error.to_string()));
                self.is_asking = false;
            }
            News::Is(_) => {
                self.is_asking = false;
                if self.is_naming() {
                    self.put_away();
                }
            }
            News::Done(Ask::Post(_), _) => self.drafts.posted(),
            News::Failed(Ask::Post(text), _) => self.drafts.failed(text),
            News::Page(page) if self.wants(news) => {
                // The name as its owner writes it.
                self.visited = Some(page.profile.name.clone());
                self.is_page_missing = false;
            }
            News::Failed(Ask::Page(user), _) if self.visited.as_ref() == Some(user) => self.is_page_missing = true,
            _ => {}
        }
        self.is_leaving &= self.drafts.is_unposted();
    }

    /// Returns whether a piece of news is of use: a page that was asked for before another one is not.
    pub(crate) fn wants(&self, news: &News) -> bool {
        !matches!(news, News::Page(page) if self.visited.as_ref() != Some(&page.profile.name))
    }

    fn is_naming(&self) -> bool {
        matches!(self.writing, Some(Writing::Name | Writing::SignUp))
    }

    /// Returns the page that is looked at, where it has come.
    pub(crate) fn visited_page<'a>(&self, model: &'a Model) -> Option<&'a ShownPage> {
        model.page.as_ref().filter(|page| self.visited.as_ref() == Some(&page.profile.name))
    }

    /// Returns the chirps of the view.
    pub(crate) fn lines<'a>(&self, model: &'a Model) -> &'a [Shown] {
        match self.view {
            View::Timeline => &model.lines,
            View::Following => &[],
            View::Page => self.visited_page(model).map_or(&[], |page| &page.lines),
        }
    }

    /// Returns the chosen row of the view, with its visible part.
    pub(crate) fn choice(&self) -> &Choice {
        &self.choices[self.view as usize]
    }

    /// Moves the chosen row and the visible part into their limits, for a picture of this size.
    pub(crate) fn settle(&mut self, model: &Model, area: Rect) {
        self.choices.iter_mut().for_each(|choice| choice.find(model));
        let (room, lines) = (draw::room(model, self, area), self.lines(model));
        let choice = &mut self.choices[self.view as usize];
        match self.view {
            // A user that is shown as chosen stays chosen, from the first picture on.
            View::Following => choice.user(model, choice.at),
            View::Timeline | View::Page => choice.at = choice.at.min(lines.len().saturating_sub(1)),
        }
        choice.scroll(room.rows, |at| lines.get(at).map_or(1, |shown| draw::height(shown, room.columns)));
        self.page = room.rows / 4;
        self.help_rows = draw::help_rows(area);
        self.help_first = self.help_first.min(self.help_rows.most);
    }

    /// Scrolls the help, where it does not fit and this is a key for that; returns whether it is one.
    fn scroll_help(&mut self, key: KeyCode) -> bool {
        let HelpRows { seen, most } = self.help_rows;
        let to = match key {
            _ if most == 0 => return false,
            KeyCode::Up | KeyCode::Char('k') => self.help_first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.help_first + 1,
            KeyCode::PageUp => self.help_first.saturating_sub(seen.max(1)),
            KeyCode::PageDown => self.help_first + seen.max(1),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => most,
            _ => return false,
        };
        self.help_first = to.min(most);
        true
    }

    fn choose(&mut self, model: &Model, at: usize) {
        let count = self.lines(model).len();
        let choice = &mut self.choices[self.view as usize];
        match self.view {
            View::Timeline => choice.chirp(model, at),
            View::Following => choice.user(model, at),
            View::Page => choice.row(count, at),
        }
    }

    /// Returns the chosen user: the author of a chirp, a followed user, or the user of the page that is looked at.
    pub(crate) fn chosen_user(&self, model: &Model) -> Option<UserName> {
        let at = self.choice().at;
        match self.view {
            View::Timeline => model.lines.get(at).map(|shown| shown.line.user.clone()),
            View::Following => model.following.get(at).cloned(),
            View::Page => self.visited.clone(),
        }
    }

    /// Takes a key, and returns its result.
    pub(crate) fn key(&mut self, key: KeyEvent, model: &Model) -> Act {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Act::Quit;
        }
        if let Some(writing) = self.writing {
            return self.write(writing, key);
        }
        if !is_plain(key) {
            return Act::None;
        }
        if self.help {
            self.help = self.scroll_help(key.code);
            return Act::None;
        }
        let was_leaving = std::mem::take(&mut self.is_leaving);
        // Where several keys come at once, rows may have come or gone since the last picture.
        self.choices.iter_mut().for_each(|choice| choice.find(model));
        let at = self.choice().at;
        match key.code {
            KeyCode::Char('q') if self.drafts.is_unposted() && !was_leaving => self.is_leaving = true,
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Char('?') => (self.help, self.help_first) = (true, 0),
            KeyCode::Char('c' | 'n') if model.user.is_some() => {
                self.drafts.begin();
                self.begin(Writing::Chirp);
            }
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
            KeyCode::Up | KeyCode::Char('k') => self.choose(model, at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(model, at + 1),
            KeyCode::PageUp => self.choose(model, at.saturating_sub(self.page.max(1))),
            KeyCode::PageDown => self.choose(model, at + self.page.max(1)),
            KeyCode::Home | KeyCode::Char('g') => self.choose(model, 0),
            KeyCode::End | KeyCode::Char('G') => self.choose(model, usize::MAX),
            _ => {}
        }
        Act::None
    }

    /// Adds pasted text to the text that is being written. Where there is none, it has no effect: least of all that of
    /// keys.
    pub(crate) fn paste(&mut self, text: &str) {
        if let Some(writing) = self.writing
            && !self.is_asking
        {
            self.edit(writing, |line| {
                line.paste(text);
                true
            });
        }
    }

    fn begin(&mut self, writing: Writing) {
        (self.writing, self.problem) = (Some(writing), None);
    }

    fn put_away(&mut self) {
        (self.writing, self.problem) = (None, None);
        self.name.clear();
    }

    fn visit(&mut self, user: UserName) -> Act {
        (self.view, self.visited, self.is_page_missing) = (View::Page, Some(user.clone()), false);
        self.choices[View::Page as usize] = Choice::default();
        Act::Ask(Ask::Page(user))
    }

    fn write(&mut self, writing: Writing, key: KeyEvent) -> Act {
        match key.code {
            KeyCode::Esc if self.is_naming() => return Act::Quit,
            KeyCode::Esc => self.put_away(),
            // The question is on its way already.
            _ if self.is_asking => {}
            KeyCode::Enter if is_plain(key) => return self.finish(writing),
            _ => self.edit(writing, |line| line.key(key)),
        }
        Act::None
    }

    /// Changes the text that is being written; `change` returns whether it changed anything.
    fn edit(&mut self, writing: Writing, change: impl FnOnce(&mut LineEditor) -> bool) {
        let line = if writing == Writing::Chirp { &mut self.drafts.line } else { &mut self.name };
        if change(line) {
            self.problem = None;
            if writing == Writing::SignUp {
                self.writing = Some(Writing::Name);
            }
        }
    }

    /// Ends writing: the text is complete.
    fn finish(&mut self, writing: Writing) -> Act {
        let ask = match writing {
            Writing::Chirp => self.drafts.send().map(Ask::Post),
            _ => self.named(writing),
        };
        match ask {
            Err(problem) => {
                self.problem = Some(problem);
                Act::None
            }
            Ok(Ask::Page(user)) => {
                self.put_away();
                self.visit(user)
            }
            Ok(ask) => {
                match self.is_naming() {
                    true => self.is_asking = true,
                    false => self.put_away(),
                }
                Act::Ask(ask)
            }
        }
    }

    /// Returns the request for the name that was written.
    fn named(&self, writing: Writing) -> Result<Ask, String> {
        let name: UserName =
            self.name.text().trim().parse().map_err(|error: crate::name::NameError| error.to_string())?;
        Ok(match writing {
            Writing::Follow => Ask::Follow(name),
            Writing::Visit => Ask::Page(name),
            Writing::SignUp => Ask::SignUp(name),
            Writing::Name | Writing::Chirp => Ask::Be(name),
        })
    }
}

/// Returns whether a key is pressed as it is, or with Shift: with any other modifier it is another key, which means
/// nothing here.
fn is_plain(key: KeyEvent) -> bool {
    KeyModifiers::SHIFT.contains(key.modifiers)
}

//! Choices of the dashboard's user.

use super::rows;

/// Screen of the dashboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    /// Overview of all screens.
    #[default]
    Overview,
    /// Groups of the ring, and details of one of them.
    Groups,
    /// Other peers.
    Peers,
    /// Recent events.
    Events,
}

impl Tab {
    /// All screens, in display order.
    pub const ALL: [Tab; 4] = [Tab::Overview, Tab::Groups, Tab::Peers, Tab::Events];

    /// Returns the title of the screen.
    pub fn title(self) -> &'static str {
        match self {
            Tab::Overview => "Overview",
            Tab::Groups => "Groups",
            Tab::Peers => "Peers",
            Tab::Events => "Events",
        }
    }

    /// Returns the screen that is `by` places further, in a circle.
    pub fn step(self, by: isize) -> Tab {
        let count = Tab::ALL.len() as isize;
        Tab::ALL[(self as isize + by).rem_euclid(count) as usize]
    }
}

/// Choices about the rows of one screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Marked row, by its id; the first where no row has that id.
    pub row: Option<String>,
    /// Column that the rows are sorted by.
    pub sort: usize,
    /// Whether the largest come first.
    pub reverse: bool,
    /// Filter: only rows that hold this text.
    pub filter: String,
}

/// State that keys change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Shown screen.
    pub tab: Tab,
    choices: [Choice; 4],
    /// Whether the picture is frozen.
    pub frozen: bool,
    /// Whether details of the marked row are shown, and scrolled where they do not fit.
    pub about: bool,
    /// Lines of the help, or of the marked row's details, above the visible ones.
    pub scroll: usize,
    /// Whether all keys are shown.
    pub help: bool,
    /// Whether the filter is being written.
    pub filtering: bool,
    /// Lane of the shown ring, where the peer has several lanes.
    pub lane: u8,
}

impl Default for State {
    fn default() -> State {
        let choices = Tab::ALL.map(|tab| {
            let (sort, reverse) = rows::usual_order(tab);
            Choice { sort, reverse, ..Choice::default() }
        });
        State {
            tab: Tab::default(),
            choices,
            frozen: false,
            about: false,
            scroll: 0,
            help: false,
            filtering: false,
            lane: 0,
        }
    }
}

impl State {
    /// Takes the number of lanes: the shown peer may be another one than that of the chosen lane.
    pub fn settle(&mut self, lanes: u8) {
        if self.lane >= lanes {
            self.lane = 0;
        }
    }

    /// Returns the choices of a screen.
    pub fn of(&self, tab: Tab) -> &Choice {
        &self.choices[tab as usize]
    }

    /// Returns the choices of a screen, to change them.
    pub fn of_mut(&mut self, tab: Tab) -> &mut Choice {
        &mut self.choices[tab as usize]
    }

    /// Returns the choices of the shown screen.
    pub fn chosen(&self) -> &Choice {
        self.of(self.tab)
    }

    /// Returns the choices of the shown screen, to change them.
    pub fn chosen_mut(&mut self) -> &mut Choice {
        self.of_mut(self.tab)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_is_gone_is_left() {
        let mut state = State { lane: 3, ..State::default() };
        state.settle(4);
        assert_eq!(state.lane, 3);
        state.settle(1);
        assert_eq!(state.lane, 0);
    }
}

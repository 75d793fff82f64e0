//! What the person at the dashboard has chosen.

use super::rows;

/// A screen of the dashboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    /// A little of everything.
    #[default]
    Overview,
    /// The groups of the ring, and all about one of them.
    Groups,
    /// The other peers.
    Peers,
    /// What happened.
    Events,
}

impl Tab {
    /// In the order in which they stand on the screen.
    pub const ALL: [Tab; 4] = [Tab::Overview, Tab::Groups, Tab::Peers, Tab::Events];

    /// What it is called.
    pub fn title(self) -> &'static str {
        match self {
            Tab::Overview => "Overview",
            Tab::Groups => "Groups",
            Tab::Peers => "Peers",
            Tab::Events => "Events",
        }
    }

    /// The one behind it, round in a circle, or so many further.
    pub fn step(self, by: isize) -> Tab {
        let count = Tab::ALL.len() as isize;
        Tab::ALL[(self as isize + by).rem_euclid(count) as usize]
    }
}

/// What is chosen about the rows of one screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The row that is marked, by its id; the first where there is none of that id.
    pub row: Option<String>,
    /// The column that the rows are sorted by.
    pub sort: usize,
    /// From the largest to the smallest.
    pub reverse: bool,
    /// Only rows that hold this text.
    pub filter: String,
}

/// Everything that keys change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Which screen is shown.
    pub tab: Tab,
    choices: [Choice; 4],
    /// The picture stands still.
    pub frozen: bool,
    /// All about the marked row is shown, and scrolled where it does not fit.
    pub about: bool,
    /// Lines of the help, or of all about the marked row, above what is seen.
    pub scroll: usize,
    /// All keys are shown.
    pub help: bool,
    /// The filter is being written.
    pub filtering: bool,
    /// Whose ring is shown, where the peer has several lanes.
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
    /// There are so many lanes now: another peer may be shown than the one whose lane was chosen.
    pub fn settle(&mut self, lanes: u8) {
        if self.lane >= lanes {
            self.lane = 0;
        }
    }

    /// What is chosen on a screen.
    pub fn of(&self, tab: Tab) -> &Choice {
        &self.choices[tab as usize]
    }

    /// The same, to change it.
    pub fn of_mut(&mut self, tab: Tab) -> &mut Choice {
        &mut self.choices[tab as usize]
    }

    /// On the screen that is shown.
    pub fn chosen(&self) -> &Choice {
        self.of(self.tab)
    }

    /// The same, to change it.
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

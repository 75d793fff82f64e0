//! The costs in RECODE's Table I, as the paper's symbols and as numbers.

/// Costs of one change of groups. An agreement in a group takes `g` delays, and `g` messages.
pub struct PaperCost {
    /// The system, and its change.
    pub name: &'static str,
    /// Delays of messages, beside routing: the symbols, and their value.
    pub delays: (&'static str, fn(u64) -> u64),
    /// Delays for which a partition is unavailable.
    pub unavailable: (&'static str, fn(u64) -> u64),
    /// Messages, beside routing.
    pub messages: (&'static str, fn(u64) -> u64),
    /// Processes or groups that take part.
    pub parties: &'static str,
}

/// Table I. Routing takes `r` delays and messages, twice in RECODE.
pub const PAPER_COSTS: [PaperCost; 5] = [
    PaperCost {
        name: "RECODE handover (paper)",
        delays: ("2r + 2 + 2g", |g| 2 + 2 * g),
        unavailable: ("1 + g", |g| 1 + g),
        messages: ("2r + 2 + 3g", |g| 2 + 3 * g),
        parties: "2 groups",
    },
    PaperCost {
        name: "FTAR (paper)",
        delays: ("4", |_| 4),
        unavailable: ("4", |_| 4),
        messages: ("10", |_| 10),
        parties: "3 processes",
    },
    PaperCost {
        name: "atomic join (paper)",
        delays: ("5(1 + g)", |g| 5 * (1 + g)),
        unavailable: ("4(1 + g)", |g| 4 * (1 + g)),
        messages: ("5(1 + g)", |g| 5 * (1 + g)),
        parties: "3 groups",
    },
    PaperCost {
        name: "atomic leave (paper)",
        delays: ("6(1 + g)", |g| 6 * (1 + g)),
        unavailable: ("6(1 + g)", |g| 6 * (1 + g)),
        messages: ("6(1 + g)", |g| 6 * (1 + g)),
        parties: "3 groups",
    },
    PaperCost {
        name: "Scatter (paper)",
        delays: ("4 + 3g + 2g", |g| 4 + 5 * g),
        unavailable: ("2 + 2 + g", |g| 4 + g),
        messages: ("3g + 2g", |g| 5 * g),
        parties: "3 groups",
    },
];

/// Delays of an agreement in a group: a request to the members, and their answers.
pub const DELAYS: u64 = 2;
/// Messages of an agreement in a group of three: a request to two members, and two answers.
pub const MESSAGES: u64 = 4;

/// Returns Scatter's costs.
pub fn scatter() -> &'static PaperCost {
    &PAPER_COSTS[4]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the paper's text and this project's notes give for two delays.
    #[test]
    fn symbols_have_their_values() {
        let values = PAPER_COSTS.each_ref().map(|cost| ((cost.delays.1)(DELAYS), (cost.unavailable.1)(DELAYS)));
        assert_eq!(values, [(6, 3), (4, 4), (15, 12), (18, 18), (14, 6)]);
    }
}

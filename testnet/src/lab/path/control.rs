//! Commands to a running path: one line each, answered by one line.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::lab::latency::{DELAY_MS_MAX, milliseconds};

/// The known commands, for people.
const KNOWN: &str = "cut A B, heal, delay A B MS, loss A B PER_MILLE, stats, stop";

/// A command to a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PathCommand {
    /// Cuts links, one way each.
    Cut(Vec<(usize, usize)>),
    /// Makes all links as planned again.
    Heal,
    /// Sets the one-way delay of links.
    Delay(Vec<(usize, usize)>, Duration),
    /// Sets the loss of links, in packets of 1,000.
    Loss(Vec<(usize, usize)>, u32),
    /// Asks for the counters.
    Stats,
    /// Ends the path.
    Stop,
}

impl PathCommand {
    /// Reads a command. `names` has the wires that each name means.
    ///
    /// # Errors
    /// The line is no command; the error says which commands there are, or which names.
    pub(super) fn parse(line: &str, names: &BTreeMap<String, Vec<usize>>) -> Result<PathCommand, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["cut", from, to] => Ok(PathCommand::Cut(pairs(from, to, names)?)),
            ["heal"] => Ok(PathCommand::Heal),
            ["delay", from, to, ms] => {
                let delay = ms.parse::<f64>().ok().filter(|ms| (0.0..=DELAY_MS_MAX).contains(ms));
                let delay =
                    delay.ok_or_else(|| format!("{ms:?} is no delay: give 0 to {DELAY_MS_MAX} milliseconds"))?;
                Ok(PathCommand::Delay(pairs(from, to, names)?, milliseconds(delay)))
            }
            ["loss", from, to, per_mille] => {
                let loss = per_mille.parse::<u32>().ok().filter(|loss| *loss <= 1_000);
                let loss = loss.ok_or_else(|| format!("{per_mille:?} is no loss: give 0 to 1000 packets of 1000"))?;
                Ok(PathCommand::Loss(pairs(from, to, names)?, loss))
            }
            ["stats"] => Ok(PathCommand::Stats),
            ["stop"] => Ok(PathCommand::Stop),
            _ => Err(format!("unknown command {line:?}; there are: {KNOWN}")),
        }
    }
}

/// Returns the links from each wire of one name to each wire of the other.
fn pairs(from: &str, to: &str, names: &BTreeMap<String, Vec<usize>>) -> Result<Vec<(usize, usize)>, String> {
    let of = |name: &str| {
        names.get(name).ok_or_else(|| {
            let known: Vec<&str> = names.keys().map(String::as_str).collect();
            format!("there is no {name:?}; there are: {}", known.join(", "))
        })
    };
    let (ones, others) = (of(from)?, of(to)?);
    let all = ones.iter().flat_map(|one| others.iter().map(move |other| (*one, *other)));
    let links: Vec<(usize, usize)> = all.filter(|(one, other)| one != other).collect();
    match links.is_empty() {
        true => Err(format!("{from:?} and {to:?} share a wire: the path carries no packet between them")),
        false => Ok(links),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_hosts_and_sites() {
        let names = [("a", vec![0]), ("b", vec![1]), ("c", vec![1]), ("@s", vec![0, 1]), ("*", vec![0, 1, 2])];
        let names = names.into_iter().map(|(name, wires)| (name.to_owned(), wires)).collect();
        let parse = |line: &str| PathCommand::parse(line, &names);
        assert_eq!(parse("cut a b"), Ok(PathCommand::Cut(vec![(0, 1)])));
        assert_eq!(parse(" cut  a * \n"), Ok(PathCommand::Cut(vec![(0, 1), (0, 2)])));
        assert_eq!(parse("delay @s a 1.5"), Ok(PathCommand::Delay(vec![(1, 0)], Duration::from_micros(1_500))));
        assert_eq!(parse("loss a b 1000"), Ok(PathCommand::Loss(vec![(0, 1)], 1_000)));
        for (line, named) in [
            ("", "cut A B, heal"),
            ("cut a", "delay A B MS"),
            ("mend", "stats, stop"),
            ("cut a x", "no \"x\""),
            ("cut b c", "share a wire"),
            ("delay a b -1", "milliseconds"),
            ("delay a b inf", "milliseconds"),
            ("loss a b 1001", "0 to 1000"),
        ] {
            let told = parse(line).expect_err(line);
            assert!(told.contains(named), "{line}: {told}");
        }
    }
}

//! `scatter top`: the dashboard, or one picture of it.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use peer::exit::{Exit, fail};
use screen::colour::Palette;
use screen::{picture, safe, terminal};

use super::print;
use crate::top::model::Model;
use crate::top::{self, Ended, Options, Trouble};

/// Upper limit of either side of a picture; larger ones are of no use.
const SIDE_MAX: u16 = 1000;

/// Arguments of `scatter top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// A peer's HTTP address; with several, shows the first that answers, and fails over to the next when it stops
    /// answering
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "SCATTER_HTTP",
        value_parser = super::address::status,
        value_delimiter = ',',
        default_value = "127.0.0.1:6480"
    )]
    http: Vec<String>,
    /// Print one picture and exit
    #[arg(long)]
    once: bool,
    /// How to print the picture: text, the data as JSON, or an SVG
    #[arg(long, env = "SCATTER_OUTPUT", default_value = "text")]
    output: Output,
    /// Size of the picture in columns and rows; by default as the terminal, or 80x24
    #[arg(long, value_name = "COLUMNSxROWS", value_parser = size, requires = "once")]
    size: Option<(u16, u16)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
    Svg,
}

fn size(text: &str) -> Result<(u16, u16), String> {
    picture::parse_size(text)
        .filter(|(columns, rows)| (1..=SIDE_MAX).contains(columns) && (1..=SIDE_MAX).contains(rows))
        .ok_or_else(|| format!("columns and rows, as 80x24, each of at most {SIDE_MAX}"))
}

/// Runs `scatter top`.
pub fn top(args: &TopArgs) -> ExitCode {
    if args.once {
        return once(args);
    }
    if let Err(error) = terminal::can_enter() {
        return fail(Exit::Usage, &format!("{error}; scatter top --once needs no terminal"));
    }
    // Asked before the screen is taken: a user with a mistyped address should not have to leave it first.
    let model = match top::look(&args.http) {
        Ok(model) => model,
        Err((endpoint, trouble)) => return give_up(&endpoint, &trouble),
    };
    let endpoints = args.http.clone();
    let options = Options { endpoints: Box::new(move || endpoints.clone()), model, extras: Vec::new(), pane: None };
    match top::run(options) {
        Ok(Ended::Quit) => Exit::Done.into(),
        Ok(Ended::By(end)) => ExitCode::from(end.exit_code()),
        Err(error) => fail(Exit::Usage, &error.to_string()),
    }
}

fn once(args: &TopArgs) -> ExitCode {
    let model = match top::look_around(&args.http) {
        Ok(model) => model,
        Err((endpoint, trouble)) => return give_up(&endpoint, &trouble),
    };
    let size = args.size.or_else(terminal::size).unwrap_or(terminal::USUAL);
    let text = match args.output {
        Output::Text if std::io::stdout().is_terminal() => {
            let palette = Palette::of_environment();
            let drawn = top::picture(&model, palette, size);
            if palette == Palette::Plain { picture::text(&drawn) } else { picture::ansi(&drawn) }
        }
        Output::Text => picture::text(&top::picture(&model, Palette::Plain, size)),
        Output::Json => json(&model),
        Output::Svg => picture::svg(&top::picture(&model, Palette::Sixteen, size), "scatter top"),
    };
    print(text.as_bytes(), Exit::Done)
}

fn give_up(endpoint: &str, trouble: &Trouble) -> ExitCode {
    // The text may come from any program that listens there.
    let (endpoint, why) = (safe::line(endpoint), trouble.to_string());
    let why = safe::cut(&why, 300);
    match trouble {
        Trouble::Unreachable(_) => fail(Exit::Unreachable, &format!("cannot reach a peer at {endpoint}: {why}")),
        Trouble::Refused(_) => fail(Exit::Refused, &format!("{endpoint}: {why}")),
    }
}

/// Returns the data as JSON, with all characters escaped that would steer a terminal.
fn json(model: &Model) -> String {
    safe::json(&serde_json::to_string(model).unwrap_or_default()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!((size("80x24"), size("1x1000")), (Ok((80, 24)), Ok((1, 1000))));
        for wrong in ["", "80", "80x", "0x5", "80x1001", "-1x5", "80X24", "65616x24"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_means_the_same_and_steers_nothing() {
        let hostile = "\u{1b}[2J\u{9b}2J\u{202e}\u{7f}\u{e0041}e\u{301}日👩‍👩‍👧";
        let model = Model { endpoint: hostile.into(), ..Model::default() };
        let text = json(&model);
        assert!(text.trim_end().chars().all(|char| safe::line(&char.to_string()) == char.to_string()), "{text}");
        assert!(text.contains('日') && text.ends_with("}\n"));
        assert_eq!(serde_json::from_str::<Model>(&text).unwrap(), model);
    }
}

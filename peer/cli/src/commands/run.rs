//! `scatter run`: resolves the settings, then hands over to the daemon.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use peer::config::{Config, Format, Sources, resolve};
use peer::daemon::{self, Launch};
use peer::exit::{Exit, fail};
use peer::machine::{PeerState, check_formats, recall};
use serde_json::{Map, Value, json};

use super::{RunArgs, print};

/// Runs `scatter run`.
pub fn run(args: RunArgs, matches: Option<&clap::ArgMatches>, launch: Launch) -> ExitCode {
    let from_environment = matches
        .into_iter()
        .flat_map(|matches| matches.ids().map(move |id| (matches, id)))
        .filter(|(matches, id)| matches.value_source(id.as_str()) == Some(ValueSource::EnvVariable))
        // Ids are the names of fields.
        .map(|(_, id)| id.as_str().replace('_', "-"))
        .collect();
    let directory = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let sources = Sources {
        flags: args.layer,
        from_environment,
        file: args.config,
        xdg_data_home: directory("XDG_DATA_HOME"),
        home: directory("HOME"),
    };
    let settled = resolve(sources).map_err(|error| error.to_string()).and_then(remembered);
    let config = match settled {
        Ok(config) => config,
        Err(why) => return fail(Exit::Usage, &why),
    };
    if args.print_config {
        return print(show(&config).as_bytes(), Exit::Done);
    }
    daemon::run(config, args.stop_with_stdin, launch)
}

/// Returns the settings, with those that the peer in this data directory remembers of its network. Nothing is
/// changed there: the daemon reads them again at its start, under a lock.
fn remembered(mut config: Config) -> Result<Config, String> {
    check_formats(&config.data_dir)?;
    let peer_state = PeerState::load(&config.data_dir)?;
    recall(&mut config, &peer_state)?;
    Ok(config)
}

/// Formats all settings, each with its origin.
fn show(config: &Config) -> String {
    match config.output {
        Format::Json => {
            let settings: Map<String, Value> = config
                .shown
                .iter()
                .map(|shown| {
                    (shown.name.to_owned(), json!({ "value": shown.value, "origin": shown.origin.to_string() }))
                })
                .collect();
            format!("{}\n", Value::Object(settings))
        }
        Format::Text => {
            let width = config.shown.iter().map(|shown| shown.name.len()).max().unwrap_or(0);
            let lines = config.shown.iter().map(|shown| {
                format!("{:width$} = {:40} # {}\n", shown.name, format!("{:?}", shown.value), shown.origin)
            });
            lines.collect()
        }
    }
}

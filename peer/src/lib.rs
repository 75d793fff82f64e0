//! The environment of a node: the loop, clients, administrators, settings and the daemon.
//!
//! - [`machine`]: the loop of each lane, which connects a node with store, network and clients; the supervisor above; the data directory.
//! - [`resp`]: the Redis protocol; `http`: health, metrics, status and administrators' requests ([`admin`]); [`status`] and `offload`: the
//!   shapes of their answers; `event_log`: recent events.
//! - `accept`, `places`: connections of endpoints, bounded in number; `descriptors`: the division of the limit of open files.
//! - [`daemon`]: start, endpoints, signals and the end; [`config`]: settings; `log`: log lines; `unready`: when a peer says why it does not
//!   serve.
//! - [`names`], [`exit`]: names of peers, and exit codes, as commands show them.
//!
//! # Examples
//!
//! ```
//! use std::path::Path;
//! use std::time::Duration;
//!
//! use peer::config::{Entry, Origin, Sources, parse, resolve};
//!
//! // Settings of a file, and a default for each of the others.
//! let file = "data-dir = \"/var/lib/scatter\"\nnew = true\naway = 90\n";
//! let flags = parse(Path::new("scatter.toml"), file)?;
//! let config = resolve(Sources { flags, ..Sources::default() })?;
//! assert_eq!(config.entry, Entry::New);
//! assert_eq!(config.away, Duration::from_secs(90));
//! assert_eq!(config.origin("max-group"), Some(&Origin::Default));
//!
//! // An error names the file, the line and the setting.
//! let error = parse(Path::new("scatter.toml"), "new = true\naway = \"long\"\n").expect_err("not a number");
//! assert!(error.to_string().starts_with("scatter.toml:2: "));
//! # Ok::<(), peer::config::ConfigError>(())
//! ```

mod accept;
pub mod admin;
pub mod config;
pub mod daemon;
mod descriptors;
mod event_log;
pub mod exit;
mod http;
mod log;
pub mod machine;
pub mod names;
mod offload;
mod places;
pub mod resp;
pub mod status;
mod unready;

//! `scatter network`: the agreed settings of a network, and the network key that a stopped peer remembers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use peer::config::network_key_is_long;
use peer::exit::{Exit, fail};
use peer::machine::{Cost, DirectoryLock, KeyHash, PeerState, check_formats, keep_to_owner};

use super::policies::{self, SetPolicyArgs, Where};

/// Arguments of `scatter network`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NetworkArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Change the agreed settings of all groups of the network
    #[command(subcommand)]
    Set(Set),
    /// Change the network key that a stopped peer remembers
    ///
    /// All peers of a network need the same key. To change the key: stop all peers, run this command for the data
    /// directory of each, and start them with --network-key and the new file. The other peers refuse a peer that was
    /// left out until this command is run for it, too; that peer loses no data.
    #[command(
        after_help = "Exit codes: 0 done; 2 usage; 4 refused: another process uses the directory, another version of \
            the program wrote it, or its peer belongs to no network."
    )]
    Key(KeyArgs),
}

#[derive(Debug, Subcommand)]
enum Set {
    /// Change policies, or the sizes of groups, for all groups
    ///
    /// The asked peer's group chooses the change in its log, and has applied it when this command returns. Its
    /// neighbours adopt the change, and their neighbours after them, as long as the groups have leaders; an unreachable
    /// part of the ring adopts it once it is reachable. Of two concurrent changes, one wins in all groups.
    #[command(
        after_help = "Exit codes: 0 done; 2 usage; 3 cannot reach a peer; 4 refused, with the reason; 5 outcome \
            unknown: see `scatter network`; 6 nothing was done, try again."
    )]
    Policy(SetPolicyArgs),
}

/// Arguments of `scatter network key`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("key").required(true).args(["network_key", "no_key"]))]
struct KeyArgs {
    /// The peer's data directory
    #[arg(long, value_name = "DIR", env = "SCATTER_DATA_DIR")]
    data_dir: PathBuf,
    /// A file with the new key; make one with `head -c 32 /dev/urandom | base64`
    #[arg(long, value_name = "FILE")]
    network_key: Option<PathBuf>,
    /// Remove the network's key: any program that reaches a peer can enter
    #[arg(long)]
    no_key: bool,
}

/// Runs `scatter network`.
pub fn network(args: &NetworkArgs) -> ExitCode {
    let key = match &args.action {
        None => return policies::show(&args.at),
        Some(Action::Set(Set::Policy(change))) => return policies::set(change),
        Some(Action::Key(key)) => key,
    };
    let new = match key.network_key.as_deref().map(read_key).transpose() {
        Ok(new) => new,
        Err(why) => return fail(Exit::Usage, &why),
    };
    match change_key(&key.data_dir, new.as_deref(), Cost::USUAL) {
        Ok(name) => super::print(said(&name, new.is_some()).as_bytes(), Exit::Done),
        Err(why) => fail(Exit::Refused, &why),
    }
}

fn said(name: &str, has_key: bool) -> String {
    let (what, how) = if has_key { ("another key", "with") } else { ("no key", "without") };
    format!(
        "network `{name}` has {what} from now on: start this peer {how} --network-key, and all its other peers, too\n"
    )
}

fn read_key(path: &Path) -> Result<Vec<u8>, String> {
    let at = |why: String| format!("--network-key {}: {why}", path.display());
    let text = std::fs::read(path).map_err(|error| at(error.to_string()))?;
    let key = text.trim_ascii();
    network_key_is_long(key).map_err(at)?;
    Ok(key.to_vec())
}

/// Records another key in this data directory. Returns the network's name.
fn change_key(dir: &Path, key: Option<&[u8]>, cost: Cost) -> Result<String, String> {
    if !dir.is_dir() {
        return Err(format!("the data directory {} does not exist", dir.display()));
    }
    check_formats(dir)?;
    keep_to_owner();
    let _lock = DirectoryLock::take(dir)?;
    let mut peer_state = PeerState::load(dir)?;
    let hash = key.map(|key| KeyHash::new(key, cost)).transpose()?;
    let Some(name) = peer_state.network().map(|network| network.name.clone()) else {
        return Err(format!(
            "the peer in {} belongs to no network: it takes its key from --network-key when it enters one",
            dir.display()
        ));
    };
    peer_state.change_network(|network| network.key = hash);
    peer_state.save()?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_changed_where_there_is_no_network() {
        let dir = tempfile::tempdir().unwrap();
        let cheap = Cost { memory_kib: 8, passes: 1 };
        let refused = change_key(dir.path(), Some(b"sixteen bytes!!!"), cheap).unwrap_err();
        assert!(refused.contains("belongs to no network"), "{refused}");
        assert!(!dir.path().join("peer.json").exists());
        let held = DirectoryLock::take(dir.path()).unwrap();
        assert!(change_key(dir.path(), None, cheap).unwrap_err().contains("in use"));
        drop(held);
        let nowhere = dir.path().join("nowhere");
        assert!(change_key(&nowhere, None, cheap).is_err() && !nowhere.exists());
        let short = dir.path().join("key");
        std::fs::write(&short, "abc\n").unwrap();
        let refused = read_key(&short).unwrap_err();
        assert!(refused.contains("/dev/urandom") && !refused.contains("abc"), "{refused}");
    }
}

//! Precedence of settings, and settings that are refused.

use std::io::Write as _;

use clap::Parser;

use super::*;
use crate::config::{Bytes, Profile};

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    layer: Layer,
}

fn sources(flags: &[&str]) -> Sources {
    let parsed = Flags::try_parse_from(std::iter::once("run").chain(flags.iter().copied()));
    Sources {
        flags: parsed.unwrap_or_else(|error| panic!("{error}")).layer,
        home: Some("/home/someone".into()),
        ..Sources::default()
    }
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn error(sources: Sources) -> String {
    resolve(sources).expect_err("refused").to_string()
}

fn origin(config: &Config, name: &str) -> Origin {
    config.shown.iter().find(|shown| shown.name == name).unwrap().origin.clone()
}

#[test]
fn flags_beat_environment_beats_file_beats_profile_beats_defaults() {
    let file = file("away = 7\nmax-disk = \"1GiB\"\ncluster = \"cellar\"\nprofile = \"home\"\nleases = true\n");
    let path = file.path().to_owned();
    let config = resolve(Sources {
        from_environment: vec!["cluster".into()],
        file: Some(path.clone()),
        ..sources(&["--new", "--away", "9", "--cluster", "attic"])
    })
    .unwrap();
    assert_eq!(config.away, Duration::from_secs(9));
    assert_eq!(origin(&config, "away"), Origin::Flag);
    assert_eq!(config.cluster, "attic");
    assert_eq!(origin(&config, "cluster"), Origin::Environment("SCATTER_CLUSTER".into()));
    assert_eq!(config.max_disk, 1 << 30);
    assert_eq!(origin(&config, "max-disk"), Origin::File(path));
    assert_eq!(config.max_connections, 64);
    assert_eq!(origin(&config, "max-connections"), Origin::Profile(Profile::Home));
    assert_eq!(config.max_group, 12);
    assert_eq!(origin(&config, "max-group"), Origin::Default);
    assert!(config.leases);
}

#[test]
fn defaults_are_those_promised() {
    let config = resolve(sources(&[])).unwrap();
    assert_eq!(config.data_dir, PathBuf::from("/home/someone/.local/share/scatter"));
    assert_eq!(config.resp, Some(([127, 0, 0, 1], 6479).into()));
    assert_eq!(config.http, Some(([127, 0, 0, 1], 6480).into()));
    assert_eq!((config.min_group, config.max_group), (5, 12));
    assert_eq!((config.away, config.exclude_after), (Duration::from_secs(60), Duration::from_secs(3)));
    assert_eq!(config.durability, Durability::Sync);
    assert_eq!(config.max_value, 65536);
    assert_eq!(config.entry, Entry::Known);
    assert!(!config.leases);
    let xdg = Sources { xdg_data_home: Some("/data".into()), ..sources(&[]) };
    assert_eq!(resolve(xdg).unwrap().data_dir, PathBuf::from("/data/scatter"));
    assert_eq!(resolve(sources(&["--profile", "home"])).unwrap().away, Duration::ZERO);
    assert_eq!(resolve(sources(&["--profile", "home"])).unwrap().entry, Entry::Discover);
}

#[test]
fn a_switch_has_to_be_of_use() {
    let founder = ["--new", "--coarse", "on", "--leases", "on", "--cluster", "hall"];
    let with = |more: &[&'static str]| sources(&[&founder[..], more].concat());
    let config = resolve(with(&["--switch", "192.0.2.9:6477"])).unwrap();
    assert_eq!(config.switch, Some(([192, 0, 2, 9], 6477).into()));
    assert_eq!(resolve(with(&["--switch", "off"])).unwrap().switch, None);
    for (nowhere, hint) in [
        ("0.0.0.0:6477", "not a usable address"),
        ("192.0.2.9:0", "not a usable address"),
        ("[ff02::1]:6477", "not a usable address"),
    ] {
        assert!(error(with(&["--switch", nowhere])).contains(hint));
    }
    let to = ["--switch", "192.0.2.9:6477"];
    let alone = |flags: &[&'static str]| error(sources(&[flags, &to].concat()));
    assert!(alone(&founder[..5]).contains("--cluster"));
    assert!(alone(&["--new", "--cluster", "hall", "--leases", "on"]).contains("--coarse on"));
    assert!(alone(&["--new", "--cluster", "hall", "--coarse", "on"]).contains("--leases on"));
    // A peer that joins takes over the founder's settings.
    let joins = ["--join", "/ip4/192.0.2.1/tcp/6478/p2p/12D3KooWGC6oXPo4bPkZBq2kGQeNXvYgDcvBSBtTmhvHv1VpTV2T"];
    assert!(resolve(sources(&[&joins[..], &["--cluster", "hall"], &to].concat())).is_ok());
}

#[test]
fn every_setting_is_shown_and_every_profile_is_valid() {
    let config = resolve(sources(&["--new"])).unwrap();
    let shown: Vec<_> = config.shown.iter().map(|shown| shown.name).collect();
    for name in Flags::command_names() {
        assert!(shown.contains(&name.as_str()), "{name} is not shown");
    }
    for profile in ["home", "server", "datacenter"] {
        resolve(sources(&["--new", "--profile", profile])).unwrap();
    }
}

impl Flags {
    fn command_names() -> Vec<String> {
        use clap::CommandFactory as _;
        Flags::command()
            .get_arguments()
            .filter_map(|argument| argument.get_long())
            .filter(|name| *name != "help")
            .map(str::to_owned)
            .collect()
    }
}

#[test]
fn a_file_with_a_slip_is_refused_with_its_line() {
    for (text, line, hint) in [
        ("away = 1\nawya = 2\n", 2, "unknown field `awya`"),
        ("away = \"x\"\n", 1, "invalid type"),
        ("\n\nmax-disk = \"5X\"\n", 3, "is not a size"),
        ("resp = \"nowhere\"\n", 1, "not an address to listen on"),
        ("away = \n", 1, ""),
        ("durability = \"paper\"\n", 1, "paper"),
    ] {
        let file = file(text);
        let said = error(Sources { file: Some(file.path().to_owned()), ..sources(&[]) });
        assert!(said.starts_with(&format!("{}:{line}: ", file.path().display())), "{said}");
        assert!(said.contains(hint), "{said}");
    }
    let said = error(Sources { file: Some("/nowhere/at.all".into()), ..sources(&[]) });
    assert!(said.contains("/nowhere/at.all"), "{said}");
}

#[test]
fn numbers_and_lists_of_a_file() {
    let file = file("max-value = 4096\nlisten = [\"/ip4/127.0.0.1/tcp/1\"]\nnew = true\nresp = \"off\"\n");
    let config = resolve(Sources { file: Some(file.path().to_owned()), ..sources(&[]) }).unwrap();
    assert_eq!(config.max_value, 4096);
    assert_eq!(config.listen.len(), 1);
    assert_eq!(config.entry, Entry::New);
    assert_eq!(config.resp, None);
}

#[test]
fn one_way_in() {
    let peer = "/ip4/192.0.2.1/tcp/1/p2p/12D3KooWAxgUiFAqBK9zUA7epQ5Q33dejeELJhohK5gbjbaA8e6Y";
    let quic = "/ip6/2001:db8::1/udp/1/quic-v1/p2p/12D3KooWAxgUiFAqBK9zUA7epQ5Q33dejeELJhohK5gbjbaA8e6Y";
    assert_eq!(resolve(sources(&["--join", peer])).unwrap().entry, Entry::Join(vec![Multiaddr(peer.into())]));
    let said = error(sources(&["--new", "--join", peer]));
    assert!(said.contains("--new") && said.contains("--join"), "{said}");
    let said = error(sources(&["--join", "/ip4/192.0.2.1/tcp/1"]));
    assert!(said.contains("/p2p/"), "{said}");
    let two = resolve(sources(&["--join", peer, "--join", quic])).unwrap().entry;
    assert!(matches!(two, Entry::Join(list) if list.len() == 2));
}

#[test]
fn addresses_that_lead_nowhere_are_refused() {
    for (flag, address, why) in [
        ("--listen", "/ip4/0.0.0.0/tcp/1/ws", "/tcp/PORT"),
        ("--listen", "/dns/a.example/tcp/1", "not resolved"),
        ("--join", "/ip4/192.0.2.1/tcp/1/p2p/12D3KooW", "multiaddress"),
        (
            "--join",
            "/dns/a.example/udp/1/quic-v1/p2p/12D3KooWAxgUiFAqBK9zUA7epQ5Q33dejeELJhohK5gbjbaA8e6Y",
            "not resolved",
        ),
    ] {
        let said = error(sources(&[flag, address]));
        assert!(said.starts_with(flag) && said.contains(address) && said.contains(why), "{said}");
    }
}

#[test]
fn an_open_endpoint_needs_a_secret() {
    for (flag, secret_flag) in [("--resp", "--resp-password-file"), ("--http", "--admin-token-file")] {
        for address in ["0.0.0.0:1", "192.0.2.1:1", "[::]:1"] {
            let said = error(sources(&[flag, address]));
            assert!(said.contains(secret_flag), "{said}");
        }
        for address in ["127.0.0.2:1", "[::1]:1", "localhost:1", "off"] {
            resolve(sources(&[flag, address])).unwrap();
        }
        let secret = file("  hush\n");
        let path = secret.path().to_str().unwrap();
        let config = resolve(sources(&[flag, "0.0.0.0:1", secret_flag, path])).unwrap();
        let read = if flag == "--resp" { config.resp_password } else { config.admin_token };
        assert_eq!(read.as_deref(), Some(&b"hush"[..]));
        let empty = file("\n");
        let said = error(sources(&[flag, "0.0.0.0:1", secret_flag, empty.path().to_str().unwrap()]));
        assert!(said.contains("empty"), "{said}");
    }
}

#[test]
fn groups_that_flap_are_refused() {
    for (min, max) in [("5", "12"), ("5", "9"), ("1", "1"), ("3", "5")] {
        resolve(sources(&["--min-group", min, "--max-group", max])).unwrap();
    }
    for (min, max) in [("5", "8"), ("8", "12"), ("2", "2"), ("0", "12"), ("4294967295", "4294967295")] {
        let said = error(sources(&["--min-group", min, "--max-group", max]));
        assert!(said.contains("--min-group"), "{said}");
    }
}

#[test]
fn policies_are_chosen_by_name() {
    let text = "divide=load,join=resilience,lead=agreement,repartition=proportional,size=thresholds,split=alike";
    let shown = |config: &Config| config.shown.iter().find(|shown| shown.name == "policy").unwrap().value.clone();
    assert_eq!(shown(&resolve(sources(&[])).unwrap()), text);
    let file = file("policy = [\"lead=oldest\", \"join = random\"]\n");
    let in_file = resolve(Sources { file: Some(file.path().to_owned()), ..sources(&[]) }).unwrap();
    assert_eq!(shown(&in_file), text.replace("agreement", "oldest").replace("resilience", "random"));
    assert_eq!(origin(&in_file, "policy"), Origin::File(file.path().to_owned()));
    assert_eq!((in_file.policies.lead.0, in_file.policies.join.0), ("oldest", "random"));
    let by_flag = resolve(sources(&["--policy", "size=off,repartition=off", "--policy", "divide=even"])).unwrap();
    assert_eq!((by_flag.policies.size.0, by_flag.policies.divide.0), ("off", "even"));
    // Shown settings can be written on the command line.
    let again = resolve(sources(&["--policy", &shown(&by_flag)])).unwrap();
    assert_eq!(again.policies.names(), by_flag.policies.names());
    assert!(error(sources(&["--policy", "size=off,size=thresholds"])).contains("two policies for size"));
    for (text, words) in [
        ("lead=nobody", "agreement, oldest, random, anybody"),
        ("rule=off", "divide, join, lead"),
        ("off", "join=random"),
    ] {
        assert!(text.parse::<Policy>().unwrap_err().contains(words), "{text}");
    }
}

#[test]
fn what_is_too_little_or_too_much_is_refused() {
    for flags in [
        ["--max-value", "10"],
        ["--max-value", "1GiB"],
        ["--max-disk", "1K"],
        ["--max-memory", "63MiB"],
        ["--max-connections", "1"],
        ["--away", "604801"],
        ["--exclude-after", "1"],
        ["--exclude-after", "604801"],
    ] {
        assert!(error(sources(&flags)).contains(flags[0]));
    }
    assert_eq!(resolve(sources(&["--max-bandwidth", "2MB/s"])).unwrap().max_bandwidth, Some(2_000_000));
    assert_eq!(resolve(sources(&["--max-bandwidth", "0"])).unwrap().max_bandwidth, None);
    assert_eq!("0".parse(), Ok(Bytes(0)));
}

#[test]
fn an_error_says_where_a_value_is_from_that_nobody_typed() {
    let typed = || sources(&["--new", "--max-connections", "3"]);
    assert!(!error(typed()).contains("environment"), "{}", error(typed()));
    let from_environment = vec!["max-connections".into()];
    let text = error(Sources { from_environment, ..typed() });
    assert!(text.ends_with("(--max-connections is from environment SCATTER_MAX_CONNECTIONS)"), "{text}");
    let file = file("away = 1000000\n");
    let text = error(Sources { file: Some(file.path().to_owned()), ..sources(&["--new"]) });
    assert!(text.ends_with(&format!("(--away is from file {})", file.path().display())), "{text}");
}

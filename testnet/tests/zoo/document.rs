//! `docs/clients.md` states the measured numbers of each client, for the release that is pinned here.

use super::clients::{CLIENTS, UNTIL_ANSWERED};
use super::proxy::HOLD;

#[test]
fn the_document_says_what_is_measured() {
    let document = include_str!("../../../docs/clients.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .map(|line| line.split('|').map(str::trim).collect())
        .filter(|row: &Vec<_>| row.len() == 7)
        .collect();
    for client in CLIENTS {
        let name = client.name.split(',').next().unwrap_or(client.name);
        let named = |row: &&Vec<&str>| row[1].to_lowercase().starts_with(&format!("{name} "));
        let row = rows.iter().find(named).unwrap_or_else(|| panic!("there is no row for {name}"));
        let again = |sends: usize| match sends {
            1 => "no".to_owned(),
            UNTIL_ANSWERED => "until answered".to_owned(),
            n => format!("{} times", n - 1),
        };
        let waits = match client.waits {
            HOLD => format!("{} s and more", HOLD.as_secs()),
            waits if client.by_default.silent > 1 => format!("{} s, then again", waits.as_secs()),
            waits => format!("{} s", waits.as_secs_f32()),
        };
        let plain = row[2..5].iter().map(|cell| cell.replace("**", "")).collect::<Vec<_>>();
        assert_eq!(plain[0], again(client.by_default.lost), "{}", client.name);
        assert_eq!(plain[1], again(client.by_default.try_again), "{}", client.name);
        assert!(plain[2].contains(&waits), "{}: {:?} has no {waits:?}", client.name, plain[2]);
        let version = row[1].rsplit(' ').next().expect("a row names a version");
        // The system determines the release of redis-cli.
        assert!(name == "redis-cli" || pin(name).contains(&format!("{version}.")), "{name} is not at {version}");
    }
}

/// Returns the file that pins a client's version.
fn pin(client: &str) -> &'static str {
    let (text, after) = match client {
        "redis-py" => (include_str!("../../zoo/redis-py/requirements.txt"), "redis=="),
        "go-redis" => (include_str!("../../zoo/go-redis/go.mod"), "go-redis/v9 "),
        "node-redis" => (include_str!("../../zoo/node/package.json"), "\"redis\": "),
        "ioredis" => (include_str!("../../zoo/node/package.json"), "\"ioredis\": "),
        "jedis" => (include_str!("../../zoo/java/pom.xml"), "<artifactId>jedis</artifactId>"),
        "lettuce" => (include_str!("../../zoo/java/pom.xml"), "<artifactId>lettuce-core</artifactId>"),
        "redis-rs" => (include_str!("../../../Cargo.lock"), "name = \"redis\"\nversion = "),
        other => panic!("{other} is pinned nowhere"),
    };
    text.split_once(after).and_then(|(_, rest)| rest.lines().next()).unwrap_or_else(|| panic!("no {after:?}"))
}

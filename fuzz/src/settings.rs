//! Decoders of the files that people, and a peer itself, keep beside the store.

use std::path::Path;

use peer::config::{self, Sources};
use peer::machine::fuzz;

/// Decodes a `peer.json`.
pub fn peer_state(text: &[u8]) -> bool {
    fuzz::peer_state(text)
}

pub fn peer_states() -> Vec<Vec<u8>> {
    let key = "0f".repeat(32);
    vec![
        b"{\"ring\": null, \"incarnation\": 0, \"peers\": {}}".to_vec(),
        format!(
            "{{\"ring\": \"{:032x}\", \"network\": {{\"name\": \"mine\", \"durability\": \"sync\", \"lanes\": 1, \
             \"policies\": [\"join=random\"]}}, \"incarnation\": 18446744073709551614, \
             \"peers\": {{\"{key}\": [\"/ip4/127.0.0.1/tcp/1\"]}}}}",
            9
        )
        .into_bytes(),
        format!("{{\"ring\": null, \"incarnation\": 3, \"peers\": {{}}, \"leaving\": true, \"left\": \"{:032x}\"}}", 9)
            .into_bytes(),
    ]
}

/// Decodes a file of settings, and resolves its settings.
pub fn settings(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let Ok(layer) = config::parse(Path::new("scatter.toml"), text) else { return false };
    // Keys and passwords are files of their own, which this decoder does not read.
    let layer = config::Layer { network_key: None, resp_password_file: None, admin_token_file: None, ..layer };
    config::resolve(Sources { flags: layer, home: Some("/home/x".into()), ..Sources::default() }).is_ok()
}

pub fn settings_files() -> Vec<Vec<u8>> {
    let files = [
        "",
        "profile = \"server\"\nnetwork = \"scatter\"\nmax-disk = \"10GiB\"\nmax-value = 1024\nleases = \"on\"\n",
        "listen = [\"/ip4/0.0.0.0/tcp/6478\"]\njoin = [\"/ip4/9.9.9.9/tcp/6478/p2p/12D3KooWAxgUiFAqBK9zUA7epQ5Q33dejeELJhohK5gbjbaA8e6Y\"]\nresp = \"off\"\naway = 60\n",
    ];
    files.map(|text| text.as_bytes().to_vec()).into()
}

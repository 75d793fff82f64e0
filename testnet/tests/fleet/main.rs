//! Networks of real daemons on inventories: brought up, put under load, disturbed and taken down by the program itself.

mod lab;
mod local;
mod soak;
mod ssh;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory with an inventory and the state of its network; both are gone at the end, and so are all peers.
struct Lab {
    directory: PathBuf,
    name: String,
}

impl Lab {
    /// Returns a directory for a network whose name no other test uses.
    fn new() -> Lab {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fleet-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&directory).expect("a place for the inventory");
        Lab { directory, name }
    }

    fn inventory(&self) -> PathBuf {
        self.directory.join("inventory.toml")
    }

    /// Writes the inventory: its hosts as TOML.
    fn write(&self, hosts: &str) {
        self.write_as("memory", hosts);
    }

    /// Writes the inventory of a network of this durability.
    fn write_as(&self, durability: &str, hosts: &str) {
        let text = format!("name = \"{}\"\nflags = [\"--durability\", \"{durability}\"]\n{hosts}", self.name);
        std::fs::write(self.inventory(), text).expect("a file can be written");
    }

    /// Writes an inventory with peers on this machine alone. Returns the first of their ports.
    fn write_local(&self, durability: &str, peers: u16) -> u16 {
        let first = free_ports(3 * peers);
        self.write_as(
            durability,
            &format!("[[host]]\nname = \"here\"\nkind = \"local\"\npeers = {peers}\nports = {first}\n"),
        );
        first
    }

    /// Returns the command `net WORDS INVENTORY MORE`.
    fn net(&self, word: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scatter-testnet"));
        command.args(["net", word]);
        if word == "load" {
            command.arg("kv");
        }
        command.arg(self.inventory()).args(more);
        command.env("SCATTER_TESTNET_STATE", self.directory.join("state")).env("SCATTER_BIN", testnet::live::program());
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command that must succeed, and returns its output.
    fn run(&self, word: &str, more: &[&str]) -> String {
        let output = self.net(word, more).output().expect("the program can be started");
        assert!(output.status.success(), "{word} {more:?}: {}", text_of(&output));
        text_of(&output)
    }

    /// Runs a command that must be refused with exit code 2, and returns the reason.
    fn refused(&self, word: &str, more: &[&str]) -> String {
        let output = self.net(word, more).output().expect("the program can be started");
        assert_eq!(output.status.code(), Some(2), "{word} {more:?}: {}", text_of(&output));
        text_of(&output)
    }

    /// Returns the process ids of all processes that have something to do with this network.
    fn processes(&self) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").expect("Linux has processes there");
        let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let marker = self.directory.display().to_string();
        let is_ours = |pid: &u32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains(&marker)
        };
        ids.filter(is_ours).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.inventory().exists() {
            let _ = self.net("down", &["--wipe"]).output();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns what a command printed.
fn text_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Returns the first of `count` ports in a row that are free now, and that no other test of this process got. Systems take ports of outgoing
/// connections from a higher range: one of those may be taken at any moment.
fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = 12_000 + std::process::id() % 190 * 100;
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let port = u16::try_from(first + NEXT.fetch_add(u32::from(count), Ordering::Relaxed)).expect("ports are left");
        if (port..port + count).all(free) {
            return port;
        }
    }
}

/// Returns whether a program is there.
fn is_there(program: &str) -> bool {
    Path::new(program).exists()
}

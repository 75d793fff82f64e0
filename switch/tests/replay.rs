//! `scatter-switch replay`, with the real program on both sides.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_scatter-switch");

/// Switch in software; it ends when this value is dropped.
struct Soft {
    process: Child,
    listen: String,
    p4runtime: String,
}

impl Soft {
    fn start() -> Soft {
        let mut process = Command::new(PROGRAM)
            .args(["soft", "--listen", "127.0.0.1:0", "--p4runtime", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("asked for")).read_line(&mut line).expect("text");
        let field = |name: &str| {
            let value = line.split_whitespace().find_map(|word| word.strip_prefix(name));
            value.unwrap_or_else(|| panic!("no {name} in {line:?}")).to_owned()
        };
        let (listen, p4runtime) = (field("listen="), field("p4runtime="));
        Soft { process, listen, p4runtime }
    }
}

impl Drop for Soft {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn replay(story: &str, target: &str, p4runtime: &str) -> Output {
    let words = ["replay", story, "--target", target, "--p4runtime", p4runtime];
    Command::new(PROGRAM).args(words).output().expect("it runs")
}

#[test]
fn stories_are_played() {
    let soft = Soft::start();
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/testdata");
    let mut played = 0;
    for story in std::fs::read_dir(directory).expect("stories") {
        let story = story.expect("a file").path();
        let out = replay(story.to_str().expect("text"), &soft.listen, &soft.p4runtime);
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(
            out.status.success() && said.ends_with("packets, and all went as the story says\n"),
            "{story:?}: {out:?}"
        );
        played += 1;
    }
    assert!(played > 3);
}

#[test]
fn what_cannot_be_played_is_said() {
    let soft = Soft::start();
    let wrong = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let story = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/testdata/algorithm.txt");
    for (code, story, target, p4runtime, words) in [
        (2, "/nowhere", soft.listen.as_str(), soft.p4runtime.as_str(), "cannot read /nowhere"),
        (2, wrong, &soft.listen, &soft.p4runtime, "Cargo.toml: "),
        (2, "/dev/zero", &soft.listen, &soft.p4runtime, "too long"),
        // No switch forwards packets there.
        (1, story, "127.0.0.1:9", &soft.p4runtime, "scatter-switch: "),
        (1, story, &soft.listen, "127.0.0.1:9", "cannot be controlled"),
    ] {
        let out = replay(story, target, p4runtime);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(code) && said.contains(words), "{story} {target}: {out:?}");
    }
}

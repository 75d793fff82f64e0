//! The clients: how their programs are made, and how each client reacts by itself when an answer does not come as it should.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testnet::tool::{self, run};

use super::proxy::{Fault, HOLD};

/// Number of times that a client sends one command, by the fault that it meets: [`FAULTS`] times the same fault, and then an
/// answer.
///
/// These numbers were measured; `docs/clients.md` states them for each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sends {
    pub lost: usize,
    pub try_again: usize,
    pub uncertain: usize,
    pub silent: usize,
}

/// Number of times in a row that a fault occurs. A client that sends a command once more than this goes on until the command
/// is answered.
pub const FAULTS: usize = 24;
/// Every command is sent once.
pub const ONE: Sends = Sends { lost: 1, try_again: 1, uncertain: 1, silent: 1 };
/// Number of sends of a client that goes on until it is answered: see [`FAULTS`].
pub const UNTIL_ANSWERED: usize = FAULTS + 1;

impl Sends {
    pub fn at(self, fault: Fault) -> usize {
        match fault {
            Fault::Lost => self.lost,
            Fault::TryAgain => self.try_again,
            Fault::Uncertain => self.uncertain,
            Fault::Silent => self.silent,
        }
    }
}

/// One client library.
pub struct Client {
    pub name: &'static str,
    /// Makes the client's program.
    make: fn(&Path) -> Result<Vec<String>, Lack>,
    /// Words before the arguments that all programs take.
    words: &'static [&'static str],
    /// Whether the client takes part in the checks, and not only in the measurement of repeated sends.
    pub checks: bool,
    /// Sends with the client's defaults.
    pub by_default: Sends,
    /// Time that the client waits for an answer with its defaults, or at least [`HOLD`].
    pub waits: Duration,
    /// Whether a setting prevents wrong repetitions of the defaults; with that setting the client sends every command once.
    pub safe: bool,
}

/// Reason why there is no program.
pub enum Lack {
    /// A tool that makes the program is not installed here.
    Tool(String),
    /// The program could not be made.
    Made(String),
}

impl From<String> for Lack {
    fn from(why: String) -> Lack {
        Lack::Made(why)
    }
}

pub const CLIENTS: &[Client] = &[
    Client { name: "redis-cli", make: redis_cli, words: &[], checks: true, by_default: ONE, waits: HOLD, safe: false },
    Client {
        name: "redis-py",
        make: redis_py,
        words: &[],
        checks: true,
        by_default: Sends { lost: 11, silent: 2, ..ONE },
        waits: Duration::from_secs(5),
        safe: true,
    },
    Client {
        name: "go-redis",
        make: go_redis,
        words: &[],
        checks: true,
        by_default: Sends { lost: 4, try_again: 4, uncertain: 1, silent: 2 },
        waits: Duration::from_secs(5),
        safe: true,
    },
    Client {
        name: "node-redis",
        make: |place| node(place, "node-redis.mjs"),
        words: &[],
        checks: true,
        by_default: ONE,
        waits: HOLD,
        safe: true,
    },
    Client {
        name: "ioredis",
        make: |place| node(place, "ioredis.mjs"),
        words: &[],
        checks: true,
        by_default: Sends { lost: UNTIL_ANSWERED, ..ONE },
        waits: HOLD,
        safe: true,
    },
    Client {
        name: "jedis",
        make: |place| java(place, "JedisZoo"),
        words: &[],
        checks: true,
        by_default: ONE,
        waits: Duration::from_secs(2),
        safe: true,
    },
    Client {
        name: "lettuce",
        make: |place| java(place, "LettuceZoo"),
        words: &[],
        checks: true,
        by_default: Sends { lost: UNTIL_ANSWERED, ..ONE },
        waits: HOLD,
        safe: true,
    },
    Client {
        name: "redis-rs",
        make: redis_rs,
        words: &["plain"],
        checks: true,
        by_default: ONE,
        waits: HOLD,
        safe: true,
    },
    Client {
        name: "redis-rs, multiplexed",
        make: redis_rs,
        words: &["multiplexed"],
        checks: false,
        by_default: ONE,
        waits: Duration::from_millis(500),
        safe: true,
    },
    Client {
        name: "redis-rs, managed",
        make: redis_rs,
        words: &["manager"],
        checks: false,
        by_default: ONE,
        waits: Duration::from_millis(500),
        safe: true,
    },
];

impl Client {
    /// Returns the program and the words before all other arguments. `place` is the client's own directory, and is kept.
    ///
    /// # Errors
    /// [`Lack::Tool`] where a tool is missing, and [`Lack::Made`] where the program cannot be made.
    pub fn program(&self, place: &Path) -> Result<Vec<String>, Lack> {
        std::fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
        let mut command = (self.make)(place)?;
        command.extend(self.words.iter().map(|&word| word.to_owned()));
        Ok(command)
    }

    /// Returns the folder in which the program is made: clients of one folder share one.
    pub fn folder(&self) -> &'static str {
        match self.name {
            "node-redis" | "ioredis" => "node",
            "jedis" | "lettuce" => "java",
            name => name.split(',').next().unwrap_or(name),
        }
    }
}

fn zoo(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo").join(folder)
}

fn text(path: &Path) -> String {
    path.to_str().expect("places here have plain names").to_owned()
}

/// Checks whether a program can be run at all.
fn needs(program: &str, arguments: &[&str]) -> Result<(), Lack> {
    let status =
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Lack::Tool(format!("{program} {} does not run here", arguments.join(" ")))),
    }
}

/// Returns the first two numbers of a program's version text: the text of a new release may have only one.
fn version(program: &str, argument: &str) -> Result<(u32, u32), Lack> {
    let lacks = |why: String| Lack::Tool(format!("{program} {argument}: {why}"));
    let output = Command::new(program).arg(argument).output().map_err(|error| lacks(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = said.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
    let first = numbers.next().ok_or_else(|| lacks(format!("says {said:?}")))?;
    Ok((first, numbers.next().unwrap_or(0)))
}

fn at_least(program: &str, argument: &str, wanted: (u32, u32)) -> Result<(), Lack> {
    let found = version(program, argument)?;
    if found >= wanted {
        return Ok(());
    }
    Err(Lack::Tool(format!("{program} is {}.{} here, and {}.{} is needed", found.0, found.1, wanted.0, wanted.1)))
}

/// Makes a program, if its sources have changed since the last time. A download may fail once.
fn once(place: &Path, from: &[PathBuf], make: impl Fn() -> Result<(), String>) -> Result<(), Lack> {
    let contents =
        from.iter().map(|path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", text(path))));
    let contents = contents.collect::<Result<String, String>>()?;
    let made_from = place.join("made-from");
    if std::fs::read_to_string(&made_from).is_ok_and(|made| made == contents) {
        return Ok(());
    }
    make().or_else(|_| make())?;
    std::fs::write(&made_from, contents).map_err(|error| format!("{}: {error}", text(&made_from)))?;
    Ok(())
}

fn redis_cli(_: &Path) -> Result<Vec<String>, Lack> {
    needs("redis-cli", &["--version"])?;
    Ok(vec!["bash".into(), text(&zoo("redis-cli/zoo.sh"))])
}

fn redis_py(place: &Path) -> Result<Vec<String>, Lack> {
    at_least("python3", "--version", (3, 10))?;
    needs("python3", &["-c", "import ensurepip, venv"])?;
    let requirements = zoo("redis-py/requirements.txt");
    let python = place.join("venv/bin/python");
    once(place, std::slice::from_ref(&requirements), || {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(place.join("venv")))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(&requirements))
    })?;
    Ok(vec![text(&python), text(&zoo("redis-py/zoo.py"))])
}

fn go_redis(place: &Path) -> Result<Vec<String>, Lack> {
    // From 1.21 on Go downloads the Go release that a module asks for.
    at_least("go", "version", (1, 21))?;
    let from = ["go.mod", "go.sum", "main.go"].map(|name| zoo("go-redis").join(name));
    let program = place.join("zoo");
    once(place, &from, || {
        let build = ["build", "-mod=readonly", "-o", &text(&program), "."];
        run(Command::new("go").args(build).current_dir(zoo("go-redis")))
    })?;
    Ok(vec![text(&program)])
}

fn node(place: &Path, program: &str) -> Result<Vec<String>, Lack> {
    at_least("node", "--version", (20, 0))?;
    needs("npm", &["--version"])?;
    // A program finds its libraries beside itself, and these do not belong in the source tree.
    let copy = |name: &str| {
        let copied = std::fs::copy(zoo("node").join(name), place.join(name));
        copied.map(|_| ()).map_err(|error| format!("{}: {error}", text(&place.join(name))))
    };
    ["package.json", "package-lock.json", "zoo.mjs", "node-redis.mjs", "ioredis.mjs"]
        .iter()
        .try_for_each(|name| copy(name))?;
    once(place, &[zoo("node/package-lock.json")], || {
        let install = ["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"];
        run(Command::new("npm").args(install).current_dir(place))
    })?;
    Ok(vec!["node".into(), text(&place.join(program))])
}

fn java(place: &Path, program: &str) -> Result<Vec<String>, Lack> {
    at_least("javac", "-version", (17, 0))?;
    needs("mvn", &["-version"])?;
    let (jars, classes) = (place.join("jars"), place.join("classes"));
    let sources = ["Zoo.java", "JedisZoo.java", "LettuceZoo.java"].map(|name| zoo("java").join(name));
    let class_path = format!("{}/*", text(&jars));
    once(place, &[&[zoo("java/pom.xml")], &sources[..]].concat(), || {
        // Libraries of an earlier release would stand on the class path too.
        for old in [&jars, &classes].into_iter().filter(|old| old.exists()) {
            std::fs::remove_dir_all(old).map_err(|error| format!("{}: {error}", text(old)))?;
        }
        let copy = ["-q", "-B", "dependency:copy-dependencies", &format!("-DoutputDirectory={}", text(&jars))];
        run(Command::new("mvn").args(copy).arg("-f").arg(zoo("java/pom.xml")))?;
        run(Command::new("javac").args(["-nowarn", "-cp", &class_path, "-d"]).arg(&classes).args(&sources))
    })?;
    // One core is enough for the program, and it starts sooner.
    let java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"].map(str::to_owned);
    Ok([&java[..], &[format!("{}:{class_path}", text(&classes)), program.to_owned()]].concat())
}

/// Builds the program as cargo builds it for all tests, so that nothing is built twice.
fn redis_rs(_: &Path) -> Result<Vec<String>, Lack> {
    // A test stands in `target/PROFILE/deps`.
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let profile = me.ancestors().nth(2).ok_or("tests stand in a profile's directory".to_owned())?;
    let target = profile.parent().ok_or("a profile's directory stands in the target directory".to_owned())?;
    let mut cargo = tool::cargo();
    cargo.args(["build", "--quiet", "--workspace", "--bins", "--example", "zoo_redis_rs", "--target-dir"]).arg(target);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    run(cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")))?;
    Ok(vec![text(&profile.join("examples/zoo_redis_rs"))])
}

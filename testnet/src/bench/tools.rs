//! Programs of the other stores: made once, and kept in a cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::file::write_text;
use crate::tool::run;

/// Measured release of etcd.
pub const ETCD: &str = "3.7.3";
/// Measured release of ZooKeeper.
pub const ZOOKEEPER: &str = "3.9.5";

/// Programs of the stores, or the reason why one is missing.
pub struct Tools {
    /// Program of this store.
    pub scatter: PathBuf,
    /// Program of etcd.
    pub etcd: Result<PathBuf, String>,
    /// Directory with the jars of ZooKeeper.
    pub zookeeper: Result<PathBuf, String>,
}

impl Tools {
    /// Looks for the programs in the cache, and makes those that are wanted and missing: etcd with Go, ZooKeeper with Maven.
    pub fn prepare(scatter: PathBuf, cache: &Path, etcd: bool, zookeeper: bool) -> Tools {
        let unwanted = || Err("not wanted".to_owned());
        Tools {
            scatter,
            etcd: if etcd { make_etcd(&cache.join(format!("etcd-{ETCD}"))) } else { unwanted() },
            zookeeper: if zookeeper {
                make_zookeeper(&cache.join(format!("zookeeper-{ZOOKEEPER}")))
            } else {
                unwanted()
            },
        }
    }
}

fn make_etcd(directory: &Path) -> Result<PathBuf, String> {
    let program = directory.join("etcd");
    if program.exists() {
        return Ok(program);
    }
    eprintln!("building etcd {ETCD}: once, some minutes");
    write_text(directory, "go.mod", "module etcd-to-measure\n\ngo 1.26\n")?;
    let server = "go.etcd.io/etcd/server/v3";
    run(Command::new("go").args(["get", &format!("{server}@v{ETCD}")]).current_dir(directory))?;
    let build = ["build", "-mod=mod", "-o", "etcd.new", server];
    run(Command::new("go").args(build).current_dir(directory))?;
    // Whole or not at all.
    std::fs::rename(directory.join("etcd.new"), &program).map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(program)
}

fn make_zookeeper(directory: &Path) -> Result<PathBuf, String> {
    let jars = directory.join("jars");
    if jars.exists() {
        return Ok(jars);
    }
    run(Command::new("java").arg("-version"))?;
    eprintln!("fetching ZooKeeper {ZOOKEEPER}: once");
    let pom = format!(
        "<project><modelVersion>4.0.0</modelVersion>\
        <groupId>to</groupId><artifactId>measure</artifactId><version>1</version>\
        <dependencies><dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId>\
        <version>{ZOOKEEPER}</version></dependency>\
        <dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId>\
        <version>4.2.30</version></dependency>\
        <dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId>\
        <version>1.1.10.7</version></dependency></dependencies></project>"
    );
    write_text(directory, "pom.xml", &pom)?;
    let copy = ["-q", "dependency:copy-dependencies", "-DoutputDirectory=jars.new"];
    run(Command::new("mvn").args(copy).current_dir(directory))?;
    std::fs::rename(directory.join("jars.new"), &jars).map_err(|error| format!("{}: {error}", jars.display()))?;
    Ok(jars)
}

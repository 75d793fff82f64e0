//! `scatter export`: prints the records of a store that no peer serves any more, so that they can be saved by hand.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use group::op::Kind;
use group::record::Record;
use node::replicas::keyspace::KeyspaceGenerations;
use node::replicas::storage::{NAMESPACES, Space, decode_record};
use overlay::Key;
use peer::exit::{Exit, fail, note, printed};
use peer::machine::{DirectoryLock, keep_to_owner, store_dir};
use serde_json::Map;
use store::{Engine, StoreConfig};

use super::json;

/// Upper limit of the records of one read, in bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Arguments of `scatter export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The store's directory, as named in the log, such as STORE.lost-1
    dir: PathBuf,
    /// How to print the records
    #[arg(long, value_enum, default_value_t = Form::Json)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A line for each key, with all that is known about it
    Json,
    /// Commands for `redis-cli --pipe`, which set absent keys and leave existing ones alone
    Resp,
}

/// Record found for a key.
struct FoundRecord {
    record: Arc<Record>,
    /// Whether the record is known to be chosen; otherwise this peer accepted it, and it may have been acknowledged or
    /// not.
    chosen: bool,
}

/// Runs `scatter export`.
pub fn export(args: &ExportArgs) -> ExitCode {
    let out = BufWriter::new(io::stdout().lock());
    match run(&args.dir, args.output, out) {
        Ok(told) => {
            note(&format!("{told} keys"));
            Exit::Done.into()
        }
        Err(Failed::Store(why)) => fail(Exit::Refused, &why),
        Err(Failed::Output(error)) => printed(Exit::Done, Err(error)),
    }
}

/// Reason for which an export ended early.
enum Failed {
    /// The store failed, with a text for the user.
    Store(String),
    /// The output failed.
    Output(io::Error),
}

impl From<String> for Failed {
    fn from(why: String) -> Failed {
        Failed::Store(why)
    }
}

fn run(dir: &Path, form: Form, mut out: impl Write) -> Result<u64, Failed> {
    // Opening a store creates it where there is none.
    if !Engine::is_in(dir) {
        return Err(Failed::Store(format!("there is no store in {}", dir.display())));
    }
    Engine::check_format(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    keep_to_owner();
    let _lock = lock_data_dir(dir)?;
    let config = StoreConfig { ballast_bytes: 0, ..StoreConfig::default() };
    let (engine, restored) = Engine::open_dir(dir, &config).map_err(|error| error.to_string())?;
    let lanes = (0..=u8::MAX).map(|lane| Space(Some(lane)));
    let mut told = 0;
    for space in [Space(None)].into_iter().chain(lanes) {
        let life = space.restore_life(&restored.meta).map_err(|error| error.to_string())?;
        let Some((_, keyspace)) = life else { continue };
        let unsettled = unsettled(space, &restored.meta)?;
        told += walk(&engine, space, &keyspace, unsettled, |key, found| print(&mut out, form, key, found))?;
    }
    out.flush().map_err(Failed::Output)?;
    Ok(told)
}

/// Locks the data directory of the peer that owns this store: that peer must not run meanwhile. A store that was put
/// aside can be read while its peer runs.
fn lock_data_dir(dir: &Path) -> Result<Option<DirectoryLock>, String> {
    let dir = dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?;
    let data_dir = dir.parent().filter(|parent| store_dir(parent) == dir && parent.join("identity").is_file());
    data_dir.map(DirectoryLock::take).transpose()
}

/// Returns for each key the last write that this peer accepted and of which it does not know the outcome.
fn unsettled(space: Space, meta: &BTreeMap<Bytes, Bytes>) -> Result<BTreeMap<Key, Arc<Record>>, String> {
    let mut last: BTreeMap<Key, Arc<Record>> = BTreeMap::new();
    for number in 0..NAMESPACES {
        let stored = space.namespace(number).restore(meta, true).map_err(|error| error.to_string())?;
        for write in stored.into_iter().flat_map(|stored| stored.unsettled.into_values()).flatten() {
            let known = last.get(&write.key);
            if known.is_none_or(|known| known.number < write.record.number) {
                last.insert(write.key, write.record);
            }
        }
    }
    Ok(last)
}

/// Passes the newest known record of each key to `tell`, and returns the number of keys told.
fn walk(
    engine: &Engine,
    space: Space,
    keyspace: &KeyspaceGenerations,
    mut unsettled: BTreeMap<Key, Arc<Record>>,
    mut tell: impl FnMut(&Key, &FoundRecord) -> io::Result<u64>,
) -> Result<u64, Failed> {
    let mut told = 0;
    // A store without leftovers has one generation, and few have more than three.
    for generation in 0..=u8::MAX {
        let mut from: Bound<Key> = Bound::Unbounded;
        loop {
            let start = space.scan_start(generation, from.as_ref());
            let (records, done) = engine.scan(&start, PAGE_BYTES).map_err(|error| error.to_string())?;
            let total = records.len();
            let here = records.into_iter().map_while(|(key, value)| {
                let (of, key) = space.key_of(&key)?;
                (of == generation).then_some((key, value))
            });
            let here: Vec<(Key, Bytes)> = here.collect();
            for (key, value) in here.iter().filter(|(key, _)| keyspace.of(key.point()) == generation) {
                let record = decode_record(value).map_err(|error| error.to_string())?;
                let found = match unsettled.remove(key) {
                    Some(newer) if newer.number > record.number => FoundRecord { record: newer, chosen: false },
                    _ => FoundRecord { record, chosen: true },
                };
                told += tell(key, &found).map_err(Failed::Output)?;
            }
            match here.last() {
                Some((last, _)) if !done && here.len() == total => from = Bound::Excluded(last.clone()),
                _ => break,
            }
        }
    }
    for (key, record) in unsettled {
        told += tell(&key, &FoundRecord { record, chosen: false }).map_err(Failed::Output)?;
    }
    Ok(told)
}

/// Prints the record of a key; returns 0 where there is nothing of use to print.
fn print(out: &mut impl Write, form: Form, key: &Key, found: &FoundRecord) -> io::Result<u64> {
    let FoundRecord { record, chosen } = found;
    let Some(value) = &record.value else { return Ok(0) };
    if record.deadline.is_some_and(|deadline| deadline.0 <= environment::unix_ms()) {
        return Ok(0);
    }
    match form {
        Form::Json => {
            let mut object = Map::new();
            json::put(&mut object, "key", key.name());
            json::put(&mut object, "value", value);
            let kind = if record.kind == Kind::Lease { "lease" } else { "value" };
            object.insert("kind".into(), kind.into());
            if let Some(deadline) = record.deadline {
                object.insert("deadline_unix_ms".into(), deadline.0.into());
            }
            let version = format!("{}-{}", record.version.generation, record.version.timestamp);
            object.insert("version".into(), version.into());
            object.insert("chosen".into(), (*chosen).into());
            writeln!(out, "{}", serde_json::Value::Object(object))?;
        }
        // The former holder knows nothing of a ring that has forgotten the lease.
        Form::Resp if record.kind == Kind::Lease => return Ok(0),
        Form::Resp => {
            let deadline = record.deadline.map(|deadline| deadline.0.to_string());
            let mut words: Vec<&[u8]> = vec![b"SET", key.name(), value, b"NX"];
            if let Some(deadline) = &deadline {
                words.extend([&b"PXAT"[..], deadline.as_bytes()]);
            }
            write!(out, "*{}\r\n", words.len())?;
            for word in words {
                write!(out, "${}\r\n", word.len())?;
                out.write_all(word)?;
                out.write_all(b"\r\n")?;
            }
        }
    }
    Ok(1)
}

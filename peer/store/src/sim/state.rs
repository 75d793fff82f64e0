//! The state of a simulated disk, seen and durable, and its change by a power cut.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Fault, Loss, Site};

/// Size of a sector in bytes: writes are torn at multiples of it, or at any byte.
const SECTOR: usize = 512;

#[derive(Clone)]
pub(super) struct SimState {
    /// By a number of their own, since names change apart from content.
    pub(super) files: BTreeMap<u64, File>,
    pub(super) next_file: u64,
    /// The names as a process sees them.
    pub(super) names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
    /// The tables by their numbers.
    pub(super) tables: BTreeMap<u64, StoredTable>,
    /// The tables that a power cut may bring back.
    removed: Vec<(u64, StoredTable)>,
    pub(super) locked: Option<u64>,
    pub(super) process: u64,
    pub(super) down: bool,
    pub(super) calls: u64,
    pub(super) plan: Option<(u64, Fault)>,
    pub(super) plan_at: Option<(Site, Fault)>,
    pub(super) table_hangs: bool,
    pub(super) capacity: u64,
}

#[derive(Clone, Default)]
pub(super) struct File {
    pub(super) seen: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) unsynced: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone)]
enum NameChange {
    Set(String, u64),
    Drop(String),
    /// One step: a power cut leaves the old name or the new one.
    Rename(String, String, u64),
}

/// The changes of one batch.
pub(super) type TableBatch = Vec<(Bytes, Option<Bytes>)>;

#[derive(Clone, Default)]
pub(super) struct StoredTable {
    pub(super) seen: BTreeMap<Bytes, Bytes>,
    durable: BTreeMap<Bytes, Bytes>,
    unsynced: Vec<TableBatch>,
}

impl SimState {
    pub(super) fn new() -> SimState {
        SimState {
            files: BTreeMap::new(),
            next_file: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            tables: BTreeMap::new(),
            removed: Vec::new(),
            locked: None,
            process: 0,
            down: false,
            calls: 0,
            plan: None,
            plan_at: None,
            table_hangs: false,
            capacity: 1 << 40,
        }
    }

    pub(super) fn used(&self) -> u64 {
        let files = self.names.values().map(|id| self.files[id].seen.len() as u64);
        files.sum::<u64>() + self.tables.values().map(StoredTable::bytes).sum::<u64>()
    }

    pub(super) fn set_name(&mut self, name: &str, id: u64) {
        self.names.insert(name.into(), id);
        self.unsynced_names.push(NameChange::Set(name.into(), id));
    }

    pub(super) fn drop_name(&mut self, name: &str) -> Option<u64> {
        let id = self.names.remove(name)?;
        self.unsynced_names.push(NameChange::Drop(name.into()));
        Some(id)
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(id) = self.names.remove(from) else {
            return false;
        };
        self.names.insert(to.into(), id);
        self.unsynced_names.push(NameChange::Rename(from.into(), to.into(), id));
        true
    }

    pub(super) fn sync_names(&mut self) {
        self.durable_names = self.names.clone();
        self.unsynced_names.clear();
        self.removed.clear();
    }

    pub(super) fn remove_table(&mut self, number: u64) {
        self.removed.extend(self.tables.remove(&number).map(|table| (number, table)));
    }

    pub(super) fn restart(&mut self, loss: Loss) {
        self.process += 1;
        self.down = false;
        self.locked = None;
        let mut chance = match loss {
            Loss::Process => return,
            Loss::All => Chance::Never,
            Loss::None => Chance::Always,
            Loss::Some(seed) => Chance::Seeded(seed),
        };
        // In order up to some point, or any of them: only a sync orders names.
        let ordered = chance.coin();
        let kept = chance.prefix(self.unsynced_names.len());
        for (number, change) in self.unsynced_names.drain(..).enumerate() {
            if if ordered { number < kept } else { chance.coin() } {
                change.apply(&mut self.durable_names);
            }
        }
        self.names = self.durable_names.clone();
        for file in self.files.values_mut() {
            file.crash(&mut chance);
        }
        let names = &self.names;
        self.files.retain(|id, _| names.values().any(|named| named == id));
        for (number, table) in self.removed.drain(..) {
            if !self.tables.contains_key(&number) && chance.coin() {
                self.tables.insert(number, table);
            }
        }
        self.tables.values_mut().for_each(|table| table.crash(&mut chance));
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Set(name, id) => drop(names.insert(name, id)),
            NameChange::Drop(name) => drop(names.remove(&name)),
            NameChange::Rename(from, to, id) => {
                names.remove(&from);
                names.insert(to, id);
            }
        }
    }
}

impl File {
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.seen, at, bytes);
        self.unsynced.push((at, bytes.to_vec()));
    }

    pub(super) fn sync(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.unsynced) {
            put(&mut self.durable, at, &bytes);
        }
    }

    fn crash(&mut self, chance: &mut Chance) {
        let writes = std::mem::take(&mut self.unsynced);
        if chance.coin() {
            // In order, the last one torn at any byte.
            let kept = chance.prefix(writes.len());
            for (at, bytes) in &writes[..kept] {
                put(&mut self.durable, *at, bytes);
            }
            if let Some((at, bytes)) = writes.get(kept) {
                let torn = chance.prefix(bytes.len());
                put(&mut self.durable, *at, &bytes[..torn]);
            }
        } else {
            // In any order, sector by sector.
            for (at, bytes) in &writes {
                let mut done = 0;
                while done < bytes.len() {
                    let now = (SECTOR - (at + done) % SECTOR).min(bytes.len() - done);
                    if chance.coin() {
                        put(&mut self.durable, at + done, &bytes[done..done + now]);
                    }
                    done += now;
                }
            }
        }
        self.seen = self.durable.clone();
    }
}

impl StoredTable {
    pub(super) fn bytes(&self) -> u64 {
        self.seen.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }

    pub(super) fn apply(&mut self, batch: TableBatch) {
        change(&mut self.seen, &batch);
        self.unsynced.push(batch);
    }

    pub(super) fn sync(&mut self) {
        for batch in std::mem::take(&mut self.unsynced) {
            change(&mut self.durable, &batch);
        }
    }

    /// Applies a failed sync: the bytes that it should have written never become durable, and stay readable.
    pub(super) fn forget(&mut self) {
        self.unsynced.clear();
    }

    fn crash(&mut self, chance: &mut Chance) {
        let batches = std::mem::take(&mut self.unsynced);
        let kept = chance.prefix(batches.len());
        for batch in &batches[..kept] {
            change(&mut self.durable, batch);
        }
        self.seen = self.durable.clone();
    }
}

fn change(map: &mut BTreeMap<Bytes, Bytes>, batch: &TableBatch) {
    for (key, value) in batch {
        match value {
            Some(value) => drop(map.insert(key.clone(), value.clone())),
            None => drop(map.remove(key)),
        }
    }
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The rule by which changes survive.
enum Chance {
    Never,
    Always,
    Seeded(u64),
}

impl Chance {
    /// Returns how many of the first of `all` survive.
    fn prefix(&mut self, all: usize) -> usize {
        match self {
            Chance::Never => 0,
            Chance::Always => all,
            Chance::Seeded(_) => (self.next() % (all as u64 + 1)) as usize,
        }
    }

    fn coin(&mut self) -> bool {
        match self {
            Chance::Never => false,
            Chance::Always => true,
            Chance::Seeded(_) => self.next() & 1 == 1,
        }
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        let Chance::Seeded(state) = self else {
            return 0;
        };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = *state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

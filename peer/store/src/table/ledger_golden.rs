//! Access of the golden files to the books.

use super::*;

const SUM: Sum = Sum { entries: 0x0102, bytes: 0x0304_0506, hash: 1 << 120 | 9 };

fn books() -> Books {
    let ranges = BTreeMap::from([(Bytes::new(), SUM), (Bytes::from("m"), Sum::default())]);
    Books { stored: true, portions: 0x1112_1314, seq: 0x2122_2324, total: SUM, ranges }
}

/// Returns entries of each kind: a name, the key, and the value under its seal.
pub(crate) fn entries() -> Vec<(&'static str, Bytes, Bytes)> {
    let books = books();
    let sealed = |name, key: Bytes, value: &[u8]| (name, key.clone(), seal(&key, value));
    vec![
        sealed("total", Bytes::from_static(TOTAL), &books.encode_total()),
        sealed("first range", range_key(b""), &SUM.encode()),
        sealed("second range", range_key(b"m"), &Sum::default().encode()),
        sealed("block", record_key(b"a key"), b"a block"),
    ]
}

/// Reads the books of a table with these entries, by their names.
pub(crate) fn reads_back(stored: impl Fn(&str) -> (Bytes, Bytes)) {
    let disk = crate::sim::SimDisk::new();
    let table = crate::table::Tables::open(&disk.tables(), 1).unwrap();
    let table = Pieces::new(table, 1000).unwrap();
    let changes: Vec<_> =
        ["total", "first range", "second range"].map(&stored).map(|(key, value)| (key, Some(value))).into();
    table.apply(&changes).unwrap();
    let (read, _) = Books::read(&table).unwrap();
    let books = books();
    assert_eq!((read.portions, read.seq, read.total), (books.portions, books.seq, books.total));
    assert_eq!(read.ranges, books.ranges);
    // A total of another version.
    let (_, total) = stored("total");
    let mut other = unseal(TOTAL, &total).unwrap().to_vec();
    other[0] ^= 1;
    table.apply(&[(Bytes::from_static(TOTAL), Some(seal(TOTAL, &other)))]).unwrap();
    let refused = Books::read(&table).err();
    let found = StoreFormat { container: CONTAINER_VERSION ^ 1, ..StoreFormat::OURS };
    assert_eq!(refused, Some(StoreError::Version { found, by: None }));
}

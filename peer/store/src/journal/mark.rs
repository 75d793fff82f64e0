//! The mark: the last frame that is known to be durable, kept outside of the journal.
//!
//! The journal alone cannot tell an unfinished last frame from one that was synced and went bad later. Nor can it detect that
//! its end is gone. So, once no batch was committed for a moment, the number of the last frame is written here and synced. Under
//! steady load it is written at intervals, and left to the system. A frame up to the mark that is bad or missing is damage; a
//! trace of a frame behind it is doubt (see [`replay`](crate::journal::replay)).
//!
//! ```text
//! two slots, at 0 and at 4096: magic u32 | seq u64 | crc32 of the salt and these 12 bytes u32
//! ```
//! Each slot lies within a sector of its own. One of them is durable while the other is written: a power cut leaves at least
//! that one.

use std::sync::Arc;

use crate::codec::Reader;
use crate::disk::{Disk, DiskFile};
use crate::error::{Doing, StoreError};
use crate::journal::frame::crc;

/// Name of the mark's file.
pub(crate) const MARK: &str = "mark";

const MAGIC: u32 = 0x314d_4353; // "SCM1"
const SLOT: usize = 4096;
const FIELDS: usize = 16;

/// The mark, open for writing.
pub(crate) struct Mark {
    file: Box<dyn DiskFile>,
    salt: u64,
    /// The slot that is written next: the other one is durable.
    next: usize,
    seq: u64,
    /// The highest number that was written to a slot, synced or not.
    noted: u64,
}

impl Mark {
    /// Creates a new mark at frame 0. The file's name is durable once the caller has synced the directory.
    pub(crate) fn make(disk: &Arc<dyn Disk>, salt: u64) -> Result<Mark, StoreError> {
        let mut file = disk.create(MARK).doing(|| "creating the mark".into())?;
        let mut content = slot(salt, 0);
        content.resize(2 * SLOT, 0);
        file.write_at(0, &content).doing(|| "writing the mark".into())?;
        file.sync().doing(|| "syncing the mark".into())?;
        Ok(Mark { file, salt, next: 1, seq: 0, noted: 0 })
    }

    /// Opens the existing mark.
    ///
    /// # Errors
    /// [`StoreError::is_damage`] where there is none, or neither slot is sound.
    pub(crate) fn open(disk: &Arc<dyn Disk>, salt: u64) -> Result<Mark, StoreError> {
        let files = disk.list().doing(|| "listing the store's directory".into())?;
        if !files.iter().any(|(name, _)| name == MARK) {
            return Err(StoreError::damaged("the journal's mark is missing"));
        }
        let mut file = disk.open(MARK).doing(|| "opening the mark".into())?;
        let content = file.read_all(1 << 16).doing(|| "reading the mark".into())?;
        if content.len() != 2 * SLOT {
            return Err(StoreError::damaged(format!("the journal's mark is {} bytes long", content.len())));
        }
        let slots = [0, 1].map(|index| content.get(index * SLOT..).and_then(|bytes| seq_of(salt, bytes)));
        let (newest, seq) = match slots {
            [Some(first), second] if second.is_none_or(|second| second < first) => (0, first),
            [_, Some(second)] => (1, second),
            _ => return Err(StoreError::damaged("the journal's mark is unreadable")),
        };
        // The newest slot may have been noted only.
        file.sync().doing(|| "syncing the mark".into())?;
        Ok(Mark { file, salt, next: 1 - newest, seq, noted: seq })
    }

    /// Returns the last frame that is known to be durable, with all frames before it.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Marks all frames up to this one as durable; the mark is durable when this returns. Nothing is written where it was known.
    pub(crate) fn advance(&mut self, seq: u64) -> Result<(), StoreError> {
        if seq <= self.seq {
            return Ok(());
        }
        self.file.write_at((self.next * SLOT) as u64, &slot(self.salt, seq)).doing(|| "writing the mark".into())?;
        self.file.sync().doing(|| "syncing the mark".into())?;
        (self.next, self.seq) = (1 - self.next, seq);
        self.noted = self.noted.max(seq);
        Ok(())
    }

    /// Notes that all frames up to this one are durable, without a sync: for any fate of this note, the mark before it stands.
    pub(crate) fn note(&mut self, seq: u64) -> Result<(), StoreError> {
        if seq <= self.noted {
            return Ok(());
        }
        self.file.write_at((self.next * SLOT) as u64, &slot(self.salt, seq)).doing(|| "writing the mark".into())?;
        self.noted = seq;
        Ok(())
    }
}

fn slot(salt: u64, seq: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * SLOT);
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bytes.extend_from_slice(&seq.to_le_bytes());
    bytes.extend_from_slice(&crc(salt, &bytes).to_le_bytes());
    bytes
}

fn seq_of(salt: u64, bytes: &[u8]) -> Option<u64> {
    let fields = bytes.get(..FIELDS)?;
    let mut reader = Reader::new(fields);
    let (magic, seq, sum) = (reader.u32()?, reader.u64()?, reader.u32()?);
    (magic == MAGIC && sum == crc(salt, &fields[..FIELDS - 4])).then_some(seq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Loss, SimDisk};

    fn disk() -> Arc<dyn Disk> {
        Arc::new(SimDisk::new())
    }

    fn flip(disk: &Arc<dyn Disk>, bit: usize) {
        let mut file = disk.open(MARK).unwrap();
        let byte = file.read_all(1 << 16).unwrap()[bit / 8] ^ 1 << (bit % 8);
        file.write_at((bit / 8) as u64, &[byte]).unwrap();
    }

    #[test]
    fn the_newest_sound_slot_counts() {
        let disk = disk();
        let mut mark = Mark::make(&disk, 7).unwrap();
        for seq in [3, 4, 9] {
            mark.advance(seq).unwrap();
            assert_eq!(Mark::open(&disk, 7).unwrap().seq(), seq);
        }
        mark.advance(8).unwrap();
        assert_eq!(Mark::open(&disk, 7).unwrap().seq(), 9, "it never goes back");
        assert!(Mark::open(&disk, 8).err().is_some_and(|error| error.is_damage()), "another store's");
    }

    /// A note counts while the system lives; after any power cut the mark before stands, also where other marks follow.
    #[test]
    fn a_note_is_a_mark_until_the_power_goes_out() {
        let sim = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let mut mark = Mark::make(&disk, 7).unwrap();
        disk.sync_dir().unwrap();
        mark.advance(3).unwrap();
        for seq in [5, 7, 6] {
            mark.note(seq).unwrap();
        }
        assert_eq!(mark.seq(), 3, "nothing else is known to be durable");
        let seq_after = |loss| Mark::open(&(Arc::new(sim.fork().restart(loss)) as Arc<dyn Disk>), 7).unwrap().seq();
        assert_eq!((seq_after(Loss::Process), seq_after(Loss::All)), (7, 3));
        // Read back after a kill, the note is synced before the other slot is written.
        let killed = sim.restart(Loss::Process);
        let disk: Arc<dyn Disk> = Arc::new(killed.clone());
        let mut mark = Mark::open(&disk, 7).unwrap();
        mark.note(9).unwrap();
        flip(&disk, SLOT * 8);
        assert_eq!(Mark::open(&(Arc::new(killed.restart(Loss::All)) as Arc<dyn Disk>), 7).unwrap().seq(), 7);
    }

    /// For any damage to the slot that is being written, the one before stands; and the bad slot is written next.
    #[test]
    fn one_bad_slot_leaves_the_other() {
        for bit in 0..FIELDS * 8 {
            let disk = disk();
            let mut mark = Mark::make(&disk, 7).unwrap();
            mark.advance(3).unwrap();
            mark.advance(4).unwrap(); // In the first slot.
            flip(&disk, bit);
            let mut mark = Mark::open(&disk, 7).unwrap();
            assert_eq!(mark.seq(), 3, "bit {bit}");
            mark.advance(5).unwrap();
            assert_eq!(Mark::open(&disk, 7).unwrap().seq(), 5, "bit {bit}");
            flip(&disk, bit);
            flip(&disk, SLOT * 8 + bit);
            assert!(Mark::open(&disk, 7).err().is_some_and(|error| error.is_damage()), "bit {bit}");
        }
    }
}

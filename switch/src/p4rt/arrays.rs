//! Counters and registers: arrays with cells that packets change.

use tonic::Code;

use super::p4info::{VERDICTS, register};
use super::problem::Problem;
use super::proto::p4::v1::{self, entity::Entity, update};
use super::target::{Counted, Target};
use super::value;
use crate::dirty::{Mark, Slot};
use crate::pipeline::{Pipeline, Register};

/// Upper limit of cells that are read or written at once: no packet passes in the meantime.
const CELLS: usize = 4096;

/// Bytes of a cell; in a slot, the first four are zero.
type Cell = [u8; 24];

/// One of this program's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Array {
    Partitions,
    Stage(usize),
}

impl Array {
    fn of(id: u32) -> Result<Array, Problem> {
        if id == register::PARTITION_STATE {
            return Ok(Array::Partitions);
        }
        let stage = register::STAGES.iter().position(|stage| *stage == id);
        stage.map(Array::Stage).ok_or_else(|| Problem::invalid(format!("there is no register {id:#010x}")))
    }

    fn id(self) -> u32 {
        match self {
            Array::Partitions => register::PARTITION_STATE,
            Array::Stage(stage) => register::STAGES[stage],
        }
    }

    fn bits(self) -> u32 {
        match self {
            Array::Partitions => register::PARTITION_STATE_BITS,
            Array::Stage(_) => register::SLOT_BITS,
        }
    }

    fn len(self, target: &dyn Target) -> usize {
        let mut length = 0;
        target.with_pipeline(&mut |pipeline| {
            length = match self {
                Array::Partitions => pipeline.registers().len(),
                Array::Stage(_) => pipeline.dirty().slots(),
            };
        });
        length
    }

    fn get(self, pipeline: &Pipeline, place: usize) -> Cell {
        match self {
            Array::Partitions => {
                let Register { mark, sequence, committed } = pipeline.registers()[place];
                cell([mark.partition, mark.switch], [sequence, committed])
            }
            Array::Stage(stage) => {
                let Slot { mark, object, sequence } = pipeline.dirty().stages()[stage][place];
                let high = u64::from(mark.switch) << 32 | u64::from(object);
                cell([0, mark.partition], [high, sequence])
            }
        }
    }

    /// Sets some cells to one value. The pipeline lends whole arrays, which costs more than the passage of a packet.
    fn set(self, pipeline: &mut Pipeline, places: std::ops::Range<usize>, cell: Cell) {
        let short = |at: usize| u32::from_be_bytes([cell[at], cell[at + 1], cell[at + 2], cell[at + 3]]);
        let long = |at: usize| u64::from(short(at)) << 32 | u64::from(short(at + 4));
        match self {
            Array::Partitions => {
                let mark = Mark { partition: short(0), switch: short(4) };
                let register = Register { mark, sequence: long(8), committed: long(16) };
                pipeline.registers_mut()[places].fill(register);
            }
            Array::Stage(stage) => {
                let mark = Mark { partition: short(4), switch: short(8) };
                let slot = Slot { mark, object: short(12), sequence: long(16) };
                if let Some(slots) = pipeline.dirty_mut().stage_mut(stage) {
                    slots[places].fill(slot);
                }
            }
        }
    }
}

fn cell(short: [u32; 2], long: [u64; 2]) -> Cell {
    let mut cell = [0; 24];
    for (place, number) in short.into_iter().enumerate() {
        cell[4 * place..][..4].copy_from_slice(&number.to_be_bytes());
    }
    for (place, number) in long.into_iter().enumerate() {
        cell[8 + 8 * place..][..8].copy_from_slice(&number.to_be_bytes());
    }
    cell
}

/// Returns a place in an array of `length` cells, or all places.
fn places(index: Option<&v1::Index>, length: usize) -> Result<std::ops::Range<usize>, Problem> {
    match index.map(|index| index.index) {
        None => Ok(0..length),
        Some(index @ ..0) => Err(Problem::invalid(format!("index {index}"))),
        Some(index) => match usize::try_from(index).ok().filter(|index| *index < length) {
            Some(index) => Ok(index..index + 1),
            None => Err(Problem::new(Code::OutOfRange, format!("there are {length} cells"))),
        },
    }
}

/// Cells that were read from one array. There are many, so they become entities one by one.
#[derive(Debug)]
pub struct Cells {
    array: Array,
    first: usize,
    cells: Vec<Cell>,
}

impl Cells {
    /// Returns the cells as entities, in their encoding for the wire.
    pub fn entities(self) -> impl Iterator<Item = v1::Entity> + Send {
        let Cells { array, first, cells } = self;
        (first..).zip(cells).map(move |(place, cell)| {
            let data = v1::p4_data::Data::Bitstring(value::canonical(&cell).to_vec());
            let entry = v1::RegisterEntry {
                register_id: array.id(),
                index: Some(v1::Index { index: place as i64 }),
                data: Some(v1::P4Data { data: Some(data) }),
            };
            v1::Entity { entity: Some(Entity::RegisterEntry(entry)) }
        })
    }
}

/// Reads cells of a register, or of all registers.
///
/// # Errors
/// If no such cells exist.
pub fn read_registers(asked: &v1::RegisterEntry, target: &dyn Target) -> Result<Vec<Cells>, Problem> {
    let arrays = match asked.register_id {
        0 => [Array::Partitions, Array::Stage(0), Array::Stage(1), Array::Stage(2)].to_vec(),
        id => vec![Array::of(id)?],
    };
    let mut read = Vec::new();
    for array in arrays {
        let places = places(asked.index.as_ref(), array.len(target))?;
        let first = places.start;
        let mut cells = Vec::with_capacity(places.len());
        for start in places.clone().step_by(CELLS) {
            target.with_pipeline(&mut |pipeline| {
                let end = places.end.min(start + CELLS);
                cells.extend((start..end).map(|place| array.get(pipeline, place)));
            });
        }
        read.push(Cells { array, first, cells });
    }
    Ok(read)
}

/// Sets one cell of a register, or all of its cells.
///
/// # Errors
/// If no such cell exists, the value does not fit into it, or the update is not a modification. Nothing has changed then.
pub fn write_register(kind: update::Type, entry: &v1::RegisterEntry, target: &dyn Target) -> Result<(), Problem> {
    if kind != update::Type::Modify {
        return Err(Problem::invalid("registers always exist, and can only be modified"));
    }
    let array = Array::of(entry.register_id)?;
    let places = places(entry.index.as_ref(), array.len(target))?;
    let Some(v1::p4_data::Data::Bitstring(bytes)) = entry.data.as_ref().and_then(|data| data.data.as_ref()) else {
        return Err(Problem::invalid("a cell of a register must be a bit string"));
    };
    let bytes = value::check(bytes, array.bits())?;
    let mut cell = Cell::default();
    let behind = cell.len() - bytes.len();
    cell[behind..].copy_from_slice(&bytes);
    for start in places.clone().step_by(CELLS) {
        target.with_pipeline(&mut |pipeline| array.set(pipeline, start..places.end.min(start + CELLS), cell));
    }
    Ok(())
}

/// Reads counters of the program's only array of counters.
///
/// # Errors
/// If no such counters exist.
pub fn read_counters(asked: &v1::CounterEntry, target: &dyn Target) -> Result<Vec<v1::Entity>, Problem> {
    let places = counters(asked.counter_id, asked.index.as_ref(), true)?;
    let counters = target.counters();
    let entity = |place: usize| {
        let packet_count = i64::try_from(counters[place]).unwrap_or(i64::MAX);
        let entry = v1::CounterEntry {
            counter_id: VERDICTS,
            index: Some(v1::Index { index: place as i64 }),
            // The array counts packets only.
            data: Some(v1::CounterData { byte_count: 0, packet_count }),
        };
        v1::Entity { entity: Some(Entity::CounterEntry(entry)) }
    };
    Ok(places.map(entity).collect())
}

/// Sets one counter, or all of them.
///
/// # Errors
/// If no such counter exists, the value is negative, or the update is not a modification. Nothing has changed then.
pub fn write_counter(kind: update::Type, entry: &v1::CounterEntry, target: &dyn Target) -> Result<(), Problem> {
    if kind != update::Type::Modify {
        return Err(Problem::invalid("counters always exist, and can only be modified"));
    }
    let places = counters(entry.counter_id, entry.index.as_ref(), false)?;
    let Some(data) = &entry.data else { return Ok(()) };
    let packets =
        u64::try_from(data.packet_count).map_err(|_| Problem::invalid("a packet count must not be negative"))?;
    places.for_each(|place| target.set_counter(Counted::ALL[place], packets));
    Ok(())
}

fn counters(id: u32, index: Option<&v1::Index>, may_be_all: bool) -> Result<std::ops::Range<usize>, Problem> {
    match id {
        VERDICTS => places(index, Counted::ALL.len()),
        0 if may_be_all => places(index, Counted::ALL.len()),
        id => Err(Problem::invalid(format!("there is no counter {id:#010x}"))),
    }
}

#[cfg(test)]
#[path = "arrays_test.rs"]
mod tests;

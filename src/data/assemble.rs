//! Makes one batch: reads the samples one by one and writes each straight into its row of a slot.
//! Loader workers and a loader without workers share this code; they differ in where slots come
//! from ([`Space`]).

use super::dataset::Dataset;
use super::layout::{BatchLayout, Field, SlotMemory};
use super::panics::guarded;
use super::sample::{Rows, SampleWriter};
use crate::error::{Error, Result};

/// Where a batch is put.
pub(super) trait Space {
    /// A slot of at least `bytes` bytes. It may be called again for the same batch with a larger
    /// size: then the first `keep` bytes are as they were. `None`: nobody wants the batch any more.
    fn reserve(&mut self, bytes: usize, keep: usize) -> Result<Option<SlotMemory>>;

    /// Sample `index` is about to be read. False: nobody wants the batch any more.
    fn reading(&mut self, index: usize) -> bool;
}

/// Why there is no batch.
#[derive(Debug)]
pub(super) enum Failure {
    /// The dataset failed at this index: what it said.
    Dataset { index: usize, message: String },
    /// The loader itself failed.
    Loader(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Loader(error)
    }
}

/// Reads the samples at `indices`, of which there is at least one, into a slot. `None` when `space`
/// says that nobody wants them.
pub(super) fn assemble<D: Dataset>(
    dataset: &D,
    indices: impl ExactSizeIterator<Item = usize>,
    space: &mut impl Space,
) -> Result<Option<BatchLayout>, Failure> {
    let count = indices.len();
    let mut rows: Option<(Rows, usize)> = None;
    for (row, index) in indices.enumerate() {
        if !space.reading(index) {
            return Ok(None);
        }
        let failed = |message| Failure::Dataset { index, message };
        let sample = guarded(|| dataset.get(index))
            .and_then(|result| result.map_err(|e| e.to_string()))
            .map_err(failed)?;
        let (rows, first) = match &mut rows {
            Some(rows) => rows,
            none => {
                let fields = guarded(|| SampleWriter::describe(&sample)).map_err(failed)?;
                let layout = BatchLayout::plan(fields, count)?;
                let Some(slot) = space.reserve(layout.end, 0)? else { return Ok(None) };
                let tails = vec![Vec::new(); layout.columns.len()];
                none.insert((Rows { layout, slot, tails }, index))
            }
        };
        guarded(|| SampleWriter::store(&sample, rows, row))
            .and_then(|result| result.map_err(|m| format!("{m}, index {first}")))
            .map_err(failed)?;
    }
    let (mut rows, _) = rows.expect("a batch has at least one sample");
    Ok(store_tails(&mut rows, space)?.then_some(rows.layout))
}

/// Puts the byte strings, whose size is only known now, behind the columns, and writes the table.
/// False: nobody wants the batch any more.
fn store_tails(rows: &mut Rows, space: &mut impl Space) -> Result<bool> {
    let columns_end = rows.layout.end;
    for column in 0..rows.layout.columns.len() {
        if rows.layout.columns[column].field == Field::Bytes {
            rows.layout.place_tail(column, rows.tails[column].len());
        }
    }
    if rows.layout.end > rows.slot.len {
        match space.reserve(rows.layout.end, columns_end)? {
            Some(slot) => rows.slot = slot,
            None => return Ok(false),
        }
    }
    for (column, tail) in rows.layout.columns.iter().zip(&rows.tails) {
        // SAFETY: the layout's end, which is behind every tail, was compared with the slot's length.
        unsafe {
            let to = rows.slot.ptr.add(column.tail);
            to.copy_from_nonoverlapping(tail.as_ptr(), tail.len());
        }
    }
    rows.layout.write_table(rows.slot);
    Ok(true)
}

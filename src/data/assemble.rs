//! Makes one batch: reads the samples one by one and writes each straight into its row of a slot.
//! Loader workers and a loader without workers share this code; they differ in where slots come
//! from ([`Space`]).

use super::arena::Slot;
use super::dataset::{Dataset, with_generator};
use super::layout::BatchLayout;
use super::panics::guarded;
use super::sample::Sample;
use super::writer::{Rows, SampleWriter};
use crate::error::{Error, Result};

/// Who a batch is made for.
pub(super) trait Space {
    /// A slot of at least `bytes` bytes.
    fn take(&mut self, bytes: usize) -> Result<Slot>;

    /// Whether a batch of this size is better written past the cache.
    fn is_streaming(&self, bytes: usize) -> bool;

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

/// A batch that is being made of samples, one after the other.
pub(super) struct Assembly {
    count: usize,
    row: usize,
    begun: Option<(Rows, Slot, usize)>,
}

impl Assembly {
    /// For a batch of `count` samples.
    pub fn new(count: usize) -> Self {
        Assembly { count, row: 0, begun: None }
    }

    /// Writes the next sample, which is called `index` in messages.
    pub fn push(
        &mut self,
        index: usize,
        write: impl Fn(&mut SampleWriter),
        space: &mut impl Space,
    ) -> Result<(), Failure> {
        let failed = |message| Failure::Dataset { index, message };
        let (rows, _, first) = match &mut self.begun {
            Some(begun) => begun,
            none => {
                let fields =
                    guarded(|| SampleWriter::describe(|out| write(out))).map_err(failed)?;
                let layout = BatchLayout::plan(fields, self.count)?;
                let slot = space.take(layout.end)?;
                let tails = vec![Vec::new(); layout.columns.len()];
                let (memory, streaming) = (slot.memory(), space.is_streaming(layout.end));
                let rows = Rows { layout, memory, streaming, tails };
                none.insert((rows, slot, index))
            }
        };
        guarded(|| SampleWriter::store(|out| write(out), rows, self.row))
            .and_then(|result| result.map_err(|m| format!("{m}, index {first}")))
            .map_err(failed)?;
        self.row += 1;
        Ok(())
    }

    /// The finished batch, whose samples are all there.
    ///
    /// # Panics
    /// If they are not.
    #[track_caller]
    pub fn finish(self, space: &mut impl Space) -> Result<(BatchLayout, Slot)> {
        assert_eq!(self.row, self.count, "samples of a batch");
        let (mut rows, mut slot, _) = self.begun.expect("a batch has at least one sample");
        let columns_end = rows.layout.end;
        rows.place_tails();
        if rows.layout.end > rows.memory.len {
            // Only now is known how long the byte strings are.
            let larger = space.take(rows.layout.end)?;
            // SAFETY: both slots hold the columns and are in use by this batch alone.
            unsafe { larger.memory().ptr.copy_from_nonoverlapping(rows.memory.ptr, columns_end) };
            rows.memory = larger.memory();
            slot = larger;
        }
        rows.finish();
        Ok((rows.layout, slot))
    }
}

/// Reads the samples at `indices`, of which there is at least one, into a slot. `None` when `space`
/// says that nobody wants them.
pub(super) fn assemble<D: Dataset>(
    dataset: &D,
    indices: impl ExactSizeIterator<Item = usize>,
    space: &mut impl Space,
) -> Result<Option<(BatchLayout, Slot)>, Failure> {
    let mut assembly = Assembly::new(indices.len());
    for index in indices {
        if !space.reading(index) {
            return Ok(None);
        }
        let sample = guarded(|| with_generator(index, || dataset.get(index)))
            .and_then(|result| result.map_err(|e| e.to_string()))
            .map_err(|message| Failure::Dataset { index, message })?;
        assembly.push(index, |out| sample.write(out), space)?;
    }
    Ok(Some(assembly.finish(space)?))
}

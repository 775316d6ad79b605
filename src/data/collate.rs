//! A batch of samples that are there already.

use std::sync::Arc;

use super::arena::{Slot, Slots};
use super::assemble::{Assembly, Failure, Space};
use super::columns::Columns;
use super::sample::Sample;
use crate::error::{Error, Result};
use crate::tensor::Device;

/// The batch of some samples (`torch.utils.data.default_collate`), as a [`DataLoader`](super::DataLoader) makes it:
/// the table at [`Sample`] says what it is.
///
/// ```
/// use std::collections::BTreeMap;
/// use torchrs::data::default_collate;
/// let row = |x: f32, y: f32| BTreeMap::from([("x".to_owned(), x), ("y".to_owned(), y)]);
/// let batch = default_collate(&[row(1.0, 2.0), row(3.0, 4.0)])?;
/// assert_eq!(batch["y"].to_vec::<f32>(), [2.0, 4.0]);
/// let error = default_collate(&[vec![1i64], vec![2, 3]]).unwrap_err().to_string();
/// assert!(error.contains("field 0 is i64 [2], but i64 [1] in the batch's first sample"));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] when there is no sample or one is unlike the first, [`Error::Os`] without memory.
pub fn default_collate<S: Sample>(samples: &[S]) -> Result<S::Batch> {
    let wrong = |message: String| Error::argument("default_collate", "samples", message);
    if samples.is_empty() {
        return Err(wrong("are none: a batch has at least one".to_owned()));
    }
    let mut space = Own(Slots::new(1));
    let mut assembly = Assembly::new(samples.len());
    for (index, sample) in samples.iter().enumerate() {
        assembly.push(index, |out| sample.write(out), &mut space).map_err(
            |failure| match failure {
                Failure::Dataset { index, message } => wrong(format!("sample {index}: {message}")),
                Failure::Loader(error) => error,
            },
        )?;
    }
    let (layout, slot) = assembly.finish(&mut space)?;
    let (memory, start) = (slot.arena().memory.clone(), slot.start());
    let mut columns = Columns::new(layout, memory, start, Arc::new(slot), Device::Cpu);
    Ok(S::batch(&mut columns))
}

/// Memory for one batch.
struct Own(Slots);

impl Space for Own {
    fn take(&mut self, bytes: usize) -> Result<Slot> {
        self.0.take(bytes).map(|(slot, _)| slot)
    }

    fn is_streaming(&self, _bytes: usize) -> bool {
        false
    }

    fn reading(&mut self, _index: usize) -> bool {
        true
    }
}

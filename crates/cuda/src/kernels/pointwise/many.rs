//! One update of many tensors: a few launches instead of one for each.

use smallvec::SmallVec;

use super::programs::program;
use super::walk::{MOST_PARAMS, THREADS, numbers};
use crate::kernels::launch::{self, Argument, Shape};
use crate::work::stream::Stream;
use crate::work::traffic;
use torchrs_error::{Error, Result};
use torchrs_loops::{Compute, Constant, Format, Text};

/// Elements of a block's piece, tensors of a launch, operands of an update: as in `kernels/pointwise.cuh`.
const PIECE: usize = 8192;
const MOST_TENSORS: usize = 40;
const MOST_UPDATED: usize = 8;

/// What one update of the same formula, parameters and element type works on.
pub struct Update {
    /// The dense operands in the order of the formula's inputs.
    pub at: SmallVec<[*mut u8; MOST_UPDATED]>,
    /// Elements of each.
    pub count: usize,
}

/// `Many` of `kernels/pointwise.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Many {
    params: [f64; MOST_PARAMS],
    at: [[*mut u8; MOST_UPDATED]; MOST_TENSORS],
    counts: [i64; MOST_TENSORS],
    blocks: [i32; MOST_TENSORS],
    tensors: i32,
    reserved: i32,
    written: [i32; MOST_UPDATED],
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Many {}

/// Runs the update `text` on all of `updates`, whose elements have one format; `written` are the places of the
/// operands that change.
///
/// # Errors
/// [`Error::Device`] where there is no text, or the device or the compiler refuses.
///
/// # Safety
/// Every address is of so many elements on the stream's device, valid until the stream has done this work;
/// nothing that is written is another operand's memory.
pub unsafe fn execute_many(
    text: Option<&'static Text>,
    (compute, format): (Compute, Format),
    params: &[Constant],
    written: &[usize],
    updates: &[Update],
    stream: Stream,
) -> Result<()> {
    let refusal = || Error::Device("this update runs on one tensor at a time".to_owned());
    let text = text.ok_or_else(refusal)?;
    let many = &program(text, compute).many;
    let (_, entry) = many.iter().find(|(own, _)| *own == format).ok_or_else(refusal)?;
    assert!(params.len() <= MOST_PARAMS && text.inputs.len() <= MOST_UPDATED);
    let mut all = Many {
        params: [0.0; MOST_PARAMS],
        at: [[std::ptr::null_mut(); MOST_UPDATED]; MOST_TENSORS],
        counts: [0; MOST_TENSORS],
        blocks: [0; MOST_TENSORS],
        tensors: 0,
        reserved: 0,
        written: [0; MOST_UPDATED],
    };
    params.iter().zip(&mut all.params).for_each(|(&param, to)| *to = numbers(param).0);
    written.iter().zip(&mut all.written).for_each(|(&k, to)| *to = k as i32);
    let function = entry.on(stream.device())?;
    let mut left = updates.iter().filter(|update| update.count > 0).peekable();
    while left.peek().is_some() {
        let (mut tensors, mut blocks) = (0, 0usize);
        // The number of blocks fits in an i32.
        while tensors < MOST_TENSORS
            && let Some(update) =
                left.next_if(|next| blocks + next.count.div_ceil(PIECE) <= i32::MAX as usize)
        {
            assert_eq!(update.at.len(), text.inputs.len(), "operands of an update");
            all.at[tensors][..update.at.len()].copy_from_slice(&update.at);
            all.counts[tensors] = update.count as i64;
            all.blocks[tensors] = blocks as i32;
            blocks += update.count.div_ceil(PIECE);
            tensors += 1;
        }
        if tensors == 0 {
            return Err(refusal());
        }
        all.tensors = tensors as i32;
        traffic::rewritten(|| {
            // Of the launch before.
            all.at[tensors..].fill([std::ptr::null_mut(); MOST_UPDATED]);
            let elements: i64 = all.counts[..tensors].iter().sum();
            elements as usize * written.len() * format.size()
        });
        let shape = Shape::row(blocks as u32, THREADS);
        // SAFETY: the kernel takes one `Many`; what it names is the caller's duty.
        unsafe { launch::launch(function, shape, stream, crate::cuda_args!(all)) }?;
    }
    Ok(())
}

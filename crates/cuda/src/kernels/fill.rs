//! Filling memory with a number's bits.

use crate::kernels::launch::{self, Shape};
use crate::kernels::module::{Kernel, Program};
use crate::memory::copy::{fill_bytes, fill_words};
use crate::program;
use crate::work::stream::Stream;
use torchrs_error::Result;

/// Words of 2, 8 and 16 bytes; others are the driver's.
pub static PROGRAM: Program = program!("fill": "fill.cu");
static FILL_2: Kernel = Kernel::new(&PROGRAM, "fill_2");
static FILL_8: Kernel = Kernel::new(&PROGRAM, "fill_8");
static FILL_16: Kernel = Kernel::new(&PROGRAM, "fill_16");

/// `count` times the bytes of `element`, which are 1, 2, 4, 8 or 16.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where the driver refuses.
///
/// # Safety
/// `to` is memory of the stream's device for that many elements, at a multiple of their size, and valid
/// until the stream has done this work.
pub unsafe fn fill_elements(
    to: *mut u8,
    element: &[u8],
    count: usize,
    stream: Stream,
) -> Result<()> {
    if stream.is_nowhere() {
        return Ok(());
    }
    let mut bits = [0u8; 16];
    bits.chunks_exact_mut(element.len()).for_each(|chunk| chunk.copy_from_slice(element));
    let same = element.iter().all(|byte| *byte == element[0]);
    let half = |i: usize| u64::from_le_bytes(std::array::from_fn(|b| bits[8 * i + b]));
    // SAFETY: the caller's promises.
    unsafe {
        if same {
            return fill_bytes(to, element[0], count * element.len(), stream);
        }
        let kernel = match element.len() {
            4 => return fill_words(to.cast(), half(0) as u32, count, stream),
            2 => &FILL_2,
            8 => &FILL_8,
            _ => &FILL_16,
        };
        let packs = (count * element.len()).div_ceil(16);
        let shape = Shape::grid_stride(packs as u64, 256, stream.device())?;
        let function = kernel.on(stream.device())?;
        launch::launch(
            function,
            shape,
            stream,
            crate::cuda_args!(to, half(0), half(1), count as i64),
        )
    }
}

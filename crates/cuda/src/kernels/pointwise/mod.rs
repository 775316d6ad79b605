//! Formulas over tensors' elements: the program of a formula is made from its text at its first use,
//! with kernels for dense operands of one type and for any strides and types. Large operands of several types, or
//! that repeat, have programs of their own, made for those types (`packed.rs`).

mod many;
mod packed;
mod programs;
mod recipe;
mod translate;
mod walk;

pub use many::{Update, execute_many};
pub use packed::source_for;
pub use programs::source;
pub(crate) use recipe::{RECIPE, program_of};
pub use torchrs_loops::Format;

use torchrs_error::{Error, Result};
use torchrs_loops::{Compute, Constant, Operand, Plan, Text};

use crate::kernels::launch::{self, Shape};
use crate::work::stream::Stream;
use programs::program;
use walk::{MOST_DIMS, MOST_OPERANDS, MOST_PARAMS, NOWHERE, THREADS, Walk, numbers};

/// Runs the formula `text` in `compute` for all elements of `shape` on a stream; `operands` are the outputs, then
/// the inputs, as for the loops of the CPU.
///
/// # Errors
/// [`Error::Device`] where there is no text, or the device or the compiler refuses; [`Error::Shape`] for operands whose
/// dimensions cannot be joined to as few as the kernels walk.
///
/// # Safety
/// As the loops of the CPU, with addresses of the stream's device that are valid until
/// the stream has done this work.
pub unsafe fn execute(
    text: Option<&'static Text>,
    compute: Compute,
    params: &[Constant],
    shape: &[usize],
    outputs: usize,
    operands: &[Operand<'_>],
    stream: Stream,
) -> Result<()> {
    let count: usize = shape.iter().product();
    if count == 0 || stream.is_nowhere() {
        return Ok(());
    }
    let text = text
        .ok_or_else(|| Error::Device("a formula without text runs on the CPU only".to_owned()))?;
    if operands.iter().any(|o| matches!(o, Operand::Memory { format: Format::Wide, .. })) {
        return Err(Error::Device("complex numbers of two f64 run on the CPU only".to_owned()));
    }
    assert!(operands.len() <= MOST_OPERANDS && params.len() <= MOST_PARAMS);
    let program = program(text, compute);
    let mut walk = Walk {
        count: count as i64,
        sizes: [0; MOST_DIMS],
        dims: 1,
        reserved: 0,
        params: [0.0; MOST_PARAMS],
        integers: [0; MOST_PARAMS],
        operands: [NOWHERE; MOST_OPERANDS],
    };
    for (k, &param) in params.iter().enumerate() {
        (walk.params[k], walk.integers[k]) = numbers(param);
    }
    for (place, operand) in walk.operands.iter_mut().zip(operands) {
        match *operand {
            Operand::Memory { ptr, format, .. } => {
                (place.at, place.format) = (ptr, format as i32);
            }
            Operand::Constant(constant) => {
                (place.number, place.integer) = numbers(constant);
                place.is_integer = matches!(constant, Constant::I(_)) as i32;
            }
        }
    }
    let device = stream.device();
    let dense = common_format(shape, operands)
        .and_then(|format| program.dense.iter().find(|(own, _)| *own == format));
    if let Some((format, kernel)) = dense {
        let shape = Shape::grid_stride(count.div_ceil(16 / format.size()) as u64, THREADS, device)?;
        // SAFETY: the kernel takes one `Walk`; what it names is the caller's duty.
        return unsafe {
            launch::launch(kernel.on(device)?, shape, stream, crate::cuda_args!(walk))
        };
    }
    debug_assert!(outputs <= operands.len());
    let plan = Plan::new(shape, operands);
    if plan.dims.len() > MOST_DIMS {
        return Err(Error::shape(
            "cuda",
            format!(
                "operands of shape {shape:?} lie in more than {MOST_DIMS} dimensions that cannot be joined; make them contiguous"
            ),
        ));
    }
    walk.dims = plan.dims.len() as i32;
    for (d, &size) in plan.dims.iter().enumerate() {
        walk.sizes[d] = size as i64;
        for k in 0..operands.len() {
            walk.operands[k].strides[d] = plan.stride(d, k) as i64;
        }
    }
    if let Some(form) = packed::Form::of(count, outputs, &plan, operands) {
        let (packed, elements) = form.kernel(&program.packed, text, compute);
        let shape = Shape::grid_stride(count.div_ceil(elements) as u64, THREADS, device)?;
        // SAFETY: as above.
        return unsafe {
            launch::launch(packed.on(device)?, shape, stream, crate::cuda_args!(walk))
        };
    }
    let shape = Shape::grid_stride(count as u64, THREADS, device)?;
    // SAFETY: as above.
    unsafe { launch::launch(program.strided.on(device)?, shape, stream, crate::cuda_args!(walk)) }
}

/// The format of all tensors, if they have one in common, fill the shape densely and begin at a multiple
/// of sixteen bytes.
fn common_format(shape: &[usize], operands: &[Operand<'_>]) -> Option<Format> {
    let mut common = None;
    for operand in operands {
        if let Operand::Memory { ptr, format, .. } = *operand {
            let fits = (ptr as usize).is_multiple_of(16) && operand.fills(shape);
            if !fits || common.is_some_and(|other| other != format) {
                return None;
            }
            common = Some(format);
        }
    }
    common
}

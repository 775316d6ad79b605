//! Formulas over tensors' elements: the program of a formula is made from its text at its first use,
//! with kernels for dense operands of one type and for any strides and types. Large operands of several types, or
//! that repeat, have programs of their own, made for those types (`packed.rs`).

mod many;
mod packed;
mod translate;

pub use many::{Update, execute_many};
pub use packed::source_for;

use crate::kernel_text;
use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::RwLock;

use crate::kernels::launch::{self, Argument, Shape};
use crate::kernels::module::{Kernel, Program};
use crate::memo::quick_hash::QuickHash;
use crate::work::stream::Stream;
use torchrs_error::{Error, Result};
pub use torchrs_loops::Format;
use torchrs_loops::{Compute, Constant, Operand, Plan, Text};

/// Dimensions that are left when neighbours that allow it are joined, operands and parameters: the
/// most that the kernels' structure has room for.
const MOST_DIMS: usize = 8;
const MOST_OPERANDS: usize = 12;
const MOST_PARAMS: usize = 16;
/// Threads of a block.
const THREADS: u32 = 256;

/// A tensor, or a number where `at` is null: `Operand` of `kernels/walk.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Place {
    at: *mut u8,
    strides: [i64; MOST_DIMS],
    number: f64,
    integer: i64,
    format: i32,
    is_integer: i32,
}

/// All that a kernel is told: `Walk` of `kernels/walk.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Walk {
    count: i64,
    sizes: [i64; MOST_DIMS],
    dims: i32,
    reserved: i32,
    params: [f64; MOST_PARAMS],
    integers: [i64; MOST_PARAMS],
    operands: [Place; MOST_OPERANDS],
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Walk {}

/// A formula's entry points for a compute type.
struct Entries {
    strided: Kernel,
    dense: Vec<(Format, Kernel)>,
    /// Of updates: for many tensors at once.
    many: Vec<(Format, Kernel)>,
    /// For operands of certain types that lie in certain ways.
    packed: RwLock<HashMap<packed::Form, &'static Kernel, QuickHash>>,
}

/// By the text's address, which is inside a static, and compute type.
type Programs = HashMap<(usize, u8), &'static Entries, QuickHash>;
static PROGRAMS: LazyLock<RwLock<Programs>> = LazyLock::new(RwLock::default);

fn program(text: &'static Text, compute: Compute) -> &'static Entries {
    let key = (std::ptr::from_ref(text) as usize, compute as u8);
    if let Some(program) = PROGRAMS.read().get(&key) {
        return program;
    }
    PROGRAMS.write().entry(key).or_insert_with(|| {
        let program: &Program = Box::leak(Box::new(of_source(translate::program(text, compute))));
        let dense = |format, name| (format, Kernel::new(program, name));
        let many = match compute {
            _ if text.written.is_empty() => vec![],
            Compute::F32 => vec![
                dense(Format::F32, "many_f32"),
                dense(Format::F16, "many_f16"),
                dense(Format::BF16, "many_bf16"),
            ],
            Compute::F64 => vec![dense(Format::F64, "many_f64")],
            Compute::I64 => vec![],
        };
        Box::leak(Box::new(Entries {
            strided: Kernel::new(program, "strided"),
            dense: match compute {
                Compute::F32 => vec![
                    dense(Format::F32, "dense_f32"),
                    dense(Format::F16, "dense_f16"),
                    dense(Format::BF16, "dense_bf16"),
                ],
                Compute::F64 => vec![dense(Format::F64, "dense_f64")],
                Compute::I64 => vec![dense(Format::I64, "dense_i64")],
            },
            many,
            packed: RwLock::default(),
        }))
    })
}

/// The program of a formula for a compute type, by itself: what is compiled at the formula's first use.
pub fn source(text: &Text, compute: Compute) -> Program {
    of_source(translate::program(text, compute))
}

fn of_source(source: String) -> Program {
    Program::owned("pointwise", kernel_text!("prelude.cuh"), source)
}

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
    if count == 0 {
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
        let (packed, elements) = form.kernel(program, text, compute);
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

const NOWHERE: Place = Place {
    at: std::ptr::null_mut(),
    strides: [0; MOST_DIMS],
    number: 0.0,
    integer: 0,
    format: 0,
    is_integer: 0,
};

fn numbers(constant: Constant) -> (f64, i64) {
    match constant {
        Constant::F(v) => (v, v as i64),
        Constant::I(v) => (v as f64, v),
    }
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

//! The choice of an algorithm, and products, which a stream performs when it comes to them.

use super::{DESCRIPTIONS, Description, HANDLES, LAYOUTS, Layout, Outcome, PREFERENCES, Status};
use super::{put, status};
use crate::api::driver::stream::enqueue;
use crate::code::Result;
use crate::number::{Number, is_tf32_allowed, tf32};
use crate::registry::Handle;
use crate::stream;
use crate::work::Work;
use std::ffi::c_void;
use std::sync::Arc;

/// What the choice gives: `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: [u64; 8],
    /// Bytes of workspace that it needs.
    pub workspace: usize,
    /// Whether it can be used.
    pub state: Status,
    /// How often it fills the device.
    pub waves: f32,
    /// Room for what may come.
    pub reserved: [i32; 4],
}

/// The first word of an algorithm that this library made.
const ALGORITHM: u64 = 0x51a1_90f1;
/// What the algorithm asks for, so that callers must have a workspace.
const WORKSPACE: usize = 1 << 10;

const PLAIN: i32 = 1;
const BIAS: i32 = 4;
/// The sums of the second operand along the depth, as a gradient of a bias.
const BIAS_GRADIENT: i32 = 512;
/// The same of the first operand.
const BIAS_GRADIENT_FIRST: i32 = 256;

/// Activation functions of sums with a bias, which keep what their derivatives need.
const RELU: i32 = 134;
const GELU: i32 = 164;
/// Their derivatives, with the gradient of the bias.
const RELU_GRADIENT: i32 = 152;
const GELU_GRADIENT: i32 = 208;

/// `cudaDataType_t`.
const F32: i32 = 0;
const F64: i32 = 1;
const F16: i32 = 2;
const BF16: i32 = 14;

/// `cublasComputeType_t` of products of f32 by tensor cores.
const FAST_TF32: i32 = 77;

/// A product, all of whose descriptions were looked at.
#[derive(Clone, Copy, Debug)]
struct Product {
    description: Description,
    layouts: [Layout; 4],
    depth: u64,
}

fn layout(handle: Handle) -> Outcome<Layout> {
    Ok(*LAYOUTS.get(handle).map_err(|_| Status::INVALID_VALUE)?.lock())
}

/// Whether the distance of the columns that a function keeps is one that cuBLASLt takes.
fn is_kept(description: &Description, results: &Layout) -> bool {
    let unit = if matches!(description.epilogue, RELU | RELU_GRADIENT) { 128 } else { 8 };
    let step = description.kept_step;
    step >= results.rows as i64 && step % unit == 0
}

/// Whether the descriptions fit each other, and are of products that cuBLASLt computes.
fn product(description: Handle, layouts: [Handle; 4]) -> Outcome<Product> {
    let description = *DESCRIPTIONS.get(description).map_err(|_| Status::INVALID_VALUE)?.lock();
    let [a, b, c, d] = layouts;
    let layouts = [layout(a)?, layout(b)?, layout(c)?, layout(d)?];
    let turned = |layout: &Layout, turned: bool| match turned {
        true => (layout.columns, layout.rows),
        false => (layout.rows, layout.columns),
    };
    let (left, right) =
        (turned(&layouts[0], description.turned[0]), turned(&layouts[1], description.turned[1]));
    let results = &layouts[3];
    let fits = left.1 == right.0
        && (results.rows, results.columns) == (left.0, right.1)
        && (layouts[2].rows, layouts[2].columns) == (results.rows, results.columns)
        && layouts.iter().all(|l| l.batch == results.batch && l.batch > 0)
        && layouts.iter().all(|l| l.rows > 0 && l.columns > 0 && l.step >= l.rows as i64);
    if !fits {
        return Err(Status::INVALID_VALUE);
    }
    let kind = results.kind;
    let compute = match (kind, description.compute) {
        (F32, FAST_TF32) => (FAST_TF32, F32),
        (F32 | F16 | BF16, _) => (68, F32),
        (F64, _) => (70, F64),
        _ => return Err(Status::NOT_SUPPORTED),
    };
    let operands = layouts[0].kind;
    let same = layouts[1].kind == operands && layouts[2].kind == kind;
    // Sums of halves may be f32.
    let same = same && (operands == kind || (kind == F32 && matches!(operands, F16 | BF16)));
    let wide = operands != kind;
    let bias = matches!(description.bias_kind, -1) || description.bias_kind == kind;
    let epilogue = match description.epilogue {
        PLAIN => true,
        // Sums of f64 have no other epilogue.
        BIAS => kind != F64 && !wide,
        BIAS_GRADIENT | BIAS_GRADIENT_FIRST => kind != F64 && !wide && results.batch == 1,
        RELU | GELU | RELU_GRADIENT | GELU_GRADIENT => {
            kind != F64 && !wide && results.batch == 1 && is_kept(&description, results)
        }
        _ => false,
    };
    if !same || !bias || !epilogue || (description.compute, description.scale) != compute {
        return Err(Status::NOT_SUPPORTED);
    }
    Ok(Product { description, layouts, depth: left.1 })
}

/// Chooses an algorithm: the only one there is, if it can be used.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    handle: Handle,
    description: Handle,
    a: Handle,
    b: Handle,
    c: Handle,
    d: Handle,
    preference: Handle,
    wanted: i32,
    choices: *mut Choice,
    count: *mut i32,
) -> Status {
    let choose = || {
        HANDLES.get(handle).map_err(|_| Status::NOT_INITIALIZED)?;
        let room = *PREFERENCES.get(preference).map_err(|_| Status::INVALID_VALUE)?.lock();
        put(count, 0)?;
        if wanted < 1 {
            return Err(Status::INVALID_VALUE);
        }
        product(description, [a, b, c, d])?;
        if room < WORKSPACE as u64 {
            return Err(Status::NOT_SUPPORTED);
        }
        let algorithm = [ALGORITHM, 0, 0, 0, 0, 0, 0, 0];
        let state = Status::SUCCESS;
        put(
            choices,
            Choice { algorithm, workspace: WORKSPACE, state, waves: 1.0, reserved: [0; 4] },
        )?;
        put(count, 1)
    };
    status(choose())
}

/// D = alpha op(A) op(B) + beta C, and what the epilogue says.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmul(
    handle: Handle,
    description: Handle,
    alpha: *const c_void,
    a: usize,
    a_layout: Handle,
    b: usize,
    b_layout: Handle,
    beta: *const c_void,
    c: usize,
    c_layout: Handle,
    d: usize,
    d_layout: Handle,
    algorithm: *const [u64; 8],
    workspace: usize,
    workspace_bytes: usize,
    stream: Handle,
) -> Status {
    let call = || {
        HANDLES.get(handle).map_err(|_| Status::NOT_INITIALIZED)?;
        let product = product(description, [a_layout, b_layout, c_layout, d_layout])?;
        let with_bias = product.description.epilogue != PLAIN;
        let keeps =
            matches!(product.description.epilogue, RELU | GELU | RELU_GRADIENT | GELU_GRADIENT);
        let kept = product.description.kept;
        let is_missing = (with_bias && product.description.bias == 0)
            || (keeps && (kept == 0 || !kept.is_multiple_of(16)));
        if alpha.is_null() || beta.is_null() || is_missing {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the caller gives an algorithm, or null for the library's own choice.
        let known = algorithm.is_null() || unsafe { (*algorithm)[0] } == ALGORITHM;
        if !known || (!algorithm.is_null() && (workspace == 0 || workspace_bytes < WORKSPACE)) {
            return Err(Status::INVALID_VALUE);
        }
        let scale = |from: *const c_void| match product.description.scale {
            // SAFETY: the caller gives a number of the scale's type.
            F64 => unsafe { from.cast::<f64>().read() },
            // SAFETY: the caller gives a number of the scale's type, f32 where it is not f64.
            _ => f64::from(unsafe { from.cast::<f32>().read() }),
        };
        let (alpha, beta) = (scale(alpha), scale(beta));
        let stream = stream::get(stream).map_err(|_| Status::INVALID_VALUE)?;
        let perform = move || compute(&product, [a, b, c, d], alpha, beta);
        enqueue(&stream, Work::Library(Arc::new(perform))).map_err(|_| Status::EXECUTION_FAILED)
    };
    status(call())
}

/// The type behind a `cudaDataType_t` that was looked at.
fn type_of(kind: i32) -> Number {
    match kind {
        F64 => Number::F64,
        F32 => Number::F32,
        F16 => Number::F16,
        _ => Number::BF16,
    }
}

/// An address of so many bytes of device memory.
fn checked(address: usize, bytes: usize) -> Result<usize> {
    Number::check(address, bytes).map(|()| address)
}

/// The matrix of a batch item, row by row, of the operand or its transpose.
fn read(layout: &Layout, at: usize, item: usize, turned: bool, rounded: bool) -> Result<Vec<f64>> {
    let number = type_of(layout.kind);
    let size = number.bytes();
    let (rows, columns, step) =
        (layout.rows as usize, layout.columns as usize, layout.step as usize);
    let at = at.wrapping_add_signed(item as isize * layout.batch_step as isize * size as isize);
    checked(at, ((columns - 1) * step + rows) * size)?;
    let get = |i: usize, j: usize| {
        let x = number.read(at + (j * step + i) * size);
        if rounded { tf32(x) } else { x }
    };
    Ok(match turned {
        true => (0..columns).flat_map(|j| (0..rows).map(move |i| get(i, j))).collect(),
        false => (0..rows).flat_map(|i| (0..columns).map(move |j| get(i, j))).collect(),
    })
}

/// What a function keeps of a product for its derivative, or has kept.
struct Kept {
    epilogue: i32,
    at: usize,
    step: usize,
    kind: Number,
}

impl Kept {
    /// None of an epilogue that keeps nothing.
    fn of(p: &Product, rows: usize, columns: usize) -> Result<Option<Kept>> {
        let Description { epilogue, kept: at, kept_step, .. } = p.description;
        let (kind, step) = (type_of(p.layouts[3].kind), kept_step as usize);
        let bits = match epilogue {
            RELU | RELU_GRADIENT => (columns - 1) * step + rows,
            GELU | GELU_GRADIENT => ((columns - 1) * step + rows) * 8 * kind.bytes(),
            _ => return Ok(None),
        };
        checked(at, bits.div_ceil(8))?;
        Ok(Some(Kept { epilogue, at, step, kind }))
    }

    /// The function or derivative at `x`, the element of these row and column.
    fn apply(&self, x: f64, row: usize, column: usize) -> f64 {
        let place = column * self.step + row;
        let byte = (self.at + place / 8) as *mut u8;
        let (bit, element) = (1 << (place % 8), self.at + place * self.kind.bytes());
        let inner = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        match self.epilogue {
            RELU => {
                let is_on = x > 0.0;
                // SAFETY: `of` looked that these bytes are device memory; one thread performs the product.
                unsafe { byte.write(if is_on { byte.read() | bit } else { byte.read() & !bit }) };
                if is_on { x } else { 0.0 }
            }
            // SAFETY: as above.
            RELU_GRADIENT => match unsafe { byte.read() } & bit {
                0 => 0.0,
                _ => x,
            },
            GELU => {
                self.kind.store(element, x);
                0.5 * x * (1.0 + inner(x).tanh())
            }
            _ => {
                let y = self.kind.read(element);
                let (tanh, slope) = (
                    inner(y).tanh(),
                    (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 0.134145 * y * y),
                );
                x * (0.5 * (1.0 + tanh) + 0.5 * y * (1.0 - tanh * tanh) * slope)
            }
        }
    }
}

/// Computes the product.
fn compute(p: &Product, [a, b, c, d]: [usize; 4], alpha: f64, beta: f64) -> Result {
    let [of_a, of_b, of_c, of_d] = p.layouts;
    let (rows, columns, depth) = (of_d.rows as usize, of_d.columns as usize, p.depth as usize);
    let (kind, epilogue) = (type_of(of_d.kind), p.description.epilogue);
    let (size, rounded) = (kind.bytes(), p.description.compute == FAST_TF32 && is_tf32_allowed());
    let bias = p.description.bias;
    match epilogue {
        BIAS | BIAS_GRADIENT_FIRST | RELU | GELU | RELU_GRADIENT | GELU_GRADIENT => {
            _ = checked(bias, rows * size)?;
        }
        BIAS_GRADIENT => _ = checked(bias, columns * size)?,
        _ => {}
    }
    for item in 0..of_d.batch as usize {
        let left = read(&of_a, a, item, p.description.turned[0], rounded)?;
        let right = read(&of_b, b, item, p.description.turned[1], rounded)?;
        let start = if beta == 0.0 { None } else { Some(read(&of_c, c, item, false, false)?) };
        let to = d.wrapping_add_signed(item as isize * of_d.batch_step as isize * size as isize);
        checked(to, ((columns - 1) * of_d.step as usize + rows) * size)?;
        let kept = Kept::of(p, rows, columns)?;
        let mut sums = vec![0.0; columns];
        for i in 0..rows {
            let mut of_row = 0.0;
            sums.fill(0.0);
            for (k, x) in left[i * depth..(i + 1) * depth].iter().enumerate() {
                let row = &right[k * columns..(k + 1) * columns];
                sums.iter_mut().zip(row).for_each(|(sum, y)| *sum += x * y);
            }
            for (j, sum) in sums.iter().enumerate() {
                let mut x = alpha * sum + start.as_ref().map_or(0.0, |c| beta * c[i * columns + j]);
                if matches!(epilogue, BIAS | RELU | GELU) {
                    x += kind.read(bias + i * size);
                }
                if let Some(kept) = &kept {
                    x = kept.apply(x, i, j);
                    of_row += x;
                }
                kind.store(to + (j * of_d.step as usize + i) * size, x);
            }
            if matches!(epilogue, RELU_GRADIENT | GELU_GRADIENT) {
                kind.store(bias + i * size, of_row);
            }
        }
        if epilogue == BIAS_GRADIENT_FIRST {
            for i in 0..rows {
                kind.store(bias + i * size, left[i * depth..(i + 1) * depth].iter().sum());
            }
        }
        if epilogue == BIAS_GRADIENT {
            for j in 0..columns {
                let sum = (0..depth).map(|k| right[k * columns + j]).sum();
                kind.store(bias + j * size, sum);
            }
        }
    }
    Ok(())
}

//! Matrix products by cuBLASLt. What it is asked of a [`Problem`] (descriptions, the choice of an algorithm) is
//! kept for the next product of the same kind; its workspace comes from the caching allocator, on the product's
//! stream.
//!
//! cuBLASLt's matrices lie column by column. A row-major matrix is the transpose of such a one, so the operands
//! change places: `C = A B` row by row is `C^T = B^T A^T` column by column.

mod table;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device;
use crate::driver::Relaxed;
use crate::loading::library;
use crate::memo::bounded::Bounded;
use crate::memory::Block;
use crate::work::stream::Stream;
use crate::work::traffic;
use table::{Choice, Object, Status, Table, handle, table};
use torchrs_error::Result;

pub use table::USE_CUBLASLT;

/// The most bytes of workspace of a product: what NVIDIA advises for a Hopper.
static WORKSPACE: u64 = 32 << 20;

/// Types of elements that are multiplied. Sums are f32, of f64 f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// f32.
    F32,
    /// f32, rounded to tf32 before it is multiplied.
    Tf32,
    /// f64.
    F64,
    /// f16.
    F16,
    /// bf16.
    BF16,
}

impl Kind {
    /// `cudaDataType_t`.
    fn number(self) -> c_int {
        match self {
            Kind::F32 | Kind::Tf32 => 0,
            Kind::F64 => 1,
            Kind::F16 => 2,
            Kind::BF16 => 14,
        }
    }

    /// Whether products of this type have an epilogue: sums of f64 have none, and cuBLASLt refuses what asks for it.
    /// Activation functions are left to halves.
    pub fn has(self, epilogue: Epilogue) -> bool {
        match epilogue {
            Epilogue::Plain => true,
            Epilogue::Active(_) | Epilogue::Backward(_) => matches!(self, Kind::F16 | Kind::BF16),
            _ => self != Kind::F64,
        }
    }

    /// `cublasComputeType_t`, and the type of scales.
    fn compute(self) -> (c_int, c_int) {
        match self {
            Kind::F64 => (70, 1),
            Kind::Tf32 => (77, 0),
            _ => (68, 0),
        }
    }
}

/// How a matrix lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lie {
    /// Column by column, rather than row by row.
    pub turned: bool,
    /// Elements from one row (column, if turned) to the next.
    pub step: i64,
    /// Elements from one matrix of a batch to the next.
    pub batch: i64,
}

/// What is done beside the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// Nothing.
    Plain,
    /// A row is added to each row.
    Bias,
    /// The sums of the left operand along the depth, which is a bias's gradient beside that of its weight.
    LeftSums,
    /// The sums of the right operand along the depth.
    RightSums,
    /// A row is added to each row, and a function taken of the sums; what its derivative needs is kept.
    Active(Activation),
    /// The derivative of a function by what was kept, and the sums of the result's rows: the gradient of the row that was
    /// added.
    Backward(Activation),
}

/// Functions that products end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// The larger of x and 0. A bit of each element is kept.
    Relu,
    /// GELU by the hyperbolic tangent. Its operands are kept.
    GeluTanh,
}

impl Activation {
    /// From one row of what is kept to the next, of rows of `n`: elements of the result's type, or bits.
    pub fn kept_step(self, n: usize) -> usize {
        match self {
            Activation::Relu => n.next_multiple_of(128),
            Activation::GeluTanh => n,
        }
    }

    /// Whether cuBLASLt keeps what is needed for rows of `n`.
    pub fn takes(self, n: usize) -> bool {
        self == Activation::Relu || n.is_multiple_of(8)
    }
}

impl Epilogue {
    /// `cublasLtEpilogue_t`.
    fn number(self) -> c_int {
        match self {
            Epilogue::Plain => 1,
            Epilogue::Bias => 4,
            Epilogue::LeftSums => 512,
            Epilogue::RightSums => 256,
            Epilogue::Active(Activation::Relu) => 134,
            Epilogue::Active(Activation::GeluTanh) => 164,
            Epilogue::Backward(Activation::Relu) => 152,
            Epilogue::Backward(Activation::GeluTanh) => 208,
        }
    }
}

/// All that the choice of an algorithm depends on: `out[m, n] = alpha left[m, k] right[k, n] + beta start[m, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Type of the elements.
    pub kind: Kind,
    /// Whether start and result are f32 where the operands are halves.
    pub wide: bool,
    /// m, n, k; none is 0.
    pub size: [usize; 3],
    /// How many products.
    pub batch: usize,
    /// The left operand.
    pub left: Lie,
    /// The right one.
    pub right: Lie,
    /// What is added, row by row.
    pub start: Lie,
    /// The result, row by row.
    pub out: Lie,
    /// What is done besides.
    pub epilogue: Epilogue,
}

/// The addresses of a product.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The left operand.
    pub left: *const u8,
    /// The right one.
    pub right: *const u8,
    /// What is added; not read where beta is 0.
    pub start: *const u8,
    /// The result.
    pub out: *mut u8,
    /// The epilogue's vector.
    pub vector: *mut u8,
    /// What an activation function keeps for its derivative.
    pub kept: *mut u8,
}

impl Addresses {
    /// To which powers of two, 256 at the most, the operands' addresses are aligned. The epilogue's vector and what is
    /// kept count with the result, as in PyTorch: cuBLASLt is not told of their alignment by itself.
    fn alignment(&self) -> [u32; 4] {
        let of = |at: usize| 1 << at.trailing_zeros().min(8);
        let [left, right, start] = [self.left, self.right, self.start].map(|at| of(at as usize));
        let results = self.out as usize | self.vector as usize | self.kept as usize;
        [right, left, start, of(results)]
    }
}

/// One of cuBLASLt's objects, which ends with this.
struct Owned {
    object: Object,
    end: unsafe extern "C" fn(Object) -> Status,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { (self.end)(self.object) };
    }
}

/// A problem's descriptions and its algorithm.
struct Plan {
    /// The epilogue's addresses are those of the product that is started under the lock.
    description: Mutex<Owned>,
    layouts: [Owned; 4],
    algorithm: [u64; 8],
    workspace: usize,
}

type Key = (usize, Problem, [u32; 4]);
/// None for what cuBLASLt does not compute.
static PLANS: Bounded<Key, Option<Arc<Plan>>> = Bounded::new(MOST_PLANS);
/// The most of them.
const MOST_PLANS: usize = 4096;

/// Whether there is a cuBLASLt to use.
pub fn is_available() -> bool {
    table().is_ok()
}

/// Starts a product on a stream; false where cuBLASLt does not compute such.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where cuBLASLt refuses.
///
/// # Safety
/// The addresses are of matrices that lie as the problem says, in memory of the stream's device that is valid
/// until the stream has done this work; the result overlaps no operand but `start`, if it is the same.
pub unsafe fn product(
    problem: &Problem,
    at: Addresses,
    (alpha, beta): (f64, f64),
    stream: Stream,
) -> Result<bool> {
    if stream.is_nowhere() {
        return Ok(true);
    }
    let table = table()?;
    let device = stream.device();
    device::bind(device)?;
    // The library may load code at a first call, which a capture forbids otherwise.
    let _relaxed = Relaxed::new()?;
    let key = (device, *problem, at.alignment());
    let plan = match PLANS.get(&key) {
        Some(plan) => plan,
        None => PLANS.get_or_insert(key, make(table, key, &at)?.map(Arc::new)),
    };
    let Some(plan) = plan else { return Ok(false) };
    if traffic::is_counted() {
        let start = if beta == 0.0 { std::ptr::null() } else { at.start };
        traffic::called("cublasLtMatmul", &[at.left, at.right, start, at.out, at.vector, at.kept]);
    }
    let workspace = Block::on(plan.workspace, stream)?;
    let (single, double) = ([alpha as f32, beta as f32], [alpha, beta]);
    let scale = |k: usize| -> *const c_void {
        match problem.kind {
            Kind::F64 => (&raw const double[k]).cast(),
            _ => (&raw const single[k]).cast(),
        }
    };
    let description = plan.description.lock();
    let [a, b, c, d] = plan.layouts.each_ref().map(|layout| layout.object);
    // SAFETY: objects of this library that the plan owns; the caller answers for the addresses; the workspace goes
    // back to its own stream's pool.
    unsafe {
        addresses(table, description.object, problem.epilogue, &at)?;
        table.cublasLtMatmul(
            handle(device)?,
            description.object,
            scale(0),
            at.right,
            a,
            at.left,
            b,
            scale(1),
            at.start,
            c,
            at.out,
            d,
            &plan.algorithm,
            workspace.as_ptr(),
            plan.workspace,
            stream.handle(),
        )?;
    }
    Ok(true)
}

const TURN_A: c_int = 3;
const TURN_B: c_int = 4;
const EPILOGUE: c_int = 7;
const BIAS_POINTER: c_int = 8;
const KEPT_POINTER: c_int = 11;
const KEPT_STEP: c_int = 12;
const BIAS_TYPE: c_int = 26;

/// Sets an attribute of a product's description.
///
/// # Safety
/// The attribute has this type.
unsafe fn describe<T>(
    table: &Table,
    description: Object,
    attribute: c_int,
    value: &T,
) -> Result<()> {
    let at = (&raw const *value).cast();
    // SAFETY: the caller's promise; the library copies the value.
    unsafe { table.cublasLtMatmulDescSetAttribute(description, attribute, at, size_of::<T>()) }
}

/// Sets the epilogue's addresses.
///
/// # Safety
/// The object is a product's description.
unsafe fn addresses(
    table: &Table,
    description: Object,
    epilogue: Epilogue,
    at: &Addresses,
) -> Result<()> {
    // SAFETY: attributes of this type.
    unsafe {
        if epilogue != Epilogue::Plain {
            describe(table, description, BIAS_POINTER, &at.vector)?;
        }
        if matches!(epilogue, Epilogue::Active(_) | Epilogue::Backward(_)) {
            describe(table, description, KEPT_POINTER, &at.kept)?;
        }
    }
    Ok(())
}

/// Describes a matrix of a batch, `rows` x `columns` row by row unless it is turned.
fn layout(
    table: &Table,
    kind: Kind,
    batch: usize,
    rows: usize,
    columns: usize,
    lie: Lie,
) -> Result<Owned> {
    let (long, count) = if lie.turned { (rows, columns) } else { (columns, rows) };
    let mut layout = Object::default();
    let batch = batch as c_int;
    let (at, step) = ((&raw const batch).cast(), (&raw const lie.batch).cast());
    // SAFETY: writes one object, and copies two numbers of the attributes' types.
    unsafe {
        table.cublasLtMatrixLayoutCreate(
            &mut layout,
            kind.number(),
            long as u64,
            count as u64,
            lie.step,
        )?;
        let layout = Owned { object: layout, end: table.cublasLtMatrixLayoutDestroy };
        table.cublasLtMatrixLayoutSetAttribute(layout.object, 5, at, size_of::<c_int>())?;
        table.cublasLtMatrixLayoutSetAttribute(layout.object, 6, step, size_of::<i64>())?;
        Ok(layout)
    }
}

/// Describes a problem's product, with the addresses of a first one.
fn description(table: &Table, problem: &Problem, at: &Addresses) -> Result<Owned> {
    let (Problem { kind, left, right, epilogue, .. }, mut object) = (*problem, Object::default());
    let (compute, scale) = kind.compute();
    // SAFETY: writes one object; attributes get values of their types.
    unsafe {
        table.cublasLtMatmulDescCreate(&mut object, compute, scale)?;
        let description = Owned { object, end: table.cublasLtMatmulDescDestroy };
        describe(table, object, TURN_A, &c_int::from(right.turned))?;
        describe(table, object, TURN_B, &c_int::from(left.turned))?;
        describe(table, object, EPILOGUE, &epilogue.number())?;
        if epilogue != Epilogue::Plain {
            describe(table, object, BIAS_TYPE, &kind.number())?;
        }
        if let Epilogue::Active(of) | Epilogue::Backward(of) = epilogue {
            describe(table, object, KEPT_STEP, &(of.kept_step(problem.size[1]) as i64))?;
        }
        addresses(table, object, epilogue, at)?;
        Ok(description)
    }
}

/// The plan of a problem, if cuBLASLt computes it, with the addresses of a first product.
fn make(table: &Table, (device, problem, alignment): Key, at: &Addresses) -> Result<Option<Plan>> {
    let Problem { kind, size: [m, n, k], batch, left, right, start, out, wide, .. } = problem;
    let result = if wide { Kind::F32 } else { kind };
    let layouts = [
        layout(table, kind, batch, k, n, right)?,
        layout(table, kind, batch, m, k, left)?,
        layout(table, result, batch, m, n, start)?,
        layout(table, result, batch, m, n, out)?,
    ];
    let description = description(table, &problem, at)?;
    let (mut preference, mut count) = (Object::default(), 0);
    let nothing = Status::NOT_SUPPORTED;
    let mut choice =
        Choice { algorithm: [0; 8], workspace: 0, state: nothing, waves: 0.0, reserved: [0; 4] };
    // SAFETY: writes one object; attributes get numbers of their types; one choice at most is written.
    let status = unsafe {
        table.cublasLtMatmulPreferenceCreate(&mut preference)?;
        let preference = Owned { object: preference, end: table.cublasLtMatmulPreferenceDestroy };
        let set = |attribute: c_int, at: *const c_void, bytes: usize| {
            table.cublasLtMatmulPreferenceSetAttribute(preference.object, attribute, at, bytes)
        };
        set(1, (&raw const WORKSPACE).cast(), size_of::<u64>())?;
        for (attribute, alignment) in (5..).zip(&alignment) {
            set(attribute, (&raw const *alignment).cast(), size_of::<u32>())?;
        }
        let [a, b, c, d] = layouts.each_ref().map(|layout| layout.object);
        let handle = handle(device)?;
        (table.cublasLtMatmulAlgoGetHeuristic)(
            handle,
            description.object,
            a,
            b,
            c,
            d,
            preference.object,
            1,
            &mut choice,
            &mut count,
        )
    };
    if status == Status::SUCCESS && count == 1 && choice.state == Status::SUCCESS {
        let Choice { algorithm, workspace, .. } = choice;
        return Ok(Some(Plan {
            description: Mutex::new(description),
            layouts,
            algorithm,
            workspace,
        }));
    }
    if status != Status::SUCCESS && status != Status::NOT_SUPPORTED {
        library::say_failing(library::Kind::CublasLt, &format_args!("{status:?}"), &problem);
    }
    Ok(None)
}

/// How many of the problems that this process asked about cuBLASLt does not compute, of those that are remembered.
/// For tests.
pub fn refused() -> usize {
    PLANS.values().iter().filter(|plan| plan.is_none()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated_test::on_gpu;

    fn multiply_many_sizes() {
        let stream = Stream::current(0).unwrap();
        let block = Block::on(8 * MOST_PLANS, stream).unwrap();
        let at = block.as_ptr();
        let at = Addresses { left: at, right: at, start: at, out: at, vector: at, kept: at };
        let left = Lie { turned: false, step: 1, batch: 0 };
        for n in 1..MOST_PLANS + 2 {
            let row = Lie { step: n as i64, ..left };
            let problem = Problem {
                kind: Kind::F32,
                wide: false,
                size: [1, n, 1],
                batch: 1,
                left,
                right: row,
                start: row,
                out: row,
                epilogue: Epilogue::Plain,
            };
            // SAFETY: matrices of the block; nobody looks at what comes of them.
            assert!(unsafe { product(&problem, at, (0.0, 0.0), stream) }.unwrap());
        }
        assert!((MOST_PLANS / 2..=MOST_PLANS).contains(&PLANS.len()), "{}", PLANS.len());
        stream.synchronize().unwrap();
    }

    #[test]
    fn plans_do_not_pile_up() {
        on_gpu("libraries::cublaslt::tests::plans_do_not_pile_up", multiply_many_sizes);
    }
}

//! A recurrent layer on a GPU: `kernels/rnn.cu`. The products of all steps with the input weights are one; a step
//! is a product with the recurrent weights and one kernel. Nothing waits: the steps' sizes are on the host.
//!
//! h and the gates are of the operands' type, as in PyTorch; c, and what gradients are added up in, of that which
//! is computed in.

use std::ptr::null_mut;

use crate::cpu::recurrent::{Cell, Recurrence, Step};
use crate::cuda::cuda_args;
use crate::cuda::{
    Kernel, family::FLOATS, family::Family, launch::Argument, launch::Shape, sources::family,
};
use crate::ops::{compute_type::dense, gpu::Gpu, gpu::address, gpu::format_of};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static CELLS: Family = family!("rnn": "rnn.cu").with(&[(FLOATS, &["Cells"])]);

/// Threads of a block, as in the kernels.
const THREADS: usize = 128;

/// `Step` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct ForwardStep {
    gates: *mut u8,
    from_state: *const u8,
    bias_ih: *const u8,
    bias_hh: *const u8,
    inner: *mut u8,
    out: *mut u8,
    h: *mut u8,
    c: *mut u8,
    rows: i64,
    n: i64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for ForwardStep {}

/// `Back` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct BackwardStep {
    gates: *const u8,
    inner: *const u8,
    out: *const u8,
    dout: *const u8,
    out_before: *const u8,
    inner_before: *const u8,
    first_h: *const u8,
    first_c: *const u8,
    by_input: *mut u8,
    by_state: *mut u8,
    h_before: *mut u8,
    dh: *mut u8,
    dc: *mut u8,
    from_after: *const u8,
    rows: i64,
    shared: i64,
    after: i64,
    n: i64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for BackwardStep {}

fn kernel(cell: Cell, dtype: Dtype, backward: bool) -> &'static Kernel {
    let entry = match (cell, backward) {
        (Cell::Tanh, false) => "tanh_forward",
        (Cell::Relu, false) => "relu_forward",
        (Cell::Gru, false) => "gru_forward",
        (Cell::Lstm, false) => "lstm_forward",
        (Cell::Tanh, true) => "tanh_backward",
        (Cell::Relu, true) => "relu_backward",
        (Cell::Gru, true) => "gru_backward",
        (Cell::Lstm, true) => "lstm_backward",
    };
    CELLS.kernel(format_of(dtype), "Cells", entry)
}

/// A thread for each column of each row.
fn shape(rows: usize, n: usize) -> Shape {
    let across = n.next_power_of_two().clamp(32, THREADS);
    let down = THREADS / across;
    let plane = Shape::plane(n.div_ceil(across), rows.div_ceil(down), 1);
    Shape { block: [across as u32, down as u32, 1], ..plane }
}

/// Where a row of a dense matrix, or of none, begins.
fn row(x: Option<&Tensor>, row: usize) -> *mut u8 {
    x.map_or(null_mut(), |x| x.device_ptr().wrapping_add(row * x.size(1) * x.dtype().size()))
}

/// What forward computes and keeps.
pub(super) struct Kept {
    pub gates: Tensor,
    /// Of a GRU and an LSTM.
    pub inner: Option<Tensor>,
    pub out: Tensor,
    /// The last states.
    pub last: Vec<Tensor>,
}

/// All steps. `gates` are the products with the input weights, in memory of its own; `first` the first h and c.
#[track_caller]
pub(super) fn forward(
    gpu: Gpu,
    recurrence: &Recurrence<'_>,
    gates: Tensor,
    weight_hh: &Tensor,
    biases: [Option<&Tensor>; 2],
    first: &[Tensor],
) -> Kept {
    let (cell, n, dtype) = (recurrence.cell, recurrence.hidden, gates.dtype());
    let on = |dtype| (dtype, gpu.device());
    let biases = biases.map(|b| b.map(|b| dense(b, dtype)));
    let inner =
        (cell.gates() > 1).then(|| Tensor::empty([recurrence.rows(), n], on(dtype.compute())));
    let out = Tensor::empty([recurrence.rows(), n], on(dtype));
    // They are written to.
    let h = first[0].clone_contiguous();
    let c = first.get(1).map(|c| c.to_dtype(dtype.compute()).clone_contiguous());
    let (kernel, turned) = (kernel(cell, dtype, false), weight_hh.t());
    for step in recurrence.steps() {
        let from_state = h.narrow(0, 0, step.rows).matmul(&turned);
        let task = ForwardStep {
            gates: row(Some(&gates), step.first),
            from_state: from_state.device_ptr(),
            bias_ih: address(biases[0].as_ref()),
            bias_hh: address(biases[1].as_ref()),
            inner: row(inner.as_ref(), step.first),
            out: row(Some(&out), step.first),
            h: h.device_ptr(),
            c: address(c.as_ref()),
            rows: step.rows as i64,
            n: n as i64,
        };
        // SAFETY: the kernel's parameter; dense tensors on this GPU with this step's rows, and states with as
        // many rows as the first step or more.
        unsafe { gpu.launch(kernel, shape(step.rows, n), cuda_args!(task)) };
    }
    let last = [Some(h), c.map(|c| c.to_dtype(dtype))].into_iter().flatten().collect();
    Kept { gates, inner, out, last }
}

/// What backward reads, of forward's operands and results.
pub(super) struct Known<'a> {
    pub weight_hh: &'a Tensor,
    pub first: &'a [Tensor],
    /// As forward kept them; the gates only where there are several.
    pub gates: Option<&'a Tensor>,
    pub inner: Option<&'a Tensor>,
    pub out: &'a Tensor,
    /// Of `out`.
    pub gradient: &'a Tensor,
}

/// What backward computes: gradients of the products with the input weights and (of a GRU) with the recurrent
/// ones, h before each step, and the gradients of the first states.
pub(super) struct Gradients {
    pub by_input: Tensor,
    pub by_state: Option<Tensor>,
    pub before: Tensor,
    pub states: Vec<Tensor>,
}

/// The gradients of all steps for those of the last states.
#[track_caller]
pub(super) fn backward(
    gpu: Gpu,
    recurrence: &Recurrence<'_>,
    known: Known<'_>,
    last: &[Tensor],
) -> Gradients {
    let (cell, n, dtype) = (recurrence.cell, recurrence.hidden, known.out.dtype());
    let (rows, width, wide) = (recurrence.rows(), cell.gates() * n, dtype.compute());
    let fresh = |columns| Tensor::empty([rows, columns], (dtype, gpu.device()));
    let (by_input, before) = (fresh(width), fresh(n));
    let by_state = (cell == Cell::Gru).then(|| fresh(width));
    let of_state = by_state.as_ref().unwrap_or(&by_input);
    let dout = dense(known.gradient, dtype);
    let first_h = dense(&known.first[0], dtype);
    let first_c = known.first.get(1).map(|c| dense(c, wide));
    // They are written to.
    let states: Vec<Tensor> = last.iter().map(|d| d.to_dtype(wide).clone_contiguous()).collect();
    let kernel = kernel(cell, dtype, true);
    let run = |step: Step, after: Option<(&Step, &Tensor)>| {
        let task = BackwardStep {
            gates: row(known.gates, step.first),
            inner: row(known.inner, step.first),
            out: row(Some(known.out), step.first),
            dout: row(Some(&dout), step.first),
            out_before: row(Some(known.out), step.before),
            inner_before: row(known.inner, step.before),
            first_h: first_h.device_ptr(),
            first_c: address(first_c.as_ref()),
            by_input: row(Some(&by_input), step.first),
            by_state: row(by_state.as_ref(), step.first),
            h_before: row(Some(&before), step.first),
            dh: states[0].device_ptr(),
            dc: address(states.get(1)),
            from_after: address(after.map(|(_, d)| d)),
            rows: step.rows as i64,
            shared: step.shared as i64,
            after: after.map_or(0, |(step, _)| step.rows as i64),
            n: n as i64,
        };
        let most = step.rows.max(after.map_or(0, |(step, _)| step.rows));
        // SAFETY: the kernel's parameter; dense tensors on this GPU with this step's rows, the step before's, or
        // those of all sequences.
        unsafe { gpu.launch(kernel, shape(most, n), cuda_args!(task)) };
    };
    let mut after: Option<(Step, Tensor)> = None;
    for step in recurrence.steps().into_iter().rev() {
        run(step, after.as_ref().map(|(step, d)| (step, d)));
        let d = of_state.narrow(0, step.first, step.rows).matmul(known.weight_hh);
        after = Some((step, d));
    }
    // After the first step only its product is left to add.
    run(Step::default(), after.as_ref().map(|(step, d)| (step, d)));
    let states = states.into_iter().map(|d| d.to_dtype(dtype)).collect();
    Gradients { by_input, by_state, before, states }
}

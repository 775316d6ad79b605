//! Recurrent layers over whole sequences, one direction at a time.
//!
//! The products of all steps with the input weights are there before; what is left for a step is the
//! product of the state before with the recurrent weights, which are packed once for all steps
//! ([`Panels`]), and one loop over the gates ([`cells`]). Backward goes the other way round: a loop that
//! gives the gradients of a step's gates, then their product with the recurrent weights. Threads share the
//! columns of the state; they meet once per step, because the product needs all columns of the step before.
//!
//! Rows are sequences. A step may have fewer rows than another one (packed sequences, the longest first):
//! the rows that it has in common with the step before go on from there, the others start from, or end in,
//! the first and last state.

mod cells;
mod panels;

use crate::products::tiled::Tiled;
use crate::threads::parallel_for;
use crate::threads::parts::Parts;
pub use panels::{Panels, packed_len};

/// What a recurrent layer does to its gates. With x and h for the two products (and their biases):
///
/// ```text
/// tanh, relu   h' = tanh(x + h)
/// GRU          r = s(xr + hr)   z = s(xz + hz)   n = tanh(xn + r hn)   h' = n + z (h - n)
/// LSTM         i = s(xi + hi)   f = s(xf + hf)   g = tanh(xg + hg)     o = s(xo + ho)
///              c' = f c + i g   h' = o tanh(c')
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A hyperbolic tangent.
    Tanh,
    /// max(x, 0).
    Relu,
    /// A gated recurrent unit.
    Gru,
    /// Long short-term memory.
    Lstm,
}

impl Cell {
    /// Rows of the weights, in units of the hidden size.
    pub fn gates(self) -> usize {
        match self {
            Cell::Tanh | Cell::Relu => 1,
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    /// States that go from step to step: h, and for an LSTM c.
    pub fn states(self) -> usize {
        if self == Cell::Lstm { 2 } else { 1 }
    }
}

/// One direction of one layer over sequences.
#[derive(Clone, Copy)]
pub struct Recurrence<'a> {
    /// The kind of cell.
    pub cell: Cell,
    /// Size of h.
    pub hidden: usize,
    /// Rows of each step; they fall.
    pub sizes: &'a [usize],
    /// From the last step to the first.
    pub backwards: bool,
}

/// A step: its rows among those of all steps, and how many of them go on from the step before, whose rows
/// start at `before`.
#[derive(Clone, Copy, Default)]
pub struct Step {
    /// Its first row among those of all steps.
    pub first: usize,
    /// How many it has.
    pub rows: usize,
    /// The first row of the step before.
    pub before: usize,
    /// How many rows go on from the step before.
    pub shared: usize,
}

impl Step {
    /// Which row of all steps the sequence in this row comes from; `None` if from the first state.
    fn row_before(&self, row: usize) -> Option<usize> {
        (row < self.shared).then_some(self.before + row)
    }
}

/// What forward computes and keeps.
pub struct Kept<'a, T> {
    /// `[rows of all steps, gates * hidden]`: the products with the input weights, then the gates.
    pub gates: &'a mut [T],
    /// `[rows, hidden]`: an LSTM's c, a GRU's hn; else empty.
    pub inner: &'a mut [T],
    /// `[rows, hidden]`: h.
    pub out: &'a mut [T],
}

/// What backward reads.
pub struct Known<'a, T> {
    /// As forward left them.
    pub gates: &'a [T],
    /// As forward left them.
    pub inner: &'a [T],
    /// As forward left them.
    pub out: &'a [T],
    /// The first h, and for an LSTM c: `[sequences, hidden]` each.
    pub first: [&'a [T]; 2],
    /// The gradient of `out`.
    pub dout: &'a [T],
}

/// What backward computes.
pub struct Gradients<'a, T> {
    /// `[rows of all steps, gates * hidden]`: of the products with the input weights.
    pub by_input: &'a mut [T],
    /// The same of the products with the recurrent weights where these differ (a GRU); else empty.
    pub by_state: &'a mut [T],
    /// Of the last h and c on entry, of the first ones in the end.
    pub states: [&'a mut [T]; 2],
}

/// Multiplications that are worth a second thread.
const WORTH_A_THREAD: usize = 500_000;

impl Recurrence<'_> {
    /// Rows of all steps.
    pub fn rows(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// Sequences.
    fn batch(&self) -> usize {
        self.sizes.first().copied().unwrap_or(0)
    }

    /// The steps in their order.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::with_capacity(self.sizes.len());
        let mut first = 0;
        for &rows in self.sizes {
            steps.push(Step { first, rows, ..Default::default() });
            first += rows;
        }
        if self.backwards {
            steps.reverse();
        }
        for i in 1..steps.len() {
            steps[i].before = steps[i - 1].first;
            steps[i].shared = steps[i].rows.min(steps[i - 1].rows);
        }
        steps
    }

    /// For each sequence the row of its last step.
    pub fn last_rows(&self) -> Vec<usize> {
        let mut last = vec![0; self.batch()];
        for step in self.steps() {
            (0..step.rows).for_each(|i| last[i] = step.first + i);
        }
        last
    }

    /// The h before each row's step, from the first h and forward's `out`.
    pub fn states_before<T: Copy>(&self, first: &[T], out: &[T], before: &mut [T]) {
        let n = self.hidden;
        for s in self.steps() {
            let (going, starting) =
                before[s.first * n..(s.first + s.rows) * n].split_at_mut(s.shared * n);
            going.copy_from_slice(&out[s.before * n..(s.before + s.shared) * n]);
            starting.copy_from_slice(&first[s.shared * n..s.rows * n]);
        }
    }

    /// Multiplications of a step with `rows` rows that one panel of columns takes.
    fn grain(&self, rows: usize, columns: usize) -> usize {
        let work = rows * columns * self.cell.gates() * self.hidden;
        WORTH_A_THREAD / work.max(1) + 1
    }

    /// All steps. `weights` are the recurrent ones as columns ([`Panels::columns`]); `bias` has the gates'
    /// biases and then, for a GRU, that of hn. `first` are the first h and c, `[sequences, hidden]`.
    pub fn forward<T: Tiled>(
        &self,
        weights: &Panels<T>,
        bias: &[T],
        first: [&[T]; 2],
        kept: Kept<T>,
    ) {
        let (n, width) = (self.hidden, self.cell.gates() * self.hidden);
        let rows = self.rows();
        assert!(kept.gates.len() == rows * width && kept.out.len() == rows * n);
        assert!(self.cell.gates() == 1 || kept.inner.len() == rows * n);
        assert!(self.sizes.is_sorted_by(|a, b| a >= b) && first[0].len() >= self.batch() * n);
        let (gates, inner, out) =
            (Parts::new(kept.gates), Parts::new(kept.inner), Parts::new(kept.out));
        let panels = n.div_ceil(weights.width());
        for step in self.steps() {
            parallel_for(panels, self.grain(step.rows, weights.width()), |range| {
                let columns = range.start * weights.width()..(range.end * weights.width()).min(n);
                for (from, to) in [(0, step.shared), (step.shared, step.rows)] {
                    if from == to {
                        continue;
                    }
                    // h of the step before, which no thread writes, or the first one.
                    let h = match from {
                        0 if step.shared > 0 => out.pointer(step.before * n).cast_const(),
                        _ => first[0][from * n..].as_ptr(),
                    };
                    for panel in range.clone() {
                        for gate in 0..self.cell.gates() {
                            let at = step.first + from;
                            // A GRU's hn stays apart from xn.
                            let (to_inner, column) =
                                (self.cell == Cell::Gru && gate == 2, panel * weights.width());
                            let c = match to_inner {
                                true => (inner.pointer(at * n + column), n),
                                false => (gates.pointer(at * width + gate * n + column), width),
                            };
                            let count = weights.width().min(n - column);
                            // SAFETY: h has `to - from` rows of n numbers; the target has as many rows,
                            // and its columns of this panel are this thread's.
                            unsafe {
                                let place = gate * panels + panel;
                                weights.multiply(place, to - from, (h, n), c, count, !to_inner);
                            }
                        }
                    }
                }
                for row in 0..step.rows {
                    let at = step.first + row;
                    let from = |i: usize| i * n + columns.start..i * n + columns.end;
                    // SAFETY: these columns of this step are this thread's.
                    let gate = |g: usize| unsafe {
                        let start = at * width + g * n;
                        gates.slice(start + columns.start..start + columns.end)
                    };
                    let bias = |g: usize| &bias[g * n..][columns.clone()];
                    // SAFETY: these columns of this step are this thread's.
                    let h = unsafe { out.slice(from(at)) };
                    match self.cell {
                        Cell::Tanh => cells::tanh(gate(0), bias(0), h),
                        Cell::Relu => cells::relu(gate(0), bias(0), h),
                        Cell::Gru => {
                            // SAFETY: these columns of this step are this thread's.
                            let hn = unsafe { inner.slice(from(at)) };
                            let before = match step.row_before(row) {
                                // SAFETY: nobody writes the step before.
                                Some(i) => unsafe { out.read(from(i)) },
                                None => &first[0][from(row)],
                            };
                            let [r, z, n] = [0, 1, 2].map(gate);
                            let [br, bz, bn, bh] = [0, 1, 2, 3].map(bias);
                            cells::gru(r, z, n, hn, br, bz, bn, bh, before, h);
                        }
                        Cell::Lstm => {
                            // SAFETY: these columns of this step are this thread's.
                            let c = unsafe { inner.slice(from(at)) };
                            let before = match step.row_before(row) {
                                // SAFETY: nobody writes the step before.
                                Some(i) => unsafe { inner.read(from(i)) },
                                None => &first[1][from(row)],
                            };
                            let [i, f, g, o] = [0, 1, 2, 3].map(gate);
                            let [bi, bf, bg, bo] = [0, 1, 2, 3].map(bias);
                            cells::lstm(i, f, g, o, bi, bf, bg, bo, before, c, h);
                        }
                    }
                }
            });
        }
    }

    /// The gradients of all steps. `weights` are the recurrent ones as rows ([`Panels::rows`]).
    pub fn backward<T: Tiled>(&self, weights: &Panels<T>, known: Known<T>, to: Gradients<T>) {
        let (n, width) = (self.hidden, self.cell.gates() * self.hidden);
        let rows = self.rows();
        assert!(self.cell.gates() == 1 || known.gates.len() == rows * width);
        assert!(to.by_input.len() == rows * width);
        assert!(known.out.len() == rows * n && known.dout.len() == rows * n);
        let (by_input, by_state) = (Parts::new(to.by_input), Parts::new(to.by_state));
        let [dh, dc] = to.states.map(Parts::new);
        let of_state = if self.cell == Cell::Gru { &by_state } else { &by_input };
        assert!(of_state.len() == rows * width && dh.len() == self.batch() * n);
        let mut steps = self.steps();
        steps.reverse();
        let panels = n.div_ceil(weights.width());
        // Each step first adds what the step after it gives to the gradient of its h; after the first step
        // that is all that is left to do.
        let mut after: Option<Step> = None;
        for step in steps.into_iter().map(Some).chain([None]) {
            let most = step.or(after).map_or(0, |s| s.rows);
            parallel_for(panels, self.grain(most, weights.width()), |range| {
                let columns = range.start * weights.width()..(range.end * weights.width()).min(n);
                for panel in range.clone() {
                    let Some(after) = after else { break };
                    let column = panel * weights.width();
                    let a = (of_state.pointer(after.first * width).cast_const(), width);
                    let c = (dh.pointer(column), n);
                    let count = weights.width().min(n - column);
                    // SAFETY: the gradients of the step after are complete and nobody writes them; these
                    // columns of dh are this thread's.
                    unsafe { weights.multiply(panel, after.rows, a, c, count, true) };
                }
                let Some(step) = step else { return };
                for row in 0..step.rows {
                    let at = step.first + row;
                    let from = |i: usize| i * n + columns.start..i * n + columns.end;
                    let place = |g: usize| {
                        let start = at * width + g * n;
                        start + columns.start..start + columns.end
                    };
                    let gate = |g: usize| &known.gates[place(g)];
                    // SAFETY: these columns of this step are this thread's.
                    let d = |g: usize| unsafe { by_input.slice(place(g)) };
                    // SAFETY: these columns of this row are this thread's.
                    let dh = unsafe { dh.slice(from(row)) };
                    let dout = &known.dout[from(at)];
                    match self.cell {
                        Cell::Tanh => cells::tanh_back(&known.out[from(at)], dout, dh, d(0)),
                        Cell::Relu => cells::relu_back(&known.out[from(at)], dout, dh, d(0)),
                        Cell::Gru => {
                            let h = match step.row_before(row) {
                                Some(i) => &known.out[from(i)],
                                None => &known.first[0][from(row)],
                            };
                            // SAFETY: as for `d`.
                            let [sr, sz, sn] =
                                [0, 1, 2].map(|g| unsafe { by_state.slice(place(g)) });
                            let ([r, z, n], hn) = ([0, 1, 2].map(gate), &known.inner[from(at)]);
                            let [dr, dz, dn] = [0, 1, 2].map(d);
                            cells::gru_back(r, z, n, hn, h, dout, dh, dr, dz, dn, sr, sz, sn);
                        }
                        Cell::Lstm => {
                            let c = match step.row_before(row) {
                                Some(i) => &known.inner[from(i)],
                                None => &known.first[1][from(row)],
                            };
                            // SAFETY: these columns of this row are this thread's.
                            let dc = unsafe { dc.slice(from(row)) };
                            let [i, f, g, o] = [0, 1, 2, 3].map(gate);
                            let ([di, df, dg, d_o], cell) =
                                ([0, 1, 2, 3].map(d), &known.inner[from(at)]);
                            cells::lstm_back(i, f, g, o, c, cell, dout, dh, dc, di, df, dg, d_o);
                        }
                    }
                }
            });
            after = step;
        }
    }
}

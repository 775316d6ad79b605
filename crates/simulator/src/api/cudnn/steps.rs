//! Graphs of many operations on tensors of four dimensions, computed one after the other: what attention consists of.

use super::tensor::{Home, Layout};
use super::{Outcome, Status, refuse};
use crate::code::Result;
use std::collections::HashMap;

/// `cudnnPointwiseMode_t`, as far as there are such here.
mod mode {
    pub const ADD: i32 = 0;
    pub const MULTIPLY: i32 = 1;
    pub const DIVIDE: i32 = 6;
    pub const SUBTRACT: i32 = 9;
    pub const EXP: i32 = 13;
    pub const LOG: i32 = 15;
    pub const IDENTITY: i32 = 21;
    pub const AT_LEAST: i32 = 303;
    pub const INDEX: i32 = 501;
    pub const SELECT: i32 = 601;
}

/// What an operation does.
#[derive(Clone, Copy, Debug)]
pub enum Operator {
    /// A function of each element, by its mode; of the place along an axis.
    Pointwise(i32, usize),
    /// A product of matrices, whose second operand may have fewer heads.
    Matmul,
    /// The largest, or else the sum, along the dimensions that are shorter then.
    Fold {
        /// Whether it is the largest.
        maximum: bool,
    },
    /// The last two dimensions the other way round.
    Turn,
}

impl Operator {
    /// Of a pointwise descriptor.
    pub fn pointwise(mode: i32, axis: i64) -> Outcome<Operator> {
        use mode::*;
        let known = [ADD, MULTIPLY, DIVIDE, SUBTRACT, EXP, LOG, IDENTITY, AT_LEAST, INDEX, SELECT];
        if !known.contains(&mode) || (mode == INDEX && !(0..4).contains(&axis)) {
            return refuse(Status::NOT_SUPPORTED, format!("pointwise mode {mode}, axis {axis}"));
        }
        Ok(Operator::Pointwise(mode, axis as usize))
    }

    /// Of a reduction descriptor.
    pub fn fold(how: i32) -> Outcome<Operator> {
        match how {
            0 | 3 => Ok(Operator::Fold { maximum: how == 3 }),
            _ => refuse(Status::NOT_SUPPORTED, format!("reductions of kind {how}")),
        }
    }
}

/// An operation: what it does, its operands, and its result.
#[derive(Clone, Debug)]
pub struct Step {
    operator: Operator,
    operands: Vec<Layout>,
    result: Layout,
}

impl Step {
    /// Looks at whether the parts fit.
    pub fn new(operator: Operator, operands: Vec<Layout>, result: Layout) -> Outcome<Step> {
        let y = result.sizes();
        let sizes: Vec<_> = operands.iter().map(Layout::sizes).collect();
        let fits = sizes.iter().chain([&y]).all(|sizes| sizes.len() == 4)
            && match (operator, &sizes[..]) {
                (Operator::Pointwise(mode, _), [x, more @ ..]) => {
                    let count = match mode {
                        mode::SELECT => 3,
                        mode::EXP | mode::LOG | mode::IDENTITY | mode::INDEX => 1,
                        _ => 2,
                    };
                    let broadcasts = |b: &&[i64]| (0..4).all(|d| b[d] == y[d] || b[d] == 1);
                    more.len() + 1 == count && x == &y && more.iter().all(broadcasts)
                }
                (Operator::Matmul, [a, b]) => {
                    a[0] == b[0]
                        && a[1] % b[1] == 0
                        && a[3] == b[2]
                        && y == [a[0], a[1], a[2], b[3]]
                }
                (Operator::Fold { .. }, [x]) => (0..4).all(|d| x[d] % y[d] == 0),
                (Operator::Turn, [x]) => y == [x[0], x[1], x[3], x[2]],
                _ => false,
            };
        if !fits {
            return refuse(Status::SHAPE_MISMATCH, format!("{operator:?} of {sizes:?} to {y:?}"));
        }
        Ok(Step { operator, operands, result })
    }

    fn tensors(&self) -> impl Iterator<Item = &Layout> {
        self.operands.iter().chain([&self.result])
    }

    /// The result of operands that lie row by row.
    fn compute(&self, of: &[&[f64]]) -> Vec<f64> {
        let sizes = self.result.sizes();
        let [b, h, m, n] = [0, 1, 2, 3].map(|d| sizes[d] as usize);
        let strides = |layout: &Layout| {
            let s = layout.sizes();
            let dense = [s[1] * s[2] * s[3], s[2] * s[3], s[3], 1];
            [0, 1, 2, 3].map(|d| if s[d] == 1 { 0 } else { dense[d] as usize })
        };
        let steps: Vec<_> = self.operands.iter().map(strides).collect();
        let place = |which: usize, index: [usize; 4]| -> usize {
            (0..4).map(|d| index[d] * steps[which][d]).sum()
        };
        let each = |value: &dyn Fn([usize; 4]) -> f64| -> Vec<f64> {
            (0..b * h * m * n)
                .map(|i| value([i / (h * m * n), i / (m * n) % h, i / n % m, i % n]))
                .collect()
        };
        match self.operator {
            Operator::Pointwise(mode, axis) => each(&|index| {
                let x = of[0][place(0, index)];
                let other = |which: usize| of[which][place(which, index)];
                match mode {
                    mode::ADD => x + other(1),
                    mode::MULTIPLY => x * other(1),
                    mode::DIVIDE => x / other(1),
                    mode::SUBTRACT => x - other(1),
                    mode::EXP => x.exp(),
                    mode::LOG => x.ln(),
                    mode::AT_LEAST => f64::from(u8::from(x >= other(1))),
                    mode::INDEX => index[axis] as f64,
                    mode::SELECT if other(2) != 0.0 => x,
                    mode::SELECT => other(1),
                    _ => x,
                }
            }),
            Operator::Matmul => {
                let [of_a, of_b] = [0, 1].map(|i| self.operands[i].sizes());
                let (depth, each_head) = (of_a[3] as usize, (of_a[1] / of_b[1]) as usize);
                each(&|[b, h, i, j]| {
                    let left = |p: usize| of[0][place(0, [b, h, i, p])];
                    let right = |p: usize| of[1][place(1, [b, h / each_head, p, j])];
                    (0..depth).map(|p| left(p) * right(p)).sum()
                })
            }
            Operator::Fold { maximum } => {
                let from = self.operands[0].sizes();
                let times = [0, 1, 2, 3].map(|d| (from[d] / sizes[d]) as usize);
                each(&|[b, h, i, j]| {
                    let mut result = if maximum { f64::NEG_INFINITY } else { 0.0 };
                    let count: usize = times.iter().product();
                    for k in 0..count {
                        let [tb, th, ti, tj] = times;
                        let inner = [k / (th * ti * tj), k / (ti * tj) % th, k / tj % ti, k % tj];
                        let index = [
                            b * tb + inner[0],
                            h * th + inner[1],
                            i * ti + inner[2],
                            j * tj + inner[3],
                        ];
                        let x = of[0][place(0, index)];
                        result = if maximum { f64::max(result, x) } else { result + x };
                    }
                    result
                })
            }
            Operator::Turn => each(&|[b, h, i, j]| of[0][place(0, [b, h, j, i])]),
        }
    }
}

/// The tensors of a call by their names: addresses of memory, and numbers.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    addresses: HashMap<i64, usize>,
    numbers: HashMap<i64, f64>,
}

/// Looks for all tensors of the steps in a pack, and reads the numbers, which are the caller's only meanwhile.
pub fn bind(steps: &[Step], pack: &[(i64, usize)]) -> Outcome<Bound> {
    let mut bound = Bound::default();
    for tensor in steps.iter().flat_map(Step::tensors) {
        match tensor.home() {
            Home::Nowhere => {}
            Home::Memory => {
                bound.addresses.insert(tensor.name(), tensor.address(pack)?);
            }
            Home::Call => {
                let at = tensor.address(pack)? as *const f32;
                if at.is_null() {
                    return refuse(Status::BAD_PARAM, "a number's address is null");
                }
                // SAFETY: the caller gives a number of the host there.
                bound.numbers.insert(tensor.name(), unsafe { at.read_unaligned() }.into());
            }
        }
    }
    Ok(bound)
}

/// Computes the steps in their order.
pub fn compute(steps: &[Step], bound: &Bound) -> Result {
    let mut values: HashMap<i64, Vec<f64>> = HashMap::new();
    for (&name, &number) in &bound.numbers {
        values.insert(name, vec![number]);
    }
    for step in steps {
        for tensor in step.tensors().filter(|tensor| tensor.home() == Home::Memory) {
            tensor.check(bound.addresses[&tensor.name()])?;
        }
        let missing = step.operands.iter().filter(|tensor| tensor.home() == Home::Memory);
        for tensor in missing {
            // A result of an earlier step is read again, as it was rounded.
            values.insert(tensor.name(), tensor.read(bound.addresses[&tensor.name()], false));
        }
        let operands: Vec<&[f64]> =
            step.operands.iter().map(|t| values.get(&t.name()).map_or(&[][..], |v| v)).collect();
        let mut result = step.compute(&operands);
        let to = &step.result;
        result.iter_mut().for_each(|x| *x = to.rounded(*x));
        if to.home() == Home::Memory {
            to.store(bound.addresses[&to.name()], &result, [1.0, 0.0]);
        }
        values.insert(to.name(), result);
    }
    Ok(())
}

/// Whether each step's operands are there when it is computed.
pub fn in_order(steps: &[Step]) -> bool {
    let mut there: Vec<i64> = Vec::new();
    steps.iter().all(|step| {
        let known = step
            .operands
            .iter()
            .all(|tensor| tensor.home() != Home::Nowhere || there.contains(&tensor.name()));
        there.push(step.result.name());
        known
    })
}

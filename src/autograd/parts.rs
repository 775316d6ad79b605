//! Gradients of parts. What backward of a select, a narrow, a split or an unbind gives is a part of a gradient; parts of
//! one tensor are put together once, when all are there: one tensor is written once, in place of zeros, a copy and a sum
//! for each part. Parts that lie side by side already, as attention's gradients of joint queries, keys and values do,
//! are the whole as they are.

use super::node::Node;
use crate::storage::Device;
use crate::tensor::{Dtype, Layout, Shape, Tensor};

/// Which entries of a dimension a part has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub dim: usize,
    pub start: usize,
    pub length: usize,
    /// Whether the part, of one entry, has the dimension no more.
    pub is_selected: bool,
}

impl Part {
    fn end(&self) -> usize {
        self.start + self.length
    }

    /// The part of a whole.
    fn of(&self, whole: &Tensor) -> Tensor {
        match self.is_selected {
            true => whole.select(self.dim as i64, self.start as i64),
            false => whole.narrow(self.dim as i64, self.start, self.length),
        }
    }

    /// A part's gradient with the dimension.
    fn with_dim(&self, grad: &Tensor) -> Tensor {
        if self.is_selected { grad.unsqueeze(self.dim as i64) } else { grad.clone() }
    }
}

/// Adds gradients of parts of a node's outputs, put together, to those of the outputs.
pub(super) fn join(
    node: &Node,
    grads: &mut [Option<Tensor>],
    mut parts: Vec<(usize, Part, Tensor)>,
) {
    while let Some(&(output, ..)) = parts.first() {
        let (own, others) = parts.into_iter().partition(|(of, ..)| *of == output);
        parts = others;
        let own: Vec<_> = own.into_iter().map(|(_, part, grad)| (part, grad)).collect();
        let beside = grads[output].take();
        grads[output] = Some(joined(&node.0.outputs[output], own, beside));
    }
}

/// Puts the gradients of parts together, and adds what there is beside them. There is one part at least.
fn joined(
    like: &(Shape, Dtype, Device),
    mut parts: Vec<(Part, Tensor)>,
    beside: Option<Tensor>,
) -> Tensor {
    let dim = parts[0].0.dim;
    parts.sort_by_key(|(part, _)| (part.dim, part.start));
    let is_apart = parts.iter().all(|(part, _)| part.dim == dim)
        && parts.windows(2).all(|pair| pair[0].0.end() <= pair[1].0.start);
    let covers =
        is_apart && parts.iter().map(|(part, _)| part.length).sum::<usize>() == like.0[dim];
    let whole = match covers {
        true => side_by_side(like, &parts).unwrap_or_else(|| {
            let parts: Vec<Tensor> = parts.iter().map(|(part, g)| part.with_dim(g)).collect();
            Tensor::cat(&parts, dim as i64)
        }),
        false => {
            let whole = Tensor::zeros(&like.0, (like.1, like.2));
            for (part, grad) in &parts {
                let own = part.of(&whole);
                if is_apart {
                    own.copy_(grad)
                } else {
                    own.add_(grad)
                };
            }
            whole
        }
    };
    match beside {
        Some(sum) => sum + whole,
        None => whole,
    }
}

/// The whole that parts are already, where their elements lie as those of one tensor would.
fn side_by_side(like: &(Shape, Dtype, Device), parts: &[(Part, Tensor)]) -> Option<Tensor> {
    let [(first, a), (second, b), ..] = parts else { return None };
    let dim = first.dim;
    let step = b.layout().offset.checked_sub(a.layout().offset)?;
    let distance = second.start - first.start;
    if step == 0 || !step.is_multiple_of(distance) {
        return None;
    }
    let stride = step / distance;
    let strides = |part: &Part, grad: &Tensor| {
        let mut strides = grad.layout().strides.clone();
        match part.is_selected {
            true => strides.insert(dim, stride as isize),
            // Of one entry it may be anything.
            false if part.length == 1 => strides[dim] = stride as isize,
            false => {}
        }
        strides
    };
    let own = strides(first, a);
    let offset = a.layout().offset.checked_sub(first.start * stride)?;
    let fits = |(part, grad): &(Part, Tensor)| {
        grad.storage().ptr_eq(a.storage())
            && grad.dtype() == like.1
            && grad.layout().offset == offset + part.start * stride
            && strides(part, grad) == own
    };
    let layout = Layout { shape: like.0.clone(), strides: own.clone(), offset };
    (own[dim] == stride as isize && parts.iter().all(fits) && layout.is_non_overlapping_and_dense())
        .then(|| Tensor::from_parts(a.storage().clone(), layout, like.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::{GraphMode, grad};
    use crate::profiler::{Category, profile};

    /// Numbers of a shape, each another one.
    fn numbers(shape: &[usize]) -> Tensor {
        let n = shape.iter().product::<usize>() as i64;
        Tensor::arange(1, n + 1, 1, Dtype::F64).reshape_to(shape)
    }

    /// The gradient of a sum of products with parts, in one backward, and as one tensor's.
    fn same(f: impl Fn(&Tensor) -> Vec<Tensor>) {
        let loss = |x: &Tensor| {
            let terms = f(x).into_iter().map(|part| (&part * &numbers(part.shape())).sum());
            terms.reduce(|a, b| a + b).unwrap()
        };
        let x = numbers(&[4, 6, 5]).requires_grad_(true);
        let y = &x * 1.0;
        loss(&y).backward();
        let x2 = x.detach().requires_grad_(true);
        // With a history no gradient is a part.
        let whole = grad(&[&loss(&(&x2 * 1.0))], &[&x2], &[None], GraphMode::Create);
        let whole = whole[0].clone().unwrap();
        assert!(x.grad().unwrap().equal(&whole.detach()));
    }

    #[test]
    fn parts_are_put_together() {
        same(|x| x.unbind(1));
        same(|x| x.split(4, 1));
        same(|x| x.chunk(3, -1));
        same(|x| vec![x.select(0, 2)]);
        same(|x| vec![x.narrow(0, 0, 1), x.narrow(0, 1, 3)]);
        same(|x| vec![x.select(0, 3), x.narrow(0, 0, 2), x.select(0, 2)]);
        // Overlapping, of several dimensions, twice the same, and beside the whole.
        same(|x| vec![x.narrow(1, 0, 4), x.narrow(1, 2, 4)]);
        same(|x| vec![x.select(0, 1), x.select(1, 2), x.narrow(2, 1, 3)]);
        same(|x| vec![x.select(0, 1), x.select(0, 1)]);
        same(|x| vec![x.clone(), x.select(0, 1), x.narrow(0, 2, 2)]);
        same(|x| vec![x.slice(0, 0, 4, 2), x.slice(0, 1, 4, 2), x.narrow(0, 1, 0).clone()]);
        same(|x| {
            vec![x.select(0, 1).narrow(1, 1, 2), x.select(0, 1).narrow(1, 3, 2), x.select(0, 0)]
        });
    }

    #[test]
    fn siblings_are_one_copy_and_joint_gradients_none() {
        let x = Tensor::ones([3, 4], Dtype::F32).requires_grad_(true);
        let joint = Tensor::ones([3, 4], Dtype::F32);
        let y = &x * 1.0;
        let parts = y.unbind(0);
        let copies = |gradients: &[Tensor]| {
            let roots: Vec<&Tensor> = parts.iter().collect();
            let given: Vec<Option<&Tensor>> = gradients.iter().map(Some).collect();
            let run = || crate::autograd::backward(&roots, &given, GraphMode::Retain);
            let ops = profile(run).1;
            let moves = |name: &str| ["copy", "cat", "fill", "zeros"].contains(&name);
            let is_move =
                |e: &&crate::profiler::Event| e.category == Category::Op && moves(&e.name);
            ops.events().iter().filter(is_move).count()
        };
        assert_eq!(copies(&joint.unbind(0)), 0);
        assert_eq!(copies(&[0, 1, 2].map(|_| Tensor::ones([4], Dtype::F32))), 1);
        // In another order they are not the whole.
        let turned: Vec<Tensor> = joint.unbind(0).into_iter().rev().collect();
        assert_eq!(copies(&turned), 1);
    }
}

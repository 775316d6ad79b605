//! Scores and classes as the kernels of losses take them.

use super::options::Reduction;

use crate::error::{Error, throw};
use crate::ops::gpu::{self};
use crate::tensor::{Dtype, Tensor};

/// The target of one row of scores, `[C]`, is a number; a list of one is that one.
pub(super) fn of_one_row(input: &Tensor, target: &Tensor) -> Tensor {
    match input.dim() == 1 && target.shape() == [1] && target.dtype().is_integral() {
        true => target.squeeze(),
        false => target.clone(),
    }
}

/// Refuses a class to ignore where the target holds probabilities.
#[track_caller]
pub(super) fn no_class_to_ignore(op: &str) -> ! {
    let message = "is for class indices; the target holds probabilities, of which all count";
    throw(Error::argument(op, "ignore_index", message))
}

/// Input as a dense `[rows, classes]` matrix and target as a dense list of checked classes.
pub(super) struct Batch {
    /// Recorded: its gradient flows to the input.
    pub(super) x: Tensor,
    pub(super) target: Tensor,
    pub(super) weight: Option<Tensor>,
    pub(super) ignore_index: i64,
}

impl Batch {
    /// Takes `[C]`, `[N, C]` and `[N, C, d...]` with targets `[]` ([`of_one_row`]), `[N]` and `[N, d...]`.
    #[track_caller]
    pub(super) fn new(
        op: &str,
        input: &Tensor,
        target: &Tensor,
        weight: Option<&Tensor>,
        ignore_index: i64,
    ) -> Batch {
        if !input.dtype().is_floating_point() {
            crate::tensor::dtype::not_floating(op, input.dtype());
        }
        let class_dim = if input.dim() < 2 { 0 } else { 1 };
        let mut rest = input.layout().shape.clone();
        if input.dim() > 0 {
            rest.remove(class_dim);
        }
        if input.dim() == 0 || rest[..] != *target.shape() {
            throw(Error::shape(
                op,
                format!(
                    "input {:?} and target {:?} do not fit: for input [N, C] or [N, C, d...] the \
                     target is [N] or [N, d...]",
                    input.shape(),
                    target.shape()
                ),
            ));
        }
        check_is_classes(op, target);
        let gpu = gpu::of(op, &[input, target]);
        let classes = input.shape()[class_dim];
        let rows = input.dim() == 2;
        let target = target.untracked().to_dtype(Dtype::I64).contiguous();
        let target = if rows { target } else { target.reshape([-1]) };
        // On a GPU the kernels look.
        if gpu.is_none() {
            check_targets(op, &target, classes, ignore_index);
        }
        if let Some(weight) = weight {
            gpu::of(op, &[input, weight]);
        }
        let weight = weight.map(|w| check_weight(op, w, classes, input.dtype()));
        // Rows lie as they are wanted.
        let x = match rows {
            true => input.contiguous(),
            false => input
                .movedim(class_dim as i64, -1)
                .reshape_to(&[target.numel(), classes])
                .contiguous(),
        };
        Batch { x, target, weight, ignore_index }
    }

    /// What `f` makes of the scores in another type, in their own again; both casts are recorded.
    pub(super) fn in_type(&self, dtype: Dtype, f: impl FnOnce(&Batch) -> Tensor) -> Tensor {
        let own = self.x.dtype();
        let (target, weight) = (self.target.clone(), self.weight.clone());
        let x = self.x.to_dtype(dtype);
        f(&Batch { x, target, weight, ignore_index: self.ignore_index }).to_dtype(own)
    }

    /// Results per row (in the input's order) reduced. `total` is the sum of the rows' weights.
    pub(super) fn reduce(
        &self,
        rows: Tensor,
        total: f64,
        reduction: Reduction,
        shape: &[usize],
    ) -> Tensor {
        match reduction {
            Reduction::None => rows.reshape_to(shape),
            Reduction::Sum => rows.sum(),
            Reduction::Mean => {
                // In the wide type, so that the sum of half types does not overflow.
                let wide = rows.to_dtype(rows.dtype().compute());
                (wide.sum() / total).to_dtype(rows.dtype())
            }
        }
    }

    /// Sum of the weights of the targets' classes, without the ignored.
    pub(super) fn total_weight(&self) -> f64 {
        // SAFETY: contiguous i64, made in `new`; nobody writes to it.
        let target = unsafe { self.target.as_slice::<i64>() };
        let kept = target.iter().filter(|&&t| t != self.ignore_index);
        match &self.weight {
            None => kept.count() as f64,
            Some(w) => {
                let w = w.to_vec::<f64>();
                kept.map(|&t| w[t as usize]).sum()
            }
        }
    }
}

#[track_caller]
pub(super) fn check_is_classes(op: &str, target: &Tensor) {
    if !matches!(target.dtype(), Dtype::I64 | Dtype::U8) {
        let holds = target.dtype();
        throw(Error::dtype(
            op,
            format!(
                "target holds {holds}; class indices are i64 or u8: convert with `.to_dtype(I64)`"
            ),
        ));
    }
}

#[track_caller]
pub(super) fn check_smoothing(op: &str, smoothing: f64) {
    if !(0.0..=1.0).contains(&smoothing) {
        let message = format!("{smoothing}; it must be between 0 and 1");
        throw(Error::argument(op, "label_smoothing", message));
    }
}

/// What a loss's gradient is divided by: 1 in place of 0, where no row counts and all gradients are 0.
pub(super) fn divisor(total: &Tensor) -> Tensor {
    total + total.eq(0.0).to_dtype(total.dtype())
}

#[track_caller]
pub(super) fn check_targets(op: &str, target: &Tensor, classes: usize, ignore_index: i64) {
    // SAFETY: contiguous i64; nobody writes to it.
    let targets = unsafe { target.as_slice::<i64>() };
    let bad = |&t: &i64| t != ignore_index && !(0..classes as i64).contains(&t);
    if let Some(position) = targets.iter().position(bad) {
        throw(Error::argument(
            op,
            "target",
            format!(
                "class {} at position {position} is out of range: there are {classes} classes, so 0 \
                 to {}, or {ignore_index} for a target that is left out",
                targets[position],
                classes as i64 - 1
            ),
        ));
    }
}

/// The weights, contiguous and in the type that kernels compute in.
#[track_caller]
pub(super) fn check_weight(op: &str, weight: &Tensor, classes: usize, dtype: Dtype) -> Tensor {
    if weight.shape() != [classes] || !weight.dtype().is_floating_point() {
        throw(Error::argument(
            op,
            "weight",
            format!(
                "{} of shape {:?}; one floating-point weight per class, shape [{classes}], is needed",
                weight.dtype(),
                weight.shape()
            ),
        ));
    }
    // Scores of half a type may have weights of what is computed in.
    if weight.dtype() != dtype && weight.dtype() != dtype.compute() {
        let message = format!("is {}, scores are {dtype}; must be of one type", weight.dtype());
        throw(Error::argument(op, "weight", message));
    }
    weight.detach().to_dtype(dtype.compute()).contiguous()
}

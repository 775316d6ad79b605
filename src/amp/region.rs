//! One op inside [`autocast`](super::autocast): its inputs in the types that its policy asks for.

use std::borrow::Borrow;

use super::autocast::{Suspended, mode, place};
use super::casts::{kept_cast, kept_casts};
use super::policy::{Policy, policies};
use crate::error::{Error, throw};
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// At the head of an op's function: inside `autocast` it calls the op again on cast inputs and
/// returns; elsewhere it is the test of a flag.
///
/// ```text
/// cast_op!("linear", [x = self, weight = weight, bias = bias] => x.linear(&weight, bias.as_ref()));
/// ```
///
/// Inputs are `&Tensor` or `Option<&Tensor>`, what they are bound to `Tensor` or `Option<Tensor>`.
macro_rules! cast_op {
    ($op:expr, [$($name:ident = $input:expr),+] => $call:expr) => {
        let _span = $crate::profiler::op_with(
            || $op,
            || Some(vec![$($crate::amp::shape_of(Option::from($input))),+]),
        );
        if $crate::amp::is_active()
            && let Some(region) = $crate::amp::Region::enter($op, &[$(Option::from($input)),+])
        {
            $(let $name = $crate::amp::Region::cast(&region, $input);)+
            return $call;
        }
    };
}
pub(crate) use cast_op;

/// An input's shape for a profile: none of one that is not given.
pub(crate) fn shape_of(input: Option<&Tensor>) -> Vec<usize> {
    input.map_or_else(Vec::new, |t| t.shape().to_vec())
}

/// While it lives, ops are not cast: they are parts of the one that was entered.
pub(crate) struct Region {
    device: Device,
    /// The half type of this device.
    lower: Dtype,
    /// What inputs are cast to, if they are.
    target: Option<Dtype>,
    _suspended: Suspended,
}

/// An input of an op.
pub(crate) trait Input {
    /// The same with an owned tensor.
    type Cast;
    fn cast(self, region: &Region) -> Self::Cast;
}

impl Input for &Tensor {
    type Cast = Tensor;
    fn cast(self, region: &Region) -> Tensor {
        region.tensor(self)
    }
}

impl Input for Option<&Tensor> {
    type Cast = Option<Tensor>;
    fn cast(self, region: &Region) -> Option<Tensor> {
        self.map(|t| region.tensor(t))
    }
}

impl Region {
    /// The region of a call of `op`, if ops on its inputs' device are cast.
    #[cold]
    #[track_caller]
    pub(crate) fn enter(op: &str, inputs: &[Option<&Tensor>]) -> Option<Self> {
        let device = inputs.iter().flatten().next()?.device();
        let lower = mode().dtype(device)?;
        let target = match policies(op)[place(device)] {
            Policy::Parts => return None,
            Policy::Keep => None,
            Policy::Lower => Some(lower),
            Policy::Single => Some(Dtype::F32),
            Policy::Widest => Some(widest(op, lower, inputs)),
        };
        Some(Region { device, lower, target, _suspended: Suspended::new() })
    }

    /// The region of a call of `op` that would cast `x`, which has the half type, to f32.
    #[track_caller]
    pub(crate) fn of_widening(op: &str, x: &Tensor) -> Option<Self> {
        if !super::is_active() {
            return None;
        }
        let widens = |region: &Region| {
            region.target == Some(Dtype::F32) && matches!(x.dtype(), Dtype::F16 | Dtype::BF16)
        };
        Self::enter(op, &[Some(x)]).filter(widens)
    }

    /// Runs `f`, which is told in which type the op's result is.
    #[track_caller]
    pub(crate) fn run(self, f: impl FnOnce(Dtype) -> Tensor) -> Tensor {
        f(self.target.unwrap_or(self.lower))
    }

    /// The region of a call of `op` on a list of tensors, and the list to call it on again.
    #[track_caller]
    pub(crate) fn of_list(op: &str, list: &[impl Borrow<Tensor>]) -> Option<(Self, Vec<Tensor>)> {
        let inputs: Vec<Option<&Tensor>> = list.iter().map(|t| Some(t.borrow())).collect();
        let region = Self::enter(op, &inputs)?;
        let cast = inputs.iter().flatten().map(|t| region.tensor(t)).collect();
        Some((region, cast))
    }

    /// An input as the op's policy wants it.
    pub(crate) fn cast<I: Input>(&self, input: I) -> I::Cast {
        input.cast(self)
    }

    /// Groups of inputs, each read as one, as the op's policy wants them; side by side where they are parameters of a GPU.
    pub(crate) fn side_by_side(&self, groups: &[&[&Tensor]]) -> Vec<Vec<Tensor>> {
        let mut all = groups.iter().copied().flatten();
        match self.target {
            Some(target) if all.all(|t| self.casts(t) && is_kept(t, target, self.lower)) => {
                kept_casts(groups, target)
            }
            _ => {
                let each = |group: &&[&Tensor]| group.iter().map(|t| self.tensor(t)).collect();
                groups.iter().map(each).collect()
            }
        }
    }

    fn tensor(&self, t: &Tensor) -> Tensor {
        match self.target {
            Some(target) if self.casts(t) => cast(t, target, self.lower),
            _ => t.clone(),
        }
    }

    /// Whether an input must be cast.
    fn casts(&self, t: &Tensor) -> bool {
        eligible(t) && t.device() == self.device && Some(t.dtype()) != self.target
    }
}

/// f64 is a wish for precision, and is not cast.
fn eligible(t: &Tensor) -> bool {
    t.dtype().is_floating_point() && t.dtype() != Dtype::F64
}

#[track_caller]
fn widest(op: &str, lower: Dtype, inputs: &[Option<&Tensor>]) -> Dtype {
    let types = || inputs.iter().flatten().filter(|t| eligible(t)).map(|t| t.dtype());
    if types().any(|dtype| dtype == Dtype::F32) {
        return Dtype::F32;
    }
    if let Some(other) = types().find(|&dtype| dtype != lower) {
        throw(Error::dtype(op, format!("got {other} inside autocast to {lower}; cast it first")));
    }
    lower
}

/// `t` as `target`. Casts of parameters to the half type are kept.
fn cast(t: &Tensor, target: Dtype, lower: Dtype) -> Tensor {
    match is_kept(t, target, lower) {
        true => kept_cast(t, target),
        false => t.to_dtype(target),
    }
}

/// Whether a cast is kept until the outermost region ends.
fn is_kept(t: &Tensor, target: Dtype, lower: Dtype) -> bool {
    mode().cache_enabled
        && target == lower
        && t.dtype() == Dtype::F32
        && t.requires_grad()
        && t.is_leaf()
}

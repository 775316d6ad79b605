//! Samples of ops for the generic checks in `checks.rs`. Each op's file gives its own through
//! `samples()`. A sample says how an op is called once, in f64; the check
//! derives the rest from that: gradients and second order by finite differences, f32 and the half
//! types against f64, and strided inputs against contiguous ones.

use crate::tensor::{Dtype, Tensor};

/// How often a sample's function can be differentiated where the sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Not at all: an integer or truth value, or a step.
    None,
    /// Once: the gradient is checked, the gradient's gradient is not.
    First,
    /// Twice.
    Second,
}

/// The function of a sample: from inputs to one output.
pub type SampleFn = Box<dyn Fn(&[Tensor]) -> Tensor + Send + Sync>;

/// One call of an op. Made by [`OpSample::new`] and refined by the methods.
pub struct OpSample {
    /// Names the op and what is special about this call: `sum(dim=[0, 2])`.
    pub name: String,
    /// Floating-point inputs are f64 (the check converts them); others are passed as they are.
    pub inputs: Vec<Tensor>,
    /// The call. It must not depend on the inputs' dtype or strides; an in-place op is called on a
    /// clone.
    pub f: SampleFn,
    /// How far derivatives are checked.
    pub order: Order,
    /// Whether f16 and bf16 inputs are checked.
    pub half: bool,
    /// Factor on the tolerances of f32, f16 and bf16, for ops that add up many rounding errors.
    pub slack: f64,
}

impl OpSample {
    /// A sample that is checked in full; `f` is called with `inputs` or converted copies of them.
    pub fn new(
        name: impl Into<String>,
        inputs: impl Into<Vec<Tensor>>,
        f: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'static,
    ) -> Self {
        let inputs = inputs.into();
        let wrong =
            inputs.iter().find(|t| t.dtype().is_floating_point() && t.dtype() != Dtype::F64);
        assert!(wrong.is_none(), "floating-point inputs of samples are f64, got {wrong:?}");
        OpSample {
            name: name.into(),
            inputs,
            f: Box::new(f),
            order: Order::Second,
            half: true,
            slack: 1.0,
        }
    }

    /// Derivatives are checked up to this order only.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// f16 and bf16 are not checked.
    pub fn no_half(mut self) -> Self {
        self.half = false;
        self
    }

    /// Tolerances of f32, f16 and bf16 times `factor`.
    pub fn slack(mut self, factor: f64) -> Self {
        self.slack = factor;
        self
    }
}

/// Distinct f64 numbers in (-2, 2) in a shuffled order: no ties, so that maxima and orders do not
/// change under the small steps of finite differences. Another `seed` gives others.
pub fn values(shape: impl AsRef<[usize]>, seed: u64) -> Tensor {
    let shape = shape.as_ref();
    let n = shape.iter().product::<usize>() as u64;
    // Steps of a number coprime to n visit every residue once.
    let stride = (0..).map(|k| n * 5 / 8 + 1 + k).find(|&s| gcd(s, n) == 1).unwrap_or(1);
    let place = |i: u64| (i * stride + seed * 7) % n.max(1);
    let shift = (seed % 10) as f64 / 20.0;
    let data: Vec<f64> =
        (0..n).map(|i| (place(i) as f64 + 0.25 + shift) / n as f64 * 4.0 - 2.0).collect();
    Tensor::from_slice(&data, shape)
}

/// Distinct f64 numbers in (0.5, 2.5) in a shuffled order, for divisors, logarithms and weights.
pub fn positive(shape: impl AsRef<[usize]>, seed: u64) -> Tensor {
    let t = values(shape, seed);
    let data: Vec<f64> = t.to_vec::<f64>().iter().map(|v| v / 2.0 + 1.5).collect();
    Tensor::from_slice(&data, t.shape())
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

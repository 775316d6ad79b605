//! Random tensors, random choices and dropout. A [`Generator`] is a seed and an offset that counts the draws made
//! from it; each draw (one call, however many numbers) has a Philox stream of its own, in which element `i` is a
//! pure function of `i`. So numbers do not depend on the number of threads, and (seed, offset) in a
//! checkpoint is all that is needed to go on as if nothing had happened.
//!
//! `Tensor::rand` and the like draw from the process's default generator, which
//! [`manual_seed`] sets; the methods of a `Generator` of one's own draw from that.
//!
//! ```
//! use torchrs::ops::random::{Generator, manual_seed};
//! use torchrs::{Dtype, Tensor};
//! manual_seed(7);
//! let x = Tensor::rand([3], Dtype::F32);
//! assert!(Generator::new(7).rand([3], Dtype::F32).equal(&x));
//! ```

mod counts;
pub(super) mod cuda;
mod dropout;
mod fill;
mod gamma;
mod generator;
mod pick;
mod recorded;
mod shaped;
mod words;

pub use generator::{Generator, GeneratorState, default_generator, fork_rng, manual_seed};
pub(crate) use generator::{fork_rng_at, seed_by_hand};

pub(crate) use recorded::RecordedDraws;
pub(super) use words::{Words, kept};

use crate::tensor::{Tensor, TensorOptions};
use generator::DEFAULT;

/// Throws for integers, bools and complex numbers.
#[track_caller]
fn assert_floating(op: &str, t: &Tensor) {
    if !t.dtype().is_floating_point() {
        crate::tensor::dtype::not_floating(op, t.dtype());
    }
}

macro_rules! from_default {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $t:ty),*);)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name($($arg: $t),*) -> Tensor {
                DEFAULT.$name($($arg),*)
            }
        )*}
    };
}
from_default! {
    /// Uniform numbers in [0, 1) from the default generator (`torch.rand`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// torchrs::manual_seed(0);
    /// let x = Tensor::rand([1000], Dtype::F32);
    /// assert!(x.min().item() >= 0.0 && x.max().item() < 1.0 && (x.mean().item() - 0.5).abs() < 0.1);
    /// ```
    rand(shape: impl AsRef<[usize]>, options: impl Into<TensorOptions>);
    /// Standard normal numbers from the default generator (`torch.randn`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// torchrs::manual_seed(0);
    /// let x = Tensor::randn([1000], Dtype::F32);
    /// assert!(x.mean().item().abs() < 0.2 && (x.std_dim(&[], 1, false).item() - 1.0).abs() < 0.2);
    /// ```
    randn(shape: impl AsRef<[usize]>, options: impl Into<TensorOptions>);
    /// Uniform integers in `low..high` from the default generator (`torch.randint`); usually
    /// `options` is `I64`.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::randint(0, 10, [1000], Dtype::I64);
    /// assert!(x.min().item() >= 0.0 && x.max().item() <= 9.0);
    /// ```
    ///
    /// # Panics
    /// Throws when `high` is not above `low`.
    randint(low: i64, high: i64, shape: impl AsRef<[usize]>, options: impl Into<TensorOptions>);
    /// The numbers `0..n` in random order, i64, from the default generator (`torch.randperm`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::randperm(4).sort(0, false).0.to_vec::<i64>(), [0, 1, 2, 3]);
    /// ```
    randperm(n: usize);
}

macro_rules! methods_from_default {
    ($($(#[$doc:meta])* $name:ident(self $(, $arg:ident: $t:ty)*) -> $result:ty;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self $(, $arg: $t)*) -> $result {
                DEFAULT.$name(self $(, $arg)*)
            }
        )*}
    };
}
methods_from_default! {
    /// Overwrites the elements with uniform numbers in [low, high) (`torch.Tensor.uniform_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f32, 0.]);
    /// x.uniform_(2.0, 3.0);
    /// assert!(x.min().item() >= 2.0 && x.max().item() < 3.0);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when `high` is below `low`.
    uniform_(self, low: f64, high: f64) -> &Tensor;
    /// Overwrites the elements with normal numbers (`torch.Tensor.normal_`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// torchrs::manual_seed(0);
    /// let x = Tensor::zeros([1000], Dtype::F32);
    /// assert!((x.normal_(100.0, 0.5).mean().item() - 100.0).abs() < 0.1);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when `std` is negative.
    normal_(self, mean: f64, std: f64) -> &Tensor;
    /// Overwrites the elements with 1 with probability `p`, else 0 (`torch.Tensor.bernoulli_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([7f32, 7.]);
    /// assert_eq!(x.bernoulli_(1.0).to_vec::<f32>(), [1.0, 1.0]);
    /// assert_eq!(x.bernoulli_(0.0).to_vec::<f32>(), [0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// Throws when `p` is not a probability.
    bernoulli_(self, p: f64) -> &Tensor;
    /// 1 with the probability that the element holds, else 0 (`torch.bernoulli`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([0f32, 1., 0.]).bernoulli().to_vec::<f32>(), [0.0, 1.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when an element is not a probability.
    bernoulli(self) -> Tensor;
    /// Indices drawn with probabilities in proportion to the weights in this list, or in each row of
    /// this matrix (`torch.multinomial`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let places = Tensor::from([[0f32, 2., 1.], [0., 0., 1.]]).multinomial(1, true);
    /// assert!(places.i((0, 0)).item() >= 1.0 && places.i((1, 0)).item() == 2.0);
    /// ```
    ///
    /// # Panics
    /// Throws when weights are negative, not finite or all zero, or more indices are drawn without
    /// replacement than weights are positive.
    multinomial(self, num_samples: usize, replacement: bool) -> Tensor;
    /// In training, each element is set to zero with probability `p` and otherwise divided by
    /// `1 - p`; else this tensor itself (`torch.nn.functional.dropout`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::ones([100], Dtype::F32);
    /// assert_eq!(x.dropout(0.5, true).unique().values.to_vec::<f32>(), [0.0, 2.0]);
    /// assert!(x.dropout(0.5, false).equal(&x));
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when `p` is not a probability.
    dropout(self, p: f64, training: bool) -> Tensor;
}

crate::ops::table::ops! {
    cuda { kernels: [PROGRAM] }
    dropout { samples }
}

//! PowerSGD: gradients that are matrices travel as the factors of an approximation of low rank.
//! (Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
//! Optimization", NeurIPS 2019, algorithms 1 and 2.)
//!
//! With M this rank's gradient, `[n, m]`, what was left of it in earlier steps added, and Q of `[m, r]` with
//! orthonormal columns, the same on all ranks:
//!
//! ```text
//! P = orthonormal columns of mean(M Q)        Q' = mean(M^T P)
//! gradient = P Q'^T on all ranks              left for the next step: M - P Q'^T
//! ```
//!
//! Q' is the next step's Q, so that the steps together are an iteration towards the largest singular
//! vectors.

use std::collections::HashMap;

use crate::distributed::{ProcessGroup, ReduceOp};
use crate::error::{Error, Result};
use crate::nn::parallel::{CommHook, GradBucket};
use crate::ops::random::Generator;
use crate::tensor::{Dtype, Tensor};

/// Options of [`PowerSgd`], with PyTorch's names and defaults (`PowerSGDState`).
///
/// ```
/// use torchrs::distributed::comm_hooks::PowerSgdOptions;
/// let options = PowerSgdOptions { matrix_approximation_rank: 4, ..Default::default() };
/// assert_eq!((options.start_iter, options.warm_start), (1000, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerSgdOptions {
    /// Rank of the approximations: more is more exact and sends more.
    pub matrix_approximation_rank: usize,
    /// Steps with plain all-reduces before the first compressed one (`start_powerSGD_iter`).
    pub start_iter: u64,
    /// A matrix is sent whole unless this is less than its elements over its factors'.
    pub min_compression_rate: f64,
    /// Whether what a step leaves out is added to the next step's gradient.
    pub use_error_feedback: bool,
    /// Whether a step begins with the factors of the one before, not with random ones.
    pub warm_start: bool,
    /// Added to norms before something is divided by them.
    pub orthogonalization_epsilon: f64,
    /// Seed of the random factors; the same on all ranks.
    pub random_seed: u64,
}

impl Default for PowerSgdOptions {
    fn default() -> Self {
        PowerSgdOptions {
            matrix_approximation_rank: 1,
            start_iter: 1000,
            min_compression_rate: 2.0,
            use_error_feedback: true,
            warm_start: true,
            orthogonalization_epsilon: 0.0,
            random_seed: 0,
        }
    }
}

/// Sends gradients as products of two thin matrices (`powerSGD_hook`). Nothing in it waits for a GPU.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use std::sync::{Arc, Mutex};
/// use torchrs::{Tensor, nn::{self, Forward}};
/// use torchrs::distributed::{DistributedDataParallel, comm_hooks::{PowerSgd, PowerSgdOptions}};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let model = DistributedDataParallel::new(nn::Linear::new(10, 10), &group)?;
/// let options = PowerSgdOptions { start_iter: 0, ..Default::default() };
/// let hook = Arc::new(Mutex::new(PowerSgd::new(options)?));
/// model.register_comm_hook(hook.clone())?;
/// // The gradient of the weight has rank 1: nothing is lost.
/// let x = Tensor::full([1, 10], group.rank() as f64 + 1.0, torchrs::Dtype::F32);
/// model.forward(&x).sum().backward();
/// assert!((model.weight.grad().unwrap() - 1.5).abs().max().item() < 1e-5);
/// // 110 numbers were sent as 30.
/// assert_eq!(hook.lock().unwrap().compression_stats(), (110.0 / 30.0, 110, 30));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct PowerSgd {
    options: PowerSgdOptions,
    generator: Generator,
    /// Steps so far.
    iter: u64,
    /// By bucket.
    memory: HashMap<usize, Memory>,
    before: usize,
    after: usize,
}

/// What one step of a bucket leaves for the next: of every stack of matrices.
#[derive(Debug, Default)]
struct Memory {
    qs: Vec<Tensor>,
    errors: Vec<Tensor>,
}

/// Matrices of one shape.
struct Stack {
    shape: [usize; 2],
    rank: usize,
    gradients: Vec<Tensor>,
}

impl PowerSgd {
    /// A hook for one model.
    ///
    /// ```
    /// use torchrs::distributed::comm_hooks::{PowerSgd, PowerSgdOptions};
    /// let options = PowerSgdOptions { matrix_approximation_rank: 0, ..Default::default() };
    /// assert!(PowerSgd::new(options).is_err());
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] where the rank is 0, or the rate or the epsilon is negative.
    pub fn new(options: PowerSgdOptions) -> Result<Self> {
        let wrong = |name: &str, value: String, rule: &str| {
            Err(Error::argument("PowerSgd", name, format!("{value}; must be {rule}")))
        };
        if options.matrix_approximation_rank == 0 {
            return wrong("matrix_approximation_rank", "0".into(), "at least 1");
        }
        for (name, value) in [
            ("min_compression_rate", options.min_compression_rate),
            ("orthogonalization_epsilon", options.orthogonalization_epsilon),
        ] {
            if value.is_nan() || value < 0.0 {
                return wrong(name, value.to_string(), "0 or more");
            }
        }
        let generator = Generator::new(options.random_seed);
        Ok(PowerSgd { options, generator, iter: 0, memory: HashMap::new(), before: 0, after: 0 })
    }

    /// How many times fewer numbers were sent by compressed steps; how many there were, and how many
    /// were sent (`PowerSGDState.compression_stats`).
    pub fn compression_stats(&self) -> (f64, usize, usize) {
        let rate = if self.after > 0 { self.before as f64 / self.after as f64 } else { 0.0 };
        (rate, self.before, self.after)
    }

    /// The gradients that are worth it as stacks of matrices of one shape, and the others.
    fn sort(&mut self, gradients: Vec<Tensor>) -> (Vec<Stack>, Vec<Tensor>) {
        let (mut stacks, mut whole): (Vec<Stack>, Vec<Tensor>) = Default::default();
        for gradient in gradients {
            let rows = gradient.shape().first().copied().unwrap_or(1);
            let shape = [rows, gradient.numel() / rows.max(1)];
            let rank = self.options.matrix_approximation_rank.min(shape[0]).min(shape[1]);
            let factors = (shape[0] + shape[1]) * rank;
            let pays = factors as f64 * self.options.min_compression_rate < gradient.numel() as f64;
            self.before += gradient.numel();
            self.after += if pays { factors } else { gradient.numel() };
            if !pays {
                whole.push(gradient);
                continue;
            }
            match stacks.iter_mut().find(|stack| stack.shape == shape) {
                Some(stack) => stack.gradients.push(gradient),
                None => stacks.push(Stack { shape, rank, gradients: vec![gradient] }),
            }
        }
        (stacks, whole)
    }

    /// The columns that a stack's matrices are multiplied by at first.
    fn first_q(&self, stack: &Stack, like: &Tensor) -> Tensor {
        let shape = [stack.gradients.len(), stack.shape[1], stack.rank];
        // Drawn as f32, so that rounded gradients begin like those that are not.
        self.generator.randn(shape, (Dtype::F32, like.device())).to_dtype(like.dtype())
    }

    fn compress(&mut self, bucket: &GradBucket, group: &ProcessGroup) -> Result<()> {
        let mean = |parts: &[Tensor]| {
            let flat: Vec<Tensor> = parts.iter().map(|part| part.reshape([-1])).collect();
            let flat = Tensor::cat(&flat, 0);
            group.all_reduce(&flat, ReduceOp::Avg)?;
            let mut start = 0;
            let cut = |part: &Tensor| {
                start += part.numel();
                flat.narrow(0, start - part.numel(), part.numel()).reshape_to(part.shape())
            };
            Ok::<Vec<Tensor>, Error>(parts.iter().map(cut).collect())
        };
        let (stacks, whole) = self.sort(bucket.gradients());
        let Memory { qs, errors } = self.memory.remove(&bucket.index()).unwrap_or_default();
        let epsilon = self.options.orthogonalization_epsilon;
        let matrices: Vec<Tensor> = stacks
            .iter()
            .enumerate()
            .map(|(i, stack)| {
                let [rows, columns] = stack.shape.map(|n| n as i64);
                let flat: Vec<Tensor> =
                    stack.gradients.iter().map(|g| g.reshape([rows, columns])).collect();
                let matrices = Tensor::stack(&flat, 0);
                if let Some(error) = errors.get(i) {
                    matrices.add_(error);
                }
                matrices
            })
            .collect();
        let mut parts = whole.clone();
        for (i, (stack, matrix)) in stacks.iter().zip(&matrices).enumerate() {
            let q = qs.get(i).cloned().unwrap_or_else(|| self.first_q(stack, matrix));
            orthogonalize(&q, epsilon);
            parts.push(matrix.bmm(&q));
        }
        if parts.is_empty() {
            return Ok(());
        }
        let mut means = mean(&parts)?;
        let ps = means.split_off(whole.len());
        for (gradient, mean) in whole.iter().zip(&means) {
            gradient.copy_(mean);
        }
        if stacks.is_empty() {
            return Ok(());
        }
        let products = |(p, matrix): (&Tensor, &Tensor)| {
            orthogonalize(p, epsilon);
            matrix.transpose(1, 2).bmm(p)
        };
        let qs: Vec<Tensor> = ps.iter().zip(&matrices).map(products).collect();
        let qs = mean(&qs)?;
        let mut memory = Memory::default();
        for (i, stack) in stacks.iter().enumerate() {
            let approximations = ps[i].bmm(&qs[i].transpose(1, 2));
            for (gradient, own) in stack.gradients.iter().zip(approximations.unbind(0)) {
                gradient.copy_(&own.reshape_to(gradient.shape()));
            }
            if self.options.use_error_feedback {
                memory.errors.push(&matrices[i] - &approximations);
            }
        }
        if self.options.warm_start {
            memory.qs = qs;
        }
        self.memory.insert(bucket.index(), memory);
        Ok(())
    }
}

impl CommHook for PowerSgd {
    fn reduce(&mut self, bucket: &GradBucket, group: &ProcessGroup) -> Result<Tensor> {
        if self.iter < self.options.start_iter {
            group.all_reduce(bucket.buffer(), ReduceOp::Avg)?;
        } else {
            self.compress(bucket, group)?;
        }
        self.iter += u64::from(bucket.is_last());
        Ok(bucket.buffer().clone())
    }
}

/// Makes the columns of `[k, n, r]` orthonormal, in place (Gram and Schmidt's way). A column that vanishes,
/// as those of a gradient of zeros do, stays zero.
fn orthogonalize(matrices: &Tensor, epsilon: f64) {
    // Of f16 too a number that divides nothing but zeros.
    const TINY: f64 = 6e-8;
    let columns = matrices.size(2);
    for i in 0..columns {
        let column = matrices.narrow(2, i, 1);
        let norm = column.norm_dim(2.0, &[1], true);
        let norm = if epsilon > 0.0 { norm + epsilon } else { norm.clamp_min(TINY) };
        column.div_(&norm);
        if i + 1 < columns {
            let rest = matrices.narrow(2, i + 1, columns - i - 1);
            rest.sub_(&((&column * &rest).sum_dim(&[1], true) * &column));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_orthonormal_and_vanishing_ones_stay() {
        crate::fork_rng(|| {
            crate::ops::random::manual_seed(1);
            let x = Tensor::randn([3, 20, 4], Dtype::F32);
            orthogonalize(&x, 0.0);
            let products = x.transpose(1, 2).bmm(&x);
            let eye = Tensor::eye(4, Dtype::F32);
            assert!((&products - &eye).abs().max().item() < 1e-5, "{products}");
            let x = Tensor::zeros([1, 5, 2], Dtype::F32);
            orthogonalize(&x, 0.0);
            assert_eq!(x.abs().max().item(), 0.0);
        });
    }
}

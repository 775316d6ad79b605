//! Random integers, permutations and choices.

use super::recorded::resolve;
use smallvec::smallvec;

use super::cuda;
use super::fill::uniform_list;
use super::generator::{Draw, Generator};
use crate::autograd::record_inplace;
use crate::cpu::numbers::philox::PhiloxStream;
use crate::error::{Error, throw};
use crate::ops::gpu;
use crate::storage::race::Scope;
use crate::tensor::{Dtype, Element, Tensor, TensorOptions, dispatch};

#[track_caller]
fn assert_probability(op: &str, p: f64) {
    if !(0.0..=1.0).contains(&p) {
        throw(Error::argument(op, "p", format!("{p}; a probability between 0 and 1 is needed")));
    }
}

/// A number below `span` of 64 random bits, or of 128 where one could see that some are likelier than others; as many
/// for each number, so that threads can begin anywhere.
fn below(words: &mut PhiloxStream, span: u64) -> u64 {
    let times = |bits: u64| u128::from(bits) * u128::from(span);
    let low = times(words.next_u64()) >> 64;
    if span <= 1 << 32 { low as u64 } else { ((times(words.next_u64()) + low) >> 64) as u64 }
}

impl Generator {
    /// Uniform integers in `low..high` (`torch.randint` with a generator).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator};
    /// let x = Generator::new(7).randint(-1, 2, [1000], Dtype::I64);
    /// assert_eq!(x.unique().values.to_vec::<i64>(), [-1, 0, 1]);
    /// ```
    ///
    /// # Panics
    /// Throws when `high` is not above `low`.
    #[track_caller]
    pub fn randint(
        &self,
        low: i64,
        high: i64,
        shape: impl AsRef<[usize]>,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        if high <= low {
            throw(Error::argument(
                "randint",
                "high",
                format!("{high}; it must be above `low`, {low}"),
            ));
        }
        let options = options.into();
        options.made(shape, |t| {
            let span = high.wrapping_sub(low) as u64;
            if options.dtype.is_complex() {
                let real = TensorOptions { dtype: Dtype::I64, requires_grad: false, ..options };
                t.copy_(&self.randint(low, high, t.shape(), real));
            } else if let Some(gpu) = gpu::of("randint", &[t]) {
                cuda::integers(gpu, t, resolve(gpu, self.draw_on(t.device())), low, span);
            } else {
                let mut words = self.draw().words();
                dispatch!(t.dtype(), T => {
                    // SAFETY: fresh, contiguous and of type T.
                    for o in unsafe { t.as_mut_slice::<T>() } {
                        *o = T::from_i64(low.wrapping_add(below(&mut words, span) as i64));
                    }
                });
            }
        })
    }

    /// The numbers `0..n` in random order, i64 (`torch.randperm` with a generator).
    ///
    /// ```
    /// use torchrs::Generator;
    /// let x = Generator::new(7).randperm(5);
    /// assert_eq!(x.sort(0, false).0.to_vec::<i64>(), [0, 1, 2, 3, 4]);
    /// ```
    pub fn randperm(&self, n: usize) -> Tensor {
        let mut words = self.draw().words();
        let mut order: Vec<i64> = (0..n as i64).collect();
        // Fisher and Yates.
        for i in (1..n).rev() {
            order.swap(i, words.below(i as u64 + 1) as usize);
        }
        Tensor::from(order)
    }

    /// Overwrites `t` with 1 with probability `p`, else 0 (`torch.Tensor.bernoulli_`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let x = Tensor::empty([1000], Dtype::F32);
    /// Generator::new(7).bernoulli_(&x, 0.25);
    /// assert_eq!(x.unique().values.to_vec::<f32>(), [0.0, 1.0]);
    /// assert!((150.0..350.0).contains(&x.sum().item()));
    /// ```
    ///
    /// # Panics
    /// Throws when `p` is not a probability.
    #[track_caller]
    pub fn bernoulli_<'t>(&self, t: &'t Tensor, p: f64) -> &'t Tensor {
        assert_probability("bernoulli_", p);
        let _scope = Scope::enter(|| "bernoulli_");
        t.assert_inplace_legal("bernoulli_");
        let draw = self.draw_on(t.device());
        t.change_dense(|x| {
            if let Some(gpu) = gpu::of("bernoulli_", &[x]) {
                return cuda::bernoulli(gpu, x, None, p, resolve(gpu, draw));
            }
            let uniform = uniform_list(draw, x.numel());
            dispatch!(x.dtype(), T => {
                // SAFETY: dense, of type T, and about to be overwritten by the caller's wish.
                let x = unsafe { x.as_mut_slice::<T>() };
                x.iter_mut().zip(&uniform).for_each(|(x, &u)| *x = T::from_i64((u < p) as i64));
            });
        });
        record_inplace("bernoulli_", t, &[t], |_| {
            |_: &crate::autograd::BackwardCtx<'_>| smallvec![None]
        });
        t
    }

    /// 1 with the probability that the element of `p` holds, else 0 (`torch.bernoulli`).
    ///
    /// ```
    /// use torchrs::{Generator, Tensor};
    /// let p = Tensor::from([0f32, 1., 0.]);
    /// assert_eq!(Generator::new(7).bernoulli(&p).to_vec::<f32>(), [0.0, 1.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when an element is not a probability.
    #[track_caller]
    pub fn bernoulli(&self, p: &Tensor) -> Tensor {
        super::assert_floating("bernoulli", p);
        if let Some(gpu) = gpu::of("bernoulli", &[p]) {
            let out = p.detach().clone_contiguous();
            cuda::bernoulli(gpu, &out, Some(&out), 0.0, resolve(gpu, self.draw_on(p.device())));
            return out;
        }
        let all = p.to_vec::<f64>();
        if let Some(&bad) = all.iter().find(|p| !(0.0..=1.0).contains(*p)) {
            assert_probability("bernoulli", bad);
        }
        let uniform = uniform_list(self.draw(), all.len());
        let drawn: Vec<bool> = uniform.iter().zip(&all).map(|(u, p)| u < p).collect();
        Tensor::from_slice(&drawn, p.shape()).to_dtype(p.dtype())
    }

    /// Indices drawn with probabilities in proportion to `weights`, a list or the rows of a matrix
    /// (`torch.multinomial`).
    ///
    /// ```
    /// use torchrs::{Generator, Tensor};
    /// let weights = Tensor::from([0f32, 3., 1.]);
    /// let drawn = Generator::new(7).multinomial(&weights, 2, false);
    /// assert_eq!(drawn.sort(0, false).0.to_vec::<i64>(), [1, 2]);
    /// let ones = Generator::new(7).multinomial(&weights, 1000, true).eq(1).sum().item();
    /// assert!((650.0..850.0).contains(&ones));
    /// ```
    ///
    /// # Panics
    /// Throws when weights are negative, not finite or all zero, no index is drawn, or more are without
    /// replacement than weights are positive.
    #[track_caller]
    pub fn multinomial(&self, weights: &Tensor, num_samples: usize, replacement: bool) -> Tensor {
        let op = "multinomial";
        super::assert_floating(op, weights);
        let (mut shape, classes) = match *weights.shape() {
            [n] => (vec![], n),
            [rows, n] => (vec![rows], n),
            _ => throw(Error::shape(
                op,
                format!("takes a list or a matrix of weights, got shape {:?}", weights.shape()),
            )),
        };
        if num_samples == 0 {
            throw(Error::argument(op, "num_samples", "0; must be at least 1"));
        }
        shape.push(num_samples);
        if let Some(gpu) = gpu::of(op, &[weights]) {
            let sizes = [weights.numel() / classes.max(1), classes, num_samples];
            return multinomial_on_gpu(
                gpu,
                weights,
                sizes,
                replacement,
                self.draw_on(weights.device()),
            )
            .reshape_to(&shape);
        }
        let all = weights.to_vec::<f64>();
        assert_weights(op, &all);
        let draw = self.draw();
        let uniform = uniform_list(draw, all.len().max(all.len() / classes.max(1) * num_samples));
        let mut out: Vec<i64> = Vec::new();
        for (row, w) in all.chunks(classes.max(1)).enumerate() {
            let positive = w.iter().filter(|w| **w > 0.0).count();
            if positive == 0 || !replacement && positive < num_samples {
                throw(Error::argument(
                    op,
                    "num_samples",
                    format!(
                        "{num_samples} indices from {positive} weights that are not 0{}",
                        if replacement { "" } else { ", without replacement" }
                    ),
                ));
            }
            if replacement {
                out.extend(with_replacement(w, &uniform[row * num_samples..][..num_samples]));
            } else {
                out.extend(without_replacement(
                    w,
                    &uniform[row * classes..][..classes],
                    num_samples,
                ));
            }
        }
        Tensor::from_slice(&out, shape).to_device(weights.device())
    }
}

/// Refuses weights of which one is negative or not finite.
#[track_caller]
fn assert_weights(op: &str, all: &[f64]) {
    if let Some(i) = all.iter().position(|w| !w.is_finite() || *w < 0.0) {
        let message = format!("{} at position {i}; weights are finite and at least 0", all[i]);
        throw(Error::argument(op, "weights", message));
    }
}

/// The same draws on a GPU: `[rows, samples]` of `[rows, classes]`. Waits once, to see that the weights are right.
#[track_caller]
fn multinomial_on_gpu(
    gpu: gpu::Gpu,
    weights: &Tensor,
    [rows, classes, samples]: [usize; 3],
    replacement: bool,
    draw: Draw,
) -> Tensor {
    let op = "multinomial";
    let device = gpu.device();
    if rows * classes == 0 {
        return Tensor::zeros([rows, samples], (Dtype::I64, device));
    }
    let w = weights.detach().to_dtype(Dtype::F64).reshape_to(&[rows, classes]);
    let positive = w.gt(0.0);
    let least = positive.sum_dim(&[1], false).min();
    let wrong = w.isfinite().logical_and(&w.ge(0.0)).logical_not().sum();
    // Without values all weights count as fine.
    let facts = match device.is_meta() {
        true => vec![0, classes as i64],
        false => Tensor::stack(&[wrong, least], 0).to_vec::<i64>(),
    };
    if facts[0] > 0 {
        assert_weights(op, &weights.to_vec::<f64>());
    }
    if facts[1] == 0 || !replacement && facts[1] < samples as i64 {
        let how = if replacement { "" } else { ", without replacement" };
        let least = facts[1];
        let message = format!("{samples} indices from {least} weights that are not 0{how}");
        throw(Error::argument(op, "num_samples", message));
    }
    let uniform = |n: usize| {
        let list = Tensor::empty([rows, n], (Dtype::F64, device));
        cuda::fill(gpu, &list, resolve(gpu, draw), cuda::Shape::Uniform(0.0, 1.0));
        list
    };
    if !replacement {
        let times = -(1.0 - uniform(classes)).log() / &w;
        let times = positive.where_(&times, f64::INFINITY);
        return times.argsort(1, false).narrow(1, 0, samples).contiguous();
    }
    let sums = w.cumsum(1);
    let places = Tensor::arange(0, classes as i64, 1, (Dtype::I64, device));
    // Rounding can put a number at the end: the last index with a weight is meant.
    let last = positive.where_(&places, 0i64).amax(&[1], true);
    let at = uniform(samples) * sums.narrow(1, classes - 1, 1);
    sums.searchsorted(&at, true).minimum(&last)
}

/// For each uniform number, the index in whose part of the cumulated weights it falls.
fn with_replacement<'a>(w: &[f64], uniform: &'a [f64]) -> impl Iterator<Item = i64> + use<'a> {
    let sums: Vec<f64> = w
        .iter()
        .scan(0.0, |sum, w| {
            *sum += w;
            Some(*sum)
        })
        .collect();
    let total = sums[sums.len() - 1];
    // Rounding can put `u total` at the end: the last index with a weight is meant.
    let last = w.iter().rposition(|w| *w > 0.0).unwrap_or(0);
    uniform.iter().map(move |u| sums.partition_point(|s| *s <= u * total).min(last) as i64)
}

/// The indices of the `k` smallest `e_i / w_i` with exponential numbers `e_i`: each is the next one
/// with probability in proportion to its weight.
fn without_replacement(w: &[f64], uniform: &[f64], k: usize) -> Vec<i64> {
    let time = |(w, u): (&f64, &f64)| if *w > 0.0 { -(1.0 - u).ln() / w } else { f64::INFINITY };
    let times: Vec<f64> = w.iter().zip(uniform).map(time).collect();
    let mut order: Vec<i64> = (0..w.len() as i64).collect();
    order.sort_by(|&i, &j| times[i as usize].total_cmp(&times[j as usize]));
    order.truncate(k);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;

    #[test]
    fn integers_are_in_range_and_permutations_complete() {
        let g = Generator::new(1);
        let x = g.randint(-3, 5, [1000], Dtype::I64).to_vec::<i64>();
        assert!((-3..5).all(|v| x.contains(&v)) && x.iter().all(|v| (-3..5).contains(v)));
        assert_eq!(g.randint(i64::MIN, i64::MAX, [4], Dtype::I64).numel(), 4);
        let mut order = g.randperm(257).to_vec::<i64>();
        assert!(order.windows(2).any(|w| w[0] > w[1]));
        order.sort();
        assert_eq!(order, (0..257).collect::<Vec<i64>>());
        let error = catch(|| g.randint(3, 3, [1], Dtype::I64)).unwrap_err().to_string();
        assert!(error.contains("randint") && error.contains("above `low`, 3"), "{error}");
    }

    #[test]
    fn choices_follow_their_weights() {
        let g = Generator::new(2);
        let w = Tensor::from([[1f32, 0., 3.], [0., 5., 0.]]);
        let drawn = g.multinomial(&w, 8000, true);
        assert_eq!(drawn.shape(), &[2, 8000]);
        let first = drawn.i(0).to_vec::<i64>();
        let twos = first.iter().filter(|i| **i == 2).count();
        // The standard deviation is 39; the seed is fixed.
        assert!(twos.abs_diff(6000) < 160 && first.iter().all(|i| *i != 1), "{twos}");
        assert!(drawn.i(1).to_vec::<i64>().iter().all(|i| *i == 1));
        let mut first = 0;
        for _ in 0..2000 {
            let two = g.multinomial(&Tensor::from([1f32, 0., 3.]), 2, false).to_vec::<i64>();
            assert!(two == [0, 2] || two == [2, 0], "{two:?}");
            first += (two[0] == 2) as usize;
        }
        assert!(first.abs_diff(1500) < 80, "{first}");
    }

    #[test]
    fn impossible_choices_are_refused() {
        let g = Generator::new(3);
        let message = |w: &[f32], n, r| {
            catch(|| g.multinomial(&Tensor::from_slice(w, [w.len()]), n, r))
                .unwrap_err()
                .to_string()
        };
        assert!(message(&[0.0, 0.0], 1, true).contains("0 weights"));
        assert!(message(&[1.0, 0.0], 2, false).contains("without replacement"));
        assert!(message(&[1.0, -2.0], 1, true).contains("-2 at position 1"));
        let error = catch(|| g.bernoulli(&Tensor::from([0.5f32, 1.5]))).unwrap_err().to_string();
        assert!(error.contains("1.5"), "{error}");
    }

    #[test]
    fn truth_comes_with_its_probability() {
        let g = Generator::new(4);
        let x = Tensor::empty([10_000], Dtype::Bool);
        let ones = g.bernoulli_(&x, 0.25).sum().item();
        assert!((ones - 2500.0).abs() < 180.0, "{ones}");
        let p = Tensor::from([0f64, 1.0]);
        assert_eq!(g.bernoulli(&p).to_vec::<f64>(), [0.0, 1.0]);
    }
}

//! Batch normalisation (`torch/nn/modules/batchnorm.py`; Ioffe & Szegedy 2015).

use std::cell::Cell;
use std::marker::PhantomData;

use super::display::{python_bool, python_float};
use super::functional::check_eps;
use super::parallel::sync_batch_norm;
use super::running_norm::running_norm;
use super::walk::each_statistics_group;
use super::{Buffer, Forward, Module, Parameter, StatisticsGroup, Training};
use crate::autograd::no_grad;
use crate::distributed::ProcessGroup;
use crate::error::{Error, Result, throw};
use crate::onnx::{Graph, Value};
use crate::ops::{Norm, NormOptions};
use crate::tensor::{Dtype, Tensor};

thread_local! {
    static ACCUMULATE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, running statistics on this thread are plain means over all batches, whatever the
/// layers' momentum is.
pub(crate) struct AccumulateStatistics {
    previous: bool,
    /// The mode belongs to a thread: the guard must stay on it.
    _not_send: PhantomData<*const ()>,
}

impl AccumulateStatistics {
    pub(crate) fn new() -> Self {
        AccumulateStatistics { previous: ACCUMULATE.replace(true), _not_send: PhantomData }
    }
}

impl Drop for AccumulateStatistics {
    fn drop(&mut self) {
        ACCUMULATE.set(self.previous);
    }
}

macro_rules! batch_norm {
    ($(#[$doc:meta])* $name:ident, $accepts:expr, $shapes:literal, $example:literal, $group:expr) => {
        running_norm! {
            $(#[$doc])*
            ///
            /// In training by the batch's own mean and variance, which also enter the running ones with
            /// weight `momentum`; in evaluation by the running ones.
            $name, affine true, tracked true, group: StatisticsGroup = $group
        }

        impl $name {
            /// With another weight of a batch in the running statistics; `None`: their plain mean
            /// over all batches.
            #[must_use]
            pub fn momentum(mut self, momentum: impl Into<Option<f64>>) -> Self {
                self.momentum = momentum.into();
                self
            }

            /// [`relu`](Tensor::relu) of what [`forward`](Forward::forward) gives, in one pass over the elements on a
            /// GPU ([`functional::batch_norm_relu`](super::functional::batch_norm_relu)). By the statistics of several
            /// ranks it is one op after the other.
            ///
            /// ```
            #[doc = concat!("use torchrs::{Dtype, Tensor, nn::{", stringify!($name), ", Forward}};")]
            #[doc = concat!("let norm = ", stringify!($name), "::new(3);")]
            #[doc = concat!("let x = Tensor::randn(", $example, ", Dtype::F32);")]
            /// assert!(norm.forward_relu(&x).equal(&norm.forward(&x).relu()));
            /// ```
            ///
            /// # Panics
            #[doc = concat!("Throws [`Error::Shape`] unless the input is ", $shapes, ".")]
            #[track_caller]
            #[crate::nn::forward]
            pub fn forward_relu(&self, input: &Tensor) -> Tensor {
                self.normalised(input, |norm| input.batch_norm_relu(norm, None), |y| y.relu())
            }

            /// [`relu`](Tensor::relu) of the sum of what [`forward`](Forward::forward) gives and a residual, in one
            /// pass over the elements on a GPU
            /// ([`functional::batch_norm_relu`](super::functional::batch_norm_relu)).
            ///
            /// ```
            #[doc = concat!("use torchrs::{Dtype, Tensor, nn::{", stringify!($name), ", Forward}};")]
            #[doc = concat!("let norm = ", stringify!($name), "::new(3);")]
            #[doc = concat!("let x = Tensor::randn(", $example, ", Dtype::F32);")]
            /// let shortcut = x.square();
            /// let y = (norm.forward(&x) + &shortcut).relu();
            /// assert!(norm.forward_add_relu(&x, &shortcut).equal(&y));
            /// ```
            ///
            /// # Panics
            #[doc = concat!("Throws [`Error::Shape`] unless the input is ", $shapes, ", and for a residual")]
            /// that does not broadcast with it.
            #[track_caller]
            #[crate::nn::forward]
            pub fn forward_add_relu(&self, input: &Tensor, residual: &Tensor) -> Tensor {
                let one_pass = |norm: &Norm<'_>| input.batch_norm_relu(norm, Some(residual));
                self.normalised(input, one_pass, |y| (y + residual).relu())
            }

            /// Counts a batch, at once or with the op that is given the second; the first is the weight with which it
            /// enters the running statistics.
            fn count_batch(&self, at_once: bool) -> (f64, Option<&Tensor>) {
                let momentum = self.momentum.filter(|_| !ACCUMULATE.get());
                let Some(count) = &self.num_batches_tracked else {
                    return (momentum.unwrap_or(0.0), None);
                };
                if let (Some(momentum), false) = (momentum, at_once) {
                    return (momentum, Some(count));
                }
                no_grad(|| _ = count.add_(1i64));
                // Without values any weight gives the shapes.
                let cumulative = || if count.device().is_meta() { 1.0 } else { 1.0 / count.item() };
                (momentum.unwrap_or_else(cumulative), None)
            }

            /// By the op, or by the statistics of all ranks, with what comes after.
            #[track_caller]
            fn normalised(
                &self,
                input: &Tensor,
                op: impl FnOnce(&Norm<'_>) -> Tensor,
                after: impl FnOnce(Tensor) -> Tensor,
            ) -> Tensor {
                if !$accepts(input.dim()) {
                    throw(Error::shape(
                        stringify!($name),
                        format!("input has shape {:?}; must be {}", input.shape(), $shapes),
                    ));
                }
                let training = self.training.get();
                check_eps(stringify!($name), self.eps, training);
                let others = if training { self.group.others() } else { None };
                let (momentum, batches) = match training {
                    true => self.count_batch(others.is_some()),
                    false => (0.0, None),
                };
                if let Some(group) = others {
                    return after(self.synchronised(input, momentum, &group));
                }
                let by_batch = training || self.running_mean.is_none();
                op(&Norm {
                    running: [self.running_mean.as_deref(), self.running_var.as_deref()],
                    affine: [self.weight.as_deref(), self.bias.as_deref()],
                    batches,
                    options: NormOptions { training: by_batch, momentum, eps: self.eps },
                })
            }
        }

        impl Forward for $name {
            /// # Panics
            #[doc = concat!("Throws [`Error::Shape`] unless the input is ", $shapes, ".")]
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, input: &Tensor) -> Tensor {
                self.normalised(input, |norm| input.batch_norm_of(norm), |y| y)
            }

            fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
                let (Some(mean), Some(var)) = (&self.running_mean, &self.running_var) else {
                    let message = "is off: ONNX computes by running statistics";
                    let op = concat!("onnx ", stringify!($name));
                    return Err(Error::argument(op, "track_running_stats", message));
                };
                let affine = [self.weight.as_deref(), self.bias.as_deref()];
                graph.batch_norm(input, [mean, var], affine, self.eps)
            }
        }

        impl $name {
            /// By the statistics of all ranks' batches, which enter the running ones.
            #[track_caller]
            fn synchronised(&self, input: &Tensor, momentum: f64, group: &ProcessGroup) -> Tensor {
                let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
                let (y, now) = sync_batch_norm(input, weight, bias, self.eps, group);
                no_grad(|| {
                    let unbiased = &now.count / (&now.count - 1.0).clamp_min(1.0);
                    for (running, new) in
                        [(&self.running_mean, now.mean), (&self.running_var, now.var * unbiased)]
                    {
                        if let Some(running) = running {
                            let new = (new * momentum).to_dtype(running.dtype());
                            running.mul_(1.0 - momentum).add_(&new);
                        }
                    }
                });
                y
            }
        }
    };
}

batch_norm!(
    /// Normalises each channel of `[N, C]` or `[N, C, L]` (`torch.nn.BatchNorm1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{BatchNorm1d, Forward}};
    /// let norm = BatchNorm1d::new(1);
    /// let y = norm.forward(&Tensor::from([[1f32], [3.]])).to_vec::<f32>();
    /// assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
    /// assert!((norm.running_mean.unwrap().item() - 0.1 * 2.0).abs() < 1e-6);
    /// ```
    BatchNorm1d, |dim| matches!(dim, 2 | 3), "[N, C] or [N, C, L]", "[4, 3, 5]",
    StatisticsGroup::default()
);
batch_norm!(
    /// Normalises each channel of `[N, C, H, W]` (`torch.nn.BatchNorm2d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{BatchNorm2d, Forward, Module}};
    /// let norm = BatchNorm2d::new(3);
    /// let y = norm.forward(&(Tensor::randn([4, 3, 5, 5], Dtype::F32) + 7.0));
    /// assert!(y.mean_dim(&[0, 2, 3], false).abs().max().item() < 1e-4);
    /// norm.eval();
    /// assert!((norm.running_mean.as_ref().unwrap().mean().item() - 0.7).abs() < 0.1);
    /// ```
    BatchNorm2d, |dim| dim == 4, "[N, C, H, W]", "[4, 3, 5, 5]",
    StatisticsGroup::default()
);
batch_norm!(
    /// Normalises each channel of `[N, C, D, H, W]` (`torch.nn.BatchNorm3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{BatchNorm3d, Forward}};
    /// let y = BatchNorm3d::new(3).forward(&(Tensor::randn([4, 3, 2, 2, 2], Dtype::F32) + 7.0));
    /// assert!(y.mean_dim(&[0, 2, 3, 4], false).abs().max().item() < 1e-4);
    /// ```
    BatchNorm3d, |dim| dim == 5, "[N, C, D, H, W]", "[4, 3, 2, 5, 5]",
    StatisticsGroup::default()
);
batch_norm!(
    /// Normalises each channel of `[N, C, ..]` by the rows of all ranks (`torch.nn.SyncBatchNorm`): of
    /// the default process group, or of another. Without a process group, or with one rank, it is a
    /// plain batch norm, and in evaluation as well.
    ///
    /// Every rank calls it in training, and runs its backward. When one does not, the others throw what
    /// any collective would. A rank may have fewer rows than others, or none.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{BatchNorm1d, Forward, SyncBatchNorm}};
    /// // One rank by itself: as without `Sync`.
    /// let x = Tensor::from([[1f32], [3.]]);
    /// assert!(SyncBatchNorm::new(1).forward(&x).equal(&BatchNorm1d::new(1).forward(&x)));
    /// ```
    SyncBatchNorm, |dim| dim >= 2, "[N, C, ..]", "[4, 3, 5]",
    StatisticsGroup::of_default()
);

impl SyncBatchNorm {
    /// With the statistics of this group's ranks instead of the default group's.
    ///
    /// ```
    /// use torchrs::{Tensor, distributed, nn::{Forward, SyncBatchNorm}};
    /// # fn main() -> torchrs::Result<()> {
    /// let group = distributed::init_process_group(Default::default())?;
    /// let norm = SyncBatchNorm::new(1).process_group(&group);
    /// assert!((norm.forward(&Tensor::from([[1f32], [3.]])).max().item() - 1.0).abs() < 1e-4);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn process_group(self, group: &ProcessGroup) -> Self {
        self.group.join(Some(group));
        self
    }

    /// Makes all batch norms in `module`, also those in modules inside, take their statistics over all
    /// ranks, of the default group or of `group`
    /// (`torch.nn.SyncBatchNorm.convert_sync_batchnorm`). They keep their type, and
    /// [`repr`](Module::repr) shows them as `SyncBatchNorm`.
    ///
    /// ```
    /// use torchrs::nn::{BatchNorm2d, Conv2d, Module, Sequential, SyncBatchNorm};
    /// let net = Sequential::new().append(Conv2d::new(3, 8, 3)).append(BatchNorm2d::new(8));
    /// let net = SyncBatchNorm::convert_sync_batchnorm(net, None);
    /// assert!(net.repr().contains("(1): SyncBatchNorm(8, eps=1e-05"));
    /// ```
    pub fn convert_sync_batchnorm<M: Module>(module: M, group: Option<&ProcessGroup>) -> M {
        each_statistics_group(&module, &mut |statistics| statistics.join(group));
        module
    }
}

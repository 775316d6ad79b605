//! Batch normalisation (`torch/nn/modules/batchnorm.py`; Ioffe & Szegedy 2015).

use std::cell::Cell;
use std::marker::PhantomData;

use super::display::{python_bool, python_float};
use super::parallel::sync_batch_norm;
use super::running_norm::running_norm;
use super::walk::each_statistics_group;
use super::{Buffer, Forward, Module, Parameter, StatisticsGroup, Training};
use crate::autograd::no_grad;
use crate::distributed::ProcessGroup;
use crate::error::{Error, throw};
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
    ($(#[$doc:meta])* $name:ident, $accepts:expr, $shapes:literal, $group:expr) => {
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

            /// Counts a batch; gives the weight with which it enters the running statistics.
            fn count_batch(&self) -> f64 {
                let momentum = self.momentum.filter(|_| !ACCUMULATE.get());
                let Some(count) = &self.num_batches_tracked else {
                    return momentum.unwrap_or(0.0);
                };
                no_grad(|| _ = count.add_(1i64));
                // Without values any weight gives the shapes.
                let cumulative = || if count.device().is_meta() { 1.0 } else { 1.0 / count.item() };
                momentum.unwrap_or_else(cumulative)
            }
        }

        impl Forward for $name {
            /// # Panics
            #[doc = concat!("Throws [`Error::Shape`] unless the input is ", $shapes, ".")]
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, input: &Tensor) -> Tensor {
                if !$accepts(input.dim()) {
                    throw(Error::shape(
                        stringify!($name),
                        format!("input has shape {:?}; must be {}", input.shape(), $shapes),
                    ));
                }
                let training = self.training.get();
                if training && self.eps <= 0.0 {
                    let message = format!("{}; must be positive in training", self.eps);
                    throw(Error::argument(stringify!($name), "eps", message));
                }
                let momentum = if training { self.count_batch() } else { 0.0 };
                if training && let Some(group) = self.group.others() {
                    return self.synchronised(input, momentum, &group);
                }
                let by_batch = training || self.running_mean.is_none();
                input.batch_norm(
                    self.running_mean.as_deref(),
                    self.running_var.as_deref(),
                    self.weight.as_deref(),
                    self.bias.as_deref(),
                    by_batch,
                    momentum,
                    self.eps,
                )
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
    BatchNorm1d, |dim| matches!(dim, 2 | 3), "[N, C] or [N, C, L]",
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
    BatchNorm2d, |dim| dim == 4, "[N, C, H, W]",
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
    BatchNorm3d, |dim| dim == 5, "[N, C, D, H, W]",
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
    SyncBatchNorm, |dim| dim >= 2, "[N, C, ..]",
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

//! How data-parallel training cuts gradients into buckets, and what else can be chosen.

use super::buckets::{Item, Plan, plan};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Options of [`DistributedDataParallel`](super::DistributedDataParallel), with PyTorch's defaults.
///
/// ```
/// use torchrs::distributed::DDPOptions;
/// let options = DDPOptions { bucket_cap_mb: 50.0, ..Default::default() };
/// assert_eq!((options.first_bucket_mb, options.broadcast_buffers), (1.0, true));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct DDPOptions {
    /// Size in MiB up to which gradients are sent together.
    pub bucket_cap_mb: f64,
    /// Size in MiB of the first bucket, so that communication starts early, and of the last one, whose
    /// communication has no backward left to hide behind, where the last gradients are no larger.
    pub first_bucket_mb: f64,
    /// Whether buffers (running statistics) are sent from rank 0 after each synchronised backward.
    pub broadcast_buffers: bool,
    /// Whether a backward may leave parameters without a gradient.
    pub find_unused_parameters: bool,
}

impl Default for DDPOptions {
    fn default() -> Self {
        DDPOptions {
            bucket_cap_mb: 25.0,
            first_bucket_mb: 1.0,
            broadcast_buffers: true,
            find_unused_parameters: false,
        }
    }
}

impl DDPOptions {
    /// Which parameters' gradients travel together: the indices of those of each bucket, in the order in which
    /// buckets are sent (`torch.distributed._compute_bucket_assignment_by_size`, from the last parameter on).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, distributed::DDPOptions};
    /// let parameters: Vec<Tensor> =
    ///     [1000, 200_000, 300_000].iter().map(|&n| Tensor::zeros([n], Dtype::F32)).collect();
    /// // The last one's 1.2 MB are more than the 1 MiB that is sent first, and go alone.
    /// assert_eq!(DDPOptions::default().bucket_assignment(&parameters), [vec![2], vec![1, 0]]);
    /// ```
    pub fn bucket_assignment(&self, parameters: &[Tensor]) -> Vec<Vec<usize>> {
        let members = |plan: Plan| plan.members.into_iter().map(|(i, _)| i).collect();
        self.plan(parameters).into_iter().map(members).collect()
    }

    /// # Errors
    /// [`Error::Argument`] for a size that is none.
    pub(super) fn check(&self) -> Result<()> {
        let sizes =
            [("bucket_cap_mb", self.bucket_cap_mb), ("first_bucket_mb", self.first_bucket_mb)];
        match sizes.into_iter().find(|(_, size)| size.is_nan() || *size < 0.0) {
            Some((name, size)) => {
                let what = format!("is {size}: must be a number of MiB, 0 or more");
                Err(Error::argument("DistributedDataParallel", name, what))
            }
            None => Ok(()),
        }
    }

    /// The buckets of these parameters.
    pub(super) fn plan(&self, parameters: &[Tensor]) -> Vec<Plan> {
        let item = |t: &Tensor| Item { numel: t.numel(), kind: (t.dtype(), t.device()) };
        let items: Vec<Item> = parameters.iter().map(item).collect();
        let mib = |v: f64| (v * f64::from(1 << 20)) as usize;
        plan(&items, mib(self.first_bucket_mb), mib(self.bucket_cap_mb))
    }
}

//! The bottleneck reports of all ranks of a group.

use super::ProcessGroup;
use crate::error::Result;
use crate::profiler::{Bottleneck, JobBottleneck};

impl Bottleneck {
    /// The reports of all ranks, on each of them. Collective.
    ///
    /// ```
    /// use torchrs::distributed::{ReduceOp, init_process_group};
    /// use torchrs::{Dtype::F32, Tensor, profiler};
    /// let group = init_process_group(Default::default())?;
    /// let x = Tensor::ones([4], F32);
    /// let (done, profile) = profiler::profile(|| group.all_reduce(&x, ReduceOp::Sum));
    /// done?;
    /// let job = profile.bottleneck().gather(&group)?;
    /// assert_eq!(job.ranks.len(), 1);
    /// println!("{job}");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ProcessGroup::all_gather_object`].
    #[track_caller]
    pub fn gather(&self, group: &ProcessGroup) -> Result<JobBottleneck> {
        Ok(JobBottleneck { ranks: group.all_gather_object(self)? })
    }
}

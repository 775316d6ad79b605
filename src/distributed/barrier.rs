//! Barriers: ranks wait for each other, and no data moves.

use super::collective::{Collective, Kind, Signature};
use super::{ProcessGroup, Work};
use crate::error::Result;

impl ProcessGroup {
    /// Returns when all ranks have called it (`torch.distributed.barrier`). Work on GPUs may go on.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use std::time::Duration;
    /// use torchrs::distributed::Store;
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let store = Store::from_env(Duration::from_secs(60))?;
    /// if group.rank() == 1 {
    ///     store.set("ready", b"yes")?;
    /// }
    /// group.barrier()?;
    /// assert_eq!(store.try_get("ready")?.as_deref(), Some(&b"yes"[..]));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.run(Kind::Barrier.name(), &barrier())
    }

    /// [`barrier`](Self::barrier) in the background, behind what was started before.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Tensor, distributed::ReduceOp};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let x = Tensor::from([group.rank() as f32 + 1.0]);
    /// let sum = group.all_reduce_async(&x, ReduceOp::Sum)?;
    /// group.barrier_async()?.wait()?;
    /// assert!(sum.is_completed() && x.item() == 3.0);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn barrier_async(&self) -> Result<Work> {
        self.start(Kind::Barrier.name(), barrier(), || {})
    }
}

#[track_caller]
fn barrier() -> Collective {
    let signature = Signature::of_host(Kind::Barrier, &[]);
    Collective { signature, send: None, recv: None, owner: None, gpu: None, read: None }
}

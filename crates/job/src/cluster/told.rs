//! A process's rank for messages and names: whatever else is wrong with its variables is for those who join to say.

use super::ClusterTask;

/// This process's rank and the number of ranks, where `RANK` and `WORLD_SIZE` or the starter of its tasks tell them.
#[doc(hidden)]
pub fn told_rank() -> Option<(usize, usize)> {
    let number = |name: &str| std::env::var(name).ok()?.trim().parse::<usize>().ok();
    match (number("RANK"), number("WORLD_SIZE")) {
        (Some(rank), size) => Some((rank, size.unwrap_or(rank + 1))),
        (None, Some(_)) => None,
        (None, None) => ClusterTask::from_env().and_then(|task| Some((task.rank, task.size?))),
    }
}

//! Ways to shard that save little, told once, on standard error, by the first rank: what was sharded, in bytes, and what
//! would be right.

use std::io::Write as _;
use std::io::stderr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::group::ShardGroup;
use crate::distributed::join_some;
use crate::storage::living::bytes;

/// Models below this are told nothing: all ways do for them.
const LARGE: usize = 32 << 20;
/// Groups below this take longer to ask for than to send.
const SMALL: usize = 256 << 10;

/// What a call of `fully_shard` has done, in bytes of whole parameters.
pub(super) struct Call {
    /// The module's type.
    pub module: String,
    pub own: usize,
    pub ignored: usize,
    /// The groups of modules inside, by the names of their parameters.
    pub inner: Vec<(String, usize)>,
    /// The modules directly inside, with what of theirs this call has taken.
    pub children: Vec<(String, usize)>,
    /// Whether the parameters are meant to stay.
    pub is_kept_on_purpose: bool,
}

impl Call {
    fn all(&self) -> usize {
        self.own + self.ignored + self.inner.iter().map(|(_, bytes)| bytes).sum::<usize>()
    }

    /// The modules that it would be best to shard by themselves.
    fn largest(&self) -> String {
        let mut children: Vec<&(String, usize)> =
            self.children.iter().filter(|(_, bytes)| *bytes > 0).collect();
        children.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        join_some(children.iter().map(|(name, own)| format!("`{name}` ({})", bytes(*own))), ", ")
    }

    /// What is to be said at the call.
    pub(super) fn complaint(&self) -> Option<String> {
        let (all, module) = (self.all(), &self.module);
        if all < LARGE {
            return None;
        }
        if self.ignored > all / 2 {
            return Some(format!(
                "fully_shard: `ignored_params` leaves {} of {} of {module}'s parameters whole on every rank, with their \
                 gradients and optimizer states; ignore small ones only",
                bytes(self.ignored),
                bytes(all)
            ));
        }
        if self.inner.is_empty() {
            return None;
        }
        if self.own > all / 2 {
            return Some(format!(
                "fully_shard: the call for {module} has taken {} of its {}, which are gathered all at once and kept until \
                 backward; shard the largest modules inside by calls of their own before: {}",
                bytes(self.own),
                bytes(all),
                self.largest()
            ));
        }
        let small: Vec<&(String, usize)> =
            self.inner.iter().filter(|(_, bytes)| *bytes < SMALL).collect();
        (small.len() > self.inner.len() / 2).then(|| {
            let names = small.iter().map(|(name, own)| format!("{name} ({})", bytes(*own)));
            format!(
                "fully_shard: {} of {} groups inside {module} have less than {} each, so that asking for them takes longer \
                 than their way: {}; shard the modules around them instead, a call for each block",
                small.len(),
                self.inner.len(),
                bytes(SMALL),
                join_some(names.collect::<Vec<_>>().iter(), ", ")
            )
        })
    }

    /// What is to be said if no other call follows.
    fn complaint_if_alone(&self) -> Option<String> {
        let divisible = self.children.iter().filter(|(_, bytes)| *bytes > 0).count() > 1;
        let is_told =
            self.inner.is_empty() && divisible && self.own >= LARGE && !self.is_kept_on_purpose;
        is_told.then(|| {
            format!(
                "fully_shard: all parameters of {} are one group: its {} are gathered all at once, and at most each rank has \
                 the whole model beside its part; shard the modules inside by calls of their own before: {}; or say \
                 `reshard_after_forward: Some(false.into())` where only gradients and optimizer states are to be in parts",
                self.module,
                bytes(self.own),
                self.largest()
            )
        })
    }
}

/// Whether there is anything in [`ALONE`].
static WAITS: AtomicBool = AtomicBool::new(false);
/// What is to be said of groups that turn out to be the only ones.
static ALONE: Mutex<Vec<(Weak<ShardGroup>, String)>> = Mutex::new(Vec::new());

/// A call has made a group.
pub(super) fn called(call: &Call, group: &Arc<ShardGroup>) {
    if group.shards.rank() != 0 || group.replicas.as_ref().is_some_and(|all| all.rank() != 0) {
        return;
    }
    if let Some(complaint) = call.complaint() {
        say(&complaint);
    }
    if let Some(complaint) = call.complaint_if_alone() {
        ALONE.lock().push((Arc::downgrade(group), complaint));
        WAITS.store(true, Relaxed);
    }
}

/// A first backward has reached a group: all calls have been made. `others` says whether there are other groups.
pub(super) fn in_backward(group: &Arc<ShardGroup>, others: impl FnOnce() -> bool) {
    if !WAITS.load(Relaxed) {
        return;
    }
    let mut alone = ALONE.lock();
    let Some(place) = alone.iter().position(|(own, _)| own.as_ptr() == Arc::as_ptr(group)) else {
        return;
    };
    let (_, complaint) = alone.swap_remove(place);
    WAITS.store(!alone.is_empty(), Relaxed);
    drop(alone);
    if !others() {
        say(&complaint);
    }
}

fn say(complaint: &str) {
    // Not `eprintln!`, which panics where nobody listens.
    let _ = writeln!(stderr(), "torchrs: {complaint}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn call(own: usize, inner: &[usize]) -> Call {
        let named = |(i, bytes): (usize, &usize)| (format!("`{i}.weight`"), *bytes);
        Call {
            module: "Net".to_owned(),
            own,
            ignored: 0,
            inner: inner.iter().enumerate().map(named).collect(),
            children: vec![
                ("blocks".to_owned(), own / 2),
                ("head".to_owned(), own / 3),
                ("act".to_owned(), 0),
            ],
            is_kept_on_purpose: false,
        }
    }

    #[test]
    fn what_saves_nothing_is_told_with_its_bytes() {
        let told = |call: Call, parts: &[&str]| {
            let text = call.complaint().or(call.complaint_if_alone()).expect("a complaint");
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        };
        told(
            call(60 * MIB, &[]),
            &["Net", "60.00 MiB", "`blocks` (30.00 MiB), `head` (20.00 MiB)"],
        );
        told(call(60 * MIB, &[30 * MIB]), &["60.00 MiB of its 90.00 MiB", "`blocks`"]);
        told(
            call(40 * MIB, &[MIB / 8, MIB / 8, 40 * MIB]),
            &["2 of 3 groups", "`0.weight` (128.00 KiB)"],
        );
        told(
            Call { ignored: 80 * MIB, ..call(40 * MIB, &[]) },
            &["80.00 MiB of 120.00 MiB", "ignored_params"],
        );
    }

    #[test]
    fn what_is_usual_is_not_told() {
        let silent = |call: Call| {
            assert_eq!(call.complaint(), None);
            assert_eq!(call.complaint_if_alone(), None);
        };
        silent(call(10 * MIB, &[20 * MIB, 20 * MIB]));
        silent(call(MIB, &[]));
        silent(Call { is_kept_on_purpose: true, ..call(60 * MIB, &[]) });
        // It cannot be divided.
        silent(Call { children: vec![("only".to_owned(), 60 * MIB)], ..call(60 * MIB, &[]) });
    }
}

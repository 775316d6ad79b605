//! The check at start that all ranks build the same model: an all-reduce between models that differ
//! would add up unrelated numbers.

use crate::distributed::ProcessGroup;
use crate::error::{Error, Result};
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// A named tensor's line in the comparison.
fn describe(name: &str, t: &Tensor) -> String {
    let grad = if t.requires_grad() { "" } else { ", no gradient" };
    let place = match t.device() {
        Device::Cpu => "",
        Device::Meta => ", meta",
        _ => ", cuda",
    };
    format!("`{name}` {} {:?}{place}{grad}", t.dtype(), t.shape())
}

/// Compares the named tensors of all ranks; the first difference is an error on every rank.
///
/// # Errors
/// [`Error::Mismatch`] with the parameter, and what both ranks have there.
pub(crate) fn verify(
    call: &str,
    group: &ProcessGroup,
    what: &str,
    tensors: &[(String, Tensor)],
) -> Result<()> {
    let mine: Vec<String> = tensors.iter().map(|(name, t)| describe(name, t)).collect();
    let all: Vec<Vec<String>> = group
        .all_gather_bytes(mine.join("\n").as_bytes())?
        .iter()
        .map(|bytes| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect())
        .collect();
    match first_difference(what, &all) {
        Some(message) => Err(Error::Mismatch(format!("{call}: {message}"))),
        None => Ok(()),
    }
}

fn first_difference(what: &str, all: &[Vec<String>]) -> Option<String> {
    for (rank, theirs) in all.iter().enumerate().skip(1) {
        let place = all[0].iter().zip(theirs).position(|(a, b)| a != b);
        if let Some(i) = place {
            return Some(format!(
                "{what} {i} is {} on rank 0 and {} on rank {rank}; all ranks must build the same model",
                all[0][i], theirs[i]
            ));
        }
        if all[0].len() != theirs.len() {
            let (more, fewer) = if all[0].len() > theirs.len() { (0, rank) } else { (rank, 0) };
            let extra = &all[more][all[fewer].len()];
            return Some(format!(
                "rank 0 has {} {what}s, rank {rank} has {}: the first that only rank {more} has is {extra}",
                all[0].len(),
                theirs.len()
            ));
        }
    }
    None
}

/// Gives every rank rank 0's values of `tensors`: one broadcast per dtype, and per kind of device, since a
/// rank's GPU has another number than rank 0's.
pub(super) fn broadcast_all(group: &ProcessGroup, tensors: &[Tensor]) -> Result<()> {
    let kinds = Dtype::ALL.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]);
    for kind in kinds {
        let of = |t: &Tensor| (t.dtype(), t.device() != Device::Cpu);
        let same: Vec<&Tensor> =
            tensors.iter().filter(|t| of(t) == kind && t.numel() > 0).collect();
        let Some(first) = same.first() else { continue };
        let numel = same.iter().map(|t| t.numel()).sum::<usize>();
        let flat = Tensor::empty([numel], (kind.0, first.device()));
        let parts = |flat: &Tensor| {
            let mut start = 0;
            let mut cut = Vec::new();
            for t in &same {
                cut.push(flat.narrow(0, start, t.numel()).reshape_to(t.shape()));
                start += t.numel();
            }
            cut
        };
        crate::autograd::no_grad(|| {
            if group.rank() == 0 {
                parts(&flat).iter().zip(&same).for_each(|(part, t)| {
                    part.copy_(t);
                });
            }
            group.broadcast(&flat, 0)?;
            if group.rank() != 0 {
                parts(&flat).iter().zip(&same).for_each(|(part, t)| {
                    t.copy_(part);
                });
            }
            Ok::<(), Error>(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(lists: &[&[&str]]) -> Vec<Vec<String>> {
        lists.iter().map(|l| l.iter().map(|s| (*s).to_owned()).collect()).collect()
    }

    #[test]
    fn the_first_difference_is_named_with_both_sides() {
        let same = lists(&[&["`a` f32 [2]"], &["`a` f32 [2]"]]);
        assert_eq!(first_difference("parameter", &same), None);
        let shape = first_difference(
            "parameter",
            &lists(&[&["`a` f32 [2]", "`b` f32 [3]"], &["`a` f32 [2]", "`b` f32 [4]"]]),
        )
        .unwrap();
        assert!(
            shape.contains("parameter 1")
                && shape.contains("[3]")
                && shape.contains("[4]")
                && shape.contains("rank 1")
        );
        let count =
            first_difference("parameter", &lists(&[&["`a`"], &["`a`"], &["`a`", "`b`"]])).unwrap();
        assert!(
            count.contains("rank 2 has 2") && count.contains("only rank 2 has is `b`"),
            "{count}"
        );
    }
}

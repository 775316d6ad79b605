//! Who writes what: every byte once, as even as can be. All ranks compute the same from what all have said.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::index::tile;
use super::region::Region;
use crate::tensor::Dtype;

/// Larger parts that several ranks have are written by several.
const SPLIT: usize = 32 << 20;

/// What a rank has of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Part {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub region: Region,
}

/// A box that a rank writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub name: String,
    pub region: Region,
    /// The part that the rank has, in which the box lies.
    pub of: Region,
}

/// The boxes that each rank writes, by rank.
pub(super) type Assignment = Vec<Vec<Written>>;

/// Divides what the ranks have.
///
/// # Errors
/// A tensor of which ranks say different things, or that is not there whole; names the ranks.
pub(super) fn assign(parts: &[Vec<Part>]) -> Result<Assignment, String> {
    let mut tensors: BTreeMap<&str, Tensor> = BTreeMap::new();
    for (rank, parts) in parts.iter().enumerate() {
        for part in parts {
            let tensor = tensors
                .entry(&part.name)
                .or_insert_with(|| Tensor { first: (rank, part), holders: BTreeMap::new() });
            let (other, first) = tensor.first;
            if (first.dtype, &first.shape) != (part.dtype, &part.shape) {
                return Err(format!(
                    "tensor `{}` is {} {:?} on rank {other} and {} {:?} on rank {rank}",
                    part.name, first.dtype, first.shape, part.dtype, part.shape
                ));
            }
            tensor.holders.entry(&part.region).or_default().push(rank);
        }
    }
    let mut assignment: Assignment = vec![Vec::new(); parts.len()];
    let mut loads = vec![0; parts.len()];
    let mut shared = Vec::new();
    for (name, tensor) in &tensors {
        let regions: Vec<&Region> = tensor.holders.keys().copied().collect();
        let (_, first) = tensor.first;
        tile(&first.shape, &regions).map_err(|why| {
            let ranks: Vec<String> = tensor
                .holders
                .iter()
                .map(|(region, ranks)| {
                    format!("{:?} at {:?} on {ranks:?}", region.shape, region.offsets)
                })
                .take(8)
                .collect();
            format!("tensor `{name}` {why}; ranks have {}", ranks.join(", "))
        })?;
        for (region, holders) in &tensor.holders {
            let nbytes = region.numel() * first.dtype.size();
            match holders[..] {
                [_] | [] if region.numel() == 0 => {}
                [only] => {
                    loads[only] += nbytes;
                    assignment[only].push(Written::all_of(name, region));
                }
                _ if nbytes == 0 => {}
                _ => shared.push((nbytes, *name, *region, holders)),
            }
        }
    }
    let mut boxes = Vec::new();
    for (nbytes, name, region, holders) in shared {
        let count = holders.len().min(nbytes.div_ceil(SPLIT));
        for part in rows(region, count) {
            let nbytes = nbytes / region.numel() * part.numel();
            boxes.push((
                nbytes,
                Written { name: name.to_owned(), region: part, of: region.clone() },
                holders,
            ));
        }
    }
    boxes.sort_by_key(|(nbytes, ..)| Reverse(*nbytes));
    for (nbytes, written, holders) in boxes {
        let rank = holders.iter().copied().min_by_key(|&rank| loads[rank]).unwrap_or(0);
        loads[rank] += nbytes;
        assignment[rank].push(written);
    }
    for written in &mut assignment {
        written.sort_by(|a, b| (&a.name, &a.region).cmp(&(&b.name, &b.region)));
    }
    Ok(assignment)
}

struct Tensor<'a> {
    /// The first rank that has some of it, and what it says.
    first: (usize, &'a Part),
    holders: BTreeMap<&'a Region, Vec<usize>>,
}

impl Written {
    fn all_of(name: &str, region: &Region) -> Written {
        Written { name: name.to_owned(), region: region.clone(), of: region.clone() }
    }
}

/// A box in about so many, along its first dimension that has more than one place.
fn rows(region: &Region, count: usize) -> Vec<Region> {
    let Some(dim) = region.shape.iter().position(|&size| size > 1).filter(|_| count > 1) else {
        return vec![region.clone()];
    };
    let most = region.shape[dim].div_ceil(count);
    let cut = |start: usize| {
        let mut part = region.clone();
        part.offsets[dim] += start;
        part.shape[dim] = most.min(region.shape[dim] - start);
        part
    };
    (0..region.shape[dim]).step_by(most).map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, shape: &[usize], offsets: &[usize], size: &[usize]) -> Part {
        let region = Region { offsets: offsets.to_vec(), shape: size.to_vec() };
        Part { name: name.into(), dtype: Dtype::F32, shape: shape.to_vec(), region }
    }

    fn bytes(written: &[Written]) -> usize {
        written.iter().map(|w| w.region.numel() * 4).sum()
    }

    #[test]
    fn shards_are_written_by_those_who_have_them() {
        let of = |rank: usize| {
            vec![part("w", &[7, 3], &[(2 * rank).min(7), 0], &[2.min(7 - (2 * rank).min(7)), 3])]
        };
        let parts: Vec<_> = (0..5).map(of).collect();
        let assignment = assign(&parts).unwrap();
        assert_eq!(assignment.iter().map(|w| bytes(w)).collect::<Vec<_>>(), [24, 24, 24, 12, 0]);
    }

    #[test]
    fn what_several_have_is_written_once_and_spread() {
        let of = |_: usize| {
            (0..10).map(|i| part(&format!("w{i}"), &[100 + i], &[0], &[100 + i])).collect()
        };
        let parts: Vec<Vec<Part>> = (0..4).map(of).collect();
        let loads: Vec<usize> = assign(&parts).unwrap().iter().map(|w| bytes(w)).collect();
        assert_eq!(loads.iter().sum::<usize>(), 4 * (1000 + 45));
        assert!(loads.iter().all(|load| (800..=1300).contains(load)), "{loads:?}");
        // A large one is cut.
        let huge = || vec![part("w", &[1 << 14, 1 << 12], &[0, 0], &[1 << 14, 1 << 12])];
        let loads: Vec<usize> =
            assign(&[huge(), huge(), huge()]).unwrap().iter().map(|w| bytes(w)).collect();
        assert!(loads.iter().all(|load| load.abs_diff((1 << 28) / 3) < 1 << 20), "{loads:?}");
        // Replicas of shards.
        let half = |half: usize| {
            vec![part("w", &[8], &[4 * half], &[4]), part("b", &[4], &[2 * half], &[2])]
        };
        let loads: Vec<usize> = assign(&[half(0), half(1), half(0), half(1)])
            .unwrap()
            .iter()
            .map(|w| bytes(w))
            .collect();
        assert_eq!(loads, [16, 16, 8, 8]);
    }

    #[test]
    fn what_ranks_say_differently_names_both() {
        let why = assign(&[vec![part("w", &[4], &[0], &[4])], vec![part("w", &[5], &[0], &[5])]]);
        assert_eq!(why.unwrap_err(), "tensor `w` is f32 [4] on rank 0 and f32 [5] on rank 1");
        let why = assign(&[vec![part("w", &[4], &[0], &[2])], vec![part("w", &[4], &[1], &[2])]]);
        assert!(
            why.unwrap_err().contains("has [1..2] in two pieces; ranks have [2] at [0] on [0]")
        );
        let why = assign(&[vec![part("w", &[4], &[0], &[2])], vec![]]).unwrap_err();
        assert!(why.contains("of which 2 are in no piece"), "{why}");
    }
}

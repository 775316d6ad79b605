//! How many ranks there may be, and lists of them in messages: short, however many there are.

use std::fmt::Display;

/// Runs and single numbers that a list shows; the rest is counted.
const SHOWN: usize = 8;

/// The most workers that a job may have. A number above is a slip, and would keep each worker busy with lists
/// of ranks that will never be there.
///
/// ```
/// use torchrs::distributed::WorkerEnv;
/// let value = |name: &str| (name == "WORLD_SIZE").then(|| "1000000000".into());
/// let error = WorkerEnv::from_lookup(value).unwrap_err().to_string();
/// assert_eq!(error, "WORLD_SIZE: is 1000000000: a job has at most 100000 workers");
/// ```
pub const MAX_WORLD_SIZE: usize = 100_000;

/// Ranks as a message names them: `rank 3`, `ranks 0, 2, 5`, `ranks 0 to 1022 and 1030`. What a long list
/// has no room for is counted.
///
/// ```
/// use torchrs::distributed::list_ranks;
/// assert_eq!(list_ranks(&[3]), "rank 3");
/// assert_eq!(list_ranks(&[0, 2, 5]), "ranks 0, 2, 5");
/// assert_eq!(list_ranks(&[0, 1, 2, 3, 7]), "ranks 0 to 3, 7");
/// let even: Vec<usize> = (0..1000).map(|i| 2 * i).collect();
/// assert_eq!(list_ranks(&even), "ranks 0, 2, 4, 6, 8, 10, 12 and 993 others");
/// assert_eq!(list_ranks(&[]), "no rank");
/// ```
pub fn list_ranks(ranks: &[usize]) -> String {
    match ranks {
        [] => "no rank".to_owned(),
        [one] => format!("rank {one}"),
        _ => format!("ranks {}", list_numbers(ranks)),
    }
}

/// `0 to 1022, 1030`: numbers as [`list_ranks`] shows them.
#[doc(hidden)]
pub fn list_numbers(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    // Two neighbours are no run.
    let items: Vec<(usize, usize)> = runs
        .into_iter()
        .flat_map(|(first, last)| match last - first {
            1 => vec![(first, first), (last, last)],
            _ => vec![(first, last)],
        })
        .collect();
    let show = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    if items.len() <= SHOWN {
        return items.iter().map(show).collect::<Vec<_>>().join(", ");
    }
    let (shown, others) = items.split_at(SHOWN - 1);
    let others: usize = others.iter().map(|(first, last)| last - first + 1).sum();
    let shown = shown.iter().map(show).collect::<Vec<_>>().join(", ");
    format!("{shown} and {others} others")
}

/// The first few of a long list of texts, and how many others there are.
#[doc(hidden)]
pub fn join_some<T: Display>(items: impl ExactSizeIterator<Item = T>, between: &str) -> String {
    let count = items.len();
    let most = if count <= SHOWN { count } else { SHOWN - 1 };
    let shown: Vec<String> = items.take(most).map(|item| item.to_string()).collect();
    let shown = shown.join(between);
    if most == count { shown } else { format!("{shown} and {} others", count - most) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_and_others() {
        assert_eq!(list_ranks(&[0, 1]), "ranks 0, 1");
        assert_eq!(list_ranks(&(0..1023).collect::<Vec<_>>()), "ranks 0 to 1022");
        assert_eq!(list_ranks(&[0, 1, 2, 9, 10, 12]), "ranks 0 to 2, 9, 10, 12");
        assert_eq!(join_some(["a", "b"].iter(), "; "), "a; b");
        assert_eq!(join_some(0..10, ", "), "0, 1, 2, 3, 4, 5, 6 and 3 others");
    }

    proptest! {
        /// No list is long, and none loses a rank.
        #[test]
        fn lists_are_short_and_count_everyone(mut ranks in prop::collection::vec(0usize..100_000, 1..200)) {
            ranks.sort_unstable();
            ranks.dedup();
            let text = list_ranks(&ranks);
            prop_assert!(text.len() < 160, "{}", text);
            let numbers = |text: &str| -> Vec<usize> {
                text.split(' ').filter_map(|word| word.trim_matches(',').parse().ok()).collect()
            };
            let (shown, others) = text.split_once(" and ").unwrap_or((&text, ""));
            let mut count = numbers(others).first().copied().unwrap_or(0);
            for item in shown.split(", ") {
                let ends = numbers(item);
                count += ends[ends.len() - 1] - ends[0] + 1;
            }
            prop_assert_eq!(count, ranks.len());
        }
    }
}

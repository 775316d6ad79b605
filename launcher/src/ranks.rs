//! Lists of ranks in messages: short however many there are.

/// Runs of neighbours that are shown.
const SHOWN: usize = 8;

/// `rank 3`, `ranks 0, 2`, `ranks 0 to 1022, 1024 and 3 others`. `ranks` are in order.
pub fn list(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let others: usize = runs.iter().skip(SHOWN).map(|(first, last)| last - first + 1).sum();
    let shown = runs.iter().take(SHOWN).map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let plural = if ranks.len() == 1 { "" } else { "s" };
    match others {
        0 => format!("rank{plural} {shown}"),
        1 => format!("rank{plural} {shown} and 1 other"),
        _ => format!("rank{plural} {shown} and {others} others"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_short_however_many_there_are() {
        assert_eq!(list(&[3]), "rank 3");
        assert_eq!(list(&[0, 1, 4]), "ranks 0, 1, 4");
        assert_eq!(list(&[0, 1, 2, 7]), "ranks 0 to 2, 7");
        let all: Vec<usize> = (0..100_000).collect();
        assert_eq!(list(&all), "ranks 0 to 99999");
        let even: Vec<usize> = (0..100_000).step_by(2).collect();
        assert_eq!(list(&even), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 49992 others");
    }
}

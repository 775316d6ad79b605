//! How lengths are taken apart for kernels: into radices within a block, and into blocks' lengths.

use smallvec::SmallVec;

/// The radices that a block multiplies to `n`; `None` if there is a prime factor above 7.
pub(super) fn radices(n: usize) -> Option<SmallVec<[usize; 16]>> {
    let mut all = SmallVec::new();
    let mut rest = n;
    for odd in [7, 5, 3] {
        while rest.is_multiple_of(odd) {
            all.push(odd);
            rest /= odd;
        }
    }
    if !rest.is_power_of_two() {
        return None;
    }
    // Eights, and fours rather than a two.
    let twos = rest.ilog2() as usize;
    let (eights, others): (usize, &[usize]) = match twos % 3 {
        0 => (twos / 3, &[]),
        1 if twos > 1 => ((twos - 4) / 3, &[4, 4]),
        1 => (0, &[2]),
        _ => ((twos - 2) / 3, &[4]),
    };
    all.extend(std::iter::repeat_n(8, eights).chain(others.iter().copied()));
    Some(all)
}

/// `n`, which has small prime factors, as a product of as few and as equal lengths up to `most` as there are.
pub(super) fn lengths(n: usize, most: usize) -> SmallVec<[usize; 4]> {
    let count = (1..).find(|&count| split(n, count, most).is_some());
    count.and_then(|count| split(n, count, most)).unwrap_or_default()
}

fn split(n: usize, count: usize, most: usize) -> Option<SmallVec<[usize; 4]>> {
    if count == 1 {
        return (n <= most).then(|| SmallVec::from_slice(&[n]));
    }
    let middle = (n as f64).powf(1.0 / count as f64);
    let mut divisors: Vec<usize> = (2..=most.min(n)).filter(|d| n.is_multiple_of(*d)).collect();
    divisors.sort_by(|a, b| (*a as f64 - middle).abs().total_cmp(&(*b as f64 - middle).abs()));
    divisors.into_iter().find_map(|d| {
        let mut parts = split(n / d, count - 1, most)?;
        parts.push(d);
        Some(parts)
    })
}

/// The first length from `n` on that is a power of two, or three or five times one.
pub(super) fn convenient(n: usize) -> usize {
    [1, 3, 5].map(|odd| odd * n.div_ceil(odd).next_power_of_two()).into_iter().min().unwrap_or(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radices_multiply_to_the_length() {
        for n in 1..5000 {
            let smooth = [2, 3, 5, 7].iter().fold(n, |mut rest, p| {
                while rest % p == 0 {
                    rest /= p;
                }
                rest
            });
            match radices(n) {
                Some(all) => {
                    assert!(smooth == 1 && all.iter().product::<usize>() == n && all.len() <= 13)
                }
                None => assert!(smooth > 1),
            }
        }
    }

    #[test]
    fn long_lines_are_taken_apart_evenly() {
        assert_eq!(&lengths(4096, 4096)[..], [4096]);
        assert_eq!(&lengths(1 << 20, 1024)[..], [1024, 1024]);
        assert_eq!(&lengths(1 << 24, 1024)[..], [256, 256, 256]);
        for n in [5usize.pow(9), 7usize.pow(8), 3 * (1 << 25), 1_000_000] {
            let parts = lengths(n, 512);
            assert!(parts.iter().product::<usize>() == n && parts.iter().all(|&p| p <= 512));
        }
    }

    #[test]
    fn convenient_lengths_are_long_enough() {
        for n in 1..3000 {
            let m = convenient(n);
            assert!(m >= n && m < 2 * n && radices(m).is_some());
        }
    }
}

//! Which ranks the others wait for. In a job whose ranks meet in every step all take the same time; who does not wait
//! while most others do is the one that they wait for.

use std::collections::VecDeque;

/// The others wait this share of their time, or nothing is slow.
const NOTABLE: f64 = 0.15;
/// A slow rank waits at most this share of what most others do.
const LITTLE: f64 = 0.3;
/// Looks in a row after which a rank is called slow: about ten seconds.
const PERSISTENT: usize = 10;

/// The ranks that others wait for now, by the shares of their time in which they wait; and which share that is of most.
pub fn slow_ranks(waited: &[f64]) -> (Vec<usize>, f64) {
    let mut sorted = waited.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Of two ranks the one that waits more.
    let Some(&most) = sorted.get(sorted.len() / 2) else { return (Vec::new(), 0.0) };
    if waited.len() < 2 || most < NOTABLE {
        return (Vec::new(), most);
    }
    let slow = (0..waited.len()).filter(|&place| waited[place] < LITTLE * most);
    (slow.collect(), most)
}

/// What is slow for a while, rather than once.
#[derive(Debug, Default)]
pub struct SlowRanks {
    looks: VecDeque<Vec<usize>>,
    /// Those that were told of.
    told: Vec<usize>,
}

impl SlowRanks {
    /// Takes a look; gives the ranks that are slow for a while, and whether that is news.
    pub fn look(&mut self, slow: Vec<usize>) -> (Vec<usize>, bool) {
        self.looks.push_back(slow);
        if self.looks.len() > PERSISTENT {
            self.looks.pop_front();
        }
        if self.looks.len() < PERSISTENT {
            return (Vec::new(), false);
        }
        let first = self.looks[0].iter().copied();
        let always = |rank: &usize| self.looks.iter().all(|look| look.contains(rank));
        let lasting: Vec<usize> = first.filter(always).collect();
        let is_news = lasting.iter().any(|rank| !self.told.contains(rank));
        self.told.clone_from(&lasting);
        (lasting, is_news)
    }

    /// Workers were started anew.
    pub fn forget(&mut self) {
        *self = SlowRanks::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_wait_is_waited_for() {
        assert_eq!(slow_ranks(&[0.4, 0.01]), (vec![1], 0.4));
        assert_eq!(slow_ranks(&[0.3, 0.35, 0.02, 0.3]), (vec![2], 0.3));
        for fine in [&[][..], &[0.9], &[0.1, 0.0], &[0.3, 0.32, 0.28, 0.3], &[0.05; 8]] {
            assert!(slow_ranks(fine).0.is_empty(), "{fine:?}");
        }
    }

    #[test]
    fn a_rank_is_told_of_once_while_it_is_slow() {
        let mut slow = SlowRanks::default();
        let mut told = Vec::new();
        for look in 0..30 {
            let now = if (5..25).contains(&look) { vec![3] } else { vec![] };
            let (lasting, is_news) = slow.look(now);
            if is_news {
                told.push((look, lasting));
            }
        }
        assert_eq!(told, [(14, vec![3])]);
    }
}

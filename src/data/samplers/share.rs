//! A rank's share of a list.

use crate::error::{Error, Result};

/// Which places of a list are this rank's: `rank`, `rank + num_replicas`, ... All ranks have equally many: the beginning
/// comes again to fill up, or with `drop_last` the tail is left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub num_replicas: usize,
    rank: usize,
    pub drop_last: bool,
}

impl Share {
    /// # Errors
    /// [`Error::Argument`] of `op` unless `rank < num_replicas`.
    pub fn new(op: &str, num_replicas: usize, rank: usize) -> Result<Self> {
        match rank < num_replicas {
            true => Ok(Share { num_replicas, rank, drop_last: false }),
            false => {
                let message =
                    format!("is {rank}, must be below num_replicas, which is {num_replicas}");
                Err(Error::argument(op, "rank", message))
            }
        }
    }

    /// The same of a list that is dealt out to `already` ranks, which has to be one. `argument` is the list.
    pub fn of_whole(
        op: &str,
        (num_replicas, rank): (usize, usize),
        argument: &str,
        already: usize,
    ) -> Result<Self> {
        match already {
            0 | 1 => Self::new(op, num_replicas, rank),
            _ => {
                let message = format!("is dealt out to {already} ranks already");
                Err(Error::argument(op, argument, message))
            }
        }
    }

    /// How many of a list of `len`.
    pub fn len(&self, len: usize) -> usize {
        match self.drop_last {
            true => len / self.num_replicas,
            false => len.div_ceil(self.num_replicas),
        }
    }

    /// Their places in it.
    pub fn places(self, len: usize) -> impl Iterator<Item = usize> {
        (0..self.len(len)).map(move |k| (k * self.num_replicas + self.rank) % len)
    }
}

//! Where the workers of this host stand among those of a job, from one start of the workers to the next.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use torchrs_rendezvous::protocol::Round;

/// One start of the workers: which ranks are here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Counts the starts of the job's workers, from 0.
    pub attempt: u32,
    /// Failures before it: TORCHELASTIC_RESTART_COUNT.
    pub restarts: u32,
    /// The rank of this host's first worker.
    pub first_rank: usize,
    /// Workers on this host, and on all.
    pub nproc: usize,
    pub world_size: usize,
    /// This host's number among the hosts.
    pub group_rank: usize,
    pub hosts: usize,
    /// Where rank 0 is reached.
    pub master_addr: String,
    pub master_port: u16,
}

impl Place {
    /// Of the only host.
    pub fn alone(attempt: u32, nproc: usize, master_addr: &str, master_port: u16) -> Self {
        Place {
            attempt,
            restarts: attempt,
            first_rank: 0,
            nproc,
            world_size: nproc,
            group_rank: 0,
            hosts: 1,
            master_addr: master_addr.to_owned(),
            master_port,
        }
    }

    /// Of the host with this group rank in a round of several. `master_addr`: where this one reaches the first;
    /// `master_port`: what was asked for.
    pub fn in_round(
        round: &Round,
        group_rank: usize,
        nproc: usize,
        (master_addr, master_port): (Option<IpAddr>, u16),
    ) -> Self {
        Place {
            attempt: round.number as u32,
            restarts: round.restarts,
            first_rank: round.first_rank(group_rank),
            nproc,
            world_size: round.world_size(),
            group_rank,
            hosts: round.hosts.len(),
            master_addr: master_addr.map_or_else(String::new, |address| address.to_string()),
            master_port,
        }
    }

    /// The rank of the worker with this local rank.
    pub fn rank(&self, local_rank: usize) -> usize {
        self.first_rank + local_rank
    }
}

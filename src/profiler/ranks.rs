//! The bottleneck reports of all ranks: which rank the others wait for, and what it does meanwhile.

use std::fmt;

use super::averages::time;
use super::bottleneck::{Bottleneck, PartKind};
use super::text::{Align, Table};

/// The reports of all ranks of a job, by rank; [`Bottleneck::gather`] makes it. Printed, a table and a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobBottleneck {
    /// The reports.
    pub ranks: Vec<Bottleneck>,
}

const KINDS: [(PartKind, &str); 6] = [
    (PartKind::Data, "Data"),
    (PartKind::Kernels, "Ops"),
    (PartKind::Optimizer, "Optimizer"),
    (PartKind::Communication, "Communication"),
    (PartKind::Waiting, "Waiting"),
    (PartKind::Host, "Between ops"),
];

impl JobBottleneck {
    /// For how long the others waited for each rank, in nanoseconds.
    pub fn waited_for(&self) -> Vec<u64> {
        let all = self.ranks.iter().flat_map(|report| &report.waited_for);
        let mut sums = vec![0; self.ranks.len()];
        for &(rank, ns) in all {
            if let Some(sum) = sums.get_mut(rank) {
                *sum += ns;
            }
        }
        sums
    }

    /// The rank that the others waited for most, if they waited for at least a hundredth of their time.
    pub fn straggler(&self) -> Option<usize> {
        let waited = self.waited_for();
        let (rank, &most) = waited.iter().enumerate().max_by_key(|(_, ns)| **ns)?;
        let others = self.ranks.iter().enumerate().filter(|(other, _)| *other != rank);
        let wall: u64 = others.map(|(_, report)| report.wall_ns).sum();
        (most * 100 >= wall.max(1)).then_some(rank)
    }

    /// The part on which a rank spends most more than the mean of the others, and by how many nanoseconds.
    fn excess(&self, rank: usize) -> Option<(PartKind, u64)> {
        let ns = |report: &Bottleneck, kind| -> u64 {
            report.parts.iter().filter(|part| part.kind == kind).map(|part| part.ns).sum()
        };
        let others = (self.ranks.len() - 1).max(1) as u64;
        let excess = |kind: PartKind| {
            let reports = self.ranks.iter().enumerate().filter(|(other, _)| *other != rank);
            let mean = reports.map(|(_, report)| ns(report, kind)).sum::<u64>() / others;
            (kind, ns(&self.ranks[rank], kind).saturating_sub(mean))
        };
        let kinds = KINDS.iter().map(|(kind, _)| *kind);
        let kinds =
            kinds.filter(|kind| !matches!(kind, PartKind::Waiting | PartKind::Communication));
        kinds.map(excess).max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0)
    }
}

impl fmt::Display for JobBottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["Rank", "Time"].into_iter().chain(KINDS.iter().map(|(_, name)| *name));
        let head = head.chain(["Others waited for it"]).map(|name| (name, Align::Right));
        let mut table = Table::new(head);
        for (rank, (report, waited)) in self.ranks.iter().zip(self.waited_for()).enumerate() {
            let shares =
                KINDS.iter().map(|(kind, _)| format!("{:.1}%", 100.0 * report.share(*kind)));
            let cells = [rank.to_string(), time(report.wall_ns as f64)].into_iter().chain(shares);
            table.row(cells.chain([time(waited as f64)]));
        }
        write!(f, "{table}")?;
        match self.straggler() {
            Some(rank) => {
                let waited = time(self.waited_for()[rank] as f64);
                write!(f, "The others waited for rank {rank}, {waited} in all.")?;
                if let Some((kind, ns)) = self.excess(rank) {
                    let more = time(ns as f64);
                    let advice = match kind {
                        PartKind::Kernels => {
                            "Look at what else runs on its cores, and whether its batches are larger."
                        }
                        _ => kind.advice(),
                    };
                    write!(f, " It spends {more} more than they on {}. {advice}", kind.title())?;
                }
                writeln!(f)
            }
            None => writeln!(f, "No rank is waited for."),
        }
    }
}

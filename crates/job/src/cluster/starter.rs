//! What all starters of tasks have in common: each tells a task its place by a few numbers, under names of its own.

use super::ClusterTask;
use super::surroundings::Surroundings;

/// The variables by which a starter of tasks tells each its place. Of several names the first that is set counts.
pub(super) struct Starter {
    pub name: &'static str,
    pub rank: &'static str,
    /// The number of tasks.
    pub size: &'static [&'static str],
    pub local_rank: &'static [&'static str],
    /// Tasks on this host.
    pub local_size: &'static [&'static str],
    /// This host's number.
    pub node_rank: &'static [&'static str],
    /// Hosts of all tasks.
    pub nodes: &'static [&'static str],
    pub job_id: &'static [&'static str],
    /// The name of the host on which the task was started.
    pub host: &'static [&'static str],
}

impl Starter {
    /// One that tells nothing, for what a row leaves out.
    pub(super) const SILENT: Starter = Starter {
        name: "",
        rank: "",
        size: &[],
        local_rank: &[],
        local_size: &[],
        node_rank: &[],
        nodes: &[],
        job_id: &[],
        host: &[],
    };

    /// The task that this process is, if this starter has started it as one of several. What is half there is added to
    /// `doubts`.
    pub(super) fn task(
        &self,
        around: &Surroundings<'_>,
        doubts: &mut Vec<String>,
    ) -> Option<ClusterTask> {
        let rank: usize = around.number(self.rank)?;
        let size = around.first_number(self.size);
        match size {
            Some((_, size)) if size <= 1 => return None,
            Some((name, size)) if rank >= size => {
                doubts.push(format!(
                    "{}={rank} and {name}={size} contradict each other: ranks are 0 to {}",
                    self.rank,
                    size - 1
                ));
                return None;
            }
            // The first task of an unknown number may be the only one; the others are not.
            None if rank == 0 => return None,
            _ => {}
        }
        if let Some((name, host)) = around.first(self.host)
            && let Some(why) = around.elsewhere(name, &host)
        {
            doubts.push(why);
            return None;
        }
        let told = |names| around.first_number(names);
        let mut local_rank = told(self.local_rank);
        let mut local_size = told(self.local_size);
        let bound = local_size.or(size);
        let rank_fits = local_rank.zip(bound).is_none_or(|((_, rank), (_, bound))| rank < bound);
        let most = size.map_or(usize::MAX, |(_, size)| size);
        let size_fits = local_size.is_none_or(|(_, local)| (1..=most).contains(&local));
        if !rank_fits || !size_fits {
            let numbers = [local_rank, local_size, size].into_iter().flatten();
            let numbers: Vec<String> = numbers.map(|(name, n)| format!("{name}={n}")).collect();
            doubts.push(format!("{} contradict each other", numbers.join(" and ")));
            (local_rank, local_size) = (None, None);
        }
        let nodes = told(self.nodes).filter(|(_, nodes)| *nodes > 0);
        let node_rank =
            told(self.node_rank).filter(|(_, node)| nodes.is_none_or(|(_, nodes)| *node < nodes));

        let all = [Some((self.rank, rank)), size, local_rank, local_size, node_rank, nodes];
        let told_by = all.into_iter().flatten().map(|(name, n)| format!("{name}={n}")).collect();
        let value = |told: Option<(&'static str, usize)>| told.map(|(_, value)| value);
        let mut task = ClusterTask {
            starter: self.name,
            rank,
            size: value(size),
            on_one_host: None,
            local_rank: value(local_rank),
            local_size: value(local_size),
            node_rank: value(node_rank),
            nodes: value(nodes),
            leader: None,
            job_id: around.first(self.job_id).map(|(_, id)| id),
            own_gpus: None,
            rank_variable: self.rank,
            size_variable: size.map(|(name, _)| name),
            local_rank_variable: local_rank.map(|(name, _)| name),
            told_by,
        };
        task.conclude();
        Some(task)
    }
}

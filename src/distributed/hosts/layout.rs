//! Which members of a group are on which host. Knows nothing of memory and connections.

/// The members of a group by host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// For each host its members in order, by their rank in the group. No host is empty.
    pub hosts: Vec<Vec<usize>>,
    /// Which of them is this one.
    pub place: usize,
    /// Which of this host's members is this rank.
    pub member: usize,
    /// By rank: its host, and which of that host's members it is.
    found: Vec<[usize; 2]>,
}

impl Layout {
    /// `numbers` are those of the hosts of all members, by their rank in the group.
    pub fn new(numbers: &[usize], rank: usize) -> Self {
        let mut known = numbers.to_vec();
        known.sort_unstable();
        known.dedup();
        let mut hosts = vec![Vec::new(); known.len()];
        let mut found = Vec::with_capacity(numbers.len());
        for (rank, number) in numbers.iter().enumerate() {
            let place = known.partition_point(|other| other < number);
            found.push([place, hosts[place].len()]);
            hosts[place].push(rank);
        }
        let [place, member] = found[rank];
        Layout { hosts, place, member, found }
    }

    /// A rank's host, and which of that host's members it is.
    pub fn find(&self, rank: usize) -> [usize; 2] {
        self.found[rank]
    }

    /// How many members of each host have counterparts on all others.
    pub fn rails(&self) -> usize {
        self.hosts.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Whether this rank speaks for its host.
    pub fn is_leader(&self) -> bool {
        self.member == 0
    }

    /// This host's members.
    pub fn own(&self) -> &[usize] {
        &self.hosts[self.place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_sorted_by_host() {
        let layout = Layout::new(&[0, 0, 2, 0, 2], 3);
        assert_eq!(layout.hosts, [vec![0, 1, 3], vec![2, 4]]);
        assert_eq!((layout.place, layout.member, layout.rails()), (0, 2, 2));
        assert_eq!((layout.find(4), layout.own()), ([1, 1], &[0, 1, 3][..]));
        let one = Layout::new(&[7, 7], 0);
        assert!(one.is_leader() && one.hosts.len() == 1);
    }
}

//! What each host needs of the members' gifts, and where that lies on a host's board. Knows nothing of how it comes
//! there.

use super::layout::Layout;
use crate::distributed::collective::{Kind, Signature};

/// What goes from host to host.
#[derive(Debug)]
pub(super) struct Needs {
    /// By host, the members that give, by their place among that host's members.
    givers: Vec<Vec<usize>>,
    /// By host, how many parts of each gift it needs: those of its members, or the only one.
    wants: Vec<usize>,
    /// All hosts need the same.
    pub is_for_all: bool,
    /// This host.
    place: usize,
}

impl Needs {
    pub fn of(signature: &Signature, layout: &Layout) -> Self {
        let root = signature.root.unwrap_or(0);
        let [root_host, root_member] = layout.find(root);
        let hosts = 0..layout.hosts.len();
        let members = |host: usize| layout.hosts[host].len();
        let all = |host| (0..members(host)).collect::<Vec<_>>();
        let only_root = |host| if host == root_host { vec![root_member] } else { Vec::new() };
        let by_host = |one: &dyn Fn(usize) -> Vec<usize>| hosts.clone().map(one).collect();
        let count = |one: &dyn Fn(usize) -> usize| hosts.clone().map(one).collect();
        let (givers, wants) = match signature.kind {
            Kind::AllReduce | Kind::AllGather => (by_host(&all), count(&|_| 1)),
            Kind::Broadcast | Kind::Send => (by_host(&only_root), count(&|_| 1)),
            Kind::Reduce | Kind::Gather => {
                (by_host(&all), count(&|host| usize::from(host == root_host)))
            }
            Kind::ReduceScatter | Kind::AllToAll => (by_host(&all), count(&members)),
            Kind::Scatter => (by_host(&only_root), count(&members)),
            Kind::Barrier | Kind::AllocShared | Kind::NewGroup => {
                (by_host(&|_| Vec::new()), count(&|_| 1))
            }
        };
        let is_for_all = !matches!(
            signature.kind,
            Kind::Reduce | Kind::Gather | Kind::ReduceScatter | Kind::AllToAll | Kind::Scatter
        );
        Needs { givers, wants, is_for_all, place: layout.place }
    }

    /// How many pieces are on the board of a host, at most of all.
    pub fn most_pieces(&self) -> usize {
        let given: usize = self.givers.iter().map(Vec::len).sum();
        let wanted: usize = self.wants.iter().sum();
        let count = |(givers, wants): (&Vec<usize>, &usize)| match self.is_for_all {
            true => given * wants,
            false => given * wants + givers.len() * (wanted - wants),
        };
        self.givers.iter().zip(&self.wants).map(count).max().unwrap_or(0)
    }

    /// This host's board, with pieces of `stride` bytes.
    pub fn board(&self, stride: usize) -> Board<'_> {
        Board::new(self, self.place, stride)
    }
}

/// Where things are on a host's board.
#[derive(Debug)]
pub(super) struct Board<'a> {
    needs: &'a Needs,
    place: usize,
    stride: usize,
    /// By host, where what comes from there begins, and how long it is; of this host itself what stays here.
    pub came: Vec<[usize; 2]>,
    /// By host, where what goes there begins, and how long it is. Empty where all hosts need the same.
    pub goes: Vec<[usize; 2]>,
    /// Bytes in use.
    pub total: usize,
}

impl<'a> Board<'a> {
    fn new(needs: &'a Needs, place: usize, stride: usize) -> Self {
        let hosts = needs.givers.len();
        let mut total = 0;
        let mut room = |pieces: usize| {
            let start = total;
            total += pieces * stride;
            [start, pieces * stride]
        };
        let mut came = vec![[0, 0]; hosts];
        let pieces = |from: usize, to: usize| needs.givers[from].len() * needs.wants[to];
        if needs.is_for_all {
            (0..hosts).for_each(|from| came[from] = room(pieces(from, place)));
            return Board { needs, place, stride, came, goes: Vec::new(), total };
        }
        for from in (0..hosts).filter(|&from| from != place) {
            came[from] = room(pieces(from, place));
        }
        came[place] = room(pieces(place, place));
        let mut goes = vec![[0, 0]; hosts];
        for to in (0..hosts).filter(|&to| to != place) {
            goes[to] = room(pieces(place, to));
        }
        Board { needs, place, stride, came, goes, total }
    }

    /// Where the piece is that a member of a host gives to this one. `part` counts the parts that this host needs.
    pub fn piece(&self, [host, member]: [usize; 2], part: usize) -> usize {
        self.at(self.came[host][0], host, self.place, member, part)
    }

    /// Where a member of this host puts what it gives, for each part of its gift that somebody needs: that part's
    /// number, and the place. `parts` are those of a whole gift.
    pub fn places_of(&self, member: usize, layout: &Layout, parts: usize) -> Vec<[usize; 2]> {
        if !self.needs.givers[self.place].contains(&member) {
            return Vec::new();
        }
        let mut places = Vec::new();
        for host in 0..self.needs.givers.len() {
            let start = match (host == self.place, self.needs.is_for_all) {
                (true, _) => self.came[host][0],
                (false, true) => continue,
                (false, false) => self.goes[host][0],
            };
            for part in 0..self.needs.wants[host] {
                let number = if parts == 1 { 0 } else { layout.hosts[host][part] };
                places.push([number, self.at(start, self.place, host, member, part)]);
            }
        }
        places
    }

    fn at(&self, start: usize, from: usize, to: usize, member: usize, part: usize) -> usize {
        let giver = self.needs.givers[from].iter().position(|&other| other == member);
        let giver = giver.expect("only what is given is looked for");
        start + (giver * self.needs.wants[to] + part) * self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(kind: Kind) -> Signature {
        Signature { root: Some(2), ..Signature::of_host(kind, &[1]) }
    }

    #[test]
    fn what_goes_from_a_host_is_what_comes_to_the_other() {
        let numbers = [0, 0, 1, 2, 2, 2];
        for kind in Kind::ALL {
            for from in 0..3 {
                for to in (0..3).filter(|&to| to != from) {
                    let layout = |host| Layout::new(&numbers, [0, 2, 3][host]);
                    let needs = [from, to].map(|host| Needs::of(&signature(kind), &layout(host)));
                    let [there, here] = [needs[0].board(8), needs[1].board(8)];
                    let sent = if needs[0].is_for_all { there.came[from] } else { there.goes[to] };
                    assert_eq!(sent[1], here.came[from][1], "{kind:?} from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn each_piece_has_a_place_of_its_own() {
        let layout = Layout::new(&[0, 0, 1, 2, 2, 2], 3);
        for kind in [Kind::AllToAll, Kind::AllGather, Kind::Scatter, Kind::Reduce] {
            let parts = if matches!(kind, Kind::AllToAll | Kind::Scatter) { 6 } else { 1 };
            let needs = Needs::of(&signature(kind), &layout);
            let board = needs.board(64);
            let own = (0..3).flat_map(|member| board.places_of(member, &layout, parts));
            let mut places: Vec<usize> = own.map(|[_, at]| at).collect();
            let here: usize = board.came[2][1] / 64;
            let out: usize = board.goes.iter().map(|[_, len]| len / 64).sum();
            assert_eq!(places.len(), here + out, "{kind:?}");
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), here + out, "{kind:?}");
            assert!(places.iter().all(|at| at + 64 <= board.total));
            let most = (0..3).map(|host| Board::new(&needs, host, 1).total).max();
            assert_eq!(Some(needs.most_pieces()), most);
        }
    }
}

//! Calls to other launchers: how they begin, and what comes of them.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};

use torchrs_job::addresses::by_likelihood;

use super::super::dial::{Callee, Caller, Dialed};
use super::super::own::all_addresses;
use super::super::peer::Peer;
use super::{Driver, Link, Use};
use crate::protocol::Round;

impl Driver {
    /// Calls in a thread of its own; the call's number.
    pub(super) fn dial(&mut self, callee: Callee) -> u64 {
        let number = self.next;
        self.next += 1;
        let (id, key, endpoint) = (self.id, self.key, self.config.endpoint.clone());
        self.line.dial(number, callee, Caller { id, key, endpoint });
        number
    }

    /// The address of a round's first host by which this one reaches it best: the one by which it has, if that is the
    /// leader, else the likeliest. Of this host the one by which most others have come.
    pub(super) fn way_to_first(&self, round: &Round) -> Option<IpAddr> {
        let first = round.hosts.first()?;
        if let Some(reached) = self.reached.get(&first.id) {
            return Some(reached.ip());
        }
        let mut addresses = first.addresses.clone();
        if first.id == self.id {
            let incoming = self.peers.values().filter(|e| e.used == Use::Incoming && e.open);
            let came: Vec<IpAddr> = incoming.filter_map(|e| e.peer.own_address()).collect();
            // Stable: among equals the first.
            let count = |own: IpAddr| came.iter().filter(|came| **came == own).count();
            addresses.sort_by_cached_key(|own| Reverse(count(own.ip())));
        } else {
            by_likelihood(&mut addresses, &all_addresses());
        }
        addresses.first().map(SocketAddr::ip)
    }

    /// A call has ended: it has led to a launcher, or to none.
    pub(super) fn dialed(&mut self, dialed: Dialed) {
        let Dialed { number, result } = dialed;
        let claim = self.claims.remove(&number);
        if claim.is_none() && self.link != Link::Dialing(number) {
            return;
        }
        match (result, claim) {
            (Ok(reached), Some(claim)) => {
                let mut peer = Peer::of_called(reached);
                peer.send(&claim);
                peer.closing = true;
                self.enter(peer, Use::Claim);
            }
            (Ok(reached), None) => {
                self.reached.insert(reached.id, reached.address);
                let Some(number) = self.enter(Peer::of_called(reached), Use::ToLeader) else {
                    return self.call_failed("epoll refused the connection", false);
                };
                self.link = Link::Peer(number);
                let (now, mut out) = (self.now(), Vec::new());
                self.member_mut().called(now, &mut out);
                self.do_member(out);
            }
            (Err(_), Some(_)) => {}
            (Err(failed), None) => self.call_failed(&failed.why, failed.refused),
        }
    }

    /// Whether another host leads, and has taken all that this one has sent.
    pub(super) fn sends_at_once(&self) -> bool {
        let Link::Peer(number) = self.link else { return false };
        self.peers.get(&number).is_some_and(|entry| entry.open && !entry.peer.has_output())
    }

    fn call_failed(&mut self, why: &str, refused: bool) {
        self.link = Link::None;
        let (now, mut out) = (self.now(), Vec::new());
        self.member_mut().hung_up(why, refused, now, &mut out);
        self.do_member(out);
    }
}

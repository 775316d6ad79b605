//! Connecting to another launcher, in a thread of its own: names take their time to be found.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use nix::sys::eventfd::EventFd;
use torchrs_job::addresses::{by_likelihood, is_ambiguous};

use super::own::all_addresses;
use super::{Endpoint, Input};
use crate::calling::{self, Call, Tried};
use crate::channel::{Broken, Channel};
use crate::proof::Refusal;
use crate::protocol::{HostId, ToMember};

/// For all addresses of a host.
const CALL_WITHIN: Duration = Duration::from_millis(1400);

/// How a call ended.
pub(super) struct Dialed {
    pub number: u64,
    pub result: Result<Reached, Failed>,
}

/// Not what its connection holds.
impl std::fmt::Debug for Dialed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = self.result.as_ref().map(|reached| reached.address);
        f.debug_struct("Dialed").field("number", &self.number).field("result", &address).finish()
    }
}

/// A launcher that has the job's token.
pub(super) struct Reached {
    pub id: HostId,
    pub socket: TcpStream,
    pub channel: Channel,
    pub address: SocketAddr,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub why: String,
    /// The host is there, and its launcher is not.
    pub refused: bool,
}

/// Whom to call.
#[derive(Debug, Default)]
pub(super) struct Callee {
    /// Which launcher has to answer; nothing: any but this one.
    pub id: Option<HostId>,
    /// None: those of the endpoint.
    pub addresses: Vec<SocketAddr>,
    /// The one by which this host has reached it before.
    pub reached_at: Option<SocketAddr>,
}

/// Where results go.
pub(super) struct Line {
    pub results: Sender<Input>,
    pub wake: Arc<EventFd>,
}

/// What all calls of a launcher have.
#[derive(Clone)]
pub(super) struct Caller {
    pub id: HostId,
    pub key: [u8; 32],
    pub endpoint: Endpoint,
}

impl Line {
    /// Calls the first address of a launcher by which it answers.
    pub fn dial(&self, number: u64, callee: Callee, caller: Caller) {
        let (results, wake) = (self.results.clone(), self.wake.clone());
        let work = move || {
            let result = caller.call(callee);
            let _ = results.send(Input::Dialed(Dialed { number, result }));
            let _ = wake.write(1);
        };
        let thread = std::thread::Builder::new().name("torchrs-dial".into()).spawn(work);
        if let Err(error) = thread {
            let why = format!("cannot start a thread: {error}");
            let failed = Dialed { number, result: Err(Failed { why, refused: false }) };
            let _ = self.results.send(Input::Dialed(failed));
            let _ = self.wake.write(1);
        }
    }
}

impl Caller {
    fn call(&self, callee: Callee) -> Result<Reached, Failed> {
        let Callee { id, mut addresses, reached_at } = callee;
        if addresses.is_empty() {
            let found = self.endpoint.resolve();
            addresses = found.map_err(|why| Failed { why, refused: false })?;
        }
        let own = own_for(&addresses);
        by_likelihood(&mut addresses, &own);
        // Stable: it led there.
        addresses.sort_by_key(|address| Some(*address) != reached_at);
        let call = Call {
            key: &self.key,
            hello: None,
            connect_within: CALL_WITHIN,
            prove_within: CALL_WITHIN,
            limit: CALL_WITHIN,
            stops: &|| false,
        };
        let reached = calling::call(&addresses, &call, |word| self.understand(word, id));
        let reached = reached.map_err(|tried| Failed {
            refused: is_refused(&tried, reached_at, &own),
            why: in_words(&tried),
        })?;
        let calling::Reached { socket, channel, address, answer: id } = reached;
        Ok(Reached { id, socket, channel, address })
    }

    /// Who has answered.
    fn understand(&self, word: &[u8], expected: Option<HostId>) -> Result<HostId, Refusal> {
        match postcard::from_bytes(word) {
            Ok(ToMember::Here { id }) if id == self.id => {
                Err(Refusal::Other("this launcher itself listens there".into()))
            }
            Ok(ToMember::Here { id }) if expected.is_none_or(|expected| expected == id) => Ok(id),
            Ok(ToMember::Here { .. }) => Err(Refusal::WrongProcess),
            Ok(_) | Err(_) => Err(Refusal::Other("it sent a message of another release".into())),
        }
    }
}

/// This host's addresses, as far as they say how likely others lead to another host.
fn own_for(addresses: &[SocketAddr]) -> Vec<IpAddr> {
    let is_on_loopback = addresses.iter().all(|address| address.ip().is_loopback());
    let mut own = all_addresses();
    own.retain(|address| address.is_loopback() == is_on_loopback);
    own
}

/// Whether a launcher is known to have ended: where it was reached before nobody listens any more, or another one
/// does. Where it was not, nobody listens at any address; one that this host has, too, says nothing.
fn is_refused(tried: &Tried, reached_at: Option<SocketAddr>, own: &[IpAddr]) -> bool {
    if let Some(reached_at) = reached_at {
        let there = tried.iter().find(|(address, _)| *address == reached_at);
        return there.is_some_and(|(_, refusal)| {
            matches!(refusal, Refusal::Refused | Refusal::WrongProcess)
        });
    }
    let tells = |address: &SocketAddr| !is_ambiguous(address.ip(), own);
    let mut telling = tried.iter().filter(|(address, _)| tells(address)).peekable();
    telling.peek().is_some() && telling.all(|(_, refusal)| *refusal == Refusal::Refused)
}

fn in_words(tried: &Tried) -> String {
    let one = |(address, refusal): &(SocketAddr, Refusal)| match refusal {
        Refusal::Refused => format!("{address} is there, but nobody listens at this port"),
        Refusal::TimedOut(_) => format!("{address} does not answer"),
        Refusal::Closed | Refusal::Silent(_) | Refusal::Foreign(Broken::Token) => format!(
            "{address} did not prove that it has the job's token ({refusal}): set the same TORCHRS_JOB_TOKEN on all \
             hosts"
        ),
        _ => format!("{address}: {refusal}"),
    };
    match tried.is_empty() {
        true => "no address to call".into(),
        false => tried.iter().map(one).collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_must_be_the_launcher_tells_that_it_has_ended() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (first, bridge) = (at("10.0.0.1:5"), at("192.168.122.1:6"));
        let own = vec![bridge.ip()];
        let silent = || Refusal::TimedOut(1.0);
        let cut_off = vec![(first, silent()), (bridge, Refusal::Refused)];
        assert!(!is_refused(&cut_off, None, &own));
        assert!(!is_refused(&cut_off, Some(first), &own));
        let ended = vec![(first, Refusal::Refused), (bridge, silent())];
        assert!(is_refused(&ended, Some(first), &own) && is_refused(&ended, None, &own));
        let replaced = vec![(first, Refusal::WrongProcess)];
        assert!(is_refused(&replaced, Some(first), &own) && !is_refused(&replaced, None, &own));
        let elsewhere = vec![(first, Refusal::Refused), (at("10.9.0.1:5"), silent())];
        assert!(!is_refused(&elsewhere, None, &own) && !is_refused(&Tried::new(), None, &own));
    }
}

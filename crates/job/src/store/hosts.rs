//! A store over several hosts: which keys are a host's own, and which requests went to the job's server.

use std::collections::HashMap;

use super::state::ConnectionId;
use super::wire::{Request, encode};

/// What keys of one host alone begin with.
pub const OF_HOST: &str = "@host/";
/// Where a launcher tells workers the key that all workers of a job over several hosts share: 32 bytes.
pub const LINKS_KEY: &str = "@host/torchrs/links-key";
/// Where it tells them the addresses of this host at which the others reach it, as
/// [`addresses::write`](crate::addresses::write()) writes them.
pub const LINKS_ADDRESSES: &str = "@host/torchrs/addresses";

/// Where it tells them the name of the host that leads the job, and has the job's keys.
pub const LEADER: &str = "@host/torchrs/leader";
/// Set while hosts wait for the program to welcome them: `1`, or `0` when they wait no more.
pub const AWAITS_WELCOME: &str = "torchrs/awaits-welcome";
/// What the program sets when its state is saved and hosts that wait are welcome.
pub const WELCOME: &str = "torchrs/welcome";

/// Connections of other hosts' servers are numbered from here on.
pub(super) const HOSTS: ConnectionId = 1 << 63;

/// How a host's server reaches those of other hosts. Its calls come from the server's thread and must not wait.
pub trait Uplink: Send {
    /// Asks the job's server, which answers through [`StoreServer::answered`](super::StoreServer::answered).
    fn ask(&self, number: u64, request: Vec<u8>);
    /// Answers what `host` asked by [`StoreServer::asked`](super::StoreServer::asked).
    fn reply(&self, host: u64, number: u64, reply: Vec<u8>);
    /// The program has set [`WELCOME`]; only where the job's keys are.
    fn welcome(&self);
}

/// Whether a request says that hosts are welcome.
pub(super) fn welcomes(request: &Request) -> bool {
    matches!(request, Request::Set { key, .. } if *key == WELCOME)
}

/// What concerns other hosts.
pub(super) struct Hosts {
    pub uplink: Box<dyn Uplink>,
    /// Whether the job's keys are here.
    pub holds_job: bool,
    next: u64,
    /// Who waits for the answer to a request that was passed on: its connection, and the request's number there.
    open: HashMap<u64, (ConnectionId, u64)>,
}

/// Whose keys a request is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Keys {
    Host,
    Job,
    /// Some and some.
    Mixed,
}

/// Whose keys a request is about. Descriptors never leave their host.
pub(super) fn keys_of(request: &Request) -> Keys {
    let of_host = |key: &str| key.starts_with(OF_HOST);
    match request {
        Request::SetFds { .. } | Request::GetFds { .. } | Request::Cancel { .. } => Keys::Host,
        Request::Set { key, .. }
        | Request::Get { key }
        | Request::TryGet { key }
        | Request::Add { key, .. }
        | Request::CompareSet { key, .. }
        | Request::Delete { key } => match of_host(key) {
            true => Keys::Host,
            false => Keys::Job,
        },
        Request::Wait { keys } => match keys.iter().filter(|key| of_host(key)).count() {
            0 => Keys::Job,
            count if count == keys.len() => Keys::Host,
            _ => Keys::Mixed,
        },
    }
}

impl Hosts {
    pub fn new(uplink: Box<dyn Uplink>, holds_job: bool) -> Self {
        Hosts { uplink, holds_job, next: 1, open: HashMap::new() }
    }

    /// The number under which a request is passed on.
    pub fn pass_on(&mut self, from: ConnectionId, id: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, (from, id));
        number
    }

    /// A number of which nobody waits for the answer.
    pub fn unanswered(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Who waits for this answer.
    pub fn answered(&mut self, number: u64) -> Option<(ConnectionId, u64)> {
        self.open.remove(&number)
    }

    /// Forgets a connection's requests that were passed on, or one of them.
    pub fn cancel(&mut self, from: ConnectionId, id: Option<u64>) {
        let is_it = |(whose, which): &(ConnectionId, u64)| {
            *whose == from && id.is_none_or(|id| id == *which)
        };
        let open = self.open.extract_if(|_, waiter| is_it(waiter));
        for number in open.map(|(number, _)| number).collect::<Vec<_>>() {
            let cancel = self.unanswered();
            self.uplink.ask(cancel, encode(cancel, &Request::Cancel { id: number }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_and_keys_of_the_host_stay_there() {
        assert_eq!(keys_of(&Request::Get { key: "a" }), Keys::Job);
        assert_eq!(keys_of(&Request::Get { key: "@host/a" }), Keys::Host);
        assert_eq!(keys_of(&Request::GetFds { key: "a" }), Keys::Host);
        assert_eq!(keys_of(&Request::Wait { keys: vec!["a", "b"] }), Keys::Job);
        assert_eq!(keys_of(&Request::Wait { keys: vec!["@host/a", "b"] }), Keys::Mixed);
        assert_eq!(keys_of(&Request::Wait { keys: vec!["@host/a"] }), Keys::Host);
    }
}

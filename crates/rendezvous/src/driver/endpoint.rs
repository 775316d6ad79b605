//! Where a job begins: `host:port`, as the user writes it.

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::str::FromStr;
use std::time::{Duration, Instant};

use torchrs_error::{Error, Result};
use torchrs_job::addresses::is_ambiguous;

use super::list;
use super::own::{all_addresses, is_here, own_addresses};

/// How long a job's port may be taken by the job before.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);
/// The port of an endpoint that names none, as torchrun's.
pub const DEFAULT_PORT: u16 = 29400;

/// A host's name or address, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// `host`, `host:port`, `[::1]:port`, `::1`.
impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = |what: &str| format!("`{text}` {what}: write HOST or HOST:PORT");
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("lacks a `]`"))?;
                let port = rest.strip_prefix(':');
                if port.is_none() && !rest.is_empty() {
                    return Err(wrong("has something after `]`"));
                }
                (host, port)
            }
            // Several colons are an IPv6 address's.
            None if text.matches(':').count() > 1 => (text, None),
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("names no host"));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => {
                port.parse().map_err(|_| wrong("has a port that is no number up to 65535"))?
            }
        };
        Ok(Endpoint { host: host.to_owned(), port })
    }
}

impl Endpoint {
    /// Its addresses now: a pod's name may not be known before the pod runs.
    ///
    /// # Errors
    /// That the name is not known.
    fn look_up(&self) -> std::result::Result<Vec<SocketAddr>, String> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found = found
            .map_err(|error| format!("the name `{}` is not known here: {error}", self.host))?;
        let mut addresses: Vec<SocketAddr> = found.collect();
        addresses.dedup();
        Ok(addresses)
    }

    /// Whether it is written as this host's loopback, and not as a name that happens to lead there.
    fn says_loopback(&self) -> bool {
        let host = self.host.trim_end_matches('.').to_ascii_lowercase();
        let names = ["localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"];
        let is_name = names.contains(&host.as_str()) || host.ends_with(".localhost");
        is_name || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Where to reach it. A host's own name often leads to its loopback (Debian writes `127.0.1.1 NAME` into
    /// /etc/hosts), where other hosts cannot reach it: then these are the addresses by which they can.
    pub(super) fn resolve(&self) -> std::result::Result<Vec<SocketAddr>, String> {
        let found = self.look_up()?;
        let is_elsewhere = self.says_loopback() || found.iter().any(|a| !a.ip().is_loopback());
        let own = if is_elsewhere { Vec::new() } else { own_addresses() };
        match own.is_empty() {
            // Also of a machine without a network.
            true => Ok(found),
            false => Ok(own.into_iter().map(|ip| SocketAddr::new(ip, self.port)).collect()),
        }
    }

    /// Whether only this host can reach it.
    pub fn is_loopback(&self) -> bool {
        self.resolve().is_ok_and(|all| all.iter().all(|address| address.ip().is_loopback()))
    }

    /// What to tell the user of a host whose name leads to its loopback.
    pub(super) fn why_elsewhere(&self, listeners: &[TcpListener]) -> Option<String> {
        let at = listeners.iter().filter_map(|listener| listener.local_addr().ok());
        let at: Vec<SocketAddr> = at.filter(|at| !at.ip().is_loopback()).collect();
        let found = self.look_up().ok()?.into_iter().find(|found| found.ip().is_loopback())?;
        (!at.is_empty()).then(|| {
            format!(
                "`{}` is {} on this host, where others cannot reach it: this host listens at {} (--local-addr names \
                 another address)",
                self.host,
                found.ip(),
                list(&at)
            )
        })
    }

    /// Listens there, at each of its addresses that is this host's. `Ok(None)`: it is another host, or somebody listens
    /// there. `named`: the only addresses at which the user wants this host to listen; none: all.
    pub(super) fn listen(
        &self,
        is_host: Option<bool>,
        named: &[IpAddr],
    ) -> Result<Option<Vec<TcpListener>>> {
        let mine = is_host == Some(true);
        let wrong = |why: String| Error::config("--rdzv-endpoint", format!("`{self}`: {why}"));
        let all = match self.resolve() {
            Ok(addresses) => addresses,
            Err(why) if mine => return Err(Error::config("--rdzv-endpoint", why)),
            Err(_) => return Ok(None),
        };
        if !mine && !is_here(&self.host, &all) {
            return Ok(None);
        }
        let own = all_addresses();
        let is_own =
            |address: &&SocketAddr| address.ip().is_loopback() || own.contains(&address.ip());
        let mut here: Vec<SocketAddr> = all.iter().filter(is_own).copied().collect();
        if here.is_empty() {
            // The system says what is wrong with them.
            here.clone_from(&all);
        }
        let wanted = |address: &SocketAddr| named.is_empty() || named.contains(&address.ip());
        if !here.iter().any(wanted) {
            let names: Vec<String> = named.iter().map(ToString::to_string).collect();
            let what = format!(
                "names {}, and the job begins on this host at {}: name an address of that, too",
                names.join(","),
                list(&here)
            );
            return Err(Error::config("--local-addr", what));
        }
        here.retain(wanted);
        // Launchers that begin at once on one host all try the same address first: one of them has it, and all.
        here.sort();
        let (mut listeners, mut trouble) = (Vec::new(), String::new());
        for address in here {
            match bind(address, mine) {
                Ok(listener) => listeners.push((address, listener)),
                Err(error) => {
                    trouble = format!("cannot listen at {address}: {error}");
                    match error.kind() {
                        ErrorKind::AddrInUse if mine => return Err(wrong(trouble)),
                        ErrorKind::AddrInUse => return Ok(None),
                        // Such as of IPv6 where there is none.
                        _ => {}
                    }
                }
            }
        }
        if listeners.is_empty() {
            return if mine { Err(wrong(trouble)) } else { Ok(None) };
        }
        // As the name's addresses come.
        listeners.sort_by_key(|(address, _)| all.iter().position(|other| other == address));
        Ok(Some(listeners.into_iter().map(|(_, listener)| listener).collect()))
    }

    /// This host's address on the way there. Nothing is sent.
    pub(super) fn own_address(&self) -> std::result::Result<IpAddr, String> {
        let mut trouble = String::new();
        let (mut addresses, own) = (self.resolve()?, all_addresses());
        // To an address that this host has, too, the way is short and leads nowhere else.
        addresses.sort_by_key(|address| is_ambiguous(address.ip(), &own));
        for address in addresses {
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => ([0; 4], 0).into(),
                SocketAddr::V6(_) => ([0u16; 8], 0).into(),
            };
            let route = UdpSocket::bind(any)
                .and_then(|socket| socket.connect(address).and_then(|()| socket.local_addr()));
            match route {
                Ok(own) => return Ok(own.ip()),
                Err(error) => trouble = format!("no way from here to {address}: {error}"),
            }
        }
        Err(trouble)
    }
}

/// Listens at an address. Where it has to be this one, whoever still has it gets a moment to leave.
fn bind(address: SocketAddr, patient: bool) -> std::io::Result<TcpListener> {
    let until = Instant::now() + LEAVES_WITHIN;
    loop {
        match TcpListener::bind(address) {
            Err(error)
                if patient && error.kind() == ErrorKind::AddrInUse && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_people_write_them() {
        for (text, host, port, shown) in [
            ("a", "a", 29400, "a:29400"),
            ("a.b:1", "a.b", 1, "a.b:1"),
            ("10.0.0.1:29500", "10.0.0.1", 29500, "10.0.0.1:29500"),
            ("[fd77::1]:5", "fd77::1", 5, "[fd77::1]:5"),
            ("[::1]", "::1", 29400, "[::1]:29400"),
            ("::1", "::1", 29400, "[::1]:29400"),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!((endpoint.host.as_str(), endpoint.port), (host, port));
            assert_eq!(endpoint.to_string(), shown);
        }
        for text in ["", ":5", "a:", "a:70000", "[::1", "[::1]5"] {
            assert!(
                text.parse::<Endpoint>().unwrap_err().contains("write HOST or HOST:PORT"),
                "{text}"
            );
        }
    }

    #[test]
    fn loopback_is_told_from_a_name_that_leads_there() {
        for text in ["localhost", "127.0.0.1:5", "[::1]:5", "a.localhost", "LOCALHOST."] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert!(endpoint.says_loopback(), "{text}");
        }
        for text in ["node0", "10.0.0.1", "localhost.example.com"] {
            assert!(!text.parse::<Endpoint>().unwrap().says_loopback(), "{text}");
        }
        assert!("127.0.0.1:5".parse::<Endpoint>().unwrap().is_loopback());
        assert!(!"192.0.2.1:5".parse::<Endpoint>().unwrap().is_loopback());
    }

    #[test]
    fn this_hosts_own_address_is_found_without_a_packet() {
        let endpoint: Endpoint = "127.0.0.1:9".parse().unwrap();
        assert!(endpoint.own_address().unwrap().is_loopback());
        assert!(endpoint.listen(Some(false), &[]).is_ok());
        let elsewhere: Endpoint = "192.0.2.1:29400".parse().unwrap();
        assert!(elsewhere.listen(None, &[]).unwrap().is_none());
        let error = elsewhere.listen(Some(true), &[]).unwrap_err().to_string();
        assert!(error.contains("--rdzv-endpoint") && error.contains("192.0.2.1"), "{error}");
    }
}

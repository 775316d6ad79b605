//! Connecting to another launcher, in a thread of its own: names take their time to be found.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use nix::sys::eventfd::EventFd;

use super::{Endpoint, Input, list};

/// For one address.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1400);

/// How a call ended.
#[derive(Debug)]
pub(super) struct Dialed {
    pub number: u64,
    pub result: Result<TcpStream, Failed>,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub why: String,
    /// The host is there, and nobody listens.
    pub refused: bool,
}

/// Where results go.
pub(super) struct Line {
    pub results: Sender<Input>,
    pub wake: Arc<EventFd>,
}

impl Line {
    /// Calls the first of these addresses that answers; none: those of the endpoint.
    pub fn dial(&self, number: u64, addresses: Vec<SocketAddr>, endpoint: &Endpoint) {
        let (results, wake) = (self.results.clone(), self.wake.clone());
        let endpoint = endpoint.clone();
        let work = move || {
            let result = call(addresses, &endpoint);
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

fn call(addresses: Vec<SocketAddr>, endpoint: &Endpoint) -> Result<TcpStream, Failed> {
    let addresses = match addresses.is_empty() {
        true => endpoint.resolve().map_err(|why| Failed { why, refused: false })?,
        false => addresses,
    };
    let (mut refused, mut troubles) = (true, Vec::new());
    for address in &addresses {
        match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
            // A port of the range from which the system takes callers' own: the call has met itself.
            Ok(stream) if stream.local_addr().ok() == Some(*address) => {
                troubles.push(format!("{address} is there, but nobody listens at this port"));
            }
            Ok(stream) => return Ok(stream),
            Err(error) => {
                refused &= error.kind() == ErrorKind::ConnectionRefused;
                troubles.push(match error.kind() {
                    ErrorKind::ConnectionRefused => {
                        format!("{address} is there, but nobody listens at this port")
                    }
                    ErrorKind::TimedOut => format!("{address} does not answer"),
                    _ => format!("{address}: {error}"),
                });
            }
        }
    }
    let why = match troubles.is_empty() {
        true => format!("no address to call ({})", list(&addresses)),
        false => troubles.join("; "),
    };
    Err(Failed { why, refused })
}

//! What tasks on several hosts lack where MPI's launcher has started them: it names no host where they could meet and
//! gives them no secret. Rank 0 makes both, and MPI hands them on, so that nothing has to be given.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, TcpListener, ToSocketAddrs, UdpSocket};

use serde::{Deserialize, Serialize};
use torchrs_mpi::Mpi;
use torchrs_rendezvous::driver::Endpoint;
use torchrs_rendezvous::token;

use crate::distributed::{Deadline, WorkerEnv, mpi};
use crate::error::{Context, Error, Result};

/// Where a launcher tells a task the name of its host, as others reach it.
const NAMES: [&str; 2] = ["MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "PMIX_HOSTNAME"];
/// An address of nobody (RFC 5737), to ask for the way to other hosts. Nothing is sent.
const ELSEWHERE: &str = "192.0.2.1:9";

/// What rank 0 says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub endpoint: (String, u16),
    /// The secret, and where it came from.
    pub token: Option<(String, String)>,
}

/// What rank 0 of MPI's launcher says to all its tasks, each of which calls this. `None` where MPI has not started
/// them.
///
/// # Errors
/// [`Error::Config`] where MPI cannot be had, or this host has no address that others could reach; the deadline.
pub(super) fn told(env: &WorkerEnv, deadline: &Deadline) -> Result<Option<Told>> {
    let make = || {
        let endpoint = match &env.master_addr {
            Some(host) if env.master_port.is_some() => {
                Endpoint { host: host.clone(), port: env.master_port.unwrap_or_default() }
            }
            Some(host) => Endpoint { host: host.clone(), port: free_port(host)? },
            None => {
                let host = own_address()?.to_string();
                Endpoint { port: free_port(&host)?, host }
            }
        };
        let given = match token::given(None, &endpoint) {
            Ok(Some(given)) => given,
            Ok(None) => made()?,
            Err(Error::Config { name, .. }) if name == token::TOKEN && !is_set(token::TOKEN) => {
                made()?
            }
            Err(error) => return Err(error),
        };
        let told = Told { endpoint: (endpoint.host, endpoint.port), token: Some(given) };
        postcard::to_allocvec(&told)
            .map_err(|why| Error::Store(format!("the meeting point: {why}")))
    };
    let Some(bytes) = mpi::broadcast_from_first(make, deadline)? else { return Ok(None) };
    // An MPI library that the starter does not know takes its process for the only one.
    let world = Mpi::load(*deadline)?.world().map_err(torchrs_mpi::Failure::into_error)?;
    let size = world.size();
    if size != env.world_size {
        let what = format!(
            "is for {size} processes, and {} were started: start them with the mpirun of that library, or with `srun \
             --mpi=pmi2` or `--mpi=pmix`",
            env.world_size
        );
        return Err(Error::config("MPI", what));
    }
    postcard::from_bytes(&bytes).map(Some).map_err(|why| {
        let what = format!("rank 0 has sent what is no meeting point of this release: {why}");
        Error::Store(what)
    })
}

pub(super) fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// A new secret.
fn made() -> Result<(String, String)> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context(|| "read /dev/urandom")?;
    let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(("rank 0, by MPI".to_owned(), text))
}

/// An address of this host that others can reach: of the name by which it was started, else of the way out.
fn own_address() -> Result<IpAddr> {
    let own = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let names = NAMES.iter().filter_map(|name| std::env::var(name).ok()).chain(own);
    // Where a name means the loopback here (Debian's 127.0.1.1), others know it by another address.
    let fits =
        |address: &IpAddr| !address.is_loopback() && TcpListener::bind((*address, 0)).is_ok();
    for name in names {
        let addresses = (name.as_str(), 0).to_socket_addrs();
        let found = addresses.ok().and_then(|mut all| {
            all.find_map(|address| Some(address.ip()).filter(|address| fits(address)))
        });
        if let Some(address) = found {
            return Ok(address);
        }
    }
    let out = UdpSocket::bind("0.0.0.0:0")
        .and_then(|socket| socket.connect(ELSEWHERE).and_then(|()| socket.local_addr()));
    out.ok().map(|address| address.ip()).filter(|address| !address.is_loopback()).ok_or_else(|| {
        let what = "is not set, and the names of this host, where rank 0 is, have no address that other hosts could \
                    reach: set it in the environment of rank 0";
        Error::config("MASTER_ADDR", what)
    })
}

/// A port that is free now.
fn free_port(host: &str) -> Result<u16> {
    let bound = TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| {
        let what = format!(
            "is {host}, and rank 0 cannot listen there: {error}. Rank 0 has to be on that host, or set MASTER_PORT too"
        );
        Error::config("MASTER_ADDR", what)
    })
}

//! Where this host listens: at the port where the job begins, if that is here, and at each address by which others may
//! reach it.

use std::net::{IpAddr, TcpListener};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use torchrs_error::{Error, Result};

use super::own::{MOST, own_addresses};
use super::run::Outlet;
use super::{Config, Event, Input};
use crate::token::TOKEN;

/// Where a host listens.
#[derive(Debug)]
pub(super) struct Place {
    /// That by which it reaches the endpoint first.
    pub listeners: Vec<TcpListener>,
    /// Whether the job begins here.
    pub sits_there: bool,
}

/// Finds where this host listens, and whether that is where the job begins. A name that is not known yet may be
/// known soon.
pub(super) fn listen(
    config: &Config,
    outlet: &Outlet,
    inputs: &Receiver<Input>,
) -> Result<Option<Place>> {
    let began = Instant::now();
    let mut said = false;
    if config.local_addrs.len() > MOST {
        let what = format!("names {} addresses: give {MOST} at most", config.local_addrs.len());
        return Err(Error::config("--local-addr", what));
    }
    loop {
        let may_be_here = config.is_host != Some(false);
        let there = match may_be_here {
            true => config.endpoint.listen(config.is_host, &config.local_addrs)?,
            false => None,
        };
        if let Some(listeners) = there {
            if let Some(why) = config.endpoint.why_elsewhere(&listeners) {
                outlet.give(Event::Say(why));
            }
            return beside(config, listeners, true).map(Some);
        }
        let why = match config.endpoint.own_address() {
            Ok(address) => return on_the_way(config, Some(address)).map(Some),
            // Where it is to listen is known all the same.
            Err(_) if !config.local_addrs.is_empty() => return on_the_way(config, None).map(Some),
            Err(why) => format!("`{}`: {why}", config.endpoint),
        };
        if began.elapsed() >= config.settings.join_timeout {
            return Err(Error::config("--rdzv-endpoint", why));
        }
        if !std::mem::replace(&mut said, true) {
            outlet.give(Event::Say(format!("--rdzv-endpoint {why}; trying again")));
        }
        if let Ok(Input::Close) | Err(RecvTimeoutError::Disconnected) =
            inputs.recv_timeout(Duration::from_secs(1))
        {
            return Ok(None);
        }
    }
}

/// On a host that reaches the endpoint from this address.
fn on_the_way(config: &Config, address: Option<IpAddr>) -> Result<Place> {
    let first = address
        .filter(|address| config.local_addrs.is_empty() || config.local_addrs.contains(address));
    let listener = first.map(|address| bind(config, address)).transpose()?;
    let is_on_loopback = address.is_some_and(|address| address.is_loopback());
    if let Some(named) = config.local_addrs.iter().find(|named| named.is_loopback())
        && !is_on_loopback
    {
        return Err(unreachable(named));
    }
    beside(config, listener.into_iter().collect(), false)
}

/// Listens at this host's other addresses, too, at any port.
fn beside(config: &Config, mut listeners: Vec<TcpListener>, sits_there: bool) -> Result<Place> {
    let mut bound = Vec::new();
    for listener in &listeners {
        let address = listener.local_addr();
        let address = address.map_err(|error| Error::config("--local-addr", error.to_string()))?;
        may_listen(config, address.ip())?;
        bound.push(address.ip());
    }
    let is_on_loopback = !bound.is_empty() && bound.iter().all(IpAddr::is_loopback);
    let named = !config.local_addrs.is_empty();
    let others = match (named, is_on_loopback) {
        (true, _) => config.local_addrs.clone(),
        (false, true) => Vec::new(),
        (false, false) => own_addresses(),
    };
    for address in others {
        if bound.contains(&address) || (!named && bound.len() >= MOST) {
            continue;
        }
        if address.is_loopback() && bound.iter().any(|bound| !bound.is_loopback()) {
            return Err(unreachable(&address));
        }
        match bind(config, address) {
            Ok(listener) => listeners.push(listener),
            Err(error) if named => return Err(error),
            // One that has just gone, or of IPv6 that is not settled yet: there are others.
            Err(_) => continue,
        }
        bound.push(address);
    }
    match listeners.is_empty() {
        true => Err(Error::config(
            "--local-addr",
            "is needed: this host has no address by which others reach it",
        )),
        false => Ok(Place { listeners, sits_there }),
    }
}

fn bind(config: &Config, address: IpAddr) -> Result<TcpListener> {
    may_listen(config, address)?;
    TcpListener::bind((address, 0)).map_err(|error| {
        let what = format!("is {address}, where this host cannot listen: {error}");
        Error::config("--local-addr", what)
    })
}

/// Nothing listens beyond the loopback for whoever comes.
fn may_listen(config: &Config, address: IpAddr) -> Result<()> {
    if address.is_loopback() || !config.token.is_of_loopback() {
        return Ok(());
    }
    let what = format!(
        "is not set, and this host would listen at {address}, which others reach: set it to the same text on all hosts \
         (`openssl rand -hex 16` makes one), or meet at a loopback address only"
    );
    Err(Error::config(TOKEN, what))
}

fn unreachable(address: &IpAddr) -> Error {
    let what = format!(
        "names {address}, where other hosts cannot reach this one: name addresses of its network"
    );
    Error::config("--local-addr", what)
}

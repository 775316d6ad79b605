//! Where this host listens: where the job begins, if that is here, else at the address by which it reaches that.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use torchrs_error::{Error, Result};

use super::run::Outlet;
use super::{Config, Event, Input};

/// Finds where this host listens, and whether that is where the job begins. A name that is not known yet may be
/// known soon.
pub(super) fn listen(
    config: &Config,
    outlet: &Outlet,
    inputs: &Receiver<Input>,
) -> Result<Option<(TcpListener, bool)>> {
    let began = Instant::now();
    let mut said = false;
    loop {
        if config.is_host != Some(false)
            && let Some(listener) = config.endpoint.listen(config.is_host, config.local_addr)?
        {
            if let Some(why) = config.endpoint.why_elsewhere(&listener) {
                outlet.give(Event::Say(why));
            }
            return Ok(Some((listener, true)));
        }
        let why = match own_address(config) {
            Ok(address) => {
                let listener = TcpListener::bind(SocketAddr::new(address, 0)).map_err(|error| {
                    let what = format!("is {address}, where this host cannot listen: {error}");
                    Error::config("--local-addr", what)
                })?;
                return Ok(Some((listener, false)));
            }
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

fn own_address(config: &Config) -> std::result::Result<IpAddr, String> {
    config.local_addr.map_or_else(|| config.endpoint.own_address(), Ok)
}

//! Several places as threads of one process, over loopback.

mod collectives;
mod faults;
mod notes;
mod strangers;

use std::net::SocketAddr;
use std::time::Duration;

use torchrs_job::deadline::Deadline;
use torchrs_links::{Addresses, Call, Failure, Links, Listener, Options};

pub(crate) const KEY: [u8; 32] = [7; 32];
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn listen() -> Listener {
    listen_at("127.0.0.1:0")
}

pub(crate) fn listen_at(at: &str) -> Listener {
    Listener::bind(&[at.parse().unwrap()], &[], KEY).unwrap()
}

/// A call with a limit.
pub(crate) fn call_within(number: u64, fingerprint: &[u8], limit: Duration) -> Call<'_> {
    Call { number, fingerprint, deadline: Deadline::after(limit), watch: &|| None }
}

pub(crate) fn call(number: u64) -> Call<'static> {
    call_within(number, b"test", LIMIT)
}

pub(crate) fn connect(
    listener: &Listener,
    group: &str,
    members: &[Addresses],
    place: usize,
    options: &Options,
    limit: Duration,
) -> Result<Links, Failure> {
    Links::connect(listener, group, members, place, options, &Deadline::after(limit), &|| None)
}

/// What each of `n` places returns.
pub(crate) fn group<T: Send>(
    n: usize,
    options: &Options,
    run: impl Fn(Links) -> T + Sync,
) -> Vec<T> {
    group_at("127.0.0.1:0", n, options, run)
}

pub(crate) fn group_at<T: Send>(
    at: &str,
    n: usize,
    options: &Options,
    run: impl Fn(Links) -> T + Sync,
) -> Vec<T> {
    let listeners: Vec<Listener> = (0..n).map(|_| listen_at(at)).collect();
    let members: Vec<Addresses> = listeners.iter().map(|l| l.addresses().clone()).collect();
    std::thread::scope(|scope| {
        let start = |(place, listener): (usize, Listener)| {
            let (members, run) = (&members, &run);
            scope.spawn(move || {
                let links = connect(&listener, "world", members, place, options, LIMIT);
                run(links.unwrap())
            })
        };
        let threads: Vec<_> = listeners.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The addresses of `real`, as if it listened at `at`.
pub(crate) fn moved(real: &Addresses, at: SocketAddr) -> Addresses {
    let mut bytes = real.encode();
    let end = bytes.len();
    bytes[end - 2..].copy_from_slice(&at.port().to_be_bytes());
    Addresses::decode(&bytes).unwrap()
}

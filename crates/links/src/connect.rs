//! The side of a pair that connects: addresses in order of likelihood, until one leads to the right process.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use torchrs_job::deadline::Deadline;
use torchrs_rendezvous::channel::Channel;

use crate::addresses::Addresses;
use crate::failure::{Failure, Refusal};
use crate::links::Watch;
use crate::proof::{Hello, LIMIT, Proof};

/// For an address of which there are others: on the same network an answer takes a thousandth of it.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(1);
const ONLY_ONE: Duration = Duration::from_secs(3);
/// How often to ask again where the answer is no. A listener under attack may have dropped this connection.
const PASSES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(30);
/// How often a wait looks whether it shall go on.
const LOOK: Duration = Duration::from_millis(20);

/// Connects to place `hello.to`.
pub(crate) fn connect(
    target: &Addresses,
    own: &Addresses,
    key: &[u8; 32],
    hello: &Hello,
    deadline: &Deadline,
    watch: &Watch<'_>,
) -> Result<(TcpStream, Channel), Failure> {
    let order = target.by_likelihood(own);
    let each = if order.len() > 1 { ONE_OF_SEVERAL } else { ONLY_ONE };
    let mut tried: Vec<(SocketAddr, Refusal)> = Vec::new();
    let mut answers = 0;
    loop {
        let before: Vec<_> = std::mem::take(&mut tried);
        for address in &order {
            if let Some(why) = watch() {
                return Err(Failure::Stopped(why));
            }
            if deadline.has_passed() {
                // What came of it in the pass before.
                tried.extend(before.iter().filter(|(other, _)| other == address).cloned());
                continue;
            }
            match attempt(*address, key, hello, each, deadline, watch) {
                Ok(connection) => return Ok(connection),
                Err(refusal) => tried.push((*address, refusal)),
            }
        }
        answers += u32::from(tried.iter().all(|(_, refusal)| refusal.is_answer()));
        if deadline.has_passed() || answers >= PASSES {
            return Err(Failure::Unreachable { place: hello.to as usize, tried });
        }
        let pause = PAUSE * (1 << answers.min(4));
        std::thread::sleep(pause.min(deadline.remaining()));
    }
}

fn attempt(
    address: SocketAddr,
    key: &[u8; 32],
    hello: &Hello,
    each: Duration,
    deadline: &Deadline,
    watch: &Watch<'_>,
) -> Result<(TcpStream, Channel), Refusal> {
    let limit = each.min(deadline.remaining()).max(Duration::from_millis(1));
    let failed = |error: std::io::Error| Refusal::of(&error, limit.as_secs_f64());
    let socket = TcpStream::connect_timeout(&address, limit).map_err(failed)?;
    // Only on one host: a free port that is asked for itself can be given to the asker.
    if socket.local_addr().map_err(failed)? == address {
        return Err(Refusal::Refused);
    }
    socket.set_nonblocking(true).map_err(failed)?;
    socket.set_nodelay(true).map_err(failed)?;
    let mut proof = Proof::of_caller(socket, key, hello);
    let (start, limit) = (Instant::now(), LIMIT.min(deadline.remaining()));
    loop {
        if let Some(answer) = proof.go_on()? {
            Proof::understand(&answer)?;
            return Ok((proof.socket, proof.channel));
        }
        if start.elapsed() >= limit || watch().is_some() {
            return Err(Refusal::Silent(start.elapsed().as_secs_f64()));
        }
        let mut entry = [PollFd::new(proof.socket.as_fd(), PollFlags::POLLIN)];
        let look = LOOK.min(limit.saturating_sub(start.elapsed()));
        // An error shows in the next read.
        let _ = poll(&mut entry, PollTimeout::try_from(look).unwrap_or(PollTimeout::MAX));
    }
}

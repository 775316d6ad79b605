//! The side of a pair that connects: addresses in order of likelihood, until one leads to the right process.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use torchrs_job::deadline::Deadline;
use torchrs_rendezvous::calling::{Call, Reached, Tried, call};
use torchrs_rendezvous::channel::Channel;

use crate::addresses::Addresses;
use crate::failure::Failure;
use crate::links::Watch;
use crate::proof::{Answer, Hello, LIMIT};

/// For an address of which there are others: on the same network an answer takes a thousandth of it.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(1);
const ONLY_ONE: Duration = Duration::from_secs(3);
/// How often to ask again where the answer is no. A listener under attack may have dropped this connection.
const PASSES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(30);

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
    let words = hello.encode();
    let mut tried = Tried::new();
    let mut answers = 0;
    loop {
        let pass = Call {
            key,
            hello: Some(&words),
            connect_within: if order.len() > 1 { ONE_OF_SEVERAL } else { ONLY_ONE },
            prove_within: LIMIT,
            limit: deadline.remaining(),
            stops: &|| watch().is_some(),
        };
        match call(&order, &pass, Answer::understand) {
            Ok(Reached { socket, channel, .. }) => return Ok((socket, channel)),
            Err(now) => tried = with_those_before(&order, now, tried),
        }
        if let Some(why) = watch() {
            return Err(Failure::Stopped(why));
        }
        answers += u32::from(tried.iter().all(|(_, refusal)| refusal.is_answer()));
        if deadline.has_passed() || answers >= PASSES {
            return Err(Failure::Unreachable { place: hello.to as usize, tried });
        }
        let pause = PAUSE * (1 << answers.min(4));
        std::thread::sleep(pause.min(deadline.remaining()));
    }
}

/// What came of each address last: in a pass that the deadline cut short, or in the one before.
fn with_those_before(order: &[SocketAddr], now: Tried, before: Tried) -> Tried {
    let last = |address: &SocketAddr| {
        now.iter().chain(&before).find(|(other, _)| other == address).cloned()
    };
    order.iter().filter_map(last).collect()
}

//! Data between hosts is encrypted where all of them say so, and only then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};
use std::os::fd::AsRawFd;
use torchrs::distributed::ReduceOp;
use torchrs::multiprocessing::Channel;
use torchrs::{Error, Result, Tensor};

use super::{LONG, join_job, message, start};

/// What a reader of the network's packets looks for.
const SIGN: [u8; 32] = *b"torchrs's plain text on the wire";

/// Sets this child's variable before anything reads it.
fn say(encrypt: &str) {
    // SAFETY: this child has no other thread yet that reads the environment.
    unsafe { std::env::set_var("TORCHRS_HOSTS_ENCRYPT", encrypt) };
}

/// A small all-reduce and a large one; the parts of each are the sign, over and over.
fn reduces(encrypt: String, parent: Channel<(), ()>) -> Result<()> {
    say(&encrypt);
    let group = join_job()?;
    for len in [4 * SIGN.len(), 300_000 * SIGN.len()] {
        let sign: Vec<u8> = SIGN.iter().copied().cycle().take(len).collect();
        let t = Tensor::from_slice(&sign, [len]);
        group.all_reduce(&t, ReduceOp::Max)?;
        assert!(t.to_vec::<u8>() == sign, "{len} elements");
    }
    parent.send(&())
}

/// Whether the sign is seen on loopback while a job reduces it; `None` where packets cannot be read.
fn is_seen(encrypt: &str) -> Option<bool> {
    let all = SockProtocol::EthAll;
    let reader = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_NONBLOCK, all).ok()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let reads = std::thread::spawn(move || {
        let mut packet = vec![0; 128 << 10];
        let mut is_seen = false;
        while !stopped.load(SeqCst) {
            match recv(reader.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(n) => is_seen |= packet[..n].windows(SIGN.len()).any(|bytes| bytes == SIGN),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        is_seen
    });
    let (_hosts, ranks) = start(&[1, 1], 60.0, reduces, &encrypt.to_owned());
    for (rank, channel) in &ranks {
        channel.recv_timeout(LONG).unwrap();
        rank.join_timeout(LONG).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    stop.store(true, SeqCst);
    Some(reads.join().unwrap())
}

#[test]
fn data_is_encrypted_where_all_hosts_say_so() {
    let Some(plain) = is_seen("0") else {
        println!("skipped: to read the network's packets takes root");
        return;
    };
    assert!(plain, "without encryption the packets show what is sent");
    assert_eq!(is_seen("1"), Some(false));
}

/// Only the first host encrypts.
fn differ(_: (), _: Channel<(), ()>) -> Result<()> {
    let is_first = std::env::var("GROUP_RANK").as_deref() == Ok("0");
    say(if is_first { "1" } else { "0" });
    join_job().map(drop)
}

/// Sets a word that is none.
fn misspells(_: (), _: Channel<(), ()>) -> Result<()> {
    say("yes");
    join_job().map(drop)
}

#[test]
fn hosts_that_differ_are_told_so() {
    let (_hosts, ranks) = start(&[1, 2], 60.0, differ, &());
    for (rank, _) in &ranks {
        let text = message(rank.join_timeout(LONG));
        let both = ["is 1 on rank 0 (host ", "0 or not set on rank 1 (host "];
        assert!(both.iter().all(|name| text.contains(name)), "{text}");
    }
    let (_hosts, ranks) = start(&[1, 1], 60.0, misspells, &());
    for (rank, _) in &ranks {
        let ended = rank.join_timeout(LONG);
        assert!(matches!(ended, Err(Error::Child { .. })));
        let text = message(ended);
        assert!(
            text.contains("TORCHRS_HOSTS_ENCRYPT: is `yes`: must be `0`, `1` or unset"),
            "{text}"
        );
    }
}

//! Client and server together, over real sockets.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use proptest::prelude::*;

use super::{Store, StoreServer, packet};
use crate::error::Error;

const SOON: Duration = Duration::from_secs(20);

fn client(server: &StoreServer) -> Store {
    Store::connect_fd(server.connect().unwrap()).unwrap()
}

#[test]
fn values_of_all_sizes_pass_between_clients() {
    let server = StoreServer::start().unwrap();
    let (a, b) = (client(&server), client(&server));
    for len in [0, 1, 48 << 10, (48 << 10) + 1, 3 << 20] {
        let value: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        a.set("value", &value).unwrap();
        assert!(b.get("value", SOON).unwrap() == value, "{len} bytes");
    }
    assert_eq!(b.try_get("none").unwrap(), None);
    assert_eq!((a.add("n", 2).unwrap(), b.add("n", 3).unwrap()), (2, 5));
    assert_eq!(a.compare_set("n", Some(b"5"), b"6").unwrap(), Some(b"6".to_vec()));
    assert_eq!((b.delete("n").unwrap(), b.delete("n").unwrap()), (true, false));
}

#[test]
fn a_wait_in_one_thread_does_not_hold_up_another() {
    let server = StoreServer::start().unwrap();
    let store = client(&server);
    let waiting = std::thread::spawn({
        let store = store.clone();
        move || store.get("late", SOON)
    });
    store.set("other", b"").unwrap();
    store.set("late", b"x").unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), b"x");
}

#[test]
fn a_deadline_ends_a_wait_and_the_connection_stays_good() {
    let server = StoreServer::start().unwrap();
    let store = client(&server);
    let error = store.wait(&["a", "b"], Duration::from_millis(30)).unwrap_err();
    assert_eq!(error.to_string(), "timed out after 0.0 s: store: wait(`a, b`)");
    store.set("a", b"").unwrap();
    store.set("b", b"").unwrap();
    store.wait(&["a", "b"], SOON).unwrap();
}

#[test]
fn open_files_travel_to_everyone_who_asks() {
    let server = StoreServer::start().unwrap();
    let (a, b) = (client(&server), client(&server));
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"through the store").unwrap();
    a.set_fds("file", &[file.as_fd()]).unwrap();
    drop(file);
    for _ in 0..2 {
        let fds: Vec<OwnedFd> = b.get_fds("file", SOON).unwrap();
        let mut copy = std::fs::File::from(fds.into_iter().next().unwrap());
        let mut text = String::new();
        copy.seek(SeekFrom::Start(0)).unwrap();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through the store");
    }
    let refused = b.get("file", SOON).unwrap_err();
    assert!(refused.to_string().contains("holds file descriptors"), "{refused}");
}

#[test]
fn a_server_that_goes_away_ends_every_wait_with_a_store_error() {
    let server = StoreServer::start().unwrap();
    let store = client(&server);
    let waiting = std::thread::spawn({
        let store = store.clone();
        move || store.get("never", Duration::from_secs(600))
    });
    store.set("sync", b"").unwrap();
    let start = Instant::now();
    drop(server);
    let error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(&error, Error::Store(why) if why.contains("store is gone")), "{error}");
    assert!(matches!(store.set("k", b""), Err(Error::Store(_))));
    assert!(start.elapsed() < SOON);
}

#[test]
fn a_name_is_served_once_and_found_by_others() {
    let name = format!("torchrs-test-{}", std::process::id());
    let error = Store::connect_name(&name, Duration::from_millis(20)).unwrap_err();
    assert!(error.to_string().contains(&format!("no store at `@{name}`")), "{error}");
    let late = std::thread::spawn({
        let name = name.clone();
        move || Store::connect_name(&name, SOON).and_then(|store| store.get("k", SOON))
    });
    let server = StoreServer::listen(&name).unwrap();
    client(&server).set("k", b"found").unwrap();
    assert_eq!(late.join().unwrap().unwrap(), b"found");
    let again = StoreServer::listen(&name).unwrap_err();
    assert!(again.to_string().contains("served by another process already"), "{again}");
}

#[test]
fn many_clients_at_once() {
    let server = StoreServer::start().unwrap();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let store = client(&server);
            std::thread::spawn(move || {
                for _ in 0..50 {
                    store.add("sum", 1).unwrap();
                }
                store.add("done", 1).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let store = client(&server);
    assert_eq!(store.get("sum", SOON).unwrap(), b"400");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever a stranger sends, the others are served.
    #[test]
    fn garbage_harms_only_its_own_connection(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..5)
    ) {
        let server = StoreServer::start().unwrap();
        let (stranger, store) = (server.connect().unwrap(), client(&server));
        for packet in packets.iter().filter(|p| !p.is_empty()) {
            // Fails once the server has had enough, which is what it should do.
            let _ = packet::send(stranger.as_fd(), packet, &[]);
        }
        store.set("k", b"v").unwrap();
        prop_assert_eq!(store.get("k", SOON).unwrap(), b"v");
    }
}

#[test]
fn a_stranger_is_cut_off() {
    let server = StoreServer::start().unwrap();
    for packet in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 300], &[0, 0xff, 0xff]] {
        let stranger = server.connect().unwrap();
        setsockopt(&stranger, sockopt::ReceiveTimeout, &TimeVal::seconds(20)).unwrap();
        packet::send(stranger.as_fd(), packet, &[]).unwrap();
        let mut buffer = packet::buffer();
        let end = packet::receive(stranger.as_fd(), &mut buffer, MsgFlags::empty());
        assert!(matches!(end, Ok(None) | Err(Errno::ECONNRESET)), "{packet:?}: {end:?}");
    }
}

//! Who connects and does not belong there harms only itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use torchrs_job::deadline::Deadline;
use torchrs_links::{Addresses, Encryption, Failure, Links, Listener, Options, Refusal};

use crate::{LIMIT, call, connect, listen, moved};

/// Two places join, and a call works: how long that took.
fn pair_works(listeners: &[Listener; 2], name: &str) -> Duration {
    let start = Instant::now();
    let members: Vec<Addresses> = listeners.iter().map(|l| l.addresses().clone()).collect();
    std::thread::scope(|scope| {
        for place in 0..2 {
            let members = &members;
            scope.spawn(move || {
                let options = Options::default();
                let links = connect(&listeners[place], name, members, place, &options, LIMIT);
                links.unwrap().barrier(&call(1)).unwrap();
            });
        }
    });
    start.elapsed()
}

fn at(listener: &Listener) -> SocketAddr {
    listener.addresses().list()[0]
}

/// Whether the other side has closed it by then; what it sent is skipped.
fn is_closed_within(stream: &mut TcpStream, limit: Duration) -> bool {
    let deadline = Deadline::after(limit);
    while !deadline.has_passed() {
        stream.set_read_timeout(Some(deadline.remaining().max(Duration::from_millis(1)))).unwrap();
        match stream.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                return false;
            }
            Err(_) => return true,
        }
    }
    false
}

#[test]
fn garbage_and_http_are_dropped_at_once() {
    let listeners = [listen(), listen()];
    let zeros = [0; 10_000];
    let words: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\0",
        &zeros,
        b"torchrs\0\0\x09",
        b"\xff",
    ];
    for word in words {
        let mut stream = TcpStream::connect(at(&listeners[0])).unwrap();
        // It may be closed before all was written.
        let _ = stream.write_all(word);
        assert!(is_closed_within(&mut stream, Duration::from_secs(1)), "{word:?}");
    }
    // The right greeting, then nonsense in the place of the proof.
    let mut stream = TcpStream::connect(at(&listeners[0])).unwrap();
    let mut greeting = [0; 10];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&greeting).unwrap();
    stream.write_all(&[&[0, 48][..], &[9; 48]].concat()).unwrap();
    assert!(is_closed_within(&mut stream, Duration::from_secs(1)));
    pair_works(&listeners, "after garbage");
}

#[test]
fn a_thousand_silent_connections_keep_nobody_out() {
    let listeners = [listen(), listen()];
    let mut silent: Vec<_> =
        (0..1000).map(|_| TcpStream::connect(at(&listeners[0])).unwrap()).collect();
    let took = pair_works(&listeners, "beside the silent");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let brief = Duration::from_millis(1);
    let open = silent.iter_mut().map(|stream| !is_closed_within(stream, brief)).filter(|o| *o);
    let open = open.count();
    assert!(open <= 128, "{open} connections wait unproved");
    // After five seconds none is left, a slow one that sends its greeting byte by byte neither.
    let mut slow = TcpStream::connect(at(&listeners[0])).unwrap();
    let start = Instant::now();
    for byte in b"torchrs\0\0" {
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(700));
    }
    assert!(is_closed_within(&mut slow, Duration::from_secs(1)), "{:?}", start.elapsed());
    assert!(silent.iter_mut().all(|stream| is_closed_within(stream, brief)));
    pair_works(&listeners, "after them");
}

#[test]
fn another_key_is_refused_on_both_sides() {
    let own = listen();
    let other = Listener::bind(&["127.0.0.1:0".parse().unwrap()], &[], [8; 32]).unwrap();
    let members = [own.addresses().clone(), other.addresses().clone()];
    let (start, limit) = (Instant::now(), Duration::from_secs(4));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| connect(&own, "g", &members, 0, &Options::default(), limit));
        let Err(failure) = connect(&other, "g", &members, 1, &Options::default(), LIMIT) else {
            panic!("connected with another key")
        };
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        let Failure::Unreachable { place: 0, tried } = &failure else { panic!("{failure}") };
        assert_eq!(tried[..], [(at(&own), Refusal::Closed)]);
        assert!(failure.to_string().contains("token"), "{failure}");
        let Err(failure) = waits.join().unwrap() else { panic!("connected with another key") };
        assert!(
            matches!(&failure, Failure::TimedOut { waiting, .. } if waiting == &[1]),
            "{failure}"
        );
    });
}

/// What was recorded between two places is of no use to whoever sends it again.
#[test]
fn a_replay_is_refused() {
    let listeners = [listen(), listen()];
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let real = listeners[0].addresses().clone();
    let members = [moved(&real, proxy.local_addr().unwrap()), listeners[1].addresses().clone()];
    let target = at(&listeners[0]);
    let recorded = std::thread::scope(|scope| {
        let record = scope.spawn(move || {
            let (mut from, _) = proxy.accept().unwrap();
            let mut to = TcpStream::connect(target).unwrap();
            let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            let back = std::thread::spawn(move || {
                // Until either side is gone.
                let _ = std::io::copy(&mut back_from, &mut back_to);
                let _ = back_to.shutdown(std::net::Shutdown::Write);
            });
            let mut recorded = Vec::new();
            let mut room = [0; 1024];
            while let Ok(count @ 1..) = from.read(&mut room) {
                recorded.extend_from_slice(&room[..count]);
                to.write_all(&room[..count]).unwrap();
            }
            let _ = to.shutdown(std::net::Shutdown::Write);
            back.join().unwrap();
            recorded
        });
        for place in 0..2 {
            let (members, listeners) = (&members, &listeners);
            scope.spawn(move || {
                let options = Options::default();
                let links = connect(&listeners[place], "g", members, place, &options, LIMIT);
                links.unwrap().barrier(&call(1)).unwrap();
            });
        }
        record.join().unwrap()
    });
    assert!(recorded.len() > 200, "{} bytes", recorded.len());
    let mut replay = TcpStream::connect(target).unwrap();
    let _ = replay.write_all(&recorded);
    assert!(is_closed_within(&mut replay, Duration::from_secs(1)));
    // Nobody waits to be taken for place 1.
    let limit = Duration::from_millis(100);
    let Err(failure) = connect(&listeners[0], "g", &members, 0, &Options::default(), limit) else {
        panic!("connected with a replay")
    };
    assert!(matches!(failure, Failure::TimedOut { .. }), "{failure}");
}

#[test]
fn a_later_process_at_the_same_address_is_not_taken_for_the_one_before() {
    let (own, other, older) = (listen(), listen(), listen());
    let members = [moved(older.addresses(), at(&other)), own.addresses().clone()];
    let Err(failure) = connect(&own, "g", &members, 1, &Options::default(), LIMIT) else {
        panic!("connected with another process")
    };
    let expected =
        Failure::Unreachable { place: 0, tried: vec![(at(&other), Refusal::WrongProcess)] };
    assert_eq!(failure, expected);
}

#[test]
fn each_address_is_named_with_what_came_of_it() {
    let own = listen();
    let closed = { TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    std::thread::spawn({
        let web = web.try_clone().unwrap();
        move || {
            for stream in web.incoming().take(20) {
                let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
        }
    });
    let mut bytes = moved(own.addresses(), closed).encode();
    let port = web.local_addr().unwrap().port().to_be_bytes();
    bytes[17] = 2;
    bytes.extend_from_slice(&[4, 127, 0, 0, 1, port[0], port[1]]);
    let members = [Addresses::decode(&bytes).unwrap(), own.addresses().clone()];
    let Err(failure) = connect(&own, "g", &members, 1, &Options::default(), LIMIT) else {
        panic!("connected with nobody")
    };
    let Failure::Unreachable { place: 0, tried } = &failure else { panic!("{failure}") };
    assert_eq!(tried[0], (closed, Refusal::Refused));
    assert_eq!(tried[1].0, web.local_addr().unwrap());
    assert!(matches!(tried[1].1, Refusal::Foreign(_)), "{failure}");
    // A full queue takes no more: the system does not answer.
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    nix::sys::socket::listen(&full, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let full = full.local_addr().map(|at| (full, at)).unwrap();
    let brief = Duration::from_millis(50);
    let _queue: Vec<_> = (0..3).map(|_| TcpStream::connect_timeout(&full.1, brief)).collect();
    let members = [moved(own.addresses(), full.1), own.addresses().clone()];
    let limit = Duration::from_millis(300);
    let start = Instant::now();
    let Err(failure) = connect(&own, "g", &members, 1, &Options::default(), limit) else {
        panic!("connected with nobody")
    };
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    let Failure::Unreachable { place: 0, tried } = &failure else { panic!("{failure}") };
    assert!(matches!(tried[0].1, Refusal::TimedOut(_)), "{failure}");
}

/// The first address leads nowhere; the second does.
#[test]
fn another_address_is_tried() {
    let listeners = [listen(), listen()];
    let closed = { TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let real = listeners[0].addresses();
    let mut bytes = moved(real, closed).encode();
    bytes[17] = 2;
    bytes.extend_from_slice(&real.encode()[18..]);
    let members = [Addresses::decode(&bytes).unwrap(), listeners[1].addresses().clone()];
    std::thread::scope(|scope| {
        for place in 0..2 {
            let (members, listeners) = (&members, &listeners);
            scope.spawn(move || {
                let options = Options::default();
                let links = connect(&listeners[place], "g", members, place, &options, LIMIT);
                links.unwrap().barrier(&call(1)).unwrap();
            });
        }
    });
}

#[test]
fn other_options_are_named() {
    let listeners = [listen(), listen()];
    let members: Vec<Addresses> = listeners.iter().map(|l| l.addresses().clone()).collect();
    let failures: Vec<Option<Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|place| {
                let (members, listeners) = (&members, &listeners);
                scope.spawn(move || {
                    let mut options = Options::default();
                    options.encryption = [Encryption::Off, Encryption::On][place];
                    connect(&listeners[place], "g", members, place, &options, LIMIT).err()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let failure = failures[0].clone().unwrap();
    let text = failure.to_string();
    assert!(
        matches!(failure, Failure::Options(_)) && text.contains("encryption on there"),
        "{text}"
    );
}

/// One listener serves all groups of its process, whichever comes first.
#[test]
fn groups_share_a_listener() {
    let listeners = [listen(), listen()];
    let members: Vec<Addresses> = listeners.iter().map(|l| l.addresses().clone()).collect();
    std::thread::scope(|scope| {
        for place in 0..2 {
            for i in 0..4 {
                // In opposite orders.
                let name = format!("group {}", if place == 0 { i } else { 3 - i });
                let (members, listeners) = (&members, &listeners);
                scope.spawn(move || {
                    let options = Options::default();
                    let links = connect(&listeners[place], &name, members, place, &options, LIMIT);
                    let mut data = name.clone().into_bytes();
                    let mut links: Links = links.unwrap();
                    links.broadcast(&call(1), &mut data, 0).unwrap();
                    assert_eq!(data, name.as_bytes());
                });
            }
        }
    });
}

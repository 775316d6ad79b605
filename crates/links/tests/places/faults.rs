//! What the others see when a place dies, leaves, stops, or calls something else: which place, and soon.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use torchrs_job::deadline::Deadline;
use torchrs_links::{Addresses, Call, Encryption, Failure, Options};

use crate::{LIMIT, call, call_within, connect, group, listen};

fn nothing(_: &mut [u8], _: &[u8]) {}

const SOON: Duration = Duration::from_secs(1);

fn ring() -> Options {
    let mut options = Options::default();
    options.direct = 0;
    options
}

#[test]
fn another_call_is_found_on_all_places() {
    // Place 1 of three calls something else: all blame it, or it blames one of the others.
    for len in [0, 100, 5_000_000] {
        let failures = group(3, &ring(), |mut links| {
            let place = links.place();
            let mut data = vec![0; len];
            links.barrier(&call(1)).unwrap();
            let failure = if place == 1 {
                links.broadcast(&call_within(2, b"broadcast", LIMIT), &mut data, 2).unwrap_err()
            } else {
                links
                    .all_reduce(&call_within(2, b"all_reduce", LIMIT), &mut data, &nothing)
                    .unwrap_err()
            };
            let again = links.barrier(&call(3)).unwrap_err();
            assert_eq!(again, failure, "broken links stay so");
            failure
        });
        for (place, failure) in failures.iter().enumerate() {
            let Failure::Mismatch { place: other, theirs, .. } = failure else {
                panic!("place {place}, {len} bytes: {failure}")
            };
            assert_ne!(*other, place);
            if place == 1 {
                assert_eq!(theirs, b"all_reduce", "place {place}, {len} bytes");
            } else {
                assert_eq!(
                    (*other, &theirs[..]),
                    (1, &b"broadcast"[..]),
                    "place {place}, {len} bytes"
                );
            }
        }
    }
}

#[test]
fn another_length_or_number_is_found() {
    let failures = group(2, &Options::default(), |mut links| {
        let mut data = vec![0; 100 + links.place()];
        links.all_reduce(&call(1), &mut data, &nothing).unwrap_err()
    });
    for (place, failure) in failures.iter().enumerate() {
        let length = 100 + 1 - place as u64;
        let is_right = matches!(failure, Failure::Mismatch { place: p, length: l, .. }
            if *p == 1 - place && (*l == length || *l == 0));
        assert!(is_right, "{failure}");
    }
    let failures = group(2, &Options::default(), |mut links| {
        let number = 7 + links.place() as u64;
        links.barrier(&call(number)).unwrap_err()
    });
    for (place, failure) in failures.iter().enumerate() {
        let theirs = 8 - place as u64;
        assert!(
            matches!(failure, Failure::Mismatch { number, .. } if *number == theirs),
            "{failure}"
        );
    }
}

#[test]
fn a_place_that_does_not_come_is_named_after_the_deadline() {
    for encryption in [Encryption::Off, Encryption::On] {
        let mut options = ring();
        options.encryption = encryption;
        let barrier = Barrier::new(3);
        let failures = group(3, &options, |mut links| {
            let place = links.place();
            // More than sockets hold: place 2 neither reads nor writes.
            let mut data = vec![0; 100 << 20];
            let limit = Duration::from_millis(400);
            let start = Instant::now();
            let failure = (place != 2).then(|| {
                let call = call_within(1, b"x", limit);
                links.all_reduce(&call, &mut data, &nothing).unwrap_err()
            });
            let took = start.elapsed();
            assert!(took < limit + SOON, "{took:?}");
            barrier.wait();
            failure
        });
        // Place 0 waits for what 2 does not send, place 1 for it to read. One of them gives up first.
        let named = |f: &Option<Failure>| match f {
            Some(Failure::TimedOut { waiting, .. }) => waiting.contains(&2),
            _ => false,
        };
        assert!(failures.iter().any(named), "{failures:?}");
        for failure in failures.iter().flatten() {
            let of_other =
                matches!(failure, Failure::PeerGone { how, .. } if how.contains("timed out"));
            assert!(of_other || named(&Some(failure.clone())), "{failure}");
        }
    }
}

#[test]
fn a_watch_stops_a_call_and_the_others_hear_why() {
    let failures = group(3, &ring(), |mut links| {
        let place = links.place();
        let start = Instant::now();
        let watch =
            || (start.elapsed() > Duration::from_millis(100)).then(|| "rank 9 died".to_owned());
        let silent = || None;
        let deadline = Deadline::after(LIMIT);
        // Place 0 waits for place 2, which waits for place 1, which is told to stop.
        let watch: &torchrs_links::Watch<'_> = if place == 1 { &watch } else { &silent };
        let call = Call { number: 1, fingerprint: b"x", deadline, watch };
        let mut data = vec![0; 10];
        links.receive(&call, [2, 2, 1][place], &mut data).unwrap_err()
    });
    assert_eq!(failures[1], Failure::Stopped("rank 9 died".into()));
    for failure in [&failures[0], &failures[2]] {
        let text = failure.to_string();
        let is_right = matches!(failure, Failure::PeerGone { place: 1, .. });
        assert!(is_right && text.contains("rank 9 died"), "{text}");
    }
}

#[test]
fn a_place_that_leaves_is_named_and_what_it_sent_arrives() {
    let failures = group(2, &Options::default(), |mut links| {
        if links.place() == 1 {
            links.send(&call(1), 0, &[5; 1000]).unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
        let mut data = [0; 1000];
        links.receive(&call(1), 1, &mut data).unwrap();
        assert_eq!(data, [5; 1000]);
        // It does not send any more, and does not read: both show.
        Some(links.send(&call(2), 1, &vec![0; 50 << 20]).unwrap_err())
    });
    let failure = failures[0].clone().unwrap();
    assert!(matches!(failure, Failure::PeerGone { place: 1, .. }), "{failure}");
    assert!(failure.to_string().contains("left the group"), "{failure}");
}

/// A panic while a call runs ends the place's connections.
#[test]
fn links_that_are_dropped_in_a_group_end_the_others_calls() {
    let failures = group(4, &ring(), |mut links| {
        if links.place() == 3 {
            std::thread::sleep(Duration::from_millis(50));
            return None;
        }
        let mut data = vec![0; 1 << 20];
        let start = Instant::now();
        let failure = links.all_reduce(&call(1), &mut data, &nothing).unwrap_err();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        Some(failure)
    });
    for failure in failures.into_iter().flatten() {
        assert!(matches!(failure, Failure::PeerGone { place: 3, .. }), "{failure}");
    }
}

#[test]
fn a_function_that_panics_breaks_the_links() {
    let failures = group(2, &ring(), |mut links| {
        let place = links.place();
        let mut data = vec![0; 1 << 20];
        let panics = |_: &mut [u8], _: &[u8]| assert!(place != 1, "no sum today");
        let mut reduce = || links.all_reduce(&call(1), &mut data, &panics);
        let Ok(ended) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut reduce)) else {
            return links.barrier(&call(2)).unwrap_err();
        };
        ended.unwrap_err()
    });
    assert!(matches!(failures[0], Failure::PeerGone { place: 1, .. }), "{}", failures[0]);
    assert!(failures[1].to_string().contains("panicked"), "{}", failures[1]);
}

const FOLDER: &str = "TORCHRS_LINKS_TEST_FOLDER";

/// The process that [`a_killed_process_is_named_within_the_second`] kills.
#[test]
#[ignore = "the other test starts it"]
fn place_three_of_four() {
    let folder =
        std::path::PathBuf::from(std::env::var_os(FOLDER).expect("started by the other test"));
    let listener = listen();
    std::fs::write(folder.join("new"), listener.addresses().encode()).unwrap();
    std::fs::rename(folder.join("new"), folder.join("3")).unwrap();
    let members = read_members(&folder, 4);
    let mut links = connect(&listener, "killed", &members, 3, &ring(), LIMIT).unwrap();
    let mut data = vec![0; 8 << 20];
    for number in 0.. {
        links.all_reduce(&call(number), &mut data, &nothing).unwrap();
    }
}

fn read_members(folder: &std::path::Path, n: usize) -> Vec<Addresses> {
    let deadline = Deadline::after(LIMIT);
    let read = |place: usize| loop {
        if let Ok(bytes) = std::fs::read(folder.join(place.to_string())) {
            break Addresses::decode(&bytes).unwrap();
        }
        assert!(!deadline.has_passed(), "place {place} has not come");
        std::thread::sleep(Duration::from_millis(5));
    };
    (0..n).map(read).collect()
}

#[test]
fn a_killed_process_is_named_within_the_second() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "faults::place_three_of_four", "--ignored"]);
    let mut child = child.env(FOLDER, folder.path()).spawn().unwrap();
    let listeners: Vec<_> = (0..3).map(|_| listen()).collect();
    for (place, listener) in listeners.iter().enumerate() {
        let name = folder.path().join(format!("{place}.new"));
        std::fs::write(&name, listener.addresses().encode()).unwrap();
        std::fs::rename(&name, folder.path().join(place.to_string())).unwrap();
    }
    let members = read_members(folder.path(), 4);
    let killed = std::sync::Mutex::new(None);
    let failures: Vec<(Failure, Instant)> = std::thread::scope(|scope| {
        let start = |(place, listener)| {
            let members = &members;
            scope.spawn(move || {
                let mut links =
                    connect(listener, "killed", members, place, &ring(), LIMIT).unwrap();
                let mut data = vec![0; 8 << 20];
                let mut number = 0;
                loop {
                    if let Err(failure) = links.all_reduce(&call(number), &mut data, &nothing) {
                        assert!(number > 0, "it died before anything was reduced: {failure}");
                        return (failure, Instant::now());
                    }
                    number += 1;
                }
            })
        };
        let threads: Vec<_> = listeners.iter().enumerate().map(start).collect();
        std::thread::sleep(Duration::from_millis(1500));
        // Frozen for longer than anything here waits: nothing is lost.
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        std::thread::sleep(Duration::from_millis(700));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(!threads.iter().any(|thread| thread.is_finished()));
        *killed.lock().unwrap() = Some(Instant::now());
        child.kill().unwrap();
        child.wait().unwrap();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let killed = killed.into_inner().unwrap().unwrap();
    for (failure, at) in failures {
        assert!(matches!(failure, Failure::PeerGone { place: 3, .. }), "{failure}");
        assert!(at.duration_since(killed) < SOON, "{failure} after {:?}", at - killed);
    }
}

//! Who calls a job's launchers and does not belong to it: without the token, with another one, with what was recorded
//! of somebody who has it, with something else altogether, and in great numbers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::hosts::{port, until};
use crate::job::{Job, run, sh, start};

const TOKEN: &str = "a-token-for-the-tests";

/// A launcher of the job, which calls at `port`.
fn launcher(port: u16, conf: &str, script: &str) -> Command {
    let mut command = sh(
        &format!(
            "--nnodes 2:3 --rdzv-endpoint 127.0.0.1:{port} --rdzv-id test --scale-up never --rdzv-conf \
             last_call_timeout=0.1,{conf}"
        ),
        script,
    );
    command.env("TORCHRS_JOB_TOKEN", TOKEN);
    command
}

/// Listens, passes on what comes to `port`, and keeps what the callers have sent.
fn tap(port: u16) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let keep = kept.clone();
    std::thread::spawn(move || {
        for caller in listener.incoming().flatten() {
            let Ok(called) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            let keep = keep.clone();
            for (mut from, mut to, is_caller) in [
                (caller.try_clone().unwrap(), called.try_clone().unwrap(), true),
                (called, caller, false),
            ] {
                let keep = keep.clone();
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        if is_caller {
                            keep.lock().unwrap().extend_from_slice(&buffer[..count]);
                        }
                        if to.write_all(&buffer[..count]).is_err() {
                            return;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (own, kept)
}

/// What a launcher answers to these bytes, until it hangs up.
fn answer(port: u16, bytes: &[u8]) -> usize {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // Perhaps cut off by a reset.
    let _ = stream.write_all(bytes);
    let (mut buffer, mut total) = ([0; 4096], 0);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return total,
            Ok(count) => total += count,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("it does not hang up: {error}"),
        }
    }
}

#[test]
fn strangers_are_refused_and_the_job_is_unharmed() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let (port, script) = (port(), until(&end));
    let first = start(launcher(port, "", &script));
    first.stderr.wait_for("of at least", 1);
    let (tapped, kept) = tap(port);
    let second = start(launcher(tapped, "is_host=0", &script));
    let jobs = [first, second];
    jobs.iter().for_each(|job| job.stdout.wait_for(": start 0 2", 1));

    // Everything that the second launcher has sent so far, once more: the keys of that connection are of no use.
    let recorded = kept.lock().unwrap().clone();
    assert!(recorded.len() > 200, "{} bytes", recorded.len());
    assert!(
        !recorded.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes()),
        "the token was sent"
    );
    let at = Instant::now();
    // A greeting and half a handshake come back, before anything proves false.
    let answered = answer(port, &recorded);
    assert!(answered < 200, "{answered} bytes");
    println!("{} recorded bytes were refused after {:.1?}", recorded.len(), at.elapsed());

    for bytes in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0x5a; 100_000], &[0; 16]] {
        assert!(answer(port, bytes) < 200);
    }
    for token in [None, Some("another-token-of-some-length")] {
        let mut stranger = launcher(port, "is_host=0,join_timeout=1", "echo never");
        stranger.env_remove("TORCHRS_JOB_TOKEN");
        token.map(|token| stranger.env("TORCHRS_JOB_TOKEN", token));
        let done = run(stranger);
        assert_eq!((done.code, done.stdout.len()), (1, 0));
        done.says("TORCHRS_JOB_TOKEN").says(&format!("127.0.0.1:{port}"));
    }
    let many: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    // Whoever has the token is heard in spite of them.
    let third = start(launcher(port, "is_host=0", &script));
    third.stderr.wait_for("waits as a spare", 1);
    drop(many);

    std::fs::write(&end, "").unwrap();
    for done in jobs.into_iter().chain([third]).map(Job::finish) {
        assert_eq!(done.code, 0, "{}", done.stderr);
        assert!(done.lines().len() <= 1, "started once: {done:?}");
    }
}

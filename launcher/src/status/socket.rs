//! Where `torchrs top` asks: an abstract socket of each launcher, which leaves no file behind and goes with the process.
//! Only the same user, and root, gets an answer. A thread waits there; while nobody asks it does nothing.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::getuid;

use super::live::Status;
use super::snapshot::Snapshot;

/// Who asks, or answers, and then stops for so long is let go.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer at most: one of a hundred thousand ranks is shorter.
const ANSWER: u64 = 256 << 20;

/// What names of all launchers' sockets of this user begin with.
fn beginning() -> String {
    format!("torchrs/{}/", getuid())
}

/// Answers from now on. Without a socket or a thread `torchrs top` does not see this job, which goes on as well.
pub fn listen(status: Arc<Status>) {
    let name = format!("{}{}", beginning(), status.job_id());
    let listener =
        SocketAddr::from_abstract_name(name).and_then(|address| UnixListener::bind_addr(&address));
    let Ok(listener) = listener else { return };
    let answer_all = move || {
        for client in listener.incoming() {
            match client {
                Ok(client) => drop(answer(client, &status)),
                // No descriptors are left, say.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    let _ =
        thread::Builder::new().name("status-top".into()).stack_size(512 << 10).spawn(answer_all);
}

fn is_allowed(client: &UnixStream) -> bool {
    let uid = getsockopt(&client.as_fd(), PeerCredentials).map(|peer| peer.uid());
    uid.is_ok_and(|uid| uid == 0 || uid == getuid().as_raw())
}

fn answer(mut client: UnixStream, status: &Status) -> std::io::Result<()> {
    if !is_allowed(&client) {
        return Ok(());
    }
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut question = String::new();
    BufReader::new((&client).take(64)).read_line(&mut question)?;
    if question == "snapshot\n" {
        client.write_all(&serde_json::to_vec(&status.look().snapshot)?)?;
    }
    Ok(())
}

/// The random names of this user's jobs on this host, sorted.
pub fn jobs() -> Vec<String> {
    let all = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let beginning = format!("@{}", beginning());
    let names = all.lines().filter_map(|line| line.split_ascii_whitespace().nth(7));
    let mut jobs: Vec<String> =
        names.filter_map(|name| name.strip_prefix(&beginning).map(str::to_owned)).collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}

/// What a job's launcher answers.
///
/// # Errors
/// Where it is no more, does not answer, or is of another release.
pub fn ask(job: &str) -> std::io::Result<Snapshot> {
    let address = SocketAddr::from_abstract_name(format!("{}{job}", beginning()))?;
    let mut socket = UnixStream::connect_addr(&address)?;
    // Anybody may have taken the name of a job that is over.
    if !is_allowed(&socket) {
        return Err(std::io::Error::other("another user's process answers in its place"));
    }
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.write_all(b"snapshot\n")?;
    let mut text = Vec::new();
    let silent = "its launcher does not answer: it is stopped, or very busy";
    match socket.take(ANSWER).read_to_end(&mut text) {
        Err(why) if why.kind() != ErrorKind::WouldBlock => return Err(why),
        Err(_) => return Err(std::io::Error::other(silent)),
        Ok(0) => return Err(std::io::Error::other("its launcher does not answer")),
        Ok(_) => {}
    }
    serde_json::from_slice(&text)
        .map_err(|why| std::io::Error::other(format!("its launcher is of another release: {why}")))
}

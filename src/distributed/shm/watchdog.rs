//! One thread per process that sleeps until a peer's process ends (its pidfd becomes readable) and
//! then aborts the groups that the peer had not left, which wakes everyone who waits in them.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use parking_lot::Mutex;

use super::control::{AbortRecord, Cause, Control};
use crate::error::{Context, Error, Result};

/// The process of another rank.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub pid: i32,
    /// Becomes readable when the process has ended. `None`: it is this very process.
    pub pidfd: Option<Arc<OwnedFd>>,
}

impl Peer {
    /// Whether the process is gone.
    pub(super) fn has_ended(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let mut entry = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut entry, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}

#[derive(Debug)]
struct Watchdog {
    epoll: Epoll,
    watched: Mutex<HashMap<i32, Watched>>,
}

#[derive(Debug)]
struct Watched {
    pidfd: Arc<OwnedFd>,
    /// The groups that have the process as a member, with its rank there.
    groups: Vec<(Weak<Control>, usize)>,
}

/// Watches `peers` (by rank in the group) on behalf of the group whose control block is `control`,
/// as long as that lives.
pub(super) fn watch(peers: &[Peer], control: &Arc<Control>) -> Result<()> {
    let watchdog = running()?;
    let mut watched = watchdog.watched.lock();
    watched.retain(|_, w| {
        w.groups.retain(|(group, _)| group.strong_count() > 0);
        let used = !w.groups.is_empty();
        if !used {
            // Fails only if the thread has taken it out before.
            let _ = watchdog.epoll.delete(&*w.pidfd);
        }
        used
    });
    for (rank, peer) in peers.iter().enumerate() {
        let Some(pidfd) = &peer.pidfd else { continue };
        let group = (Arc::downgrade(control), rank);
        if let Some(known) = watched.get_mut(&peer.pid) {
            known.groups.push(group);
            continue;
        }
        // Entered first: the process may have ended already, and is reported at once then.
        watched.insert(peer.pid, Watched { pidfd: pidfd.clone(), groups: vec![group] });
        let event = EpollEvent::new(EpollFlags::EPOLLIN, peer.pid as u64);
        watchdog
            .epoll
            .add(&**pidfd, event)
            .context(|| format!("watch process {} of rank {rank}", peer.pid))?;
    }
    Ok(())
}

/// The process's watchdog, started when first needed.
fn running() -> Result<&'static Watchdog> {
    static RUNNING: OnceLock<Result<&'static Watchdog>> = OnceLock::new();
    RUNNING
        .get_or_init(|| {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
                .context(|| "epoll for the watch over peers")?;
            let watchdog: &'static Watchdog =
                Box::leak(Box::new(Watchdog { epoll, watched: Mutex::default() }));
            std::thread::Builder::new()
                .name("torchrs-peers".into())
                .spawn(|| watchdog.run())
                .context(|| "start the thread that watches over peers")?;
            Ok(watchdog)
        })
        .clone()
}

impl Watchdog {
    fn run(&self) {
        let mut events = [EpollEvent::empty(); 16];
        loop {
            let ready = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => continue,
                // Only a bad descriptor or address can be at fault, that is, a bug. Deadlines
                // still end every wait.
                Err(_) => return,
            };
            for event in &events[..ready] {
                self.ended(event.data() as i32);
            }
        }
    }

    fn ended(&self, pid: i32) {
        let Some(watched) = self.watched.lock().remove(&pid) else { return };
        let _ = self.epoll.delete(&*watched.pidfd);
        for (group, rank) in watched.groups {
            let Some(control) = group.upgrade() else { continue };
            if !control.has_left(rank) {
                let reason = String::new();
                control.abort(&AbortRecord { cause: Cause::Died, rank, pid, reason });
            }
        }
    }
}

/// A pidfd of `pid`, to be sent to those who are to watch it.
pub(super) fn pidfd_of(pid: i32) -> Result<OwnedFd> {
    // SAFETY: pidfd_open takes plain numbers.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0u32) };
    if raw < 0 {
        return Err(Error::os(format!("pidfd_open of process {pid}"), Errno::last()));
    }
    // SAFETY: the system call has just made this descriptor, and nothing else knows of it.
    Ok(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(raw as i32) })
}

/// What the system says about a process: `alive`, `alive, stopped`, `dead`.
pub(super) fn condition_of(pid: i32) -> &'static str {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return "dead" };
    // The command's name, in parentheses, may itself contain any character: the state is behind
    // the last closing one.
    match stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()) {
        Some("T" | "t") => "alive, stopped",
        Some("Z" | "X") => "dead",
        Some("D") => "alive, waiting for the disk or another device",
        _ => "alive",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_aborts_only_groups_that_it_had_not_left() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id() as i32;
        let pidfd = Some(Arc::new(pidfd_of(pid).unwrap()));
        let peers = [Peer { pid: 0, pidfd: None }, Peer { pid, pidfd }];
        let (left, stayed) =
            (Arc::new(Control::create(2, 64).unwrap()), Arc::new(Control::create(2, 64).unwrap()));
        left.leave(1);
        watch(&peers, &left).unwrap();
        watch(&peers, &stayed).unwrap();
        assert!(condition_of(pid).starts_with("alive"));
        child.kill().unwrap();
        // The end of the wait is the abort: rank 1 never arrives.
        let patience = super::super::control::Patience { spin: Default::default(), yields: 0 };
        let limit = || std::time::Duration::from_secs(60);
        let end = stayed.wait(1, 1, patience, limit);
        assert_eq!(end, Err(super::super::control::Interrupted::Aborted));
        let record = stayed.abort_record().unwrap();
        assert_eq!((record.cause, record.rank, record.pid), (Cause::Died, 1, pid));
        assert!(!left.is_aborted());
        child.wait().unwrap();
        assert_eq!(condition_of(pid), "dead");
    }

    #[test]
    fn this_process_is_alive() {
        assert!(condition_of(std::process::id() as i32).starts_with("alive"));
    }
}

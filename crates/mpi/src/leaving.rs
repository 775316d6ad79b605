//! The end of a process where MPICH's `MPI_Finalize` may hang.
//!
//! Before release 4.2, MPICH over UCX closes its connections and then waits for all processes in a barrier of the
//! process manager, in which it answers nobody. A process that still closes one waits for such an answer: all hang
//! (<https://github.com/pmodels/mpich/pull/6596>). Of 12 runs of a program of five calls on two hosts 3 to 12 hung.
//!
//! A process then takes leave of the process manager itself, by its protocol (PMI-1, which MPICH's `mpiexec` speaks):
//! all meet in the same barrier, in which MPI goes on answering, and MPI is not finalised.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};

use torchrs_job::deadline::Deadline;

use crate::failure::{Failure, Watch};
use crate::launcher::Family;
use crate::library::Library;
use crate::polling::{Pauses, Polling};

/// The first release whose end is sound.
const MENDED: (u32, u32) = (4, 2);
/// The longest answer of the process manager.
const ANSWER: usize = 1024;

/// The connection to the process manager.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    fd: RawFd,
}

impl Leaving {
    /// Where MPI is not to be finalised.
    pub(crate) fn of(
        family: Family,
        library: &Library,
        version: &str,
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Option<Self> {
        let over_ucx = family == Family::Mpich && library.symbol("ucp_disconnect_nb").is_some();
        // Slurm's has another protocol on the same descriptor.
        let by_mpiexec = lookup("MPI_LOCALRANKID").is_some();
        if !over_ucx || !by_mpiexec || release(version).is_none_or(|release| release >= MENDED) {
            return None;
        }
        let fd = lookup("PMI_FD")?.to_str()?.parse().ok()?;
        Some(Leaving { fd })
    }

    /// Meets all processes of the job, then takes leave. `progress` lets MPI answer others meanwhile.
    pub(crate) fn leave(
        self,
        deadline: &Deadline,
        watch: &mut Watch<'_>,
        mut progress: impl FnMut(),
    ) -> Result<(), Failure> {
        for (asked, answer) in [("barrier_in", "barrier_out"), ("finalize", "finalize_ack")] {
            let told = self.ask(asked, deadline, watch, &mut progress)?;
            if !told.split_whitespace().any(|word| word == format!("cmd={answer}")) {
                let text = format!("the process manager answers `{told}` to {asked}");
                return Err(Failure::failed(text));
            }
        }
        Ok(())
    }

    fn ask(
        self,
        asked: &str,
        deadline: &Deadline,
        watch: &mut Watch<'_>,
        progress: &mut impl FnMut(),
    ) -> Result<String, Failure> {
        // SAFETY: the descriptor is MPI's, which keeps it open to the end of the process; it is not closed here.
        let mut manager = ManuallyDrop::new(unsafe { File::from_raw_fd(self.fd) });
        let lost = |error: std::io::Error| Failure::failed(format!("the process manager: {error}"));
        manager.write_all(format!("cmd={asked}\n").as_bytes()).map_err(lost)?;
        let (mut answer, mut pauses) = (Vec::new(), Pauses::new(Polling::default(), 0));
        while !answer.ends_with(b"\n") && answer.len() < ANSWER {
            progress();
            let mut look = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry; it does not wait.
            if unsafe { libc::poll(&raw mut look, 1, 0) } <= 0 {
                pauses.pause(|| format!("the process manager's {asked}"), deadline, watch)?;
                continue;
            }
            // What follows is not this answer.
            let mut byte = [0];
            match manager.read(&mut byte) {
                Ok(0) => return Err(lost(ErrorKind::UnexpectedEof.into())),
                Ok(_) => answer.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(String::from_utf8_lossy(&answer).trim().to_owned())
    }
}

/// Of `MPICH Version: 4.0.2`.
fn release(version: &str) -> Option<(u32, u32)> {
    let (_, rest) = version.split_once("MPICH Version:")?;
    let mut numbers = rest.split_whitespace().next()?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(release("MPICH Version: 4.0.2 MPICH Release date: 2022"), Some((4, 0)));
        assert_eq!(release("MPICH Version: 4.10.1"), Some((4, 10)));
        assert_eq!(release("Intel(R) MPI Library 2021.9"), None);
    }

    /// A process manager that answers with these lines.
    fn manager(answers: &[&'static str]) -> (UnixStream, std::thread::JoinHandle<Vec<String>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let answers = answers.to_vec();
        let thread = std::thread::spawn(move || {
            let mut lines = BufReader::new(theirs.try_clone().unwrap()).lines();
            let mut asked = Vec::new();
            for answer in answers {
                asked.push(lines.next().unwrap().unwrap());
                (&theirs).write_all(answer.as_bytes()).unwrap();
            }
            lines.for_each(|line| asked.push(line.unwrap()));
            asked
        });
        (ours, thread)
    }

    #[test]
    fn a_process_meets_the_others_and_takes_leave() {
        let (ours, manager) = manager(&["cmd=barrier_out\n", "cmd=finalize_ack\n"]);
        let leaving = Leaving { fd: ours.as_raw_fd() };
        let mut answered = 0;
        let deadline = Deadline::after(Duration::from_secs(60));
        leaving.leave(&deadline, &mut || None, || answered += 1).unwrap();
        assert!(answered > 0);
        drop(ours);
        assert_eq!(manager.join().unwrap(), ["cmd=barrier_in", "cmd=finalize"]);
    }

    #[test]
    fn a_manager_that_is_silent_gone_or_says_something_else_is_an_error() {
        let deadline = || Deadline::after(Duration::from_millis(50));
        let said = |answers: &[&'static str]| {
            let (ours, manager) = manager(answers);
            let leaving = Leaving { fd: ours.as_raw_fd() };
            let said = leaving.leave(&deadline(), &mut || None, || {}).unwrap_err().to_string();
            drop(ours);
            manager.join().unwrap();
            said
        };
        assert!(said(&[]).contains("timed out"), "{}", said(&[]));
        assert!(said(&["cmd=abort\n"]).contains("answers `cmd=abort` to barrier_in"));
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let leaving = Leaving { fd: ours.as_raw_fd() };
        let gone = leaving.leave(&deadline(), &mut || None, || {}).unwrap_err().to_string();
        assert!(gone.contains("the process manager: "), "{gone}");
    }
}

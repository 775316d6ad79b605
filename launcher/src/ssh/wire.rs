//! What the launcher that the user started and a host's launcher tell each other through the remote shell's standard
//! input and output. The host's launcher begins with a line by which it is found behind whatever a login prints; all
//! that follows are frames: a kind, a length, that many bytes.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::write;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::outputs::Stream;

/// What the host's launcher is started with, and nothing else.
pub const REMOTE_END: &str = "--remote-end";
/// What comes before the first frame.
pub const GREETING: &[u8] = b"torchrs-launch remote end 1\n";
/// How often each side says that it is there.
pub const ALIVE_EVERY: Duration = Duration::from_secs(2);
/// Who hears nothing for so long takes the other side for lost.
const SILENT_AFTER: Duration = Duration::from_secs(20);
/// The longest frame. The longest that is sent is an environment.
const MOST: usize = 64 << 20;
const HEADER: usize = 5;

/// [`SILENT_AFTER`], unless a test is in a hurry.
pub fn silent_after() -> Duration {
    let seconds = std::env::var("TORCHRS_TEST_SILENT_AFTER_S").ok();
    seconds.and_then(|text| text.parse().ok()).map_or(SILENT_AFTER, Duration::from_secs)
}

/// To a host's launcher.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToHost {
    /// Begin.
    Start(Box<Start>),
    /// A signal, as if it had come there.
    Signal(i32),
    Alive,
}

/// What a host's launcher needs to begin.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// The working folder.
    pub folder: PathBuf,
    /// Set before anything else is read.
    pub environment: Vec<(OsString, OsString)>,
    /// Options, the program's path, its arguments.
    pub args: Vec<OsString>,
    /// The job's secret.
    pub token: Option<String>,
    /// Whether the options are those of a check.
    pub is_check: bool,
}

/// From a host's launcher.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromHost {
    /// The first of all.
    Hello(Hello),
    /// Its part of the job is under way.
    Ready,
    /// Its part could not begin: the exit code, and why.
    Failed(i32, String),
    /// Its part is over, with this exit code.
    Ended(i32),
    Alive,
}

/// What a host's launcher says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// The release.
    pub version: String,
    /// What its system calls the host.
    pub name: String,
    /// The addresses of the remote shell's connection: the caller's, and the host's own.
    pub connection: Option<(IpAddr, IpAddr)>,
    /// A port that is free there, and the next, too.
    pub port: u16,
}

/// A frame that has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<T> {
    Message(T),
    /// What workers wrote.
    Output(Stream, Vec<u8>),
}

fn kind(stream: Option<Stream>) -> u8 {
    match stream {
        None => 0,
        Some(Stream::Stdout) => 1,
        Some(Stream::Stderr) => 2,
    }
}

/// Takes bytes in any pieces and gives frames.
#[derive(Debug, Default)]
pub struct Frames {
    input: Vec<u8>,
}

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next frame that is whole.
    ///
    /// # Errors
    /// Why what has come is none.
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Frame<T>>, String> {
        let Some(header) = self.input.first_chunk::<HEADER>() else { return Ok(None) };
        let [kind, length @ ..] = *header;
        let length = u32::from_le_bytes(length) as usize;
        if kind > 2 || length > MOST {
            return Err("it sends what no torchrs-launch sends".into());
        }
        if self.input.len() < HEADER + length {
            return Ok(None);
        }
        let bytes: Vec<u8> = self.input.drain(..HEADER + length).skip(HEADER).collect();
        Ok(Some(match kind {
            1 => Frame::Output(Stream::Stdout, bytes),
            2 => Frame::Output(Stream::Stderr, bytes),
            _ => {
                let message = serde_json::from_slice(&bytes);
                Frame::Message(message.map_err(|_| "it sends messages of another release")?)
            }
        }))
    }
}

/// A pipe that is never waited for, and what it has not taken yet.
#[derive(Debug)]
pub struct Outbox {
    pipe: OwnedFd,
    queue: Vec<u8>,
}

impl Outbox {
    pub fn new(pipe: OwnedFd) -> nix::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Outbox { pipe, queue: Vec::new() })
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.queue.extend_from_slice(bytes);
    }

    pub fn message(&mut self, message: &impl Serialize) {
        self.frame(None, &serde_json::to_vec(message).expect("a message is plain data"));
    }

    pub fn output(&mut self, stream: Stream, bytes: &[u8]) {
        self.frame(Some(stream), bytes);
    }

    fn frame(&mut self, stream: Option<Stream>, bytes: &[u8]) {
        self.queue.push(kind(stream));
        self.queue.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.queue.extend_from_slice(bytes);
    }

    /// Writes what the pipe takes.
    ///
    /// # Errors
    /// When nobody reads it any more.
    pub fn flush(&mut self) -> std::io::Result<()> {
        let mut written = 0;
        let ended = loop {
            if written == self.queue.len() {
                break Ok(());
            }
            match write(&self.pipe, &self.queue[written..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break Ok(()),
                Err(errno) => break Err(errno.into()),
            }
        };
        self.queue.drain(..written);
        ended
    }
}

impl AsFd for Outbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_whole_in_any_pieces() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let mut outbox = Outbox::new(writer).unwrap();
        outbox.message(&FromHost::Ended(3));
        outbox.output(Stream::Stderr, b"oh \xff no");
        outbox.flush().unwrap();
        assert_eq!(outbox.len(), 0);
        let mut bytes = [0; 256];
        let count = nix::unistd::read(&reader, &mut bytes).unwrap();
        for piece in [1, 3, count] {
            let (mut frames, mut got) = (Frames::default(), Vec::new());
            for bytes in bytes[..count].chunks(piece) {
                frames.push(bytes);
                while let Some(frame) = frames.next::<FromHost>().unwrap() {
                    got.push(frame);
                }
            }
            assert!(matches!(got[0], Frame::Message(FromHost::Ended(3))), "{got:?}");
            assert!(
                matches!(&got[1], Frame::Output(Stream::Stderr, b) if b == b"oh \xff no"),
                "{got:?}"
            );
            assert_eq!(got.len(), 2);
        }
    }

    #[test]
    fn a_pipe_that_is_full_is_not_waited_for() {
        let (_reader, writer) = nix::unistd::pipe().unwrap();
        let mut outbox = Outbox::new(writer).unwrap();
        outbox.output(Stream::Stdout, &vec![1; 1 << 20]);
        outbox.flush().unwrap();
        assert!(outbox.len() > 0);
    }

    #[test]
    fn other_bytes_are_refused_before_they_are_stored() {
        let long = [&[1u8][..], &u32::MAX.to_le_bytes()].concat();
        for bytes in [&b"GET / HTTP"[..], &long, &[0, 2, 0, 0, 0, b'{', b'x']] {
            let mut frames = Frames::default();
            frames.push(bytes);
            assert!(frames.next::<FromHost>().is_err(), "{bytes:?}");
        }
    }
}

//! The way to one host: a remote shell, or for this host a launcher without one, and the thread that reads what comes
//! back from it.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::unistd::{pipe2, read, write};

use super::wire::{Frame, Frames, FromHost, GREETING, Outbox, silent_after};
use crate::deadline::poll_timeout;
use crate::environment;
use crate::failure::{Doing, Failure};
use crate::outputs::Stream;
use crate::process::Process;
use crate::shim;
use crate::spawn::{Child, SHIM, Stdio};

const READ: usize = 64 << 10;
/// What a login may print before the launcher's greeting.
const MOST_NOISE: usize = 1 << 20;
/// How long words of the remote shell are waited for when its output has ended: a shell that stays for others to
/// use keeps its standard error open.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What comes from a host.
#[derive(Debug)]
pub enum News {
    Message(FromHost),
    /// A line that the remote shell printed, or the launcher before it had begun.
    Words(String),
    /// Nothing more will come; why, if its end was not the end of the stream.
    Closed(Option<String>),
}

/// How a host's output gets on.
#[derive(Debug, Default)]
pub struct Flow {
    /// Whether some of it waits for whoever reads this launcher's.
    waits: AtomicBool,
    /// Pieces that have come.
    pieces: AtomicU64,
}

impl Flow {
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    pub fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::Relaxed)
    }
}

/// The way to a host.
pub struct Line {
    pub process: Process,
    /// Nothing once it is closed: then the far end ends all that it has started.
    pub outbox: Option<Outbox>,
    pub flow: Arc<Flow>,
}

/// Where news of all hosts go.
#[derive(Clone)]
pub struct Post {
    pub news: Sender<(usize, News)>,
    pub wake: Arc<EventFd>,
}

impl Post {
    fn give(&self, host: usize, news: News) {
        let _ = self.news.send((host, news));
        let _ = self.wake.write(1);
    }
}

impl Line {
    /// Starts `command`, whose output goes to `outputs`, and news to `post` under the host's number.
    pub fn open(
        host: usize,
        command: Vec<OsString>,
        outputs: [OwnedFd; 2],
        post: Post,
    ) -> Result<Line, Failure> {
        let what = || format!("cannot start {}", command[0].display());
        let pipes = || pipe2(OFlag::O_CLOEXEC).doing(what);
        let ((their_in, our_in), (our_out, their_out), (our_err, their_err)) =
            (pipes()?, pipes()?, pipes()?);
        let child = Child {
            role: SHIM,
            args: shim::arguments(None, &command[0], command.clone()),
            env: &environment::without_token(),
            stdio: [
                Stdio::Fd(their_in.as_fd()),
                Stdio::Fd(their_out.as_fd()),
                Stdio::Fd(their_err.as_fd()),
            ],
            pass: &[],
            new_session: true,
        };
        let process = child.spawn().doing(what)?;
        let outbox = Outbox::new(our_in).doing(what)?;
        let flow = Arc::new(Flow::default());
        let reader = Reader {
            flow: flow.clone(),
            host,
            outputs,
            post,
            frames: Frames::default(),
            greeted: false,
            noise: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("torchrs-line".into());
        thread.spawn(move || reader.run(&our_out, &our_err)).doing(what)?;
        Ok(Line { process, outbox: Some(outbox), flow })
    }
}

struct Reader {
    host: usize,
    flow: Arc<Flow>,
    outputs: [OwnedFd; 2],
    post: Post,
    frames: Frames,
    greeted: bool,
    /// What came before the greeting.
    noise: Vec<u8>,
}

impl Reader {
    fn run(mut self, out: &OwnedFd, err: &OwnedFd) {
        let (mut buffer, mut words) = (vec![0; READ], Words::default());
        let mut heard = Instant::now();
        let mut err_open = true;
        let trouble = loop {
            let mut events = vec![PollFd::new(out.as_fd(), PollFlags::POLLIN)];
            if err_open {
                events.push(PollFd::new(err.as_fd(), PollFlags::POLLIN));
            }
            let deadline = self.greeted.then(|| heard + silent_after());
            match poll(&mut events, poll_timeout(deadline)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => break Some(format!("poll failed: {errno}")),
            }
            let ready = |place: usize| events.get(place).and_then(PollFd::any).unwrap_or(false);
            let (out_ready, err_ready) = (ready(0), ready(1));
            drop(events);
            if err_ready {
                err_open = words.read(err, &mut buffer);
                words.lines().for_each(|line| self.post.give(self.host, News::Words(line)));
            }
            if !out_ready {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    let seconds = silent_after().as_secs();
                    break Some(format!("nothing came from there for {seconds} s"));
                }
                continue;
            }
            match read(out, &mut buffer) {
                Ok(0) => break None,
                Ok(count) => {
                    if let Err(why) = self.take(&buffer[..count]) {
                        break Some(why);
                    }
                    // Counted from the end of what was done with it: the workers' output may have had to wait.
                    heard = Instant::now();
                }
                Err(Errno::EINTR) => {}
                Err(errno) => break Some(errno.desc().to_owned()),
            }
        };
        let until = Instant::now() + LAST_WORDS;
        while err_open && Instant::now() < until {
            let mut events = [PollFd::new(err.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut events, PollTimeout::from(20u8));
            if events[0].any() == Some(true) {
                err_open = words.read(err, &mut buffer);
            }
        }
        words.finish();
        words.lines().for_each(|line| self.post.give(self.host, News::Words(line)));
        if !self.greeted {
            let noise = String::from_utf8_lossy(&self.noise);
            noise.lines().for_each(|line| self.post.give(self.host, News::Words(line.to_owned())));
        }
        self.post.give(self.host, News::Closed(trouble));
    }

    /// Takes bytes that have come.
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.greeted {
            self.frames.push(bytes);
        } else {
            self.noise.extend_from_slice(bytes);
            let Some(at) = self.noise.windows(GREETING.len()).position(|part| part == GREETING)
            else {
                let too_much = self.noise.len() > MOST_NOISE;
                return if too_much {
                    Err("what came from there is no launcher's".into())
                } else {
                    Ok(())
                };
            };
            self.greeted = true;
            self.frames.push(&self.noise[at + GREETING.len()..]);
            self.noise = Vec::new();
        }
        while let Some(frame) = self.frames.next()? {
            match frame {
                Frame::Message(message) => self.post.give(self.host, News::Message(message)),
                Frame::Output(stream, bytes) => self.show(stream, &bytes),
            }
        }
        Ok(())
    }

    /// Waits as long as the user's terminal makes it wait.
    fn show(&self, stream: Stream, mut bytes: &[u8]) {
        self.flow.pieces.fetch_add(1, Ordering::Relaxed);
        self.flow.waits.store(true, Ordering::Relaxed);
        while !bytes.is_empty() {
            match write(&self.outputs[stream as usize], bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::EINTR) => {}
                // The relay has given up.
                Err(_) => break,
            }
        }
        self.flow.waits.store(false, Ordering::Relaxed);
    }
}

/// Lines of a stream.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    /// False at the stream's end.
    fn read(&mut self, from: &OwnedFd, buffer: &mut [u8]) -> bool {
        match read(from, buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.0.extend_from_slice(&buffer[..count]);
                true
            }
            Err(errno) => errno == Errno::EINTR,
        }
    }

    fn finish(&mut self) {
        if !self.0.is_empty() {
            self.0.push(b'\n');
        }
    }

    /// Those that are complete.
    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        let end = self.0.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&self.0[..end]).into_owned();
        self.0.drain(..end);
        let lines: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.into_iter().filter(|line| !line.is_empty())
    }
}

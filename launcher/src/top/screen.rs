//! A terminal that shows a page at a time, and the keys that are pressed there.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::read;

use crate::deadline::poll_timeout;

/// The terminal's other page, and no cursor.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?1049l";

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Quit,
    Down,
    Up,
}

/// The terminal, as long as this is there; then as it was.
pub struct Screen {
    before: Termios,
    signals: SignalFd,
}

impl Screen {
    /// Takes the terminal; nothing where there is none to read keys from.
    pub fn open() -> Option<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).ok()?;
        let mut set = SigSet::empty();
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGWINCH]
            .into_iter()
            .for_each(|signal| set.add(signal));
        set.thread_set_mask().ok()?;
        let signals =
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).ok()?;
        let mut raw = before.clone();
        raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        tcsetattr(&stdin, SetArg::TCSANOW, &raw).ok()?;
        write(BEGIN);
        Some(Screen { before, signals })
    }

    /// Shows a page in place of the one before.
    pub fn show(&self, page: &str) {
        // Over what is there, so that nothing flickers.
        let page = page.trim_end_matches('\n').replace('\n', "\x1b[K\r\n");
        write(&format!("\x1b[H{page}\x1b[K\x1b[J"));
    }

    /// A key, if one that means something is pressed in time.
    pub fn key(&self, until: Instant) -> Option<Key> {
        let stdin = std::io::stdin();
        let mut listens = true;
        loop {
            let mut events = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            if listens {
                events.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
            }
            if poll(&mut events, poll_timeout(Some(until))).unwrap_or(0) == 0 {
                if Instant::now() >= until {
                    return None;
                }
                continue;
            }
            let is_key = events.get(1).and_then(PollFd::any) == Some(true);
            if let Ok(Some(info)) = self.signals.read_signal() {
                match Signal::try_from(info.ssi_signo as i32) {
                    // Another size: show it anew.
                    Ok(Signal::SIGWINCH) => return None,
                    _ => return Some(Key::Quit),
                }
            }
            if !is_key {
                continue;
            }
            let mut bytes = [0; 16];
            match read(&stdin, &mut bytes) {
                Ok(0) | Err(_) => listens = false,
                Ok(count) => match meant(&bytes[..count]) {
                    None => {}
                    key => return key,
                },
            }
        }
    }
}

/// What the keys mean that come in one piece, as of a fast hand or over a slow line: the end, or the last of them.
fn meant(mut bytes: &[u8]) -> Option<Key> {
    const KEYS: [(&[u8], Key); 10] = [
        (b"\x1b[B", Key::Down),
        (b"\x1b[6~", Key::Down),
        (b"\x1b[A", Key::Up),
        (b"\x1b[5~", Key::Up),
        (b"q", Key::Quit),
        (b"Q", Key::Quit),
        (b"\x03", Key::Quit),
        (b"j", Key::Down),
        (b" ", Key::Down),
        (b"k", Key::Up),
    ];
    if bytes == b"\x1b" {
        return Some(Key::Quit);
    }
    let mut last = None;
    while !bytes.is_empty() {
        let key = KEYS.iter().find(|(key, _)| bytes.starts_with(key));
        bytes = &bytes[key.map_or(1, |(key, _)| key.len())..];
        last = key.map(|(_, key)| *key).or(last);
        if last == Some(Key::Quit) {
            break;
        }
    }
    last
}

impl Drop for Screen {
    fn drop(&mut self) {
        write(END);
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.before);
    }
}

fn write(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_come_together_mean_something() {
        for (bytes, key) in [
            (&b"q"[..], Some(Key::Quit)),
            (b"\x1b", Some(Key::Quit)),
            (b"jjq", Some(Key::Quit)),
            (b"jj", Some(Key::Down)),
            (b"\x1b[B\x1b[A", Some(Key::Up)),
            (b"x\xff\0", None),
            (b"\x1b[C", None),
        ] {
            assert_eq!(meant(bytes), key, "{bytes:?}");
        }
    }
}

//! How a kernel failed: the line on standard error and the code that its context gives from then on.

use super::collective;
use super::thread::{State, Thread};
use crate::code::Code;
use crate::memory::blocks;

/// Why a kernel ended before its end.
#[derive(Debug)]
pub enum Failure {
    /// A signal at an address; `overflow` when that lies under the thread's stack.
    Signal { signal: i32, address: usize, overflow: bool },
    /// Nobody can go on.
    Stuck(Waiting),
    /// A lane called a collective without being in its mask.
    NotInMask { operation: u32, mask: u32, line: u32 },
    /// An assertion.
    Assert { text: String, file: String, line: u32 },
    /// `__trap()`.
    Trap,
    /// The host gives no memory for stacks.
    NoStack,
}

/// Who waits where in a block in which nobody can go on.
#[derive(Debug)]
pub struct Waiting(String);

impl Waiting {
    /// Groups threads by where they wait.
    pub fn of(threads: &[Thread]) -> Waiting {
        let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
        for (number, thread) in threads.iter().enumerate() {
            let at = match thread.state {
                State::Barrier => format!("wait at the barrier of line {}", thread.line),
                State::Warp => {
                    let name = collective::name(thread.operation);
                    format!(
                        "wait in {name} of line {} with mask {:#010x}",
                        thread.line, thread.mask
                    )
                }
                State::Done => "have ended".into(),
                State::New | State::Running => "can go on".into(),
            };
            match groups.iter_mut().find(|(other, _)| *other == at) {
                Some((_, members)) => members.push(number),
                None => groups.push((at, vec![number])),
            }
        }
        let said: Vec<String> = groups
            .iter()
            .map(|(at, members)| format!("threads {} {at}", ranges(members)))
            .collect();
        Waiting(said.join("; "))
    }
}

/// Numbers in rising order, as ranges; a long list is cut.
fn ranges(numbers: &[usize]) -> String {
    const SHOWN: usize = 8;
    let mut found: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => found.push((number, number)),
        }
    }
    let show = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let mut text: Vec<String> = found.iter().take(SHOWN).map(show).collect();
    if found.len() > SHOWN {
        text.push(format!("and {} more ranges", found.len() - SHOWN));
    }
    text.join(", ")
}

impl Failure {
    /// Says on standard error what happened and where; gives the code.
    pub fn say(&self, device: usize, place: &str) -> Code {
        let (code, what) = self.explain();
        eprintln!("simulated GPU {device}: {place}: {what}");
        code
    }

    /// The code and the reason in words.
    fn explain(&self) -> (Code, String) {
        match self {
            Failure::Signal { overflow: true, .. } => {
                let size = crate::fiber::stack::SIZE >> 10;
                (
                    Code::HARDWARE_STACK_ERROR,
                    format!("a thread's local variables need more than {size} KiB"),
                )
            }
            Failure::Signal { signal: libc::SIGSEGV | libc::SIGBUS, address, .. } => (
                Code::ILLEGAL_ADDRESS,
                format!("illegal address {address:#x}{}", neighbour(*address)),
            ),
            Failure::Signal { signal: libc::SIGFPE, .. } => (
                Code::ILLEGAL_ADDRESS,
                "integer division by zero, or its result does not fit".into(),
            ),
            Failure::Signal { signal: libc::SIGILL | libc::SIGTRAP, .. } => (
                Code::MISALIGNED_ADDRESS,
                "an access at an address that is not a multiple of its size".into(),
            ),
            Failure::Signal { signal, .. } => (Code::LAUNCH_FAILED, format!("signal {signal}")),
            Failure::Stuck(waiting) => (
                Code::LAUNCH_FAILED,
                format!("deadlock: not all threads reach the same barrier: {}", waiting.0),
            ),
            Failure::NotInMask { operation, mask, line } => {
                let name = collective::name(*operation);
                let what = format!(
                    "{name} of line {line} with mask {mask:#010x}, in which the thread itself is not"
                );
                (Code::LAUNCH_FAILED, what)
            }
            Failure::Assert { text, file, line } => {
                (Code::ASSERT, format!("{file}:{line}: assertion `{text}` failed"))
            }
            Failure::Trap => (Code::LAUNCH_FAILED, "__trap()".into()),
            Failure::NoStack => {
                (Code::OUT_OF_MEMORY, "the host gives no memory for threads' stacks".into())
            }
        }
    }
}

/// Where an address lies, beside the nearest block.
fn neighbour(address: usize) -> String {
    let Some(block) = blocks::nearest(address) else { return String::new() };
    let (start, end, bytes) = (block.address(), block.end(), block.bytes);
    let place = match address {
        _ if address >= end => format!("{} bytes after the end of", address - end),
        _ if address < start => format!("{} bytes before", start - address),
        _ => "within".into(),
    };
    if address >= start && address < end
        || address.abs_diff(start).min(address.abs_diff(end)) > 1 << 20
    {
        return String::new();
    }
    format!(", {place} the allocation of {bytes} bytes at {start:#x} on device {}", block.device)
}

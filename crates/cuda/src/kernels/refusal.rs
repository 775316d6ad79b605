//! What kernels refuse to compute with: an index that is out of range, a probability that is none. Looking first
//! would mean to wait, so the kernel looks, leaves word in memory of the host and ends; with it ends all work on the
//! device, as in PyTorch. The error of the call where that shows is made of this word: it names the op, its argument
//! and the number.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering::Acquire};

use parking_lot::Mutex;

use crate::device::{MAX_DEVICES, NOWHERE};
use crate::driver::code;
use crate::kernels::launch::Argument;
use crate::memo::once::TryOnce;
use crate::memory::pinned::PinnedBlock;
use torchrs_error::{Error, Result};

/// What holds of the numbers that a kernel looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At least 0, or for some ops at least minus a size, and below it.
    Index,
    /// A class among so many.
    Class,
    /// Between 0 and 1.
    Probability,
    /// Rising from 0 to at most a number of indices.
    Offset,
    /// As many elements as a mask chooses.
    Count,
    /// Rising from 0 to a number of rows, by at most the longest length.
    Lengths,
}

impl Rule {
    /// What is wrong with a number.
    pub fn complaint(self, value: f64, position: i64, limit: i64) -> String {
        let what = format!("{value} at position {position}");
        match self {
            Rule::Index => format!("{what} is out of range for a size of {limit}"),
            Rule::Class => format!("{what} is out of range: there are {limit} classes"),
            Rule::Probability => format!("{what} is not between 0 and 1"),
            Rule::Offset => {
                format!(
                    "{what}; offsets must rise from 0 to at most the number of indices, {limit}"
                )
            }
            Rule::Lengths => format!(
                "{what}; where sequences start must begin with 0, never fall, rise by at most the longest length, \
                 and end with the number of rows, {limit}"
            ),
            Rule::Count => format!("has {value} elements, and the mask chooses {limit}"),
        }
    }
}

/// `Refused` of `kernels/refusal.cuh`.
#[repr(C)]
struct Refused {
    /// 2 as soon as the rest is written.
    state: AtomicU32,
    reserved: u32,
    site: u64,
    position: i64,
    limit: i64,
    value: f64,
}

/// `Refusal` of `kernels/refusal.cuh`: where a kernel leaves word, and which check it is.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Refusal {
    /// Address of a [`Refused`].
    record: usize,
    site: u64,
}

// SAFETY: an address and a number on the other side; the record lives as long as the process.
unsafe impl Argument for Refusal {}

impl Refusal {
    /// For a kernel's entry that does not look.
    pub const NONE: Refusal = Refusal { record: 0, site: 0 };
}

/// A check: an op's argument and what must hold of it. Few in any program, and never forgotten.
struct Site {
    op: String,
    argument: &'static str,
    rule: Rule,
}

static SITES: Mutex<Vec<Site>> = Mutex::new(Vec::new());

/// A device's record, which stays until the process ends: graphs hold its address.
struct Place(PinnedBlock);

static PLACES: [TryOnce<Place>; MAX_DEVICES] = [const { TryOnce::new() }; MAX_DEVICES];

thread_local! {
    /// The op that the user called, where it is made of others.
    static CALLED: RefCell<Option<(String, &'static str)>> = const { RefCell::new(None) };
}

/// Runs `f`; what kernels refuse therein is refused in the name of this op and argument, unless an op around it
/// has given its own.
pub fn in_name_of<R>(op: &str, argument: &'static str, f: impl FnOnce() -> R) -> R {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            CALLED.with(|called| *called.borrow_mut() = None);
        }
    }
    if CALLED.with(|called| called.borrow().is_some()) {
        return f();
    }
    CALLED.with(|called| *called.borrow_mut() = Some((op.to_owned(), argument)));
    let _reset = Reset;
    f()
}

/// What a kernel on a device needs for looking at the argument of an op.
///
/// # Errors
/// Where there is no memory for the record.
pub fn refusal(device: usize, op: &str, argument: &'static str, rule: Rule) -> Result<Refusal> {
    if device == NOWHERE {
        return Ok(Refusal::NONE);
    }
    let place = PLACES[device].get_or_try(|| {
        let block = PinnedBlock::new(size_of::<Refused>())?;
        // SAFETY: new, and of this size; zeros are a record without word.
        unsafe { block.as_ptr().write_bytes(0, size_of::<Refused>()) };
        code::explain_by(found);
        Ok(Place(block))
    })?;
    let site = CALLED.with(|called| match &*called.borrow() {
        Some((op, argument)) => number(op, argument, rule),
        None => number(op, argument, rule),
    });
    Ok(Refusal { record: place.0.as_ptr() as usize, site })
}

fn number(op: &str, argument: &'static str, rule: Rule) -> u64 {
    let mut sites = SITES.lock();
    let known = sites
        .iter()
        .position(|site| site.op == op && site.argument == argument && site.rule == rule);
    known.unwrap_or_else(|| {
        sites.push(Site { op: op.to_owned(), argument, rule });
        sites.len() - 1
    }) as u64
}

/// The error of the first number that a kernel has refused in this process, if one has.
fn found(why: &str) -> Option<Error> {
    PLACES.iter().enumerate().find_map(|(device, place)| {
        // SAFETY: written by `refusal` or a kernel, whose last word is the state.
        let record = unsafe { &*place.get()?.0.as_ptr().cast::<Refused>() };
        if record.state.load(Acquire) != 2 {
            return None;
        }
        let sites = SITES.lock();
        let Site { op, argument, rule } = sites.get(record.site as usize)?;
        let complaint = rule.complaint(record.value, record.position, record.limit);
        let message = format!("{complaint} (found by a kernel on cuda:{device}; {why})");
        Some(Error::argument(op, argument, message))
    })
}

//! Primary contexts, one for each device, and which one is current on a thread. A context that a kernel
//! has broken stays broken: every later call in it gives the same code, as on real hardware.

use crate::code::{Code, Result};
use crate::device;
use crate::registry::Handle;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The most devices there can be.
pub const MAX_DEVICES: usize = 64;

/// The primary context of a device.
#[derive(Debug)]
pub struct Context {
    /// How often it is retained.
    retained: AtomicUsize,
    /// The code that each call gives, or zero.
    broken: AtomicU32,
    /// A bit for each device whose memory this one may reach.
    peers: std::sync::atomic::AtomicU64,
}

static CONTEXTS: [Context; MAX_DEVICES] = [const {
    Context {
        retained: AtomicUsize::new(0),
        broken: AtomicU32::new(0),
        peers: std::sync::atomic::AtomicU64::new(0),
    }
}; MAX_DEVICES];

/// Handles of contexts are numbers from here on.
const BASE: usize = 0xc0_0000;

thread_local! {
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The context of a device.
pub fn of(device: usize) -> &'static Context {
    &CONTEXTS[device]
}

/// The handle of a device's primary context.
pub fn handle(device: usize) -> Handle {
    (BASE + device * 16) as Handle
}

/// The device of a context that lives.
pub fn device_of(handle: Handle) -> Result<usize> {
    let offset = (handle as usize).wrapping_sub(BASE);
    let device = offset / 16;
    if !offset.is_multiple_of(16) || device >= device::count() {
        return Err(Code::INVALID_CONTEXT);
    }
    match of(device).retained.load(Ordering::Acquire) {
        0 => Err(Code::CONTEXT_IS_DESTROYED),
        _ => Ok(device),
    }
}

/// Retains the primary context of a device.
pub fn retain(device: usize) -> Handle {
    of(device).retained.fetch_add(1, Ordering::AcqRel);
    handle(device)
}

/// Releases it; true when it is not retained any more.
pub fn release(device: usize) -> Result<bool> {
    let count = &of(device).retained;
    let before =
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    before.map(|before| before == 1).map_err(|_| Code::INVALID_CONTEXT)
}

/// Makes a context, or none, current on this thread.
pub fn set_current(device: Option<usize>) {
    CURRENT.set(device);
}

/// The device whose context is current, broken or not.
pub fn current_or_none() -> Option<usize> {
    CURRENT.get()
}

/// The device whose context is current, if it is whole.
pub fn current() -> Result<usize> {
    let device = CURRENT.get().ok_or(Code::INVALID_CONTEXT)?;
    if of(device).retained.load(Ordering::Acquire) == 0 {
        return Err(Code::CONTEXT_IS_DESTROYED);
    }
    of(device).check()?;
    Ok(device)
}

impl Context {
    /// Whether it is there.
    pub fn is_retained(&self) -> bool {
        self.retained.load(Ordering::Acquire) > 0
    }

    /// The code that broke it, if something did.
    pub fn check(&self) -> Result {
        match self.broken.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    /// Breaks it; the first reason stays.
    pub fn break_with(&self, code: Code) {
        let _ = self.broken.compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Makes it whole, after the last release.
    pub fn reset(&self) {
        self.broken.store(0, Ordering::Release);
        self.peers.store(0, Ordering::Release);
    }

    /// Lets it reach the memory of `peer`.
    pub fn enable_peer(&self, peer: usize) -> Result {
        match self.peers.fetch_or(1 << peer, Ordering::AcqRel) & (1 << peer) {
            0 => Ok(()),
            _ => Err(Code::PEER_ACCESS_ALREADY_ENABLED),
        }
    }
}

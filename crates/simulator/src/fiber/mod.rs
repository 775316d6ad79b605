//! Fibers: stacks between which an executor switches, one for each thread of a block that waits.

pub mod stack;

#[cfg_attr(target_arch = "x86_64", path = "switch_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "switch_aarch64.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "switch_none.rs")]
pub mod switch;

use stack::Stack;
use std::ffi::c_void;

/// What a fiber begins with; it never returns.
pub type Entry = extern "C" fn(*mut c_void) -> !;

/// A stack and where on it the fiber stands.
#[derive(Debug)]
pub struct Fiber {
    stack: Stack,
    /// The stack pointer while it does not run.
    pub pointer: *mut u8,
}

impl Fiber {
    /// A fiber that begins with `entry(argument)` at the first switch to it.
    pub fn new(entry: Entry, argument: *mut c_void) -> std::io::Result<Fiber> {
        let stack = Stack::new()?;
        let mut fiber = Fiber { stack, pointer: std::ptr::null_mut() };
        fiber.restart(entry, argument);
        Ok(fiber)
    }

    /// Forgets what is on its stack and begins anew.
    pub fn restart(&mut self, entry: Entry, argument: *mut c_void) {
        // SAFETY: the stack is this fiber's, it is large enough, and the fiber does not run.
        self.pointer = unsafe { switch::prepare(self.stack.top(), entry, argument) };
    }

    /// Whether an address lies in the forbidden page under its stack.
    pub fn overflows_at(&self, address: usize) -> bool {
        self.stack.guards(address)
    }
}

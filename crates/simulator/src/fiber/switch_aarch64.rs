//! The switch between two stacks on aarch64: the registers that a called function must keep go onto the
//! old stack and come from the new one.

use super::Entry;
use std::arch::naked_asm;
use std::ffi::c_void;

/// Whether this machine has fibers.
pub const AVAILABLE: bool = true;

/// Stores where this stack stands in `*save` and goes on where the stack `to` stands. `touched` is not
/// used: it tells the compiler what may have changed when this returns.
///
/// # Safety
/// `to` comes from [`prepare`] or from an earlier switch away from that stack, and is used once.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(save: *mut *mut u8, to: *mut u8, touched: *mut c_void) {
    naked_asm!(
        "sub sp, sp, #160",
        "stp x19, x20, [sp, #0]", "stp x21, x22, [sp, #16]", "stp x23, x24, [sp, #32]",
        "stp x25, x26, [sp, #48]", "stp x27, x28, [sp, #64]", "stp x29, x30, [sp, #80]",
        "stp d8, d9, [sp, #96]", "stp d10, d11, [sp, #112]", "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x9, sp", "str x9, [x0]", "mov sp, x1", "b {resume}",
        resume = sym resume,
    )
}

/// Goes on where the stack that is now current stands. A signal handler that sets the stack pointer and
/// this as the next instruction leaves the stack on which the signal came.
///
/// # Safety
/// The stack pointer is one that [`switch`] stored.
#[unsafe(naked)]
pub unsafe extern "C" fn resume() {
    naked_asm!(
        "ldp x19, x20, [sp, #0]",
        "ldp x21, x22, [sp, #16]",
        "ldp x23, x24, [sp, #32]",
        "ldp x25, x26, [sp, #48]",
        "ldp x27, x28, [sp, #64]",
        "ldp x29, x30, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "add sp, sp, #160",
        "ret",
    )
}

/// The first instructions of a fiber.
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    naked_asm!("mov x0, x20", "blr x19", "brk #1")
}

/// Lays a new stack out so that a switch to it calls `entry(argument)`.
///
/// # Safety
/// `top` is the end of a stack that nobody uses, a multiple of 16.
pub unsafe fn prepare(top: *mut u8, entry: Entry, argument: *mut c_void) -> *mut u8 {
    let mut words = [0usize; 20];
    words[0] = entry as usize;
    words[1] = argument as usize;
    // The link register, to which the switch returns.
    words[11] = begin as *const () as usize;
    // SAFETY: the words lie below `top`.
    unsafe {
        let pointer = top.cast::<usize>().sub(words.len());
        pointer.copy_from_nonoverlapping(words.as_ptr(), words.len());
        pointer.cast()
    }
}

/// Makes a thread that a signal stopped go on where the stack `to` stands.
///
/// # Safety
/// `context` is what the signal's handler got, and `to` as in [`switch`].
pub unsafe fn redirect(context: *mut c_void, to: *mut u8) {
    // SAFETY: the kernel gave this context for us to read and change.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    registers.sp = to as u64;
    registers.pc = resume as *const () as u64;
}

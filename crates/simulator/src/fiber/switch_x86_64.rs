//! The switch between two stacks on x86-64: the registers that a called function must keep go onto the
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
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        "mov [rdi], rsp", "mov rsp, rsi", "jmp {resume}",
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
    naked_asm!("pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp", "ret")
}

/// The first instructions of a fiber.
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    naked_asm!("mov rdi, r13", "call r12", "ud2")
}

/// Lays a new stack out so that a switch to it calls `entry(argument)`.
///
/// # Safety
/// `top` is the end of a stack that nobody uses, a multiple of 16.
pub unsafe fn prepare(top: *mut u8, entry: Entry, argument: *mut c_void) -> *mut u8 {
    // r15, r14, r13, r12, rbx, rbp, the address to return to; then two words that keep 16 bytes' alignment.
    let words = [0, 0, argument as usize, entry as usize, 0, 0, begin as *const () as usize, 0, 0];
    // The address of the call's return is pushed to a multiple of 16 less 8, as the ABI wants.
    // SAFETY: the nine words lie below `top`.
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
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_RSP as usize] = to as i64;
    registers[libc::REG_RIP as usize] = resume as *const () as i64;
}

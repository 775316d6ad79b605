//! Faults inside kernels. The handler of SIGSEGV and its kin looks whether the thread that it stopped is
//! an executor within a kernel; then the kernel ends and the executor goes on. All other faults go to
//! the handler that was there before.

use crate::fiber::switch;
use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// Signals that mean a kernel did what it must not.
const SIGNALS: [c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Threads that can execute kernels at a time.
const SLOTS: usize = 256;

/// A thread that executes kernels. Found by its number rather than as a thread-local, whose first use
/// may allocate, which a signal handler must not.
#[derive(Debug)]
pub struct Slot {
    thread: AtomicI32,
    /// Where the executor's own stack stands while a kernel runs; null otherwise.
    home: AtomicPtr<u8>,
    signal: AtomicI32,
    address: AtomicUsize,
}

static ALL: [Slot; SLOTS] = [const {
    Slot {
        thread: AtomicI32::new(0),
        home: AtomicPtr::new(std::ptr::null_mut()),
        signal: AtomicI32::new(0),
        address: AtomicUsize::new(0),
    }
}; SLOTS];

static mut BEFORE: [libc::sigaction; SIGNALS.len()] = [const { no_action() }; SIGNALS.len()];

/// An action without a handler.
const fn no_action() -> libc::sigaction {
    // SAFETY: all zero bits are a valid action.
    unsafe { std::mem::zeroed() }
}

/// Bytes of the stack on which the handler runs.
const HANDLER_STACK: usize = 64 << 10;

/// A slot for the calling thread, which gets a stack for the handler of its own.
pub fn slot() -> Option<&'static Slot> {
    install();
    // SAFETY: a new mapping, which stays for the thread's life, as executors live until the process ends.
    unsafe {
        let stack = libc::mmap(
            std::ptr::null_mut(),
            HANDLER_STACK,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if stack != libc::MAP_FAILED {
            let stack = libc::stack_t { ss_sp: stack, ss_flags: 0, ss_size: HANDLER_STACK };
            libc::sigaltstack(&stack, std::ptr::null_mut());
        }
    }
    let me = thread_number();
    ALL.iter().find(|slot| slot.thread.compare_exchange(0, me, SeqCst, SeqCst).is_ok())
}

impl Slot {
    /// Where a switch to a kernel's stack notes where the executor's own stack stands. From then on a
    /// kernel runs. Only this thread and its own signals use it, so that no order between threads matters.
    pub fn enter(&self) -> *mut *mut u8 {
        self.home.as_ptr()
    }

    /// Says that no kernel runs; gives the signal that ended it and the address.
    pub fn leave(&self) -> Option<(c_int, usize)> {
        self.home.store(std::ptr::null_mut(), Relaxed);
        let signal = self.signal.load(Relaxed);
        if signal == 0 {
            return None;
        }
        self.signal.store(0, Relaxed);
        Some((signal, self.address.load(Relaxed)))
    }
}

/// The calling thread's number.
fn thread_number() -> i32 {
    // SAFETY: a call without arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Puts the handler in place, once.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (i, signal) in SIGNALS.iter().enumerate() {
            // SAFETY: the handler is one for SA_SIGINFO; `BEFORE` is written here only, before any use.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                libc::sigemptyset(&mut action.sa_mask);
                libc::sigaction(*signal, &action, &raw mut BEFORE[i]);
            }
        }
    });
}

/// The handler; it calls only what a handler may.
unsafe extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let me = thread_number();
    if let Some(slot) = ALL.iter().find(|slot| slot.thread.load(SeqCst) == me) {
        let home = slot.home.load(Relaxed);
        if !home.is_null() {
            // SAFETY: the kernel gave the signal's description; `home` is where the executor's stack stands.
            unsafe {
                slot.address.store((*info).si_addr() as usize, Relaxed);
                slot.signal.store(signal, Relaxed);
                switch::redirect(context, home);
            }
            return;
        }
    }
    let Some(i) = SIGNALS.iter().position(|one| *one == signal) else { return };
    // SAFETY: written once, before the handler was in place.
    let before = unsafe { BEFORE[i] };
    match before.sa_sigaction {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            // SAFETY: restores the default; the instruction faults again and the process dies of it.
            unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
        }
        function if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: its owner installed it as a function of this kind.
            let function: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(function) };
            function(signal, info, context);
        }
        function => {
            // SAFETY: its owner installed it as a function of this kind, which takes the signal
            // alone.
            let function: extern "C" fn(c_int) = unsafe { std::mem::transmute(function) };
            function(signal);
        }
    }
}

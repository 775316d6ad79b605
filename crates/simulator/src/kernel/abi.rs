//! What a compiled kernel's shared object and this library know of each other; `cuda/kernel.h` has the
//! same structures in C++.

use std::ffi::{c_char, c_void};

/// Changes with every change to these structures or to what the functions mean.
pub const VERSION: u32 = 2;

/// The name of the one symbol that a shared object exports, a [`Module`].
pub const SYMBOL: &std::ffi::CStr = c"torchrs_simulated_module";

/// All kernels of a shared object.
#[repr(C)]
#[derive(Debug)]
pub struct Module {
    /// [`VERSION`] at the time of its compilation.
    pub version: u32,
    /// How many kernels.
    pub count: u32,
    /// The kernels.
    pub kernels: *const Kernel,
    /// Tells the executor's thread of the block that it is about to run.
    pub block: unsafe extern "C" fn(*const Block),
}

/// A kernel.
#[repr(C)]
#[derive(Debug)]
pub struct Kernel {
    /// Its name in the source.
    pub name: *const c_char,
    /// Runs one thread, at x, y, z, with a pointer to each argument.
    pub thread: unsafe extern "C" fn(*const *const c_void, u32, u32, u32),
    /// Bytes of each argument.
    pub sizes: *const u32,
    /// How many arguments.
    pub arguments: u32,
    /// Most threads of a block, as `__launch_bounds__` says.
    pub max_threads: u32,
}

/// What the threads of a block have in common.
#[repr(C)]
#[derive(Debug)]
pub struct Block {
    /// Its place in the grid.
    pub index: [u32; 3],
    /// Threads along each axis.
    pub threads: [u32; 3],
    /// Blocks along each axis.
    pub grid: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Dynamic shared memory.
    pub shared: *mut u8,
    /// The first argument of the functions below.
    pub machine: *mut c_void,
    /// What the threads can call.
    pub functions: *const Functions,
}

/// Functions that threads of a kernel call.
#[repr(C)]
#[derive(Debug)]
pub struct Functions {
    /// A barrier of the block (machine, kind, predicate, line).
    pub barrier: unsafe extern "C" fn(*mut c_void, u32, u32, u32) -> u32,
    /// A collective of a warp (machine, mask, operation, value, source lane, line).
    pub warp: unsafe extern "C" fn(*mut c_void, u32, u32, u64, u32, u32) -> u64,
    /// Ends the kernel (machine, reason, text, file, line).
    pub fail: unsafe extern "C" fn(*mut c_void, u32, *const c_char, *const c_char, u32),
    /// Lets the other threads of the block run first.
    pub pause: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: a table of functions and constants that nobody changes.
unsafe impl Sync for Functions {}

/// Kinds of barriers: what the result is of the threads' predicates. Zero has none.
pub mod barrier {
    /// How many are true.
    pub const COUNT: u32 = 1;
    /// Whether all are.
    pub const AND: u32 = 2;
    /// Whether any is.
    pub const OR: u32 = 3;
}

/// Operations of a warp; beyond these 11 is the bitwise exclusive or.
pub mod warp {
    /// Only a meeting.
    pub const SYNC: u32 = 0;
    /// The value of the source lane.
    pub const SHUFFLE: u32 = 1;
    /// A bit for each lane whose value is not zero.
    pub const BALLOT: u32 = 2;
    /// A bit for each lane with the same value.
    pub const MATCH: u32 = 3;
    /// The sum.
    pub const ADD: u32 = 4;
    /// The least, as i32.
    pub const MIN_SIGNED: u32 = 5;
    /// The greatest, as i32.
    pub const MAX_SIGNED: u32 = 6;
    /// The least, as u32.
    pub const MIN: u32 = 7;
    /// The greatest, as u32.
    pub const MAX: u32 = 8;
    /// Bitwise and.
    pub const AND: u32 = 9;
    /// Bitwise or.
    pub const OR: u32 = 10;
}

/// Reasons to end a kernel; all others are `__trap()`.
pub mod failure {
    /// An assertion does not hold.
    pub const ASSERT: u32 = 0;
}

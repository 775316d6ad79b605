//! An MPI of one process that does nothing, as a library of MPICH's family. `crates/mpi/tests/waits.rs` compiles it and
//! tells it how requests end. No handles or sizes are looked at.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

/// 0: a request ends when it is asked about for the third time; 1: never; 2: with an error. Of 1 also a split.
static MODE: AtomicI32 = AtomicI32::new(0);
static ASKED: AtomicI32 = AtomicI32::new(0);
static INITIALISED: AtomicI32 = AtomicI32::new(0);
static FINALISED: AtomicI32 = AtomicI32::new(0);
static STARTED: AtomicI32 = AtomicI32::new(0);
static FREED: AtomicI32 = AtomicI32::new(0);
/// Below what is asked for where it is 2.
static LEVEL: AtomicI32 = AtomicI32::new(3);

#[unsafe(no_mangle)]
pub extern "C" fn fake_set(mode: c_int, level: c_int) {
    MODE.store(mode, Ordering::SeqCst);
    LEVEL.store(level, Ordering::SeqCst);
    STARTED.store(0, Ordering::SeqCst);
}

/// Requests since the mode was set, and communicators that were freed.
#[unsafe(no_mangle)]
pub extern "C" fn fake_count(which: c_int) -> c_int {
    let count = if which == 0 { &STARTED } else { &FREED };
    count.load(Ordering::SeqCst)
}

unsafe fn write(text: &str, to: *mut c_char, len: *mut c_int) -> c_int {
    // SAFETY: there is room for more than this, as in any MPI.
    unsafe {
        to.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        *to.add(text.len()) = 0;
        *len = text.len() as c_int;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Get_library_version(to: *mut c_char, len: *mut c_int) -> c_int {
    // SAFETY: the caller's room.
    unsafe { write("MPICH Version:\t0.0\nbuilt by a test", to, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Error_string(code: c_int, to: *mut c_char, len: *mut c_int) -> c_int {
    // SAFETY: the caller's room.
    unsafe { write(&format!("fake error {code}"), to, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Init_thread(
    _: *const c_void,
    _: *const c_void,
    _: c_int,
    level: *mut c_int,
) -> c_int {
    // SAFETY: the caller's place.
    unsafe { *level = LEVEL.load(Ordering::SeqCst) };
    INITIALISED.store(1, Ordering::SeqCst);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_Finalize() -> c_int {
    FINALISED.store(1, Ordering::SeqCst);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Comm_size(_: usize, size: *mut c_int) -> c_int {
    // SAFETY: the caller's place.
    unsafe { *size = 1 };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Comm_dup(_: usize, new: *mut c_int) -> c_int {
    // SAFETY: the caller's place.
    unsafe { *new = 0x2400_0005 };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Comm_split(_: usize, _: c_int, _: c_int, new: *mut c_int) -> c_int {
    while MODE.load(Ordering::SeqCst) == 1 {
        thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: the caller's place.
    unsafe { *new = 0x2400_0006 };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_Comm_free(_: *mut c_int) -> c_int {
    FREED.fetch_add(1, Ordering::SeqCst);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Test(_: *mut c_int, flag: *mut c_int, _: *mut c_void) -> c_int {
    let asked = ASKED.fetch_add(1, Ordering::SeqCst);
    let mode = MODE.load(Ordering::SeqCst);
    // SAFETY: the caller's place.
    unsafe { *flag = c_int::from(mode == 0 && asked % 3 == 2) };
    if mode == 2 { 17 } else { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Get_count(_: *const c_void, _: usize, count: *mut c_int) -> c_int {
    // SAFETY: the caller's place.
    unsafe { *count = 3 };
    0
}

macro_rules! answer {
    ($($name:ident: $value:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(place: *mut c_int) -> c_int {
            // SAFETY: the caller's place.
            unsafe { *place = $value.load(Ordering::SeqCst) };
            0
        }
    )*};
}
answer! {
    MPI_Initialized: INITIALISED;
    MPI_Finalized: FINALISED;
    MPI_Query_thread: LEVEL;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Comm_rank(_: usize, rank: *mut c_int) -> c_int {
    // SAFETY: the caller's place.
    unsafe { *rank = 0 };
    0
}

macro_rules! nothing {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int { 0 }
    )*};
}
nothing! {
    MPI_Comm_set_errhandler MPI_Comm_group MPI_Group_incl MPI_Group_free
    MPI_Comm_create_group MPI_Op_create MPI_Allreduce
}

macro_rules! start {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            STARTED.fetch_add(1, Ordering::SeqCst);
            0
        }
    )*};
}
start! {
    MPI_Iprobe MPI_Ibarrier MPI_Ibcast MPI_Iallreduce MPI_Ireduce MPI_Ireduce_scatter MPI_Ireduce_scatter_block MPI_Iallgather
    MPI_Iallgatherv MPI_Igather MPI_Igatherv MPI_Iscatter MPI_Iscatterv MPI_Ialltoall MPI_Isend MPI_Irecv
}

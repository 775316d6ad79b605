//! What of a library is set better than it comes, through MPI's tools interface.
//!
//! Open MPI 4's `MPI_Iallreduce` on memory in place takes a tree (reduce, then broadcast) whatever the size. Its
//! version of Rabenseifner's algorithm works in place too. Between two hosts, 4 MiB took two thirds of the tree's time
//! by it, and 4 KiB half as long again (0.034 ms).

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::launcher::Family;
use crate::library::Library;

const ALGORITHM: &CStr = c"coll_libnbc_iallreduce_algorithm";
/// Nobody has chosen.
const UNSET: c_int = 0;
const RABENSEIFNER: c_int = 3;

/// Sets it, where it is there and the user has not. MPI is initialised. All ranks do the same.
pub(crate) fn tune(family: Family, library: &Library) {
    if family == Family::OpenMpi {
        // What cannot be set stays slower, no more.
        let _ = choose(library);
    }
}

fn choose(library: &Library) -> Option<()> {
    type Init = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
    type Index = unsafe extern "C" fn(*const c_char, *mut c_int) -> c_int;
    type Alloc = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void, *mut c_int) -> c_int;
    type Access = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;
    let symbol = |name: &str| library.symbol(name).map(|symbol| symbol.as_ptr());
    // SAFETY: MPI's functions of these names have these signatures; Open MPI's handles are pointers.
    let (init, index, alloc, read, write) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Init>(symbol("MPI_T_init_thread")?),
            std::mem::transmute::<*mut c_void, Index>(symbol("MPI_T_cvar_get_index")?),
            std::mem::transmute::<*mut c_void, Alloc>(symbol("MPI_T_cvar_handle_alloc")?),
            std::mem::transmute::<*mut c_void, Access>(symbol("MPI_T_cvar_read")?),
            std::mem::transmute::<*mut c_void, Access>(symbol("MPI_T_cvar_write")?),
        )
    };
    let (mut level, mut at, mut len) = (0, 0, 0);
    let mut handle = std::ptr::null_mut();
    // Room for more than the one number that the variable has.
    let (mut now, mut chosen) = ([UNSET; 64], RABENSEIFNER);
    let ok = |code: c_int| (code == 0).then_some(());
    // SAFETY: places for the answers; the variable is one int, which `len` confirms. The interface stays
    // initialised, as MPI does.
    unsafe {
        ok(init(crate::abi::THREAD_MULTIPLE, &raw mut level))?;
        ok(index(ALGORITHM.as_ptr(), &raw mut at))?;
        ok(alloc(at, std::ptr::null_mut(), &raw mut handle, &raw mut len))?;
        (len == 1).then_some(())?;
        ok(read(handle, now.as_mut_ptr()))?;
        (now[0] == UNSET).then_some(())?;
        ok(write(handle, &raw mut chosen))
    }
}

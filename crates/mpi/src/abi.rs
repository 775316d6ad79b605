//! The two binary interfaces: functions by name, and the handles of each family, which no function gives.
//!
//! A handle is a machine word here. Open MPI's are pointers to data that the library exports, MPICH's are 32-bit
//! numbers. A number goes where a pointer would: in a register, or in a stack slot of 8 bytes, of which the
//! library reads the lower half. Where a library writes a handle, the word is zero before.

use std::ffi::{c_char, c_int, c_void};

use crate::launcher::Family;
use crate::library::Library;

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("handles of both families fit one word on 64-bit little-endian machines only");

/// A communicator, type, operation or request, as the library has it.
pub(crate) type Handle = usize;

/// What a user-defined operation is: `into[i] = from[i] op into[i]`.
pub(crate) type UserFunction =
    unsafe extern "C" fn(*const c_void, *mut c_void, *const c_int, *const c_void);

/// `color` of a process that takes no part in a split. The same in both families.
pub(crate) const UNDEFINED: c_int = -32766;
/// The same in both families.
pub(crate) const THREAD_MULTIPLE: c_int = 3;

/// Any rank, as MPICH has it.
pub(crate) const MPICH_ANY_SOURCE: c_int = -2;
/// The same in both families.
pub(crate) const ANY_TAG: c_int = -1;

/// Room for either family's status (24 and 20 bytes), and more.
#[repr(C, align(16))]
pub(crate) struct Status(pub [u8; 64]);

macro_rules! functions {
    ($($name:ident($($arg:ty),* $(,)?);)*) => {
        /// The functions, each of which returns MPI's code.
        #[allow(non_snake_case)]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> c_int,)*
        }

        impl Functions {
            /// Looks up all. The error is the first name that is missing.
            #[allow(non_snake_case)]
            pub(crate) fn of(library: &Library) -> Result<Self, &'static str> {
                $(let $name = library.symbol(stringify!($name)).ok_or(stringify!($name))?;)*
                // SAFETY: MPI's function of that name has this signature, with a word for each handle.
                Ok(Functions { $($name: unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> c_int>(
                        $name.as_ptr(),
                    )
                },)* })
            }
        }
    };
}

functions! {
    MPI_Error_string(c_int, *mut c_char, *mut c_int);
    MPI_Initialized(*mut c_int);
    MPI_Finalized(*mut c_int);
    MPI_Query_thread(*mut c_int);
    MPI_Init_thread(*const c_int, *const c_void, c_int, *mut c_int);
    MPI_Finalize();
    MPI_Comm_rank(Handle, *mut c_int);
    MPI_Comm_size(Handle, *mut c_int);
    MPI_Comm_set_errhandler(Handle, Handle);
    MPI_Comm_dup(Handle, *mut Handle);
    MPI_Comm_split(Handle, c_int, c_int, *mut Handle);
    MPI_Comm_group(Handle, *mut Handle);
    MPI_Group_incl(Handle, c_int, *const c_int, *mut Handle);
    MPI_Group_free(*mut Handle);
    MPI_Comm_create_group(Handle, Handle, c_int, *mut Handle);
    MPI_Comm_free(*mut Handle);
    MPI_Op_create(UserFunction, c_int, *mut Handle);
    MPI_Test(*mut Handle, *mut c_int, *mut Status);
    MPI_Iprobe(c_int, c_int, Handle, *mut c_int, *mut Status);
    MPI_Get_count(*const Status, Handle, *mut c_int);
    MPI_Ibarrier(Handle, *mut Handle);
    MPI_Ibcast(*mut u8, c_int, Handle, c_int, Handle, *mut Handle);
    MPI_Iallreduce(*const u8, *mut u8, c_int, Handle, Handle, Handle, *mut Handle);
    MPI_Ireduce(*const u8, *mut u8, c_int, Handle, Handle, c_int, Handle, *mut Handle);
    MPI_Ireduce_scatter(*const u8, *mut u8, *const c_int, Handle, Handle, Handle, *mut Handle);
    MPI_Ireduce_scatter_block(*const u8, *mut u8, c_int, Handle, Handle, Handle, *mut Handle);
    MPI_Iallgather(*const u8, c_int, Handle, *mut u8, c_int, Handle, Handle, *mut Handle);
    MPI_Iallgatherv(
        *const u8, c_int, Handle, *mut u8, *const c_int, *const c_int, Handle, Handle, *mut Handle,
    );
    MPI_Igather(*const u8, c_int, Handle, *mut u8, c_int, Handle, c_int, Handle, *mut Handle);
    MPI_Igatherv(
        *const u8, c_int, Handle, *mut u8, *const c_int, *const c_int, Handle, c_int, Handle,
        *mut Handle,
    );
    MPI_Iscatter(*const u8, c_int, Handle, *mut u8, c_int, Handle, c_int, Handle, *mut Handle);
    MPI_Iscatterv(
        *const u8, *const c_int, *const c_int, Handle, *mut u8, c_int, Handle, c_int, Handle,
        *mut Handle,
    );
    MPI_Ialltoall(*const u8, c_int, Handle, *mut u8, c_int, Handle, Handle, *mut Handle);
    MPI_Isend(*const u8, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    MPI_Irecv(*mut u8, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    MPI_Allreduce(*const u8, *mut u8, c_int, Handle, Handle, Handle);
}

macro_rules! handles {
    ($($name:ident: $symbol:literal, $number:literal;)*) => {
        /// Handles that exist from the start.
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct Handles {
            $(pub(crate) $name: Handle,)*
            /// In place of a buffer: the data is in the other one.
            pub(crate) in_place: *mut u8,
        }

        impl Handles {
            /// Of a family. The error is the first symbol that is missing.
            pub(crate) fn of(family: Family, library: &Library) -> Result<Self, &'static str> {
                match family {
                    Family::OpenMpi => Ok(Handles {
                        $($name: library.symbol($symbol).ok_or($symbol)?.as_ptr() as Handle,)*
                        in_place: std::ptr::without_provenance_mut(1),
                    }),
                    Family::Mpich => Ok(Handles {
                        $($name: $number,)*
                        in_place: std::ptr::without_provenance_mut(usize::MAX),
                    }),
                }
            }
        }
    };
}

handles! {
    world: "ompi_mpi_comm_world", 0x4400_0000;
    alone: "ompi_mpi_comm_self", 0x4400_0001;
    no_communicator: "ompi_mpi_comm_null", 0x0400_0000;
    errors_return: "ompi_mpi_errors_return", 0x5400_0001;
    byte: "ompi_mpi_byte", 0x4c00_010d;
    u8: "ompi_mpi_uint8_t", 0x4c00_013b;
    i8: "ompi_mpi_int8_t", 0x4c00_0137;
    i16: "ompi_mpi_int16_t", 0x4c00_0238;
    u16: "ompi_mpi_uint16_t", 0x4c00_023c;
    i32: "ompi_mpi_int32_t", 0x4c00_0439;
    i64: "ompi_mpi_int64_t", 0x4c00_083a;
    f32: "ompi_mpi_float", 0x4c00_040a;
    f64: "ompi_mpi_double", 0x4c00_080b;
    max: "ompi_mpi_op_max", 0x5800_0001;
    min: "ompi_mpi_op_min", 0x5800_0002;
    sum: "ompi_mpi_op_sum", 0x5800_0003;
    product: "ompi_mpi_op_prod", 0x5800_0004;
    band: "ompi_mpi_op_band", 0x5800_0006;
    bor: "ompi_mpi_op_bor", 0x5800_0008;
    bxor: "ompi_mpi_op_bxor", 0x5800_000a;
}

// SAFETY: `in_place` is a number that stands for an address and is never read through.
unsafe impl Send for Handles {}
// SAFETY: as above.
unsafe impl Sync for Handles {}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn numbers_say_the_size_of_their_type() {
        let libc = Library::open(Path::new("libc.so.6")).unwrap();
        let handles = Handles::of(Family::Mpich, &libc).unwrap();
        // MPICH writes the size of a built-in type into the second byte of its handle.
        let size = |handle: Handle| handle >> 8 & 0xff;
        for (handle, bytes) in [
            (handles.byte, 1),
            (handles.u8, 1),
            (handles.i8, 1),
            (handles.i16, 2),
            (handles.u16, 2),
            (handles.i32, 4),
            (handles.i64, 8),
            (handles.f32, 4),
            (handles.f64, 8),
        ] {
            assert_eq!((size(handle), handle >> 16), (bytes, 0x4c00), "{handle:x}");
        }
        assert_eq!(handles.in_place.addr(), usize::MAX);
    }

    #[test]
    fn what_a_library_lacks_is_named() {
        let libc = Library::open(Path::new("libc.so.6")).unwrap();
        assert_eq!(Handles::of(Family::OpenMpi, &libc).unwrap_err(), "ompi_mpi_comm_world");
        assert_eq!(Functions::of(&libc).err(), Some("MPI_Error_string"));
    }
}

//! NCCL's functions, types and return codes.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::driver::StreamHandle;
use crate::loading::dynamic::function_table;
use crate::loading::library::{self, Kind};
use crate::loading::version;
use torchrs_error::{Error, Result};

/// A return code of NCCL. Any number is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct NcclCode(pub(crate) c_int);

impl NcclCode {
    /// All went well.
    pub(crate) const SUCCESS: NcclCode = NcclCode(0);
    /// A call that does not block is under way.
    pub(crate) const IN_PROGRESS: NcclCode = NcclCode(7);
}

/// A communicator of the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct CommHandle(pub(super) usize);

/// What the ranks of a communicator find each other by.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct UniqueId(pub [u8; 128]);

/// How a communicator behaves, as in NCCL 2.18's header; later versions take it too.
#[repr(C)]
pub(crate) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Calls return at once and are polled.
    pub(super) fn without_blocking() -> Config {
        let unset = c_int::MIN;
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: OLDEST as c_uint,
            blocking: 0,
            cga_cluster_size: unset,
            min_ctas: unset,
            max_ctas: unset,
            net_name: std::ptr::null(),
            split_share: unset,
        }
    }
}

/// Types of elements that NCCL knows and torchrs uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names say it")]
pub enum DataType {
    I8 = 0,
    U8 = 1,
    I32 = 2,
    I64 = 4,
    F16 = 6,
    F32 = 7,
    F64 = 8,
    BF16 = 9,
}

/// NCCL's reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Reduction {
    Sum = 0,
    Product = 1,
    Max = 2,
    Min = 3,
    Avg = 4,
}

function_table! {
    /// NCCL's functions that torchrs calls.
    Nccl returns NcclCode;

    /// The library's version.
    fn ncclGetVersion(version: *mut c_int);
    /// Makes an id.
    fn ncclGetUniqueId(id: *mut UniqueId);
    /// Joins a communicator.
    fn ncclCommInitRankConfig(
        comm: *mut CommHandle, world: c_int, id: UniqueId, rank: c_int, config: *mut Config,
    );
    /// Makes communicators of a communicator's ranks.
    fn ncclCommSplit(
        comm: CommHandle, color: c_int, key: c_int, new: *mut CommHandle, config: *mut Config,
    );
    /// Completes what was called.
    fn ncclCommFinalize(comm: CommHandle);
    /// Ends a communicator that was finalised.
    fn ncclCommDestroy(comm: CommHandle);
    /// Ends a communicator and its work at once.
    fn ncclCommAbort(comm: CommHandle);
    /// What has failed, or is under way.
    fn ncclCommGetAsyncError(comm: CommHandle, code: *mut NcclCode);
    /// Combines over all ranks.
    fn ncclAllReduce(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: DataType, op: Reduction,
        comm: CommHandle, stream: StreamHandle,
    );
    /// Gives one rank's data to all.
    fn ncclBroadcast(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: DataType, root: c_int,
        comm: CommHandle, stream: StreamHandle,
    );
    /// Combines over all ranks, for one.
    fn ncclReduce(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: DataType, op: Reduction,
        root: c_int, comm: CommHandle, stream: StreamHandle,
    );
    /// Gives all ranks' data to all.
    fn ncclAllGather(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: DataType, comm: CommHandle,
        stream: StreamHandle,
    );
    /// Combines a part for each rank.
    fn ncclReduceScatter(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: DataType, op: Reduction,
        comm: CommHandle, stream: StreamHandle,
    );
    /// Sends to a rank.
    fn ncclSend(
        send: *const c_void, count: usize, dtype: DataType, peer: c_int, comm: CommHandle,
        stream: StreamHandle,
    );
    /// Receives from a rank.
    fn ncclRecv(
        recv: *mut c_void, count: usize, dtype: DataType, peer: c_int, comm: CommHandle,
        stream: StreamHandle,
    );
    /// Begins a group of calls.
    fn ncclGroupStart();
    /// Starts a group of calls.
    fn ncclGroupEnd();
    others {
        /// A code's text.
        fn ncclGetErrorString(code: NcclCode) -> *const c_char;
        /// The last message of a communicator, or of none.
        fn ncclGetLastError(comm: CommHandle) -> *const c_char;
    }
}

/// The loaded library.
pub(super) struct Loaded {
    pub(super) table: Nccl,
}

impl Nccl {
    /// Turns a return code into a `Result`; what is under way counts as well.
    fn check(&self, call: &str, code: NcclCode) -> Result<()> {
        match code {
            NcclCode::SUCCESS | NcclCode::IN_PROGRESS => Ok(()),
            code => Err(error(call, code, CommHandle::default())),
        }
    }
}

/// The oldest version that can split communicators.
const OLDEST: c_int = 21801;

/// NCCL, loaded at the first call.
///
/// # Errors
/// [`Error::Device`] where there is none, or one that is too old.
pub(super) fn loaded() -> Result<&'static Loaded> {
    static LOADED: OnceLock<Result<Loaded>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(Error::clone)
}

fn load() -> Result<Loaded> {
    let library = library::open(Kind::Nccl)?;
    let found =
        || format!("{} (NCCL {})", library.path().display(), version::of(Kind::Nccl, library));
    let lacks = |symbol: &str| {
        Error::Device(format!("{} has no `{symbol}`; torchrs needs NCCL 2.18 or newer", found()))
    };
    let table = Nccl::load(library).map_err(lacks)?;
    library::check_cuda(Kind::Nccl, library)?;
    let mut number = 0;
    // SAFETY: writes one number.
    unsafe { table.ncclGetVersion(&mut number) }?;
    if number < OLDEST {
        return Err(Error::Device(format!("{} is too old: torchrs needs 2.18 or newer", found())));
    }
    Ok(Loaded { table })
}

/// The error of a call: its name, NCCL's text of the code and its last message.
#[cold]
pub(super) fn error(call: &str, code: NcclCode, communicator: CommHandle) -> Error {
    let Ok(Loaded { table }) = loaded() else {
        return Error::Device(format!("{call}: ({})", code.0));
    };
    let text = |text: *const c_char| {
        // SAFETY: null, or a C string of the library's.
        let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
        text.map_or(String::new(), |text| text.to_string_lossy().trim().to_owned())
    };
    // SAFETY: the first gives a C string for any number; the second takes a communicator or null.
    let (name, message) = unsafe {
        (text((table.ncclGetErrorString)(code)), text((table.ncclGetLastError)(communicator)))
    };
    let message = if message.is_empty() { message } else { format!(": {message}") };
    Error::Device(format!("{call}: {name} ({}){message}", code.0))
}

//! The driver's functions. Return codes are plain numbers, since a newer driver may return codes
//! that this program does not know; `driver()` loads the library and initialises CUDA, once.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null;
use std::sync::OnceLock;

use crate::driver::code::{self, Code};
use crate::loading::dynamic::function_table;
use crate::loading::library::{self, Kind};
use crate::loading::version;
use torchrs_error::{Error, Result};

/// An address in a device's memory.
pub(crate) type DevicePointer = u64;
/// The driver's number of a device.
pub(crate) type DeviceNumber = c_int;
/// A function that a stream calls on the host.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub(crate) struct $name(pub(crate) usize);
    )*};
}

// Addresses of the driver's objects, which torchrs only passes back to it.
handles! {
    /// A context: a process's state on a device.
    Context;
    /// A stream.
    StreamHandle;
    /// An event.
    EventHandle;
    /// Loaded code.
    ModuleHandle;
    /// A kernel in a module.
    FunctionHandle;
    /// A captured graph.
    GraphHandle;
    /// A graph that can be launched.
    GraphExecHandle;
}

/// What another process opens memory or an event by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

function_table! {
    /// The driver's functions that torchrs calls.
    Driver returns Code;

    /// Initialises CUDA in this process.
    fn cuInit(flags: c_uint);
    /// The highest version of CUDA that the driver supports.
    fn cuDriverGetVersion(version: *mut c_int);
    /// A code's name.
    fn cuGetErrorName(code: Code, name: *mut *const c_char);
    /// A code's explanation.
    fn cuGetErrorString(code: Code, text: *mut *const c_char);

    /// How many devices this process may use.
    fn cuDeviceGetCount(count: *mut c_int);
    /// The device of an index.
    fn cuDeviceGet(device: *mut DeviceNumber, index: c_int);
    /// A device's name.
    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: DeviceNumber);
    /// One of a device's figures.
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: DeviceNumber);
    /// A device's memory in bytes.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: DeviceNumber);
    /// The identity of a device, the same in every process.
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: DeviceNumber);
    /// Where on the PCI bus a device is.
    fn cuDeviceGetPCIBusId(text: *mut c_char, len: c_int, device: DeviceNumber);
    /// The context that libraries share.
    fn cuDevicePrimaryCtxRetain(context: *mut Context, device: DeviceNumber);
    /// Gives the shared context back.
    fn cuDevicePrimaryCtxRelease_v2(device: DeviceNumber);
    /// Makes a context the calling thread's.
    fn cuCtxSetCurrent(context: Context);
    /// The calling thread's context.
    fn cuCtxGetCurrent(context: *mut Context);
    /// Waits for all work of the calling thread's context.
    fn cuCtxSynchronize();

    /// Free and total memory of the current device.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    /// Reserves device memory.
    fn cuMemAlloc_v2(address: *mut DevicePointer, bytes: usize);
    /// Gives device memory back, after all work that is under way.
    fn cuMemFree_v2(address: DevicePointer);
    /// Reserves pinned host memory.
    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    /// Gives pinned host memory back.
    fn cuMemFreeHost(address: *mut c_void);
    /// Pins memory that exists.
    fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint);
    /// Ends what `cuMemHostRegister` began.
    fn cuMemHostUnregister(address: *mut c_void);
    /// The address under which a device sees pinned memory.
    fn cuMemHostGetDevicePointer_v2(device: *mut DevicePointer, host: *mut c_void, flags: c_uint);
    /// What kind of memory an address belongs to.
    fn cuPointerGetAttribute(data: *mut c_void, attribute: c_int, address: DevicePointer);

    /// Copies between any two addresses.
    fn cuMemcpyAsync(to: DevicePointer, from: DevicePointer, bytes: usize, stream: StreamHandle);
    /// Copies to the device.
    fn cuMemcpyHtoDAsync_v2(
        to: DevicePointer, from: *const c_void, bytes: usize, stream: StreamHandle,
    );
    /// Copies to the host.
    fn cuMemcpyDtoHAsync_v2(
        to: *mut c_void, from: DevicePointer, bytes: usize, stream: StreamHandle,
    );
    /// Copies within a device.
    fn cuMemcpyDtoDAsync_v2(
        to: DevicePointer, from: DevicePointer, bytes: usize, stream: StreamHandle,
    );
    /// Copies between devices.
    fn cuMemcpyPeerAsync(
        to: DevicePointer, to_context: Context, from: DevicePointer, from_context: Context,
        bytes: usize, stream: StreamHandle,
    );
    /// Fills with a byte.
    fn cuMemsetD8Async(to: DevicePointer, value: u8, count: usize, stream: StreamHandle);
    /// Fills with a word of four bytes.
    fn cuMemsetD32Async(to: DevicePointer, value: c_uint, count: usize, stream: StreamHandle);

    /// Makes a stream.
    fn cuStreamCreateWithPriority(stream: *mut StreamHandle, flags: c_uint, priority: c_int);
    /// Ends a stream when its work is done.
    fn cuStreamDestroy_v2(stream: StreamHandle);
    /// Waits until a stream's work is done.
    fn cuStreamSynchronize(stream: StreamHandle);
    /// Whether a stream's work is done.
    fn cuStreamQuery(stream: StreamHandle);
    /// Lets a stream wait for an event.
    fn cuStreamWaitEvent(stream: StreamHandle, event: EventHandle, flags: c_uint);
    /// Calls a function on the host when a stream reaches it.
    fn cuLaunchHostFunc(stream: StreamHandle, function: HostFunction, data: *mut c_void);
    /// Makes an event.
    fn cuEventCreate(event: *mut EventHandle, flags: c_uint);
    /// Ends an event.
    fn cuEventDestroy_v2(event: EventHandle);
    /// Lets a stream set an event when it reaches it.
    fn cuEventRecord(event: EventHandle, stream: StreamHandle);
    /// Whether an event was reached.
    fn cuEventQuery(event: EventHandle);
    /// Waits until an event is reached.
    fn cuEventSynchronize(event: EventHandle);
    /// Milliseconds between two events.
    fn cuEventElapsedTime(ms: *mut f32, from: EventHandle, to: EventHandle);

    /// Loads code into the current context.
    fn cuModuleLoadData(module: *mut ModuleHandle, image: *const c_void);
    /// Unloads code.
    fn cuModuleUnload(module: ModuleHandle);
    /// A kernel by its name.
    fn cuModuleGetFunction(function: *mut FunctionHandle, module: ModuleHandle, name: *const c_char);
    /// One of a kernel's figures.
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: FunctionHandle);
    /// Sets one of a kernel's figures.
    fn cuFuncSetAttribute(function: FunctionHandle, attribute: c_int, value: c_int);
    /// Starts a kernel.
    fn cuLaunchKernel(
        function: FunctionHandle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint,
        stream: StreamHandle, args: *mut *mut c_void, extra: *mut *mut c_void,
    );
    /// How many blocks of a kernel fit on a multiprocessor.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: FunctionHandle, threads: c_int, shared: usize,
    );

    /// What another process opens memory by.
    fn cuIpcGetMemHandle(handle: *mut IpcHandle, address: DevicePointer);
    /// Opens another process's memory.
    fn cuIpcOpenMemHandle_v2(address: *mut DevicePointer, handle: IpcHandle, flags: c_uint);
    /// Closes another process's memory.
    fn cuIpcCloseMemHandle(address: DevicePointer);
    /// What another process opens an event by.
    fn cuIpcGetEventHandle(handle: *mut IpcHandle, event: EventHandle);
    /// Opens another process's event.
    fn cuIpcOpenEventHandle(event: *mut EventHandle, handle: IpcHandle);
    /// Whether a device can read another one's memory.
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: DeviceNumber, peer: DeviceNumber);
    /// Lets the current context read another device's memory.
    fn cuCtxEnablePeerAccess(peer: Context, flags: c_uint);

    /// Starts to record a stream's work instead of doing it.
    fn cuStreamBeginCapture_v2(stream: StreamHandle, mode: c_uint);
    /// Ends the recording.
    fn cuStreamEndCapture(stream: StreamHandle, graph: *mut GraphHandle);
    /// Whether a stream's work is being recorded.
    fn cuStreamIsCapturing(stream: StreamHandle, status: *mut c_uint);
    /// Sets what the calling thread may do while others record.
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    /// Makes a graph ready for launching.
    fn cuGraphInstantiateWithFlags(exec: *mut GraphExecHandle, graph: GraphHandle, flags: u64);
    /// Launches a graph.
    fn cuGraphLaunch(exec: GraphExecHandle, stream: StreamHandle);
    /// Ends a graph that can be launched.
    fn cuGraphExecDestroy(exec: GraphExecHandle);
    /// Ends a captured graph.
    fn cuGraphDestroy(graph: GraphHandle);
}

impl Driver {
    /// Turns a return code into a `Result`; the error names the call.
    #[inline]
    pub(crate) fn check(&self, call: &str, code: Code) -> Result<()> {
        if code == Code::SUCCESS { Ok(()) } else { Err(self.error(call, code)) }
    }

    /// The error for a return code of a call.
    #[cold]
    pub(crate) fn error(&self, call: &str, code: Code) -> Error {
        let text = |get: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = null();
            // SAFETY: writes the address of a C string that lives as long as the library, or
            // null for a code that it does not know.
            unsafe {
                get(code, &mut text);
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        code::error(call, code, text(self.cuGetErrorName), text(self.cuGetErrorString))
    }
}

/// The driver, loaded and initialised at the first call.
///
/// # Errors
/// [`Error::Device`] where there is no driver, it lacks a function, or it finds no device; the
/// same at every call.
pub(crate) fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
    DRIVER.get_or_init(load).as_ref().map_err(Error::clone)
}

fn load() -> Result<Driver> {
    let library = library::open(Kind::Driver)?;
    let driver = Driver::load(library).map_err(|symbol| {
        let (path, version) = (library.path().display(), version::of(Kind::Driver, library));
        Error::Device(format!("{path} ({} {version}) has no `{symbol}`; {TOO_OLD}", Kind::Driver))
    })?;
    // SAFETY: the driver's initialisation, once, with the only flags there are.
    unsafe { driver.cuInit(0) }?;
    Ok(driver)
}

const TOO_OLD: &str = "torchrs needs a driver for CUDA 12 or newer";

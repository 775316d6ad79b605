//! The driver's return codes that the simulated GPU gives, with their names and texts.

/// A `CUresult`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Code(pub u32);

/// What functions inside give: the value, or the code that the C function returns.
pub type Result<T = ()> = core::result::Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $number:literal, $c_name:literal, $text:literal;)*) => {
        impl Code {
            $(#[doc = $text] pub const $name: Code = Code($number);)*

            /// The name in CUDA's header, ended by a zero byte, and the text that explains it.
            pub fn texts(self) -> Option<(&'static core::ffi::CStr, &'static core::ffi::CStr)> {
                const fn c(text: &'static str) -> &'static core::ffi::CStr {
                    match core::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
                        Ok(text) => text,
                        Err(_) => panic!("a text without its end"),
                    }
                }
                match self.0 {
                    $($number => Some((
                        const { c(concat!($c_name, "\0")) },
                        const { c(concat!($text, "\0")) },
                    )),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    SUCCESS = 0, "CUDA_SUCCESS", "no error";
    INVALID_VALUE = 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument";
    OUT_OF_MEMORY = 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory";
    NOT_INITIALIZED = 3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error";
    DEINITIALIZED = 4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down";
    NO_DEVICE = 100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal";
    INVALID_IMAGE = 200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid";
    INVALID_CONTEXT = 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context";
    MAP_FAILED = 205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed";
    NO_BINARY_FOR_GPU = 209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device";
    PEER_ACCESS_UNSUPPORTED = 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices";
    INVALID_SOURCE = 300, "CUDA_ERROR_INVALID_SOURCE", "device kernel source is invalid";
    OPERATING_SYSTEM = 304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS";
    INVALID_HANDLE = 400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle";
    NOT_FOUND = 500, "CUDA_ERROR_NOT_FOUND", "named symbol not found";
    NOT_READY = 600, "CUDA_ERROR_NOT_READY", "device not ready";
    ILLEGAL_ADDRESS = 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated";
    PEER_ACCESS_ALREADY_ENABLED = 704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled";
    CONTEXT_IS_DESTROYED = 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed";
    ASSERT = 710, "CUDA_ERROR_ASSERT", "device-side assert triggered";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region";
    HARDWARE_STACK_ERROR = 714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error";
    ILLEGAL_INSTRUCTION = 715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered";
    MISALIGNED_ADDRESS = 716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address";
    LAUNCH_FAILED = 719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure";
    NOT_PERMITTED = 800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted";
    NOT_SUPPORTED = 801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported";
    ILLEGAL_STATE = 401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state";
    STREAM_CAPTURE_UNSUPPORTED = 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread";
    UNKNOWN = 999, "CUDA_ERROR_UNKNOWN", "unknown error";
}

impl From<Result> for Code {
    fn from(result: Result) -> Code {
        match result {
            Ok(()) => Code::SUCCESS,
            Err(code) => code,
        }
    }
}

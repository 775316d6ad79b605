//! NCCL's return codes.

use crate::code::Code;
use std::ffi::CStr;

/// A `ncclResult_t`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome(pub i32);

/// What functions inside give.
pub type Result<T = ()> = core::result::Result<T, Outcome>;

impl Outcome {
    /// All went well.
    pub const SUCCESS: Outcome = Outcome(0);
    /// A call of the driver failed.
    pub const UNHANDLED_CUDA_ERROR: Outcome = Outcome(1);
    /// A call of the system failed.
    pub const SYSTEM_ERROR: Outcome = Outcome(2);
    /// A fault of the library's own.
    pub const INTERNAL_ERROR: Outcome = Outcome(3);
    /// An argument makes no sense.
    pub const INVALID_ARGUMENT: Outcome = Outcome(4);
    /// Calls that do not go together.
    pub const INVALID_USAGE: Outcome = Outcome(5);
    /// A peer is gone.
    pub const REMOTE_ERROR: Outcome = Outcome(6);
    /// A call of a communicator that does not block is under way.
    pub const IN_PROGRESS: Outcome = Outcome(7);

    /// NCCL's text of the code.
    pub fn text(self) -> &'static CStr {
        match self.0 {
            0 => c"no error",
            1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
            2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
            3 => c"internal error - please report this issue to the NCCL developers",
            4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
            5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
            6 => c"remote process exited or there was a network error",
            7 => c"NCCL operation in progress",
            _ => c"unknown result code",
        }
    }
}

impl From<Result> for Outcome {
    fn from(result: Result) -> Outcome {
        result.err().unwrap_or(Outcome::SUCCESS)
    }
}

impl From<Code> for Outcome {
    fn from(code: Code) -> Outcome {
        match code {
            Code::INVALID_VALUE | Code::INVALID_HANDLE => Outcome::INVALID_ARGUMENT,
            _ => Outcome::UNHANDLED_CUDA_ERROR,
        }
    }
}

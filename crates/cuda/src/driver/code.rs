//! Return codes of the driver, and what they mean for a user.

use std::ffi::c_uint;
use std::sync::OnceLock;

use torchrs_error::Error;

/// A return code. Any number is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) c_uint);

impl Code {
    /// All went well.
    pub(crate) const SUCCESS: Code = Code(0);
    /// Not enough memory.
    pub(crate) const OUT_OF_MEMORY: Code = Code(2);
    /// No device that this process may use.
    pub(crate) const NO_DEVICE: Code = Code(100);
    /// Work is still under way: an answer, not an error.
    pub(crate) const NOT_READY: Code = Code(600);
    /// Peer access is there already.
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Code = Code(704);
}

impl Code {
    /// Whether the context is lost, and with it all work.
    pub(crate) fn is_sticky(self) -> bool {
        MEANINGS.iter().any(|(number, meaning)| *number == self.0 && matches!(meaning, Sticky))
    }
}

/// What a code means beyond CUDA's own text.
#[derive(Clone, Copy)]
enum Meaning {
    /// The context is lost: every later call fails with the same code.
    Sticky,
    /// Something else that helps.
    Hint(&'static str),
}

use Meaning::{Hint, Sticky};

/// Codes that need an explanation.
const MEANINGS: [(u32, Meaning); 25] = [
    (4, Hint("the process is ending, and the driver with it")),
    (
        34,
        Hint(
            "a stub of libcuda was loaded, which is for linking only; the real one comes with the NVIDIA driver",
        ),
    ),
    (46, Hint("another process has the device to itself (its compute mode is exclusive)")),
    (
        100,
        Hint(
            "the driver works but this process may use no GPU: look at CUDA_VISIBLE_DEVICES and at `nvidia-smi`",
        ),
    ),
    (101, Hint("this process does not see that device: look at CUDA_VISIBLE_DEVICES")),
    (
        201,
        Hint(
            "a handle belongs to another device or process; memory and events cannot be opened by the process that exported them",
        ),
    ),
    (209, Hint("code was compiled for another kind of GPU")),
    (214, Sticky),
    (218, Hint("the compiled kernel is not for this driver: NVRTC may be newer than it")),
    (
        222,
        Hint(
            "NVRTC is newer than the driver: install NVRTC of the driver's CUDA version, or a newer driver",
        ),
    ),
    (226, Sticky),
    (300, Hint("the compiled kernel cannot be read")),
    (700, Sticky),
    (702, Sticky),
    (709, Sticky),
    (710, Sticky),
    (714, Sticky),
    (715, Sticky),
    (716, Sticky),
    (717, Sticky),
    (718, Sticky),
    (719, Sticky),
    (
        803,
        Hint(
            "the kernel module and the user-space driver differ in version: the machine may need a restart after an update",
        ),
    ),
    (900, Hint("this cannot be done while a graph is captured; do it before the capture")),
    (
        901,
        Hint(
            "something during the capture could not be captured (an allocation, a wait, work on a stream that does not belong to it)",
        ),
    ),
];

/// What a user needs to know of a sticky error.
const STICKY: &str = "a kernel that was launched earlier failed, and this call is only where it showed. \
    CUDA cannot be used again in this process, which must be restarted. Kernels run late: run with \
    CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer, to see which one it was";

/// Finds the error of a user's doing behind one that a call shows, if one is known.
pub(crate) type Explain = fn(why: &str) -> Option<Error>;

static EXPLAIN: OnceLock<Explain> = OnceLock::new();

/// From now on sticky errors are explained by this function: of those that are set, the first.
pub(crate) fn explain_by(explain: Explain) {
    let _ = EXPLAIN.set(explain);
}

fn explanation(why: &str) -> Option<Error> {
    EXPLAIN.get().and_then(|explain| explain(why))
}

/// The error of a call: its name, CUDA's name and text of the code, and what it means.
pub(crate) fn error(call: &str, code: Code, name: Option<String>, text: Option<String>) -> Error {
    let call = call.split('_').next().unwrap_or(call);
    let name = name.unwrap_or_else(|| "a code unknown to this driver".to_owned());
    let mut message = format!("{call}: {name} ({})", code.0);
    if let Some(text) = text.filter(|t| !t.is_empty()) {
        message += &format!(": {text}");
    }
    match MEANINGS.iter().find(|(number, _)| *number == code.0) {
        Some((_, Sticky)) => message += &format!("; {STICKY}"),
        Some((_, Hint(hint))) => message += &format!("; {hint}"),
        None => {}
    }
    if let Some(found) = code.is_sticky().then(|| explanation(&message)).flatten() {
        return found;
    }
    if code == Code::OUT_OF_MEMORY { Error::OutOfMemory(message) } else { Error::Device(message) }
}

/// The same error, with what was being done before its message.
#[cold]
pub fn within(what: &str, error: Error) -> Error {
    match error {
        Error::Device(message) => Error::Device(format!("{what}: {message}")),
        Error::OutOfMemory(message) => Error::OutOfMemory(format!("{what}: {message}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(code: u32, name: &str, text: &str) -> String {
        error("cuMemAlloc_v2", Code(code), Some(name.into()), Some(text.into())).to_string()
    }

    #[test]
    fn a_sticky_error_says_that_the_process_must_restart() {
        let text = message(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access");
        assert!(
            text.starts_with(
                "device: cuMemAlloc: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access; "
            ),
            "{text}"
        );
        assert!(text.contains("must be restarted"), "{text}");
    }

    #[test]
    fn codes_are_explained_or_at_least_shown() {
        assert!(message(100, "CUDA_ERROR_NO_DEVICE", "none").contains("CUDA_VISIBLE_DEVICES"));
        let unknown = error("cuInit", Code(4242), None, None).to_string();
        assert_eq!(unknown, "device: cuInit: a code unknown to this driver (4242)");
    }

    #[test]
    fn meanings_are_in_order_and_once() {
        assert!(MEANINGS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}

//! Anomaly mode: nodes remember where their op was called, so that a backward that fails or makes NaN
//! can say which line of the forward pass it belongs to (`torch.autograd.detect_anomaly`); and the first
//! recorded op whose result has NaN is an error that names it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::fmt::Write;
use std::panic::Location;
use std::sync::Arc;

use super::mode::{ANOMALY, AUTOCAST, CHECK_NAN, FORWARD, GRAD, ModeGuard, has_mode, set_mode};
use super::node::{Grads, Node};
use crate::cuda::graph::is_current_stream_capturing;
use crate::error::{Error, catch, throw};
use crate::profiler::modules::{self, Inside};
use crate::storage::Device;
use crate::tensor::Tensor;

/// Where an op was called.
pub(crate) struct Trace {
    at: &'static Location<'static>,
    stack: Backtrace,
    /// Of an op of a backward under `create_graph`: the op whose backward that was.
    parent: Option<Arc<Trace>>,
    /// The module that computed, where somebody asks for it.
    module: Option<Arc<str>>,
}

thread_local! {
    /// The trace of the node whose backward runs on this thread.
    static RUNNING: RefCell<Option<Arc<Trace>>> = const { RefCell::new(None) };
}

/// Frames of a stack that are shown.
const FRAMES: usize = 16;

impl Trace {
    /// In anomaly mode, or where modules are asked for, the trace of an op that was called there.
    #[inline]
    pub fn new(at: &'static Location<'static>) -> Option<Arc<Trace>> {
        (has_mode(ANOMALY) || modules::is_watched()).then(|| Self::of_here(at))
    }

    /// Backward goes back into the module of this trace until the guard is dropped.
    pub fn inside(&self) -> Option<Inside> {
        self.module.clone().filter(|_| modules::is_watched()).map(Inside::new)
    }

    #[cold]
    fn of_here(at: &'static Location<'static>) -> Arc<Trace> {
        let (stack, parent) = match has_mode(ANOMALY) {
            true => (Backtrace::force_capture(), RUNNING.with_borrow(Clone::clone)),
            false => (Backtrace::disabled(), None),
        };
        Arc::new(Trace { at, stack, parent, module: modules::current() })
    }

    fn describe(&self, text: &mut String) {
        let _ = write!(text, "{}", self.at);
        let known = self.stack.status() == BacktraceStatus::Captured;
        let stack = if known { self.stack.to_string() } else { String::new() };
        for frame in callers(&stack).take(FRAMES) {
            let _ = write!(text, "\n    {frame}");
        }
        if let Some(parent) = &self.parent {
            text.push_str("\n  itself part of the backward of an op called at ");
            parent.describe(text);
        }
    }
}

/// The frames of a printed stack that are the user's: neither the recording nor the runtime.
fn callers(stack: &str) -> impl Iterator<Item = String> {
    let mut lines = stack.lines().map(str::trim).peekable();
    let frames = std::iter::from_fn(move || {
        let head = lines.next()?;
        let place = lines.next_if(|next| next.starts_with("at "));
        let name = head.split_once(": ").map_or(head, |(_, name)| name);
        Some((name.to_owned(), place.map(str::to_owned)))
    });
    let own = file!().trim_end_matches("anomaly.rs");
    let runtime = ["std::", "core::", "__", "_start", "rust_", "clone", "start_thread"];
    frames
        .filter(move |(name, place)| match place {
            Some(place) => ![own, "/rustc/", "/nptl/"].iter().any(|part| place.contains(part)),
            None => !runtime.iter().any(|p| name.trim_start_matches('<').starts_with(p)),
        })
        .map(|(name, place)| place.map_or_else(|| name.clone(), |place| format!("{name} {place}")))
}

/// Runs `f` in anomaly mode (`torch.autograd.detect_anomaly`): ops on this thread remember where they were
/// called, and a backward inside that fails, or makes NaN, says so. So does, unlike PyTorch's, the first
/// recorded op whose result has NaN; it says which inputs had it already, and parameters' names, if the
/// module was asked for its parameters. Slow: each op walks the stack and reads its result.
///
/// `TORCHRS_DETECT_ANOMALY=1` in the environment switches the mode on in all threads of any program.
/// While a CUDA graph is captured nothing is looked at.
///
/// ```
/// use torchrs::{Tensor, autograd::detect_anomaly, catch};
/// let x = Tensor::from([-1f64]).requires_grad_(true);
/// let error = catch(|| detect_anomaly(|| (&x.sqrt() * 0.0).sum().backward())).unwrap_err();
/// assert!(error.to_string().contains("`sqrt` gave NaN"));
/// ```
pub fn detect_anomaly<T>(f: impl FnOnce() -> T) -> T {
    let _guard = ModeGuard::new(ANOMALY | CHECK_NAN, 0);
    f()
}

/// Switches anomaly mode on this thread on or off for good (`torch.autograd.set_detect_anomaly`), also where
/// `TORCHRS_DETECT_ANOMALY` switched it on. NaN is looked for as well, until
/// [`set_anomaly_check_nan`]`(false)`.
///
/// ```
/// use torchrs::autograd::{is_anomaly_check_nan_enabled, is_anomaly_enabled, set_detect_anomaly};
/// set_detect_anomaly(true);
/// assert!(is_anomaly_enabled() && is_anomaly_check_nan_enabled());
/// set_detect_anomaly(false);
/// assert!(!is_anomaly_enabled() && !is_anomaly_check_nan_enabled());
/// ```
pub fn set_detect_anomaly(mode: bool) {
    set_mode(ANOMALY, mode);
    set_mode(CHECK_NAN, mode);
}

/// Whether anomaly mode, which must be on, looks for NaN on this thread (the `check_nan` of
/// `torch.autograd.set_detect_anomaly`). Without it only failures are reported.
///
/// ```
/// use torchrs::autograd::{self, is_anomaly_check_nan_enabled, is_anomaly_enabled};
/// autograd::set_detect_anomaly(true);
/// autograd::set_anomaly_check_nan(false);
/// assert!(is_anomaly_enabled() && !is_anomaly_check_nan_enabled());
/// autograd::set_detect_anomaly(false);
/// ```
pub fn set_anomaly_check_nan(check: bool) {
    set_mode(CHECK_NAN, check && is_anomaly_enabled());
}

/// True in anomaly mode (`torch.is_anomaly_enabled`).
pub fn is_anomaly_enabled() -> bool {
    has_mode(ANOMALY)
}

/// True in anomaly mode when NaN is looked for (`torch.is_anomaly_check_nan_enabled`).
pub fn is_anomaly_check_nan_enabled() -> bool {
    has_mode(CHECK_NAN)
}

/// Calls `backward`, which is `node`'s, and names the op when it fails or makes NaN. `called` is where
/// the pass was started.
pub(crate) fn watch(node: &Node, called: &Location<'_>, backward: impl FnOnce() -> Grads) -> Grads {
    /// Also when the backward panics.
    struct Restore(Option<Arc<Trace>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let previous = self.0.take();
            RUNNING.set(previous);
        }
    }
    let result = {
        let _restore = Restore(RUNNING.replace(node.0.trace.clone()));
        catch(backward)
    };
    match result {
        Err(error) => report(node, called, &format!("failed: {error}")),
        Ok(grads) => {
            for (i, grad) in grads.iter().enumerate() {
                if let Some(g) = grad
                    && has_mode(CHECK_NAN)
                    && has_nan(g)
                {
                    let shape = g.shape();
                    report(node, called, &format!("gave NaN for input {i}, of shape {shape:?}"));
                }
            }
            grads
        }
    }
}

/// In anomaly mode, throws when a result of the op `name`, which was called `at`, has NaN.
#[inline]
pub(super) fn watch_forward(
    name: &str,
    inputs: &[&Tensor],
    outputs: &[Tensor],
    at: &'static Location<'static>,
) {
    if has_mode(CHECK_NAN) {
        check_forward(name, inputs, outputs, at);
    }
}

#[cold]
fn check_forward(
    name: &str,
    inputs: &[&Tensor],
    outputs: &[Tensor],
    at: &'static Location<'static>,
) {
    let Some(place) = outputs.iter().position(has_nan) else { return };
    let mut text = format!("`{name}` gave NaN in its result");
    if outputs.len() > 1 {
        let _ = write!(text, " {place}");
    }
    let _ = writeln!(text, ", of shape {:?}", outputs[place].shape());
    for (i, input) in inputs.iter().enumerate() {
        let parameter = input.name_hint();
        // An op in place has overwritten what it was given.
        let changed = outputs.iter().any(|output| output.ptr_eq(input));
        let had = !changed && has_nan(input);
        if parameter.is_none() && !had {
            continue;
        }
        let _ = write!(text, "  input {i}, of shape {:?}", input.shape());
        if let Some(parameter) = parameter {
            let _ = write!(text, ", is the parameter `{parameter}`");
        }
        text.push_str(if had { ", has NaN already\n" } else { "\n" });
    }
    text.push_str("  the op was called at ");
    Trace::of_here(at).describe(&mut text);
    throw(Error::Autograd(text))
}

/// Whether a number of `t` is NaN. False on a stream that is captured, where nothing can be looked at.
fn has_nan(t: &Tensor) -> bool {
    if !t.dtype().is_differentiable() || t.numel() == 0 {
        return false;
    }
    if let Device::Cuda(index) = t.device()
        && is_current_stream_capturing(index).unwrap_or(true)
    {
        return false;
    }
    let _plain = ModeGuard::new(0, ANOMALY | CHECK_NAN | GRAD | FORWARD | AUTOCAST);
    let parts = if t.dtype().is_complex() { t.view_as_real() } else { t.clone() };
    parts.isnan().any().item() != 0.0
}

#[cold]
fn report(node: &Node, called: &Location<'_>, what: &str) -> ! {
    let mut text =
        format!("backward of `{}` {what}\n  backward was called at {called}\n", node.0.name);
    match &node.0.trace {
        Some(trace) => {
            text.push_str("  the op was called at ");
            trace.describe(&mut text);
        }
        None => text.push_str(
            "  where the op was called is not known; run the forward pass in anomaly mode too",
        ),
    }
    throw(Error::Autograd(text))
}

#[cfg(test)]
mod tests {
    use super::callers;

    #[test]
    fn only_the_users_frames_are_shown() {
        let stack = "   0: std::backtrace::Backtrace::create\n             at /rustc/x.rs:1:1\n   1: \
                     attach<f32>\n             at ./src/autograd/record.rs:5:5\n   2: net::forward\n             \
                     at src/net.rs:7:9\n   3: core::main\n";
        let found: Vec<String> = callers(stack).collect();
        assert_eq!(found, ["net::forward at src/net.rs:7:9"]);
    }
}

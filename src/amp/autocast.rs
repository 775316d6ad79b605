//! The region in which ops choose their type, and the thread's state that says so.

use std::cell::Cell;

use super::casts::forget_casts;
use crate::autograd::{AUTOCAST, ModeGuard, has_mode};
use crate::error::{Error, throw};
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// What is asked of the ops of a thread.
#[derive(Clone, Copy)]
pub(super) struct Mode {
    /// On the CPU, on CUDA.
    enabled: [bool; 2],
    dtypes: [Dtype; 2],
    pub(super) cache_enabled: bool,
    /// How many regions are open.
    nesting: u32,
}

thread_local! {
    static MODE: Cell<Mode> = const {
        Cell::new(Mode {
            enabled: [false; 2],
            dtypes: [Dtype::BF16, Dtype::F16],
            cache_enabled: true,
            nesting: 0,
        })
    };
}

/// Place of a device's kind in [`Mode`].
pub(super) fn place(device: Device) -> usize {
    match device {
        // Without memory, as where it will be.
        Device::Cpu => 0,
        Device::Cuda(_) | Device::Meta => 1,
    }
}

/// True when ops on this thread may have to cast; false also inside an op that has been cast.
#[inline]
pub(crate) fn is_active() -> bool {
    has_mode(AUTOCAST)
}

/// Makes ops cast or not until it is dropped.
fn activity(active: bool) -> ModeGuard {
    if active { ModeGuard::new(AUTOCAST, 0) } else { ModeGuard::new(0, AUTOCAST) }
}

pub(super) fn mode() -> Mode {
    MODE.get()
}

impl Mode {
    /// The half type of ops on a device, if they are to be cast.
    pub(super) fn dtype(&self, device: Device) -> Option<Dtype> {
        self.enabled[place(device)].then(|| self.dtypes[place(device)])
    }
}

/// Puts the thread's state back when dropped, also by a panic.
struct Restore {
    _active: ModeGuard,
    mode: Mode,
}

impl Restore {
    fn with(active: bool, mode: Mode) -> Self {
        Restore { _active: activity(active), mode: MODE.replace(mode) }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        MODE.set(self.mode);
        if self.mode.nesting == 0 {
            forget_casts();
        }
    }
}

/// While it lives, ops of this thread compute in the types they are given.
pub(crate) struct Suspended {
    _active: ModeGuard,
}

impl Suspended {
    pub(crate) fn new() -> Self {
        Suspended { _active: activity(false) }
    }
}

/// The state of a moment, for a computation that is repeated later.
#[derive(Clone, Copy)]
pub(crate) struct Snapshot {
    active: bool,
    mode: Mode,
}

impl Snapshot {
    pub(crate) fn take() -> Self {
        Snapshot { active: is_active(), mode: MODE.get() }
    }

    /// Runs `f` in that state.
    pub(crate) fn run<T>(self, f: impl FnOnce() -> T) -> T {
        let _restore = Restore::with(self.active, self.mode);
        f()
    }
}

/// Options of [`autocast_with`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::{Device, Dtype, amp::{AutocastOptions, autocast_with, is_autocast_cache_enabled}};
/// let options = AutocastOptions { cache_enabled: false, ..Default::default() };
/// assert!(!autocast_with(Device::Cpu, Dtype::BF16, options, is_autocast_cache_enabled));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutocastOptions {
    /// False switches casting off inside.
    pub enabled: bool,
    /// Keep the casts of parameters until the outermost region ends, so that a weight that is used
    /// several times is cast once.
    pub cache_enabled: bool,
}

impl Default for AutocastOptions {
    fn default() -> Self {
        AutocastOptions { enabled: true, cache_enabled: true }
    }
}

/// Runs `f` with mixed precision (`torch.autocast`): matrix products, convolutions and attention on
/// that kind of device take their f32 inputs as `dtype` and give `dtype`; losses and others that lose
/// by it are computed in f32; ops of several tensors such as `cat` take the widest type of them;
/// everything else takes what it gets. f64 and integers are left alone. As PyTorch has a list of ops
/// for the CPU and another one for CUDA, so has this.
///
/// Gradients reach a parameter in its own type. Backward itself need not be inside: it computes in the
/// types that forward used. Regions nest, and belong to the thread.
///
/// ```
/// use torchrs::{Device, Dtype, Tensor, amp::autocast};
/// let x = Tensor::ones([2, 2], Dtype::F32);
/// let (product, sum) = autocast(Device::Cpu, Dtype::BF16, || (x.mm(&x), &x + &x));
/// assert_eq!((product.dtype(), sum.dtype()), (Dtype::BF16, Dtype::F32));
/// assert_eq!(x.mm(&x).dtype(), Dtype::F32);
/// ```
///
/// # Panics
/// Throws [`Error::Dtype`] when `dtype` is not F16 or BF16. (PyTorch warns, and does not cast.)
#[track_caller]
pub fn autocast<T>(device_type: Device, dtype: Dtype, f: impl FnOnce() -> T) -> T {
    autocast_with(device_type, dtype, AutocastOptions::default(), f)
}

/// [`autocast`] with options.
///
/// ```
/// use torchrs::{Device, Dtype, Tensor, amp::{AutocastOptions, autocast, autocast_with}};
/// let x = Tensor::ones([2, 2], Dtype::F32);
/// autocast(Device::Cpu, Dtype::BF16, || {
///     let off = AutocastOptions { enabled: false, ..Default::default() };
///     let precise = autocast_with(Device::Cpu, Dtype::BF16, off, || x.mm(&x));
///     assert_eq!((precise.dtype(), x.mm(&x).dtype()), (Dtype::F32, Dtype::BF16));
/// });
/// ```
///
/// # Panics
/// As [`autocast`], when it is enabled.
#[track_caller]
pub fn autocast_with<T>(
    device_type: Device,
    dtype: Dtype,
    options: AutocastOptions,
    f: impl FnOnce() -> T,
) -> T {
    if options.enabled && !matches!(dtype, Dtype::F16 | Dtype::BF16) {
        throw(Error::dtype("autocast", format!("takes bf16 or f16, got {dtype}")));
    }
    let mut mode = MODE.get();
    mode.enabled[place(device_type)] = options.enabled;
    mode.dtypes[place(device_type)] = dtype;
    mode.cache_enabled = options.cache_enabled;
    mode.nesting += 1;
    let _restore = Restore::with(mode.enabled.contains(&true), mode);
    f()
}

/// True when ops on that kind of device are cast on this thread (`torch.is_autocast_enabled`).
///
/// ```
/// use torchrs::{Device, Dtype, amp::{autocast, is_autocast_enabled}};
/// autocast(Device::Cpu, Dtype::BF16, || {
///     assert!(is_autocast_enabled(Device::Cpu) && !is_autocast_enabled(Device::Cuda(0)));
/// });
/// assert!(!is_autocast_enabled(Device::Cpu));
/// ```
pub fn is_autocast_enabled(device_type: Device) -> bool {
    is_active() && MODE.get().enabled[place(device_type)]
}

/// The half type of the innermost region; outside of all, bf16 on the CPU and f16 on CUDA
/// (`torch.get_autocast_dtype`).
///
/// ```
/// use torchrs::{Device, Dtype, amp::{autocast, get_autocast_dtype}};
/// assert_eq!(get_autocast_dtype(Device::Cpu), Dtype::BF16);
/// let inside = autocast(Device::Cpu, Dtype::F16, || get_autocast_dtype(Device::Cpu));
/// assert_eq!(inside, Dtype::F16);
/// ```
pub fn get_autocast_dtype(device_type: Device) -> Dtype {
    MODE.get().dtypes[place(device_type)]
}

/// Whether casts of parameters are kept (`torch.is_autocast_cache_enabled`).
pub fn is_autocast_cache_enabled() -> bool {
    MODE.get().cache_enabled
}

/// Runs an op of your own, one that [`record`](crate::autograd::record) enters into the graph, on
/// inputs of one floating-point type and without casts inside (`torch.amp.custom_fwd` with
/// `cast_inputs`). Outside [`autocast`] it takes the inputs as they are. Its backward runs without
/// casts too, as every backward does.
///
/// ```
/// use torchrs::{Device, Dtype, Tensor, amp::{autocast, custom_fwd}};
/// fn precise_square(x: &Tensor) -> Tensor {
///     custom_fwd(Dtype::F32, &[x], |x| x[0].mm(&x[0]))
/// }
/// let x = Tensor::ones([2, 2], Dtype::BF16);
/// assert_eq!(precise_square(&x).dtype(), Dtype::BF16);
/// assert_eq!(autocast(Device::Cpu, Dtype::BF16, || precise_square(&x)).dtype(), Dtype::F32);
/// ```
pub fn custom_fwd<T>(cast_inputs: Dtype, inputs: &[&Tensor], f: impl FnOnce(&[Tensor]) -> T) -> T {
    let on = inputs.first().is_some_and(|t| is_autocast_enabled(t.device()));
    let _off = on.then(Suspended::new);
    let cast = |t: &&Tensor| match t.dtype() {
        Dtype::F64 => (*t).clone(),
        dtype if on && dtype.is_floating_point() => t.to_dtype(cast_inputs),
        _ => (*t).clone(),
    };
    f(&inputs.iter().map(cast).collect::<Vec<_>>())
}

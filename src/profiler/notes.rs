//! What a process notes on the launcher's board, beside its time. Without a board nothing happens.

use std::sync::Once;
use std::time::Duration;

use torchrs_job::board::own;

use crate::storage::living::now_ns;
use crate::storage::memory_stats;

/// What a process uses of a GPU.
pub(crate) struct GpuUse {
    pub index: usize,
    pub name: &'static str,
    /// Its place on the bus.
    pub bus: &'static str,
    /// Bytes of tensors, now and at most.
    pub bytes: u64,
    pub peak: u64,
}

/// An optimizer has taken a step; `gpu` is asked where the step was on one. What is read here costs less than a
/// microsecond, but for the GPU's name, which is asked for once.
pub(crate) fn step_taken(gpu: impl FnOnce() -> Option<GpuUse>) {
    static DEVICE: Once = Once::new();
    let Some(own) = own() else { return };
    own.counters().count_step();
    own.counters().set_host_memory(memory_stats().in_use as u64);
    let gpu = gpu();
    if let Some(gpu) = &gpu {
        own.counters().set_device_memory(gpu.bytes, gpu.peak);
    }
    DEVICE.call_once(|| match &gpu {
        Some(gpu) => own.set_device(Some((gpu.index, gpu.bus)), gpu.name),
        None => own.set_device(None, "CPU"),
    });
}

/// A thread has waited for other ranks inside a collective.
#[inline]
pub(crate) fn waited_for_ranks(time: Duration) {
    if let Some(own) = own().filter(|_| !time.is_zero()) {
        own.counters().waited_for_ranks(time.as_nanos() as u64);
    }
}

/// Samples are done; what one of them is, where that is known.
pub(crate) fn samples_done(
    samples: usize,
    tokens: Option<f64>,
    flops: Option<f64>,
    peak_flops: Option<f64>,
) {
    if let Some(own) = own() {
        let [tokens, flops, peak] = [tokens, flops, peak_flops].map(|n| n.unwrap_or(0.0));
        own.counters().count_samples(samples as u64, tokens, flops, peak);
    }
}

/// Whether anybody takes what is noted.
pub(crate) fn is_noted() -> bool {
    own().is_some()
}

/// Numbers of a step, by name.
pub(crate) fn scalars(step: u64, scalars: &[(&str, f64)]) {
    if let Some(own) = own() {
        own.log(step, scalars);
    }
}

/// Saves a checkpoint by `save`, and notes that it is there.
pub(crate) fn saving<T, E>(step: u64, save: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let Some(own) = own() else { return save() };
    let start = now_ns();
    let saved = save()?;
    own.saved(step, now_ns().saturating_sub(start));
    Ok(saved)
}

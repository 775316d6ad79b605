//! How long a device takes for what was counted, by a model that leaves everything else out. It says where time goes, and
//! in what order mends pay; it is no measurement.
//!
//! A step is as long as the longer of two: the host's calls, and the device's work. A launch takes the device
//! [`LAUNCH`] at least. Kernels run at [`REACHED`] of the memory's published rate; products at [`PRODUCTS`] of the
//! published rate of dense bf16.

/// Seconds between the begins of two small kernels of a stream.
const LAUNCH: f64 = 2e-6;
/// The part of the memory's rate that elementwise kernels reach.
const REACHED: f64 = 0.85;
/// The part of the tensor cores' rate that large products reach.
const PRODUCTS: f64 = 0.65;

/// Published figures of a device: bytes and bf16 operations a second.
const DEVICES: [(&str, f64, f64); 3] = [
    // NVIDIA's data sheets, SXM modules.
    ("H100", 3.35e12, 989e12),
    ("H200", 4.8e12, 989e12),
    ("B200", 8.0e12, 2250e12),
];

/// What was counted of a step.
pub struct Counted {
    pub launches: u64,
    pub bytes: u64,
    pub library_calls: u64,
    pub flops: u64,
    /// Seconds of the host's thread.
    pub host: f64,
}

/// Milliseconds of a step in bf16 by device: products, kernels' memory, and what small launches add.
pub fn estimates(counted: &Counted) -> Vec<(&'static str, f64)> {
    let of = |&(name, memory, rate): &(&'static str, f64, f64)| {
        let products = counted.flops as f64 / (PRODUCTS * rate);
        let kernels = counted.bytes as f64 / (REACHED * memory);
        let launches = (counted.launches + counted.library_calls) as f64 * LAUNCH;
        // Half of the launches begin while the one before is still at work.
        let device = products + kernels + launches / 2.0;
        (name, device.max(counted.host) * 1e3)
    };
    DEVICES.iter().map(of).collect()
}

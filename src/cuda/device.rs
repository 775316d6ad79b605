//! Devices: how many there are, what they can do, and which one a thread works on.
//!
//! A device's context is the primary one, which other libraries use too. It is made at the first
//! use of the device, so a process that only asks how many there are takes no memory on them.
//! CUDA does not survive a fork; torchrs starts processes by executing a program anew.

pub use torchrs_cuda::device::{
    DeviceGuard, MAX_DEVICES, Properties, Uuid, check_available, current, device_count,
    is_available, memory_info, properties, set_current,
};
pub use torchrs_cuda::work::wait::synchronize;

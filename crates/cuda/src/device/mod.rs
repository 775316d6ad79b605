//! Devices: how many there are, what they can do, and which one a thread works on.
//!
//! It knows nothing of the work on a device: waits for all of it are in `work`.

mod devices;
mod nowhere;

pub use devices::{
    DeviceGuard, MAX_DEVICES, Properties, Uuid, check_available, current, device_count,
    is_available, memory_info, properties, set_current,
};
pub(crate) use devices::{bind, context, number, with_uuid};
pub use nowhere::NOWHERE;

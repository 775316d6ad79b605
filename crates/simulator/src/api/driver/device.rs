//! Devices.

use super::{call, put, put_text};
use crate::code::Code;
use crate::{device, faults, settings};
use std::ffi::c_char;

/// A device by its ordinal.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGet(place: *mut i32, ordinal: i32) -> Code {
    call(|| {
        device::check(ordinal)?;
        put(place, ordinal)
    })
}

/// Its name.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetName(name: *mut c_char, room: i32, device: i32) -> Code {
    call(|| {
        device::check(device)?;
        put_text(name, room, device::NAME)
    })
}

/// One of its numbers.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) -> Code {
    call(|| put(value, device::attribute(device::check(device)?, attribute)?))
}

/// Bytes of its memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> Code {
    call(|| {
        device::check(device)?;
        put(bytes, settings::get().memory)
    })
}

/// What distinguishes it from all others.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) -> Code {
    call(|| put(uuid, device::uuid(device::check(device)?)))
}

/// Its place on the bus, as text.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, room: i32, device: i32) -> Code {
    call(|| {
        let device = device::check(device)?;
        put_text(text, room, &format!("0000:{:02X}:00.0", device::bus(device)))
    })
}

/// Whether it can reach another one's memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> Code {
    call(|| {
        let (device, peer) = (device::check(device)?, device::check(peer)?);
        put(can, i32::from(device != peer && !faults::is_set(settings::Fault::NoPeer)))
    })
}

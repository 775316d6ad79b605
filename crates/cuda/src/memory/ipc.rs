//! Device memory of other processes. A process exports a block as a handle of its segment and an
//! offset; another one opens the segment, once per process however many blocks of it come, and
//! closes it when the last of them is gone. An event that travels along says when the bytes are
//! there (`EventOptions::interprocess`).

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;

use crate::device::{self, Uuid};
use crate::driver::Relaxed;
use crate::driver::code::{Code, within};
use crate::driver::{IpcHandle, driver};
use crate::memory::Block;
use crate::memory::peer;
use crate::work::{synchronisation, wait};
use torchrs_error::{Error, Result};

/// Lets the driver enable peer access where the memory is of another device.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// What another process opens a block by; plain bytes, to be sent as they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MemoryHandle {
    segment: [u8; 64],
    /// The device that the memory is on.
    pub device: Uuid,
    /// Bytes from the segment's beginning.
    pub offset: u64,
    /// The block's bytes.
    pub bytes: u64,
}

impl MemoryHandle {
    /// How many bytes [`MemoryHandle::to_bytes`] gives.
    pub const SIZE: usize = 64 + 16 + 8 + 8;

    /// The handle as bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..64].copy_from_slice(&self.segment);
        bytes[64..80].copy_from_slice(&self.device.0);
        bytes[80..88].copy_from_slice(&self.offset.to_le_bytes());
        bytes[88..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// The handle of [`MemoryHandle::to_bytes`].
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> MemoryHandle {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        MemoryHandle {
            segment: std::array::from_fn(|i| bytes[i]),
            device: Uuid(std::array::from_fn(|i| bytes[64 + i])),
            offset: number(80),
            bytes: number(88),
        }
    }
}

impl fmt::Debug for MemoryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {} of a segment on {}", self.bytes, self.offset, self.device)
    }
}

/// The handle of a block. The block has to live as long as other processes use it; they are not
/// counted here.
///
/// # Errors
/// [`Error::Device`] where the driver refuses.
pub fn export(block: &Block) -> Result<MemoryHandle> {
    device::bind(block.device())?;
    let _relaxed = Relaxed::new()?;
    let mut handle = IpcHandle([0; 64]);
    // SAFETY: a segment's first address; writes 64 bytes.
    unsafe { driver()?.cuIpcGetMemHandle(&mut handle, block.segment() as u64) }?;
    Ok(MemoryHandle {
        segment: handle.0,
        device: device::properties(block.device())?.uuid,
        offset: block.offset() as u64,
        bytes: block.len() as u64,
    })
}

/// A segment of another process, for work on a device.
type Key = (usize, [u8; 64]);

/// An open segment.
struct Open {
    base: u64,
    users: usize,
    /// Whether all users that are gone knew that their work was done.
    idle: bool,
}

/// Segments that this process has opened, by device and handle.
static OPEN: Mutex<Option<HashMap<Key, Open>>> = Mutex::new(None);

/// A block of another process, open in this one.
pub struct Mapping {
    key: Key,
    address: u64,
    bytes: usize,
    /// Its user says that no work uses it any more.
    idle: bool,
}

/// Opens a block of another process on the device that it is on.
///
/// # Errors
/// [`Error::Device`] where this process does not see that device, the other process is gone, or it
/// is this one.
pub fn open(handle: &MemoryHandle) -> Result<Mapping> {
    let device = device::with_uuid(handle.device)?.ok_or_else(|| not_visible(handle))?;
    open_at(handle, device)
}

/// Opens a block of another process for work on a device, which may be another than the one that it
/// is on, if the two have peer access.
///
/// # Errors
/// As [`open`]; and where the two have no peer access.
pub fn open_on(handle: &MemoryHandle, device: usize) -> Result<Mapping> {
    let owner = device::with_uuid(handle.device)?.ok_or_else(|| not_visible(handle))?;
    peer::enable(device, owner)?;
    open_at(handle, device)
}

fn not_visible(handle: &MemoryHandle) -> Error {
    Error::Device(format!(
        "memory of another process is on {}, which this process does not see; give both processes \
         the same CUDA_VISIBLE_DEVICES",
        handle.device
    ))
}

fn open_at(handle: &MemoryHandle, device: usize) -> Result<Mapping> {
    let key = (device, handle.segment);
    // Held while the driver opens: a handle can be open only once.
    let mut open = OPEN.lock();
    let open = open.get_or_insert_default();
    let base = match open.get_mut(&key) {
        Some(segment) => {
            segment.users += 1;
            segment.base
        }
        None => {
            device::bind(device)?;
            let _relaxed = Relaxed::new()?;
            let mut base = 0;
            let segment = IpcHandle(handle.segment);
            // SAFETY: writes one address; the driver checks what it is given.
            unsafe { driver()?.cuIpcOpenMemHandle_v2(&mut base, segment, LAZY_ENABLE_PEER_ACCESS) }
                .map_err(|error| {
                    within(&format!("opening memory of another process ({handle:?})"), error)
                })?;
            open.insert(key, Open { base, users: 1, idle: true });
            base
        }
    };
    Ok(Mapping { key, address: base + handle.offset, bytes: handle.bytes as usize, idle: false })
}

impl Mapping {
    /// The first byte's address on the device.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.address as *mut u8
    }

    /// The block's bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the block has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Closes it without a wait: all work that used it is done.
    pub fn close_idle(mut self) {
        self.idle = true;
    }

    /// The device for whose work it is open.
    pub fn device(&self) -> usize {
        self.key.0
    }
}

impl Clone for Mapping {
    /// One user more of the same segment.
    fn clone(&self) -> Mapping {
        if let Some(segment) = OPEN.lock().as_mut().and_then(|open| open.get_mut(&self.key)) {
            segment.users += 1;
        }
        Mapping { ..*self }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let mut open = OPEN.lock();
        let Some(open) = open.as_mut() else { return };
        let Some(segment) = open.get_mut(&self.key) else { return };
        segment.users -= 1;
        segment.idle &= self.idle;
        if segment.users == 0 {
            close_unused(open);
        }
    }
}

/// Closes segments that nobody uses any more. One for whose work the host may not wait now, or that the driver refuses
/// to close, stays, to be used again or closed with the next one.
fn close_unused(open: &mut HashMap<Key, Open>) {
    let (Ok(driver), Ok(_relaxed)) = (driver(), Relaxed::new()) else { return };
    open.retain(|(device, _), segment| {
        let waits = |segment: &Open| !segment.idle && wait::finish(*device).is_err();
        if segment.users > 0 || device::bind(*device).is_err() || waits(segment) {
            return true;
        }
        // It may wait for the device to unmap the memory.
        synchronisation::count();
        // SAFETY: an open segment without users.
        unsafe { (driver.cuIpcCloseMemHandle)(segment.base) != Code::SUCCESS }
    });
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} {:p} {} bytes of another process", self.key.0, self.as_ptr(), self.bytes)
    }
}

/// How many segments of other processes are open.
pub fn open_segments() -> usize {
    OPEN.lock().as_ref().map_or(0, |open| open.values().filter(|open| open.users > 0).count())
}

/// A mapping of a segment that the driver does not know.
#[cfg(test)]
pub(crate) fn unknown_mapping(device: usize) -> Mapping {
    let key = (device, [0; 64]);
    let segment = Open { base: 0, users: 1, idle: true };
    OPEN.lock().get_or_insert_default().insert(key, segment);
    Mapping { key, address: 0, bytes: 0, idle: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_its_bytes() {
        let handle = MemoryHandle {
            segment: std::array::from_fn(|i| i as u8),
            device: Uuid([7; 16]),
            offset: 1 << 40,
            bytes: 3,
        };
        assert_eq!(MemoryHandle::from_bytes(&handle.to_bytes()), handle);
    }
}

//! The 64 bytes that travel between processes.

use crate::code::{Code, Result};
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What a handle is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Device memory.
    Memory = 0x4d49_5354,
    /// An event.
    Event = 0x4549_5354,
    /// The place where a communicator's ranks meet.
    Communicator = 0x4349_5354,
}

/// What a handle says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Description {
    /// The process that exported it.
    pub process: u32,
    /// When that process began, as the kernel counts it: numbers of processes are used again.
    pub began: u64,
    /// Its descriptor there.
    pub descriptor: i32,
    /// The file's own number, as numbers of descriptors are used again too.
    pub file: u64,
    /// The physical number of its device.
    pub device: u32,
    /// Bytes before the block in its mapping.
    pub offset: u64,
    /// Bytes of the block.
    pub bytes: u64,
}

impl Description {
    /// Of a descriptor of this process.
    pub fn of(fd: &OwnedFd, device: usize, offset: usize, bytes: usize) -> Result<Description> {
        let process = std::process::id();
        Ok(Description {
            process,
            began: began(process).ok_or(Code::OPERATING_SYSTEM)?,
            descriptor: fd.as_raw_fd(),
            file: file_number(fd)?,
            device: crate::device::physical(device) as u32,
            offset: offset as u64,
            bytes: bytes as u64,
        })
    }

    /// As the bytes of a handle.
    pub fn encode(&self, kind: Kind) -> [u8; 64] {
        let mut bytes = [0; 64];
        let words = [
            kind as u64 | u64::from(self.process) << 32,
            self.began,
            self.descriptor as u64 | u64::from(self.device) << 32,
            self.file,
            self.offset,
            self.bytes,
        ];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From the bytes of a handle.
    pub fn decode(bytes: &[u8; 64], kind: Kind) -> Result<Description> {
        let mut words = [0u64; 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = place.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        if words[0] as u32 != kind as u32 {
            return Err(Code::INVALID_HANDLE);
        }
        Ok(Description {
            process: (words[0] >> 32) as u32,
            began: words[1],
            descriptor: words[2] as u32 as i32,
            device: (words[2] >> 32) as u32,
            file: words[3],
            offset: words[4],
            bytes: words[5],
        })
    }

    /// Whether this process exported it.
    pub fn is_own(&self) -> bool {
        self.process == std::process::id() && began(self.process) == Some(self.began)
    }

    /// Opens the file, which must still be the one that was exported.
    pub fn open(&self) -> Result<OwnedFd> {
        if began(self.process) != Some(self.began) {
            return Err(Code::MAP_FAILED);
        }
        let path = CString::new(format!("/proc/{}/fd/{}", self.process, self.descriptor))
            .map_err(|_| Code::UNKNOWN)?;
        // SAFETY: the path is a C string.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(Code::MAP_FAILED);
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        match file_number(&fd)? == self.file {
            true => Ok(fd),
            false => Err(Code::MAP_FAILED),
        }
    }
}

/// When a process began, in the kernel's ticks; nothing when there is none, or only its corpse.
pub fn began(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

/// The number of an open file.
fn file_number(fd: &OwnedFd) -> Result<u64> {
    // SAFETY: all zero bits are a valid `stat`, which the call fills.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        match libc::fstat(fd.as_raw_fd(), &mut stat) {
            0 => Ok(stat.st_ino),
            _ => Err(Code::OPERATING_SYSTEM),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_all() {
        let description = Description {
            process: 7,
            began: 1 << 40,
            descriptor: 12,
            file: 99,
            device: 3,
            offset: 512,
            bytes: 1 << 33,
        };
        let bytes = description.encode(Kind::Memory);
        assert_eq!(Description::decode(&bytes, Kind::Memory), Ok(description));
        assert_eq!(Description::decode(&bytes, Kind::Event), Err(Code::INVALID_HANDLE));
    }

    #[test]
    fn processes_have_beginnings() {
        assert!(began(std::process::id()).is_some());
        assert_eq!(began(u32::MAX), None);
    }
}

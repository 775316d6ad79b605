//! The devices: how many, what they are called, and the numbers that programs ask for.

use crate::code::{Code, Result};
use crate::settings;

/// Threads of a warp.
pub const WARP: u32 = 32;
/// Most threads of a block.
pub const MAX_THREADS: u32 = 1024;
/// Shared memory of a block without asking for more.
pub const SHARED_MEMORY: u32 = 48 << 10;
/// Shared memory of a block that asks for more.
pub const SHARED_MEMORY_OPTIN: u32 = 227 << 10;
/// Shared memory of a multiprocessor.
pub const SHARED_MEMORY_MULTIPROCESSOR: u32 = 228 << 10;
/// Most threads of a multiprocessor.
pub const MAX_THREADS_MULTIPROCESSOR: u32 = 2048;
/// Largest grid along each axis.
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Largest block along each axis.
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// The name of each device.
pub const NAME: &str = "Simulated GPU";
/// The CUDA version that the driver claims, as its header counts it.
pub const DRIVER_VERSION: i32 = 13000;

/// How many devices this process sees.
pub fn count() -> usize {
    settings::get().visible.len()
}

/// Checks an ordinal.
pub fn check(device: i32) -> Result<usize> {
    match usize::try_from(device) {
        Ok(device) if device < count() => Ok(device),
        _ => Err(Code::INVALID_DEVICE),
    }
}

/// The number of a device on this host, which does not depend on what is visible.
pub fn physical(device: usize) -> usize {
    settings::get().visible.get(device).copied().unwrap_or(device)
}

/// The same in all processes of a host, another for each device of all hosts of a job.
pub fn uuid(device: usize) -> [u8; 16] {
    let mut uuid = *b"torchrs-gpu\0\0\0\0\0";
    uuid[11..15].copy_from_slice(&settings::get().host.to_be_bytes());
    uuid[15] = physical(device) as u8;
    uuid
}

/// The bus number of a device; zero is not used.
pub fn bus(device: usize) -> i32 {
    physical(device) as i32 + 1
}

/// `CUdevice_attribute` by its number; those that are not in the table are zero, as for a device
/// without that ability.
pub fn attribute(device: usize, attribute: i32) -> Result<i32> {
    if !(1..=160).contains(&attribute) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(match attribute {
        1 => MAX_THREADS as i32,
        2 => MAX_BLOCK[0] as i32,
        3 => MAX_BLOCK[1] as i32,
        4 => MAX_BLOCK[2] as i32,
        5 => MAX_GRID[0] as i32,
        6 => MAX_GRID[1] as i32,
        7 => MAX_GRID[2] as i32,
        8 => SHARED_MEMORY as i32,
        // Constant memory, bytes.
        9 => 64 << 10,
        10 => WARP as i32,
        // Largest pitch.
        11 => i32::MAX,
        // Registers of a block.
        12 => 65536,
        // Clock in kHz.
        13 => 1_000_000,
        // Texture alignment; copies beside kernels.
        14 => 512,
        15 => 1,
        // Multiprocessors.
        16 => 4,
        // Host memory can be mapped.
        19 => 1,
        // Kernels beside kernels.
        31 => 1,
        33 => bus(device),
        34 => 0,
        // Memory clock in kHz, bus width in bits, L2 in bytes.
        36 => 1_000_000,
        37 => 512,
        38 => 4 << 20,
        39 => MAX_THREADS_MULTIPROCESSOR as i32,
        // Copy engines; one address space with the host.
        40 => 2,
        41 => 1,
        50 => 0,
        // Compute capability 9.0.
        75 => 9,
        76 => 0,
        // Stream priorities; caches of the first level.
        78..=80 => 1,
        81 => SHARED_MEMORY_MULTIPROCESSOR as i32,
        // Registers of a multiprocessor.
        82 => 65536,
        // Ratio of single to double speed.
        87 => 2,
        90 => 1,
        // Registered host memory has the host's pointer.
        91 => 1,
        97 => SHARED_MEMORY_OPTIN as i32,
        99 => 1,
        // Blocks of a multiprocessor; shared memory that the driver keeps for each block.
        106 => 32,
        111 => 1024,
        113 => 1,
        // Events between processes.
        125 => 1,
        _ => 0,
    })
}

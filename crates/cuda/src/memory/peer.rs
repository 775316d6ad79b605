//! Devices that read and write each other's memory directly, over NVLink or PCI Express.

use std::sync::OnceLock;

use crate::device::{self, MAX_DEVICES};
use crate::driver::Relaxed;
use crate::driver::code::Code;
use crate::driver::driver;
use crate::memo::once::TryOnce;
use torchrs_error::{Error, Result};

/// What is known of a pair.
struct Pair {
    can: OnceLock<bool>,
    enabled: TryOnce<()>,
}

static PAIRS: [[Pair; MAX_DEVICES]; MAX_DEVICES] =
    [const { [const { Pair { can: OnceLock::new(), enabled: TryOnce::new() } }; MAX_DEVICES] };
        MAX_DEVICES];

/// Whether a device can use another one's memory directly; a device can always use its own.
///
/// # Errors
/// [`Error::Device`] where there is no such device.
pub fn can_access(device: usize, peer: usize) -> Result<bool> {
    let (number, peer_number) = (device::number(device)?, device::number(peer)?);
    if device == peer {
        return Ok(true);
    }
    let pair = &PAIRS[device][peer];
    if let Some(&can) = pair.can.get() {
        return Ok(can);
    }
    let mut can = 0;
    // SAFETY: two devices of the driver; writes one number.
    unsafe { driver()?.cuDeviceCanAccessPeer(&mut can, number, peer_number) }?;
    Ok(*pair.can.get_or_init(|| can != 0))
}

/// Lets work on a device use another one's memory directly from now on.
///
/// # Errors
/// [`Error::Device`] where the two cannot.
pub fn enable(device: usize, peer: usize) -> Result<()> {
    if !can_access(device, peer)? {
        return Err(Error::Device(format!(
            "cuda:{device} cannot use the memory of cuda:{peer} directly: there is no NVLink or \
             common PCI Express switch between them, or the system (IOMMU, virtual machine) \
             forbids it; see `nvidia-smi topo -p2p r`"
        )));
    }
    if device == peer {
        return Ok(());
    }
    let enabled = PAIRS[device][peer].enabled.get_or_try(|| {
        let context = device::context(peer)?;
        device::bind(device)?;
        let _relaxed = Relaxed::new()?;
        let driver = driver()?;
        // SAFETY: a context that is kept until the process ends.
        match unsafe { (driver.cuCtxEnablePeerAccess)(context, 0) } {
            Code::SUCCESS | Code::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code => Err(driver.error("cuCtxEnablePeerAccess", code)),
        }
    });
    enabled.copied()
}

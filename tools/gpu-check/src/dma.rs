//! A memfd's mapping is registered with the driver, and devices read and write it by themselves.

use torchrs::cuda::{self, Block, PinnedBlock, Stream, copy, device, pinned};
use torchrs::storage::SharedMemory;
use torchrs::{Error, Result};

const BYTES: usize = 64 << 20;

/// Copies there and back without a wait, and says at what rates.
pub fn check() -> Result<()> {
    let bytes = if cuda::is_simulated() { 1 << 20 } else { BYTES };
    let memory = SharedMemory::create("gpu-check", bytes)?;
    let stream = Stream::current(0)?;
    let there = Block::on(bytes, stream)?;
    // SAFETY: the mapping lives longer than the registration, and the stream is waited for before it ends.
    let registered = unsafe { pinned::register(memory.as_ptr(), bytes) }?;
    assert!(pinned::is_pinned(memory.as_ptr(), bytes));
    let (start, middle) = (memory.as_ptr(), bytes / 2);
    for i in 0..bytes {
        // SAFETY: within the mapping, which nobody else knows.
        unsafe { start.add(i).write((i % 251) as u8) };
    }
    let before = cuda::synchronisations();
    // SAFETY: within both; the mapping's halves change places.
    unsafe {
        copy::host_to_device(there.as_ptr(), start, bytes, stream)?;
        copy::device_to_host(start, there.as_ptr().add(middle), middle, stream)?;
        copy::device_to_host(start.add(middle), there.as_ptr(), middle, stream)?;
    }
    if cuda::synchronisations() != before {
        return Err(Error::Other("a copy of registered memory has waited for the device".into()));
    }
    stream.synchronize()?;
    // SAFETY: within the mapping, to which nobody writes any more.
    let wrong =
        (0..bytes).find(|&i| unsafe { *start.add(i) } != ((i + middle) % bytes % 251) as u8);
    if let Some(at) = wrong {
        return Err(Error::Other(format!("byte {at} of {bytes} came back wrong")));
    }
    println!("{bytes} bytes of a memfd went to the device and back without a wait");
    // SAFETY: as above.
    rate("registered memfd to device", bytes, stream, &|| unsafe {
        copy::host_to_device(there.as_ptr(), start, bytes, stream)
    })?;
    // SAFETY: as above.
    rate("device to registered memfd", bytes, stream, &|| unsafe {
        copy::device_to_host(start, there.as_ptr(), bytes, stream)
    })?;
    let block = PinnedBlock::new(bytes)?;
    // SAFETY: blocks of as many bytes, which live until the stream is done.
    rate("pinned block to device", bytes, stream, &|| unsafe {
        copy::host_to_device(there.as_ptr(), block.as_ptr(), bytes, stream)
    })?;
    device::synchronize(0)?;
    drop(registered);
    Ok(())
}

/// Prints the best of five.
fn rate(what: &str, bytes: usize, stream: Stream, copy: &dyn Fn() -> Result<()>) -> Result<()> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = std::time::Instant::now();
        copy()?;
        stream.synchronize()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    if !cuda::is_simulated() {
        println!("{what}: {:.1} GB/s", bytes as f64 / best / 1e9);
    }
    Ok(())
}

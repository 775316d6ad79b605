//! Devices: how many, their figures, the current one.

use std::thread;

use torchrs::Device;
use torchrs::cuda::{self, DeviceGuard, device, library};

/// Nothing is loaded, simulated or set: asking costs nothing and says what is missing.
#[test]
fn a_machine_without_cuda_is_no_error() {
    if library::is_simulated() || cuda::is_available() {
        return println!("skipped: this machine has a GPU");
    }
    assert_eq!(cuda::device_count(), 0);
    let error = device::check_available().unwrap_err().to_string();
    assert!(error.starts_with("device: "), "{error}");
    assert!(error.contains("NVIDIA driver") || error.contains("CUDA_VISIBLE_DEVICES"), "{error}");
    assert!(cuda::Stream::current(0).is_err());
    assert!(cuda::Block::new(1, 0).is_err());
    assert!(cuda::PinnedBlock::new(1).is_err());
    let findings = library::describe();
    assert_eq!(findings.len(), 5);
    findings.iter().for_each(|finding| println!("{finding}"));
}

simulated! {
    fn devices_have_figures() {
        assert!(cuda::is_available());
        for index in 0..cuda::device_count() {
            let figures = device::properties(index)?;
            println!("{figures:?}");
            assert!(!figures.name.is_empty() && figures.capability >= (5, 0));
            assert!(figures.warp_size == 32 && figures.threads_per_block >= 512);
            assert!(figures.multiprocessors > 0 && figures.total_memory > 0);
            assert_eq!(figures.pci_bus_id.split(':').count(), 3);
            let (free, total) = device::memory_info(index)?;
            assert!(free <= total && total <= figures.total_memory);
        }
        let all: Vec<_> = (0..cuda::device_count()).map(|i| device::properties(i).unwrap().uuid).collect();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
        let none = device::properties(99).unwrap_err().to_string();
        assert!(none.starts_with("device: cuda:99 is not there; this process has cuda:0 to"), "{none}");
    }

    fn the_current_device_is_the_threads_own() {
        let last = cuda::device_count() - 1;
        assert_eq!(device::current(), 0);
        {
            let _guard = DeviceGuard::new(last)?;
            assert_eq!(device::current(), last);
            thread::spawn(|| assert_eq!(device::current(), 0)).join().unwrap();
            assert!(DeviceGuard::new(99).is_err());
            assert_eq!(device::current(), last);
        }
        assert_eq!(device::current(), 0);
        let named = |index: usize| {
            let _guard = DeviceGuard::new(index).unwrap();
            "cuda".parse::<Device>().unwrap()
        };
        assert_eq!([named(0), named(1)], [Device::Cuda(0), Device::Cuda(1)]);
        assert!(device::set_current(99).is_err());
        device::synchronize(last)?;
    }

    fn libraries_say_what_they_are() {
        let findings = library::describe();
        findings.iter().for_each(|finding| println!("{finding}"));
        assert!(findings[0].found.is_ok() && findings[1].found.is_ok());
    }

    fn many_threads_may_come_first() {
        let work = || -> torchrs::Result<()> {
            for index in 0..cuda::device_count() {
                let stream = cuda::Stream::current(index)?;
                drop(cuda::Block::on(1000, stream)?);
                stream.synchronize()?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..8).map(|_| thread::spawn(work)).collect();
        for thread in threads {
            thread.join().unwrap()?;
        }
        assert_eq!(cuda::memory::memory_allocated(0)?, 0);
    }
}

//! Memory: copies, the caching allocator, statistics.

use std::time::Duration;

use torchrs::cuda::allocator::ChunkState;
use torchrs::cuda::{self, Block, PinnedBlock, Priority, Stream, copy, memory, peer, pinned};
use torchrs::{Device, Dtype, Tensor};

use crate::support::{download, hold, upload};

const MIB: usize = 1 << 20;

simulated! {
    fn bytes_go_to_the_device_and_come_back() {
        let stream = Stream::current(0)?;
        let values: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
        let there = upload(&values, stream)?;
        let copy_of_it = Block::on(there.len(), stream)?;
        // SAFETY: blocks of the same length on one stream.
        unsafe { copy::device_to_device(copy_of_it.as_ptr(), there.as_ptr(), there.len(), stream) }?;
        assert_eq!(download(copy_of_it.as_ptr(), values.len(), stream)?, values);
        // SAFETY: within the block.
        unsafe {
            copy::fill_words(there.as_ptr().cast(), 2.5f32.to_bits(), 10, stream)?;
            copy::fill_bytes(there.as_ptr().wrapping_add(40), 0, 40, stream)?;
        }
        let filled = download(there.as_ptr(), 21, stream)?;
        assert_eq!((&filled[..10], &filled[10..20], filled[20]), (&[2.5; 10][..], &[0.0; 10][..], 20.0));
        // SAFETY: nothing is copied.
        unsafe { copy::host_to_device(std::ptr::null_mut(), std::ptr::null(), 0, stream) }?;
        assert_eq!(copy::device_of(there.as_ptr())?, Some(0));
        assert_eq!(copy::device_of(values.as_ptr().cast())?, None);
        assert_eq!(copy::device_of(PinnedBlock::new(1)?.as_ptr())?, None);
    }

    fn uploads_have_read_their_source_when_they_return() {
        let stream = Stream::current(0)?;
        // Few bytes, many, and many that somebody has pinned.
        for (count, pin) in [(1000, false), (3 << 20, false), (3 << 20, true)] {
            let x = Tensor::full([count], 7.0, Dtype::F32);
            let storage = x.storage();
            // SAFETY: the tensor outlives the registration.
            let registered = pin.then(|| unsafe { pinned::register(storage.as_ptr(), storage.nbytes()) });
            stream.call_host(|| std::thread::sleep(Duration::from_millis(50)))?;
            let y = x.to_device(Device::Cuda(0));
            x.fill_(1.0);
            assert!(y.to_vec::<f32>().iter().all(|&one| one == 7.0), "{count} {pin}");
            drop(registered.transpose()?);
        }
    }

    fn only_copies_to_memory_that_is_not_pinned_wait() {
        let stream = Stream::current(0)?;
        let values = PinnedBlock::new(4096)?;
        // SAFETY: a block of that length which no device uses yet.
        unsafe { values.as_ptr().write_bytes(7, 4096) };
        let block = Block::on(4096, stream)?;
        let before = cuda::synchronisations();
        let held = hold(stream)?;
        // SAFETY: blocks of the same length, which live until the stream is done.
        unsafe {
            copy::host_to_device(block.as_ptr(), values.as_ptr(), 4096, stream)?;
            copy::fill_bytes(block.as_ptr(), 9, 1000, stream)?;
            copy::device_to_host(values.as_ptr(), block.as_ptr(), 4096, stream)?;
        }
        values.record_stream(stream);
        // SAFETY: the stream is held before it writes.
        assert_eq!(unsafe { *values.as_ptr() }, 7);
        assert_eq!(cuda::synchronisations() - before, 0);
        drop(held);
        stream.synchronize()?;
        // SAFETY: the stream is done.
        assert_eq!(unsafe { [*values.as_ptr(), *values.as_ptr().add(1000)] }, [9, 7]);
        let before = cuda::synchronisations();
        download(block.as_ptr(), 1, stream)?;
        assert_eq!(cuda::synchronisations() - before, 1);
    }

    fn freed_blocks_are_used_again_on_their_stream_at_once() {
        let stream = Stream::new(0, Priority::Normal)?;
        let before = cuda::synchronisations();
        let held = hold(stream)?;
        let block = Block::on(1000, stream)?;
        assert_eq!((block.len(), block.capacity(), block.device(), block.stream()), (1000, 1024, 0, stream));
        let address = block.as_ptr();
        drop(block);
        assert_eq!(Block::on(900, stream)?.as_ptr(), address);
        assert_ne!(Block::on(900, Stream::current(0)?)?.as_ptr(), address);
        assert_eq!(cuda::synchronisations() - before, 0);
        drop(held);
    }

    fn a_block_that_another_stream_used_waits_for_it() {
        let (own, other) = (Stream::current(0)?, Stream::new(0, Priority::Normal)?);
        let held = hold(other)?;
        let block = Block::on(1000, own)?;
        let address = block.as_ptr();
        block.record_stream(other);
        drop(block);
        let statistics = memory::statistics(0)?;
        assert_eq!((statistics.allocated.current, statistics.active.current), (0, 1024));
        let snapshot = memory::snapshot(0)?;
        assert!(snapshot[0].chunks.iter().any(|chunk| chunk.state == ChunkState::Waiting));
        assert_ne!(Block::on(1000, own)?.as_ptr(), address);
        drop(held);
        other.synchronize()?;
        assert_eq!(Block::on(1000, own)?.as_ptr(), address);
    }

    fn memory_runs_out_and_comes_back() ["TORCHRS_SIMULATED_MEMORY" = "64MiB"] {
        let held = Block::new(40 * MIB, 0)?;
        let error = Block::new(40 * MIB, 0).unwrap_err();
        assert!(matches!(error, torchrs::Error::OutOfMemory(_)), "{error}");
        let text = error.to_string();
        println!("{text}");
        assert!(text.starts_with("out of memory: cuda:0 has no room for 40.00 MiB"), "{text}");
        assert!(text.contains("40.00 MiB allocated to tensors"), "{text}");
        drop(held);
        drop(Block::new(50 * MIB, 0)?);
        let statistics = memory::statistics(0)?;
        assert_eq!((statistics.out_of_memory, statistics.retries), (1, 2));
        cuda::memory::empty_cache()?;
        assert_eq!(memory::memory_reserved(0)?, 0);
        memory::set_memory_fraction(0.25, 0)?;
        assert!(Block::new(20 * MIB, 0).is_err());
        drop(Block::new(12 * MIB, 0)?);
    }

    fn pinned_blocks_come_back_when_the_streams_are_done() {
        let stream = Stream::current(0)?;
        let block = PinnedBlock::new(100_000)?;
        let address = block.as_ptr();
        assert!(pinned::is_pinned(address, 100_000) && !pinned::is_pinned(address, 1 << 30));
        block.record_stream(stream);
        let held = hold(stream)?;
        drop(block);
        assert_ne!(PinnedBlock::new(100_000)?.as_ptr(), address);
        drop(held);
        stream.synchronize()?;
        // Two blocks are free by now; one of two requests gets the first.
        let (a, b) = (PinnedBlock::new(100_000)?, PinnedBlock::new(100_000)?);
        assert!(a.as_ptr() == address || b.as_ptr() == address);
        let (in_use, reserved) = pinned::statistics();
        assert!(in_use >= 200_000 && reserved == in_use);
        drop((a, b));
        pinned::empty_cache()?;
        assert_eq!(pinned::statistics(), (0, 0));
        assert!(!pinned::is_pinned(address, 1));
    }

    fn memory_that_exists_can_be_pinned() {
        let mut memory = vec![3u8; MIB];
        let start = memory.as_mut_ptr();
        let stream = Stream::current(0)?;
        {
            // SAFETY: the vector outlives the registration, and the stream is waited for.
            let registered = unsafe { pinned::register(start, MIB) }?;
            assert!(pinned::is_pinned(start.wrapping_add(5), MIB - 5) && registered.len() == MIB);
            assert!(!registered.device_ptr()?.is_null());
            let block = Block::on(MIB, stream)?;
            let before = cuda::synchronisations();
            // SAFETY: as many bytes on both sides.
            unsafe {
                copy::host_to_device(block.as_ptr(), start, MIB, stream)?;
                copy::device_to_host(start, block.as_ptr(), MIB, stream)?;
            }
            assert_eq!(cuda::synchronisations() - before, 0);
            stream.synchronize()?;
            // SAFETY: as above.
            let twice = unsafe { pinned::register(start, MIB) };
            assert!(twice.is_err());
        }
        assert!(!pinned::is_pinned(start, 1));
        assert!(memory.iter().all(|&byte| byte == 3));
    }

    fn bytes_go_from_device_to_device() {
        if cuda::device_count() > 1 {
            let (here, there) = (Stream::current(0)?, Stream::current(1)?);
            let values: Vec<f32> = (0..1000).map(|i| i as f32).collect();
            let (source, target) = (upload(&values, here)?, Block::on(4000, there)?);
            there.wait_stream(here)?;
            // SAFETY: blocks of the same length; the stream waits for the source's.
            unsafe { copy::between_devices((target.as_ptr(), 1), (source.as_ptr(), 0), 4000, there) }?;
            assert_eq!(download(target.as_ptr(), 1000, there)?, values);
            assert_eq!(copy::device_of(target.as_ptr())?, Some(1));
            assert!(peer::can_access(0, 0)?);
            // Without access: `peers.rs`.
            if peer::can_access(1, 0)? {
                peer::enable(1, 0).and_then(|()| peer::enable(1, 0))?;
            }
        }
    }

    fn threads_and_streams_do_not_disturb_each_other() {
        const ROUNDS: usize = 100;
        let work = |thread: usize| -> torchrs::Result<()> {
            let device = thread % cuda::device_count();
            let own = Stream::new(device, Priority::Normal)?;
            let other = Stream::new(device, Priority::Normal)?;
            let kept = Block::on(4 * ROUNDS, other)?;
            for round in 0..ROUNDS {
                let value = (1000 * thread + round) as f32;
                let block = Block::on(1000 + 100 * (round % 7), own)?;
                // SAFETY: within the blocks, which live until both streams are done with them.
                unsafe {
                    copy::fill_words(block.as_ptr().cast(), value.to_bits(), 250, own)?;
                    other.wait_stream(own)?;
                    let place = kept.as_ptr().wrapping_add(4 * round);
                    copy::device_to_device(place, block.as_ptr().wrapping_add(400), 4, other)?;
                }
                block.record_stream(other);
            }
            let expected: Vec<_> = (0..ROUNDS).map(|round| (1000 * thread + round) as f32).collect();
            assert_eq!(download(kept.as_ptr(), ROUNDS, other)?, expected);
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|i| scope.spawn(move || work(i))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        assert_eq!(memory::memory_allocated(0)?, 0);
    }
}

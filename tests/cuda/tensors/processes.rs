//! Tensors of GPUs between processes: one memory, which stays as long as somebody uses it, whoever is killed.

use std::time::{Duration, Instant};

use torchrs::multiprocessing::{Channel, Process, Receiver, Sender, channel};
use torchrs::{Dtype, Result, Tensor, cuda};

use crate::support::last_gpu;

const LONG: Duration = Duration::from_secs(60);

/// Doubles tensors in place and sends what they hold, and themselves.
fn double(_: (), parent: Channel<(Vec<f32>, Tensor), Tensor>) -> Result<()> {
    while let Ok(tensor) = parent.recv() {
        assert_eq!(tensor.device(), last_gpu());
        tensor.mul_(2.0);
        parent.send(&(tensor.to_vec::<f32>(), tensor))?;
    }
    Ok(())
}

/// Takes a tensor and keeps it until it is killed.
fn hold(_: (), parent: Channel<f64, Tensor>) -> Result<()> {
    let tensor = parent.recv()?;
    parent.send(&tensor.item())?;
    std::thread::sleep(LONG);
    drop(tensor);
    Ok(())
}

/// Drops a tensor that its stream still reads, and says so; lets the stream go on when told to.
fn drop_early(_: (), parent: Channel<Option<f32>, Option<Tensor>>) -> Result<()> {
    let tensor = parent.recv()?.expect("a tensor");
    let twice = &tensor * 2.0;
    let stream = cuda::Stream::current(cuda::device_count() - 1)?;
    stream.synchronize()?;
    let held = crate::support::hold(stream)?;
    twice.copy_(&(&tensor * 3.0));
    let before = crate::support::waits();
    drop(tensor);
    assert_eq!(crate::support::waits(), before, "the stream is held: a wait would never end");
    parent.send(&None)?;
    parent.recv()?;
    drop(held);
    parent.send(&Some(twice.item() as f32))?;
    // Until the maker has seen that the lease is over, though this process goes on.
    parent.recv()?;
    assert_eq!(cuda::ipc::open_segments(), 0);
    Ok(())
}

/// Doubles a tensor on a stream that is held back, sends it on to `next`, or home, and drops it at once. Then lets the
/// stream go on.
fn send_on(next: Option<Sender<Tensor>>, parent: Channel<Tensor, Tensor>) -> Result<()> {
    let tensor = parent.recv()?;
    let held = crate::support::hold(cuda::Stream::current(cuda::device_count() - 1)?)?;
    tensor.mul_(2.0);
    match next {
        Some(next) => next.send(&tensor)?,
        None => parent.send(&tensor)?,
    }
    drop(tensor);
    // Time for what wrongly waits for nothing.
    std::thread::sleep(Duration::from_millis(300));
    drop(held);
    // The work would end with this process.
    while parent.recv().is_ok() {}
    Ok(())
}

/// Takes a tensor when its sender has dropped it, and tells what it holds.
fn read_late(tensors: Receiver<Tensor>, parent: Channel<f64, ()>) -> Result<()> {
    std::thread::sleep(Duration::from_millis(100));
    parent.send(&tensors.recv()?.item())
}

/// Bytes of a tensor: far more than other tests share meanwhile.
const LARGE: usize = 64 << 20;

/// Makes two tensors, sends them, and waits until it is killed.
fn make(_: (), parent: Channel<Tensor, ()>) -> Result<()> {
    parent.send(&Tensor::arange(0, 1000, 1, (Dtype::F32, last_gpu())))?;
    parent.send(&Tensor::full([LARGE], 1, (Dtype::U8, last_gpu())))?;
    std::thread::sleep(LONG);
    Ok(())
}

/// Bytes in use on the GPU.
fn allocated() -> Result<usize> {
    cuda::memory::memory_allocated(cuda::device_count() - 1)
}

/// Bytes in use by all processes: of the GPU, or of the machine's shared memory, of which the simulated GPU's is a part.
fn in_use() -> Result<usize> {
    if !cuda::library::is_simulated() {
        let (free, total) = cuda::device::memory_info(cuda::device_count() - 1)?;
        return Ok(total - free);
    }
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("Shmem:")).unwrap();
    Ok(line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10)
}

/// Bytes in use on the GPU once there are `expected`, or after a while.
fn settled(expected: usize) -> Result<usize> {
    let start = Instant::now();
    loop {
        let bytes = allocated()?;
        if bytes == expected || start.elapsed() > LONG {
            return Ok(bytes);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

simulated! {
    fn both_processes_see_each_others_writes() {
        let (child, channel) = Process::builder().spawn_connected(double, ())?;
        let before = allocated()?;
        let base = Tensor::arange(0, 6, 1, (Dtype::F32, last_gpu())).view([2, 3]);
        // Work that is not done when the message leaves.
        base.add_(1.0);
        channel.send(&base.select(1, 2))?;
        let (seen, back) = channel.recv_timeout(LONG)?;
        assert_eq!(seen, [6.0, 12.0]);
        assert_eq!(base.to_vec::<f32>(), [1., 2., 6., 4., 5., 12.]);
        assert!(back.storage().ptr_eq(base.storage()) && base.is_shared());
        // The same storage again is the same storage there.
        channel.send(&base.t())?;
        assert_eq!(channel.recv_timeout(LONG)?.0, [2., 8., 4., 10., 12., 24.]);
        drop((base, back));
        drop(channel);
        child.join_timeout(LONG)?;
        assert_eq!(settled(before)?, before);
    }

    fn memory_stays_until_the_last_process_lets_go() {
        let before = allocated()?;
        let (child, channel) = Process::builder().spawn_connected(hold, ())?;
        let tensor = Tensor::full([1], 7.0, (Dtype::F32, last_gpu()));
        channel.send(&tensor)?;
        assert_eq!(channel.recv_timeout(LONG)?, 7.0);
        drop(tensor);
        std::thread::sleep(Duration::from_millis(50));
        assert!(allocated()? > before, "the other process still has it");
        let pid = nix::unistd::Pid::from_raw(child.pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("a child to kill");
        assert_eq!(settled(before)?, before);
    }

    fn a_lease_ends_when_the_streams_are_done() {
        let before = allocated()?;
        let (child, channel) = Process::builder().spawn_connected(drop_early, ())?;
        channel.send(&Some(Tensor::full([1], 7.0, (Dtype::F32, last_gpu()))))?;
        assert_eq!(channel.recv_timeout(LONG)?, None);
        std::thread::sleep(Duration::from_millis(50));
        assert!(allocated()? > before, "a stream of the other process still reads it");
        channel.send(&None)?;
        assert_eq!(channel.recv_timeout(LONG)?, Some(21.0));
        assert_eq!(settled(before)?, before);
        channel.send(&None)?;
        child.join_timeout(LONG)?;
    }

    /// FAULTS row 42.
    fn tensors_outlive_their_maker_and_are_freed_at_last() {
        let (child, channel) = Process::builder().spawn_connected(make, ())?;
        let (tensor, large) = (channel.recv_timeout(LONG)?, channel.recv_timeout(LONG)?);
        // Work that its maker has only begun dies with it.
        assert_eq!(large.select(0, -1).item(), 1.0);
        let pid = nix::unistd::Pid::from_raw(child.pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("a child to kill");
        assert!(!child.wait_timeout(LONG)?.success());
        tensor.add_(1.0);
        assert_eq!(tensor.sum().item(), 500_500.0);
        let others = Tensor::zeros([1000], (Dtype::F32, last_gpu()));
        assert_eq!((&tensor + &others).select(0, 999).item(), 1000.0);
        large.select(0, -1).add_(2);
        assert_eq!(large.narrow(0, LARGE as i64 - 2, 2).to_vec::<u8>(), [1, 3]);

        let before = in_use()?;
        drop((tensor, large, channel));
        let start = Instant::now();
        while cuda::ipc::open_segments() > 0 || in_use()? + LARGE / 4 * 3 > before {
            let (open, now) = (cuda::ipc::open_segments(), in_use()?);
            assert!(start.elapsed() < LONG, "{open} segments are open, {now} of {before} bytes in use");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn a_message_that_nobody_reads_keeps_nothing() {
        let before = allocated()?;
        let (sender, receiver) = channel::<Tensor>()?;
        sender.send(&Tensor::zeros([1000], (Dtype::F32, last_gpu())))?;
        assert!(allocated()? > before);
        drop((sender, receiver));
        assert_eq!(settled(before)?, before);
    }

    fn a_tensor_that_is_sent_on_and_dropped_can_still_be_waited_for() {
        let before = allocated()?;
        let (sender, receiver) = channel::<Tensor>()?;
        let (second, last) = Process::builder().spawn_connected(read_late, receiver)?;
        let (first, middle) = Process::builder().spawn_connected(send_on, Some(sender))?;
        middle.send(&Tensor::full([1], 7.0, (Dtype::F32, last_gpu())))?;
        assert_eq!(last.recv_timeout(LONG)?, 14.0);
        drop((middle, last));
        first.join_timeout(LONG)?;
        second.join_timeout(LONG)?;
        assert_eq!(settled(before)?, before);
    }

    fn a_tensor_that_comes_home_has_what_was_done_to_it() {
        let (child, channel) = Process::builder().spawn_connected(send_on, None)?;
        let tensor = Tensor::full([1], 7.0, (Dtype::F32, last_gpu()));
        channel.send(&tensor)?;
        std::thread::sleep(Duration::from_millis(100));
        let back = channel.recv_timeout(LONG)?;
        assert!(back.storage().ptr_eq(tensor.storage()));
        assert_eq!(tensor.item(), 14.0);
        drop(channel);
        child.join_timeout(LONG)?;
    }

    fn a_tensor_that_comes_home_is_itself() {
        let (sender, receiver) = channel::<Tensor>()?;
        let tensor = Tensor::zeros([4], (Dtype::F32, last_gpu()));
        sender.send(&tensor)?;
        assert!(receiver.recv()?.storage().ptr_eq(tensor.storage()));
    }
}

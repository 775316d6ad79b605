//! Two processes that pass a tensor of the GPU to and fro, each behind kernels that are slow: whoever reads before the
//! other's work is done reads what was there before.

use std::time::Duration;

use torchrs::multiprocessing::{Channel, Process};
use torchrs::{Dtype, Error, Result, Tensor, cuda, no_grad};

use crate::bench::{GPU, normal};

const LONG: Duration = Duration::from_secs(10);

/// Work that takes the device much longer than a message takes.
struct Slow(Tensor);

impl Slow {
    fn new() -> Slow {
        let side = if cuda::is_simulated() { 16 } else { 2048 };
        Slow(normal(&[side, side], Dtype::BF16))
    }

    fn run(&self) {
        no_grad(|| (0..10).for_each(|_| drop(self.0.matmul(&self.0))));
    }
}

fn child(_: (), parent: Channel<Tensor, Tensor>) -> Result<()> {
    let slow = Slow::new();
    while let Ok(tensor) = parent.recv() {
        slow.run();
        tensor.add_(1.0);
        parent.send(&tensor)?;
    }
    Ok(())
}

/// Both add 1, in turns.
pub fn check() -> Result<()> {
    let rounds = if cuda::is_simulated() { 5 } else { 200 };
    let (child, channel) = Process::builder().spawn_connected(child, ())?;
    let slow = Slow::new();
    let base = Tensor::zeros([1 << 16], (Dtype::F32, GPU));
    for round in 0..rounds {
        slow.run();
        base.add_(1.0);
        // Another view each time, and another part of the memory.
        channel.send(&base.narrow(0, round % 7, (1 << 16) - 7))?;
        let back = channel.recv_timeout(LONG)?;
        // Not each time: a look waits for the device.
        if round % 10 == 9 {
            let (found, want) = (back.select(0, 10).item(), f64::from(2 * round as u32 + 2));
            if found != want {
                return Err(Error::Other(format!("round {round}: {found}, not {want}")));
            }
        }
    }
    let middle = base.narrow(0, 7, (1 << 16) - 14).to_vec::<f32>();
    let want = 2.0 * rounds as f32;
    if let Some(place) = middle.iter().position(|&x| x != want) {
        let message =
            format!("element {place} is {} after {rounds} rounds, not {want}", middle[place]);
        return Err(Error::Other(message));
    }
    drop(channel);
    child.join_timeout(LONG)?;
    println!("{rounds} rounds of a tensor to another process and back, each behind slow kernels");
    Ok(())
}

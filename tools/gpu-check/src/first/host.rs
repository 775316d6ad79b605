//! What an op costs the host's thread, and that none waits for the device.

use std::time::Instant;

use torchrs::cuda::{self, Stream};
use torchrs::{Dtype, Error, Result, Tensor, no_grad};

use crate::bench::{GPU, normal};

/// Calls between two looks at the clock: few enough that the device's queue never holds the host up.
const CALLS: usize = 200;

/// Prints the least microseconds of a call.
pub fn check() -> Result<()> {
    let stream = Stream::current(0)?;
    let (a, b) = (normal(&[1024], Dtype::F32), normal(&[1024], Dtype::F32));
    let (m, n) = (normal(&[64, 64], Dtype::BF16), normal(&[64, 64], Dtype::BF16));
    let leaf = normal(&[1024], Dtype::F32).requires_grad_(true);
    let calls: [(&str, &dyn Fn()); 7] = [
        ("add", &|| no_grad(|| drop(&a + &b))),
        ("add_", &|| no_grad(|| _ = a.add_(&b))),
        ("sum", &|| no_grad(|| drop(a.sum()))),
        ("softmax", &|| no_grad(|| drop(m.softmax(-1)))),
        ("matmul", &|| no_grad(|| drop(m.matmul(&n)))),
        ("empty", &|| drop(Tensor::empty([1024], (Dtype::F32, GPU)))),
        ("add, recorded", &|| drop(&leaf + &b)),
    ];
    let mut said = Vec::new();
    for (name, call) in calls {
        let mut least = f64::INFINITY;
        // The first call compiles and plans.
        call();
        for _ in 0..if cuda::is_simulated() { 1 } else { 20 } {
            stream.synchronize()?;
            let before = cuda::synchronisations();
            let start = Instant::now();
            (0..CALLS).for_each(|_| call());
            least = least.min(start.elapsed().as_secs_f64() / CALLS as f64);
            if cuda::synchronisations() != before {
                return Err(Error::Other(format!("{name} has waited for the device")));
            }
        }
        said.push(format!("{name} {:.1}", least * 1e6));
    }
    stream.synchronize()?;
    println!("microseconds of the host for a call: {}", said.join(", "));
    Ok(())
}

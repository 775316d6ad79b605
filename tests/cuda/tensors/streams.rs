//! Streams and autograd: each backward runs on its forward's stream, and for the caller a pass is work on the current
//! one.

use torchrs::cuda::{Priority, Stream, StreamGuard};
use torchrs::{Device, Tensor, autograd, catch};

use super::compare::numbers;
use crate::support::hold;
use torchrs::Dtype::F64;

const GPU: Device = Device::Cuda(0);

fn leaf(shape: &[usize], device: Device) -> Tensor {
    numbers(shape, 3, F64).to_device(device).detach().requires_grad_(true)
}

/// Something whose backward reads what its forward saved.
fn loss(x: &Tensor) -> Tensor {
    let y = (x * 0.5).exp();
    ((&y * x).sin() * y.matmul(&x.t()).sum()).sum()
}

/// Takes memory that a stream has free, and spoils it.
fn spoil(stream: Stream, numel: usize) -> torchrs::Result<()> {
    let _current = StreamGuard::new(stream)?;
    let all: Vec<Tensor> = (0..12).map(|_| Tensor::full([numel], f64::NAN, (F64, GPU))).collect();
    drop(all);
    Ok(())
}

fn near(a: &Tensor, b: &Tensor) {
    let (a, b) = (a.cpu().to_vec::<f64>(), b.to_vec::<f64>());
    let far =
        a.iter().zip(&b).position(|(a, b)| (a - b).abs() > 1e-9 * b.abs().max(1.0) || a.is_nan());
    assert!(far.is_none(), "{far:?}: {} and {}", a[far.unwrap()], b[far.unwrap()]);
}

/// Forward on one stream, backward on another, either of which is held back.
fn across(forward: Stream, backward: Stream) -> torchrs::Result<()> {
    let expected = leaf(&[9, 30], Device::Cpu);
    loss(&expected).backward();
    let expected = expected.grad().unwrap();
    for held_first in [true, false] {
        let x = leaf(&[9, 30], GPU);
        for stream in [forward, backward] {
            stream.wait_stream(Stream::default_of(0)?)?;
        }
        let mut held = held_first.then(|| hold(forward)).transpose()?;
        let y = {
            let _current = StreamGuard::new(forward)?;
            loss(&x)
        };
        if !held_first {
            held = Some(hold(backward)?);
        }
        let grad = {
            let _current = StreamGuard::new(backward)?;
            y.backward();
            drop(y);
            spoil(forward, 9 * 30)?;
            spoil(backward, 9 * 30)?;
            // Its first use is of the kind that any op of the caller makes.
            x.grad().unwrap() + 0.0
        };
        drop(held);
        backward.synchronize()?;
        near(&grad, &expected);
    }
    Ok(())
}

simulated! {
    fn forward_on_a_side_stream_and_backward_outside() ["TORCHRS_SIMULATED_ADVERSARY" = "21"] {
        across(Stream::new(0, Priority::Normal)?, Stream::default_of(0)?)?;
    }

    fn backward_on_a_side_stream() ["TORCHRS_SIMULATED_ADVERSARY" = "22"] {
        let side = Stream::new(0, Priority::Normal)?;
        across(Stream::default_of(0)?, side)?;
        across(Stream::new(0, Priority::Normal)?, side)?;
    }

    /// Gradients of one leaf from three streams, added to one that is there, and the same returned.
    fn gradients_of_several_streams_meet() ["TORCHRS_SIMULATED_ADVERSARY" = "23"] {
        let streams = [Stream::new(0, Priority::Normal)?, Stream::new(0, Priority::High)?];
        let main = Stream::default_of(0)?;
        let total = |x: &Tensor, side: bool| -> torchrs::Result<(Tensor, Vec<std::sync::mpsc::Sender<()>>)> {
            let (mut sum, mut held) = (loss(&(x * 3.0)), Vec::new());
            for (i, stream) in streams.iter().enumerate() {
                let branch = if side {
                    stream.wait_stream(main)?;
                    held.push(hold(*stream)?);
                    let _current = StreamGuard::new(*stream)?;
                    loss(&(x * (i + 1) as f64))
                } else {
                    loss(&(x * (i + 1) as f64))
                };
                if side {
                    main.wait_stream(*stream)?;
                    branch.record_stream(main);
                }
                sum = sum + branch;
            }
            Ok((sum, held))
        };
        let (a, b) = (leaf(&[7, 20], Device::Cpu), leaf(&[7, 20], GPU));
        for _ in 0..3 {
            total(&a, false)?.0.backward();
            let (y, held) = total(&b, true)?;
            y.backward();
            drop(y);
            for stream in streams {
                spoil(stream, 7 * 20)?;
            }
            drop(held);
        }
        near(&b.grad().unwrap(), &a.grad().unwrap());
        // Differentiated twice.
        let twice = |x: &Tensor, y: &Tensor| {
            let first = autograd::grad(&[y], &[x], &[None], autograd::GraphMode::Create)[0].clone().unwrap();
            let second = autograd::grad(&[&(&first * &first).sum()], &[x], &[None], autograd::GraphMode::Free);
            (first.detach(), second[0].clone().unwrap())
        };
        let (y, held) = total(&b, true)?;
        let found = twice(&b, &y);
        drop((y, held));
        let expected = twice(&a, &total(&a, false)?.0);
        near(&found.0, &expected.0);
        near(&found.1, &expected.1);
    }

    fn memory_stays_for_streams_that_are_recorded() {
        let (main, side) = (Stream::default_of(0)?, Stream::new(0, Priority::Normal)?);
        let x = Tensor::full([4000], 2.0, (F64, GPU));
        side.wait_stream(main)?;
        let held = hold(side)?;
        let y = {
            let _current = StreamGuard::new(side)?;
            &x * 3.0
        };
        x.narrow(0, 5, 7).record_stream(side);
        drop(x);
        spoil(main, 4000)?;
        drop(held);
        side.synchronize()?;
        assert_eq!(y.cpu().to_vec::<f64>(), vec![6.0; 4000]);
        let error = catch(|| Tensor::ones([2], F64).record_stream(side)).unwrap_err().to_string();
        assert!(error.contains("record_stream") && error.contains("cpu"), "{error}");
    }
}

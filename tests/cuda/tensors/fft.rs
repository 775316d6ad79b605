//! Fourier transforms, forward and backward.

use torchrs::fft::{self, IstftOptions, Norm, StftOptions};
use torchrs::{Device, Dtype, Tensor};

use super::near::{numbers, same, with_gradients};

const TYPES: [(Dtype, f64); 2] = [(Dtype::F64, 1e-11), (Dtype::F32, 1e-4)];

/// Complex numbers of these shapes; a transform of n numbers grows with n, its rounding errors hardly.
fn signal(shape: &[usize], dtype: Dtype, device: Device) -> Tensor {
    let pairs: Vec<usize> = shape.iter().copied().chain([2]).collect();
    numbers(&pairs, dtype).to_device(device)
}

fn real(y: Tensor) -> Tensor {
    if y.is_complex() { y.view_as_real() } else { y }
}

/// Lengths of every radix, of several launches in some types, and with large prime factors.
const LENGTHS: [usize; 24] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 16, 21, 30, 31, 64, 100, 127, 144, 210, 384, 1001, 2048,
];

simulated! {
    fn lines_of_all_lengths() {
        for (dtype, tolerance) in TYPES {
            for n in LENGTHS {
                same(&format!("{dtype} {n}"), tolerance, |device| {
                    let x = signal(&[3, n], dtype, device).view_as_complex();
                    let there = fft::fft(&x, None, -1, Norm::Ortho);
                    let back = fft::ifft(&x, None, -1, Norm::Ortho);
                    vec![real(there), real(back)]
                });
            }
        }
    }

    fn long_lines() {
        for (dtype, tolerance) in TYPES {
            for (rows, n) in [(2, 4096), (1, 8192), (1, 9000), (2, 4099), (1, 1 << 17)] {
                same(&format!("{dtype} {n}"), tolerance * 2.0, |device| {
                    let x = signal(&[rows, n], dtype, device).view_as_complex();
                    let half = fft::rfft(&x.real(), None, -1, Norm::Ortho);
                    let back = fft::irfft(&x.narrow(1, 0, n / 2 + 1), Some(n), -1, Norm::Ortho);
                    vec![real(fft::fft(&x, None, -1, Norm::Ortho)), real(half), back]
                });
            }
        }
    }

    fn single_precision_loses_little() {
        for n in [8, 64, 1000, 1024, 4096, 1009, 8192, 6561] {
            let x = signal(&[2, n], Dtype::F64, Device::Cpu).view_as_complex();
            let exact = fft::fft(&x, None, -1, Norm::Backward);
            let single = x.to_dtype(Dtype::C64).to_device(Device::Cuda(0));
            let got = fft::fft(&single, None, -1, Norm::Backward).cpu().to_dtype(Dtype::C128);
            let size = |z: &Tensor| z.abs().square().mean().item().sqrt();
            let error = size(&(&got - &exact)) / size(&exact);
            // Bluestein's way is three transforms.
            let bound = if n == 1009 { 4e-7 } else { 2e-7 };
            assert!(error < bound, "{n}: {error}");
        }
    }

    fn lines_side_by_side() {
        for (dtype, tolerance) in TYPES {
            for (shape, dim) in [(&[6, 5][..], 0), (&[2, 8, 3], 1), (&[3, 16, 40], 1), (&[2048, 3], 0), (&[13, 300], 0), (&[0, 4], 1)] {
                same(&format!("{dtype} {shape:?}"), tolerance, |device| {
                    let x = signal(shape, dtype, device).view_as_complex();
                    let mut all = vec![real(fft::fft(&x, None, dim, Norm::Ortho))];
                    if x.numel() > 0 {
                        all.push(real(fft::ifft(&x.transpose(0, -1), None, dim, Norm::Ortho)));
                    }
                    all
                });
            }
        }
    }

    fn real_signals() {
        for (dtype, tolerance) in TYPES {
            for n in LENGTHS {
                same(&format!("{dtype} {n}"), tolerance, |device| {
                    let x = numbers(&[3, n + 1], dtype).to_device(device);
                    // Beginning at an odd place, too.
                    let (a, b) = (x.narrow(1, 0, n), x.select(0, 1).narrow(0, 1, n));
                    let z = signal(&[2, n / 2 + 1], dtype, device).view_as_complex();
                    vec![
                        real(fft::rfft(&a, None, -1, Norm::Ortho)),
                        real(fft::rfft(&b, None, 0, Norm::Ortho)),
                        real(fft::ihfft(&a.t(), None, 0, Norm::Ortho)),
                        fft::irfft(&z, Some(n), -1, Norm::Ortho),
                        fft::hfft(&z.t().contiguous(), Some(n), 0, Norm::Ortho),
                    ]
                });
            }
        }
    }

    fn several_dimensions_and_gradients() {
        for (dtype, tolerance) in TYPES {
            let x = numbers(&[4, 6, 5], dtype);
            type Op = fn(&Tensor) -> Tensor;
            let ops: [(&str, Op); 8] = [
                ("fft2", |x| fft::fft2(x, None, None, Norm::Ortho)),
                ("ifftn", |x| fft::ifftn(x, Some(&[8, 4]), Some(&[0, 2]), Norm::Backward)),
                ("rfftn", |x| fft::rfftn(x, None, None, Norm::Ortho)),
                ("rfft", |x| fft::rfft(x, Some(9), 1, Norm::Forward)),
                ("irfftn", |x| fft::irfftn(&fft::fft(x, None, 1, Norm::Ortho), None, None, Norm::Ortho)),
                ("irfft", |x| fft::irfft(&fft::fft(x, None, 0, Norm::Ortho), Some(7), 0, Norm::Ortho)),
                ("hfftn", |x| fft::hfftn(&x.to_complex(), Some(&[3, 5]), Some(&[0, 1]), Norm::Ortho)),
                ("shifts", |x| fft::fftshift(x, None) * fft::ifftshift(x, Some(&[-1]))),
            ];
            for (name, op) in ops {
                same(&format!("{name} {dtype}"), tolerance, |device| {
                    with_gradients(&[x.to_device(device)], |x| real(op(&x[0])))
                });
            }
            same(&format!("integers {dtype}"), 1e-4, |device| {
                vec![real(fft::fft(&Tensor::arange(0, 12, 1, Dtype::I64).to_device(device), None, -1, Norm::Backward))]
            });
        }
    }

    fn pieces_of_a_signal() {
        for (dtype, tolerance) in TYPES {
            for (length, n_fft, hop) in [(50, 16, 4), (61, 12, 5), (40, 8, 8)] {
                same(&format!("{dtype} {length} {n_fft} {hop}"), tolerance * 2.0, |device| {
                    let window = (Tensor::hann_window(n_fft, true, dtype) + 0.1).to_device(device);
                    with_gradients(&[numbers(&[2, length], dtype).to_device(device), window], |x| {
                        let options = StftOptions { hop_length: Some(hop), window: Some(&x[1]), ..Default::default() };
                        let y = x[0].stft(n_fft, options) * 1.5;
                        let options = IstftOptions { hop_length: Some(hop), window: Some(&x[1]), ..Default::default() };
                        let back = y.square().istft(n_fft, options);
                        back.sum() * y.abs().sum()
                    })
                });
                same(&format!("plain {dtype} {length} {n_fft} {hop}"), tolerance, |device| {
                    let x = signal(&[length], dtype, device).view_as_complex();
                    let options = StftOptions { hop_length: Some(hop), ..Default::default() };
                    let y = x.real().stft(n_fft, options);
                    let back = y.istft(n_fft, IstftOptions { hop_length: Some(hop), ..Default::default() });
                    vec![real(y), back, real(x.stft(n_fft, StftOptions { center: false, ..options }))]
                });
            }
        }
    }

    fn convolutions_by_transforms() {
        let n = 96;
        let (a, b) = (numbers(&[4, n], Dtype::F64), numbers(&[n], Dtype::F64));
        same("circular", 1e-10, |device| {
            with_gradients(&[a.to_device(device), b.to_device(device)], |x| {
                let [a, b] = [0, 1].map(|k| fft::rfft(&x[k], None, -1, Norm::Backward));
                fft::irfft(&(a * b), Some(n), -1, Norm::Backward)
            })
        });
    }

    fn streams_share_roots_of_unity() {
        use torchrs::cuda::{Stream, StreamGuard};
        let x = signal(&[2, 96], Dtype::F64, Device::Cuda(0)).view_as_complex();
        Stream::current(0)?.synchronize()?;
        let transform = || fft::fft(&x, None, -1, Norm::Ortho);
        let first = transform();
        let other = {
            let _guard = StreamGuard::new(Stream::new(0, Default::default())?)?;
            let y = transform();
            Stream::current(0)?.synchronize()?;
            y
        };
        Stream::current(0)?.synchronize()?;
        assert!(first.cpu().equal(&other.cpu()));
    }

    fn captured_transforms_make_their_own_roots() {
        use torchrs::cuda::graph::CaptureOptions;
        use torchrs::cuda::{Graph, Stream};
        let stream = Stream::new(0, Default::default())?;
        let x = signal(&[2, 48], Dtype::F64, Device::Cuda(0)).view_as_complex();
        // Loads the kernels; another length has other roots.
        fft::fft(&x.narrow(1, 0, 24), None, -1, Norm::Ortho);
        Stream::current(0)?.synchronize()?;
        let (graph, y) = Graph::capture(stream, CaptureOptions::default(), || Ok(fft::fft(&x, None, -1, Norm::Ortho)))?;
        for _ in 0..2 {
            graph.replay(stream)?;
            stream.synchronize()?;
            assert!((y.cpu() - fft::fft(&x.cpu(), None, -1, Norm::Ortho)).abs().max().item() < 1e-12);
            x.mul_(2.0);
            Stream::current(0)?.synchronize()?;
        }
        // Not the graph's.
        let eager = fft::fft(&x, None, -1, Norm::Ortho);
        assert!((eager.cpu() - fft::fft(&x.cpu(), None, -1, Norm::Ortho)).abs().max().item() < 1e-12);
    }

    fn nothing_waits() {
        let x = numbers(&[4, 60], Dtype::F32).to_device(Device::Cuda(0)).requires_grad_(true);
        let step = || fft::rfft2(&x, None, None, Norm::Ortho).abs().sum().backward();
        let before = torchrs::cuda::synchronisations();
        step();
        assert_eq!(torchrs::cuda::synchronisations(), before);
    }
}

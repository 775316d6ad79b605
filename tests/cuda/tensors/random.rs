//! Random numbers on a GPU are those of the CPU.

use torchrs::ops::random::Generator;
use torchrs::{Device, Dtype, Tensor, cuda};

use super::compare::{ALL, FLOATS, agree, numbers};

const GPU: Device = Device::Cuda(0);

/// The same draws on both devices.
fn both(make: impl Fn(&Generator, Device) -> Tensor) -> [Vec<f64>; 2] {
    [Device::Cpu, GPU].map(|device| {
        let generator = Generator::new(5 | 9 << 40);
        let first = make(&generator, device);
        assert_eq!(first.device(), device);
        let mut all = first.to_vec::<f64>();
        all.extend(make(&generator, device).to_vec::<f64>());
        assert_eq!(generator.get_state().offset, 2);
        all
    })
}

simulated! {
    fn uniform_numbers() {
        for dtype in FLOATS {
            for n in [0, 1, 3, 1030, 4097] {
                let [cpu, gpu] = both(|g, device| g.rand([n], (dtype, device)));
                assert!(cpu == gpu, "{dtype} {n}");
                let [cpu, gpu] = both(|g, device| g.uniform_(&Tensor::empty([n, 2], (dtype, device)).t(), -3.0, 0.7).contiguous());
                assert!(cpu == gpu, "{dtype} {n}");
            }
            // From an address that no pack can begin at.
            let [cpu, gpu] = both(|g, device| g.uniform_(&Tensor::empty([9], (dtype, device)).narrow(0, 1, 8), 0.0, 1.0).clone());
            assert!(cpu == gpu, "{dtype}");
        }
    }

    fn normal_numbers() {
        for (dtype, tolerance) in FLOATS.into_iter().zip([1e-12, 2e-6, 2e-3, 1e-2]) {
            for n in [1, 3, 1030] {
                let [cpu, gpu] = both(|g, device| g.normal_(&Tensor::empty([n], (dtype, device)), 0.5, 2.0).clone());
                let near = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * (1.0 + b.abs());
                assert!(gpu.iter().zip(&cpu).all(near), "{dtype} {n}");
            }
        }
    }

    fn integers_permutations_and_chances() {
        for dtype in ALL {
            let [cpu, gpu] = both(|g, device| g.bernoulli_(&Tensor::empty([501], (dtype, device)), 0.3).clone());
            assert!(cpu == gpu, "{dtype}");
        }
        for dtype in FLOATS {
            let p = Tensor::linspace(0.0, 1.0, 77, dtype);
            let [cpu, gpu] = both(|g, device| g.bernoulli(&p.to_device(device)));
            assert!(cpu == gpu, "{dtype}");
        }
        for dtype in ALL {
            let [cpu, gpu] = both(|g, device| g.randint(-5, 17, [41, 3], (dtype, device)));
            assert!(cpu == gpu, "{dtype}");
        }
        for (low, high) in [(0, 1 << 32), (-7, 1 << 33), (i64::MIN, i64::MAX)] {
            let [cpu, gpu] = both(|g, device| g.randint(low, high, [501], (Dtype::I64, device)));
            assert!(cpu == gpu, "{low} {high}");
        }
        let weights = Tensor::from([[0.2f32, 0.0, 0.5], [1.0, 3.0, 0.1]]);
        let [cpu, gpu] = both(|g, device| g.multinomial(&weights.to_device(device), 9, true));
        assert!(cpu == gpu);
        let [cpu, gpu] = both(|g, device| g.multinomial(&weights.to_device(device), 2, false));
        assert!(cpu == gpu);
        let [cpu, gpu] = both(|g, device| g.multinomial(&weights.select(0, 1).to_device(device), 3, false));
        assert!(cpu == gpu);
        for (weights, samples, replacement) in [([0f32, 0.0], 1, true), ([1.0, 0.0], 2, false), ([1.0, -2.0], 1, true)] {
            let weights = Tensor::from(weights).cuda(0);
            assert!(torchrs::catch(|| Generator::new(1).multinomial(&weights, samples, replacement)).is_err());
        }
    }

    fn dropout_forward_and_backward() {
        for dtype in FLOATS {
            for shape in [&[0][..], &[1], &[5, 33], &[4, 7, 256]] {
                agree(&[numbers(shape, 1, dtype)], 0.0, |x| {
                    [0.0, 0.1, 0.75, 1.0].iter().map(|&p| Generator::new(3).dropout(&x[0], p, true)).collect()
                });
            }
            agree(&[numbers(&[6, 9], 1, dtype)], 0.0, |x| {
                vec![Generator::new(3).dropout(&x[0].narrow(0, 1, 3), 0.5, true), Generator::new(4).dropout(&x[0].t(), 0.5, true)]
            });
        }
    }

    fn nothing_waits() {
        let x = Tensor::ones([1000], (Dtype::F32, GPU)).requires_grad_(true);
        let before = cuda::synchronisations();
        let y = x.dropout(0.5, true);
        torchrs::autograd::backward(&[&y], &[Some(&y.ones_like())], torchrs::autograd::GraphMode::Free);
        Tensor::randn([1000], (Dtype::F32, GPU));
        x.detach().bernoulli_(0.5);
        assert_eq!(cuda::synchronisations(), before);
    }
}

//! Creation, transfers, views, in-place ops, gradients, errors.

use torchrs::{Device, Dtype, Tensor, catch, cuda, fft};

use crate::support::{has_two_gpus, last_gpu};

const GPU: Device = Device::Cuda(0);

/// A complex tensor as pairs.
fn parts(x: &Tensor) -> Tensor {
    if x.is_complex() { x.view_as_real() } else { x.clone() }
}

simulated! {
    fn tensors_go_to_a_gpu_and_back() {
        for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::I64, Dtype::I32, Dtype::I16, Dtype::I8, Dtype::U8, Dtype::Bool] {
            let x = Tensor::arange(0, 24, 1, dtype).view([2, 3, 4]);
            let y = x.to_device(GPU);
            assert_eq!((y.device(), y.dtype(), y.shape()), (GPU, dtype, x.shape()));
            assert_eq!(y.to_vec::<f64>(), x.to_vec::<f64>());
            assert_eq!(y.cpu().to_vec::<f64>(), x.to_vec::<f64>());
            assert_eq!(y.transpose(0, 2).to_vec::<f64>(), x.transpose(0, 2).to_vec::<f64>());
            assert_eq!(y.transpose(0, 2).contiguous().to_vec::<f64>(), x.transpose(0, 2).to_vec::<f64>());
            assert_eq!(x.transpose(0, 2).to_device(last_gpu()).to_vec::<f64>(), x.transpose(0, 2).to_vec::<f64>());
            assert_eq!(y.select(1, 2).to_device(last_gpu()).to_vec::<f64>(), x.select(1, 2).to_vec::<f64>());
            for to in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::I64, Dtype::I32, Dtype::I16, Dtype::I8, Dtype::U8, Dtype::Bool] {
                assert_eq!(y.to_dtype(to).to_vec::<f64>(), x.to_dtype(to).to_vec::<f64>(), "{dtype} to {to}");
            }
        }
    }

    fn what_is_made_is_where_it_was_wanted() {
        let on = |device| {
            torchrs::manual_seed(3);
            let o = (Dtype::F32, device);
            [
                Tensor::empty([2], o).zeros_like(), Tensor::zeros([2], o), Tensor::ones([2], o), Tensor::full([2], 3, o),
                Tensor::arange(0, 3, 1, o), Tensor::linspace(0.0, 1.0, 3, o), Tensor::logspace(0.0, 1.0, 3, 10.0, o),
                Tensor::eye(3, o), Tensor::eye_of(2, 3, o), Tensor::rand([5], o), Tensor::randn([5], o), Tensor::randint(0, 9, [5], o),
                Tensor::hann_window(4, true, o), Tensor::kaiser_window(4, 2.0, true, o), fft::fftfreq(4, 1.0, o), fft::rfftfreq(4, 1.0, o),
            ]
        };
        for (i, (x, y)) in on(GPU).iter().zip(&on(Device::Cpu)).enumerate() {
            assert_eq!(x.device(), GPU, "{i}");
            assert!(x.cpu().allclose(y, Default::default()), "{i}: {x} {y}");
        }
    }

    fn halves_are_rounded_as_on_the_cpu() {
        // All f16, and what lies between them.
        let all: Vec<f32> = (0..=u16::MAX).map(|bits| half::f16::from_bits(bits).to_f32()).collect();
        let x = Tensor::from(all.iter().flat_map(|v| [*v, v * 1.0004883, v * 1.0002, v * 1.0009766]).collect::<Vec<f32>>());
        let bits = |t: Tensor| t.to_vec::<f32>().iter().map(|v| if v.is_nan() { 1 } else { v.to_bits() }).collect::<Vec<_>>();
        for dtype in [Dtype::F16, Dtype::BF16] {
            assert!(bits(x.to_device(GPU).to_dtype(dtype)) == bits(x.to_dtype(dtype)), "{dtype}");
        }
    }

    fn creation_with_a_device() {
        for (dtype, value) in [(Dtype::F32, 2.5), (Dtype::F16, -1.0), (Dtype::F64, 0.1), (Dtype::I64, -7.0), (Dtype::U8, 3.0), (Dtype::Bool, 1.0)] {
            let full = |device| Tensor::full([3, 5], value, (dtype, device));
            assert_eq!(full(GPU).to_vec::<f64>(), full(Device::Cpu).to_vec::<f64>(), "{dtype}");
        }
        let x = Tensor::arange(0, 5, 1, (Dtype::F32, GPU));
        assert_eq!((x.device(), x.to_vec::<f32>()), (GPU, vec![0., 1., 2., 3., 4.]));
        assert_eq!(x.zeros_like().device(), GPU);
        assert_eq!(Tensor::linspace(0.0, 1.0, 3, (Dtype::F64, GPU)).to_vec::<f64>(), [0.0, 0.5, 1.0]);
        assert_eq!(x.to_string(), "tensor([0., 1., 2., 3., 4.], device='cuda:0')");
    }

    fn in_place_ops_views_and_broadcasting() {
        let run = |device| {
            let x = Tensor::arange(0, 24, 1, (Dtype::F32, device)).view([4, 6]);
            x.select(0, 1).mul_(2.0);
            x.narrow(1, 2, 3).add_(&Tensor::from([10f32, 20., 30.]).to_device(device));
            x.t().select(0, 5).fill_(-1.0);
            let y = &x * &x.select(1, 0).unsqueeze(1) + Tensor::scalar(0.5);
            x.narrow(0, 0, 1).zero_();
            (x.to_vec::<f32>(), y.to_vec::<f32>(), x.gt(12.0).to_vec::<bool>())
        };
        assert_eq!(run(GPU), run(Device::Cpu));
    }

    fn gradients_of_formulas() {
        let run = |device| {
            let x = Tensor::arange(0, 6, 1, (Dtype::F64, device)).view([2, 3]).requires_grad_(true);
            let w = Tensor::from([[0.5f64, -1.0, 2.0]; 2]).to_device(device).requires_grad_(true);
            let y = (&x * &w).tanh() + x.exp() * 0.1;
            torchrs::autograd::backward(&[&y], &[Some(&y.ones_like())], torchrs::autograd::GraphMode::Free);
            let grads = [x.grad().unwrap(), w.grad().unwrap()];
            assert_eq!((grads[0].device(), grads[1].device()), (device, device));
            Tensor::cat(&[grads[0].cpu(), grads[1].cpu()], 0).to_vec::<f64>()
        };
        let (a, b) = (run(GPU), run(Device::Cpu));
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
    }

    fn misuse_is_named() {
        let x = Tensor::from([1f32, 2.]).to_device(GPU);
        let message = |f: &dyn Fn()| catch(f).unwrap_err().to_string();
        let mixed = message(&|| drop(&x + &Tensor::from([1f32, 2.])));
        assert!(mixed.contains("cpu") && mixed.contains("cuda:0"), "{mixed}");
        if has_two_gpus() {
            let other = message(&|| drop(&x + &x.cuda(1)));
            assert!(other.contains("cuda:1") && other.contains("cuda:0"), "{other}");
        }
        let host = message(&|| _ = x.data_ptr());
        assert!(host.contains("to_device"), "{host}");
        let missing = message(&|| drop(x.cuda(50)));
        assert!(missing.contains("cuda:50 is not available: there "), "{missing}");
    }

    fn complex_numbers_compute_or_say_that_they_do_not() {
        for dtype in [Dtype::F32, Dtype::F64] {
            let x = Tensor::complex(&Tensor::arange(0, 6, 1, dtype), &Tensor::ones([6], dtype)).view([2, 3]);
            let y = x.to_device(GPU);
            let ops: [fn(&Tensor) -> Tensor; 5] =
                [|z| z + z, |z| z * z, |z| z.exp(), |z| z.t().contiguous(), |z| z.real() * 2.0];
            for (k, op) in ops.into_iter().enumerate() {
                match catch(|| parts(&op(&y).cpu()).to_vec::<f64>()) {
                    Ok(got) => {
                        let expected = parts(&op(&x)).to_vec::<f64>();
                        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * (1.0 + b.abs());
                        assert!(got.len() == expected.len() && got.iter().zip(&expected).all(near), "op {k} of {dtype}");
                    }
                    Err(error) => assert!(error.to_string().contains("CPU"), "op {k} of {dtype}: {error}"),
                }
            }
        }
    }

    fn memory_is_reused_and_counted() {
        let x = Tensor::zeros([1 << 20], (Dtype::F32, GPU));
        let before = cuda::memory::memory_allocated(0)?;
        let y = &x + 1.0;
        assert_eq!(cuda::memory::memory_allocated(0)? - before, 4 << 20);
        drop(y);
        assert_eq!(cuda::memory::memory_allocated(0)?, before);
        let waited = cuda::synchronisations();
        for _ in 0..20 {
            x.add_(&(&x * 0.5));
        }
        assert_eq!(cuda::synchronisations(), waited);
        assert_eq!(x.select(0, 5).item(), 0.0);
    }
}

//! Tests of Fourier transforms against the definition.

use std::f64::consts::TAU;

use super::*;
use crate::autograd::{gradcheck, gradgradcheck};
use crate::error::catch;
use crate::ops::PadMode;
use crate::tensor::{Complex, Dtype};

type C = Complex<f64>;

/// The definition: one dimension of a list.
fn naive(x: &[C], sign: f64) -> Vec<C> {
    let n = x.len();
    let term = |k: usize, j: usize| x[j] * C::cis(sign * TAU * (j * k % n) as f64 / n as f64);
    (0..n).map(|k| (0..n).map(|j| term(k, j)).sum()).collect()
}

fn signal(shape: &[usize], seed: u64) -> Tensor {
    Tensor::complex(&values(shape, seed), &values(shape, seed + 4))
}

#[track_caller]
fn near(got: &Tensor, want: &Tensor) {
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()));
    let far = (got - want).abs();
    assert!(far.numel() == 0 || far.max().item() < 1e-10, "{got} is not {want}");
}

#[test]
fn lines_of_any_length_agree_with_the_definition() {
    for n in (1..20).chain([31, 64, 97, 100]) {
        let x = signal(&[3, n], 1);
        let rows = x.to_vec::<C>();
        for (direction, sign) in [(Direction::Forward, -1.0), (Direction::Backward, 1.0)] {
            let want: Vec<C> = rows.chunks(n).flat_map(|row| naive(row, sign)).collect();
            let want = Tensor::from_slice(&want, [3, n]);
            near(&complex_to_complex(&x, &[1], direction, 1.0), &want);
            // The same lines as columns.
            near(&complex_to_complex(&x.t(), &[0], direction, 0.5), &(want.t() * 0.5));
        }
        let real = values([2, n], 2);
        let half = fft(&real, None, -1, Norm::Ortho).narrow(1, 0, n / 2 + 1);
        near(&rfft(&real, None, -1, Norm::Ortho), &half);
        near(&irfft(&half, Some(n), -1, Norm::Ortho), &real);
        let single = fft(&x.to_dtype(Dtype::C64), None, -1, Norm::Backward);
        let far = single.to_dtype(Dtype::C128) - fft(&x, None, -1, Norm::Backward);
        assert!(far.abs().max().item() < 1e-5 * n as f64);
    }
}

#[test]
fn transforms_and_their_inverses() {
    let x = signal(&[2, 3, 4, 5], 3);
    for norm in [Norm::Backward, Norm::Forward, Norm::Ortho] {
        near(&ifft(&fft(&x, None, 1, norm), None, 1, norm), &x);
        near(&ifft2(&fft2(&x, None, None, norm), None, None, norm), &x);
        near(&ifftn(&fftn(&x, None, None, norm), None, None, norm), &x);
        let some = Some(&[0, -1, 2][..]);
        near(&ifftn(&fftn(&x, None, some, norm), None, some, norm), &x);
        let real = x.real();
        let s = Some(&[4, 5][..]);
        near(&irfft2(&rfft2(&real, None, None, norm), s, None, norm), &real);
        near(&hfft2(&ihfft2(&real, None, None, norm), s, None, norm), &real);
        near(&irfftn(&rfftn(&real, None, None, norm), Some(&[2, 3, 4, 5]), None, norm), &real);
        near(&hfftn(&ihfftn(&real, None, None, norm), Some(&[-1, -1, -1, 5]), None, norm), &real);
        near(&hfft(&ihfft(&real, None, 1, norm), Some(3), 1, norm), &real);
        // Half of the transform is what the whole one has there.
        near(&rfftn(&real, None, None, norm), &fftn(&real, None, None, norm).narrow(3, 0, 3));
        near(&ihfftn(&real, None, None, norm), &ifftn(&real, None, None, norm).narrow(3, 0, 3));
    }
    near(&fftshift(&ifftshift(&x, None), None), &x);
    let list = fftshift(&Tensor::range(5), None).to_vec::<i64>();
    assert_eq!(list, [3, 4, 0, 1, 2]);
}

#[test]
fn parsevals_theorem_and_convolution() {
    let (x, y) = (signal(&[37], 1), signal(&[37], 2));
    let energy = |z: &Tensor| z.abs().square().sum().item();
    let spectrum = fft(&x, None, -1, Norm::Ortho);
    assert!((energy(&spectrum) - energy(&x)).abs() < 1e-10);
    let product = fft(&x, None, 0, Norm::Backward) * fft(&y, None, 0, Norm::Backward);
    let (a, b) = (x.to_vec::<C>(), y.to_vec::<C>());
    let cyclic = |k: usize| (0..37).map(|j| a[j] * b[(37 + k - j) % 37]).sum::<C>();
    let want: Vec<C> = (0..37).map(cyclic).collect();
    near(&ifft(&product, None, 0, Norm::Backward), &Tensor::from(want));
}

#[test]
fn lengths_cut_and_fill_up() {
    let x = signal(&[2, 5], 1);
    near(&fft(&x, Some(3), 1, Norm::Backward), &fft(&x.narrow(1, 0, 3), None, 1, Norm::Backward));
    let zeros = Tensor::zeros([2, 2], Dtype::C128);
    let longer = Tensor::cat(&[&x, &zeros], 1);
    near(&fft(&x, Some(7), 1, Norm::Backward), &fft(&longer, None, 1, Norm::Backward));
    assert_eq!(irfft(&x, None, 1, Norm::Backward).shape(), [2, 8]);
    assert_eq!(hfft(&x, Some(20), 0, Norm::Backward).shape(), [20, 5]);
    assert_eq!(rfftn(&x.real(), Some(&[3]), None, Norm::Backward).shape(), [2, 2]);
    assert_eq!(fft(&Tensor::zeros([0, 3], Dtype::F32), None, 1, Norm::Backward).shape(), [0, 3]);
    assert_eq!(fft(&Tensor::range(4), None, 0, Norm::Backward).dtype(), Dtype::C64);
    // Imaginary parts where a real signal has none do not count.
    let odd = Tensor::from([C::new(1.0, 5.0), C::new(2.0, 1.0), C::new(3.0, 7.0)]);
    let even = Tensor::from([C::new(1.0, 0.0), C::new(2.0, 1.0), C::new(3.0, 0.0)]);
    near(&irfft(&odd, None, 0, Norm::Backward), &irfft(&even, None, 0, Norm::Backward));
}

#[test]
fn complex_inputs_pass_gradcheck() {
    let x = signal(&[2, 3], 1).requires_grad_(true);
    for norm in [Norm::Backward, Norm::Forward, Norm::Ortho] {
        let f = |t: &[Tensor]| ifft(&t[0], Some(4), 1, norm) * fft(&t[0], None, 0, norm).sum();
        gradcheck(f, &[&x], Default::default()).unwrap();
        gradgradcheck(f, &[&x], Default::default()).unwrap();
        let back = |t: &[Tensor]| irfftn(&t[0], None, None, norm);
        gradcheck(back, &[&x], Default::default()).unwrap();
    }
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    let x = Tensor::zeros([2, 3], Dtype::F32);
    let z = x.to_complex();
    let message = |f: &dyn Fn() -> Tensor| catch(f).unwrap_err().to_string();
    for (f, part) in [
        (&(|| fft(&x, Some(0), -1, Norm::Backward)) as &dyn Fn() -> Tensor, "at least one"),
        (&|| fft(&Tensor::scalar(1.0), None, -1, Norm::Backward), "0-dim"),
        (&|| fft(&x, None, 2, Norm::Backward), "out of range"),
        (&|| fftn(&x, None, Some(&[0, -2]), Norm::Backward), "twice"),
        (&|| fftn(&x, Some(&[1]), Some(&[0, 1]), Norm::Backward), "2 dimensions"),
        (&|| fftn(&x, Some(&[1, 1, 1]), None, Norm::Backward), "more lengths"),
        (&|| fftn(&x, Some(&[-3, 1]), None, Norm::Backward), "at least one"),
        (&|| rfft(&z, None, -1, Norm::Backward), "c64"),
        (&|| ihfft(&z, None, -1, Norm::Backward), "c64"),
        (&|| rfftn(&Tensor::scalar(1.0), None, None, Norm::Backward), "at least one"),
        (&|| irfft(&z.narrow(1, 0, 1), None, -1, Norm::Backward), "at least one"),
        (&|| fft(&x.to_dtype(Dtype::BF16), None, -1, Norm::Backward), "bf16"),
        (&|| fftfreq(3, 1.0, Dtype::I64), "i64"),
        (&|| x.stft(8, Default::default()), "Reflect"),
        (&|| Tensor::zeros([20], Dtype::I64).stft(8, Default::default()), "i64"),
        (&|| x.istft(8, Default::default()), "f32"),
        (&|| z.istft(8, Default::default()), "frequencies"),
    ] {
        let text = message(f);
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn frequencies_as_in_pytorch() {
    assert_eq!(fftfreq(5, 1.0, Dtype::F64).to_vec::<f64>(), [0.0, 0.2, 0.4, -0.4, -0.2]);
    assert_eq!(fftfreq(4, 0.5, Dtype::F32).to_vec::<f32>(), [0.0, 0.5, -1.0, -0.5]);
    assert_eq!(rfftfreq(4, 1.0, Dtype::F64).to_vec::<f64>(), [0.0, 0.25, 0.5]);
    assert_eq!(rfftfreq(5, 1.0, Dtype::F64).to_vec::<f64>(), [0.0, 0.2, 0.4]);
}

#[test]
fn a_signal_comes_back_from_its_pieces() {
    let window = Tensor::hann_window(12, false, Dtype::F64);
    let x = values([2, 100], 1);
    for (center, normalized, onesided) in
        [(true, false, true), (true, true, false), (false, false, true)]
    {
        let (window, hop_length) = (Some(&window), Some(4));
        let options = StftOptions {
            hop_length,
            win_length: Some(12),
            window,
            center,
            normalized,
            onesided: Some(onesided),
            pad_mode: PadMode::Constant(0.0.into()),
            ..Default::default()
        };
        let spectra = x.stft(16, options);
        assert_eq!(spectra.size(1), if onesided { 9 } else { 16 });
        let options = IstftOptions {
            hop_length,
            win_length: Some(12),
            window,
            center,
            normalized,
            onesided: Some(onesided),
            length: Some(100),
            return_complex: !onesided,
        };
        if !center {
            // The first windows begin with 0, which nothing can be divided by.
            assert!(catch(|| spectra.istft(16, options)).is_err());
            continue;
        }
        let back = spectra.istft(16, options);
        near(&if onesided { back } else { back.real() }, &x);
    }
    // A piece's spectrum is the transform of the windowed piece.
    let options = StftOptions { window: Some(&window), center: false, ..Default::default() };
    let spectra = x.stft(12, options);
    let piece = x.narrow(1, 6, 12) * &window;
    near(&spectra.select(2, 2), &rfft(&piece, None, 1, Norm::Backward));
}

#[test]
fn windows_as_in_pytorch() {
    let near = |w: Tensor, want: &[f64]| {
        let far = (w - Tensor::from_slice(want, [want.len()])).abs().max().item();
        assert!(far < 1e-12, "{want:?}: {far}");
    };
    let f64 = Dtype::F64;
    near(Tensor::bartlett_window(5, true, f64), &[0.0, 0.5, 1.0, 0.5, 0.0]);
    near(Tensor::bartlett_window(4, false, f64), &[0.0, 0.5, 1.0, 0.5]);
    near(Tensor::blackman_window(5, true, f64), &[0.0, 0.34, 1.0, 0.34, 0.0]);
    near(Tensor::hann_window(4, false, f64), &[0.0, 0.5, 1.0, 0.5]);
    near(Tensor::hamming_window(3, true, f64), &[0.08, 1.0, 0.08]);
    near(Tensor::general_cosine_window(3, &[0.5, 0.5], true, f64), &[0.0, 1.0, 0.0]);
    near(Tensor::cosine_window(3, true, f64), &[0.5, 1.0, 0.5]);
    let e = (-0.5f64).exp();
    near(Tensor::gaussian_window(3, 1.0, true, f64), &[e, 1.0, e]);
    near(Tensor::exponential_window(3, None, 2.0, true, f64), &[e, 1.0, e]);
    near(Tensor::exponential_window(2, Some(1.0), 2.0, false, f64), &[e, 1.0]);
    // torch.signal.windows.kaiser(5, beta=12.0, dtype=torch.float64)
    let kaiser = [
        5.2773441320097665e-05,
        0.2156727447589671,
        1.0,
        0.2156727447589671,
        5.2773441320097665e-05,
    ];
    near(Tensor::kaiser_window(5, 12.0, true, f64), &kaiser);
    near(Tensor::nuttall_window(1, true, f64), &[1.0]);
    assert_eq!(Tensor::hann_window(0, true, f64).shape(), [0]);
    assert!(catch(|| Tensor::hann_window(3, true, Dtype::BF16)).is_err());
}

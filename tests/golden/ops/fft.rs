//! Ops of group `fft`, windows, and what complex tensors are made of and taken apart with.

use torchrs::fft::{self, IstftOptions, Norm, StftOptions};
use torchrs::ops::PadMode;
use torchrs::{Dtype, Scalar, Tensor, TensorOptions};

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop};

type Line = fn(&Tensor, Option<usize>, i64, Norm) -> Tensor;
type Space = fn(&Tensor, Option<&[i64]>, Option<&[i64]>, Norm) -> Tensor;

fn norm(c: &Call, i: usize) -> Outcome<Norm> {
    match c.text(i, "norm", "backward")?.as_str() {
        "backward" => Ok(Norm::Backward),
        "forward" => Ok(Norm::Forward),
        "ortho" => Ok(Norm::Ortho),
        other => Err(Stop::Unwritable(format!("norm {other}"))),
    }
}

fn maybe_count(c: &Call, i: usize, name: &str) -> Outcome<Option<usize>> {
    Ok(match c.maybe_int(i, name)? {
        None => None,
        Some(_) => Some(c.count(i, name, 0)?),
    })
}

fn maybe_flag(c: &Call, i: usize, name: &str) -> Outcome<Option<bool>> {
    match c.get(i, name) {
        Arg::None => Ok(None),
        _ => c.flag(i, name, false).map(Some),
    }
}

fn options(c: &Call) -> Outcome<TensorOptions> {
    let dtype = c.maybe_dtype(usize::MAX, "dtype")?.unwrap_or(Dtype::F32);
    Ok(TensorOptions::from(dtype).requires_grad(c.flag(usize::MAX, "requires_grad", false)?))
}

fn pad_mode(c: &Call, i: usize) -> Outcome<PadMode> {
    match c.text(i, "pad_mode", "reflect")?.as_str() {
        "reflect" => Ok(PadMode::Reflect),
        "replicate" => Ok(PadMode::Replicate),
        "circular" => Ok(PadMode::Circular),
        "constant" => Ok(PadMode::Constant(Scalar::F(0.0))),
        other => Err(Stop::Unwritable(format!("pad_mode {other}"))),
    }
}

fn transforms(t: &mut Table) {
    let lines: [(&str, Line); 6] = [
        ("fft.fft", fft::fft),
        ("fft.ifft", fft::ifft),
        ("fft.rfft", fft::rfft),
        ("fft.irfft", fft::irfft),
        ("fft.hfft", fft::hfft),
        ("fft.ihfft", fft::ihfft),
    ];
    for (name, f) in lines {
        t.op(name, move |c| {
            let dim = c.int(2, "dim", -1)?;
            Ok(f(c.tensor(0, "input")?, maybe_count(c, 1, "n")?, dim, norm(c, 3)?))
        });
    }
    let spaces: [(&str, Space); 12] = [
        ("fft.fft2", fft::fft2),
        ("fft.ifft2", fft::ifft2),
        ("fft.rfft2", fft::rfft2),
        ("fft.irfft2", fft::irfft2),
        ("fft.hfft2", fft::hfft2),
        ("fft.ihfft2", fft::ihfft2),
        ("fft.fftn", fft::fftn),
        ("fft.ifftn", fft::ifftn),
        ("fft.rfftn", fft::rfftn),
        ("fft.irfftn", fft::irfftn),
        ("fft.hfftn", fft::hfftn),
        ("fft.ihfftn", fft::ihfftn),
    ];
    for (name, f) in spaces {
        t.op(name, move |c| {
            let (s, dim) = (c.maybe_ints(1, "s")?, c.maybe_ints(2, "dim")?);
            Ok(f(c.tensor(0, "input")?, s.as_deref(), dim.as_deref(), norm(c, 3)?))
        });
    }
    t.op("fft.fftfreq", |c| {
        Ok(fft::fftfreq(c.count(0, "n", 0)?, c.float(1, "d", 1.0)?, options(c)?))
    });
    t.op("fft.rfftfreq", |c| {
        Ok(fft::rfftfreq(c.count(0, "n", 0)?, c.float(1, "d", 1.0)?, options(c)?))
    });
    t.op("fft.fftshift", |c| {
        Ok(fft::fftshift(c.tensor(0, "input")?, c.maybe_ints(1, "dim")?.as_deref()))
    });
    t.op("fft.ifftshift", |c| {
        Ok(fft::ifftshift(c.tensor(0, "input")?, c.maybe_ints(1, "dim")?.as_deref()))
    });
    t.op("stft", |c| {
        let x = c.tensor(0, "input")?;
        let window = c.maybe_tensor(4, "window")?;
        let complex = x.is_complex() || window.is_some_and(Tensor::is_complex);
        let return_complex = match maybe_flag(c, 9, "return_complex")? {
            Some(flag) => flag,
            None if complex => true,
            None => return Err(Stop::Unwritable("no return_complex for a real signal".into())),
        };
        let options = StftOptions {
            hop_length: maybe_count(c, 2, "hop_length")?,
            win_length: maybe_count(c, 3, "win_length")?,
            window,
            center: c.flag(5, "center", true)?,
            pad_mode: pad_mode(c, 6)?,
            normalized: c.flag(7, "normalized", false)?,
            onesided: maybe_flag(c, 8, "onesided")?,
            return_complex,
        };
        Ok(x.stft(c.count(1, "n_fft", 0)?, options))
    });
    t.op("istft", |c| {
        let options = IstftOptions {
            hop_length: maybe_count(c, 2, "hop_length")?,
            win_length: maybe_count(c, 3, "win_length")?,
            window: c.maybe_tensor(4, "window")?,
            center: c.flag(5, "center", true)?,
            normalized: c.flag(6, "normalized", false)?,
            onesided: maybe_flag(c, 7, "onesided")?,
            length: maybe_count(c, 8, "length")?,
            return_complex: c.flag(9, "return_complex", false)?,
        };
        Ok(c.tensor(0, "input")?.istft(c.count(1, "n_fft", 0)?, options))
    });
}

/// `torch.signal.windows` but for those of group `creation`, and `torch`'s own, which are periodic.
fn windows(t: &mut Table) {
    type Window = fn(usize, bool, TensorOptions) -> Tensor;
    let plain: [(&str, &str, Window); 5] = [
        ("signal.windows.bartlett", "bartlett_window", |n, s, o| Tensor::bartlett_window(n, s, o)),
        ("signal.windows.blackman", "blackman_window", |n, s, o| Tensor::blackman_window(n, s, o)),
        ("signal.windows.cosine", "cosine_window", |n, s, o| Tensor::cosine_window(n, s, o)),
        ("signal.windows.nuttall", "nuttall_window", |n, s, o| Tensor::nuttall_window(n, s, o)),
        ("", "hann_window", |n, s, o| Tensor::hann_window(n, s, o)),
    ];
    for (name, periodic, f) in plain {
        if !name.is_empty() {
            t.op(name, move |c| Ok(f(c.count(0, "M", 0)?, c.flag(1, "sym", true)?, options(c)?)));
        }
        t.op(periodic, move |c| {
            Ok(f(c.count(0, "window_length", 0)?, !c.flag(1, "periodic", true)?, options(c)?))
        });
    }
    t.op("hamming_window", |c| {
        let (n, periodic) = (c.count(0, "window_length", 0)?, c.flag(1, "periodic", true)?);
        if c.given(3, "beta") {
            return Err(Stop::Unwritable("beta".into()));
        }
        let alpha = c.float(2, "alpha", 0.54)?;
        Ok(Tensor::general_hamming_window(n, alpha, !periodic, options(c)?))
    });
    t.op("kaiser_window", |c| {
        let (n, periodic) = (c.count(0, "window_length", 0)?, c.flag(1, "periodic", true)?);
        Ok(Tensor::kaiser_window(n, c.float(2, "beta", 12.0)?, !periodic, options(c)?))
    });
    let named = usize::MAX;
    t.op("signal.windows.kaiser", move |c| {
        let (beta, symmetric) = (c.float(named, "beta", 12.0)?, c.flag(named, "sym", true)?);
        Ok(Tensor::kaiser_window(c.count(0, "M", 0)?, beta, symmetric, options(c)?))
    });
    t.op("signal.windows.gaussian", move |c| {
        let (std, symmetric) = (c.float(named, "std", 1.0)?, c.flag(named, "sym", true)?);
        Ok(Tensor::gaussian_window(c.count(0, "M", 0)?, std, symmetric, options(c)?))
    });
    t.op("signal.windows.exponential", move |c| {
        let (n, center) = (c.count(0, "M", 0)?, c.maybe_float(named, "center")?);
        let (tau, symmetric) = (c.float(named, "tau", 1.0)?, c.flag(named, "sym", true)?);
        Ok(Tensor::exponential_window(n, center, tau, symmetric, options(c)?))
    });
    t.op("signal.windows.general_hamming", move |c| {
        let (alpha, symmetric) = (c.float(named, "alpha", 0.54)?, c.flag(named, "sym", true)?);
        Ok(Tensor::general_hamming_window(c.count(0, "M", 0)?, alpha, symmetric, options(c)?))
    });
    t.op("signal.windows.general_cosine", move |c| {
        let Arg::List(list) = c.get(named, "a") else {
            return Err(Stop::Unwritable("a".into()));
        };
        let number = |item: &Arg| match item {
            Arg::Float(v) => Ok(*v),
            Arg::Int(v) => Ok(*v as f64),
            other => Err(Stop::Unwritable(format!("{other:?}"))),
        };
        let a: Vec<f64> = list.iter().map(number).collect::<Outcome<_>>()?;
        let symmetric = c.flag(named, "sym", true)?;
        Ok(Tensor::general_cosine_window(c.count(0, "M", 0)?, &a, symmetric, options(c)?))
    });
}

fn complex(t: &mut Table) {
    type Unary = fn(&Tensor) -> Tensor;
    let unary: [(&'static str, Unary); 6] = [
        ("view_as_real", Tensor::view_as_real),
        ("view_as_complex", Tensor::view_as_complex),
        ("real", Tensor::real),
        ("imag", Tensor::imag),
        ("conj", Tensor::conj),
        ("conj_physical", Tensor::conj),
    ];
    for (name, f) in unary {
        t.op(name, move |c| Ok(f(c.tensor(0, "input")?)));
    }
    t.op("complex", |c| Ok(Tensor::complex(c.tensor(0, "real")?, c.tensor(1, "imag")?)));
    t.op("polar", |c| Ok(Tensor::polar(c.tensor(0, "abs")?, c.tensor(1, "angle")?)));
    t.any("is_complex", |c| Ok(Arg::Bool(c.tensor(0, "input")?.is_complex())));
}

pub fn fill(t: &mut Table) {
    transforms(t);
    windows(t);
    complex(t);
}

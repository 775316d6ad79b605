//! `Debug` and `Display`, in PyTorch's form: nested brackets, four digits, long dimensions cut.

use std::fmt;

use super::{Complex, Dtype, Tensor};

const EDGE: usize = 3;
const CUT_FROM: usize = 1000;

/// Numbers that are written in one form and width.
struct Column {
    values: Vec<f64>,
    /// Of i64, which f64 does not hold.
    ints: Vec<i64>,
    dtype: Dtype,
    all_whole: bool,
    scientific: bool,
    width: usize,
}

impl Column {
    fn new(values: Vec<f64>, ints: Vec<i64>, dtype: Dtype) -> Self {
        let all_whole = values.iter().all(|v| !v.is_finite() || v.fract() == 0.0);
        let largest = values.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
        let smallest = values
            .iter()
            .filter(|v| v.is_finite() && **v != 0.0)
            .fold(f64::INFINITY, |m, v| m.min(v.abs()));
        // PyTorch's rule: four digits would lose the small ones.
        let scientific =
            largest / smallest > 1e3 || largest > 1e8 || (!all_whole && smallest < 1e-4);
        // The longest text belongs to the least, the greatest or a non-finite value.
        let order = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
        let extremes = [(0..values.len()).min_by(order), (0..values.len()).max_by(order)];
        let special = values.iter().position(|v| !v.is_finite());
        let ends: Vec<usize> = extremes.into_iter().chain([special]).flatten().collect();
        let mut column = Column { values, ints, dtype, all_whole, scientific, width: 0 };
        column.width = ends.into_iter().map(|i| column.text(i).len()).max().unwrap_or(0);
        column
    }

    fn text(&self, i: usize) -> String {
        let v = self.values[i];
        match self.dtype {
            Dtype::Bool => (v != 0.0).to_string(),
            Dtype::I64 => self.ints[i].to_string(),
            d if !d.is_differentiable() => (v as i64).to_string(),
            _ if v.is_nan() => "nan".into(),
            _ if v.is_infinite() => if v > 0.0 { "inf" } else { "-inf" }.into(),
            _ if self.scientific => format!("{v:.4e}"),
            _ if self.all_whole => format!("{v:.0}."),
            _ => format!("{v:.4}"),
        }
    }

    fn padded(&self, i: usize) -> String {
        format!("{:>width$}", self.text(i), width = self.width)
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let complex: Vec<Complex<f64>> =
            if self.dtype().is_complex() { self.to_vec() } else { Vec::new() };
        let (count, parts) = match self.dtype().is_complex() {
            true => {
                let part = |of: fn(&Complex<f64>) -> f64| {
                    Column::new(complex.iter().map(of).collect(), Vec::new(), self.dtype())
                };
                (complex.len(), (part(|z| z.re), Some(part(|z| z.im))))
            }
            false => {
                let ints = if self.dtype() == Dtype::I64 { self.to_vec() } else { Vec::new() };
                (self.numel(), (Column::new(self.to_vec(), ints, self.dtype()), None))
            }
        };
        write!(f, "tensor(")?;
        write_nested(f, self.shape(), 0, 0, count >= CUT_FROM, &|i| match &parts {
            (real, None) => real.padded(i),
            (real, Some(imag)) => {
                let text = imag.padded(i);
                let (text, plus) = (text.trim_start(), if text.contains('-') { "" } else { "+" });
                format!("{}{plus}{text}j", real.padded(i))
            }
        })?;
        let default = matches!(self.dtype(), Dtype::F32 | Dtype::I64 | Dtype::Bool | Dtype::C64);
        if !default {
            write!(f, ", dtype={}", self.dtype())?;
        }
        if self.numel() == 0 && self.dim() != 1 {
            write!(f, ", size={:?}", self.shape())?;
        }
        if self.device().is_cuda() {
            write!(f, ", device='{}'", self.device())?;
        }
        match self.grad_fn() {
            Some(node) => write!(f, ", grad_fn=<{}>", node.name())?,
            None if self.requires_grad() => write!(f, ", requires_grad=true")?,
            None => {}
        }
        write!(f, ")")
    }
}

fn write_nested(
    f: &mut fmt::Formatter<'_>,
    shape: &[usize],
    at: usize,
    depth: usize,
    cut: bool,
    one: &dyn Fn(usize) -> String,
) -> fmt::Result {
    let Some((&n, inner)) = shape.split_first() else { return write!(f, "{}", one(at)) };
    let step: usize = inner.iter().product();
    if n == 0 || step == 0 {
        return write!(f, "[]");
    }
    write!(f, "[")?;
    let mut i = 0;
    while i < n {
        if i > 0 {
            match inner.len() {
                0 => write!(f, ", ")?,
                k => write!(f, ",{}{}", "\n".repeat(k), " ".repeat("tensor(".len() + depth + 1))?,
            }
        }
        if cut && n > 2 * EDGE && i == EDGE {
            write!(f, "{}...", if inner.is_empty() { " " } else { "" })?;
            i = n - EDGE;
            continue;
        }
        write_nested(f, inner, at + i * step, depth + 1, cut, one)?;
        i += 1;
    }
    write!(f, "]")
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Complex, Tensor};

    #[test]
    fn tensors_print_as_in_pytorch() {
        let t = Tensor::from([[1f32, 2.5], [-3., 4.]]);
        assert_eq!(t.to_string(), "tensor([[ 1.0000,  2.5000],\n        [-3.0000,  4.0000]])");
        assert_eq!(Tensor::from([1i64, 2]).to_string(), "tensor([1, 2])");
        assert_eq!(Tensor::from([1f32, 2.]).to_string(), "tensor([1., 2.])");
        assert_eq!(Tensor::from([0f64; 0]).to_string(), "tensor([], dtype=f64)");
        assert_eq!(Tensor::scalar(true).to_string(), "tensor(true)");
        let z = Tensor::from([Complex::new(1f32, -2.5), Complex::new(-3., 0.)]);
        assert_eq!(z.to_string(), "tensor([ 1.-2.5000j, -3.+0.0000j])");
        let z = Tensor::from([Complex::new(0f64, 1.)]);
        assert_eq!(z.to_string(), "tensor([0.+1.j], dtype=c128)");
        let long = Tensor::range(2000).to_string();
        assert_eq!(long, "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])");
    }
}

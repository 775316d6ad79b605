//! `Debug` and `Display`, in PyTorch's form: nested brackets, four digits, long dimensions cut.

use std::fmt;

use super::{Dtype, Tensor};

const EDGE: usize = 3;
const CUT_FROM: usize = 1000;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<f64> = self.to_vec::<f64>();
        let ints: Vec<i64> = if self.dtype() == Dtype::I64 { self.to_vec() } else { Vec::new() };
        let all_whole = values.iter().all(|v| !v.is_finite() || v.fract() == 0.0);
        let largest = values.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
        let smallest = values
            .iter()
            .filter(|v| v.is_finite() && **v != 0.0)
            .fold(f64::INFINITY, |m, v| m.min(v.abs()));
        // PyTorch's rule: four digits would lose the small ones.
        let scientific =
            largest / smallest > 1e3 || largest > 1e8 || (!all_whole && smallest < 1e-4);
        let one = |i: usize| -> String {
            let v = values[i];
            match self.dtype() {
                Dtype::Bool => (v != 0.0).to_string(),
                Dtype::I64 => ints[i].to_string(),
                d if !d.is_floating_point() => (v as i64).to_string(),
                _ if v.is_nan() => "nan".into(),
                _ if v.is_infinite() => if v > 0.0 { "inf" } else { "-inf" }.into(),
                _ if scientific => format!("{v:.4e}"),
                _ if all_whole => format!("{v:.0}."),
                _ => format!("{v:.4}"),
            }
        };
        // The longest text belongs to the least, the greatest or a non-finite value.
        let order = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
        let extremes = [(0..values.len()).min_by(order), (0..values.len()).max_by(order)];
        let special = values.iter().position(|v| !v.is_finite());
        let longest = extremes.into_iter().chain([special]).flatten();
        let width = longest.map(|i| one(i).len()).max().unwrap_or(0);
        write!(f, "tensor(")?;
        write_nested(f, self.shape(), 0, 0, values.len() >= CUT_FROM, &|i| {
            format!("{:>width$}", one(i))
        })?;
        if self.dtype() != Dtype::F32 && self.dtype() != Dtype::I64 && self.dtype() != Dtype::Bool {
            write!(f, ", dtype={}", self.dtype())?;
        }
        if self.numel() == 0 && self.dim() != 1 {
            write!(f, ", size={:?}", self.shape())?;
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
    use crate::Tensor;

    #[test]
    fn tensors_print_as_in_pytorch() {
        let t = Tensor::from([[1f32, 2.5], [-3., 4.]]);
        assert_eq!(t.to_string(), "tensor([[ 1.0000,  2.5000],\n        [-3.0000,  4.0000]])");
        assert_eq!(Tensor::from([1i64, 2]).to_string(), "tensor([1, 2])");
        assert_eq!(Tensor::from([1f32, 2.]).to_string(), "tensor([1., 2.])");
        assert_eq!(Tensor::from([0f64; 0]).to_string(), "tensor([], dtype=f64)");
        assert_eq!(Tensor::scalar(true).to_string(), "tensor(true)");
        let long = Tensor::range(2000).to_string();
        assert_eq!(long, "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])");
    }
}

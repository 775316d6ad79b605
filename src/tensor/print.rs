//! `Debug` and `Display`, in PyTorch's form: nested brackets, four digits, long dimensions cut. Only the
//! numbers that are shown are read; they alone decide the form and the width of all.

use std::fmt;

use super::{Complex, Device, Dtype, Layout, Tensor};

/// How many are shown at each end of a dimension that is cut.
const EDGE: usize = 3;
/// Tensors of more elements are cut.
const WHOLE: usize = 1000;
/// Numbers on a GPU that are no further from each other come in one copy.
const GAP: usize = 4096;

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

/// The indices of a dimension of `n` that are shown.
fn shown_of(n: usize, cut: bool) -> impl Iterator<Item = usize> {
    let gap = if cut && n > 2 * EDGE { EDGE..n - EDGE } else { 0..0 };
    (0..gap.start).chain(gap.end..n)
}

impl Tensor {
    /// Positions in the storage of the elements that are shown, in the order in which they are.
    fn shown(&self, cut: bool) -> Vec<usize> {
        if self.numel() == 0 {
            return Vec::new();
        }
        let mut places = vec![self.storage_offset()];
        for (&n, &stride) in self.shape().iter().zip(self.strides()) {
            let step = move |place: usize, i: usize| place.wrapping_add_signed(i as isize * stride);
            places = places
                .iter()
                .flat_map(|&place| shown_of(n, cut).map(move |i| step(place, i)))
                .collect();
        }
        places
    }

    /// The elements at these positions; the imaginary parts apart.
    fn columns(&self, places: &[usize]) -> (Column, Option<Column>) {
        let dtype = self.dtype();
        if dtype.is_complex() {
            let numbers: Vec<Complex<f64>> = self.elements(places);
            let part = |of: fn(&Complex<f64>) -> f64| {
                Column::new(numbers.iter().map(of).collect(), Vec::new(), dtype)
            };
            return (part(|z| z.re), Some(part(|z| z.im)));
        }
        let ints = if dtype == Dtype::I64 { self.elements(places) } else { Vec::new() };
        (Column::new(self.elements(places), ints, dtype), None)
    }

    /// The elements at these positions of the storage.
    fn elements<T: super::Element>(&self, places: &[usize]) -> Vec<T> {
        let part = |start: usize, length: usize| {
            let layout = Layout { offset: start, ..Layout::contiguous(&[length]) };
            Tensor::from_parts(self.storage().clone(), layout, self.dtype())
        };
        if self.device() == Device::Cpu {
            return places.iter().map(|&place| part(place, 1).to_vec::<T>()[0]).collect();
        }
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|&i| places[i]);
        let mut values = Vec::new();
        for run in order.chunk_by(|&a, &b| places[b] - places[a] <= GAP) {
            let (start, end) = (places[run[0]], places[run[run.len() - 1]]);
            let copied = part(start, end - start + 1).to_vec::<T>();
            values.extend(run.iter().map(|&i| (i, copied[places[i] - start])));
        }
        values.sort_by_key(|(i, _)| *i);
        values.into_iter().map(|(_, value)| value).collect()
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.device().is_meta() {
            write!(
                f,
                "tensor(..., device='meta', size={:?}, dtype={}",
                self.shape(),
                self.dtype()
            )?;
            let grad = if self.requires_grad() { ", requires_grad=true)" } else { ")" };
            return f.write_str(grad);
        }
        let cut = self.numel() > WHOLE;
        let (real, imag) = self.columns(&self.shown(cut));
        write!(f, "tensor(")?;
        let mut next = 0;
        write_nested(f, self.shape(), 0, cut, &mut || {
            let i = next;
            next += 1;
            match &imag {
                None => real.padded(i),
                Some(imag) => {
                    let text = imag.padded(i);
                    let (text, plus) =
                        (text.trim_start(), if text.contains('-') { "" } else { "+" });
                    format!("{}{plus}{text}j", real.padded(i))
                }
            }
        })?;
        let default = matches!(self.dtype(), Dtype::F32 | Dtype::I64 | Dtype::Bool | Dtype::C64);
        if !default {
            write!(f, ", dtype={}", self.dtype())?;
        }
        if self.numel() == 0 && self.dim() != 1 {
            write!(f, ", size={:?}", self.shape())?;
        }
        if self.device().is_apart() {
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

/// Writes brackets around what `next` gives, element by element.
fn write_nested(
    f: &mut fmt::Formatter<'_>,
    shape: &[usize],
    depth: usize,
    cut: bool,
    next: &mut dyn FnMut() -> String,
) -> fmt::Result {
    let Some((&n, inner)) = shape.split_first() else { return write!(f, "{}", next()) };
    if n == 0 || inner.contains(&0) {
        return write!(f, "[]");
    }
    write!(f, "[")?;
    let indent = || " ".repeat("tensor(".len() + depth + 1);
    let between = match inner.len() {
        0 => ", ".to_owned(),
        k => format!(",{}{}", "\n".repeat(k), indent()),
    };
    let mut last = None;
    for i in shown_of(n, cut) {
        if let Some(last) = last {
            write!(f, "{between}")?;
            if last + 1 < i {
                write!(f, "{}...{between}", if inner.is_empty() { " " } else { "" })?;
            }
        }
        write_nested(f, inner, depth + 1, cut, next)?;
        last = Some(i);
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
    use crate::tensor::{Complex, Tensor};

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

    #[test]
    fn a_thousand_elements_are_shown_and_one_more_is_cut() {
        assert!(!Tensor::range(1000).to_string().contains("..."));
        assert!(Tensor::range(1001).to_string().contains("..."));
        let planes = Tensor::range(7 * 8 * 20).view([7, 8, 20]).to_string();
        assert_eq!(planes.matches("...").count(), 1 + 6 + 36, "{planes}");
        assert!(planes.starts_with("tensor([[[   0,    1,    2,  ...,   17,   18,   19],\n"));
        assert!(planes.contains("\n\n        ...,\n\n        [["), "{planes}");
    }

    /// An expanded tensor has more elements than memory has bytes.
    #[test]
    fn only_what_is_shown_is_read() {
        let huge = Tensor::from([2.5f32]).expand(&[1 << 40]);
        let row = "[2.5000, 2.5000, 2.5000,  ..., 2.5000, 2.5000, 2.5000]";
        assert_eq!(huge.to_string(), format!("tensor({row})"));
        let cells = Tensor::from([7i64]).expand(&[1 << 30, 1 << 30]);
        assert_eq!(format!("{cells:?}").matches('7').count(), 36);
        let z = Tensor::from([Complex::new(1f32, 2.)]).expand(&[1 << 40]).to_string();
        assert_eq!(z.matches("1.+2.j").count(), 6);
        // What is not shown decides nothing.
        let mut values = vec![1f32; 2000];
        values[1000] = 1e9;
        let text = Tensor::from_slice(&values, [2000]).to_string();
        assert_eq!(text, "tensor([1., 1., 1.,  ..., 1., 1., 1.])");
    }
}

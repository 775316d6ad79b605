//! Sums of products by Einstein's notation: `einsum`.
//!
//! ```text
//! "bij,bjk->bik":  y[b, i, k] = sum over j of x[b, i, j] z[b, j, k]
//! ```
//!
//! Every operand becomes a tensor with a dimension for each label of the equation, of size 1 where it
//! lacks the label: a repeated label is a diagonal, the rest a permutation. Operands are multiplied
//! from left to right. For two of them the labels fall into four kinds: in both and kept (a batch),
//! in both and summed, in the first only, in the second only; that is one batched matrix product. A
//! label that only one of them has and that nobody needs later is summed before. All is made of
//! other operations, and so is its derivative.

use std::borrow::Borrow;

use crate::amp;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::tensor::Tensor;

/// A letter, or a dimension of the ellipsis, counted from the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// The labels of the operands and of the result.
struct Equation {
    inputs: Vec<Vec<Label>>,
    output: Vec<Label>,
}

#[track_caller]
fn wrong(equation: &str, message: String) -> ! {
    throw(Error::argument("einsum", "equation", format!("`{equation}`: {message}")))
}

/// Labels of one side; the ellipsis stands for `dims` minus the letters' number of dimensions.
#[track_caller]
fn subscripts(equation: &str, part: &str, ellipsis: impl Fn(usize) -> Option<usize>) -> Vec<Label> {
    let letters = part.chars().filter(|c| c.is_ascii_alphabetic()).count();
    let mut labels = Vec::new();
    let mut rest = part;
    let mut seen = false;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("...") && !seen {
            let Some(n) = ellipsis(letters) else {
                wrong(equation, format!("`{part}` has more letters than its operand dimensions"))
            };
            labels.extend((0..n).rev().map(Label::Ellipsis));
            seen = true;
            rest = &rest[3..];
        } else if c.is_ascii_alphabetic() {
            labels.push(Label::Letter(c));
            rest = &rest[1..];
        } else {
            wrong(equation, format!("`{c}` in `{part}`; letters and one `...` are taken"));
        }
    }
    labels
}

impl Equation {
    #[track_caller]
    fn parse(text: &str, dims: &[usize]) -> Self {
        let stripped: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match stripped.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (&stripped[..], None),
        };
        let parts: Vec<&str> = left.split(',').collect();
        if parts.len() != dims.len() {
            wrong(text, format!("is of {} operands, {} are given", parts.len(), dims.len()));
        }
        let mut inputs = Vec::with_capacity(parts.len());
        for (part, &n) in parts.iter().zip(dims) {
            let labels = subscripts(text, part, |letters| n.checked_sub(letters));
            if labels.len() != n {
                wrong(
                    text,
                    format!("`{part}` is of {} dimensions, the operand has {n}", labels.len()),
                );
            }
            inputs.push(labels);
        }
        let all = || inputs.iter().flatten().copied();
        let widest =
            all().filter_map(|l| if let Label::Ellipsis(n) = l { Some(n + 1) } else { None }).max();
        let output = match right {
            Some(part) => subscripts(text, part, |_| Some(widest.unwrap_or(0))),
            None => {
                // The ellipsis, then the letters that occur once, in alphabetical order.
                let mut letters: Vec<Label> = all()
                    .filter(|&l| {
                        matches!(l, Label::Letter(_)) && all().filter(|&k| k == l).count() == 1
                    })
                    .collect();
                letters.sort();
                (0..widest.unwrap_or(0)).rev().map(Label::Ellipsis).chain(letters).collect()
            }
        };
        for (i, label) in output.iter().enumerate() {
            if let (Label::Letter(c), true) = (label, output[..i].contains(label)) {
                wrong(text, format!("`{c}` is twice in the result"));
            }
            if let (Label::Letter(c), false) = (label, all().any(|l| l == *label)) {
                wrong(text, format!("`{c}` of the result is in no operand"));
            }
        }
        Equation { inputs, output }
    }

    /// All labels: those of the result first.
    fn labels(&self) -> Vec<Label> {
        let mut labels = self.output.clone();
        for &label in self.inputs.iter().flatten() {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        labels
    }
}

/// A view with every label once: the diagonal of those that are twice.
#[track_caller]
fn diagonals(x: &Tensor, labels: &[Label]) -> (Tensor, Vec<Label>) {
    let mut kept: Vec<Label> = Vec::new();
    let (mut shape, mut strides) = (Vec::new(), Vec::new());
    for (d, label) in labels.iter().enumerate() {
        match kept.iter().position(|l| l == label) {
            None => {
                kept.push(*label);
                shape.push(x.shape()[d]);
                strides.push(x.strides()[d]);
            }
            Some(first) if shape[first] == x.shape()[d] => strides[first] += x.strides()[d],
            Some(first) => throw(Error::shape(
                "einsum",
                format!(
                    "{label:?} is twice in an operand, with sizes {} and {}",
                    shape[first],
                    x.shape()[d]
                ),
            )),
        }
    }
    match kept.len() == labels.len() {
        true => (x.clone(), kept),
        false => (x.as_strided(&shape, &strides, 0), kept),
    }
}

/// A view with one dimension for each of `labels`, of size 1 where the operand lacks it.
#[track_caller]
fn spread(x: &Tensor, own: &[Label], labels: &[Label]) -> Tensor {
    let (mut x, own) = diagonals(x, own);
    let order = labels.iter().filter_map(|l| own.iter().position(|o| o == l));
    let order: Vec<i64> = order.map(|d| d as i64).collect();
    if order.iter().enumerate().any(|(i, &d)| i as i64 != d) {
        x = x.permute(&order);
    }
    for (d, label) in labels.iter().enumerate() {
        if !own.contains(label) {
            x = x.unsqueeze(d as i64);
        }
    }
    x
}

/// The sum over dimensions, which stay with size 1, in the operand's own type.
fn sum_over(x: &Tensor, dims: &[usize]) -> Tensor {
    if dims.is_empty() {
        return x.clone();
    }
    let dims: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
    x.sum_dim(&dims, true).to_dtype(x.dtype())
}

/// The product of two spread operands, summed over what is not `needed`.
#[track_caller]
fn pair(a: &Tensor, b: &Tensor, needed: impl Fn(usize) -> bool) -> Tensor {
    let n = a.dim();
    let sizes: Vec<(usize, usize)> = (0..n).map(|d| (a.shape()[d], b.shape()[d])).collect();
    if let Some((x, y)) = sizes.iter().find(|(x, y)| x != y && *x != 1 && *y != 1) {
        let message = format!("sizes {x} and {y} of one label do not broadcast");
        throw(Error::shape("einsum", message));
    }
    let of = |kind: &dyn Fn(usize, bool, bool) -> bool| -> Vec<usize> {
        (0..n).filter(|&d| kind(d, sizes[d].0 != 1, sizes[d].1 != 1)).collect()
    };
    let a = &sum_over(a, &of(&|d, x, y| !needed(d) && x && !y));
    let b = &sum_over(b, &of(&|d, x, y| !needed(d) && !x && y));
    let summed = of(&|d, x, y| !needed(d) && x && y);
    if summed.is_empty() {
        return a * b;
    }
    let batch = of(&|d, x, y| needed(d) && (x == y));
    let rows = of(&|d, x, y| needed(d) && x && !y);
    let columns = of(&|d, x, y| needed(d) && !x && y);
    // What is left has size 1 in both.
    let rest = of(&|d, x, y| !(needed(d) || x && y));
    let count = |dims: &[usize], t: &Tensor| dims.iter().map(|&d| t.shape()[d]).product::<usize>();
    let matrices = |t: &Tensor, rows: &[usize], columns: &[usize], spare: [&[usize]; 2]| {
        let order = [&batch[..], rows, columns, spare[0], spare[1]].concat();
        let order: Vec<i64> = order.into_iter().map(|d| d as i64).collect();
        let shape = [count(&batch, t), count(rows, t), count(columns, t)].map(|n| n as i64);
        t.permute(&order).reshape(shape)
    };
    let product = matrices(a, &rows, &summed, [&columns, &rest]).bmm(&matrices(
        b,
        &summed,
        &columns,
        [&rows, &rest],
    ));
    let order = [&batch[..], &rows, &columns, &summed, &rest].concat();
    let size = |d: usize| match sizes[d] {
        _ if !needed(d) => 1,
        (1, y) => y,
        (x, _) => x,
    };
    let shape: Vec<i64> = order.iter().map(|&d| size(d) as i64).collect();
    let mut back = vec![0; n];
    order.iter().enumerate().for_each(|(place, &d)| back[d] = place as i64);
    product.reshape(&shape).permute(&back)
}

impl Tensor {
    /// Sums of products of the operands' elements, by Einstein's notation (`torch.einsum`). Labels
    /// are letters; a label that is not in the result is summed over, `...` stands for all
    /// dimensions without a letter, which broadcast. Without `->` the result has the letters that
    /// occur once, in alphabetical order.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when the equation cannot be read or is of other operands, and
    /// [`Error::Shape`] when sizes of a label differ.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (a, b) = (Tensor::from([[1f32, 2.], [3., 4.]]), Tensor::from([1f32, 10.]));
    /// assert_eq!(Tensor::einsum("ij,j->i", &[&a, &b]).to_vec::<f32>(), [21., 43.]);
    /// assert_eq!(Tensor::einsum("ii", &[&a]).item(), 5.0);
    /// ```
    #[track_caller]
    pub fn einsum(equation: &str, operands: &[impl Borrow<Tensor>]) -> Tensor {
        if amp::is_active()
            && let Some((region, cast)) = amp::Region::of_list("einsum", operands)
        {
            let out = Tensor::einsum(equation, &cast);
            drop(region);
            return out;
        }
        let operands: Vec<&Tensor> = operands.iter().map(Borrow::borrow).collect();
        if operands.is_empty() {
            throw(Error::argument("einsum", "operands", "no tensor is given"));
        }
        let dims: Vec<usize> = operands.iter().map(|x| x.dim()).collect();
        let parsed = Equation::parse(equation, &dims);
        let labels = parsed.labels();
        let kept = parsed.output.len();
        let mut spreads =
            operands.iter().zip(&parsed.inputs).map(|(x, own)| spread(x, own, &labels));
        let mut result = spreads.next().expect("at least one operand");
        for (i, next) in spreads.enumerate() {
            let later = &parsed.inputs[i + 2..];
            let needed = |d: usize| d < kept || later.iter().any(|own| own.contains(&labels[d]));
            result = pair(&result, &next, needed);
        }
        let left: Vec<usize> = (kept..labels.len()).collect();
        let dims: Vec<i64> = left.iter().map(|&d| d as i64).collect();
        // A sum of one number is a new tensor, too; a product is one already.
        let alone = operands.len() == 1;
        let open: Vec<usize> =
            left.into_iter().filter(|&d| alone || result.shape()[d] != 1).collect();
        result = sum_over(&result, &open);
        if dims.is_empty() { result } else { result.squeeze_dims(&dims) }
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let sample = |equation: &'static str, shapes: &[&[usize]]| {
        let inputs: Vec<Tensor> =
            shapes.iter().enumerate().map(|(i, s)| values(s, i as u64 + 1)).collect();
        OpSample::new(format!("einsum({equation})"), inputs, move |x| Tensor::einsum(equation, x))
            .slack(4.0)
    };
    vec![
        sample("ij,jk->ik", &[&[2, 3], &[3, 4]]),
        sample("b...i,...ij->jb...", &[&[2, 3, 2, 4], &[1, 2, 4, 2]]),
        sample("bn,anm,bm->ba", &[&[2, 3], &[4, 3, 2], &[2, 2]]),
        sample("iij->j", &[&[3, 3, 2]]),
        sample("ij,j", &[&[2, 1], &[3]]),
        sample("i,j->ji", &[&[2], &[3]]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Dtype;

    #[test]
    fn equations_that_cannot_be_read_are_named() {
        let x = Tensor::zeros([2, 3], Dtype::F32);
        for equation in ["ij->ii", "i", "i.j", "ij->k", "ij,jk", "i1", "ij->i->j", "......"] {
            let error =
                crate::error::catch(|| Tensor::einsum(equation, &[&x])).unwrap_err().to_string();
            assert!(error.contains(equation), "{equation}: {error}");
        }
        let error = crate::error::catch(|| Tensor::einsum("ii", &[&x])).unwrap_err().to_string();
        assert!(error.contains('2') && error.contains('3'), "{error}");
    }
}

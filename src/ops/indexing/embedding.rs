//! Rows of a table by index: `y[i] = table[index[i]]`. The gradient of the table is dense: zeros with
//! `g[i]` added to row `index[i]`, but for the padding row, which gets none.

use smallvec::smallvec;

use super::cuda;
use super::index_select::{add_slices, take_slices};
use crate::autograd::{no_grad, record};
use crate::cuda::refusal::in_name_of;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::gpu;
use crate::profiler;
use crate::tensor::{Dtype, Tensor};

/// Indices as dense i64 after checking them against the table; on a GPU the kernels check.
#[track_caller]
pub(in crate::ops) fn checked(indices: &Tensor, rows: usize) -> Tensor {
    if !matches!(indices.dtype(), Dtype::I64 | Dtype::I32) {
        throw(Error::dtype(
            "embedding",
            format!("`indices` holds {}; i64 or i32 is needed", indices.dtype()),
        ));
    }
    let indices = indices.detach().to_dtype(Dtype::I64).contiguous();
    if indices.device().is_apart() {
        return indices;
    }
    // SAFETY: contiguous i64; nobody writes to it.
    let all = unsafe { indices.as_slice::<i64>() };
    if let Some(position) = all.iter().position(|&i| !(0..rows as i64).contains(&i)) {
        throw(Error::argument(
            "embedding",
            "indices",
            format!(
                "index {} at position {position} is out of range: the table has {rows} rows",
                all[position]
            ),
        ));
    }
    indices
}

impl Tensor {
    /// The rows of this table named by `indices`, which may have any shape
    /// (`torch.nn.functional.embedding`). The row `padding_idx` (negative counts from the end) gets
    /// no gradient.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f32, 10.], [2., 20.], [3., 30.]]);
    /// assert_eq!(x.embedding(&Tensor::from([2i64, 0]), None).to_vec::<f32>(), [3.0, 30.0, 1.0, 10.0]);
    /// ```
    ///
    /// # Panics
    /// Throws when this is not a matrix, or an index is not the number of a row.
    #[track_caller]
    pub fn embedding(&self, indices: &Tensor, padding_idx: Option<i64>) -> Tensor {
        let &[rows, width] = self.shape() else {
            throw(Error::shape(
                "embedding",
                format!("the table must be a matrix, has shape {:?}", self.shape()),
            ))
        };
        let padding = padding_idx.map(|p| if p < 0 { p + rows as i64 } else { p });
        if let Some(p) = padding
            && !(0..rows as i64).contains(&p)
        {
            throw(Error::argument(
                "embedding",
                "padding_idx",
                format!("{} is not a row of a table of {rows} rows", padding_idx.unwrap_or(p)),
            ));
        }
        let _span = profiler::op("embedding");
        let indices = checked(indices, rows);
        let mut shape = indices.layout().shape.clone();
        shape.push(width);
        let flat = indices.reshape([-1]);
        let out = in_name_of("embedding", "indices", || {
            take_slices(&self.detach().contiguous(), 0, &flat).reshape_to(&shape)
        });
        record("embedding", &[self], out, |saver| {
            let flat = saver.save(&flat);
            move |ctx| {
                let g = ctx.grad(0).reshape([-1, width as i64]);
                smallvec![Some(table_gradient(&g, &ctx.get(&flat), rows, padding))]
            }
        })
    }
}

impl Tensor {
    /// [`embedding`](Self::embedding), whose rows get their gradient divided by how often `indices`
    /// names them (`torch.nn.functional.embedding` with `scale_grad_by_freq`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f32], [2.], [3.]]).requires_grad_(true);
    /// x.embedding_scaled_by_freq(&Tensor::from([2i64, 0, 2]), Some(0)).sum().backward();
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>(), [0.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// As [`embedding`](Self::embedding).
    #[track_caller]
    pub fn embedding_scaled_by_freq(&self, indices: &Tensor, padding_idx: Option<i64>) -> Tensor {
        let rows = self.embedding(indices, padding_idx);
        let counts = indices.ravel().bincount(None, 0).take(&indices.to_dtype(Dtype::I64));
        rows.with_gradient_share(&counts.to_dtype(rows.dtype()).reciprocal().unsqueeze(-1))
    }

    /// This table, whose rows get their gradient divided by how often `indices` names them.
    #[track_caller]
    pub(in crate::ops) fn scaled_by_freq(&self, indices: &Tensor) -> Tensor {
        let rows = self.shape().first().copied().unwrap_or(0);
        let counts = checked(indices, rows).reshape([-1]).bincount(None, rows).clamp_min(1i64);
        self.with_gradient_share(&counts.to_dtype(self.dtype()).reciprocal().unsqueeze(-1))
    }

    /// These numbers, with a share of their gradient.
    fn with_gradient_share(&self, share: &Tensor) -> Tensor {
        let value = self.detach().clone_contiguous();
        record("gradient_share", &[self], value, |saver| {
            let share = saver.save(share);
            move |ctx| smallvec![Some(ctx.grad(0) * ctx.get(&share))]
        })
    }
}

impl Tensor {
    /// Shortens the rows of this table that `indices` name and that are longer than `max_norm` by the norm of order
    /// `norm_type` to that length, in place and unseen by autograd (`torch.embedding_renorm_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let table = Tensor::from([[3f64, 4.], [3., 4.], [0., 1.]]);
    /// table.embedding_renorm_(&Tensor::from([0i64, 2]), 2.5, 2.0);
    /// let expected = Tensor::from([[1.5f64, 2.], [3., 4.], [0., 1.]]);
    /// assert!(table.allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] unless this is a matrix, and for indices as [`embedding`](Self::embedding).
    #[track_caller]
    pub fn embedding_renorm_(&self, indices: &Tensor, max_norm: f64, norm_type: f64) -> &Tensor {
        let &[height, _] = self.shape() else {
            let message = format!("the table must be a matrix, has shape {:?}", self.shape());
            throw(Error::shape("embedding_renorm_", message));
        };
        let indices = checked(indices, height).reshape([-1]);
        no_grad(|| {
            let table = self.detach();
            let rows = table.index_select(0, &indices);
            let norms = rows.norm_dim(norm_type, &[1], true).to_dtype(Dtype::F64);
            // PyTorch's guard against a division by 0.
            let shorter = (&rows * (max_norm / (&norms + 1e-7))).to_dtype(rows.dtype());
            let rows = norms.gt(max_norm).where_(&shorter, &rows);
            table.index_put_(&[Some(&indices)], &rows, false);
        });
        self
    }
}

/// Zeros of `rows` rows with the rows of `g` added at `flat`, without the padding. Linear in `g`, so
/// its own gradient is a lookup again.
fn table_gradient(g: &Tensor, flat: &Tensor, rows: usize, padding: Option<i64>) -> Tensor {
    let width = g.shape()[1];
    let out = Tensor::zeros([rows, width], (g.dtype(), g.device()));
    let dense = g.detach().contiguous();
    match (padding, gpu::of("embedding", &[g, flat])) {
        (_, Some(gpu)) => cuda::add_slices(gpu, &out, 0, flat, &dense, padding),
        (None, None) => add_slices(&out, 0, flat, &dense),
        (Some(p), None) => {
            let kept = (0i64..).zip(flat.to_vec::<i64>()).filter(|&(_, i)| i != p);
            let (places, indices): (Vec<i64>, Vec<i64>) = kept.unzip();
            let dense = take_slices(&dense, 0, &Tensor::from(places));
            add_slices(&out, 0, &Tensor::from(indices), &dense);
        }
    }
    record("embedding_backward", &[g], out, |saver| {
        let flat = saver.save(flat);
        move |ctx| {
            let (flat, gg) = (ctx.get(&flat), ctx.grad(0));
            let rows = gg.embedding(&flat, None);
            smallvec![Some(match padding {
                None => rows,
                Some(p) => rows.masked_fill(&flat.eq(p).unsqueeze(1), 0.0),
            })]
        }
    })
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let indices = || Tensor::from([[2i64, 0], [2, 4]]);
    let table = || vec![values([5, 3], 4)];
    vec![
        OpSample::new("embedding", table(), move |x| {
            x[0].embedding(&indices().to_device(x[0].device()), None)
        }),
        OpSample::new("embedding, i32, 0-dim", table(), |x| {
            x[0].embedding(&Tensor::from([3i32]).to_device(x[0].device()).reshape([]), None)
        }),
        OpSample::new("embedding, empty", table(), |x| {
            x[0].embedding(&Tensor::from([0i64; 0]).to_device(x[0].device()), None)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd;
    use crate::error::catch;

    #[test]
    fn the_padding_row_gets_no_gradient_in_any_order() {
        let table = values([3, 2], 1).requires_grad_(true);
        let y = table.embedding(&Tensor::from([1i64, 0, 1, 2]), Some(-2));
        let loss = (&y * &y).sum();
        let g = autograd::grad(&[&loss], &[&table], &[None], autograd::GraphMode::Create)[0]
            .clone()
            .unwrap();
        let rows = table.to_vec::<f64>();
        let expected = [2.0 * rows[0], 2.0 * rows[1], 0.0, 0.0, 2.0 * rows[4], 2.0 * rows[5]];
        assert_eq!(g.to_vec::<f64>(), expected);
        let gg = autograd::grad(&[&g.sum()], &[&table], &[None], autograd::GraphMode::Free)[0]
            .clone()
            .unwrap();
        assert_eq!(gg.to_vec::<f64>(), [2.0, 2.0, 0.0, 0.0, 2.0, 2.0]);
    }

    #[test]
    fn an_index_outside_the_table_is_named() {
        let table = values([5, 3], 1);
        let error =
            catch(|| table.embedding(&Tensor::from([0i64, 9]), None)).unwrap_err().to_string();
        assert!(error.contains("index 9 at position 1") && error.contains("5 rows"), "{error}");
        let error =
            catch(|| table.embedding(&Tensor::from([0.5f32]), None)).unwrap_err().to_string();
        assert!(error.contains("f32"), "{error}");
    }
}

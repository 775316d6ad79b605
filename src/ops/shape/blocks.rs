//! Matrices along the diagonal of one (`torch.block_diag`).

use std::borrow::Borrow;

use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor, promote_types};

impl Tensor {
    /// A matrix with the given ones along its diagonal and zeros elsewhere (`torch.block_diag`). A list counts as a row,
    /// a number as a matrix of one element; without any the result is `[1, 0]`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::block_diag(&[Tensor::from([[1i64, 2], [3, 4]]), Tensor::from([[5i64]])]);
    /// assert_eq!(y.to_vec::<i64>(), [1, 2, 0, 3, 4, 0, 0, 0, 5]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for more than two dimensions.
    #[track_caller]
    pub fn block_diag(tensors: &[impl Borrow<Tensor>]) -> Tensor {
        let blocks: Vec<Tensor> = tensors.iter().map(|t| t.borrow().atleast_2d()).collect();
        if let Some(block) = blocks.iter().find(|block| block.dim() > 2) {
            let message = format!("takes matrices, got a tensor of shape {:?}", block.shape());
            throw(Error::shape("block_diag", message));
        }
        let Some(first) = blocks.first() else { return Tensor::zeros([1, 0], Dtype::F32) };
        let dtype =
            blocks.iter().fold(first.dtype(), |all, block| promote_types(all, block.dtype()));
        let columns: usize = blocks.iter().map(|block| block.size(1)).sum();
        let mut before = 0;
        let rows = blocks.iter().map(|block| {
            let (height, width) = (block.size(0), block.size(1));
            let zeros = |n: usize| Tensor::zeros([height, n], (dtype, block.device()));
            let row = [zeros(before), block.to_dtype(dtype), zeros(columns - before - width)];
            before += width;
            Tensor::cat(&row, 1)
        });
        Tensor::cat(&rows.collect::<Vec<_>>(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;

    #[test]
    fn blocks_are_promoted_and_have_gradients() {
        let x = Tensor::from([1f64, 2.]).requires_grad_(true);
        let y =
            Tensor::block_diag(&[x.clone(), Tensor::scalar(3), Tensor::zeros([0, 1], Dtype::F32)]);
        assert_eq!((y.shape(), y.dtype()), (&[2, 4][..], Dtype::F64));
        assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0]);
        y.square().sum().backward();
        assert_eq!(x.grad().unwrap().to_vec::<f64>(), [2.0, 4.0]);
        assert_eq!(Tensor::block_diag(&[] as &[Tensor]).shape(), &[1, 0]);
        assert!(catch(|| Tensor::block_diag(&[Tensor::zeros([1, 1, 1], Dtype::F32)])).is_err());
    }
}

//! Normalisation.

use crate::tensor::Tensor;

methods! {
    /// See [`Tensor::batch_norm`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (x, mean, var) = (Tensor::from([[3f64], [5.]]), Tensor::from([1f64]), Tensor::from([4f64]));
    /// let y = F::batch_norm(&x, Some(&mean), Some(&var), None, None, false, 0.1, 1e-5);
    /// assert!((y - Tensor::from([[1f64], [2.]])).abs().max().item() < 1e-4);
    /// ```
    batch_norm(
        x, running_mean: Option<&Tensor>, running_var: Option<&Tensor>, weight: Option<&Tensor>,
        bias: Option<&Tensor>, training: bool, momentum: f64, eps: f64
    );
    /// See [`Tensor::instance_norm`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let x = Tensor::from([[[1f64, 3.], [10., 30.]]]);
    /// let y = F::instance_norm(&x, None, None, None, None, true, 0.1, 1e-5);
    /// assert!((y - Tensor::from([[[-1f64, 1.], [-1., 1.]]])).abs().max().item() < 1e-4);
    /// ```
    instance_norm(
        x, running_mean: Option<&Tensor>, running_var: Option<&Tensor>, weight: Option<&Tensor>,
        bias: Option<&Tensor>, use_input_stats: bool, momentum: f64, eps: f64
    );
    /// See [`Tensor::group_norm`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::group_norm(&Tensor::from([[1f64, 3., 10., 30.]]), 2, None, None, 1e-5);
    /// assert!((y - Tensor::from([[-1f64, 1., -1., 1.]])).abs().max().item() < 1e-4);
    /// ```
    group_norm(x, num_groups: usize, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64);
    /// See [`Tensor::local_response_norm`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// // 2 / (1 + 2^2)
    /// let y = F::local_response_norm(&Tensor::from([[[2f64]]]), 1, 1.0, 1.0, 1.0);
    /// assert!((y.item() - 0.4).abs() < 1e-9);
    /// ```
    local_response_norm(x, size: usize, alpha: f64, beta: f64, k: f64);
    /// See [`Tensor::layer_norm`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::layer_norm(&Tensor::from([[1f64, 3.], [10., 30.]]), &[2], None, None, 1e-5);
    /// assert!((y - Tensor::from([[-1f64, 1.], [-1., 1.]])).abs().max().item() < 1e-4);
    /// ```
    layer_norm(x, normalized_shape: &[usize], weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64);
    /// See [`Tensor::rms_norm`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::rms_norm(&Tensor::from([[2f64, -2.], [5., 5.]]), &[2], None, None);
    /// assert!((y - Tensor::from([[1f64, -1.], [1., 1.]])).abs().max().item() < 1e-9);
    /// ```
    rms_norm(x, normalized_shape: &[usize], weight: Option<&Tensor>, eps: Option<f64>);
}

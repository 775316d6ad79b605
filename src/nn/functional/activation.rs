//! Activations element by element, softmax and dropout.

use crate::tensor::Tensor;

methods! {
    /// See [`Tensor::relu`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::relu(&Tensor::from([-1f32, 2.])).to_vec::<f32>(), [0.0, 2.0]);
    /// ```
    relu(x);
    /// See [`Tensor::leaky_relu`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::leaky_relu(&Tensor::from([-2f32, 3.]), 0.5).to_vec::<f32>(), [-1.0, 3.0]);
    /// ```
    leaky_relu(x, negative_slope: f64);
    /// See [`Tensor::elu`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::elu(&Tensor::from([-100f32, 3.]), 2.0).to_vec::<f32>(), [-2.0, 3.0]);
    /// ```
    elu(x, alpha: f64);
    /// See [`Tensor::selu`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::selu(&Tensor::from([1f64, -100.])).to_vec::<f64>();
    /// assert!((y[0] - 1.0507).abs() < 1e-4 && (y[1] + 1.7581).abs() < 1e-4);
    /// ```
    selu(x);
    /// See [`Tensor::celu`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::celu(&Tensor::from([-100f32, 3.]), 2.0).to_vec::<f32>(), [-2.0, 3.0]);
    /// ```
    celu(x, alpha: f64);
    /// See [`Tensor::mish`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert!((F::mish(&Tensor::from([1f64])).item() - 0.8651).abs() < 1e-4);
    /// ```
    mish(x);
    /// See [`Tensor::softplus`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::softplus(&Tensor::from([0f64, 30.]), 1.0, 20.0).to_vec::<f64>();
    /// assert!((y[0] - 2f64.ln()).abs() < 1e-9 && y[1] == 30.0);
    /// ```
    softplus(x, beta: f64, threshold: f64);
    /// See [`Tensor::softsign`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::softsign(&Tensor::from([-3f32, 1.])).to_vec::<f32>(), [-0.75, 0.5]);
    /// ```
    softsign(x);
    /// See [`Tensor::tanhshrink`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert!((F::tanhshrink(&Tensor::from([1f64])).item() - 0.2384).abs() < 1e-4);
    /// ```
    tanhshrink(x);
    /// See [`Tensor::logsigmoid`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert!((F::logsigmoid(&Tensor::from([0f64])).item() + 2f64.ln()).abs() < 1e-9);
    /// ```
    logsigmoid(x);
    /// See [`Tensor::hardsigmoid`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::hardsigmoid(&Tensor::from([-3f32, 0., 3.])).to_vec::<f32>(), [0.0, 0.5, 1.0]);
    /// ```
    hardsigmoid(x);
    /// See [`Tensor::hardswish`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::hardswish(&Tensor::from([-4f32, 0., 6.])).to_vec::<f32>(), [0.0, 0.0, 6.0]);
    /// ```
    hardswish(x);
    /// See [`Tensor::hardshrink`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::hardshrink(&Tensor::from([-1f32, 0.25]), 0.5).to_vec::<f32>(), [-1.0, 0.0]);
    /// ```
    hardshrink(x, lambd: f64);
    /// See [`Tensor::softshrink`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::softshrink(&Tensor::from([-1f32, 0.25, 2.]), 0.5).to_vec::<f32>(), [-0.5, 0.0, 1.5]);
    /// ```
    softshrink(x, lambd: f64);
    /// See [`Tensor::hardtanh`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::hardtanh(&Tensor::from([-2f32, 0.5, 3.]), -1.0, 1.0).to_vec::<f32>(), [-1.0, 0.5, 1.0]);
    /// ```
    hardtanh(x, min_val: f64, max_val: f64);
    /// See [`Tensor::threshold`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::threshold(&Tensor::from([0.5f32, 2.]), 1.0, -7.0).to_vec::<f32>(), [-7.0, 2.0]);
    /// ```
    threshold(x, threshold: f64, value: f64);
    /// See [`Tensor::prelu`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let slope = Tensor::from([0.25f32]);
    /// assert_eq!(F::prelu(&Tensor::from([-4f32, 2.]), &slope).to_vec::<f32>(), [-1.0, 2.0]);
    /// ```
    prelu(x, weight: &Tensor);
    /// See [`Tensor::gelu`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert!((F::gelu(&Tensor::from([1f64])).item() - 0.841345).abs() < 1e-6);
    /// ```
    gelu(x);
    /// See [`Tensor::gelu_tanh`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert!((F::gelu_tanh(&Tensor::from([1f64])).item() - 0.841192).abs() < 1e-6);
    /// ```
    gelu_tanh(x);
    /// See [`Tensor::silu`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert!((F::silu(&Tensor::from([1f64])).item() - 0.731059).abs() < 1e-6);
    /// ```
    silu(x);
    /// See [`Tensor::tanh`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert!((F::tanh(&Tensor::from([1f64])).item() - 0.761594).abs() < 1e-6);
    /// ```
    tanh(x);
    /// See [`Tensor::sigmoid`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert!((F::sigmoid(&Tensor::from([3f64.ln()])).item() - 0.75).abs() < 1e-9);
    /// ```
    sigmoid(x);
    /// See [`Tensor::softmax`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let shares = F::softmax(&Tensor::from([[0f64, 3f64.ln()]]), 1).to_vec::<f64>();
    /// assert!((shares[0] - 0.25).abs() < 1e-9 && (shares[1] - 0.75).abs() < 1e-9);
    /// ```
    softmax(x, dim: i64);
    /// See [`Tensor::log_softmax`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::log_softmax(&Tensor::from([5f64, 5.]), 0).to_vec::<f64>();
    /// assert!(y.iter().all(|v| (v + 2f64.ln()).abs() < 1e-9));
    /// ```
    log_softmax(x, dim: i64);
    /// See [`Tensor::dropout`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F};
    /// let x = Tensor::ones([8], Dtype::F32);
    /// assert!(F::dropout(&x, 0.5, false).equal(&x));
    /// assert!(F::dropout(&x, 0.5, true).to_vec::<f32>().iter().all(|&v| v == 0.0 || v == 2.0));
    /// ```
    dropout(x, p: f64, training: bool);
}

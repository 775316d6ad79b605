//! Activations element by element, softmax and dropout.

use crate::tensor::Tensor;

methods! {
    relu(x);
    leaky_relu(x, negative_slope: f64);
    elu(x, alpha: f64);
    selu(x);
    celu(x, alpha: f64);
    mish(x);
    softplus(x, beta: f64, threshold: f64);
    softsign(x);
    tanhshrink(x);
    logsigmoid(x);
    hardsigmoid(x);
    hardswish(x);
    hardshrink(x, lambd: f64);
    softshrink(x, lambd: f64);
    hardtanh(x, min_val: f64, max_val: f64);
    threshold(x, threshold: f64, value: f64);
    prelu(x, weight: &Tensor);
    gelu(x);
    gelu_tanh(x);
    silu(x);
    tanh(x);
    sigmoid(x);
    softmax(x, dim: i64);
    log_softmax(x, dim: i64);
    dropout(x, p: f64, training: bool);
}

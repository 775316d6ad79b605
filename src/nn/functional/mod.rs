//! Functions of `torch.nn.functional`: the tensor methods of that name as functions, and those that
//! are made of several ops.

mod distance;
mod gate;
mod loss;
mod margin;

use crate::Tensor;
use crate::error::{Error, throw};
use crate::ops::{
    Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvTransposeOptions, CrossEntropyOptions,
    EmbeddingBagOptions, GridSampleOptions, InterpolateOptions, NllLossOptions, PadMode,
    Pool1dOptions, Pool2dOptions, Pool3dOptions, PoolOptions, UnfoldOptions,
};

pub use crate::ops::{CtcLossOptions, ctc_loss};
pub use distance::{cosine_similarity, normalize, pairwise_distance, pdist};
pub use gate::{
    alpha_dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout, glu, gumbel_softmax,
    relu6, rrelu, softmin,
};
pub use loss::{
    BceWithLogitsOptions, GaussianNllOptions, KlDivOptions, PoissonNllOptions,
    binary_cross_entropy, binary_cross_entropy_with_logits, binary_cross_entropy_with_logits_with,
    gaussian_nll_loss, huber_loss, kl_div, l1_loss, l1_loss_with, mse_loss, mse_loss_with,
    poisson_nll_loss, smooth_l1_loss, soft_margin_loss,
};
pub use margin::{
    MultiMarginOptions, TripletMarginOptions, cosine_embedding_loss, hinge_embedding_loss,
    margin_ranking_loss, multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss,
    triplet_margin_loss, triplet_margin_with_distance_loss,
};

/// A tensor, where nothing else is said.
macro_rules! result {
    () => {
        Tensor
    };
    ($t:ty) => {
        $t
    };
}

macro_rules! methods {
    ($($(#[$doc:meta])+ $name:ident($x:ident $(, $argument:ident: $t:ty)*) $(-> $r:ty)?;)*) => {$(
        $(#[$doc])+
        #[track_caller]
        #[allow(clippy::too_many_arguments, reason = "PyTorch's signature")]
        pub fn $name($x: &Tensor $(, $argument: $t)*) -> result!($($r)?) {
            $x.$name($($argument),*)
        }
    )*};
}

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
    /// See [`Tensor::linear`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (weight, bias) = (Tensor::from([[3f32, 4.], [5., 6.]]), Tensor::from([10f32, 20.]));
    /// let y = F::linear(&Tensor::from([[1f32, 2.]]), &weight, Some(&bias));
    /// assert_eq!(y.to_vec::<f32>(), [21.0, 37.0]);
    /// ```
    linear(x, weight: &Tensor, bias: Option<&Tensor>);
    /// See [`Tensor::conv1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (x, weight) = (Tensor::from([[[1f32, 2., 4.]]]), Tensor::from([[[1f32, -1.]]]));
    /// assert_eq!(F::conv1d(&x, &weight, None, Default::default()).to_vec::<f32>(), [-1.0, -2.0]);
    /// ```
    conv1d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv1dOptions);
    /// See [`Tensor::conv2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let x = Tensor::from([[[[1f32, 2.], [3., 4.]]]]);
    /// let weight = Tensor::from([[[[1f32, 0.], [0., 1.]]]]);
    /// assert_eq!(F::conv2d(&x, &weight, None, Default::default()).item(), 5.0);
    /// ```
    conv2d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv2dOptions);
    /// See [`Tensor::max_pool2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool2dOptions};
    /// let x = Tensor::from([[[[1f32, 2.], [3., 4.]]]]);
    /// assert_eq!(F::max_pool2d(&x, Pool2dOptions::new([2, 1])).to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    max_pool2d(x, options: Pool2dOptions);
    /// See [`Tensor::avg_pool2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool2dOptions};
    /// let x = Tensor::from([[[[1f32, 2.], [3., 4.]]]]);
    /// assert_eq!(F::avg_pool2d(&x, Pool2dOptions::new([2, 1])).to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    avg_pool2d(x, options: Pool2dOptions);
    /// See [`Tensor::adaptive_avg_pool2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let x = Tensor::from([[[[1f32, 2.], [3., 4.]]]]);
    /// assert_eq!(F::adaptive_avg_pool2d(&x, [Some(1), None]).to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    adaptive_avg_pool2d(x, output_size: [Option<usize>; 2]);
    /// See [`Tensor::conv3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F};
    /// let x = Tensor::ones([1, 3, 4, 4, 4], Dtype::F32);
    /// let weight = Tensor::ones([1, 3, 2, 2, 2], Dtype::F32);
    /// let y = F::conv3d(&x, &weight, None, Default::default());
    /// assert_eq!((y.shape(), y.max().item()), (&[1, 1, 3, 3, 3][..], 24.0));
    /// ```
    conv3d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv3dOptions);
    /// See [`Tensor::conv_transpose1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (x, weight) = (Tensor::from([[[1f32, 2.]]]), Tensor::from([[[1f32, 10.]]]));
    /// let y = F::conv_transpose1d(&x, &weight, None, Default::default());
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 12.0, 20.0]);
    /// ```
    conv_transpose1d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<1>);
    /// See [`Tensor::conv_transpose2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (x, weight) = (Tensor::from([[[[2f32]]]]), Tensor::from([[[[1f32, 2.], [3., 4.]]]]));
    /// let y = F::conv_transpose2d(&x, &weight, None, Default::default());
    /// assert_eq!(y.to_vec::<f32>(), [2.0, 4.0, 6.0, 8.0]);
    /// ```
    conv_transpose2d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<2>);
    /// See [`Tensor::conv_transpose3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F};
    /// let x = Tensor::ones([1, 1, 3, 3, 3], Dtype::F32);
    /// let weight = Tensor::ones([1, 2, 2, 2, 2], Dtype::F32);
    /// let y = F::conv_transpose3d(&x, &weight, None, Default::default());
    /// assert_eq!((y.shape(), y.max().item()), (&[1, 2, 4, 4, 4][..], 8.0));
    /// ```
    conv_transpose3d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<3>);
    /// See [`Tensor::fold`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::UnfoldOptions};
    /// // Two windows of 2 x 2, which share the column in the middle.
    /// let y = F::fold(&Tensor::ones([1, 4, 2], Dtype::F32), [2, 3], UnfoldOptions::new([2, 2]));
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 2.0, 1.0, 1.0, 2.0, 1.0]);
    /// ```
    fold(x, output_size: [usize; 2], options: UnfoldOptions);
    /// See [`Tensor::max_pool1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool1dOptions};
    /// let x = Tensor::from([[[1f32, 3., 2., 5.]]]);
    /// assert_eq!(F::max_pool1d(&x, Pool1dOptions::new([2])).to_vec::<f32>(), [3.0, 5.0]);
    /// ```
    max_pool1d(x, options: Pool1dOptions);
    /// See [`Tensor::max_pool1d_with_indices`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool1dOptions};
    /// let x = Tensor::from([[[1f32, 3., 2., 5.]]]);
    /// let (largest, places) = F::max_pool1d_with_indices(&x, Pool1dOptions::new([2]));
    /// assert_eq!((largest.to_vec::<f32>(), places.to_vec::<i64>()), (vec![3.0, 5.0], vec![1, 3]));
    /// ```
    max_pool1d_with_indices(x, options: Pool1dOptions) -> (Tensor, Tensor);
    /// See [`Tensor::max_pool2d_with_indices`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool2dOptions};
    /// let x = Tensor::from([[[[1f32, 2.], [4., 3.]]]]);
    /// let (largest, places) = F::max_pool2d_with_indices(&x, Pool2dOptions::new([2, 2]));
    /// assert_eq!((largest.item(), places.item()), (4.0, 2.0));
    /// ```
    max_pool2d_with_indices(x, options: Pool2dOptions) -> (Tensor, Tensor);
    /// See [`Tensor::max_pool3d_with_indices`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::Pool3dOptions};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// let (largest, places) = F::max_pool3d_with_indices(&(x * 10.0), Pool3dOptions::new([2, 2, 2]));
    /// assert_eq!((largest.item(), places.item()), (70.0, 7.0));
    /// ```
    max_pool3d_with_indices(x, options: Pool3dOptions) -> (Tensor, Tensor);
    /// See [`Tensor::adaptive_max_pool1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (largest, places) = F::adaptive_max_pool1d(&Tensor::from([[[1f32, 3., 2., 5.]]]), 2);
    /// assert_eq!((largest.to_vec::<f32>(), places.to_vec::<i64>()), (vec![3.0, 5.0], vec![1, 3]));
    /// ```
    adaptive_max_pool1d(x, output_size: usize) -> (Tensor, Tensor);
    /// See [`Tensor::adaptive_max_pool2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let x = Tensor::from([[[[1f32, 2.], [4., 3.]]]]);
    /// let (largest, places) = F::adaptive_max_pool2d(&x, [Some(1), None]);
    /// assert_eq!((largest.to_vec::<f32>(), places.to_vec::<i64>()), (vec![4.0, 3.0], vec![2, 3]));
    /// ```
    adaptive_max_pool2d(x, output_size: [Option<usize>; 2]) -> (Tensor, Tensor);
    /// See [`Tensor::adaptive_max_pool3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// let (largest, places) = F::adaptive_max_pool3d(&(x * 10.0), [Some(1); 3]);
    /// assert_eq!((largest.item(), places.item()), (70.0, 7.0));
    /// ```
    adaptive_max_pool3d(x, output_size: [Option<usize>; 3]) -> (Tensor, Tensor);
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
    /// See [`Tensor::bilinear`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (x, other, weight) = (Tensor::from([[2f32]]), Tensor::from([[3f32]]), Tensor::from([[[4f32]]]));
    /// assert_eq!(F::bilinear(&x, &other, &weight, Some(&Tensor::from([1f32]))).item(), 25.0);
    /// ```
    bilinear(x, other: &Tensor, weight: &Tensor, bias: Option<&Tensor>);
    /// See [`Tensor::one_hot`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// assert_eq!(F::one_hot(&Tensor::from([1i64]), 3).to_vec::<i64>(), [0, 1, 0]);
    /// ```
    one_hot(x, num_classes: usize);
    /// See [`Tensor::max_pool3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::Pool3dOptions};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// assert_eq!(F::max_pool3d(&x, Pool3dOptions::new([2, 2, 1])).to_vec::<f32>(), [6.0, 7.0]);
    /// ```
    max_pool3d(x, options: Pool3dOptions);
    /// See [`Tensor::avg_pool1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool1dOptions};
    /// let x = Tensor::from([[[1f32, 3., 2., 6.]]]);
    /// assert_eq!(F::avg_pool1d(&x, Pool1dOptions::new([2])).to_vec::<f32>(), [2.0, 4.0]);
    /// ```
    avg_pool1d(x, options: Pool1dOptions);
    /// See [`Tensor::avg_pool3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::Pool3dOptions};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// assert_eq!(F::avg_pool3d(&x, Pool3dOptions::new([2, 2, 1])).to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    avg_pool3d(x, options: Pool3dOptions);
    /// See [`Tensor::adaptive_avg_pool1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let x = Tensor::from([[[1f32, 3., 2., 6.]]]);
    /// assert_eq!(F::adaptive_avg_pool1d(&x, 2).to_vec::<f32>(), [2.0, 4.0]);
    /// ```
    adaptive_avg_pool1d(x, output_size: usize);
    /// See [`Tensor::adaptive_avg_pool3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// assert_eq!(F::adaptive_avg_pool3d(&x, [Some(1), Some(1), None]).to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    adaptive_avg_pool3d(x, output_size: [Option<usize>; 3]);
    /// See [`Tensor::lp_pool1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool1dOptions};
    /// let y = F::lp_pool1d(&Tensor::from([[[3f64, 4.]]]), 2.0, Pool1dOptions::new([2]));
    /// assert!((y.item() - 5.0).abs() < 1e-9);
    /// ```
    lp_pool1d(x, norm_type: f64, options: Pool1dOptions);
    /// See [`Tensor::lp_pool2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool2dOptions};
    /// let y = F::lp_pool2d(&Tensor::from([[[[1f64, 1.], [1., 1.]]]]), 2.0, Pool2dOptions::new([2, 2]));
    /// assert!((y.item() - 2.0).abs() < 1e-9);
    /// ```
    lp_pool2d(x, norm_type: f64, options: Pool2dOptions);
    /// See [`Tensor::lp_pool3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::Pool3dOptions};
    /// let y = F::lp_pool3d(&Tensor::ones([1, 1, 2, 2, 2], Dtype::F64), 3.0, Pool3dOptions::new([2, 2, 2]));
    /// assert!((y.item() - 2.0).abs() < 1e-9);
    /// ```
    lp_pool3d(x, norm_type: f64, options: Pool3dOptions);
    /// See [`Tensor::pad`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::PadMode};
    /// let y = F::pad(&Tensor::from([[1f32, 2.]]), &[1, 2], PadMode::Constant(9.into()));
    /// assert_eq!(y.to_vec::<f32>(), [9.0, 1.0, 2.0, 9.0, 9.0]);
    /// ```
    pad(x, padding: &[i64], mode: PadMode);
    /// See [`Tensor::interpolate`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::{InterpolateMode, InterpolateOptions}};
    /// let options = InterpolateOptions::scale(2.0, InterpolateMode::Nearest);
    /// let y = F::interpolate(&Tensor::from([[[1f32, 2.]]]), &options);
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 1.0, 2.0, 2.0]);
    /// ```
    interpolate(x, options: &InterpolateOptions);
    /// See [`Tensor::grid_sample`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::GridSampleOptions};
    /// let (x, grid) = (Tensor::from([[[[1f32, 2.], [3., 4.]]]]), Tensor::from([[[[1f32, -1.], [0., 0.]]]]));
    /// let y = F::grid_sample(&x, &grid, GridSampleOptions { align_corners: true, ..Default::default() });
    /// assert_eq!(y.to_vec::<f32>(), [2.0, 2.5]);
    /// ```
    grid_sample(x, grid: &Tensor, options: GridSampleOptions);
    /// See [`Tensor::affine_grid`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let identity = Tensor::from([[[1f32, 0., 0.], [0., 1., 0.]]]);
    /// let grid = F::affine_grid(&identity, &[1, 1, 2, 2], true);
    /// assert_eq!(grid.to_vec::<f32>(), [-1.0, -1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0]);
    /// ```
    affine_grid(x, size: &[usize], align_corners: bool);
    /// See [`Tensor::pixel_shuffle`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::pixel_shuffle(&Tensor::from([1f32, 2., 3., 4.]).view([1, 4, 1, 1]), 2);
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 1, 2, 2][..], vec![1.0, 2.0, 3.0, 4.0]));
    /// ```
    pixel_shuffle(x, upscale_factor: usize);
    /// See [`Tensor::pixel_unshuffle`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::pixel_unshuffle(&Tensor::from([[[[1f32, 2.], [3., 4.]]]]), 2);
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 4, 1, 1][..], vec![1.0, 2.0, 3.0, 4.0]));
    /// ```
    pixel_unshuffle(x, downscale_factor: usize);
    /// See [`Tensor::channel_shuffle`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::channel_shuffle(&Tensor::from([0f32, 1., 2., 3.]).view([1, 4, 1, 1]), 2);
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 2.0, 1.0, 3.0]);
    /// ```
    channel_shuffle(x, groups: usize);
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
    /// See [`Tensor::scaled_dot_product_attention`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// // Equal keys share the attention.
    /// let (query, keys) = (Tensor::from([[[[1f32]]]]), Tensor::from([[[[1f32], [1.]]]]));
    /// let values = Tensor::from([[[[2f32], [4.]]]]);
    /// assert_eq!(F::scaled_dot_product_attention(&query, &keys, &values, None, false, None).item(), 3.0);
    /// ```
    scaled_dot_product_attention(
        x, key: &Tensor, value: &Tensor, attn_mask: Option<&Tensor>, is_causal: bool,
        scale: Option<f64>
    );
    /// See [`Tensor::dropout`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F};
    /// let x = Tensor::ones([8], Dtype::F32);
    /// assert!(F::dropout(&x, 0.5, false).equal(&x));
    /// assert!(F::dropout(&x, 0.5, true).to_vec::<f32>().iter().all(|&v| v == 0.0 || v == 2.0));
    /// ```
    dropout(x, p: f64, training: bool);
    /// See [`Tensor::cross_entropy`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let loss = F::cross_entropy(&Tensor::from([[0f64, 0., 0., 0.]]), &Tensor::from([2i64]));
    /// assert!((loss.item() - 4f64.ln()).abs() < 1e-9);
    /// ```
    cross_entropy(x, target: &Tensor);
    /// See [`Tensor::cross_entropy_with`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::{CrossEntropyOptions, Reduction}};
    /// let options = CrossEntropyOptions { reduction: Reduction::Sum, ..Default::default() };
    /// let (scores, classes) = (Tensor::from([[0f64, 0.], [1., 1.]]), Tensor::from([0i64, 1]));
    /// let loss = F::cross_entropy_with(&scores, &classes, &options);
    /// assert!((loss.item() - 2.0 * 2f64.ln()).abs() < 1e-9);
    /// ```
    cross_entropy_with(x, target: &Tensor, options: &CrossEntropyOptions);
    /// See [`Tensor::nll_loss`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let log_probs = Tensor::from([[-1f32, -2.], [-3., -4.]]);
    /// assert_eq!(F::nll_loss(&log_probs, &Tensor::from([0i64, 1])).item(), 2.5);
    /// ```
    nll_loss(x, target: &Tensor);
    /// See [`Tensor::nll_loss_with`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::NllLossOptions};
    /// let log_probs = Tensor::from([[-1f32, -2.], [-3., -4.]]);
    /// let options = NllLossOptions { ignore_index: 0, ..Default::default() };
    /// assert_eq!(F::nll_loss_with(&log_probs, &Tensor::from([0i64, 1]), &options).item(), 4.0);
    /// ```
    nll_loss_with(x, target: &Tensor, options: &NllLossOptions);
}

/// Sliding windows of images as columns (`torch.nn.functional.unfold`); see [`Tensor::unfold2d`].
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::UnfoldOptions};
/// let y = F::unfold(&Tensor::from([[[[1f32, 2.], [3., 4.]]]]), UnfoldOptions::new([1, 2]));
/// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 2, 2][..], vec![1.0, 3.0, 2.0, 4.0]));
/// ```
///
/// # Panics
/// As there.
#[track_caller]
pub fn unfold(x: &Tensor, options: UnfoldOptions) -> Tensor {
    x.unfold2d(options)
}

macro_rules! unpool {
    ($($name:ident $dims:literal;)*) => {$(
        #[doc = concat!("The reverse of max pooling (`torch.nn.functional.", stringify!($name), "`): zeros, with the numbers")]
        /// of `x` at `indices`. The sizes are `output_size`, or those that `options` would have pooled
        /// without rest; see [`Tensor::max_unpool`].
        ///
        /// ```
        /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::PoolOptions};
        #[doc = concat!("let pooled = Tensor::full([1; 2 + ", $dims, "], 5.0, Dtype::F32);")]
        #[doc = concat!("let places = Tensor::ones([1; 2 + ", $dims, "], Dtype::I64);")]
        #[doc = concat!("let options = PoolOptions::new([2; ", $dims, "]);")]
        #[doc = concat!("let y = F::", stringify!($name), "(&pooled, &places, options, None);")]
        /// assert_eq!((y.size(-1), y.sum().item(), y.to_vec::<f32>()[1]), (2, 5.0, 5.0));
        /// ```
        ///
        /// # Panics
        /// As there.
        #[track_caller]
        pub fn $name(
            x: &Tensor,
            indices: &Tensor,
            options: PoolOptions<$dims>,
            output_size: Option<[usize; $dims]>,
        ) -> Tensor {
            let sizes = output_size.unwrap_or_else(|| {
                if x.dim() < $dims {
                    let message = format!("{:?} is no image of {} dimensions", x.shape(), $dims);
                    throw(Error::shape(stringify!($name), message));
                }
                options.unpooled(std::array::from_fn(|d| x.size(d as i64 - $dims)))
            });
            x.max_unpool(indices, sizes)
        }
    )*};
}
unpool! {
    max_unpool1d 1;
    max_unpool2d 2;
    max_unpool3d 3;
}

/// Sums, means or maxima of the rows of `weight` that bags of indices name; see
/// [`Tensor::embedding_bag`].
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::{BagMode, EmbeddingBagOptions}};
/// let (bags, weight) = (Tensor::from([[0i64, 2], [1, 1]]), Tensor::from([[1f32], [2.], [4.]]));
/// let options = EmbeddingBagOptions { mode: BagMode::Sum, ..Default::default() };
/// assert_eq!(F::embedding_bag(&bags, &weight, None, options).to_vec::<f32>(), [5.0, 4.0]);
/// ```
///
/// # Panics
/// As there.
#[track_caller]
pub fn embedding_bag(
    indices: &Tensor,
    weight: &Tensor,
    offsets: Option<&Tensor>,
    options: EmbeddingBagOptions,
) -> Tensor {
    weight.embedding_bag(indices, offsets, options)
}

/// The rows of `weight` named by `indices`; see [`Tensor::embedding`].
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let weight = Tensor::from([[1f32], [2.], [4.]]);
/// assert_eq!(F::embedding(&Tensor::from([2i64, 0]), &weight, None).to_vec::<f32>(), [4.0, 1.0]);
/// ```
#[track_caller]
pub fn embedding(indices: &Tensor, weight: &Tensor, padding_idx: Option<i64>) -> Tensor {
    weight.embedding(indices, padding_idx)
}

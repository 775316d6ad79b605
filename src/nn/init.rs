//! Initial values of parameters (`torch.nn.init`): in place, under `no_grad`, from the default
//! random generator.

use std::cell::Cell;

use crate::error::{Error, throw};
use crate::nn::Parameter;
use crate::ops::random::{Generator, GeneratorState, default_generator};
use crate::ops::{linalg::QrMode, linalg::qr};
use crate::tensor::{Device, Dtype, Tensor};

thread_local! {
    static SKIPPED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `make`, in which the functions of this module leave tensors as they are
/// (`torch.nn.utils.skip_init`): for a model whose weights are loaded next, or of which only names
/// and shapes are wanted. Its parameters hold anything until then; large ones take no memory.
///
/// ```
/// use torchrs::nn::{Linear, Module, init};
/// let trained = Linear::new(8, 4);
/// let model = init::skip_init(|| Linear::new(8, 4));
/// model.load_state_dict(&trained.state_dict(), true).unwrap();
/// assert!(model.weight.equal(&trained.weight));
/// ```
pub fn skip_init<T>(make: impl FnOnce() -> T) -> T {
    /// Puts the flag back, also when `make` panics.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            SKIPPED.set(self.0);
        }
    }
    let _restore = Restore(SKIPPED.replace(true));
    make()
}

/// Gives a tensor initial values by a function of one's own, without a record of gradients. On the meta device the
/// function is kept, for [`Module::reset_parameters`](super::Module::reset_parameters); it may then be called several times.
///
/// ```
/// use torchrs::{Device, Dtype, Tensor, nn::{Module, Parameter, init}};
/// #[derive(Module)]
/// struct Frequencies { table: Parameter }
/// let build = || {
///     let table = Tensor::empty([4], Dtype::F32);
///     init::by(&table, |table| _ = table.copy_(&Tensor::from([1f32, 2., 4., 8.])));
///     Frequencies { table: Parameter::new(table) }
/// };
/// let mut module = Device::Meta.scope(build);
/// module.to_empty(Device::Cpu);
/// module.reset_parameters();
/// assert_eq!(module.table.to_vec::<f32>(), [1.0, 2.0, 4.0, 8.0]);
/// ```
#[track_caller]
pub fn by(tensor: &Tensor, give: impl Fn(&Tensor) + Send + Sync + 'static) {
    if !SKIPPED.get() {
        tensor.initialise(give);
    }
}

/// Which dimension's size keeps its variance, in Kaiming initialisation.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::init::{FanMode, Nonlinearity, kaiming_uniform_}};
/// let weight = Tensor::zeros([3, 300], Dtype::F32);
/// kaiming_uniform_(&weight, FanMode::FanOut, Nonlinearity::Linear);
/// // Within sqrt(3 / 3), where `FanIn` gives sqrt(3 / 300).
/// assert!(weight.abs().max().item() > 0.5);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FanMode {
    /// The inputs': variances stay in forward.
    #[default]
    FanIn,
    /// The outputs': variances stay in backward.
    FanOut,
}

/// The function after a layer, by which its gain is chosen.
///
/// ```
/// use torchrs::nn::init::{Nonlinearity, calculate_gain};
/// assert_eq!(calculate_gain(Nonlinearity::LeakyRelu(1.0)), calculate_gain(Nonlinearity::Linear));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Nonlinearity {
    /// None.
    Linear,
    /// Logistic function.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// Rectifier.
    Relu,
    /// Rectifier with this slope below 0.
    LeakyRelu(f64),
    /// Self-normalising exponential unit.
    Selu,
}

/// The factor by which a nonlinearity wants standard deviations scaled
/// (`torch.nn.init.calculate_gain`).
///
/// ```
/// use torchrs::nn::init::{Nonlinearity, calculate_gain};
/// assert_eq!(calculate_gain(Nonlinearity::Relu), 2f64.sqrt());
/// assert_eq!(calculate_gain(Nonlinearity::Tanh), 5.0 / 3.0);
/// ```
pub fn calculate_gain(nonlinearity: Nonlinearity) -> f64 {
    match nonlinearity {
        Nonlinearity::Linear | Nonlinearity::Sigmoid => 1.0,
        Nonlinearity::Tanh => 5.0 / 3.0,
        Nonlinearity::Relu => 2f64.sqrt(),
        Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        Nonlinearity::Selu => 0.75,
    }
}

/// Number of inputs of an output, and of outputs of an input, of a weight `[out, in, kernel...]`
/// (`torch.nn.init._calculate_fan_in_and_fan_out`).
///
/// ```
/// use torchrs::nn::{Conv2d, init::fan_in_and_fan_out};
/// assert_eq!(fan_in_and_fan_out(&Conv2d::new(3, 8, 5).weight), (3 * 25, 8 * 25));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for a tensor with less than two dimensions.
#[track_caller]
pub fn fan_in_and_fan_out(tensor: &Tensor) -> (usize, usize) {
    let &[out, inputs, ref kernel @ ..] = tensor.shape() else {
        throw(Error::shape(
            "fan_in_and_fan_out",
            format!("at least two dimensions are needed, got shape {:?}", tensor.shape()),
        ))
    };
    let field: usize = kernel.iter().product();
    (inputs * field, out * field)
}

/// Uniform between `low` and `high`.
#[track_caller]
pub fn uniform_(tensor: &Tensor, low: f64, high: f64) {
    by(tensor, move |tensor| _ = tensor.uniform_(low, high));
}

/// Normal with this mean and standard deviation.
#[track_caller]
pub fn normal_(tensor: &Tensor, mean: f64, std: f64) {
    by(tensor, move |tensor| _ = tensor.normal_(mean, std));
}

/// Numbers of [`trunc_normal_`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::nn::init::TruncNormalOptions;
/// assert_eq!((TruncNormalOptions::default().std, TruncNormalOptions::default().low), (1.0, -2.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TruncNormalOptions {
    /// The mean of what is cut.
    pub mean: f64,
    /// The standard deviation of what is cut.
    pub std: f64,
    /// The least number (PyTorch's `a`).
    pub low: f64,
    /// The largest number (PyTorch's `b`).
    pub high: f64,
}

impl Default for TruncNormalOptions {
    fn default() -> Self {
        TruncNormalOptions { mean: 0.0, std: 1.0, low: -2.0, high: 2.0 }
    }
}

/// Normal, but drawn anew where it is outside `low` .. `high`.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::init};
/// let x = Tensor::zeros([1000], Dtype::F32);
/// init::trunc_normal_(&x, init::TruncNormalOptions { low: -0.5, ..Default::default() });
/// assert!(x.min().item() >= -0.5 && x.max().item() <= 2.0 && x.max().item() > 0.5);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] unless `low < high` and `std > 0`.
#[track_caller]
pub fn trunc_normal_(tensor: &Tensor, options: TruncNormalOptions) {
    let TruncNormalOptions { mean, std, low, high } = options;
    if !(low < high && std > 0.0) {
        let message = format!("low {low}, high {high}, std {std}; need low < high and std > 0");
        throw(Error::argument("trunc_normal_", "low", message));
    }
    by(tensor, move |tensor| {
        // One draw, however often numbers are drawn anew: those after this tensor do not depend on that.
        let GeneratorState { seed, offset } = default_generator().get_state();
        let others =
            Generator::new(seed ^ offset.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        tensor.normal_(mean, std);
        let outside = |t: &Tensor| t.lt(low).logical_or(&t.gt(high));
        let mut redraw = outside(tensor);
        while redraw.any().is_true_or(false) {
            let fresh = tensor.empty_like();
            others.normal_(&fresh, mean, std);
            tensor.copy_(&fresh.where_self(&redraw, tensor));
            redraw = outside(tensor);
        }
    });
}

/// `value` everywhere.
///
/// ```
/// use torchrs::nn::{Linear, init};
/// let layer = Linear::new(2, 1);
/// init::constant_(&layer.weight, 0.5);
/// assert_eq!(layer.weight.to_vec::<f32>(), [0.5, 0.5]);
/// ```
#[track_caller]
pub fn constant_(tensor: &Tensor, value: f64) {
    by(tensor, move |tensor| _ = tensor.fill_(value));
}

/// Zeros.
#[track_caller]
pub fn zeros_(tensor: &Tensor) {
    constant_(tensor, 0.0);
}

/// Ones.
#[track_caller]
pub fn ones_(tensor: &Tensor) {
    constant_(tensor, 1.0);
}

/// Uniform, with the variance that keeps magnitudes through layers (He et al., 2015).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::init::{FanMode, Nonlinearity, kaiming_uniform_}};
/// let weight = Tensor::zeros([100, 6], Dtype::F32);
/// kaiming_uniform_(&weight, FanMode::FanIn, Nonlinearity::Relu);
/// // Within sqrt(2) sqrt(3 / 6).
/// assert!(weight.abs().max().item() <= 1.0 && weight.abs().max().item() > 0.9);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for a tensor with less than two dimensions.
#[track_caller]
pub fn kaiming_uniform_(tensor: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) {
    let bound = 3f64.sqrt() * kaiming_std(tensor, mode, nonlinearity);
    uniform_(tensor, -bound, bound);
}

/// Normal, with the variance that keeps magnitudes through layers (He et al., 2015).
///
/// ```
/// use torchrs::{Dtype, Tensor, manual_seed, nn::init::{FanMode, Nonlinearity, kaiming_normal_}};
/// manual_seed(0);
/// let weight = Tensor::zeros([1000, 8], Dtype::F32);
/// kaiming_normal_(&weight, FanMode::FanIn, Nonlinearity::Relu);
/// // sqrt(2 / 8)
/// assert!((weight.std_dim(&[], 1, false).item() - 0.5).abs() < 0.02);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for a tensor with less than two dimensions.
#[track_caller]
pub fn kaiming_normal_(tensor: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) {
    normal_(tensor, 0.0, kaiming_std(tensor, mode, nonlinearity));
}

#[track_caller]
fn kaiming_std(tensor: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> f64 {
    let (fan_in, fan_out) = fan_in_and_fan_out(tensor);
    let fan = if mode == FanMode::FanIn { fan_in } else { fan_out };
    // An empty weight has nothing to be initialised.
    calculate_gain(nonlinearity) / (fan.max(1) as f64).sqrt()
}

/// Uniform, with a variance between those that suit forward and backward (Glorot and Bengio, 2010).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::init};
/// let weight = Tensor::zeros([4, 2], Dtype::F32);
/// init::xavier_uniform_(&weight, 1.0);
/// // Within sqrt(6 / (2 + 4)).
/// assert!(weight.abs().max().item() <= 1.0 && weight.abs().max().item() > 0.0);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for a tensor with less than two dimensions.
#[track_caller]
pub fn xavier_uniform_(tensor: &Tensor, gain: f64) {
    let bound = 3f64.sqrt() * xavier_std(tensor, gain);
    uniform_(tensor, -bound, bound);
}

/// Normal, with a variance between those that suit forward and backward (Glorot and Bengio, 2010).
///
/// ```
/// use torchrs::{Dtype, Tensor, manual_seed, nn::init};
/// manual_seed(0);
/// let weight = Tensor::zeros([100, 100], Dtype::F32);
/// init::xavier_normal_(&weight, 2.0);
/// // 2 sqrt(2 / 200)
/// assert!((weight.std_dim(&[], 1, false).item() - 0.2).abs() < 0.01);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for a tensor with less than two dimensions.
#[track_caller]
pub fn xavier_normal_(tensor: &Tensor, gain: f64) {
    normal_(tensor, 0.0, xavier_std(tensor, gain));
}

#[track_caller]
fn xavier_std(tensor: &Tensor, gain: f64) -> f64 {
    let (fan_in, fan_out) = fan_in_and_fan_out(tensor);
    gain * (2.0 / (fan_in + fan_out).max(1) as f64).sqrt()
}

/// A parameter of this shape, uniform within `bound`.
#[track_caller]
pub(super) fn uniform_parameter(shape: &[usize], bound: f64) -> Parameter {
    let parameter = Parameter::new(Tensor::empty(shape, Dtype::F32));
    uniform_(&parameter, -bound, bound);
    parameter
}

/// The weight of this shape of a linear layer or a convolution and its bias, with PyTorch's initial
/// values.
#[track_caller]
pub(super) fn default_parameters(shape: &[usize], outputs: usize) -> (Parameter, Parameter) {
    let weight = Parameter::new(Tensor::empty(shape, Dtype::F32));
    default_weight_(&weight);
    let bias = Parameter::new(Tensor::empty([outputs], Dtype::F32));
    default_bias_(&bias, &weight);
    (weight, bias)
}

/// Orthonormal rows or columns, whichever are fewer, times `gain`, of the tensor as a matrix with a row
/// for each index of dimension 0 (`torch.nn.init.orthogonal_`; Saxe et al. 2013).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::init};
/// let rows = Tensor::zeros([2, 5], Dtype::F64);
/// init::orthogonal_(&rows, 3.0);
/// assert!((rows.matmul(&rows.t()) - Tensor::eye(2, Dtype::F64) * 9.0).abs().max().item() < 1e-9);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for a tensor with less than two dimensions.
#[track_caller]
pub fn orthogonal_(tensor: &Tensor, gain: f64) {
    if tensor.dim() < 2 {
        let message = format!("{:?}; at least two dimensions are needed", tensor.shape());
        throw(Error::shape("orthogonal_", message));
    }
    if tensor.numel() == 0 {
        return;
    }
    by(tensor, move |tensor| {
        let rows = tensor.size(0);
        let columns = tensor.numel() / rows;
        let home = if tensor.device().is_meta() { Device::Meta } else { Device::Cpu };
        let normal = Tensor::empty([rows.max(columns), rows.min(columns)], (Dtype::F64, home));
        normal.normal_(0.0, 1.0);
        // With a positive diagonal of the other factor, matrices are equally likely.
        let q = orthonormal(&normal);
        let q = if rows < columns { q.t() } else { q };
        tensor.copy_(&(q * gain).reshape_as(tensor));
    });
}

/// The orthogonal factor of tall matrices whose triangular factor has a positive diagonal.
#[track_caller]
pub(super) fn orthonormal(matrix: &Tensor) -> Tensor {
    let (q, r) = qr(matrix, QrMode::Reduced);
    q * r.diagonal(0, -2, -1).sign().unsqueeze(-2)
}

/// Normal with standard deviation `std`, but in each column a share `sparsity` of zeros
/// (`torch.nn.init.sparse_`; Martens 2010); PyTorch's default for `std` is 0.01.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::init};
/// let x = Tensor::ones([10, 3], Dtype::F32);
/// init::sparse_(&x, 0.25, 0.01);
/// assert_eq!(x.eq(0.0).sum_dim(&[0], false).to_vec::<i64>(), [3, 3, 3]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] unless the tensor is a matrix, [`Error::Argument`] unless the share is from 0
/// to 1.
#[track_caller]
pub fn sparse_(tensor: &Tensor, sparsity: f64, std: f64) {
    let &[rows, columns] = tensor.shape() else {
        throw(Error::shape("sparse_", format!("takes a matrix, got {:?}", tensor.shape())))
    };
    if !(0.0..=1.0).contains(&sparsity) {
        throw(Error::argument("sparse_", "sparsity", format!("{sparsity}; must be from 0 to 1")));
    }
    let zeros = (sparsity * rows as f64).ceil() as usize;
    by(tensor, move |tensor| {
        tensor.normal_(0.0, std);
        for column in 0..columns as i64 {
            let chosen = Tensor::randperm(rows).narrow(0, 0, zeros).to_device(tensor.device());
            let nothing = Tensor::zeros([zeros], (tensor.dtype(), tensor.device()));
            tensor.select(1, column).scatter_(0, &chosen, &nothing);
        }
    });
}

/// The initial weight of linear layers and convolutions in PyTorch: `kaiming_uniform_` with slope
/// sqrt(5), which is uniform within 1 / sqrt(fan_in).
#[track_caller]
pub(super) fn default_weight_(weight: &Tensor) {
    kaiming_uniform_(weight, FanMode::FanIn, Nonlinearity::LeakyRelu(5f64.sqrt()));
}

/// The identity matrix, or its part (`torch.nn.init.eye_`).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::init};
/// let x = Tensor::ones([2, 3], Dtype::F32);
/// init::eye_(&x);
/// assert_eq!(x.to_vec::<f32>(), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for other than two dimensions.
#[track_caller]
pub fn eye_(tensor: &Tensor) {
    let &[rows, columns] = tensor.shape() else {
        throw(Error::shape("eye_", format!("takes a matrix, got {:?}", tensor.shape())))
    };
    by(tensor, move |tensor| {
        tensor.zero_();
        for i in 0..rows.min(columns) as i64 {
            tensor.select(0, i).select(0, i).fill_(1.0);
        }
    });
}

/// Filters `[out, in, ...]` of a convolution that passes each channel through, as far as there are
/// channels, within each of `groups` (`torch.nn.init.dirac_`).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{Conv1d, Forward, init}};
/// let conv = Conv1d::new(2, 2, 3).padding(1).no_bias();
/// init::dirac_(&conv.weight, 1);
/// let x = Tensor::randn([1, 2, 5], Dtype::F32);
/// assert!((conv.forward(&x) - x).abs().max().item() < 1e-6);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for fewer than 3 or more than 5 dimensions, and [`Error::Argument`] when
/// the groups cannot share the output channels.
#[track_caller]
pub fn dirac_(tensor: &Tensor, groups: usize) {
    if !(3..=5).contains(&tensor.dim()) {
        let message = format!("takes filters of 3, 4 or 5 dimensions, got {:?}", tensor.shape());
        throw(Error::shape("dirac_", message));
    }
    if groups == 0 || !tensor.size(0).is_multiple_of(groups) {
        let message = format!("{groups} groups cannot share {} output channels", tensor.size(0));
        throw(Error::argument("dirac_", "groups", message));
    }
    let outputs = tensor.size(0) / groups;
    by(tensor, move |tensor| {
        tensor.zero_();
        for (g, d) in
            (0..groups).flat_map(|g| (0..outputs.min(tensor.size(1))).map(move |d| (g, d)))
        {
            let mut at = tensor.select(0, (g * outputs + d) as i64).select(0, d as i64);
            while at.dim() > 0 {
                at = at.select(0, at.size(0) as i64 / 2);
            }
            at.fill_(1.0);
        }
    });
}

/// The initial bias of linear layers and convolutions in PyTorch: uniform within 1 / sqrt(fan_in) of
/// their weight.
#[track_caller]
pub(super) fn default_bias_(bias: &Tensor, weight: &Tensor) {
    let (fan_in, _) = fan_in_and_fan_out(weight);
    let bound = if fan_in > 0 { 1.0 / (fan_in as f64).sqrt() } else { 0.0 };
    uniform_(bias, -bound, bound);
}

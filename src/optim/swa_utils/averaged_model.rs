//! A model whose weights are the average of another's.

use crate::autograd::no_grad;
use crate::error::{Error, Result, throw};
use crate::nn::{Buffer, Forward, Module};
use crate::onnx::{Graph, Value};
use crate::tensor::{Dtype, Tensor};

/// How weights enter the average.
///
/// ```
/// use torchrs::optim::swa_utils::{AveragedModel, AveragedModelOptions, Averaging};
/// use torchrs::{Tensor, nn::{self, Module}, no_grad};
/// let model = nn::Linear::new(1, 1);
/// let set = |value: f64| no_grad(|| model.parameters().iter().for_each(|p| _ = p.fill_(value)));
/// let averaged = |averaging| {
///     let options = AveragedModelOptions { averaging, ..Default::default() };
///     let average = AveragedModel::new(&model, options);
///     for value in [1.0, 2.0, 6.0] {
///         set(value);
///         average.update_parameters(&model);
///     }
///     average.module.parameters()[0].item()
/// };
/// assert_eq!((averaged(Averaging::Swa), averaged(Averaging::Ema { decay: 0.5 })), (3.0, 3.75));
/// let last = |_: &Tensor, weight: &Tensor, _| weight.clone();
/// assert_eq!(averaged(Averaging::Custom(Box::new(last))), 6.0);
/// ```
#[derive(Default)]
#[non_exhaustive]
pub enum Averaging {
    /// All with the same weight (`get_swa_multi_avg_fn`, the default): `a + (w - a) / (n + 1)`.
    #[default]
    Swa,
    /// `decay a + (1 - decay) w` (`get_ema_multi_avg_fn`; 0.999 is PyTorch's default).
    Ema {
        /// Share of the old average.
        decay: f64,
    },
    /// The new average from the old one, the weights, and how many went into the old one (`avg_fn`).
    Custom(Box<AverageFn>),
}

/// A rule of averaging: the new average from the old one, the weights, and how many went into the old one.
pub type AverageFn = dyn Fn(&Tensor, &Tensor, u64) -> Tensor + Send + Sync;

/// Options of [`AveragedModel`], with PyTorch's defaults.
///
/// ```
/// use torchrs::optim::swa_utils::{AveragedModel, AveragedModelOptions};
/// use torchrs::{nn::{self, Module}, no_grad};
/// let model = nn::BatchNorm1d::new(1);
/// let averages = [false, true].map(|use_buffers| {
///     let options = AveragedModelOptions { use_buffers, ..Default::default() };
///     AveragedModel::new(&model, options)
/// });
/// for mean in [2.0, 4.0] {
///     no_grad(|| _ = model.state_dict()["running_mean"].fill_(mean));
///     averages.iter().for_each(|average| average.update_parameters(&model));
/// }
/// let means = averages.map(|average| average.module.state_dict()["running_mean"].item());
/// assert_eq!(means, [4.0, 3.0]);
/// ```
#[derive(Default)]
pub struct AveragedModelOptions {
    /// How weights enter the average.
    pub averaging: Averaging,
    /// Average the buffers too; else they are copied from the model at each update.
    pub use_buffers: bool,
}

/// Holds the average of a model's weights (`torch.optim.swa_utils.AveragedModel`).
///
/// ```
/// use torchrs::nn::{self, Forward, Module};
/// use torchrs::optim::swa_utils::{AveragedModel, AveragedModelOptions, Averaging};
/// use torchrs::{Dtype, Tensor};
/// let model = nn::Linear::new(3, 2);
/// let options = AveragedModelOptions { averaging: Averaging::Ema { decay: 0.9 }, ..Default::default() };
/// let mut average = AveragedModel::new(&model, options);
/// // ... after each step of the optimizer:
/// average.update_parameters(&model);
/// let y = average.forward(&Tensor::ones([1, 3], Dtype::F32));
/// assert!(average.state_dict().contains_key("module.weight"));
/// # assert!(y.equal(&model.forward(&Tensor::ones([1, 3], Dtype::F32))));
/// ```
#[derive(Module)]
pub struct AveragedModel<M: Module> {
    /// The model that has the average.
    pub module: M,
    /// How many updates there were.
    n_averaged: Buffer,
    #[module(skip)]
    options: AveragedModelOptions,
}

impl<M: Module> AveragedModel<M> {
    /// The average begins as a copy of `model`.
    ///
    /// ```
    /// use torchrs::optim::swa_utils::{AveragedModel};
    /// use torchrs::{nn::{self, Module}, no_grad};
    /// let model = nn::Linear::new(1, 1);
    /// let set = |value: f64| no_grad(|| model.parameters().iter().for_each(|p| _ = p.fill_(value)));
    /// set(1.0);
    /// let average = AveragedModel::new(&model, Default::default());
    /// set(5.0);
    /// assert_eq!(average.module.parameters()[0].item(), 1.0); // a copy
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when the decay is not in `[0, 1]`.
    #[track_caller]
    pub fn new(model: &M, options: AveragedModelOptions) -> Self
    where
        M: Clone,
    {
        Self::with_module(model.deep_copy(), model, options)
    }

    /// [`new`](Self::new) for models that cannot be cloned: `module`, which was built as `model` was,
    /// takes its weights.
    ///
    /// ```
    /// use torchrs::nn::{self, Module};
    /// use torchrs::{catch, optim::swa_utils::AveragedModel};
    /// let model = nn::Linear::new(3, 2);
    /// let average = AveragedModel::with_module(nn::Linear::new(3, 2), &model, Default::default());
    /// assert!(average.module.parameters()[0].equal(&model.parameters()[0]));
    /// let other = nn::Linear::new(3, 4);
    /// assert!(catch(|| AveragedModel::with_module(other, &model, Default::default())).is_err());
    /// ```
    ///
    /// # Panics
    /// As [`new`](Self::new), and when the two differ in the names or shapes of their parameters and
    /// buffers, or share one.
    #[track_caller]
    pub fn with_module(module: M, model: &M, options: AveragedModelOptions) -> Self {
        if let Averaging::Ema { decay } = options.averaging
            && !(0.0..=1.0).contains(&decay)
        {
            let message = format!("{decay}; must be from 0 to 1");
            throw(Error::argument("AveragedModel", "decay", message));
        }
        for ((name, ours), (_, theirs)) in tensors(&module).iter().zip(&tensors(model)) {
            if ours.storage().ptr_eq(theirs.storage()) {
                let message = format!("shares `{name}` with `model`; build another one");
                throw(Error::argument("AveragedModel", "module", message));
            }
        }
        if let Err(error) = module.load_state_dict(&model.state_dict(), true) {
            throw(error);
        }
        let n_averaged = Buffer::new(Tensor::zeros([], Dtype::I64));
        AveragedModel { module, n_averaged, options }
    }

    /// How many updates there were.
    pub fn n_averaged(&self) -> u64 {
        self.n_averaged.item() as u64
    }

    /// Takes the weights of `model` into the average; the first time they are the average.
    ///
    /// ```
    /// use torchrs::optim::swa_utils::{AveragedModel};
    /// use torchrs::{nn::{self, Module}, no_grad};
    /// let model = nn::Linear::new(1, 1);
    /// let set = |value: f64| no_grad(|| model.parameters().iter().for_each(|p| _ = p.fill_(value)));
    /// let average = AveragedModel::new(&model, Default::default());
    /// for value in [1.0, 2.0] {
    ///     set(value);
    ///     average.update_parameters(&model);
    /// }
    /// assert_eq!(average.module.parameters()[0].item(), 1.5);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `model` has other parameters and buffers.
    #[track_caller]
    pub fn update_parameters(&self, model: &M) {
        let (ours, theirs) = (tensors(&self.module), tensors(model));
        let differs = |((a, x), (b, y)): (&(String, Tensor), &(String, Tensor))| {
            a != b || x.shape() != y.shape()
        };
        if ours.len() != theirs.len() || ours.iter().zip(&theirs).any(differs) {
            let message = "has other parameters and buffers than the average";
            throw(Error::argument("AveragedModel::update_parameters", "model", message));
        }
        let n = self.n_averaged();
        let parameters = self.module.parameters().len();
        no_grad(|| {
            for (i, ((_, average), (_, current))) in ours.iter().zip(&theirs).enumerate() {
                let averaged = i < parameters || self.options.use_buffers;
                match n == 0 || !averaged {
                    true => _ = average.copy_(current),
                    false => self.average(average, current, n),
                }
            }
            self.n_averaged.add_(1i64);
        });
    }

    fn average(&self, average: &Tensor, current: &Tensor, n: u64) {
        let whole = !average.dtype().is_floating_point();
        match &self.options.averaging {
            // Counts, such as of batches, are cut to whole numbers.
            Averaging::Swa if whole => {
                let change = (current - average).to_dtype(Dtype::F64) / (n + 1) as f64;
                average.add_(&change.trunc().to_dtype(average.dtype()))
            }
            Averaging::Swa => average.lerp_(current, 1.0 / (n + 1) as f64),
            Averaging::Ema { decay } if whole => {
                average.copy_(&(average * *decay + current * (1.0 - decay)))
            }
            Averaging::Ema { decay } => average.lerp_(current, 1.0 - decay),
            Averaging::Custom(f) => average.copy_(&f(average, current, n)),
        };
    }
}

impl<M: Module + Forward> Forward for AveragedModel<M> {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        self.module.forward(input)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        self.module.onnx(graph, input)
    }
}

/// Parameters, then buffers.
fn tensors(module: &impl Module) -> Vec<(String, Tensor)> {
    let mut all = module.named_parameters();
    all.extend(module.named_buffers());
    all
}

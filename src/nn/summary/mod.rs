//! A model as a table (`torchinfo.summary`): its modules in the order in which they are called, with shapes,
//! parameters and operations.

mod rows;
mod table;

use crate::autograd::no_grad;
use crate::nn::calls::{self, Shown, Shows};
use crate::nn::walk::{Entry, walk};
use crate::nn::{Forward, Module, Training};
use crate::ops::random::fork_rng;
use crate::profiler::FlopCounter;
use crate::tensor::{Dtype, Tensor};
use rows::Rows;
pub use rows::SummaryRow;

/// What [`summary`] found; printed, a table as torchinfo's.
///
/// ```
/// use torchrs::nn::{Linear, ReLU, Sequential, summary};
/// let net = Sequential::new().append(Linear::new(8, 16)).append(ReLU).append(Linear::new(16, 4));
/// let summary = summary(&net, [32, 8]);
/// assert_eq!(summary.rows[1].output(), "[32, 16]");
/// assert_eq!((summary.total_params, summary.trainable_params), (8 * 16 + 16 + 16 * 4 + 4, 212));
/// assert_eq!(summary.total_mult_adds(), 32 * (8 * 16 + 16 * 4));
/// assert!(summary.to_string().contains("├─Linear (0): 1-1"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The model first, each module before those inside it.
    pub rows: Vec<SummaryRow>,
    /// Elements of all parameters, each counted once.
    pub total_params: usize,
    /// Those of parameters that require a gradient.
    pub trainable_params: usize,
    /// Floating-point operations of forward, as [`FlopCounter`] counts them.
    pub total_flops: u64,
    /// Bytes of what goes into the model.
    pub input_bytes: usize,
    /// Bytes of what modules with parameters and without modules inside give, times two for the gradients.
    pub output_bytes: usize,
    /// Bytes of the parameters.
    pub param_bytes: usize,
}

impl Summary {
    /// Multiply-adds of forward: half of [`total_flops`](Self::total_flops).
    pub fn total_mult_adds(&self) -> u64 {
        self.total_flops / 2
    }

    /// Without the modules below this depth, of which the model is 0 (`depth` of torchinfo): what they have stands in
    /// the rows around them.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Sequential, summary};
    /// let net = Sequential::new().append(Sequential::new().append(Linear::new(2, 3)));
    /// let short = summary(&net, [1, 2]).depth(1);
    /// assert_eq!((short.rows.len(), short.rows[1].params), (2, 9));
    /// ```
    pub fn depth(mut self, depth: usize) -> Summary {
        let mut kept: Vec<SummaryRow> = Vec::new();
        for row in self.rows {
            match kept.last_mut() {
                // Those inside the last one that is kept.
                Some(around) if row.depth > depth => {
                    around.params += row.params;
                    around.trainable += row.trainable;
                    around.is_leaf = true;
                }
                _ => kept.push(row),
            }
        }
        self.rows = kept;
        self
    }
}

/// The modules of a model that computes an input of that shape (`torchinfo.summary(model, input_size)`): in the order of
/// their calls, with their shapes, parameters and operations.
///
/// The input is ones of the model's first floating-point parameter's type, on its device. The model computes in
/// evaluation and without gradients, and is left as it was: training flags, buffers, gradients and random state.
///
/// Modules of torchrs tell their shapes. So does a struct of one's own whose forward has
/// [`#[nn::forward]`](crate::nn::forward). For one without it they are those of the first and the last module that it
/// calls, with a `~`.
///
/// ```
/// use torchrs::{Tensor, nn::{self, Forward, Linear, Module, summary}};
/// #[derive(Module)]
/// struct Net { fc1: Linear, fc2: Linear }
/// impl Forward for Net {
///     #[nn::forward]
///     fn forward(&self, x: &Tensor) -> Tensor { self.fc2.forward(&self.fc1.forward(x).relu()) }
/// }
/// let net = Net { fc1: Linear::new(8, 16), fc2: Linear::new(16, 4) };
/// let summary = summary(&net, [32, 8]);
/// println!("{summary}");
/// let names: Vec<&str> = summary.rows.iter().map(|row| row.path.as_str()).collect();
/// assert_eq!(names, ["", "fc1", "fc2"]);
/// ```
///
/// # Panics
/// Throws what the model's forward throws, as for an input of a shape that does not fit.
#[track_caller]
pub fn summary<M: Forward>(model: &M, shape: impl AsRef<[usize]>) -> Summary {
    let parameters = model.parameters();
    let like = parameters.iter().find(|p| p.dtype().is_floating_point());
    let (dtype, device) = match like {
        Some(like) => (like.dtype(), like.device()),
        None => (Dtype::F32, crate::storage::Device::Cpu),
    };
    let input = Tensor::ones(shape.as_ref(), (dtype, device));
    let given = input.show();
    of(model, Some(given), |model| model.forward(&input).show())
}

/// [`summary`] of a model whose forward takes other than one tensor: `forward` calls it.
///
/// ```
/// use torchrs::{Dtype::I64, Tensor, nn::{Embedding, Forward, summary_with}};
/// let table = Embedding::new(100, 16);
/// let summary = summary_with(&table, |m| m.forward(&Tensor::zeros([4, 10], I64)));
/// assert_eq!(summary.rows[0].output(), "[4, 10, 16]");
/// ```
///
/// # Panics
/// Throws what `forward` throws.
#[track_caller]
pub fn summary_with<M: Module, R: Shows>(model: &M, forward: impl FnOnce(&M) -> R) -> Summary {
    of(model, None, |model| forward(model).show())
}

#[track_caller]
fn of<M: Module>(model: &M, input: Option<Shown>, forward: impl FnOnce(&M) -> Shown) -> Summary {
    let _kept = Kept::of(model);
    let counter = std::rc::Rc::new(FlopCounter::new());
    let counted = counter.clone();
    let mut output = Shown::Nothing;
    let calls = fork_rng(|| {
        let forward = |model: &M| output = no_grad(|| forward(model));
        calls::log(model, move || counted.total_flops(), forward)
    });
    Rows::new(model, calls).summary(input, output, counter.total_flops())
}

/// A model's state, which comes back when this is dropped.
struct Kept<'a> {
    training: Vec<(&'a Training, bool)>,
    /// Buffers, what they hold and at which version.
    buffers: Vec<(Tensor, Tensor, u32)>,
}

impl<'a> Kept<'a> {
    fn of<M: Module>(model: &'a M) -> Self {
        let mut kept = Kept { training: Vec::new(), buffers: Vec::new() };
        walk(model, "", &mut |_, entry| match entry {
            Entry::Training(flag) => kept.training.push((flag, flag.get())),
            Entry::Buffer(buffer) => {
                let tensor = buffer.tensor();
                let copy = no_grad(|| tensor.clone_contiguous());
                kept.buffers.push((tensor.clone(), copy, tensor.version()));
            }
            Entry::Parameter(_) | Entry::Module(_) => {}
        });
        kept.training.iter().for_each(|(flag, _)| flag.set(false));
        kept
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        for (flag, was) in &self.training {
            flag.set(*was);
        }
        for (buffer, was, version) in &self.buffers {
            if buffer.version() != *version {
                no_grad(|| _ = buffer.copy_(was));
            }
        }
    }
}

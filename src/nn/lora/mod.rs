//! Adapters of low rank (Hu et al., "LoRA", 2021), by the names and numbers of Hugging Face's PEFT: a linear layer of weight W
//! gets two small matrices A and B and gives W x + alpha / r B A x, of which only A and B are trained.
//!
//! ```
//! use torchrs::nn::lora::{self, LoraOptions};
//! use torchrs::nn::{Forward, Linear, Module, ReLU, Sequential};
//! use torchrs::{Dtype, Tensor};
//!
//! let model = Sequential::new().append(Linear::new(4, 8)).append(ReLU).append(Linear::new(8, 2));
//! let x = Tensor::randn([3, 4], Dtype::F32);
//! let before = model.forward(&x);
//! let options = LoraOptions { r: 2, target_modules: vec!["0".into()], ..Default::default() };
//! assert_eq!(lora::add_adapters(&model, &options), ["0"]);
//! // B starts at 0, so nothing has changed yet, and only A and B are trained.
//! assert!(model.forward(&x).equal(&before));
//! let trained: Vec<String> =
//!     model.named_parameters().into_iter().filter(|p| p.1.requires_grad()).map(|p| p.0).collect();
//! assert_eq!(trained, ["0.lora_A.weight", "0.lora_B.weight"]);
//! ```

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::init::{FanMode, Nonlinearity};
use super::{
    Dropout, Forward, Linear, Module, NamedTensors, Parameter, StateDict, Visitor, VisitorMut, init,
};
use crate::autograd::no_grad;
use crate::error::{Error, Result, throw};
use crate::tensor::Tensor;

/// What PEFT puts before the names of a model's adapters in a file.
const PREFIX: &str = "base_model.model.";

/// Which layers get adapters, and of what kind (`peft.LoraConfig`).
#[derive(Clone, Debug, PartialEq)]
pub struct LoraOptions {
    /// The rank: rows of A, columns of B.
    pub r: usize,
    /// What an adapter adds is times `alpha / r` (`lora_alpha`).
    pub alpha: f64,
    /// The probability with which A's inputs are dropped in training (`lora_dropout`).
    pub dropout: f64,
    /// Names of linear layers, whole or from a dot on: `"q_proj"` is that of all blocks.
    pub target_modules: Vec<String>,
}

impl Default for LoraOptions {
    /// PEFT's: rank 8, alpha 8, no dropout. Layers are to be named.
    fn default() -> Self {
        LoraOptions { r: 8, alpha: 8.0, dropout: 0.0, target_modules: Vec::new() }
    }
}

/// The two matrices of a layer.
pub(super) struct Adapter {
    lora_a: Linear,
    lora_b: Linear,
    lora_dropout: Option<Dropout>,
    scaling: f64,
    /// Whether the layer's weight has them already.
    merged: AtomicBool,
}

impl Clone for Adapter {
    fn clone(&self) -> Self {
        Adapter {
            lora_a: self.lora_a.clone(),
            lora_b: self.lora_b.clone(),
            lora_dropout: self.lora_dropout.clone(),
            scaling: self.scaling,
            merged: AtomicBool::new(self.merged.load(Relaxed)),
        }
    }
}

impl Adapter {
    fn new(layer: &Linear, options: &LoraOptions) -> Self {
        let options_of = (layer.weight.dtype(), layer.weight.device());
        let zeros = |rows: usize, columns: usize| {
            let mut matrix = Linear::no_bias(1, 1);
            matrix.weight = Parameter::new(Tensor::zeros([rows, columns], options_of));
            matrix
        };
        let lora_a = zeros(options.r, layer.in_features());
        init::kaiming_uniform_(
            &lora_a.weight,
            FanMode::FanIn,
            Nonlinearity::LeakyRelu(5f64.sqrt()),
        );
        Adapter {
            lora_a,
            lora_b: zeros(layer.out_features(), options.r),
            lora_dropout: (options.dropout > 0.0).then(|| Dropout::new(options.dropout)),
            scaling: options.alpha / options.r as f64,
            merged: AtomicBool::new(false),
        }
    }

    pub(super) fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        visitor.module("lora_A", &self.lora_a);
        visitor.module("lora_B", &self.lora_b);
        if let Some(dropout) = &self.lora_dropout {
            visitor.module("lora_dropout", dropout);
        }
    }

    pub(super) fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        visitor.module("lora_A", &mut self.lora_a);
        visitor.module("lora_B", &mut self.lora_b);
        if let Some(dropout) = &mut self.lora_dropout {
            visitor.module("lora_dropout", dropout);
        }
    }

    /// The layer's output with what the adapter adds.
    #[track_caller]
    pub(super) fn added_to(&self, output: Tensor, input: &Tensor) -> Tensor {
        if self.merged.load(Relaxed) {
            return output;
        }
        let input = self.lora_dropout.as_ref().map_or_else(|| input.clone(), |d| d.forward(input));
        output + self.lora_b.forward(&self.lora_a.forward(&input)) * self.scaling
    }

    /// The layer's weight with what the adapter adds.
    #[track_caller]
    pub(super) fn added_to_weight(&self, weight: &Tensor) -> Tensor {
        if self.merged.load(Relaxed) {
            return weight.clone();
        }
        if let Some(dropout) = self.lora_dropout.as_ref().filter(|d| d.is_training()) {
            let message = format!(
                "{} in training, of a layer whose weight is used as a whole; give it an adapter without dropout",
                dropout.p()
            );
            throw(Error::argument("lora", "dropout", message));
        }
        weight + self.change()
    }

    /// alpha / r B A.
    fn change(&self) -> Tensor {
        self.lora_b.weight.matmul(self.lora_a.weight.tensor()) * self.scaling
    }

    /// A and B with the names that follow the layer's.
    fn matrices(&self) -> [(&'static str, &Parameter); 2] {
        [("lora_A.weight", &self.lora_a.weight), ("lora_B.weight", &self.lora_b.weight)]
    }
}

/// The model's linear layers with their names, but for the adapters' own.
fn layers(model: &dyn Module) -> Vec<(String, &Linear)> {
    struct Walk<'a> {
        prefix: String,
        found: Vec<(String, &'a Linear)>,
    }
    impl<'a> Visitor<'a> for Walk<'a> {
        fn parameter(&mut self, _: &str, _: &'a Parameter) {}
        fn buffer(&mut self, _: &str, _: &'a super::Buffer) {}
        fn training(&mut self, _: &'a super::Training) {}
        fn module(&mut self, name: &str, module: &'a dyn Module) {
            let length = self.prefix.len();
            if length > 0 {
                self.prefix.push('.');
            }
            self.prefix.push_str(name);
            match module.as_linear() {
                Some(layer) => self.found.push((self.prefix.clone(), layer)),
                None => module.visit(self),
            }
            self.prefix.truncate(length);
        }
    }
    let mut walk = Walk { prefix: String::new(), found: Vec::new() };
    match model.as_linear() {
        Some(layer) => walk.found.push((String::new(), layer)),
        None => model.visit(&mut walk),
    }
    walk.found
}

/// The model's layers that have adapters.
fn adapted(model: &dyn Module) -> Vec<(String, &Linear, &Adapter)> {
    let all = layers(model).into_iter();
    all.filter_map(|(name, layer)| Some((name, layer, &**layer.adapter.get()?))).collect()
}

/// The same, at least one.
#[track_caller]
fn some_adapted<'a>(call: &str, model: &'a dyn Module) -> Vec<(String, &'a Linear, &'a Adapter)> {
    let found = adapted(model);
    if found.is_empty() {
        let message = "has no adapters; `add_adapters` makes them";
        throw(Error::argument(call, "model", message));
    }
    found
}

/// Gives the named layers adapters and freezes all else; gives the layers' whole names (`peft.get_peft_model`). Load the model's own
/// weights before: a state dict has the adapters' tensors from now on.
///
/// # Panics
/// Throws [`Error::Argument`] for a rank of 0, numbers that cannot be, a target that is no linear layer's name, where a layer
/// has an adapter already, and where adapters are merged.
#[track_caller]
pub fn add_adapters(model: &dyn Module, options: &LoraOptions) -> Vec<String> {
    const CALL: &str = "lora::add_adapters";
    if options.r == 0 {
        throw(Error::argument(CALL, "r", "0; must be at least 1"));
    }
    if !(options.alpha > 0.0 && options.alpha.is_finite()) {
        let message = format!("{}; must be positive and finite", options.alpha);
        throw(Error::argument(CALL, "alpha", message));
    }
    if !(0.0..1.0).contains(&options.dropout) {
        let message = format!("{}; must be from 0 to 1, and less than 1", options.dropout);
        throw(Error::argument(CALL, "dropout", message));
    }
    if options.target_modules.is_empty() {
        let message = "is empty; must name linear layers, such as \"q_proj\" and \"v_proj\"";
        throw(Error::argument(CALL, "target_modules", message));
    }
    let all = layers(model);
    let is = |name: &str, target: &str| {
        name == target || name.strip_suffix(target).is_some_and(|rest| rest.ends_with('.'))
    };
    for target in &options.target_modules {
        if !all.iter().any(|(name, _)| is(name, target)) {
            let names: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
            let message = format!("{target:?} is no linear layer of the model; it has {names:?}");
            throw(Error::argument(CALL, "target_modules", message));
        }
    }
    let mut chosen: Vec<(String, &Linear)> = Vec::new();
    for (name, layer) in all {
        if !options.target_modules.iter().any(|target| is(&name, target)) {
            continue;
        }
        if layer.adapter.get().is_some() {
            let message = format!("{name} has an adapter already; `remove_adapters` takes it away");
            throw(Error::argument(CALL, "target_modules", message));
        }
        chosen.push((name, layer));
    }
    let before = adapted(model);
    if let Some((name, ..)) = before.iter().find(|(_, _, adapter)| adapter.merged.load(Relaxed)) {
        let message = format!("the adapter of {name:?} is merged; `unmerge` it before");
        throw(Error::argument(CALL, "model", message));
    }
    model.requires_grad_(false);
    for (_, _, adapter) in before {
        adapter.matrices().iter().for_each(|(_, matrix)| _ = matrix.requires_grad_(true));
    }
    for (_, layer) in &chosen {
        // Nobody else has set it since.
        _ = layer.adapter.set(Box::new(Adapter::new(layer, options)));
    }
    chosen.into_iter().map(|(name, _)| name).collect()
}

/// Adds the adapters to the layers' weights, for forwards as fast as without them (`merge_adapter`). Until [`unmerge`] they are not
/// trained.
///
/// ```
/// use torchrs::nn::{Forward, Linear, init, lora::{self, LoraOptions}};
/// use torchrs::{Dtype, Tensor};
/// let layer = Linear::new(3, 2);
/// let options = LoraOptions { r: 1, target_modules: vec!["".into()], ..Default::default() };
/// lora::add_adapters(&layer, &options);
/// let x = Tensor::ones([1, 3], Dtype::F32);
/// let before = layer.forward(&x);
/// lora::merge(&layer);
/// assert!(layer.forward(&x).allclose(&before, Default::default()));
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] where there are no adapters, or these are merged already.
#[track_caller]
pub fn merge(model: &dyn Module) {
    set_merged("lora::merge", model, true);
}

/// Takes the adapters out of the weights again, up to rounding (`unmerge_adapter`).
///
/// # Panics
/// Throws [`Error::Argument`] where there are no adapters, or these are not merged.
#[track_caller]
pub fn unmerge(model: &dyn Module) {
    set_merged("lora::unmerge", model, false);
}

#[track_caller]
fn set_merged(call: &str, model: &dyn Module, merged: bool) {
    let all = some_adapted(call, model);
    if let Some((name, ..)) = all.iter().find(|(_, _, a)| a.merged.load(Relaxed) == merged) {
        let state = if merged { "merged already" } else { "not merged" };
        throw(Error::argument(call, "model", format!("the adapter of {name:?} is {state}")));
    }
    if let Some((name, ..)) = all.iter().find(|(_, layer, _)| uses(model, &layer.weight) > 1) {
        let message = format!(
            "the weight of {name:?} is another module's too, which the adapter is not for; give each its own before"
        );
        throw(Error::argument(call, "model", message));
    }
    for (_, layer, adapter) in all {
        let change = no_grad(|| adapter.change());
        no_grad(|| {
            _ = if merged { layer.weight.add_(&change) } else { layer.weight.sub_(&change) }
        });
        adapter.merged.store(merged, Relaxed);
        adapter.matrices().iter().for_each(|(_, matrix)| _ = matrix.requires_grad_(!merged));
    }
}

/// How many fields of the model are that tensor.
fn uses(model: &dyn Module, tensor: &Tensor) -> usize {
    struct Count<'t>(&'t Tensor, usize);
    impl<'a> Visitor<'a> for Count<'_> {
        fn parameter(&mut self, _: &str, p: &'a Parameter) {
            self.1 += usize::from(p.ptr_eq(self.0));
        }
        fn buffer(&mut self, _: &str, _: &'a super::Buffer) {}
        fn training(&mut self, _: &'a super::Training) {}
        fn module(&mut self, _: &str, module: &'a dyn Module) {
            module.visit(self);
        }
    }
    let mut count = Count(tensor, 0);
    model.visit(&mut count);
    count.1
}

/// Takes the adapters away; a merged one stays in the weight (`merge_and_unload`, after [`merge`]). All parameters are trained again.
///
/// ```
/// use torchrs::nn::{Linear, Module, lora::{self, LoraOptions}};
/// let mut layer = Linear::new(3, 2);
/// let options = LoraOptions { target_modules: vec!["".into()], ..Default::default() };
/// lora::add_adapters(&layer, &options);
/// lora::merge(&layer);
/// lora::remove_adapters(&mut layer);
/// assert_eq!(layer.named_parameters().len(), 2);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] where there are no adapters.
#[track_caller]
pub fn remove_adapters(model: &mut dyn Module) {
    struct Remove;
    impl VisitorMut for Remove {
        fn parameter(&mut self, _: &str, _: &mut Parameter) {}
        fn buffer(&mut self, _: &str, _: &mut super::Buffer) {}
        fn module(&mut self, _: &str, module: &mut dyn Module) {
            match module.as_linear_mut() {
                Some(layer) => _ = layer.adapter.take(),
                None => module.visit_mut(self),
            }
        }
    }
    some_adapted("lora::remove_adapters", model);
    Remove.module("", model);
    model.requires_grad_(true);
}

/// A and B of all adapters by PEFT's names, `base_model.model.LAYER.lora_A.weight`, for `adapter_model.safetensors`
/// (`get_peft_model_state_dict`).
///
/// ```
/// use torchrs::nn::{Linear, Sequential, lora::{self, LoraOptions}};
/// let model = Sequential::new().append(Linear::new(3, 2));
/// let options = LoraOptions { r: 1, target_modules: vec!["0".into()], ..Default::default() };
/// lora::add_adapters(&model, &options);
/// let names: Vec<String> = lora::state_dict(&model).keys().map(String::from).collect();
/// assert_eq!(names, ["base_model.model.0.lora_A.weight", "base_model.model.0.lora_B.weight"]);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] where there are no adapters.
#[track_caller]
pub fn state_dict(model: &dyn Module) -> StateDict {
    let entries = some_adapted("lora::state_dict", model)
        .into_iter()
        .flat_map(|(name, _, a)| a.matrices().map(|(matrix, p)| (key(&name, matrix), p.detach())));
    entries.collect()
}

/// The name of a layer's matrix in a file.
fn key(layer: &str, matrix: &str) -> String {
    match layer {
        "" => format!("{PREFIX}{matrix}"),
        _ => format!("{PREFIX}{layer}.{matrix}"),
    }
}

/// Sets the adapters from tensors by PEFT's names (`set_peft_model_state_dict`).
///
/// # Errors
/// Where a tensor is missing, has another shape, or belongs to no adapter of the model; nothing is changed then.
///
/// # Panics
/// Throws [`Error::Argument`] where there are no adapters, or these are merged.
#[track_caller]
pub fn load_state_dict(model: &dyn Module, state: &dyn NamedTensors) -> Result<()> {
    const CALL: &str = "lora::load_state_dict";
    let all = some_adapted(CALL, model);
    let mut known = state.names();
    let mut pairs = Vec::new();
    for (name, _, adapter) in &all {
        if adapter.merged.load(Relaxed) {
            let message = format!("the adapter of {name:?} is merged; `unmerge` it before");
            throw(Error::argument(CALL, "model", message));
        }
        for (matrix, parameter) in adapter.matrices() {
            let key = key(name, matrix);
            known.retain(|name| *name != key);
            let Some(tensor) = state.tensor(&key) else {
                return Err(Error::argument(CALL, "state", format!("has no {key:?}")));
            };
            if tensor.shape() != parameter.shape() {
                let (theirs, own) = (tensor.shape(), parameter.shape());
                let message = format!(
                    "{key:?} is {theirs:?}, and the adapter's {own:?}; the rank must be the same"
                );
                return Err(Error::argument(CALL, "state", message));
            }
            pairs.push((parameter, tensor));
        }
    }
    if !known.is_empty() {
        return Err(Error::argument(
            CALL,
            "state",
            format!("has {known:?}, which the model has not"),
        ));
    }
    no_grad(|| pairs.into_iter().for_each(|(parameter, tensor)| _ = parameter.copy_(tensor)));
    Ok(())
}

/// A linear layer without a bias and its adapter, of plain tensors: x W^T + alpha / r (x A^T) B^T, where r is the number of A's rows.
///
/// ```
/// use torchrs::{Tensor, nn::lora::lora_linear};
/// let (x, w) = (Tensor::from([[1f64, 2.]]), Tensor::from([[1f64, 0.]]));
/// let (a, b) = (Tensor::from([[1f64, 1.]]), Tensor::from([[2f64]]));
/// assert_eq!(lora_linear(&x, &w, [&a, &b], 0.5).item(), 4.0);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] where the matrices do not fit.
#[track_caller]
pub fn lora_linear(x: &Tensor, weight: &Tensor, [a, b]: [&Tensor; 2], alpha: f64) -> Tensor {
    let fits = weight.dim() == 2
        && a.dim() == 2
        && b.dim() == 2
        && a.size(0) > 0
        && a.size(1) == weight.size(1)
        && b.shape() == [weight.size(0), a.size(0)];
    if !fits {
        let (weight, a, b) = (weight.shape(), a.shape(), b.shape());
        let message = format!(
            "weight is {weight:?}, a {a:?}, b {b:?}; must be [out, in], [r, in] and [out, r]"
        );
        throw(Error::shape("lora_linear", message));
    }
    x.linear(weight, None) + x.linear(a, None).linear(b, None) * (alpha / a.size(0) as f64)
}

#[cfg(test)]
mod tests;

//! Loss scaling (`torch.amp.GradScaler`).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Optimizer;
use crate::autograd::{Together, check_reduced, no_grad};
use crate::cuda::{Stream, graph};
use crate::error::{Error, Result, throw};
use crate::ops::gradients;
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// Options of [`GradScaler`], with PyTorch's defaults.
///
/// ```
/// use torchrs::{Tensor, amp::{GradScaler, GradScalerOptions}};
/// let options = GradScalerOptions { init_scale: 4.0, ..Default::default() };
/// assert_eq!(GradScaler::new(options).scale(&Tensor::from([1.5f32])).item(), 6.0);
/// let off = GradScalerOptions { enabled: false, ..options };
/// assert_eq!(GradScaler::new(off).scale(&Tensor::from([1.5f32])).item(), 1.5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerOptions {
    /// The first scale.
    pub init_scale: f64,
    /// What the scale is multiplied by after `growth_interval` steps without overflow.
    pub growth_factor: f64,
    /// What the scale is multiplied by after a step with overflow.
    pub backoff_factor: f64,
    /// Steps without overflow before the scale grows.
    pub growth_interval: u64,
    /// False makes everything here do nothing, and `step` just step.
    pub enabled: bool,
}

impl Default for GradScalerOptions {
    fn default() -> Self {
        GradScalerOptions {
            init_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            enabled: true,
        }
    }
}

/// Multiplies the loss, so that gradients of f16 do not vanish; divides the gradients before the step;
/// leaves steps out whose gradients overflowed, and finds the scale by that (`torch.amp.GradScaler`).
/// bf16 has the range of f32 and needs none of it.
///
/// ```
/// use torchrs::{Tensor, amp::{GradScaler, GradScalerOptions}, optim::{Optimizer, SGD, SGDOptions}};
/// let w = Tensor::from([1f32]).requires_grad_(true);
/// let mut optimizer = SGD::new([w.clone()], SGDOptions { lr: 0.1, ..Default::default() });
/// let mut scaler = GradScaler::new(GradScalerOptions::default());
/// scaler.scale(&(&w * &w).sum()).backward();
/// scaler.unscale_(&mut optimizer); // only where gradients are looked at, such as to clip them
/// scaler.step(&mut optimizer);
/// scaler.update();
/// assert_eq!(w.item() as f32, 0.8);
/// ```
///
/// Under `DistributedDataParallel` every rank has a scaler of its own. They agree without a word
/// between them: gradients are already the mean over all ranks, and an infinity or NaN of one rank is
/// one in the mean, so all leave out the same steps and keep the same scale.
#[derive(Debug)]
pub struct GradScaler {
    options: GradScalerOptions,
    scale: f64,
    /// Steps since the scale changed.
    growth_tracker: u64,
    /// By optimizer since the last `update`.
    stages: HashMap<u64, Stage>,
}

/// What was done with an optimizer's gradients since the last `update`.
#[derive(Debug)]
struct Stage {
    overflow: Overflow,
    stepped: bool,
    /// Some parameter had a gradient: overflow was looked for.
    checked: bool,
}

/// Whether a gradient was infinite or NaN.
#[derive(Debug)]
enum Overflow {
    Known(bool),
    /// A number on a GPU that is not 0 if so; `step` is the first that needs it.
    OnGpu(Tensor),
}

impl Overflow {
    /// Waits for the GPU if it has to.
    fn get(&mut self) -> bool {
        if let Overflow::OnGpu(found) = self {
            *self = Overflow::Known(found.item() != 0.0);
        }
        matches!(self, Overflow::Known(true))
    }

    /// Counts what ranks with other parts of the parameters have found: either all step, or none.
    fn agree(&mut self, parameters: &[Tensor]) -> Result<()> {
        let mut asked: Vec<Arc<dyn Together>> = Vec::new();
        for group in parameters.iter().filter(|p| p.is_sharded()).filter_map(Tensor::together) {
            if asked.iter().any(|other| other.ranks() == group.ranks()) {
                continue;
            }
            let found = Tensor::from([u8::from(self.get())]);
            group.max(&found)?;
            *self = Overflow::Known(found.item() != 0.0);
            asked.push(group);
        }
        Ok(())
    }
}

/// PyTorch's structure.
#[derive(Serialize, Deserialize)]
struct State {
    scale: f64,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u64,
    #[serde(rename = "_growth_tracker")]
    growth_tracker: u64,
}

/// Tells optimizers apart: no two have the same parameters in the same order.
fn key(optimizer: &dyn Optimizer) -> u64 {
    let mut hasher = DefaultHasher::new();
    optimizer.parameters().iter().for_each(|p| p.identity().hash(&mut hasher));
    hasher.finish()
}

/// The scale, and whether a step is left out, are the host's: replays would not see them change.
fn refuse_capture(call: &str, device: Device) {
    const WHY: &str = "the scale is a number of the host; capture forward and backward of a loss that is \
                       scaled by a tensor, or train in bf16, which needs no scale";
    let Some(gpu) = device.gpu() else { return };
    let refused = Stream::current(gpu).and_then(|stream| graph::refuse(stream, call, WHY));
    refused.unwrap_or_else(|error| throw(error));
}

impl GradScaler {
    /// A scaler, for one training run.
    ///
    /// ```
    /// use torchrs::{amp::{GradScaler, GradScalerOptions}, catch};
    /// assert_eq!(GradScaler::new(GradScalerOptions::default()).get_scale(), 65536.0);
    /// let wrong = GradScalerOptions { growth_factor: 0.5, ..Default::default() };
    /// assert!(catch(|| GradScaler::new(wrong)).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless `growth_factor` is above 1, `backoff_factor` below 1 and
    /// `init_scale` above 0.
    #[track_caller]
    pub fn new(options: GradScalerOptions) -> Self {
        let wrong = |name: &str, value: f64, rule: &str| -> ! {
            throw(Error::argument("GradScaler", name, format!("{value}; must be {rule}")))
        };
        if options.enabled && (options.growth_factor.is_nan() || options.growth_factor <= 1.0) {
            wrong("growth_factor", options.growth_factor, "above 1");
        }
        if options.enabled && !(options.backoff_factor < 1.0 && options.backoff_factor > 0.0) {
            wrong("backoff_factor", options.backoff_factor, "above 0 and below 1");
        }
        if options.enabled && !above_zero(options.init_scale) {
            wrong("init_scale", options.init_scale, "above 0");
        }
        let scale = options.init_scale;
        GradScaler { options, scale, growth_tracker: 0, stages: HashMap::new() }
    }

    /// The loss times the scale.
    ///
    /// ```
    /// use torchrs::{Tensor, amp::GradScaler};
    /// let scaler = GradScaler::new(Default::default());
    /// let w = Tensor::from([1f32]).requires_grad_(true);
    /// scaler.scale(&(&w * 3.0)).backward();
    /// assert_eq!(w.grad().unwrap().item(), 3.0 * 65536.0);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Device`] while a graph is captured: the scale is a number of the host's, which
    /// replays would not see change.
    #[track_caller]
    pub fn scale(&self, outputs: &Tensor) -> Tensor {
        if self.options.enabled {
            refuse_capture("GradScaler::scale", outputs.device());
        }
        match self.options.enabled {
            true => outputs * self.scale,
            false => outputs.clone(),
        }
    }

    /// Divides the gradients of an optimizer's parameters by the scale, in place, and looks for
    /// infinities and NaN. [`step`](Self::step) does this if it was not done. Not while a graph is captured.
    ///
    /// ```
    /// use torchrs::{Tensor, amp::GradScaler, nn, optim::SGD};
    /// let mut scaler = GradScaler::new(Default::default());
    /// let w = Tensor::from([1f32]).requires_grad_(true);
    /// let mut optimizer = SGD::new([w.clone()], Default::default());
    /// scaler.scale(&(&w * 3.0)).backward();
    /// scaler.unscale_(&mut optimizer);
    /// nn::clip_grad_norm_(&[w.clone()], 6.0);
    /// assert_eq!(w.grad().unwrap().item(), 3.0);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when it was done, or the optimizer has stepped, since the last
    /// [`update`](Self::update); [`Error::Dtype`] when a gradient is f16: parameters must stay f32.
    #[track_caller]
    pub fn unscale_(&mut self, optimizer: &mut dyn Optimizer) {
        if !self.options.enabled {
            return;
        }
        let wrong = |message: &str| -> ! {
            throw(Error::argument("GradScaler::unscale_", "optimizer", message))
        };
        optimizer
            .parameters()
            .iter()
            .for_each(|p| refuse_capture("GradScaler::unscale_", p.device()));
        let key = key(optimizer);
        match self.stages.get(&key) {
            Some(Stage { stepped: true, .. }) => {
                wrong("has stepped since the last update(); unscale_ comes before step")
            }
            Some(_) => wrong("is unscaled already since the last update()"),
            None => {}
        }
        let parameters = optimizer.parameters();
        check_reduced("GradScaler::unscale_", &parameters).unwrap_or_else(|error| throw(error));
        let mut overflow = unscale(&parameters, f64::from((1.0 / self.scale) as f32));
        overflow.agree(&parameters).unwrap_or_else(|error| throw(error));
        let checked = parameters.iter().any(|p| p.grad().is_some());
        self.stages.insert(key, Stage { overflow, stepped: false, checked });
    }

    /// Steps the optimizer, after [`unscale_`](Self::unscale_), unless a gradient overflowed. Says
    /// whether it stepped.
    ///
    /// ```
    /// use torchrs::{Tensor, amp::GradScaler, optim::{SGD, SGDOptions}};
    /// let mut scaler = GradScaler::new(Default::default());
    /// let w = Tensor::from([1f32]).requires_grad_(true);
    /// let mut optimizer = SGD::new([w.clone()], SGDOptions { lr: 0.5, ..Default::default() });
    /// w.set_grad(Some(Tensor::from([f32::INFINITY])));
    /// assert!(!scaler.step(&mut optimizer) && w.item() == 1.0);
    /// scaler.update();
    /// w.set_grad(Some(Tensor::from([32768f32]))); // 1, by the scale that is now half as large
    /// assert!(scaler.step(&mut optimizer) && w.item() == 0.5);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when it was called for this optimizer since the last
    /// [`update`](Self::update).
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> bool {
        if !self.options.enabled {
            optimizer.step();
            return true;
        }
        let key = key(optimizer);
        if !self.stages.contains_key(&key) {
            self.unscale_(optimizer);
        }
        let stage = self.stages.get_mut(&key).expect("unscaled above");
        if stage.stepped {
            let message = "has stepped since the last update()";
            throw(Error::argument("GradScaler::step", "optimizer", message));
        }
        if !stage.checked {
            // Forgotten, so that the caller can compute gradients and step.
            self.stages.remove(&key);
            let message = format!(
                "none of its {} parameters has a gradient, so nothing was checked for overflow; call \
                 `backward` on the scaled loss first, and let the optimizer have the parameters of the \
                 model that made it",
                optimizer.parameters().len()
            );
            throw(Error::argument("GradScaler::step", "optimizer", message));
        }
        stage.stepped = true;
        let overflow = stage.overflow.get();
        if !overflow {
            optimizer.step();
        }
        !overflow
    }

    /// Makes the scale smaller after an overflow, and larger after `growth_interval` steps without
    /// one. Once per iteration, after all optimizers' steps.
    ///
    /// ```
    /// use torchrs::{Tensor, amp::{GradScaler, GradScalerOptions}, optim::SGD};
    /// let mut scaler = GradScaler::new(GradScalerOptions { growth_interval: 1, ..Default::default() });
    /// let w = Tensor::from([1f32]).requires_grad_(true);
    /// let mut optimizer = SGD::new([w.clone()], Default::default());
    /// let scales = [1.0, f32::NAN].map(|grad| {
    ///     w.set_grad(Some(Tensor::from([grad])));
    ///     scaler.step(&mut optimizer);
    ///     scaler.update();
    ///     scaler.get_scale()
    /// });
    /// assert_eq!(scales, [131072.0, 65536.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when no gradients were looked at since the last call.
    #[track_caller]
    pub fn update(&mut self) {
        if !self.options.enabled {
            return;
        }
        if !self.stages.values().any(|stage| stage.checked) {
            self.stages.clear();
            let message =
                "no optimizer with a gradient was unscaled or stepped since the last update()";
            throw(Error::argument("GradScaler::update", "optimizer", message));
        }
        let overflow = self.stages.drain().any(|(_, mut stage)| stage.overflow.get());
        if overflow {
            self.scale = (self.scale as f32 * self.options.backoff_factor as f32) as f64;
            self.growth_tracker = 0;
            return;
        }
        self.growth_tracker += 1;
        if self.growth_tracker == self.options.growth_interval {
            // The scale is a number of f32, as PyTorch's, and never grows to infinity.
            let grown = self.scale as f32 * self.options.growth_factor as f32;
            if grown.is_finite() {
                self.scale = grown as f64;
            }
            self.growth_tracker = 0;
        }
    }

    /// Sets the scale (`update(new_scale)`).
    ///
    /// ```
    /// use torchrs::amp::GradScaler;
    /// let mut scaler = GradScaler::new(Default::default());
    /// scaler.update_to(8.0);
    /// assert_eq!(scaler.get_scale(), 8.0);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless it is above 0.
    #[track_caller]
    pub fn update_to(&mut self, new_scale: f64) {
        if !above_zero(new_scale) {
            let message = format!("{new_scale}; must be above 0");
            throw(Error::argument("GradScaler::update_to", "new_scale", message));
        }
        if self.options.enabled {
            self.scale = new_scale;
            self.stages.clear();
        }
    }

    /// The scale; 1 when not enabled.
    pub fn get_scale(&self) -> f64 {
        if self.options.enabled { self.scale } else { 1.0 }
    }

    /// Whether this does anything.
    pub fn is_enabled(&self) -> bool {
        self.options.enabled
    }

    /// The state, to be saved; an empty object when not enabled.
    ///
    /// ```
    /// use torchrs::amp::GradScaler;
    /// let state = GradScaler::new(Default::default()).state_dict();
    /// assert!(state["scale"] == 65536.0 && state["_growth_tracker"] == 0);
    /// ```
    pub fn state_dict(&self) -> Value {
        if !self.options.enabled {
            return Value::Object(Default::default());
        }
        let GradScalerOptions { growth_factor, backoff_factor, growth_interval, .. } = self.options;
        let (scale, growth_tracker) = (self.scale, self.growth_tracker);
        let state = State { scale, growth_factor, backoff_factor, growth_interval, growth_tracker };
        serde_json::to_value(state).expect("plain numbers")
    }

    /// Continues from a saved state; does nothing when not enabled.
    ///
    /// ```
    /// use torchrs::amp::GradScaler;
    /// let mut old = GradScaler::new(Default::default());
    /// old.update_to(8.0);
    /// let mut scaler = GradScaler::new(Default::default());
    /// scaler.load_state_dict(&old.state_dict())?;
    /// assert_eq!(scaler.get_scale(), 8.0);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when `state` is not that of an enabled scaler.
    pub fn load_state_dict(&mut self, state: &Value) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        let wrong = |m: String| Error::argument("GradScaler::load_state_dict", "state", m);
        let state = State::deserialize(state).map_err(|e| wrong(e.to_string()))?;
        if !above_zero(state.scale) {
            return Err(wrong(format!("`scale` is {}; must be above 0", state.scale)));
        }
        let State { scale, growth_factor, backoff_factor, growth_interval, growth_tracker } = state;
        (self.scale, self.growth_tracker) = (scale, growth_tracker);
        let options =
            GradScalerOptions { growth_factor, backoff_factor, growth_interval, ..self.options };
        self.options = options;
        Ok(())
    }
}

/// False for NaN too.
fn above_zero(scale: f64) -> bool {
    scale > 0.0
}

/// Multiplies all gradients by `factor`; whether one was infinite or NaN.
#[track_caller]
fn unscale(parameters: &[Tensor], factor: f64) -> Overflow {
    let grads = parameters.iter().filter_map(Tensor::grad).filter(|g| g.numel() > 0);
    let grads: Vec<Tensor> = grads.collect();
    if grads.iter().any(|grad| grad.dtype() == Dtype::F16) {
        let message = "a gradient is f16; keep the parameters f32 and compute in autocast";
        throw(Error::dtype("GradScaler::unscale_", message));
    }
    if let Some(gpu) = gradients::common_gpu(&grads) {
        return Overflow::OnGpu(no_grad(|| gradients::unscale(gpu, &grads, factor)));
    }
    Overflow::Known(no_grad(|| {
        let mut overflow = false;
        for grad in &grads {
            // The largest absolute value is NaN if any is.
            overflow |= !grad.norm_dim(f64::INFINITY, &[], false).item().is_finite();
            grad.mul_(factor);
        }
        overflow
    }))
}

//! L-BFGS (`torch.optim.LBFGS`): steps along an estimate of Newton's direction, which the last
//! changes of parameters (`s`) and gradients (`y`) give by the two-loop recursion; the length is the
//! learning rate, or found by a search for Wolfe's strong conditions (`line_search.rs`).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::declare::options;
use super::engine::{
    GroupOptions, NOT_IN_PARTS, check_parameters, not_negative, saved_group, saved_groups,
};
use super::line_search::{Point, strong_wolfe};
use super::{Optimizer, OptimizerState, StateValue};
use crate::autograd::{enable_grad, no_grad};
use crate::error::{Error, Result, throw};
use crate::profiler::{self, Category};
use crate::tensor::{Tensor, promote_types};

/// How [`LBFGS`] finds the length of a step.
///
/// ```
/// use torchrs::{Tensor, optim::{LBFGS, LBFGSOptions, LineSearch, Optimizer}};
/// let w = Tensor::from([-1.2f64, 1.0]).requires_grad_(true);
/// let line_search_fn = Some(LineSearch::StrongWolfe);
/// let mut optimizer = LBFGS::new([w.clone()], LBFGSOptions { line_search_fn, ..Default::default() });
/// for _ in 0..5 {
///     optimizer.step_with(&mut || {
///         w.set_grad(None);
///         let (x, y) = (w.select(0, 0), w.select(0, 1)); // Rosenbrock's valley
///         let loss = (1.0 - &x).square() + (y - x.square()).square() * 100.0;
///         loss.backward();
///         loss
///     });
/// }
/// assert!((&w - 1.0).norm().item() < 1e-4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LineSearch {
    /// Until Wolfe's strong conditions hold.
    StrongWolfe,
}

options! {
    /// Options of [`LBFGS`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{LBFGS, LBFGSOptions, Optimizer}};
    /// let w = Tensor::from([3f64]).requires_grad_(true);
    /// let options = LBFGSOptions { max_iter: 1, lr: 0.5, ..Default::default() };
    /// let mut optimizer = LBFGS::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([8f64])));
    /// optimizer.step_with(&mut || Tensor::from([0f64]));
    /// assert_eq!(w.item(), 2.5); // the first step is no longer than the rate
    /// ```
    LBFGSOptions {
        /// Learning rate: the length of steps, or the first guess of the line search.
        lr: f64 = 1.0,
        /// Iterations per step.
        max_iter: usize = 20,
        /// Evaluations of the closure per step; by default 5/4 of the iterations.
        max_eval: Option<usize> = None,
        /// The largest element of a gradient that counts as none.
        tolerance_grad: f64 = 1e-7,
        /// The change of loss or parameters that counts as none.
        tolerance_change: f64 = 1e-9,
        /// How many changes are remembered.
        history_size: usize = 100,
        /// Search for the length of steps.
        line_search_fn: Option<LineSearch> = None,
    }
    check(o) {
        not_negative("lr", o.lr)?;
    }
}

/// L-BFGS (Liu and Nocedal, 1989), for losses of the whole data set. One group of parameters; use
/// [`step_with`](Optimizer::step_with), whose closure is evaluated several times per step.
///
/// ```
/// use torchrs::{Tensor, optim::{LBFGS, LBFGSOptions, Optimizer}};
/// let w = Tensor::from([3f64, -2.0]).requires_grad_(true);
/// let mut optimizer = LBFGS::new([w.clone()], LBFGSOptions::default());
/// optimizer.step_with(&mut || {
///     w.set_grad(None);
///     let loss = (&w * &w).sum();
///     loss.backward();
///     loss
/// });
/// assert!(w.norm().item() < 1e-6);
/// ```
pub struct LBFGS {
    params: Vec<Tensor>,
    options: LBFGSOptions,
    initial_lr: Option<f64>,
    /// See [`Optimizer::is_mid_schedule`].
    mid_schedule: bool,
    state: State,
}

/// What is kept between steps; parameters and gradients as one vector.
#[derive(Clone, Default)]
struct State {
    func_evals: usize,
    n_iter: usize,
    direction: Option<Tensor>,
    length: f64,
    changes: VecDeque<Change>,
    /// Scale of the first estimate of the inverse Hessian.
    scale: f64,
    previous_gradient: Option<Tensor>,
}

/// A change of gradients, of parameters, and the reciprocal of their product.
#[derive(Clone)]
struct Change {
    y: Tensor,
    s: Tensor,
    rho: f64,
}

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    a.dot(b).item()
}

fn largest(t: &Tensor) -> f64 {
    t.norm_dim(f64::INFINITY, &[], false).item()
}

impl State {
    /// The direction of the next step for a gradient; takes the last step into account.
    fn direction(&mut self, gradient: &Tensor, history_size: usize) -> Tensor {
        let (Some(d), Some(previous)) = (&self.direction, &self.previous_gradient) else {
            self.scale = 1.0;
            return -gradient;
        };
        let (y, s) = (gradient - previous, d * self.length);
        let ys = dot(&y, &s);
        if ys > 1e-10 {
            if self.changes.len() >= history_size {
                self.changes.pop_front();
            }
            self.scale = ys / dot(&y, &y);
            self.changes.push_back(Change { y, s, rho: 1.0 / ys });
        }
        let direction = -gradient;
        let mut shares = Vec::with_capacity(self.changes.len());
        for Change { y, s, rho } in self.changes.iter().rev() {
            let share = dot(s, &direction) * rho;
            direction.add_scaled_(y, -share);
            shares.push(share);
        }
        direction.mul_(self.scale);
        for (Change { y, s, rho }, share) in self.changes.iter().zip(shares.iter().rev()) {
            direction.add_scaled_(s, share - dot(y, &direction) * rho);
        }
        direction
    }
}

impl LBFGS {
    /// An optimizer of `params`.
    ///
    /// ```
    /// use torchrs::{Tensor, catch, optim::{LBFGS, LBFGSOptions, Optimizer}};
    /// let w = Tensor::from([3f64, -2.0]).requires_grad_(true);
    /// assert_eq!(LBFGS::new([w], LBFGSOptions::default()).lr(0), 1.0);
    /// assert!(catch(|| LBFGS::new([], LBFGSOptions::default())).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when there are no parameters, one is there twice or is no
    /// floating-point leaf, or an option cannot be used.
    #[track_caller]
    pub fn new(params: impl IntoIterator<Item = Tensor>, options: LBFGSOptions) -> Self {
        let params: Vec<Tensor> = params.into_iter().collect();
        if params.is_empty() {
            throw(Error::argument("LBFGS", "params", "there are no parameters"));
        }
        check_parameters("LBFGS", 0, &[], &params);
        if let Some(place) = params.iter().position(Tensor::is_sharded) {
            throw(Error::argument("LBFGS", "params", format!("parameter {place} {NOT_IN_PARTS}")));
        }
        if let Err((option, message)) = options.check() {
            throw(Error::argument("LBFGS", option, message));
        }
        LBFGS { params, options, initial_lr: None, mid_schedule: false, state: State::default() }
    }

    /// All gradients as one vector; zeros where there is none.
    fn gradient(&self) -> Tensor {
        let flat = |p: &Tensor| p.grad().unwrap_or_else(|| p.zeros_like()).reshape([-1]);
        Tensor::cat(&self.params.iter().map(flat).collect::<Vec<_>>(), 0)
    }

    /// Converts what is known of earlier steps, if the parameters were moved since.
    #[track_caller]
    fn follow(&mut self, gradient: &Tensor) {
        let kind = |t: &Tensor| (t.dtype(), t.device());
        if self.state.previous_gradient.as_ref().is_some_and(|g| kind(g) != kind(gradient)) {
            let (saved, mid_schedule) = (self.state_dict(), self.mid_schedule);
            self.load_state_dict(&saved).unwrap_or_else(|error| throw(error));
            self.mid_schedule = mid_schedule;
        }
    }

    /// Moves the parameters along a vector.
    fn add(&self, direction: &Tensor, length: f64) {
        let sizes: Vec<usize> = self.params.iter().map(Tensor::numel).collect();
        for (p, part) in self.params.iter().zip(direction.split_sizes(&sizes, 0)) {
            p.add_scaled_(&part.reshape_as(p), length);
        }
    }

    /// Loss and gradient after a move, which is then taken back.
    fn at(
        &self,
        start: &[Tensor],
        direction: &Tensor,
        length: f64,
        closure: &mut dyn FnMut() -> Tensor,
    ) -> (f64, Tensor) {
        self.add(direction, length);
        let loss = enable_grad(&mut *closure).item();
        let gradient = self.gradient();
        for (p, start) in self.params.iter().zip(start) {
            p.copy_(start);
        }
        (loss, gradient)
    }

    fn minimize(&mut self, closure: &mut dyn FnMut() -> Tensor) -> Tensor {
        let first_loss = enable_grad(&mut *closure);
        let mut loss = first_loss.item();
        let LBFGSOptions { lr, max_iter, tolerance_grad, tolerance_change, .. } = self.options;
        let max_eval = self.options.max_eval.unwrap_or(max_iter * 5 / 4);
        let mut evaluations = 1;
        self.state.func_evals += 1;
        let mut gradient = self.gradient();
        self.follow(&gradient);
        if largest(&gradient) <= tolerance_grad {
            return first_loss;
        }
        for iteration in 1..=max_iter {
            self.state.n_iter += 1;
            let direction = self.state.direction(&gradient, self.options.history_size);
            let previous_loss = loss;
            let mut length = lr;
            if self.state.n_iter == 1 {
                length *= (1.0 / gradient.abs().sum().item()).min(1.0);
            }
            let slope = dot(&gradient, &direction);
            self.state.previous_gradient = Some(gradient.clone());
            self.state.direction = Some(direction.clone());
            self.state.length = length;
            if slope > -tolerance_change {
                break;
            }
            let mut used = 0;
            if self.options.line_search_fn.is_some() {
                let start: Vec<Tensor> = self.params.iter().map(Tensor::clone_contiguous).collect();
                let mut at = |length: f64| {
                    let (loss, gradient) = self.at(&start, &direction, length, closure);
                    let slope = dot(&gradient, &direction);
                    Point { at: length, loss, gradient, slope }
                };
                let origin = Point { at: 0.0, loss, gradient, slope };
                let limit = max_eval.saturating_sub(evaluations);
                let (point, count) =
                    strong_wolfe(&mut at, origin, length, largest(&direction), limit);
                used = count;
                length = point.at;
                (loss, gradient) = (point.loss, point.gradient);
                self.add(&direction, length);
            } else {
                self.add(&direction, length);
                if iteration != max_iter {
                    loss = enable_grad(&mut *closure).item();
                    gradient = self.gradient();
                    used = 1;
                }
            }
            self.state.length = length;
            evaluations += used;
            self.state.func_evals += used;
            if evaluations >= max_eval
                || largest(&gradient) <= tolerance_grad
                || largest(&direction) * length.abs() <= tolerance_change
                || (loss - previous_loss).abs() < tolerance_change
            {
                break;
            }
        }
        first_loss
    }
}

impl Optimizer for LBFGS {
    /// # Panics
    /// Always throws [`Error::Argument`]: the loss must be evaluated several times.
    fn step(&mut self) {
        throw(Error::argument("LBFGS", "closure", "is missing; call `step_with`"))
    }

    fn step_with(&mut self, closure: &mut dyn FnMut() -> Tensor) -> Tensor {
        let span = profiler::span("LBFGS", Category::Optimizer);
        let loss = no_grad(|| self.minimize(closure));
        drop(span);
        profiler::step_ended(|| self.params.first().map(Tensor::identity));
        loss
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.params.clone()
    }

    fn num_groups(&self) -> usize {
        1
    }

    fn lr(&self, _group: usize) -> f64 {
        self.options.lr
    }

    fn set_lr(&mut self, _group: usize, lr: f64) {
        self.mid_schedule = false;
        self.options.lr = lr;
    }

    fn initial_lr(&self, _group: usize) -> Option<f64> {
        self.initial_lr
    }

    fn set_initial_lr(&mut self, _group: usize, lr: f64) {
        self.initial_lr = Some(lr);
    }

    fn is_mid_schedule(&self) -> bool {
        self.mid_schedule
    }

    fn momentum(&self, _group: usize) -> Option<f64> {
        None
    }

    fn set_momentum(&mut self, _group: usize, _momentum: f64) {}

    /// The state is that of the first parameter, as PyTorch's; the changes are two matrices.
    fn state_dict(&self) -> OptimizerState {
        let State { func_evals, n_iter, direction, length, changes, scale, previous_gradient } =
            &self.state;
        let mut entries = BTreeMap::from([
            ("func_evals".to_owned(), StateValue::Number(*func_evals as f64)),
            ("n_iter".to_owned(), StateValue::Number(*n_iter as f64)),
            ("t".to_owned(), StateValue::Number(*length)),
            ("H_diag".to_owned(), StateValue::Number(*scale)),
        ]);
        let stacked = |part: fn(&Change) -> &Tensor| {
            let rows: Vec<&Tensor> = changes.iter().map(part).collect();
            (!rows.is_empty()).then(|| Tensor::stack(&rows, 0))
        };
        let tensors = [
            ("d", direction.clone()),
            ("prev_flat_grad", previous_gradient.clone()),
            ("old_dirs", stacked(|c| &c.y)),
            ("old_stps", stacked(|c| &c.s)),
        ];
        for (name, tensor) in tensors {
            entries.extend(tensor.map(|t| (name.to_owned(), StateValue::Tensor(t))));
        }
        let group = saved_group(&self.options, 0..self.params.len(), self.initial_lr);
        OptimizerState { state: vec![entries], param_groups: json!([group]) }
    }

    fn load_state_dict(&mut self, saved: &OptimizerState) -> Result<()> {
        let wrong = |what: String| Error::argument("LBFGS::load_state_dict", "state", what);
        let groups = saved_groups("LBFGS::load_state_dict", saved, &[self.params.len()])?;
        let options = LBFGSOptions::deserialize(&groups[0]).map_err(|e| wrong(e.to_string()))?;
        if let Err((option, message)) = options.check() {
            return Err(wrong(format!("option `{option}`: {message}")));
        }
        let size: usize = self.params.iter().map(Tensor::numel).sum();
        let dtypes = self.params.iter().map(Tensor::dtype);
        let dtype = dtypes.reduce(promote_types).expect("there are parameters");
        let device = self.params[0].device();
        let none = BTreeMap::new();
        let entries = saved.state.first().unwrap_or(&none);
        let number = |name: &str| match entries.get(name) {
            Some(StateValue::Number(n)) => Ok(*n),
            None if entries.is_empty() => Ok(0.0),
            _ => Err(wrong(format!("`{name}` is not a number"))),
        };
        let tensor = |name: &str, dim: usize| match entries.get(name) {
            None => Ok(None),
            Some(StateValue::Tensor(t)) if t.dim() == dim && t.size(-1) == size => {
                Ok(Some(no_grad(|| {
                    t.detach().to_dtype(dtype).clone_contiguous().to_device(device)
                })))
            }
            Some(_) => {
                Err(wrong(format!("`{name}` is not a tensor of {dim} dimensions, the last {size}")))
            }
        };
        let rows = |name: &str| tensor(name, 2).map(|t| t.map_or(Vec::new(), |t| t.unbind(0)));
        let (ys, ss) = (rows("old_dirs")?, rows("old_stps")?);
        if ys.len() != ss.len() {
            return Err(wrong("`old_dirs` and `old_stps` differ in length".into()));
        }
        let change = |(y, s): (Tensor, Tensor)| match dot(&y, &s) {
            ys if ys > 0.0 => Ok(Change { rho: 1.0 / ys, y, s }),
            ys => Err(wrong(format!(
                "a change's `old_dirs` times `old_stps` is {ys}; must be above 0"
            ))),
        };
        self.state = State {
            func_evals: number("func_evals")? as usize,
            n_iter: number("n_iter")? as usize,
            direction: tensor("d", 1)?,
            length: number("t")?,
            changes: ys.into_iter().zip(ss).map(change).collect::<Result<_>>()?,
            scale: number("H_diag")?,
            previous_gradient: tensor("prev_flat_grad", 1)?,
        };
        self.options = options;
        self.initial_lr = groups[0]["initial_lr"].as_f64();
        self.mid_schedule = self.initial_lr.is_some();
        Ok(())
    }
}

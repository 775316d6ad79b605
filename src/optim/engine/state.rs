//! What an optimizer keeps for a parameter, as it is saved and loaded.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::optim::StateValue;
use crate::tensor::Tensor;

/// What an optimizer keeps for a parameter.
///
/// ```
/// use std::collections::BTreeMap;
/// use torchrs::optim::engine::{ParamState, StateReader};
/// use torchrs::{Result, Tensor, optim::StateValue};
/// struct Average {
///     step: f64,
///     mean: Tensor,
/// }
/// impl ParamState for Average {
///     fn save(&self) -> BTreeMap<String, StateValue> {
///         let step = ("step".to_owned(), StateValue::Number(self.step));
///         BTreeMap::from([step, ("mean".to_owned(), StateValue::Tensor(self.mean.clone()))])
///     }
///     fn load(entries: &StateReader<'_>) -> Result<Self> {
///         Ok(Average { step: entries.number("step")?, mean: entries.tensor("mean")? })
///     }
/// }
/// let saved = Average { step: 3.0, mean: Tensor::from([0.5f64]) }.save();
/// assert_eq!(saved.keys().collect::<Vec<_>>(), ["mean", "step"]);
/// ```
pub trait ParamState: Send + Sync + Sized + 'static {
    /// The entries under PyTorch's names.
    fn save(&self) -> BTreeMap<String, StateValue>;
    /// The inverse of [`save`](Self::save). Entries that it does not ask for are refused, as another optimizer's.
    ///
    /// # Errors
    /// Those of the reader's methods.
    fn load(entries: &StateReader<'_>) -> Result<Self>;
}

/// Saved entries of one parameter, read with checks.
///
/// ```
/// # use std::collections::BTreeMap;
/// # use torchrs::optim::engine::{Item, ParamState, Rule, RuleOptimizer, StateReader};
/// # use torchrs::optim::{Optimizer, SGDOptions, StateValue};
/// # use torchrs::{Result, Tensor};
/// struct State;
/// impl ParamState for State {
///     fn load(entries: &StateReader<'_>) -> Result<Self> {
///         assert_eq!(entries.number("step")?, 3.0);
///         assert_eq!(entries.tensor("mean")?.to_vec::<f32>(), [0.5, 1.5]);
///         let error = entries.number("steps").err().expect("none of this name");
///         assert!(error.to_string().contains("parameter 0: `steps` is missing"));
///         Ok(State)
///     }
/// #     fn save(&self) -> BTreeMap<String, StateValue> {
/// #         BTreeMap::new()
/// #     }
/// }
/// # enum TestRule {}
/// # impl Rule for TestRule {
/// #     type Options = SGDOptions;
/// #     type State = State;
/// #     const NAME: &'static str = "Test";
/// #     fn init(_: &SGDOptions, _: &Tensor) -> State {
/// #         State
/// #     }
/// #     fn update(_: &SGDOptions, _: &mut [Item<'_, State>]) {}
/// # }
/// # let w = Tensor::from([1f32, 2.]).requires_grad_(true);
/// # let mut optimizer = RuleOptimizer::<TestRule>::new([w], Default::default());
/// # let mut saved = optimizer.state_dict();
/// // of a parameter with two elements:
/// saved.state[0].insert("step".into(), StateValue::Number(3.0));
/// saved.state[0].insert("mean".into(), StateValue::Tensor(Tensor::from([0.5f64, 1.5])));
/// # optimizer.load_state_dict(&saved)?;
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct StateReader<'a> {
    pub(super) optimizer: &'static str,
    pub(super) place: usize,
    pub(super) parameter: &'a Tensor,
    pub(super) entries: &'a BTreeMap<String, StateValue>,
    /// The names that were asked for.
    pub(super) asked: RefCell<BTreeSet<String>>,
}

impl<'a> StateReader<'a> {
    pub(super) fn new(
        optimizer: &'static str,
        place: usize,
        parameter: &'a Tensor,
        entries: &'a BTreeMap<String, StateValue>,
    ) -> Self {
        StateReader { optimizer, place, parameter, entries, asked: RefCell::default() }
    }

    fn get(&self, name: &str) -> Option<&StateValue> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.entries.get(name)
    }

    /// Refuses entries that nobody has asked for: they are another optimizer's, and would be forgotten.
    pub(super) fn check_all_asked(&self) -> Result<()> {
        let asked = self.asked.borrow();
        match self.entries.keys().find(|name| !asked.contains(*name)) {
            Some(name) => Err(self.wrong(format!(
                "has `{name}`, which {} does not keep: another optimizer saved this state",
                self.optimizer
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn wrong(&self, what: impl std::fmt::Display) -> Error {
        let message = format!("parameter {}: {what}", self.place);
        Error::argument(&format!("{}::load_state_dict", self.optimizer), "state", message)
    }

    /// A number; a tensor with one element counts as one.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is none of this name.
    pub fn number(&self, name: &str) -> Result<f64> {
        match self.get(name) {
            Some(StateValue::Number(number)) => Ok(*number),
            Some(StateValue::Tensor(tensor)) if tensor.numel() == 1 => Ok(tensor.item()),
            Some(_) => Err(self.wrong(format!("`{name}` is not a number"))),
            None => Err(self.wrong(format!("`{name}` is missing"))),
        }
    }

    /// A copy of a tensor of the parameter's shape, in the parameter's dtype, if there is one of
    /// this name.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use torchrs::optim::engine::{Item, ParamState, Rule, RuleOptimizer, StateReader};
    /// # use torchrs::optim::{Optimizer, SGDOptions, StateValue};
    /// # use torchrs::{Result, Tensor};
    /// struct State;
    /// impl ParamState for State {
    ///     fn load(entries: &StateReader<'_>) -> Result<Self> {
    ///         assert_eq!(entries.tensor_if_any("mean")?.unwrap().to_vec::<f32>(), [0.5, 1.5]);
    ///         assert!(entries.tensor_if_any("largest")?.is_none());
    ///         assert!(entries.tensor_if_any("row").is_err()); // of another shape
    ///         Ok(State)
    ///     }
    /// #     fn save(&self) -> BTreeMap<String, StateValue> {
    /// #         BTreeMap::new()
    /// #     }
    /// }
    /// # enum TestRule {}
    /// # impl Rule for TestRule {
    /// #     type Options = SGDOptions;
    /// #     type State = State;
    /// #     const NAME: &'static str = "Test";
    /// #     fn init(_: &SGDOptions, _: &Tensor) -> State {
    /// #         State
    /// #     }
    /// #     fn update(_: &SGDOptions, _: &mut [Item<'_, State>]) {}
    /// # }
    /// # let w = Tensor::from([1f32, 2.]).requires_grad_(true);
    /// # let mut optimizer = RuleOptimizer::<TestRule>::new([w], Default::default());
    /// # let mut saved = optimizer.state_dict();
    /// // of a parameter with two elements:
    /// saved.state[0].insert("mean".into(), StateValue::Tensor(Tensor::from([0.5f64, 1.5])));
    /// saved.state[0].insert("row".into(), StateValue::Tensor(Tensor::from([[7f64]])));
    /// # optimizer.load_state_dict(&saved)?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when it has another shape.
    pub fn tensor_if_any(&self, name: &str) -> Result<Option<Tensor>> {
        self.get(name).map(|value| self.copy(name, value, self.parameter.shape())).transpose()
    }

    fn copy(&self, name: &str, value: &StateValue, shape: &[usize]) -> Result<Tensor> {
        match value {
            StateValue::Tensor(t) if t.shape() == shape => {
                let t = t.detach().to_dtype(self.parameter.dtype());
                Ok(t.clone_contiguous().to_device(self.parameter.device()))
            }
            StateValue::Tensor(t) => Err(self.wrong(format!(
                "`{name}` has shape {:?}, must have {shape:?} for a parameter of {:?}",
                t.shape(),
                self.parameter.shape()
            ))),
            StateValue::Number(_) => Err(self.wrong(format!("`{name}` is not a tensor"))),
        }
    }

    /// The parameter whose state is read.
    pub fn parameter(&self) -> &Tensor {
        self.parameter
    }

    /// A copy of a tensor of a given shape, in the parameter's dtype.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use torchrs::optim::engine::{Item, ParamState, Rule, RuleOptimizer, StateReader};
    /// # use torchrs::optim::{Optimizer, SGDOptions, StateValue};
    /// # use torchrs::{Result, Tensor};
    /// struct State;
    /// impl ParamState for State {
    ///     fn load(entries: &StateReader<'_>) -> Result<Self> {
    ///         assert_eq!(entries.tensor_of("row", &[1, 1])?.item(), 7.0);
    ///         assert!(entries.tensor_of("row", &[2]).is_err());
    ///         Ok(State)
    ///     }
    /// #     fn save(&self) -> BTreeMap<String, StateValue> {
    /// #         BTreeMap::new()
    /// #     }
    /// }
    /// # enum TestRule {}
    /// # impl Rule for TestRule {
    /// #     type Options = SGDOptions;
    /// #     type State = State;
    /// #     const NAME: &'static str = "Test";
    /// #     fn init(_: &SGDOptions, _: &Tensor) -> State {
    /// #         State
    /// #     }
    /// #     fn update(_: &SGDOptions, _: &mut [Item<'_, State>]) {}
    /// # }
    /// # let w = Tensor::from([1f32, 2.]).requires_grad_(true);
    /// # let mut optimizer = RuleOptimizer::<TestRule>::new([w], Default::default());
    /// # let mut saved = optimizer.state_dict();
    /// // of a parameter with two elements:
    /// saved.state[0].insert("row".into(), StateValue::Tensor(Tensor::from([[7f64]])));
    /// # optimizer.load_state_dict(&saved)?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when it is not there or has another shape.
    pub fn tensor_of(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let missing = || self.wrong(format!("`{name}` is missing"));
        self.copy(name, self.get(name).ok_or_else(missing)?, shape)
    }

    /// [`tensor_if_any`](Self::tensor_if_any) of one that must be there.
    ///
    /// # Errors
    /// [`Error::Argument`] when it is not there or has another shape.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.tensor_if_any(name)?.ok_or_else(|| self.wrong(format!("`{name}` is missing")))
    }
}

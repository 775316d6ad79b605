//! A module's state by name, in PyTorch's order and with its names, and how it is read back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::Index;

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Parts of names that wrappers put there: `DistributedDataParallel` and `DataParallel`, `torch.compile`,
/// `FullyShardedDataParallel`, the wrapper of activation checkpointing.
const WRAPPERS: [&str; 4] =
    ["module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];

/// A tensor's name without what wrappers put there, at any depth.
///
/// ```
/// use torchrs::nn::unwrapped_name;
/// assert_eq!(unwrapped_name("module._orig_mod.fc.weight"), "fc.weight");
/// assert_eq!(unwrapped_name("layers.0._orig_mod.fc.weight"), "layers.0.fc.weight");
/// ```
pub fn unwrapped_name(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').filter(|part| !WRAPPERS.contains(part)).collect();
    parts.join(".")
}

/// Tensors by name, in the order in which they were inserted (`OrderedDict[str, Tensor]`).
///
/// ```
/// use torchrs::{Tensor, nn::StateDict};
/// let mut state = StateDict::new();
/// state.insert("fc.weight", Tensor::from([1f32]));
/// state.insert("fc.bias", Tensor::from([2f32]));
/// assert_eq!(state.keys().collect::<Vec<_>>(), ["fc.weight", "fc.bias"]);
/// assert_eq!(state["fc.bias"].item(), 2.0);
/// ```
#[derive(Clone, Default)]
pub struct StateDict {
    entries: Vec<(String, Tensor)>,
    positions: HashMap<String, usize>,
}

impl StateDict {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tensors by their names without what wrappers put there: `module.` of `DistributedDataParallel`, `_orig_mod.` of
    /// `torch.compile`, in any order and at any depth (`consume_prefix_in_state_dict_if_present`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Linear, Module, StateDict}};
    /// let saved = StateDict::from_iter([("module._orig_mod.weight", Tensor::from([[1f32, 2.]]))]);
    /// let layer = Linear::no_bias(2, 1);
    /// let error = layer.load_state_dict(&saved, true).unwrap_err().to_string();
    /// assert!(error.contains("StateDict::unwrapped"), "{error}");
    /// layer.load_state_dict(&StateDict::unwrapped(&saved)?, true)?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for two names that become one.
    pub fn unwrapped(tensors: &dyn NamedTensors) -> Result<Self> {
        let mut state = StateDict::new();
        for name in tensors.names() {
            let Some(tensor) = tensors.tensor(name) else { continue };
            let bare = unwrapped_name(name);
            if state.insert(bare.clone(), tensor.clone()).is_some() {
                let what =
                    format!("has `{bare}` twice without the names of wrappers, once as `{name}`");
                return Err(Error::argument("StateDict::unwrapped", "tensors", what));
            }
        }
        Ok(state)
    }

    /// Adds a tensor, or replaces the one of this name at its place and returns the old one.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::StateDict};
    /// let mut state = StateDict::new();
    /// assert!(state.insert("weight", Tensor::from([1f32])).is_none());
    /// assert_eq!(state.insert("weight", Tensor::from([2f32])).unwrap().item(), 1.0);
    /// assert_eq!((state.len(), state["weight"].item()), (1, 2.0));
    /// ```
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) -> Option<Tensor> {
        let name = name.into();
        match self.positions.get(&name) {
            Some(&i) => Some(std::mem::replace(&mut self.entries[i].1, tensor)),
            None => {
                self.positions.insert(name.clone(), self.entries.len());
                self.entries.push((name, tensor));
                None
            }
        }
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.positions.get(name).map(|&i| &self.entries[i].1)
    }

    /// True when there is a tensor of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.positions.contains_key(name)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The names in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    /// Names and tensors in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.entries.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }
}

impl Index<&str> for StateDict {
    type Output = Tensor;
    /// # Panics
    /// When there is no tensor of this name.
    #[track_caller]
    fn index(&self, name: &str) -> &Tensor {
        self.get(name).unwrap_or_else(|| panic!("the state dict has no tensor named `{name}`"))
    }
}

impl<S: Into<String>> FromIterator<(S, Tensor)> for StateDict {
    fn from_iter<I: IntoIterator<Item = (S, Tensor)>>(entries: I) -> Self {
        let mut state = StateDict::new();
        for (name, tensor) in entries {
            state.insert(name, tensor);
        }
        state
    }
}

impl IntoIterator for StateDict {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;
    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl fmt::Debug for StateDict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(k, t)| (k, (t.dtype(), t.shape().to_vec()))))
            .finish()
    }
}

impl From<StateDict> for BTreeMap<String, Tensor> {
    fn from(state: StateDict) -> Self {
        state.into_iter().collect()
    }
}

/// Tensors by name, from which a module is loaded: a [`StateDict`], or the map that a checkpoint
/// gives.
///
/// ```
/// use std::collections::BTreeMap;
/// use torchrs::{Tensor, nn::{Linear, Module, NamedTensors}};
/// let weights = BTreeMap::from([("weight".to_owned(), Tensor::from([[2f32, 3.]]))]);
/// assert_eq!(weights.names(), ["weight"]);
/// let layer = Linear::no_bias(2, 1);
/// layer.load_state_dict(&weights, true).unwrap();
/// assert_eq!(layer.weight.to_vec::<f32>(), [2.0, 3.0]);
/// ```
pub trait NamedTensors {
    /// The tensor of this name.
    fn tensor(&self, name: &str) -> Option<&Tensor>;
    /// All names, in order.
    fn names(&self) -> Vec<&str>;
}

impl NamedTensors for StateDict {
    fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.get(name)
    }
    fn names(&self) -> Vec<&str> {
        self.keys().collect()
    }
}

impl NamedTensors for BTreeMap<String, Tensor> {
    fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.get(name)
    }
    fn names(&self) -> Vec<&str> {
        self.keys().map(String::as_str).collect()
    }
}

/// What [`load_state_dict`](super::Module::load_state_dict) found. With `strict` both lists are
/// empty.
///
/// ```
/// use torchrs::nn::{Linear, LoadReport, Module};
/// let state = Linear::no_bias(3, 2).state_dict();
/// let report = Linear::new(3, 2).load_state_dict(&state, false).unwrap();
/// assert_eq!(report, LoadReport { missing_keys: vec!["bias".to_owned()], unexpected_keys: vec![] });
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Names that the module has and the state dict has not; these keep their values.
    pub missing_keys: Vec<String>,
    /// Names that the state dict has and the module has not; these are ignored.
    pub unexpected_keys: Vec<String>,
}

/// The text of a failed load: all that is wrong at once, by name.
pub(super) fn load_failure(report: &LoadReport, mismatched: &[String], strict: bool) -> String {
    let mut lines = Vec::new();
    let list = |names: &[String]| {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    if strict && !report.missing_keys.is_empty() {
        lines.push(format!("missing keys: {}", list(&report.missing_keys)));
    }
    if strict && !report.unexpected_keys.is_empty() {
        lines.push(format!("unexpected keys: {}", list(&report.unexpected_keys)));
    }
    lines.extend(mismatched.iter().cloned());
    if differ_by_wrappers(report) {
        lines.push(WRAPPED.to_owned());
    }
    lines.join("\n    ")
}

const WRAPPED: &str = "names differ by those of wrappers (`module.`, `_orig_mod.`): load `StateDict::unwrapped(&state)?` \
                       into the module that is inside of the wrapper";

/// Whether a missing name is there with the name of a wrapper in it, or without one.
pub(super) fn differ_by_wrappers(report: &LoadReport) -> bool {
    let missing: HashSet<String> =
        report.missing_keys.iter().map(|name| unwrapped_name(name)).collect();
    report.unexpected_keys.iter().any(|name| missing.contains(&unwrapped_name(name)))
}

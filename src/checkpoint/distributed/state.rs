//! What a rank has of a state that all ranks have together.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::region::Region;
use crate::checkpoint::folder::check_score;
use crate::checkpoint::header::METADATA;
use crate::checkpoint::{SCORE, words};
use crate::error::{Error, Result};
use crate::nn::{Module, saved_tensors};
use crate::tensor::Tensor;

/// A rank's part of a tensor: a box of the whole.
///
/// ```
/// use torchrs::{Dtype, Tensor, checkpoint::distributed::Shard};
/// // The right half of a matrix.
/// let shard = Shard::new(Tensor::zeros([4, 3], Dtype::F32), &[4, 6], &[0, 3])?;
/// assert_eq!((shard.shape(), shard.offsets()), (&[4, 6][..], &[0, 3][..]));
/// let whole = Shard::from(Tensor::zeros([2], Dtype::F32));
/// assert_eq!(whole.shape(), [2]);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Clone)]
pub struct Shard {
    tensor: Tensor,
    shape: Vec<usize>,
    region: Region,
}

impl Shard {
    /// The box of a tensor of shape `shape` that begins at `offsets`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a box that does not lie in the tensor.
    pub fn new(tensor: Tensor, shape: &[usize], offsets: &[usize]) -> Result<Self> {
        let region = Region { offsets: offsets.to_vec(), shape: tensor.shape().to_vec() };
        if region.is_within(shape) {
            return Ok(Shard { tensor, shape: shape.to_vec(), region });
        }
        let what = format!(
            "is {offsets:?} for a part of shape {:?}, which does not lie in a tensor of shape {shape:?}",
            tensor.shape()
        );
        Err(Error::argument("Shard::new", "offsets", what))
    }

    /// The part itself.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The shape of the whole.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Where the part begins in each dimension.
    pub fn offsets(&self) -> &[usize] {
        &self.region.offsets
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Another tensor of the same place, such as an average of a parameter, if it has the same shape.
    pub(crate) fn like(&self, tensor: Tensor) -> Shard {
        match tensor.shape() == self.tensor.shape() {
            true => Shard { tensor, ..self.clone() },
            false => Shard::whole(tensor),
        }
    }

    fn whole(tensor: Tensor) -> Shard {
        let shape = tensor.shape().to_vec();
        Shard { tensor, region: Region::whole(&shape), shape }
    }
}

/// Of a parameter that `fully_shard` has sharded, or its shard, this rank's part; any other tensor is whole.
impl From<Tensor> for Shard {
    fn from(tensor: Tensor) -> Self {
        let tensor = tensor.local();
        match tensor.placement() {
            None => Shard::whole(tensor),
            Some(placement) => {
                let region = Region { offsets: placement.offsets, shape: tensor.shape().to_vec() };
                Shard { shape: placement.shape, region, tensor }
            }
        }
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Region { offsets, shape } = &self.region;
        write!(f, "{} {shape:?} at {offsets:?} of {:?}", self.tensor.dtype(), self.shape)
    }
}

/// What a rank has of a state: parts of tensors by name, and values, of which rank 0's are saved.
///
/// Parts that several ranks have are written by one of them. Tensors are not copied: what is written is what they hold
/// when it is saved, and loading writes into them.
///
/// ```
/// use torchrs::{checkpoint::distributed::State, nn};
/// let model = nn::Linear::new(2, 1);
/// let state = State::new().with_module("model", &model)?.with_value("epoch", &3)?;
/// assert_eq!(state.names().collect::<Vec<_>>(), ["model.bias", "model.weight"]);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(super) tensors: BTreeMap<String, Shard>,
    pub(super) groups: Vec<String>,
    pub(super) values: BTreeMap<String, Value>,
}

impl State {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor, or a part of one.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that is there already.
    pub fn with_tensor(mut self, name: &str, shard: impl Into<Shard>) -> Result<Self> {
        self.insert(name.to_owned(), shard.into())?;
        Ok(self)
    }

    /// Adds the parameters and buffers of a module, `group` and a point before their names.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that is there already.
    pub fn with_module(self, group: &str, module: &dyn Module) -> Result<Self> {
        let tensors = saved_tensors(module).into_iter().map(|(name, t)| (name, Shard::from(t)));
        self.with_group(group, tensors)
    }

    /// Adds a group of tensors, `group` and a point before their names.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that is there already, and for a group whose names could be those of another.
    pub fn with_group(
        mut self,
        group: &str,
        tensors: impl IntoIterator<Item = (String, Shard)>,
    ) -> Result<Self> {
        let begins =
            |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|a| a.starts_with('.'));
        if let Some(other) =
            self.groups.iter().find(|other| begins(other, group) || begins(group, other))
        {
            let what = format!("is `{group}`; the names of group `{other}` begin alike");
            return Err(Error::argument("State::with_group", "group", what));
        }
        self.groups.push(group.to_owned());
        for (name, shard) in tensors {
            self.insert(format!("{group}.{name}"), shard)?;
        }
        Ok(self)
    }

    fn insert(&mut self, name: String, shard: Shard) -> Result<()> {
        // In a rank's file pieces have the names of their tensors, `@` and a place behind them.
        if name.contains('@') || name == METADATA {
            let what =
                format!("is `{name}`, which means something else in files; use no `@` in it");
            return Err(Error::argument("State::with_tensor", "name", what));
        }
        match self.tensors.insert(name.clone(), shard) {
            None => Ok(()),
            Some(_) => {
                let what = format!("`{name}` is there already; each tensor has its own name");
                Err(Error::argument("State::with_tensor", "name", what))
            }
        }
    }

    /// Adds a value. Numbers in it that are not finite come back as numbers.
    ///
    /// # Errors
    /// [`Error::Argument`] when it cannot be JSON (a map with keys that are no strings).
    pub fn with_value(mut self, name: &str, value: &impl Serialize) -> Result<Self> {
        let value = words::to_value(value).map_err(|e| {
            Error::argument("State::with_value", name, format!("cannot be JSON: {e}"))
        })?;
        self.values.insert(name.to_owned(), value);
        Ok(self)
    }

    /// Says how good it is, for [`CheckpointDir::keep_best`](crate::checkpoint::CheckpointDir::keep_best).
    pub(crate) fn with_score(self, score: f64) -> Result<Self> {
        check_score(score)?;
        self.with_value(SCORE, &score)
    }

    /// The names of the tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A tensor's part.
    pub fn tensor(&self, name: &str) -> Option<&Shard> {
        self.tensors.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Dtype;

    #[test]
    fn names_are_there_once_and_groups_do_not_run_into_each_other() {
        let tensor = || Tensor::zeros([2], Dtype::F32);
        let state = State::new().with_tensor("a.b", tensor()).unwrap();
        let twice = state.clone().with_tensor("a.b", tensor()).unwrap_err().to_string();
        assert!(twice.contains("`a.b` is there already"), "{twice}");
        for name in ["a@1", "__metadata__"] {
            let other = state.clone().with_tensor(name, tensor()).unwrap_err().to_string();
            assert!(other.contains("means something else in files"), "{other}");
        }
        assert!(state.with_group("a", [("b".to_owned(), tensor().into())]).is_err());
        let state = State::new().with_group("a", []).unwrap();
        for group in ["a", "a.b"] {
            let alike = state.clone().with_group(group, []).unwrap_err().to_string();
            assert!(alike.contains("group `a` begin alike"), "{alike}");
        }
        assert!(state.with_group("ab", []).is_ok());
        let outside = Shard::new(tensor(), &[3], &[2]).unwrap_err().to_string();
        assert!(outside.contains("does not lie in a tensor of shape [3]"), "{outside}");
    }
}

//! How two checkpoints differ.

use crate::autograd::no_grad;
use crate::error::{Error, Result, catch};
use crate::tensor::{Dtype, Tensor};

use super::CheckpointFiles;

/// Elements that are compared at once.
const BLOCK: usize = 1 << 18;

/// What [`CheckpointFiles::diff`] has found. Both sides in the order of the call.
#[derive(Debug, Default, Clone, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Tensors that only the first has.
    pub only_first: Vec<String>,
    /// Tensors that only the second has.
    pub only_second: Vec<String>,
    /// Tensors of different dtypes or shapes, and what they are in both. Their elements are not compared.
    pub kinds: Vec<KindDifference>,
    /// Tensors with elements that differ.
    pub tensors: Vec<ValueDifference>,
    /// Names of values that are not the same, or are there only once.
    pub values: Vec<String>,
}

/// A tensor that is not of the same kind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindDifference {
    /// The tensor.
    pub name: String,
    /// Its dtype and shape in the first.
    pub first: (Dtype, Vec<usize>),
    /// In the second.
    pub second: (Dtype, Vec<usize>),
}

/// Elements of a tensor that differ.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ValueDifference {
    /// The tensor.
    pub name: String,
    /// How many differ.
    pub count: usize,
    /// Of how many.
    pub numel: usize,
    /// The largest absolute difference; infinite where only one is not a number.
    pub largest: f64,
}

impl Difference {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Difference::default()
    }
}

impl CheckpointFiles {
    /// Compares this checkpoint with another of any format. Elements differ when they are more than `tolerance` apart, or
    /// only one of them is not a number.
    ///
    /// ```
    /// use torchrs::{Tensor, checkpoint::{CheckpointFiles, TensorMap, save_file}};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = |name: &str| folder.path().join(name);
    /// for (name, x) in [("a", 2f32), ("b", 2.5)] {
    ///     let tensors = TensorMap::from([("weight".to_owned(), Tensor::from([1f32, x]))]);
    ///     save_file(&tensors, &Default::default(), path(name))?;
    /// }
    /// let (a, b) = (CheckpointFiles::open(path("a"))?, CheckpointFiles::open(path("b"))?);
    /// let found = &a.diff(&b, 0.0)?.tensors[0];
    /// assert_eq!((found.count, found.largest), (1, 0.5));
    /// assert!(a.diff(&b, 0.5)?.is_empty());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a tolerance that is negative or no number; those of reading.
    pub fn diff(&self, other: &CheckpointFiles, tolerance: f64) -> Result<Difference> {
        if !(tolerance >= 0.0 && tolerance.is_finite()) {
            let what = format!("{tolerance}; must be finite and not negative");
            return Err(Error::argument("CheckpointFiles::diff", "tolerance", what));
        }
        let mut found = Difference::default();
        for (name, entry) in &self.index.tensors {
            let Some(with) = other.index.tensors.get(name) else {
                found.only_first.push(name.clone());
                continue;
            };
            if (entry.dtype, &entry.shape) != (with.dtype, &with.shape) {
                let [first, second] = [entry, with].map(|e| (e.dtype, e.shape.clone()));
                found.kinds.push(KindDifference { name: name.clone(), first, second });
                continue;
            }
            let (a, b) = (self.tensor(name)?, other.tensor(name)?);
            let (count, largest) = compared(&a, &b, tolerance)?;
            if count > 0 {
                let (name, numel) = (name.clone(), a.numel());
                found.tensors.push(ValueDifference { name, count, numel, largest });
            }
        }
        let names = other.index.tensors.keys();
        found.only_second =
            names.filter(|name| !self.index.tensors.contains_key(*name)).cloned().collect();
        let (ours, theirs) = (&self.index.values, &other.index.values);
        let mut names: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
        names.sort();
        names.dedup();
        let differ = |name: &&&String| ours.get(**name) != theirs.get(**name);
        found.values = names.iter().filter(differ).map(|name| (*name).clone()).collect();
        Ok(found)
    }
}

/// How many elements differ, and by how much at most.
fn compared(a: &Tensor, b: &Tensor, tolerance: f64) -> Result<(usize, f64)> {
    let (mut count, mut largest) = (0, 0f64);
    let mut see = |difference: f64| {
        if difference > tolerance {
            count += 1;
            largest = largest.max(difference);
        }
    };
    let flat = |tensor: &Tensor| match tensor.dtype().is_complex() {
        true => tensor.view_as_real().reshape([-1i64]),
        false => tensor.reshape([-1i64]),
    };
    catch(|| {
        no_grad(|| {
            let (a, b) = (flat(a), flat(b));
            for start in (0..a.numel()).step_by(BLOCK) {
                let of = |t: &Tensor| t.narrow(0, start, BLOCK.min(t.numel() - start));
                let (a, b) = (of(&a), of(&b));
                if a.dtype() == Dtype::I64 {
                    let (a, b) = (a.to_vec::<i64>(), b.to_vec::<i64>());
                    a.iter().zip(&b).for_each(|(a, b)| see(a.abs_diff(*b) as f64));
                } else {
                    let (a, b) = (a.to_dtype(Dtype::F64), b.to_dtype(Dtype::F64));
                    let (a, b) = (a.to_vec::<f64>(), b.to_vec::<f64>());
                    a.iter().zip(&b).for_each(|(a, b)| see(apart(*a, *b)));
                }
            }
        });
    })?;
    Ok((count, largest))
}

fn apart(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => 0.0,
        (true, false) | (false, true) => f64::INFINITY,
        _ if a == b => 0.0,
        _ => (a - b).abs(),
    }
}

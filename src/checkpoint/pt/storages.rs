//! The storages that tensors of a file are views of.

use std::collections::HashMap;

use crate::{Dtype, Tensor};

/// PyTorch's storage classes and dtypes, by name.
const TYPES: [(&str, &str, Dtype); 12] = [
    ("DoubleStorage", "float64", Dtype::F64),
    ("FloatStorage", "float32", Dtype::F32),
    ("HalfStorage", "float16", Dtype::F16),
    ("BFloat16Storage", "bfloat16", Dtype::BF16),
    ("LongStorage", "int64", Dtype::I64),
    ("IntStorage", "int32", Dtype::I32),
    ("ShortStorage", "int16", Dtype::I16),
    ("CharStorage", "int8", Dtype::I8),
    ("ByteStorage", "uint8", Dtype::U8),
    ("BoolStorage", "bool", Dtype::Bool),
    ("ComplexFloatStorage", "complex64", Dtype::C64),
    ("ComplexDoubleStorage", "complex128", Dtype::C128),
];

/// The dtype of a storage class.
pub(super) fn storage_dtype(name: &str) -> Option<Dtype> {
    TYPES.iter().find(|(class, ..)| *class == name).map(|t| t.2)
}

/// A dtype by PyTorch's name.
pub(super) fn dtype_named(name: &str) -> Option<Dtype> {
    TYPES.iter().find(|(_, dtype, _)| *dtype == name).map(|t| t.2)
}

/// The storage class and the name of a dtype.
pub(super) fn names_of(dtype: Dtype) -> (&'static str, &'static str) {
    let (class, name, _) = TYPES.iter().find(|t| t.2 == dtype).expect("all dtypes are there");
    (class, name)
}

/// Brings the storage of a key, the first time it is asked for.
pub(super) trait Source {
    /// A storage of `numel` elements, as a tensor of one dimension.
    ///
    /// # Errors
    /// What is wrong.
    fn storage(&mut self, key: &str, dtype: Dtype, numel: usize) -> Result<Tensor, String>;
}

/// Storages by key.
pub(super) struct Storages<'a> {
    source: &'a mut dyn Source,
    known: HashMap<String, Tensor>,
}

impl<'a> Storages<'a> {
    pub(super) fn new(source: &'a mut dyn Source) -> Self {
        Storages { source, known: HashMap::new() }
    }

    pub(super) fn get(&mut self, key: &str, dtype: Dtype, numel: i64) -> Result<Tensor, String> {
        let numel =
            usize::try_from(numel).map_err(|_| format!("storage `{key}` has size {numel}"))?;
        if let Some(known) = self.known.get(key) {
            return match known.dtype() == dtype && known.numel() == numel {
                true => Ok(known.clone()),
                false => Err(format!("storage `{key}` is described in two ways")),
            };
        }
        let storage = self.source.storage(key, dtype, numel)?;
        self.known.insert(key.to_owned(), storage.clone());
        Ok(storage)
    }
}

/// The view of a storage that a tensor is, if it lies inside.
pub(super) fn view(
    storage: &Tensor,
    offset: i64,
    shape: &[i64],
    strides: &[i64],
) -> Result<Tensor, String> {
    let outside = || {
        format!(
            "a tensor of shape {shape:?}, strides {strides:?} at {offset} does not lie in its storage \
             of {} elements",
            storage.numel()
        )
    };
    let sizes: Option<Vec<usize>> = shape.iter().map(|&n| usize::try_from(n).ok()).collect();
    let steps: Option<Vec<usize>> = strides.iter().map(|&n| usize::try_from(n).ok()).collect();
    let (Some(sizes), Some(steps), Ok(offset)) = (sizes, steps, usize::try_from(offset)) else {
        return Err(outside());
    };
    // Without elements the number of them must still be a number.
    let count = sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size.max(1)));
    let bytes = count.and_then(|n| n.checked_mul(storage.dtype().size()));
    if sizes.len() != steps.len()
        || sizes.len() > 64
        || bytes.is_none_or(|n| n > isize::MAX as usize)
    {
        return Err(outside());
    }
    let empty = sizes.contains(&0);
    let last = sizes.iter().zip(&steps).try_fold(offset, |at, (&size, &step)| {
        at.checked_add(size.saturating_sub(1).checked_mul(step)?)
    });
    // A large tensor of few numbers is legal, but more than such a file can mean.
    let fits = empty || last.is_some_and(|last| last < storage.numel());
    if !fits || steps.iter().any(|&step| isize::try_from(step).is_err()) {
        return Err(outside());
    }
    if empty {
        return Ok(Tensor::zeros(sizes, storage.dtype()));
    }
    let steps: Vec<isize> = steps.iter().map(|&step| step as isize).collect();
    Ok(crate::no_grad(|| storage.as_strided(&sizes, &steps, offset)).detach())
}

//! The storages that tensors of a file are views of.

use std::collections::HashMap;

use super::raw::PtRaw;
use crate::checkpoint::raw::{bytes_mut, bytes_within, zeros};
use crate::error::catch;
use crate::tensor::{Dtype, Tensor};

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

/// Storage classes of quantized tensors, and the dtype that their elements have here.
const QUANTIZED: [(&str, Dtype); 3] =
    [("QInt8Storage", Dtype::I8), ("QUInt8Storage", Dtype::U8), ("QInt32Storage", Dtype::I32)];

/// The dtype of a storage class.
pub(super) fn storage_dtype(name: &str) -> Option<Dtype> {
    let plain = TYPES.iter().find(|(class, ..)| *class == name).map(|t| t.2);
    plain.or_else(|| QUANTIZED.iter().find(|(class, _)| *class == name).map(|t| t.1))
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

    /// Whether numbers of several bytes have the highest first. Storages of a dtype come in this machine's order, those of
    /// bytes as they are.
    fn is_big_endian(&self) -> bool {
        false
    }
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

    pub(super) fn is_big_endian(&self) -> bool {
        self.source.is_big_endian()
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
    let Some((sizes, steps, offset)) =
        placed(storage.numel(), storage.dtype().size(), offset, shape, strides)
    else {
        return Err(format!(
            "a tensor of shape {shape:?}, strides {strides:?} at {offset} does not lie in its storage \
             of {} elements",
            storage.numel()
        ));
    };
    if sizes.contains(&0) {
        return zeros(&sizes, storage.dtype());
    }
    catch(|| crate::autograd::no_grad(|| storage.as_strided(&sizes, &steps, offset)).detach())
        .map_err(|e| e.to_string())
}

/// Shape, strides and offset of a view of a storage, if it lies inside.
fn placed(
    numel: usize,
    size: usize,
    offset: i64,
    shape: &[i64],
    strides: &[i64],
) -> Option<(Vec<usize>, Vec<isize>, usize)> {
    let sizes: Vec<usize> =
        shape.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<_>>()?;
    let steps: Vec<usize> =
        strides.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<_>>()?;
    let offset = usize::try_from(offset).ok()?;
    // Without elements the number of them must still be a number.
    let some: Vec<usize> = sizes.iter().map(|&n| n.max(1)).collect();
    bytes_within(&some, size, isize::MAX as u64)?;
    if sizes.len() != steps.len() || sizes.len() > 64 {
        return None;
    }
    let last = sizes.iter().zip(&steps).try_fold(offset, |at, (&size, &step)| {
        at.checked_add(size.saturating_sub(1).checked_mul(step)?)
    });
    // A large tensor of few numbers is legal, but more than such a file can mean.
    let fits = sizes.contains(&0) || last.is_some_and(|last| last < numel);
    let steps = steps.iter().map(|&step| isize::try_from(step).ok()).collect::<Option<_>>()?;
    fits.then_some((sizes, steps, offset))
}

/// The bytes of a storage as elements of a type.
pub(super) fn reinterpret(bytes: &Tensor, dtype: Dtype) -> Result<Tensor, String> {
    if !bytes.numel().is_multiple_of(dtype.size()) {
        return Err(format!("has a storage of {} bytes for {dtype}", bytes.numel()));
    }
    let mut typed = zeros(&[bytes.numel() / dtype.size()], dtype)?;
    let to = bytes_mut(&mut typed);
    // SAFETY: `bytes` is a storage of as many bytes, which nobody writes to; `typed` is new.
    unsafe { to.as_mut_ptr().copy_from_nonoverlapping(bytes.data_ptr(), to.len()) };
    Ok(typed)
}

/// A view of a storage of bytes as elements of `size` bytes of a dtype that is not known here.
pub(super) fn raw_view(
    storage: &Tensor,
    (dtype, size): (&str, usize),
    offset: i64,
    shape: &[i64],
    strides: &[i64],
) -> Result<PtRaw, String> {
    let Some((sizes, steps, offset)) = placed(storage.numel() / size, size, offset, shape, strides)
    else {
        return Err(format!(
            "a {dtype} tensor of shape {shape:?}, strides {strides:?} at {offset} does not lie in its \
             storage of {} bytes",
            storage.numel()
        ));
    };
    // It is copied: an expanded one may be much larger than the file.
    let most = storage.numel().saturating_mul(1024) as u64;
    let Some(length) = bytes_within(&sizes, size, most) else {
        return Err(format!(
            "holds a {dtype} tensor of shape {shape:?}, far larger than its storage"
        ));
    };
    let mut bytes = crate::checkpoint::raw::buffer(length)?;
    let mut index = vec![0; sizes.len()];
    for element in bytes.chunks_exact_mut(size) {
        let steps = index.iter().zip(&steps).map(|(&i, &step): (&usize, _)| i * step as usize);
        let place = (offset + steps.sum::<usize>()) * size;
        // SAFETY: `placed` has made sure that all elements lie inside the storage.
        let from = unsafe { std::slice::from_raw_parts(storage.data_ptr().add(place), size) };
        element.copy_from_slice(from);
        for d in (0..sizes.len()).rev() {
            index[d] += 1;
            if index[d] < sizes[d] {
                break;
            }
            index[d] = 0;
        }
    }
    Ok(PtRaw { dtype: dtype.to_owned(), shape: sizes, bytes })
}

//! Memory on every rank that collectives work on where it is, without a copy. DDP's gradient
//! buckets live in it.

use std::sync::Arc;

use super::collective::{Collective, Kind, Owner, RawBuffer, ReduceOp, Signature};
use super::origin::Origin;
use super::shm::Segment;
use super::{Dtype, ProcessGroup, Work};
use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::tensor::{Layout, Tensor};

/// This rank's part of a piece of memory that all ranks of a group share; from
/// [`ProcessGroup::alloc_shared`]. Zero-filled at first. Only collectives look at the other ranks'
/// parts.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Dtype, distributed::{ReduceOp, SharedBuffer}};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let buffer: SharedBuffer = group.alloc_shared(16)?;
/// let gradient = buffer.tensor(0, &[4], Dtype::F32)?;
/// gradient.fill_(group.rank() as f64 + 1.0);
/// group.all_reduce_raw(buffer.slice(0, 4, Dtype::F32)?, ReduceOp::Avg)?.wait()?;
/// assert_eq!(gradient.to_vec::<f32>(), [1.5; 4]);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SharedBuffer {
    segment: Arc<Segment>,
}

/// A run of elements in a [`SharedBuffer`], which it keeps alive.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Dtype, distributed::{ReduceOp, SharedSlice}};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let buffer = group.alloc_shared(16)?;
/// let all = buffer.tensor(0, &[4], Dtype::F32)?;
/// all.fill_(1.0);
/// let half: SharedSlice = buffer.slice(8, 2, Dtype::F32)?;
/// group.all_reduce_raw(half, ReduceOp::Sum)?.wait()?;
/// assert_eq!(all.to_vec::<f32>(), [1.0, 1.0, 2.0, 2.0]);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SharedSlice {
    buffer: SharedBuffer,
    offset: usize,
    len: usize,
    dtype: Dtype,
}

impl SharedBuffer {
    /// The first byte. What is done through it must not race with a collective on the same range.
    pub fn as_ptr(&self) -> *mut u8 {
        self.segment.own()
    }

    /// Size in bytes.
    pub fn nbytes(&self) -> usize {
        self.segment.nbytes()
    }

    /// `len` elements of `dtype`, from byte `offset` on.
    ///
    /// ```
    /// use torchrs::{Dtype, distributed};
    /// let group = distributed::init_process_group(Default::default())?;
    /// let buffer = group.alloc_shared(16)?;
    /// assert_eq!(buffer.slice(8, 2, Dtype::F32)?.len(), 2);
    /// assert!(buffer.slice(8, 3, Dtype::F32).is_err() && buffer.slice(2, 2, Dtype::F32).is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when the range is not inside the buffer or not aligned to the dtype.
    pub fn slice(&self, offset: usize, len: usize, dtype: Dtype) -> Result<SharedSlice> {
        let end = len.checked_mul(dtype.size()).and_then(|n| n.checked_add(offset));
        if end.is_none_or(|end| end > self.nbytes()) || !offset.is_multiple_of(dtype.size()) {
            return Err(Error::argument(
                "SharedBuffer::slice",
                "offset",
                format!(
                    "{len} elements of {dtype} from byte {offset} on are not inside the buffer of \
                     {} bytes, or not aligned",
                    self.nbytes()
                ),
            ));
        }
        Ok(SharedSlice { buffer: self.clone(), offset, len, dtype })
    }

    /// A tensor over the bytes from `offset` on, row-major. The buffer lives as long as it does.
    ///
    /// ```
    /// use torchrs::{Dtype, distributed};
    /// let group = distributed::init_process_group(Default::default())?;
    /// let buffer = group.alloc_shared(16)?;
    /// buffer.tensor(0, &[2, 2], Dtype::F32)?.fill_(3.0);
    /// assert_eq!(buffer.tensor(8, &[2], Dtype::F32)?.to_vec::<f32>(), [3.0, 3.0]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`slice`](Self::slice).
    pub fn tensor(&self, offset: usize, shape: &[usize], dtype: Dtype) -> Result<Tensor> {
        let len = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).unwrap_or(usize::MAX);
        let slice = self.slice(offset, len, dtype)?;
        let start = self.segment.own_start() + offset;
        let storage = Storage::shared(
            self.segment.memory().clone(),
            start,
            slice.len * dtype.size(),
            Some(Box::new(self.clone())),
        );
        Ok(Tensor::from_parts(storage, Layout::contiguous(shape), dtype))
    }
}

impl SharedSlice {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn raw(&self) -> RawBuffer {
        let ptr = self.buffer.as_ptr().wrapping_add(self.offset);
        RawBuffer { ptr, len: self.len, dtype: self.dtype }
    }
}

impl ProcessGroup {
    /// Memory of `nbytes` bytes on every rank that collectives work on in place. All ranks call it,
    /// with the same size; it is freed when no rank uses it any more.
    ///
    /// ```
    /// use torchrs::{Dtype, distributed};
    /// let group = distributed::init_process_group(Default::default())?;
    /// let buffer = group.alloc_shared(16)?;
    /// assert_eq!(buffer.tensor(0, &[2, 2], Dtype::F32)?.to_vec::<f32>(), [0.0; 4]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] when the sizes differ, [`Error::Os`] when there is no memory or
    /// descriptor left; otherwise as any collective.
    #[track_caller]
    pub fn alloc_shared(&self, nbytes: usize) -> Result<SharedBuffer> {
        let segment = Origin::here().over(|| {
            self.in_turn("alloc_shared", None, |backend, deadline| {
                backend.alloc_shared(nbytes, deadline)
            })
        })?;
        Ok(SharedBuffer { segment })
    }

    /// A tensor in memory from [`alloc_shared`](Self::alloc_shared), filled with zeros: an
    /// all-reduce of it, or of a part of it, needs no copy. Collective.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, distributed::ReduceOp};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let x = group.empty_shared(&[2, 3], Dtype::F32)?;
    /// x.select(0, 1).fill_(group.rank() as f64 + 1.0);
    /// group.all_reduce(&x, ReduceOp::Sum)?;
    /// assert_eq!(x.to_vec::<f32>(), [0.0, 0.0, 0.0, 3.0, 3.0, 3.0]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`alloc_shared`](Self::alloc_shared).
    #[track_caller]
    pub fn empty_shared(&self, shape: &[usize], dtype: Dtype) -> Result<Tensor> {
        let nbytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
        let nbytes = nbytes.ok_or_else(|| {
            let what = format!("{shape:?} has more elements than memory has bytes");
            Error::argument("empty_shared", "shape", what)
        })?;
        self.alloc_shared(nbytes)?.tensor(0, shape, dtype)
    }

    /// Starts an all-reduce, in place, of a range of shared memory: what DDP does with a bucket,
    /// from any thread and without a tensor. The range must be left alone until it has completed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, distributed::ReduceOp};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let buffer = group.alloc_shared(8)?;
    /// let x = buffer.tensor(0, &[2], Dtype::F32)?;
    /// x.fill_(group.rank() as f64 + 1.0);
    /// group.all_reduce_raw(buffer.slice(4, 1, Dtype::F32)?, ReduceOp::Sum)?.wait()?;
    /// assert_eq!(x.to_vec::<f32>(), [group.rank() as f32 + 1.0, 3.0]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Dtype`] when `op` is not defined for the dtype; otherwise as any collective.
    #[track_caller]
    pub fn all_reduce_raw(&self, slice: SharedSlice, op: ReduceOp) -> Result<Work> {
        op.check("all_reduce", slice.dtype)?;
        let of_host = Signature::of_host(Kind::AllReduce, &[slice.len]);
        let signature = Signature { op: Some(op), dtype: slice.dtype, ..of_host };
        let buffer = Some(slice.raw());
        let owner = Some(Owner::Shared(slice.buffer.segment.memory().clone()));
        let (send, recv, gpu) = (buffer, buffer, None);
        let collective = Collective { signature, send, recv, owner, gpu, read: None };
        self.start(collective.signature.kind.name(), collective, move || drop(slice))
    }
}

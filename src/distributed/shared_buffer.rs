//! Memory on every rank that collectives work on where it is, without a copy. DDP's gradient
//! buckets live in it.

use std::sync::Arc;

use super::collective::{Collective, Kind, RawBuffer, ReduceOp, Signature};
use super::shm::Segment;
use super::{Dtype, ProcessGroup, Work};
use crate::Tensor;
use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::tensor::Layout;

/// This rank's part of a piece of memory that all ranks of a group share; from
/// [`ProcessGroup::alloc_shared`]. Zero-filled at first. Only collectives look at the other ranks'
/// parts.
#[derive(Debug, Clone)]
pub struct SharedBuffer {
    segment: Arc<Segment>,
}

/// A run of elements in a [`SharedBuffer`], which it keeps alive.
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
    /// # Errors
    /// [`Error::Mismatch`] when the sizes differ, [`Error::Os`] when there is no memory or
    /// descriptor left; otherwise as any collective.
    pub fn alloc_shared(&self, nbytes: usize) -> Result<SharedBuffer> {
        let allocate = |backend: &dyn super::backend::Backend, deadline: &super::Deadline| {
            backend.alloc_shared(nbytes, deadline)
        };
        Ok(SharedBuffer { segment: self.in_turn("alloc_shared", allocate)? })
    }

    /// A tensor in memory from [`alloc_shared`](Self::alloc_shared), filled with zeros: an
    /// all-reduce of it, or of a part of it, needs no copy. Collective.
    ///
    /// # Errors
    /// As [`alloc_shared`](Self::alloc_shared).
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
    /// # Errors
    /// [`Error::Dtype`] when `op` is not defined for the dtype; otherwise as any collective.
    pub fn all_reduce_raw(&self, slice: SharedSlice, op: ReduceOp) -> Result<Work> {
        op.check("all_reduce", slice.dtype)?;
        let signature = Signature {
            kind: Kind::AllReduce,
            op: Some(op),
            root: None,
            dtype: slice.dtype,
            shape: [slice.len][..].into(),
        };
        let buffer = Some(slice.raw());
        let collective = Collective { signature, send: buffer, recv: buffer };
        self.start(collective, move || drop(slice))
    }
}

//! Other elements in a tensor's place: of another dtype or on another device, for all who hold the tensor
//! (`torch.Tensor.set_data`). By that a parameter stays the same when its module moves.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::initial::Unknown;
use super::{Dtype, Layout, MOVED, Tensor};
use crate::error::{Error, throw};
use crate::storage::Storage;

/// A tensor's dtype, which only [`Tensor::set_data`] changes.
pub(super) struct DtypeCell(AtomicU8);

impl DtypeCell {
    #[inline(always)]
    pub fn new(dtype: Dtype) -> Self {
        DtypeCell(AtomicU8::new(dtype as u8))
    }

    #[inline(always)]
    pub fn get(&self) -> Dtype {
        // SAFETY: nothing but dtypes is stored, and a dtype is a `u8`.
        unsafe { std::mem::transmute::<u8, Dtype>(self.0.load(Relaxed)) }
    }

    fn set(&self, dtype: Dtype) {
        self.0.store(dtype as u8, Relaxed);
    }
}

impl Tensor {
    /// Puts what `convert` makes of this tensor's elements in their place, for all who hold the tensor: of another
    /// dtype, or on another device. Shape and strides stay. `convert` gets a line of elements, and gives a new one.
    ///
    /// Views, [`detach`](Self::detach)ed tensors and what graphs have saved keep the old elements. The old memory is
    /// free as soon as none of them needs it.
    ///
    /// # Safety
    /// *Sole use*: no other thread uses the tensor meanwhile, and no address of its elements is used after this.
    #[track_caller]
    pub(crate) unsafe fn set_data(&self, convert: &dyn Fn(&Tensor) -> Tensor) {
        let layout = self.layout();
        let first = layout.offset;
        let length = layout.extent().saturating_sub(first);
        let line = Layout { offset: first, ..Layout::contiguous(&[length]) };
        let is_all = first == 0 && length * self.dtype().size() == self.storage().nbytes();
        let initial = match self.initial() {
            Ok(_) if !is_all => Err(Unknown::Part),
            known => known,
        };
        let before = self.dtype();
        let old = Tensor::from_parts(self.storage().clone(), line, self.dtype());
        let new = crate::autograd::no_grad(|| convert(&old));
        drop(old);
        assert!(
            new.numel() == length && new.is_contiguous() && new.storage_offset() == 0,
            "a line of {length} elements became {:?} with strides {:?}",
            new.shape(),
            new.strides()
        );
        let (dtype, storage) = (new.dtype(), new.storage().clone());
        drop(new);
        if first != 0 || self.base().is_some() {
            let layout = Layout { offset: 0, ..layout.clone() };
            self.with_meta(|m| m.layout = m.layout.take().or(Some(Box::new(layout))));
            self.0.flags.fetch_or(MOVED, Relaxed);
        }
        // SAFETY: *Sole use*: no other thread uses the handle, and no address from before is used
        // after this.
        unsafe { self.0.storage.replace(storage) };
        self.0.dtype.set(dtype);
        if initial.as_ref().err() != Some(&Unknown::NotFromMeta) {
            self.keep_initial(initial, dtype != before);
        }
    }

    /// Makes this a tensor over another storage, at the same place in it.
    ///
    /// # Safety
    /// *Sole use*, as of [`set_data`](Self::set_data).
    pub(crate) unsafe fn set_storage(&self, storage: &Storage) {
        let end = self.layout().extent() * self.dtype().size();
        assert!(end <= storage.nbytes(), "{end} bytes are more than {}", storage.nbytes());
        // SAFETY: *Sole use*.
        unsafe { self.0.storage.become_other(storage) };
    }

    /// The layout of a tensor that was moved.
    #[cold]
    pub(super) fn moved_layout(&self) -> &Layout {
        let layout: Option<*const Layout> =
            self.peek_meta(|m| Some(std::ptr::from_ref(&**m.layout.as_ref()?)));
        match layout {
            // SAFETY: set once, never changed, and there as long as the tensor is.
            Some(layout) => unsafe { &*layout },
            None => throw(Error::Other("a tensor that was moved has no layout".to_owned())),
        }
    }
}

//! Memory that comes and goes under the same tensors: whoever asks for the address of a storage on demand has it
//! brought, and the one who brings it takes it away again. A parameter that is sharded over ranks is whole by it for
//! as long as ops need it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::{Owner, Storage, grace};
use crate::error::{Error, throw};
use crate::storage::Device;

/// Who brings memory.
pub(crate) trait Brings: Send + Sync {
    /// Gives memory to `storage` by [`Storage::lend`], and perhaps to others. Called on the thread that asked for the
    /// address, maybe within an op.
    ///
    /// # Panics
    /// Throws where that is impossible.
    fn bring(&self, storage: &Storage);

    /// Counts in the versions of the storages what has become of their bytes while they were away.
    fn count_changes(&self) {}
}

/// The owner of a storage on demand.
pub(super) struct OnDemand {
    brings: Arc<dyn Brings>,
    /// While it is there: in which other storage the bytes are.
    memory: Option<Storage>,
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemand").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl OnDemand {
    pub(super) fn memory(&self) -> Option<&Storage> {
        self.memory.as_ref()
    }
}

impl Storage {
    /// `nbytes` bytes on a device that `brings` has to bring.
    pub(crate) fn on_demand(nbytes: usize, device: Device, brings: Arc<dyn Brings>) -> Storage {
        grace::watch();
        let owner = Owner::OnDemand(Box::new(OnDemand { brings, memory: None }));
        Storage::new(std::ptr::null_mut(), nbytes, device, owner)
    }

    /// Gives a storage on demand the bytes of `memory` from `start` on.
    ///
    /// # Panics
    /// If the range is not inside `memory`, or on another device, or this storage is of another kind.
    pub(crate) fn lend(&self, memory: &Storage, start: usize) {
        let inside = start.checked_add(self.nbytes()).is_some_and(|end| end <= memory.nbytes());
        assert!(inside && memory.device() == self.device(), "memory of another size or device");
        let mut owner = self.0.owner.lock();
        let Owner::OnDemand(own) = &mut *owner else { panic!("not a storage on demand") };
        own.memory = Some(memory.clone());
        self.0.ptr.store(memory.address().wrapping_add(start), Release);
    }

    /// Takes the bytes of a storage on demand away, if it has any; they go once no op uses them.
    pub(crate) fn take_back(&self) {
        let mut owner = self.0.owner.lock();
        let Owner::OnDemand(own) = &mut *owner else { return };
        self.0.ptr.store(std::ptr::null_mut(), Release);
        let memory = own.memory.take();
        drop(owner);
        if let Some(memory) = memory {
            grace::retire(memory);
        }
    }

    /// Makes [`version`](Self::version) that of the bytes that would come, if they are away. What is saved for backward
    /// is compared by it.
    #[inline]
    pub(crate) fn count_changes(&self) {
        if self.0.ptr.load(Acquire).is_null() {
            self.count_changes_while_away();
        }
    }

    #[cold]
    fn count_changes_while_away(&self) {
        let brings = match &*self.0.owner.lock() {
            Owner::OnDemand(own) => own.brings.clone(),
            _ => return,
        };
        brings.count_changes();
    }

    /// The address of a storage that has none at the moment.
    #[cold]
    pub(super) fn bring(&self) -> *mut u8 {
        let brings = match &*self.0.owner.lock() {
            Owner::OnDemand(own) => own.brings.clone(),
            // Of no bytes.
            _ => return self.0.ptr.load(Acquire),
        };
        brings.bring(self);
        let address = self.0.ptr.load(Acquire);
        if address.is_null() {
            throw(Error::Other("a storage on demand was asked for, and nothing came".to_owned()));
        }
        address
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::tensor::{Dtype, Layout, Tensor};

    #[derive(Default)]
    struct Ones {
        count: AtomicUsize,
    }

    impl Brings for Ones {
        fn bring(&self, storage: &Storage) {
            self.count.fetch_add(1, Relaxed);
            storage.lend(Tensor::ones([6], Dtype::F32).storage(), 8);
        }
    }

    fn tensor() -> (Tensor, Arc<Ones>) {
        let ones = Arc::new(Ones::default());
        let storage = Storage::on_demand(16, Device::Cpu, ones.clone());
        (Tensor::from_parts(storage, Layout::contiguous(&[4]), Dtype::F32), ones)
    }

    #[test]
    fn memory_comes_when_an_op_needs_it_and_again_when_it_was_taken() {
        let (x, ones) = tensor();
        assert_eq!((x.shape(), x.numel(), ones.count.load(Relaxed)), (&[4][..], 4, 0));
        let view = x.narrow(0, 1, 2);
        assert_eq!(ones.count.load(Relaxed), 0, "a view needs no bytes");
        assert_eq!((view.sum().item(), x.sum().item()), (2.0, 4.0));
        assert_eq!(ones.count.load(Relaxed), 1);
        x.storage().take_back();
        x.storage().take_back();
        assert_eq!((x.version(), view.sum().item(), ones.count.load(Relaxed)), (0, 2.0, 2));
    }

    #[test]
    fn backward_brings_what_was_saved() {
        let (w, ones) = tensor();
        let w = w.requires_grad_(true);
        let x = Tensor::from([1f32, 2., 3., 4.]).requires_grad_(true);
        let y = (&x * &w).sum();
        w.storage().take_back();
        y.backward();
        assert_eq!(ones.count.load(Relaxed), 2);
        assert_eq!(w.grad().unwrap().to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(x.grad().unwrap().to_vec::<f32>(), [1.0; 4]);
    }

    #[test]
    fn nobody_moves_it_into_shared_memory() {
        let (x, _ones) = tensor();
        assert!(x.storage().share_memory().unwrap_err().to_string().contains("comes and goes"));
    }
}

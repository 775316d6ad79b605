//! Tensors between processes: what travels is the descriptor of the memory and the layout in it,
//! never the elements. As in PyTorch, sending a tensor moves its storage into shared memory first,
//! under all tensors that use it, and both processes then see each other's writes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::device_tensor::{DeviceWire, export_storage, import_storage};
use super::handles::{FileId, de_error, export_shared, file_id, import_shared, ser_error};
use super::weak_map::WeakMap;
use crate::error::{Error, Result};
use crate::storage::{Storage, WeakStorage};
use crate::tensor::{Device, Dtype, Layout, Shape, Strides, Tensor};
use std::os::fd::AsFd;

/// Storages by memory, first byte and length, so that a tensor which arrives twice, or comes back,
/// shares one storage with its earlier self.
static STORAGES: WeakMap<(FileId, usize, usize), WeakStorage> = WeakMap::new();

impl Tensor {
    /// Moves the bytes into memory that other processes can map, in place: all tensors over the
    /// same storage stay tensors over the same storage (`torch.Tensor.share_memory_`). Returns the
    /// tensor itself. Nothing happens to a tensor that is shared already. Other threads must not use
    /// the storage meanwhile.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, multiprocessing};
    /// let total = Tensor::zeros([2], Dtype::F32);
    /// total.share_memory_()?;
    /// fn set(rank: usize, total: Tensor) {
    ///     total.select(0, rank as i64).fill_(1.0);
    /// }
    /// multiprocessing::spawn(set, total.clone(), 2)?;
    /// assert_eq!(total.to_vec::<f32>(), [1.0, 1.0]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when there is no memory or descriptor left.
    pub fn share_memory_(&self) -> Result<Tensor> {
        self.storage().share_memory()?;
        Ok(self.clone())
    }

    /// True when the bytes are in memory that other processes can map (`torch.Tensor.is_shared`): those of a GPU
    /// always are.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f32, 2.]);
    /// assert!(!x.is_shared());
    /// let view = x.select(0, 1);
    /// x.share_memory_()?;
    /// assert!(x.is_shared() && view.is_shared());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn is_shared(&self) -> bool {
        self.device().is_cuda() || self.storage().shared_range().is_some()
    }
}

/// Where a storage on the wire is.
#[derive(Serialize, Deserialize)]
enum Place {
    Host {
        /// The memory's index among the message's handles.
        memory: u32,
        /// The storage's first byte in the memory.
        start: usize,
    },
    Device(DeviceWire),
}

/// A tensor on the wire.
#[derive(Serialize, Deserialize)]
struct Wire {
    place: Place,
    /// The storage's length in bytes.
    nbytes: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset: usize,
    requires_grad: bool,
}

fn export(tensor: &Tensor) -> Result<Wire> {
    if tensor.requires_grad() && !tensor.is_leaf() {
        return Err(Error::Autograd(
            "a tensor with history cannot be sent to another process: gradients do not cross \
             processes; send `tensor.detach()`"
                .to_owned(),
        ));
    }
    let storage = tensor.storage();
    if let Device::Cuda(index) = tensor.device() {
        return Ok(wire(tensor, Place::Device(export_storage(storage, index)?)));
    }
    if storage.is_lent() {
        // These bytes go back to their lender when the last tensor here is dropped, which would
        // pull them from under the receiver.
        return place(tensor, &storage.shared_copy()?);
    }
    storage.share_memory()?;
    place(tensor, storage)
}

/// The wire form of a tensor whose bytes are those of `storage`.
fn place(tensor: &Tensor, storage: &Storage) -> Result<Wire> {
    let (memory, start) = storage.shared_range().ok_or_else(|| {
        Error::Other("a tensor that is to be sent is not in shared memory".to_owned())
    })?;
    STORAGES.get_or_insert((file_id(memory.as_fd())?, start, storage.nbytes()), storage.clone());
    Ok(wire(tensor, Place::Host { memory: export_shared(&memory)?, start }))
}

/// The wire form of a tensor whose storage is there.
fn wire(tensor: &Tensor, place: Place) -> Wire {
    let layout = tensor.layout();
    Wire {
        place,
        nbytes: tensor.storage().nbytes(),
        dtype: tensor.dtype(),
        shape: layout.shape.to_vec(),
        strides: layout.strides.to_vec(),
        offset: layout.offset,
        requires_grad: tensor.requires_grad(),
    }
}

fn import(wire: Wire) -> Result<Tensor> {
    let (nbytes, size) = (wire.nbytes, wire.dtype.size());
    let outside = |there: usize| {
        Error::Other(format!(
            "a received tensor ({} of shape {:?}, strides {:?}, offset {}) does not lie within its \
             storage of {nbytes} bytes in {there} bytes of shared memory",
            wire.dtype, wire.shape, wire.strides, wire.offset,
        ))
    };
    let fits = fits(&wire, nbytes / size);
    let storage = match wire.place {
        Place::Host { memory, start } => {
            let memory = import_shared(memory)?;
            let inside = start.checked_add(nbytes).is_some_and(|end| end <= memory.len());
            if !inside || !start.is_multiple_of(size) || !fits {
                return Err(outside(memory.len()));
            }
            let key = (file_id(memory.as_fd())?, start, nbytes);
            match STORAGES.get(&key) {
                Some(storage) => storage,
                None => STORAGES.get_or_insert(key, Storage::shared(memory, start, nbytes, None)),
            }
        }
        Place::Device(place) => {
            let storage = import_storage(place)?;
            if storage.nbytes() < nbytes || !fits {
                return Err(outside(storage.nbytes()));
            }
            storage
        }
    };
    let layout = Layout {
        shape: Shape::from_vec(wire.shape),
        strides: Strides::from_vec(wire.strides),
        offset: wire.offset,
    };
    let tensor = Tensor::from_parts(storage, layout, wire.dtype);
    if wire.requires_grad {
        tensor.requires_grad_(true);
    }
    Ok(tensor)
}

/// True when every index names one of `elements` elements.
fn fits(wire: &Wire, elements: usize) -> bool {
    if wire.shape.len() != wire.strides.len()
        || (wire.requires_grad && !wire.dtype.is_differentiable())
    {
        return false;
    }
    if wire.shape.contains(&0) {
        return wire.offset <= elements;
    }
    // One past the last element, in arithmetic that notices when it is too large.
    let mut end = wire.offset.checked_add(1);
    let mut count = Some(1usize);
    for (&n, &stride) in wire.shape.iter().zip(&wire.strides) {
        let span = usize::try_from(stride).ok().and_then(|stride| stride.checked_mul(n - 1));
        end = end.zip(span).and_then(|(end, span)| end.checked_add(span));
        count = count.and_then(|count| count.checked_mul(n));
    }
    count.is_some() && end.is_some_and(|end| end <= elements)
}

/// By handle, into a message to another process only; the storage moves into shared memory.
impl Serialize for Tensor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        export(self).map_err(ser_error)?.serialize(serializer)
    }
}

/// From a message only; the tensor shares its bytes with the sender.
impl<'de> Deserialize<'de> for Tensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        import(Wire::deserialize(deserializer)?).map_err(de_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::multiprocessing::channel;
    use crate::storage::SharedMemory;
    use std::sync::Arc;

    #[test]
    fn lent_memory_is_copied_because_it_goes_back() {
        let memory = SharedMemory::create("slot", 4096).unwrap();
        let guard = Arc::new(());
        let storage = Storage::shared(memory, 64, 8, Some(Box::new(guard.clone())));
        let tensor = Tensor::from_parts(storage, Layout::contiguous(&[2]), Dtype::F32);
        tensor.copy_(&Tensor::from_slice(&[1.0f32, 2.0], [2]));
        let (sender, receiver) = channel::<Tensor>().unwrap();
        sender.send(&tensor).unwrap();
        let back = receiver.recv().unwrap();
        tensor.copy_(&Tensor::from_slice(&[8.0f32, 9.0], [2]));
        drop(tensor);
        assert_eq!(Arc::strong_count(&guard), 1, "the slot was kept");
        assert_eq!(back.to_vec::<f32>(), [1.0, 2.0]);
    }

    fn wire(shape: &[usize], strides: &[isize], offset: usize) -> Wire {
        Wire {
            place: Place::Host { memory: 0, start: 0 },
            nbytes: 24,
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            offset,
            requires_grad: false,
        }
    }

    #[test]
    fn only_layouts_inside_the_storage_are_taken() {
        assert!(fits(&wire(&[2, 3], &[3, 1], 0), 6));
        assert!(fits(&wire(&[], &[], 5), 6));
        assert!(fits(&wire(&[0, 9], &[9, 1], 6), 6));
        assert!(fits(&wire(&[1000], &[0], 5), 6));
        assert!(!fits(&wire(&[2, 3], &[3, 1], 1), 6));
        assert!(!fits(&wire(&[], &[], 6), 6));
        assert!(!fits(&wire(&[2], &[-1], 3), 6));
        assert!(!fits(&wire(&[2], &[], 0), 6));
        assert!(!fits(&wire(&[0], &[1], 7), 6));
        assert!(!fits(&wire(&[usize::MAX, 2], &[isize::MAX, 1], 0), 6));
        assert!(!fits(&wire(&[usize::MAX, usize::MAX], &[0, 0], 0), 6));
        let integers = Wire { dtype: Dtype::I64, requires_grad: true, ..wire(&[1], &[1], 0) };
        assert!(!fits(&integers, 3));
    }
}

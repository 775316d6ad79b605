//! Memory of another owner, described: where it is, what is in it, who keeps it.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::tensor::{Device, Dtype, Element, Layout, Shape, Strides, Tensor};

const OP: &str = "Foreign::new";

/// Memory that another library or value owns, as elements of a tensor: [`Tensor::from_foreign`] makes one of it.
///
/// The owner is dropped when no tensor uses the memory any more, once, on whatever thread that is. On a GPU that is
/// after the work which uses the memory is done. An owner that never became a tensor is dropped with this.
///
/// ```
/// use torchrs::{Tensor, exchange::Foreign};
/// let x = Tensor::from_foreign(Foreign::of_vec(vec![1i64, 2, 3], [3])?);
/// x.add_(10);
/// assert_eq!(x.to_vec::<i64>(), [11, 12, 13]);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct Foreign {
    data: *mut u8,
    layout: Layout,
    dtype: Dtype,
    device: Device,
    read_only: bool,
    owner: Box<dyn Send>,
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Foreign { data, layout, dtype, device, read_only, .. } = self;
        let Layout { shape, strides, .. } = layout;
        write!(f, "Foreign({dtype} {shape:?}, strides {strides:?}, at {data:?} on {device}")?;
        f.write_str(if *read_only { ", read-only)" } else { ")" })
    }
}

impl Foreign {
    /// Elements at `data` with these sizes and distances, the latter counted in elements. `owner` keeps them.
    ///
    /// ```
    /// use torchrs::{Device, Dtype, Tensor, exchange::Foreign};
    /// let owner: Box<[f32; 6]> = Box::new([0., 1., 2., 3., 4., 5.]);
    /// let data = owner.as_ptr() as *mut u8;
    /// // SAFETY: the box keeps six f32, which it lets nobody else reach.
    /// let columns = unsafe { Foreign::new(data, &[3, 2], &[1, 3], Dtype::F32, Device::Cpu, owner) }?;
    /// assert_eq!(Tensor::from_foreign(columns).to_vec::<f32>(), [0., 3., 1., 4., 2., 5.]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for distances below 0, of which a tensor has none, and for addresses that are null or not
    /// aligned; [`Error::Shape`] for as many distances as there are no sizes; [`Error::Device`] where there is no
    /// such device. The owner is dropped then.
    ///
    /// # Safety
    /// - *Alive*: until `owner` is dropped, all elements that sizes and distances name are there, in one allocation
    ///   on that device. On a GPU they belong to its primary context.
    /// - *Initialised*: they hold values of `dtype`; of bool 0 or 1, now and as long as the tensor lives.
    /// - *Writable*: they may be written, unless [`read_only`](Self::read_only) follows.
    /// - *Turns*: whoever else reads or writes them takes turns with those who use the tensor, as threads that share
    ///   a tensor do; for a GPU, streams do.
    pub unsafe fn new(
        data: *mut u8,
        shape: &[usize],
        strides: &[isize],
        dtype: Dtype,
        device: Device,
        owner: Box<dyn Send>,
    ) -> Result<Foreign> {
        device.check()?;
        if device.is_meta() {
            return Err(Error::argument(OP, "device", "meta has no memory; give cpu or cuda"));
        }
        let layout = layout(shape, strides)?;
        let extent = layout.checked_extent().and_then(|n| n.checked_mul(dtype.size()));
        let Some(extent) = extent.filter(|&n| isize::try_from(n).is_ok()) else {
            let message = format!("shape {shape:?} with strides {strides:?} is beyond all memory");
            return Err(Error::shape(OP, message));
        };
        // A complex number lies as its parts do.
        let alignment = dtype.to_real().size();
        if extent > 0 && data.is_null() {
            return Err(Error::argument(OP, "data", format!("is null, for shape {shape:?}")));
        }
        if extent > 0 && !data.addr().is_multiple_of(alignment) {
            let message = format!(
                "{data:?} is no multiple of {alignment}, as elements of {dtype} are; copy them"
            );
            return Err(Error::argument(OP, "data", message));
        }
        Ok(Foreign { data, layout, dtype, device, read_only: false, owner })
    }

    /// The same memory, which nobody may write: in-place ops refuse the tensor, and its views.
    #[must_use]
    pub fn read_only(mut self) -> Foreign {
        self.read_only = true;
        self
    }

    /// The elements of a vector, in row-major order.
    ///
    /// # Errors
    /// [`Error::Shape`] when `shape` has another number of elements.
    pub fn of_vec<T: Element>(mut data: Vec<T>, shape: impl AsRef<[usize]>) -> Result<Foreign> {
        let (at, len) = (data.as_mut_ptr(), data.len());
        // SAFETY: the vector keeps `len` initialised elements, and nobody else has it.
        unsafe { Self::dense::<T>(at, len, shape.as_ref(), Box::new(data)) }
    }

    /// The elements of a shared slice, in row-major order: read-only.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use torchrs::{Tensor, exchange::Foreign};
    /// let table: Arc<[i64]> = (0..6).collect();
    /// let x = Tensor::from_foreign(Foreign::of_arc(table.clone(), [2, 3])?);
    /// assert_eq!(Arc::strong_count(&table), 2);
    /// drop(x);
    /// assert_eq!(Arc::strong_count(&table), 1);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`of_vec`](Self::of_vec).
    pub fn of_arc<T: Element>(data: Arc<[T]>, shape: impl AsRef<[usize]>) -> Result<Foreign> {
        let (at, len) = (data.as_ptr().cast_mut(), data.len());
        // SAFETY: the slice has `len` initialised elements; they are only read.
        unsafe { Self::dense::<T>(at, len, shape.as_ref(), Box::new(data)) }.map(Self::read_only)
    }

    /// Elements that are always there, in row-major order: read-only.
    ///
    /// # Errors
    /// As [`of_vec`](Self::of_vec).
    pub fn of_static<T: Element>(
        data: &'static [T],
        shape: impl AsRef<[usize]>,
    ) -> Result<Foreign> {
        let (at, len) = (data.as_ptr().cast_mut(), data.len());
        // SAFETY: they are always there, initialised; they are only read.
        unsafe { Self::dense::<T>(at, len, shape.as_ref(), Box::new(())) }.map(Self::read_only)
    }

    /// # Safety
    /// As of [`new`](Self::new), for `len` elements.
    unsafe fn dense<T: Element>(
        data: *mut T,
        len: usize,
        shape: &[usize],
        owner: Box<dyn Send>,
    ) -> Result<Foreign> {
        if shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size)) != Some(len) {
            let message = format!("{len} elements do not fill shape {shape:?}");
            return Err(Error::shape("Foreign", message));
        }
        let strides = Layout::contiguous(shape).strides;
        // SAFETY: the elements of a dense layout are those `len`.
        unsafe { Self::new(data.cast(), shape, &strides, T::DTYPE, Device::Cpu, owner) }
    }
}

/// The layout of elements that somebody else has laid out.
fn layout(shape: &[usize], strides: &[isize]) -> Result<Layout> {
    if shape.len() != strides.len() {
        let message = format!(
            "shape {shape:?} has {} dimensions and strides {strides:?} are {}",
            shape.len(),
            strides.len()
        );
        return Err(Error::shape(OP, message));
    }
    if shape.contains(&0) {
        return Ok(Layout::contiguous(shape));
    }
    let dense = Layout::contiguous(shape).strides;
    let mut own = Strides::new();
    for (d, (&size, &stride)) in shape.iter().zip(strides).enumerate() {
        // Of one element the distance to the next has no meaning.
        own.push(if size == 1 { dense[d] } else { stride });
    }
    if let Some(stride) = own.iter().find(|stride| **stride < 0) {
        let message = format!(
            "{strides:?} has {stride}, and a tensor's are never negative; copy the elements"
        );
        return Err(Error::argument(OP, "strides", message));
    }
    Ok(Layout { shape: Shape::from_slice(shape), strides: own, offset: 0 })
}

impl Tensor {
    /// A tensor over memory that another library or value owns (`torch.from_blob`).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use torchrs::{Tensor, catch, exchange::Foreign};
    /// let x = Tensor::from_foreign(Foreign::of_arc(Arc::from([1f32, 2.]), [2])?);
    /// assert_eq!((&x * 2.0).to_vec::<f32>(), [2.0, 4.0]);
    /// assert!(catch(|| x.mul_(2.0)).unwrap_err().to_string().contains("read-only"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn from_foreign(foreign: Foreign) -> Tensor {
        let Foreign { data, layout, dtype, device, read_only, owner } = foreign;
        let nbytes = layout.extent() * dtype.size();
        // SAFETY: the promises of whoever made `foreign`; the layout's extent is what they are about.
        let storage = unsafe { Storage::foreign(data, nbytes, device, read_only, owner) };
        Tensor::from_parts(storage, layout, dtype)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;
    use crate::autograd::no_grad;
    use crate::error::catch;

    struct Counts(Arc<AtomicUsize>);

    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn of_four(shape: &[usize], strides: &[isize], drops: &Arc<AtomicUsize>) -> Result<Foreign> {
        let mut numbers = vec![1f32, 2., 3., 4.];
        let (data, owner) =
            (numbers.as_mut_ptr().cast(), Box::new((numbers, Counts(drops.clone()))));
        // SAFETY: the vector keeps four elements.
        unsafe { Foreign::new(data, shape, strides, Dtype::F32, Device::Cpu, owner) }
    }

    #[test]
    fn the_owner_is_dropped_once_after_the_last_view() {
        let drops = Arc::new(AtomicUsize::new(0));
        let x = Tensor::from_foreign(of_four(&[2, 2], &[2, 1], &drops).unwrap());
        let row = x.select(0, 1);
        drop(x);
        assert_eq!((drops.load(SeqCst), row.to_vec::<f32>()), (0, vec![3.0, 4.0]));
        std::thread::spawn(move || drop(row)).join().unwrap();
        assert_eq!(drops.load(SeqCst), 1);
        drop(of_four(&[2, 2], &[2, 1], &drops).unwrap());
        assert_eq!(drops.load(SeqCst), 2);
    }

    #[test]
    fn what_no_tensor_has_is_refused_and_the_owner_let_go() {
        let drops = Arc::new(AtomicUsize::new(0));
        let wrong = |shape: &[usize], strides: &[isize]| {
            of_four(shape, strides, &drops).unwrap_err().to_string()
        };
        assert!(wrong(&[4], &[-1]).contains("-1"));
        assert!(wrong(&[4], &[1, 1]).contains("dimensions"));
        assert!(wrong(&[usize::MAX, 2], &[2, 1]).contains("beyond all memory"));
        assert!(wrong(&[2], &[isize::MAX]).contains("beyond all memory"));
        assert_eq!(drops.load(SeqCst), 4);
        let (bytes, one) = ([0u8; 16], Box::new(()));
        let odd = bytes.as_ptr().wrapping_add(usize::from(bytes.as_ptr().addr() % 2 == 0));
        // SAFETY: nothing is read.
        let error = unsafe {
            Foreign::new(odd.cast_mut(), &[2], &[1], Dtype::F32, Device::Cpu, one).unwrap_err()
        };
        assert!(error.to_string().contains("multiple of 4"), "{error}");
        // SAFETY: nothing is read.
        let error = unsafe {
            let null = std::ptr::null_mut();
            Foreign::new(null, &[2], &[1], Dtype::F32, Device::Cpu, Box::new(())).unwrap_err()
        };
        assert!(error.to_string().contains("is null"), "{error}");
        assert!(Foreign::of_vec(vec![1f32], [2]).is_err());
    }

    #[test]
    fn without_elements_the_address_has_no_meaning() {
        let null = std::ptr::null_mut();
        // SAFETY: there are no elements.
        let empty = unsafe {
            Foreign::new(null, &[0, 3], &[-7, 0], Dtype::F32, Device::Cpu, Box::new(())).unwrap()
        };
        let x = Tensor::from_foreign(empty);
        assert!(x.is_contiguous() && (&x + 1.0).shape() == [0, 3] && x.to_vec::<f32>().is_empty());
        x.fill_(1.0);
    }

    #[test]
    fn memory_of_others_is_never_reused_in_place() {
        let drops = Arc::new(AtomicUsize::new(0));
        let grad = Tensor::from_foreign(of_four(&[4], &[1], &drops).unwrap());
        let at = grad.data_ptr();
        let x = Tensor::ones([4], Dtype::F32).requires_grad_(true);
        let y = &x * 1.0;
        crate::autograd::backward(&[&y], &[Some(&grad)], crate::autograd::GraphMode::Free);
        drop(grad);
        assert_ne!(x.grad().unwrap().data_ptr(), at);
    }

    #[test]
    fn read_only_memory_is_written_by_nobody() {
        let table: Arc<[f32]> = Arc::from([1f32, 2., 3., 4.]);
        let x = Tensor::from_foreign(Foreign::of_arc(table.clone(), [2, 2]).unwrap());
        let ones = Tensor::ones([2, 2], Dtype::F32);
        let view = x.t().select(0, 1);
        type Write<'a> = (&'a str, Box<dyn Fn() + 'a>);
        let writes: [Write; 12] = [
            ("fill_", Box::new(|| _ = x.fill_(0.0))),
            ("zero_", Box::new(|| _ = x.zero_())),
            ("add_", Box::new(|| _ = x.add_(&ones))),
            ("copy_", Box::new(|| _ = x.copy_(&ones))),
            ("mul_ of a view", Box::new(|| _ = view.mul_(2.0))),
            ("exp_", Box::new(|| _ = x.exp_())),
            ("uniform_", Box::new(|| _ = x.uniform_(0.0, 1.0))),
            ("normal_", Box::new(|| _ = x.normal_(0.0, 1.0))),
            ("index_fill_", Box::new(|| _ = x.masked_fill_(&x.gt(2.0), 0.0))),
            ("detached", Box::new(|| no_grad(|| _ = x.detach().sub_(1.0)))),
            ("index_add_", Box::new(|| _ = x.index_add_(0, &Tensor::from([0i64, 1]), &ones))),
            // SAFETY: it is refused.
            ("as_mut_slice", Box::new(|| _ = unsafe { x.as_mut_slice::<f32>() })),
        ];
        for (what, write) in &writes {
            let error = catch(write).err().unwrap_or_else(|| panic!("{what} is not refused"));
            assert!(error.to_string().contains("read-only"), "{what}: {error}");
        }
        assert_eq!(&table[..], [1.0, 2.0, 3.0, 4.0]);
        assert!(x.storage().share_memory().unwrap_err().to_string().contains("share a clone"));
    }
}

//! A consumer and a producer as another library would be.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use super::*;
use crate::autograd::{forward_ad, no_grad};
use crate::cuda::{Priority, Stream, StreamGuard, simulated_test};
use crate::exchange::Foreign;
use crate::tensor::{Complex, Device, Dtype, Tensor};

/// A producer's array: numbers, and how often it was told that they are free.
struct Array {
    numbers: Vec<f32>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    deleted: &'static AtomicUsize,
}

fn counter() -> &'static AtomicUsize {
    Box::leak(Box::new(AtomicUsize::new(0)))
}

unsafe extern "C" fn delete_array(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: what `array` made.
    unsafe {
        let array = Box::from_raw((*managed).manager_ctx.cast::<Array>());
        array.deleted.fetch_add(1, SeqCst);
        drop(Box::from_raw(managed));
    }
}

unsafe extern "C" fn delete_old_array(managed: *mut DLManagedTensor) {
    // SAFETY: what `old_array` made.
    unsafe {
        let array = Box::from_raw((*managed).manager_ctx.cast::<Array>());
        array.deleted.fetch_add(1, SeqCst);
        drop(Box::from_raw(managed));
    }
}

/// Six numbers, and what is said of them.
fn described(
    shape: &[i64],
    strides: Option<&[i64]>,
    byte_offset: u64,
    deleted: &'static AtomicUsize,
) -> (DLTensor, *mut c_void) {
    let array = Box::leak(Box::new(Array {
        numbers: (0..6u8).map(f32::from).collect(),
        shape: shape.to_vec(),
        strides: strides.unwrap_or_default().to_vec(),
        deleted,
    }));
    let dl_tensor = DLTensor {
        data: array.numbers.as_mut_ptr().cast(),
        device: DLDevice { device_type: 1, device_id: 0 },
        ndim: shape.len() as i32,
        dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
        shape: array.shape.as_mut_ptr(),
        strides: strides.map_or(ptr::null_mut(), |_| array.strides.as_mut_ptr()),
        byte_offset,
    };
    (dl_tensor, ptr::from_mut(array).cast())
}

fn array(
    shape: &[i64],
    strides: Option<&[i64]>,
    byte_offset: u64,
    deleted: &'static AtomicUsize,
) -> *mut DLManagedTensorVersioned {
    let (dl_tensor, manager_ctx) = described(shape, strides, byte_offset, deleted);
    Box::into_raw(Box::new(DLManagedTensorVersioned {
        version: DLPackVersion { major: 1, minor: 0 },
        manager_ctx,
        deleter: Some(delete_array),
        flags: 0,
        dl_tensor,
    }))
}

fn taken(managed: *mut DLManagedTensorVersioned) -> crate::error::Result<Tensor> {
    // SAFETY: of this file's producer.
    unsafe { DlTensor::from_raw(managed) }.and_then(Tensor::from_dlpack)
}

fn lent(x: &Tensor) -> DlTensor {
    x.to_dlpack(ConsumerStream::Default).unwrap()
}

/// What a consumer of C reads out of the structure.
fn read(x: &DlTensor) -> (usize, Vec<i64>, Vec<i64>, DLDataType, u64) {
    let seen = x.dl_tensor();
    let n = seen.ndim as usize;
    // SAFETY: so many numbers each.
    let [shape, strides] =
        [seen.shape, seen.strides].map(|at| unsafe { std::slice::from_raw_parts(at, n) }.to_vec());
    (seen.data.addr(), shape, strides, seen.dtype, seen.byte_offset)
}

#[test]
fn a_consumer_sees_address_sizes_and_distances() {
    let x = Tensor::arange(0, 24, 1, Dtype::F32).view([2, 3, 4]);
    let view = x.transpose(0, 2).narrow(0, 1, 2);
    let (address, shape, strides, dtype, offset) = read(&lent(&view));
    assert_eq!(address, x.data_ptr().addr() + 4);
    assert_eq!((&shape[..], &strides[..], offset), (&[2i64, 3, 2][..], &[1i64, 4, 12][..], 0));
    assert_eq!(dtype, DLDataType { code: 2, bits: 32, lanes: 1 });
    // One number, none, and a row that is there several times.
    let (address, shape, ..) = read(&lent(&x.select(0, 1).select(0, 2).select(0, 3)));
    assert_eq!((address, shape.len()), (x.data_ptr().addr() + 4 * 23, 0));
    let (address, shape, strides, ..) = read(&lent(&x.narrow(1, 3, 0)));
    assert_eq!((address, &shape[..], strides.len()), (0, &[2i64, 0, 4][..], 3));
    let row = Tensor::from([1f32, 2.]).expand(&[3, 2]);
    assert_eq!(read(&lent(&row)).2, [0, 1]);
}

#[test]
fn every_dtype_goes_there_and_back() {
    // `dlpack.h`: kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLComplex 5, kDLBool 6.
    let names = [
        (2, 64),
        (2, 32),
        (2, 16),
        (4, 16),
        (0, 64),
        (0, 32),
        (0, 16),
        (0, 8),
        (1, 8),
        (6, 8),
        (5, 64),
        (5, 128),
    ];
    for (dtype, (code, bits)) in Dtype::ALL.into_iter().zip(names) {
        let x = Tensor::from([[1f32, 0., 1.], [0., 1., 1.]]).to_dtype(dtype).t();
        let there = lent(&x);
        assert_eq!(read(&there).3, DLDataType { code, bits, lanes: 1 }, "{dtype}");
        let back = Tensor::from_dlpack(there).unwrap();
        assert_eq!((back.dtype(), back.strides(), back.version()), (dtype, &[1, 3][..], 0));
        assert_eq!(back.device_ptr(), x.device_ptr());
        assert_eq!(
            back.to_dtype(Dtype::C128).to_vec::<Complex<f64>>(),
            x.to_dtype(Dtype::C128).to_vec::<Complex<f64>>()
        );
        // By way of the structure without a version, too.
        // SAFETY: a tensor that was just made.
        let older =
            unsafe { DlTensor::from_raw_unversioned(lent(&x).into_raw_unversioned().unwrap()) };
        assert_eq!(Tensor::from_dlpack(older.unwrap()).unwrap().device_ptr(), x.device_ptr());
    }
}

#[test]
fn memory_lives_as_long_as_either_side() {
    let x = Tensor::from([1f32, 2.]);
    let storage = x.storage().downgrade();
    let consumer = lent(&x);
    drop(x);
    assert!(storage.upgrade().is_some());
    let y = Tensor::from_dlpack(consumer).unwrap();
    assert_eq!(y.to_vec::<f32>(), [1.0, 2.0]);
    thread::spawn(move || drop(y)).join().unwrap();
    assert!(storage.upgrade().is_none());
    // Nobody takes it.
    let x = Tensor::from([1f32]);
    drop(lent(&x));
    assert!(x.storage().is_unique());
}

#[test]
fn other_memory_in_the_tensor_is_no_other_memory_in_the_consumer() {
    let x = Tensor::from([1f32, 2.]);
    let consumer = lent(&x);
    // SAFETY: nobody else uses the tensor.
    no_grad(|| unsafe { x.set_data(&|_| Tensor::from([3f32, 4.])) });
    assert_eq!(Tensor::from_dlpack(consumer).unwrap().to_vec::<f32>(), [1.0, 2.0]);
    // Nor does it move to memory that processes share while it is lent out; after that it may.
    let x = Tensor::from([1f32, 2.]);
    let consumer = lent(&x);
    assert!(x.storage().share_memory().unwrap_err().to_string().contains("lent"));
    drop(consumer);
    x.storage().share_memory().unwrap();
    // Shared memory is lent as any other.
    let y = Tensor::from_dlpack(lent(&x)).unwrap();
    y.fill_(7.0);
    x.storage().share_memory().unwrap();
    assert_eq!(x.to_vec::<f32>(), [7.0, 7.0]);
}

#[test]
fn a_producers_array_is_given_back_once_on_any_thread() {
    let deleted = counter();
    let x = taken(array(&[2, 2], Some(&[1, 2]), 8, deleted)).unwrap();
    assert_eq!(x.to_vec::<f32>(), [2.0, 4.0, 3.0, 5.0]);
    let (column, moved) = (x.select(1, 1), x.add(1.0));
    drop(x);
    assert_eq!(deleted.load(SeqCst), 0);
    thread::spawn(move || drop(column)).join().unwrap();
    assert_eq!((deleted.load(SeqCst), moved.to_vec::<f32>()[0]), (1, 3.0));
    // Strides that are not told.
    let x = taken(array(&[3, 2], None, 0, deleted)).unwrap();
    assert_eq!((x.strides(), x.is_contiguous()), (&[2, 1][..], true));
    drop(x);
    assert_eq!(deleted.load(SeqCst), 2);
    let (dl_tensor, manager_ctx) = described(&[6], Some(&[1]), 0, deleted);
    let deleter = Some(delete_old_array as unsafe extern "C" fn(*mut DLManagedTensor));
    let old = Box::into_raw(Box::new(DLManagedTensor { dl_tensor, manager_ctx, deleter }));
    // SAFETY: of this file's producer.
    let x = Tensor::from_dlpack(unsafe { DlTensor::from_raw_unversioned(old) }.unwrap()).unwrap();
    assert_eq!(x.sum().item(), 15.0);
    drop(x);
    assert_eq!(deleted.load(SeqCst), 3);
}

#[test]
fn what_is_refused_is_given_back() {
    let deleted = counter();
    let mut times = 0;
    let mut refused = |word: &str, spoil: &dyn Fn(&mut DLManagedTensorVersioned)| {
        let managed = array(&[2, 3], Some(&[3, 1]), 0, deleted);
        // SAFETY: just made.
        spoil(unsafe { &mut *managed });
        let error = taken(managed).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        times += 1;
        assert_eq!(deleted.load(SeqCst), times, "{error}");
    };
    refused("DLPack 2.0", &|m| m.version = DLPackVersion { major: 2, minor: 0 });
    refused("unsigned integers of 16 bits", &|m| {
        m.dl_tensor.dtype = DLDataType { code: 1, bits: 16, lanes: 1 };
    });
    refused("vectors of 4", &|m| m.dl_tensor.dtype.lanes = 4);
    refused("type 8", &|m| m.dl_tensor.device.device_type = 8);
    refused("cuda:99", &|m| m.dl_tensor.device = DLDevice { device_type: 2, device_id: 99 });
    // SAFETY: both are the tensor's own, with a number for each dimension.
    refused("never negative", &|m| unsafe { *m.dl_tensor.strides = -3 });
    // SAFETY: as above.
    refused("below 0", &|m| unsafe { *m.dl_tensor.shape = -3 });
    refused("multiple of 4", &|m| m.dl_tensor.byte_offset = 1);
    refused("ndim", &|m| m.dl_tensor.ndim = -1);
    refused("null pointer", &|m| m.dl_tensor.shape = ptr::null_mut());
    refused("is null", &|m| m.dl_tensor.data = ptr::null_mut());
    refused("truth value", &|m| {
        m.dl_tensor.dtype = DLDataType { code: 6, bits: 8, lanes: 1 };
        m.dl_tensor.byte_offset = 6;
    });
    assert!(taken(ptr::null_mut()).is_err());
}

#[test]
fn read_only_memory_stays_read_only() {
    let deleted = counter();
    let managed = array(&[2], Some(&[1]), 0, deleted);
    // SAFETY: just made.
    unsafe { (*managed).flags = 1 };
    let x = taken(managed).unwrap();
    assert!(x.storage().is_read_only());
    assert!(crate::error::catch(|| x.fill_(1.0)).is_err());
    // Lent on, it is that still; an older structure could not tell.
    let again = lent(&x);
    assert!(again.is_read_only());
    assert!(again.into_raw_unversioned().unwrap_err().to_string().contains("read-only"));
    assert!(lent(&x).into_raw_unversioned().is_err());
    drop(x);
    assert_eq!(deleted.load(SeqCst), 1);
    let copy = Tensor::from([1f32]).to_dlpack(ConsumerStream::Default).unwrap().copied();
    assert!(!copy.is_read_only());
}

#[test]
fn what_a_consumer_would_lose_is_not_lent() {
    let x = Tensor::from([1f32]).requires_grad_(true);
    let refused = |x: &Tensor| x.to_dlpack(ConsumerStream::Default).unwrap_err().to_string();
    assert!(refused(&x).contains("detach()") && refused(&x.exp()).contains("gradient"));
    assert!(x.detach().to_dlpack(ConsumerStream::Default).is_ok());
    forward_ad::dual_level(|| {
        let dual = forward_ad::make_dual(&Tensor::from([1f32]), &Tensor::from([1f32]));
        assert!(refused(&dual).contains("tangent"));
    });
    let meta = Tensor::ones([2], (Dtype::F32, Device::Meta));
    assert!(refused(&meta).contains("meta"));
}

#[test]
fn streams_wait_for_each_other() {
    const TEST: &str = "exchange::dlpack::tests::streams_wait_for_each_other";
    simulated_test::on_gpu(TEST, || {
        let side = Stream::new(0, Priority::Normal).unwrap();
        let options = (Dtype::F32, Device::Cuda(0));
        for round in 1..20 {
            let x = Tensor::full([1 << 14], f64::from(round), options);
            // The consumer works on a stream of its own, on what this one has just been told to compute.
            let there = (&x * 2.0).to_dlpack(ConsumerStream::Handle(side.as_raw().addr())).unwrap();
            assert_eq!(there.dl_tensor().device, DLDevice { device_type: 2, device_id: 0 });
            let sum = {
                let _current = StreamGuard::new(side).unwrap();
                let y = Tensor::from_dlpack(there).unwrap();
                y.sum()
            };
            // Its memory is used again, and not before the other stream is done with it.
            let _other = Tensor::full([1 << 14], -1.0, options);
            side.synchronize().unwrap();
            assert_eq!(sum.item(), f64::from((round * 2) << 14));
        }
        for consumer in [ConsumerStream::Default, ConsumerStream::Unordered] {
            let x = Tensor::ones([4], options);
            let y = Tensor::from_dlpack(x.to_dlpack(consumer).unwrap()).unwrap();
            assert!(y.device() == Device::Cuda(0) && y.device_ptr() == x.device_ptr());
        }
        // The owner of foreign memory is told when the work on it is done.
        let block = Tensor::ones([1 << 14], options);
        let (shape, strides) = ([1 << 14], [1]);
        let (told, hears) = std::sync::mpsc::channel();
        struct Tells(#[allow(dead_code)] Tensor, std::sync::mpsc::Sender<()>);
        impl Drop for Tells {
            fn drop(&mut self) {
                self.1.send(()).unwrap();
            }
        }
        // SAFETY: the tensor keeps its memory, and is used by nobody else.
        let foreign = unsafe {
            let owner = Box::new(Tells(block.clone(), told));
            Foreign::new(block.device_ptr(), &shape, &strides, Dtype::F32, options.1, owner)
        };
        let x = Tensor::from_foreign(foreign.unwrap());
        let y = &x + 1.0;
        drop(x);
        hears.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(y.sum().item(), f64::from(2 << 14));
    });
}

#[test]
fn read_only_memory_of_a_gpu_is_written_by_nobody() {
    const TEST: &str = "exchange::dlpack::tests::read_only_memory_of_a_gpu_is_written_by_nobody";
    simulated_test::on_gpu(TEST, || {
        let options = (Dtype::F32, Device::Cuda(0));
        let block = Tensor::full([4], 3.0, options);
        // SAFETY: the tensor keeps its memory.
        let foreign = unsafe {
            let owner = Box::new(block.clone());
            Foreign::new(block.device_ptr(), &[4], &[1], Dtype::F32, options.1, owner)
        };
        let grad = Tensor::from_foreign(foreign.unwrap().read_only());
        let x = Tensor::ones([4], options).requires_grad_(true);
        x.set_grad(Some(grad.clone()));
        let refused = |what: &str, write: &dyn Fn()| {
            let error = crate::error::catch(write).expect_err(what).to_string();
            assert!(error.contains("read-only"), "{what}: {error}");
        };
        refused("fill_", &|| _ = grad.fill_(0.0));
        refused("copy_", &|| _ = grad.copy_(&Tensor::ones([4], Dtype::F32)));
        // What is written by kernels of its own.
        refused("clip_grad_norm_", &|| {
            _ = crate::nn::utils::clip_grad_norm_(std::slice::from_ref(&x), 1.0)
        });
        assert_eq!(block.to_vec::<f32>(), [3.0; 4]);
    });
}

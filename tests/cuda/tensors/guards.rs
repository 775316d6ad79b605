//! Kernels that leave a tensor's memory, where every tensor has pages of its own.

use std::io::{Read, Seek};
use std::os::fd::AsRawFd;

use torchrs::cuda::launch::{self, Shape};
use torchrs::cuda::{Kernel, Program, Stream, memory};
use torchrs::{Device, Dtype, Tensor, cuda_args};

const GPU: Device = Device::Cuda(0);
static PROGRAM: Program = Program::new(
    "strays",
    "",
    r#"
extern "C" __global__ void reads(const float* x, float* y, long long at) { y[0] = x[at]; }
extern "C" __global__ void writes(float* x, float* y, long long at) { x[at] = y[0]; }
"#,
);
static READS: Kernel = Kernel::new(&PROGRAM, "reads");
static WRITES: Kernel = Kernel::new(&PROGRAM, "writes");

/// What is said on standard error meanwhile.
fn said_in(f: impl FnOnce()) -> String {
    let mut file = tempfile::tempfile().unwrap();
    // SAFETY: descriptors of this process, which has one thread that writes there.
    unsafe {
        let kept = libc::dup(2);
        libc::dup2(file.as_raw_fd(), 2);
        f();
        libc::dup2(kept, 2);
        libc::close(kept);
    }
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Starts a kernel on element `at` of a tensor of `len`; what the simulated GPU says.
fn stray(kernel: &'static Kernel, len: usize, at: i64) -> torchrs::Result<String> {
    let (x, y) = (Tensor::ones([len], (Dtype::F32, GPU)), Tensor::zeros([1], (Dtype::F32, GPU)));
    let stream = Stream::current(0)?;
    let function = kernel.on(0)?;
    let mut outcome = Ok(());
    let (to, from) = (x.device_ptr(), y.device_ptr());
    let said = said_in(|| {
        let arguments = cuda_args!(to, from, at);
        // SAFETY: the kernel's parameters; that it leaves the tensor is found by the simulated GPU.
        outcome = unsafe { launch::launch(function, Shape::elements(1, 32), stream, arguments) };
        outcome = outcome.clone().and_then(|()| stream.synchronize());
    });
    let inside = (0..len as i64).contains(&at);
    assert_eq!(outcome.is_ok(), inside, "{said}");
    if let Err(error) = outcome {
        assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    }
    Ok(said)
}

simulated! {
    fn a_read_past_a_tensors_end_is_found() ["TORCHRS_CUDA_CACHE" = "0", "TORCHRS_SIMULATED_GUARD" = "4"] {
        stray(&READS, 5, 4)?;
        let said = stray(&READS, 5, 5)?;
        assert!(said.contains("kernel `reads`") && said.contains("illegal address"), "{said}");
        assert!(said.contains("0 bytes after the end of the allocation of 20 bytes"), "{said}");
    }

    fn a_read_before_a_tensor_is_found() ["TORCHRS_CUDA_CACHE" = "0", "TORCHRS_SIMULATED_GUARD" = "start"] {
        stray(&READS, 5, 0)?;
        let said = stray(&READS, 5, -1)?;
        assert!(said.contains("4 bytes before the allocation of 20 bytes"), "{said}");
    }

    fn a_write_between_a_tensor_and_its_page_is_found() ["TORCHRS_CUDA_CACHE" = "0", "TORCHRS_SIMULATED_GUARD" = "16"] {
        stray(&WRITES, 5, 4)?;
        let said = stray(&WRITES, 5, 5)?;
        assert!(said.contains("kernel `writes`, or one beside it: a write to"), "{said}");
        assert!(said.contains("0 bytes after the end of the allocation of 20 bytes"), "{said}");
    }

    fn nothing_is_kept_without_a_cache() ["TORCHRS_CUDA_CACHE" = "0"] {
        let x = Tensor::ones([1000], (Dtype::F32, GPU));
        let y = &x + 1.0;
        assert_eq!(memory::memory_reserved(0)?, 8000);
        assert_eq!(y.sum().item(), 2000.0);
        drop((x, y));
        assert_eq!(memory::memory_reserved(0)?, 0);
    }

    fn what_is_freed_into_the_cache_is_spoiled_by_the_adversary() ["TORCHRS_SIMULATED_ADVERSARY" = "3"] {
        let x = Tensor::ones([100], (Dtype::F32, GPU));
        let at = x.device_ptr();
        drop(x);
        let y = Tensor::empty([100], (Dtype::F32, GPU));
        assert_eq!(y.device_ptr(), at);
        assert!(y.to_vec::<f32>().iter().all(|value| value.is_nan()));
    }

    fn a_seed_that_is_no_number_makes_no_adversary() ["TORCHRS_SIMULATED_ADVERSARY" = "on"] {
        let x = Tensor::ones([100], (Dtype::F32, GPU));
        let at = x.device_ptr();
        drop(x);
        let y = Tensor::empty([100], (Dtype::F32, GPU));
        assert_eq!((y.device_ptr(), y.to_vec::<f32>()), (at, vec![1.0; 100]));
    }
}

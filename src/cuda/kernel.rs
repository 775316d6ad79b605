//! Kernels of a program's own on tensors' memory: CUDA C++ text, compiled at its first use and
//! started on a stream.
//!
//! An op of one's own asks for the tensors' addresses ([`Tensor::device_ptr`]), starts a kernel on
//! the stream on which the ops before it run, and says what it changed in place. Its derivative is
//! recorded by [`autograd::record`] or [`autograd::record_inplace`]. The same program runs on a
//! simulated GPU (`TORCHRS_SIMULATE_GPUS=1`), which finds accesses outside a tensor.
//!
//! ```
//! use torchrs::cuda::kernel::{Kernel, Program, Shape, launch};
//! use torchrs::cuda::{self, Stream};
//! use torchrs::{Device, Dtype, Tensor, cuda_args};
//!
//! static PROGRAM: Program = Program::new(
//!     "scale",
//!     "",
//!     r#"
//! extern "C" __global__ void scale(float* x, float factor, long long n) {
//!     long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
//!     if (i < n) x[i] *= factor;
//! }
//! "#,
//! );
//! static SCALE: Kernel = Kernel::new(&PROGRAM, "scale");
//!
//! if cuda::is_available() {
//!     let x = Tensor::ones([1000], (Dtype::F32, Device::Cuda(0)));
//!     let (to, factor, n) = (x.device_ptr(), 3f32, x.numel() as i64);
//!     let (shape, stream) = (Shape::elements(1000, 256), Stream::current(0)?);
//!     // SAFETY: the kernel's parameters in their order; `x` is dense and has `n` elements of f32.
//!     unsafe { launch(SCALE.on(0)?, shape, stream, cuda_args!(to, factor, n))? };
//!     x.storage().bump_version();
//!     assert_eq!(x.sum().item(), 3000.0);
//! }
//! # Ok::<(), torchrs::Error>(())
//! ```
//!
//! [`Tensor::device_ptr`]: crate::Tensor::device_ptr
//! [`autograd::record`]: crate::autograd::record
//! [`autograd::record_inplace`]: crate::autograd::record_inplace

pub use torchrs_cuda::cuda_args;
pub use torchrs_cuda::kernels::launch::{Arg, Argument, Shape, launch};
pub use torchrs_cuda::kernels::module::{Function, Kernel, Program};

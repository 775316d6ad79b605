//! Kernels of a program's own (`cuda::kernel`), as its example has one.

use torchrs::cuda::Stream;
use torchrs::cuda::kernel::{Kernel, Program, Shape, launch};
use torchrs::{Device, Dtype, Tensor, cuda_args};

static PROGRAM: Program = Program::new(
    "scale",
    "",
    r#"
extern "C" __global__ void scale(float* x, float factor, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}
"#,
);
static SCALE: Kernel = Kernel::new(&PROGRAM, "scale");

/// Multiplies the elements of `x`.
fn scale(x: &Tensor, factor: f32) -> torchrs::Result<()> {
    let (to, n) = (x.device_ptr(), x.numel() as i64);
    let shape = Shape::elements(x.numel() as u64, 256);
    // SAFETY: the kernel's parameters in their order; a dense tensor of f32 with `n` elements.
    unsafe { launch(SCALE.on(0)?, shape, Stream::current(0)?, cuda_args!(to, factor, n))? };
    x.storage().bump_version();
    Ok(())
}

simulated! {
    fn a_kernel_of_ones_own_computes_on_a_tensor() {
        let x = Tensor::arange(0, 1000, 1, (Dtype::F32, Device::Cuda(0)));
        let version = x.version();
        scale(&x, 3.0)?;
        let right: Vec<f32> = (0..1000).map(|i| 3.0 * i as f32).collect();
        assert_eq!((x.version(), x.to_vec::<f32>()), (version + 1, right));
    }
}

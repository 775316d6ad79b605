//! Switches of the libraries that ops use on GPUs (`torch.backends`). They hold for the process, from the next op on.
//!
//! Knows nothing of `cuda` and `ops`, which ask it.
//!
//! ```
//! use torchrs::backends::{cuda, cudnn};
//! assert!(cudnn::enabled() && cudnn::allow_tf32() && !cuda::matmul::allow_tf32());
//! cuda::matmul::set_allow_tf32(true);   // three digits are kept, for tensor cores
//! # cuda::matmul::set_allow_tf32(false);
//! ```

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A function that tells a switch and one that sets it.
macro_rules! switch {
    ($($(#[$about:meta])* $name:ident $set:ident = $default:literal;)*) => {$(
        $(#[$about])*
        pub fn $name() -> bool {
            $name::SWITCH.load(Relaxed)
        }

        #[doc = concat!("Sets [`", stringify!($name), "`], which is ", stringify!($default), " at first.")]
        pub fn $set(value: bool) {
            $name::SWITCH.store(value, Relaxed);
        }

        mod $name {
            pub(super) static SWITCH: super::AtomicBool = super::AtomicBool::new($default);
        }
    )*};
}

/// Convolutions by cuDNN (`torch.backends.cudnn`).
pub mod cudnn {
    use super::{AtomicBool, Relaxed};

    switch! {
        /// Whether cuDNN is used where it is found; the environment's `TORCHRS_CUDNN=0` forbids it too.
        enabled set_enabled = true;
        /// Whether convolutions of f32 may round what they multiply to tf32, with ten bits after the point, for
        /// tensor cores. As in PyTorch they may.
        allow_tf32 set_allow_tf32 = true;
        /// Whether a convolution's first call times several ways to compute it, for the fastest.
        benchmark set_benchmark = false;
        /// Whether only such ways are taken as give the same bits at each call.
        deterministic set_deterministic = false;
    }
}

/// cuBLASLt and the device (`torch.backends.cuda`).
pub mod cuda {
    use super::{AtomicBool, Relaxed};

    switch! {
        /// Whether `scaled_dot_product_attention` may be cuDNN's, which is asked first.
        cudnn_sdp_enabled enable_cudnn_sdp = true;
        /// Whether `scaled_dot_product_attention` may be by torchrs' own kernels that hold no scores in memory.
        flash_sdp_enabled enable_flash_sdp = true;
        /// Whether `scaled_dot_product_attention` may be by products of matrices, which hold all scores in memory.
        math_sdp_enabled enable_math_sdp = true;
    }

    /// Matrix products (`torch.backends.cuda.matmul`).
    pub mod matmul {
        use super::super::{AtomicBool, Relaxed};

        switch! {
            /// Whether products of f32 may round their operands to tf32, with ten bits after the point, for tensor
            /// cores. As in PyTorch they may not.
            allow_tf32 set_allow_tf32 = false;
        }
    }
}

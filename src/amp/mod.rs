//! Automatic mixed precision (`torch.amp`): [`autocast`] computes what gains by it in a half type,
//! and [`GradScaler`] keeps the gradients of f16 above its smallest number.
//!
//! Knows nothing of `ops`, which ask it at their heads, and of `nn` and `optim`.
//!
//! ```
//! use torchrs::{Device, Dtype, Tensor, amp, nn::{self, Forward, Module, functional as F}};
//! let model = nn::Linear::new(4, 1);
//! let (x, y) = (Tensor::randn([8, 4], Dtype::F32), Tensor::randn([8, 1], Dtype::F32));
//! let loss = amp::autocast(Device::Cpu, Dtype::BF16, || {
//!     let out = model.forward(&x);
//!     assert_eq!(out.dtype(), Dtype::BF16);
//!     F::mse_loss(&out, &y)
//! });
//! assert_eq!(loss.dtype(), Dtype::F32);
//! loss.backward();
//! assert_eq!(model.parameters()[0].grad().unwrap().dtype(), Dtype::F32);
//! ```

mod autocast;
mod casts;
mod policy;
mod region;

pub use autocast::{
    AutocastOptions, autocast, autocast_with, custom_fwd, get_autocast_dtype,
    is_autocast_cache_enabled, is_autocast_enabled,
};
pub(crate) use autocast::{Snapshot, Suspended, is_active};
pub(crate) use casts::{Place, is_read_channels_last};
pub(crate) use region::{Region, cast_op, shape_of};

// It wraps an optimizer, and stands there; PyTorch's users look for it here.
pub use crate::optim::{GradScaler, GradScalerOptions};

//! Averages of a model's weights over training (`torch.optim.swa_utils`): exponential ones (EMA), and
//! plain ones of the last epochs at a constant rate (SWA; Izmailov et al., 2018).
//!
//! ```
//! use torchrs::optim::swa_utils::{AveragedModel};
//! use torchrs::{nn::{self, Module}, no_grad};
//! let model = nn::Linear::new(1, 1);
//! let set = |value: f64| no_grad(|| model.parameters().iter().for_each(|p| _ = p.fill_(value)));
//! let average = AveragedModel::new(&model, Default::default());
//! for value in [1.0, 2.0, 6.0] {
//!     set(value); // an epoch of training
//!     average.update_parameters(&model);
//! }
//! assert_eq!(average.module.parameters()[0].item(), 3.0);
//! ```

mod averaged_model;
mod swalr;
mod update_bn;

pub use averaged_model::{AveragedModel, AveragedModelOptions, Averaging};
pub use swalr::{SWALR, SwaAnneal};
pub use update_bn::update_bn;

//! Averages of a model's weights over training (`torch.optim.swa_utils`): exponential ones (EMA), and
//! plain ones of the last epochs at a constant rate (SWA; Izmailov et al., 2018).

mod averaged_model;
mod swalr;
mod update_bn;

pub use averaged_model::{AveragedModel, AveragedModelOptions, Averaging};
pub use swalr::{SWALR, SwaAnneal};
pub use update_bn::update_bn;

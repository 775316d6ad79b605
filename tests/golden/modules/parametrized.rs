//! Modules with a parametrized weight.

use torchrs::nn::utils::parametrizations::{orthogonal, spectral_norm, weight_norm};
use torchrs::nn::{self, Forward};

use super::layers::forward;
use super::{Built, Setup, built};
use crate::arg::{Outcome, lacks};

pub fn build(setup: &Setup) -> Option<Outcome<Built>> {
    let kind = setup.op.strip_prefix("nn.utils.parametrizations.")?;
    let c = &setup.args;
    let make = || {
        let (inputs, outputs) = (c.count(0, "in", 0)?, c.count(1, "out", 0)?);
        match setup.tree["op"].as_str().unwrap_or("") {
            "nn.Linear" => parametrized(setup, kind, nn::Linear::new(inputs, outputs)),
            "nn.Conv1d" => {
                let size = c.per_dim::<1>(2, "kernel_size", 1)?;
                parametrized(setup, kind, nn::Conv1d::new(inputs, outputs, size))
            }
            "nn.Conv2d" => {
                let size = c.per_dim::<2>(2, "kernel_size", 1)?;
                parametrized(setup, kind, nn::Conv2d::new(inputs, outputs, size))
            }
            other => lacks(format!("{kind} of {other}")),
        }
    };
    Some(make())
}

fn parametrized<M: Forward + Clone + 'static>(
    setup: &Setup,
    kind: &str,
    layer: M,
) -> Outcome<Built> {
    match kind {
        "weight_norm" => built(setup, weight_norm(layer, "weight", 0), forward),
        "spectral_norm" => {
            built(setup, spectral_norm(layer, "weight", Default::default()), forward)
        }
        "orthogonal" => built(setup, orthogonal(layer, "weight", Default::default()), forward),
        other => lacks(other),
    }
}

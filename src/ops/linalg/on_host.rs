//! Factorisations that have loops for the CPU alone: matrices of a GPU go there and the results come back, as PyTorch does
//! it for some of them.

use super::batch::{Batch, PerMatrix, each};
use crate::autograd::no_grad;
use crate::ops::gpu;
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// [`each`] of tensors on any device, which must be one.
#[track_caller]
pub(super) fn each_anywhere(
    op: &str,
    inputs: &[&Tensor],
    shapes: &[&[usize]],
    f: PerMatrix,
) -> Batch {
    let device = inputs[0].device();
    gpu::of(op, inputs);
    if device.is_meta() {
        let shape = &inputs[0].shape()[..inputs[0].dim() - 2];
        let empty =
            |own: &&[usize]| Tensor::empty([shape, own].concat(), (inputs[0].dtype(), device));
        let info = Tensor::zeros(shape, (Dtype::I32, device));
        return Batch { outputs: shapes.iter().map(empty).collect(), info };
    }
    if device == Device::Cpu {
        return each(inputs, shapes, f);
    }
    no_grad(|| {
        let here: Vec<Tensor> = inputs.iter().map(|x| x.detach().to_device(Device::Cpu)).collect();
        let here: Vec<&Tensor> = here.iter().collect();
        let Batch { outputs, info } = each(&here, shapes, f);
        let outputs = outputs.iter().map(|x| x.to_device(device)).collect();
        Batch { outputs, info: info.to_device(device) }
    })
}

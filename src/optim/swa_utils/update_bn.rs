//! Statistics of batch normalisation for averaged weights, which saw no batch themselves.

use crate::autograd::no_grad;
use crate::nn::{AccumulateStatistics, Forward, Module};
use crate::tensor::Tensor;

/// Sets the running statistics of all `BatchNorm` layers in `model` to the mean over `batches`
/// (`torch.optim.swa_utils.update_bn`). The model is in training meanwhile, and as it was afterwards.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{self, Module}, optim::swa_utils::update_bn};
/// let model = nn::Sequential::new().append(nn::BatchNorm1d::new(2)).append(nn::Linear::new(2, 1));
/// model.eval();
/// update_bn([Tensor::full([4, 2], 3.0, Dtype::F32)], &model);
/// assert_eq!(model.state_dict()["0.running_mean"].to_vec::<f32>(), [3.0, 3.0]);
/// assert!(!model.is_training());
/// ```
#[track_caller]
pub fn update_bn<M: Module + Forward>(batches: impl IntoIterator<Item = Tensor>, model: &M) {
    let norms: Vec<_> = model
        .named_modules()
        .into_iter()
        .filter(|(_, module)| module.name().starts_with("BatchNorm"))
        .collect();
    if norms.is_empty() {
        return;
    }
    let training = model.is_training();
    no_grad(|| {
        for (_, norm) in &norms {
            for (name, buffer) in norm.named_buffers() {
                buffer.fill_(if name == "running_var" { 1.0 } else { 0.0 });
            }
        }
        model.train();
        let _mean = AccumulateStatistics::new();
        batches.into_iter().for_each(|batch| _ = model.forward(&batch));
    });
    model.set_training(training);
}

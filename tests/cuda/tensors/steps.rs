//! Whole training steps wait for the GPU nowhere: by our own count, and by the simulated GPU's, which also sees a wait
//! that ours forgot.

use torchrs::nn::functional::dropout;
use torchrs::nn::{self, Embedding, Forward, Module, clip_grad_norm_};
use torchrs::optim::{AdamW, Optimizer};
use torchrs::{Device, Dtype, Tensor};

use super::compare::numbers;
use crate::support::waits;

const GPU: Device = Device::Cuda(0);

/// Steps after two that warm up (programs, workspaces, memory) are watched.
fn watch(mut step: impl FnMut() -> Tensor) {
    for _ in 0..2 {
        step();
    }
    let before = waits();
    let losses: Vec<Tensor> = (0..3).map(|_| step().detach()).collect();
    assert_eq!(waits(), before, "waits by our count, and by the simulated GPU's");
    assert!(losses.iter().all(|loss| loss.item().is_finite()));
    let read = waits();
    let simulated = read.1.zip(before.1);
    assert!(read.0 > before.0 && simulated.is_none_or(|(read, before)| read > before));
}

simulated! {
    fn convolution_and_batch_norm() {
        let mut model = nn::Sequential::new()
            .append(nn::Conv2d::new(3, 4, 3))
            .append(nn::BatchNorm2d::new(4))
            .append(nn::ReLU)
            .append(nn::Conv2d::new(4, 2, 2));
        model.to_device(GPU);
        let mut optimizer = AdamW::new(model.parameters(), Default::default());
        let target = numbers(&[2, 2, 5, 5], 5, Dtype::F32).to_device(GPU);
        watch(|| {
            // As a batch comes from the host.
            let x = numbers(&[2, 3, 8, 8], 3, Dtype::F32).to_device(GPU);
            optimizer.zero_grad();
            let loss = nn::functional::mse_loss(&model.forward(&x), &target);
            loss.backward();
            clip_grad_norm_(&model.parameters(), 0.5);
            optimizer.step();
            loss
        });
    }

    fn attention_and_cross_entropy() {
        let (mut table, mut head) = (Embedding::new(11, 16), nn::Linear::new(16, 11));
        table.to_device(GPU);
        head.to_device(GPU);
        let parameters = [table.parameters(), head.parameters()].concat();
        let mut optimizer = AdamW::new(parameters.clone(), Default::default());
        watch(|| {
            let tokens: Vec<i64> = (0..12).map(|i| i * 7 % 11).collect();
            let tokens = Tensor::from_slice(&tokens, [2, 6]).to_device(GPU);
            optimizer.zero_grad();
            let x = dropout(&table.forward(&tokens), 0.25, true);
            let heads = x.reshape([2, 6, 2, 8]).transpose(1, 2);
            let y = heads.scaled_dot_product_attention(&heads, &heads, None, true, None);
            let y = head.forward(&y.transpose(1, 2).reshape([12, 16]));
            let loss = y.cross_entropy(&tokens.reshape([12]));
            loss.backward();
            clip_grad_norm_(&parameters, 1.0);
            optimizer.step();
            loss
        });
    }
}

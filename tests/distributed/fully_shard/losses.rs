//! A last layer that is sharded by itself and never makes all of its scores.

use torchrs::nn::functional::{Chunks, LinearCrossEntropyOptions};
use torchrs::nn::parallel::fully_shard;
use torchrs::nn::{self, Forward, Linear, Module};
use torchrs::{Dtype, Tensor};

use super::on;
use crate::job::Job;

#[derive(Module)]
struct Net {
    body: Linear,
    head: Linear,
}

impl Net {
    #[nn::forward]
    fn loss(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let options = LinearCrossEntropyOptions { chunks: Chunks::Rows(3), ..Default::default() };
        self.head.cross_entropy(&self.body.forward(x).relu(), y, options)
    }
}

fn train(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    torchrs::manual_seed(5);
    let mut net = Net { body: Linear::new(4, 6), head: Linear::new(6, 9) };
    let x = Tensor::randn([8, 4], Dtype::F32);
    let y = Tensor::from([0i64, 8, 3, -100, 2, 2, 7, 1]);
    let loss = net.loss(&x, &y);
    loss.backward();
    let want: Vec<Tensor> = net.parameters().iter().map(|p| p.grad().unwrap()).collect();
    net.parameters().iter().for_each(|p| p.set_grad(None));
    fully_shard(&mut net.head, &group, Default::default()).unwrap();
    fully_shard(&mut net, &group, Default::default()).unwrap();
    for _ in 0..2 {
        net.zero_grad();
        assert_eq!(net.loss(&x, &y).item(), loss.item());
        net.loss(&x, &y).backward();
        for (parameter, want) in net.parameters().iter().zip(&want) {
            let rows = want.shape()[0].div_ceil(2);
            let (first, count) = [(0, rows), (rows, want.shape()[0] - rows)][rank];
            let grad = parameter.grad().unwrap();
            assert!(
                grad.allclose(&want.narrow(0, first, count), Default::default()),
                "{grad:?} {want:?}"
            );
        }
    }
}

#[test]
fn a_sharded_head_makes_its_loss_in_chunks() {
    on(2, train, &());
}

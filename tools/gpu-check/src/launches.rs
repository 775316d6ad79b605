//! What calls cost the host, in microseconds: ops, steps of a small network, memory.

use torchrs::nn::{Forward, Linear, Module, ReLU, Sequential, functional as F};
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::{Dtype, Result, Tensor, no_grad};

use crate::bench::{Bench, GPU, normal};

/// Ops on few elements.
pub fn rows(bench: &Bench) -> Result<()> {
    let (a, b) = (normal(&[1024], Dtype::F32), normal(&[1024], Dtype::F32));
    let (m, n) = (normal(&[64, 64], Dtype::F32), normal(&[64, 64], Dtype::F32));
    no_grad(|| {
        bench.host("host_add_1024", || drop(&a + &b));
        bench.host("host_add_inplace_1024", || _ = a.add_(&b));
        bench.host("host_sum_1024", || drop(a.sum()));
        bench.host("host_softmax_64x64", || drop(m.softmax(-1)));
        bench.host("host_matmul_64", || drop(m.matmul(&n)));
        bench.host("host_view_transpose", || drop(m.view([4096]).reshape([64, 64]).t()));
        bench.host("host_alloc_4KiB", || drop(Tensor::empty([1024], (Dtype::F32, GPU))));
        bench.host("host_alloc_64MiB", || drop(Tensor::empty([16 << 20], (Dtype::F32, GPU))));
        bench.device("launch_add_1024", "Mop/s", 1e-6, || drop(&a + &b));
    });
    let x = normal(&[1024], Dtype::F32).requires_grad_(true);
    bench.host("host_add_1024_recorded", || drop(&x + &b));
    small_network(bench);
    Ok(())
}

fn small_network(bench: &Bench) {
    let mut model = Sequential::new()
        .append(Linear::new(64, 128))
        .append(ReLU)
        .append(Linear::new(128, 128))
        .append(ReLU)
        .append(Linear::new(128, 10));
    model.to_device(GPU);
    let x = normal(&[32, 64], Dtype::F32);
    let y = Tensor::randint(0, 10, [32], Dtype::I64).to_device(GPU);
    no_grad(|| bench.host("host_mlp_fwd", || drop(model.forward(&x))));
    let mut optimizer = SGD::new(model.parameters(), SGDOptions { lr: 1e-3, ..Default::default() });
    bench.host("host_mlp_step", move || {
        optimizer.zero_grad();
        F::cross_entropy(&model.forward(&x), &y).backward();
        optimizer.step();
    });
}

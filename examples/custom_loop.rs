//! A distributed loop of one's own, without `DistributedDataParallel`: local SGD. Every worker takes
//! several steps on its own data; then the workers average their weights, in the background of the
//! next round's first gradient.
//! The weights lie in memory that all workers map, so that the example runs on the CPU, also beside GPUs.
//! (Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019.)
//!
//! ```text
//! cargo launch --nproc 2 custom_loop
//! ```

use torchrs::distributed::{ReduceOp, Work};
use torchrs::prelude::*;

const ROUNDS: usize = 30;
const LOCAL_STEPS: usize = 8;
const LR: f64 = 0.1;

#[derive(Module)]
struct Net {
    hidden: nn::Linear,
    out: nn::Linear,
}

impl Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.out.forward(&self.hidden.forward(x).tanh())
    }
}

/// What the net has to learn: y = sin(x0) + x1^2.
fn batch(n: usize) -> (Tensor, Tensor) {
    let x = Tensor::randn([n, 2], Dtype::F32);
    let y = x.select(1, 0).sin() + x.select(1, 1).square();
    (x, y.unsqueeze(1))
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    let (rank, world) = (group.rank(), group.world_size());

    // The same weights everywhere: rank 0's. Then data that differ.
    let net = Net { hidden: nn::Linear::new(2, 64), out: nn::Linear::new(64, 1) };
    let params = net.parameters();
    for p in &params {
        group.broadcast(&p.detach(), 0)?;
    }
    torchrs::manual_seed(1000 + rank as u64);

    // Copies of the weights in memory that all workers map: averaging moves no byte twice.
    let shared: Vec<Tensor> =
        params.iter().map(|p| group.empty_shared(p.shape(), p.dtype())).collect::<Result<_>>()?;

    let mut pending: Vec<Work> = Vec::new();
    for round in 0..ROUNDS {
        let mut loss_sum = 0.0;
        for step in 0..LOCAL_STEPS {
            let (x, y) = batch(64);
            let loss = F::mse_loss(&net.forward(&x), &y);
            loss.backward();
            loss_sum += loss.item();
            if step == 0 {
                // The last round's average came while this gradient was computed.
                for work in pending.drain(..) {
                    work.wait()?;
                }
                if round > 0 {
                    no_grad(|| {
                        for (p, average) in params.iter().zip(&shared) {
                            p.copy_(average);
                        }
                    });
                }
            }
            no_grad(|| {
                for p in &params {
                    let grad = p.grad().expect("every weight is used");
                    p.sub_(&(grad * LR));
                    p.set_grad(None);
                }
            });
        }
        no_grad(|| {
            for (p, s) in params.iter().zip(&shared) {
                s.copy_(&p.detach());
            }
        });
        for s in &shared {
            pending.push(group.all_reduce_async(s, ReduceOp::Avg)?);
        }
        let loss = Tensor::scalar(loss_sum / LOCAL_STEPS as f64);
        group.all_reduce(&loss, ReduceOp::Avg)?;
        if rank == 0 && (round + 1) % 5 == 0 {
            println!("round {:>2}: loss {:.4} over {world} worker(s)", round + 1, loss.item());
        }
    }
    for work in pending {
        work.wait()?;
    }
    Ok(())
}

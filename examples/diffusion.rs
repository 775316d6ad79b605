//! Denoising diffusion (Ho, Jain, Abbeel, 2020): a network learns which noise was added to a digit, and then makes digits
//! of a wanted class of noise alone.
//!
//! ```text
//! cargo launch --nproc 2 diffusion
//! ```

use torchrs::data::datasets::Digits;
use torchrs::prelude::*;
use torchrs::train::Learner;

const STEPS: usize = 50;

/// Guesses the noise from the noisy digit, the step and the class.
#[derive(Module, Clone)]
struct Denoiser {
    image: nn::Linear,
    step: nn::Embedding,
    class: nn::Embedding,
    hidden: nn::Linear,
    out: nn::Linear,
}

fn noise_in(x: &Tensor, net: &Denoiser, step: &Tensor, class: &Tensor) -> Tensor {
    let told = net.step.forward(step) + net.class.forward(class);
    let x = (net.image.forward(x) + &told).silu();
    net.out.forward(&(net.hidden.forward(&x) + told).silu())
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    let (rank, world) = (group.rank(), group.world_size());
    manual_seed(0);
    let data = DataLoader::builder(Digits::train()).batch_size(64 / world).shuffle(true);
    let data = data.ranks(world, rank).build()?;
    let [image, hidden, out] =
        [(64, 256), (256, 256), (256, 64)].map(|(i, o)| nn::Linear::new(i, o));
    let [step, class] = [STEPS, 10].map(|n| nn::Embedding::new(n, 256));
    let net = Denoiser { image, step, class, hidden, out };
    let options = optim::AdamOptions { lr: 2e-3, ..Default::default() };
    let optimizer = optim::Adam::new(net.parameters(), options);
    let mut learner = Learner::new(net, optimizer, &group)?.ema(0.99);
    manual_seed(1 + rank as u64);
    // The share of the digit that is left after each step.
    let beta = Tensor::linspace(1e-3, 0.2, STEPS, Dtype::F32);
    let left = (1.0 - &beta).cumprod(0);
    while learner.epoch() < 40 {
        learner.train_epoch(&data, |net, (x, y)| {
            let x = x.flatten(1, -1) * 2.0 - 1.0;
            let step = Tensor::randint(0, STEPS as i64, [x.size(0)], Dtype::I64);
            let left = left.index_select(0, &step).unsqueeze(1);
            let noise = Tensor::randn(x.shape(), Dtype::F32);
            let noisy = x * left.sqrt() + &noise * (-&left + 1.0).sqrt();
            F::mse_loss(&noise_in(&noisy, net, &step, y), &noise)
        })?;
    }
    // Ten digits of each class, from noise.
    let net = learner.validated();
    let class = Tensor::arange(0, 100, 1, Dtype::I64).remainder(10i64);
    let mut x = Tensor::randn([100, 64], Dtype::F32);
    for t in (0..STEPS).rev() {
        let [beta, left] = [&beta, &left].map(|all| all.select(0, t as i64).item());
        let step = Tensor::full([100], t as i64, Dtype::I64);
        let noise = no_grad(|| noise_in(&x, net, &step, &class));
        x = (x - noise * (beta / (1.0 - left).sqrt())) / (1.0 - beta).sqrt();
        x = x + Tensor::randn([100, 64], Dtype::F32) * if t > 0 { beta.sqrt() } else { 0.0 };
    }
    // Each is compared with all true digits that were held back.
    let test = DataLoader::builder(Digits::validation()).batch_size(359).build()?;
    let (truth, classes) = test.iter().next().expect("a batch")?;
    let nearest = x.cdist(&(truth.flatten(1, -1) * 2.0 - 1.0), 2.0).argmin_dim(1, false);
    let right = classes.index_select(0, &nearest).eq(&class).to_dtype(Dtype::F32).mean().item();
    if rank == 0 {
        println!("{right:.2} of the drawn digits look most like a true one of their class");
    }
    let failed = || Error::Other(format!("{right} of the digits are right: it has not learned"));
    if right > 0.65 { Ok(()) } else { Err(failed()) }
}

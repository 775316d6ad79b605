//! A mixture of experts over ranks (Lepikhin et al., "GShard", 2020): a gate sends each token to two experts, and every
//! rank has some of them. A loss keeps their loads balanced. To be learned: eight maps, each for tokens of its place.
//!
//! ```text
//! cargo launch --nproc 2 mixture_of_experts
//! ```

use torchrs::distributed::{ProcessGroup, ReduceOp, functional::all_to_all_single};
use torchrs::prelude::*;

const EXPERTS: usize = 8;
const WIDTH: usize = 16;
const TOKENS: usize = 128;
/// Tokens of a rank that an expert takes at most: twice an even share.
const PLACES: usize = 2 * 2 * TOKENS / EXPERTS;

#[derive(Module)]
struct Mixture {
    gate: nn::Linear,
    experts: nn::Parameter,
}

/// The output for `[TOKENS, WIDTH]`, the loss of the balance, and each expert's share of the first choices.
fn mix(net: &Mixture, x: &Tensor, group: &ProcessGroup) -> Result<(Tensor, Tensor, Tensor)> {
    let p = net.gate.forward(x).softmax(1);
    let (weights, chosen) = p.topk(2, 1, true);
    let weights = &weights / weights.sum_dim(&[1], true);
    // First choices take places before second ones. The last column is for those who come too late.
    let wanted = chosen.t().flatten(0, 1).one_hot(EXPERTS);
    let place = (wanted.cumsum(0) * &wanted).sum_dim(&[1], false) - 1i64;
    let places = place.clamp(0i64, PLACES as i64).one_hot(PLACES + 1).narrow(1, 0, PLACES);
    let seat = (wanted.unsqueeze(2) * places.unsqueeze(1)).flatten(1, 2).to_dtype(Dtype::F32);
    let share = wanted.narrow(0, 0, TOKENS).to_dtype(Dtype::F32).mean_dim(&[0], false);
    let balance = (&share * p.mean_dim(&[0], false)).sum() * EXPERTS as f64;
    let [here, places, width] = [EXPERTS / group.world_size(), PLACES, WIDTH].map(|n| n as i64);
    let got = all_to_all_single(&seat.t().mm(&Tensor::cat(&[x, x], 0)), group)?;
    let got = got.view([-1, here, places, width]).transpose(0, 1).reshape([here, -1, width]);
    let made = got.bmm(&net.experts).view([here, -1, places, width]);
    let back = all_to_all_single(&made.transpose(0, 1).reshape([-1, width]), group)?;
    let both = seat.mm(&back) * weights.t().flatten(0, 1).unsqueeze(1);
    Ok((both.narrow(0, 0, TOKENS) + both.narrow(0, TOKENS, TOKENS), balance, share))
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    let (rank, world) = (group.rank(), group.world_size());
    manual_seed(0);
    let places = Tensor::randn([EXPERTS, WIDTH], Dtype::F32) * 3.0;
    let maps = Tensor::randn([EXPERTS, WIDTH, WIDTH], Dtype::F32) * 0.25;
    let own = Tensor::randn([EXPERTS / world, WIDTH, WIDTH], Dtype::F32) * 0.1;
    let net = Mixture { gate: nn::Linear::new(WIDTH, EXPERTS), experts: nn::Parameter::new(own) };
    manual_seed(1 + rank as u64);
    let options = optim::AdamOptions { lr: 0.01, ..Default::default() };
    let mut optimizer = optim::Adam::new(net.parameters(), options);
    let average = |t: &Tensor| group.all_reduce(t, ReduceOp::Avg);
    let mut last = Vec::new();
    for _ in 0..250 {
        let task = Tensor::randint(0, EXPERTS as i64, [TOKENS], Dtype::I64);
        let x = places.index_select(0, &task) + Tensor::randn([TOKENS, WIDTH], Dtype::F32);
        let y = x.unsqueeze(1).bmm(&maps.index_select(0, &task)).squeeze_dim(1);
        let (output, balance, share) = mix(&net, &x, &group)?;
        let loss = F::mse_loss(&output, &y) / y.var();
        optimizer.zero_grad();
        (&loss + balance * 0.01).backward();
        // The gate is everybody's. Experts have the gradients of all ranks' losses already.
        net.gate.parameters().iter().try_for_each(|p| average(&p.grad().expect("it is used")))?;
        net.experts.grad().expect("it is used").div_(world as f64);
        optimizer.step();
        last = vec![loss.detach(), share];
    }
    last.iter().try_for_each(average)?;
    let (error, shares) = (last[0].item(), last[1].to_vec::<f32>());
    if rank == 0 {
        println!("an error of {error:.3} of the variance; the experts' shares are {shares:.2?}");
    }
    let failed = || Error::Other(format!("an error of {error}, shares {shares:?}: not learned"));
    if error < 0.2 && shares.iter().all(|share| *share < 0.4) { Ok(()) } else { Err(failed()) }
}

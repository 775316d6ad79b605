//! Reinforcement learning (Williams, REINFORCE, 1992) on Gym's CartPole-v1 (Barto, Sutton, Anderson, 1983). Every rank plays
//! games of its own, and gradients are averaged over all games of all ranks.
//!
//! ```text
//! cargo launch --nproc 2 cartpole
//! ```

use torchrs::prelude::*;

const GAMES: usize = 16;
const STEPS: usize = 500;

/// Place, speed, angle and angular speed after a push to the left or the right for 0.02 seconds.
fn push([x, speed, angle, turn]: [f32; 4], right: bool) -> [f32; 4] {
    let force = if right { 10.0 } else { -10.0 };
    // The cart weighs 1, the pole 0.1 at half a length of 0.5.
    let (sin, cos) = angle.sin_cos();
    let pushed = (force + 0.05 * turn * turn * sin) / 1.1;
    let turned = (9.8 * sin - cos * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1));
    let gained = pushed - 0.05 * turned * cos / 1.1;
    let step = [speed, gained, turn, turned].map(|change| 0.02 * change);
    [x + step[0], speed + step[1], angle + step[2], turn + step[3]]
}

/// Plays games side by side: what was seen and done in each step, with the reward from there on, and their lengths.
fn play(policy: &nn::Sequential) -> (Tensor, Tensor, Tensor, Vec<usize>) {
    let start = Tensor::rand([4 * GAMES], Dtype::F32) * 0.1 - 0.05;
    let mut games = start.to_vec::<f32>().as_chunks::<4>().0.to_vec();
    let is_over = |[x, _, angle, _]: [f32; 4]| x.abs() > 2.4 || angle.abs() > 12f32.to_radians();
    let (mut seen, mut done, mut lengths) = (Vec::new(), Vec::new(), vec![0; GAMES]);
    for step in 0..STEPS {
        let now = Tensor::from_slice(games.as_flattened(), [GAMES, 4]);
        let choices = no_grad(|| policy.forward(&now).softmax(1)).multinomial(1, true);
        for (game, choice) in choices.to_vec::<i64>().into_iter().enumerate() {
            if lengths[game] == step && !is_over(games[game]) {
                seen.extend(games[game]);
                done.push((game, step, choice));
                games[game] = push(games[game], choice == 1);
                lengths[game] += 1;
            }
        }
    }
    // 1 for the step, 0.99 for the next, and so on.
    let reward = |left: usize| (1.0 - 0.99f64.powi(left as i32)) / 0.01;
    let rewards: Vec<f64> = done.iter().map(|at| reward(lengths[at.0] - at.1)).collect();
    let actions: Vec<i64> = done.iter().map(|at| at.2).collect();
    let n = actions.len();
    let rewards = Tensor::from_slice(&rewards, [n]).to_dtype(Dtype::F32);
    (Tensor::from_slice(&seen, [n, 4]), Tensor::from_slice(&actions, [n]), rewards, lengths)
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    manual_seed(0);
    let policy = nn::Sequential::new().append(nn::Linear::new(4, 32)).append(nn::Tanh);
    let policy = DistributedDataParallel::new(policy.append(nn::Linear::new(32, 2)), &group)?;
    let options = optim::AdamOptions { lr: 0.02, ..Default::default() };
    let mut optimizer = optim::Adam::new(policy.parameters(), options);
    manual_seed(1 + group.rank() as u64);
    for round in 1..=60 {
        let (seen, actions, rewards, lengths) = play(&policy);
        let length = Tensor::scalar(lengths.iter().sum::<usize>() as f64 / GAMES as f64);
        group.all_reduce(&length, distributed::ReduceOp::Avg)?;
        let length = length.item();
        if group.rank() == 0 && (round % 10 == 0 || length > 400.0) {
            println!("round {round}: the pole is balanced for {length:.0} of {STEPS} steps");
        }
        if length > 400.0 {
            return Ok(());
        }
        let advantage = (&rewards - rewards.mean()) / (rewards.std() + 1e-6);
        let chosen = policy.forward(&seen).log_softmax(1).gather(1, &actions.unsqueeze(1));
        optimizer.zero_grad();
        (-(chosen.squeeze_dim(1) * advantage).mean()).backward();
        optimizer.step();
    }
    Err(Error::Other("the pole falls before step 400, after 60 rounds".to_owned()))
}

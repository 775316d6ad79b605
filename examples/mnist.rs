//! A convolutional network on MNIST's files (`cargo launch --nproc 2 mnist FOLDER`), or on the digits in the library.

use torchrs::data::datasets::{Digits, FashionMnist};
use torchrs::prelude::*;
use torchrs::train::metrics::{Accuracy, Mean, Metric};
use torchrs::train::{GracefulStop, Loggers, Progress, RunDir, TrainState};

const EPOCHS: u64 = 10;

#[torchrs::main]
fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(folder) => train(FashionMnist::train(&folder)?, FashionMnist::test(&folder)?, 28),
        None => train(Digits::train(), Digits::validation(), 8),
    }
}

fn train<D: Dataset<Sample = (Tensor, i64)>>(data: D, test: D, side: usize) -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    let (rank, world) = (group.rank(), group.world_size());
    let device = distributed::WorkerEnv::from_env()?.device();
    let run = RunDir::agree("mnist", &Default::default(), &group)?;
    let stop = GracefulStop::install(Default::default())?;
    manual_seed(0);
    let net = nn::Sequential::new().append(nn::Conv2d::new(1, 32, 3).padding(1)).append(nn::ReLU);
    let mut net = net.append(nn::Flatten::new()).append(nn::Linear::new(32 * side * side, 10));
    net.to_device(device);
    let model = DistributedDataParallel::new(net, &group)?;
    let mut optimizer = optim::AdamW::new(model.parameters(), Default::default());
    let test =
        DataLoader::builder(test).batch_size(32).ranks(world, rank).device(device).build()?;
    let data = DataLoader::builder(data).batch_size(32).shuffle(true).ranks(world, rank);
    let data = data.device(device).build()?;
    let (mut epoch, steps) = (0, data.len() as u64);
    macro_rules! state {
        () => {
            TrainState::new().model(&*model).optimizer(&mut optimizer).value("epoch", &mut epoch)
        };
    }
    state!().resume(&run, &group)?;
    let progress = Progress::new(&group, EPOCHS * steps, epoch * steps);
    let mut log = Loggers::new(&run, &group).json_lines()?.tensorboard()?;
    while epoch < EPOCHS && stop.stop_requested(&group)?.is_none() {
        let (mut loss, mut accuracy) = (Mean::new(), Accuracy::new());
        data.set_epoch(epoch);
        for batch in data.iter() {
            let (x, y) = batch?;
            let batch_loss = F::cross_entropy(&model.forward(&x), &y);
            optimizer.zero_grad();
            batch_loss.backward();
            optimizer.step();
            loss.update(batch_loss.item(), y.numel() as f64);
            progress.step(format!("loss {:.4}", batch_loss.item()));
        }
        model.eval();
        for batch in test.iter() {
            let (x, y) = batch?;
            accuracy.update(&no_grad(|| model.forward(&x)), &y);
        }
        model.train();
        let (loss, accuracy) = (loss.compute(&group)?, accuracy.compute(&group)?);
        epoch += 1;
        let step = epoch * steps;
        progress.line(&format!("epoch {epoch}: loss={loss:.4} test_accuracy={accuracy:.4}"));
        log.scalars(step, &[("loss", loss), ("test_accuracy", accuracy)])?;
        state!().save(run.checkpoints(), step, &group)?;
    }
    Ok(())
}

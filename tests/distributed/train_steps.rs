//! `torchrs::train` in a loop's steps over ranks: what is agreed is the same on all of them, also when one alone has a
//! reason; gradients of several batches are those of one.

use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, raise, signal};
use torchrs::checkpoint::Best;
use torchrs::data::DataLoader;
use torchrs::data::datasets::Synthetic;
use torchrs::distributed::{DistributedDataParallel, ProcessGroup};
use torchrs::nn::parallel::fully_shard;
use torchrs::nn::{self, Forward, Module};
use torchrs::optim::lr_scheduler::StepLR;
use torchrs::optim::{GradScaler, Optimizer, SGD, SGDOptions};
use torchrs::train::{
    EarlyStopping, GracefulStop, Learner, NanGuard, StepCheck, StopOptions, StopReason, Throughput,
    accumulate, accumulate_weighted,
};
use torchrs::{Device, Dtype, Tensor, multiprocessing};

use super::job::Job;

fn job(world: usize, folder: &tempfile::TempDir) -> Job {
    Job::new(world, folder.path().to_owned())
}

/// All ranks have this text.
#[track_caller]
fn same_everywhere(group: &ProcessGroup, text: &str) {
    let all = group.all_gather_bytes(text.as_bytes()).unwrap();
    assert!(all.iter().all(|theirs| theirs == text.as_bytes()), "{text} on this rank only");
}

fn stops_together(rank: usize, job: Job) {
    let group = job.join(rank);
    // A shell has programs in the background ignore it, and what they start, too.
    // SAFETY: the system's own action.
    unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) }.unwrap();
    let time_limit = (rank == 2).then_some(Duration::ZERO);
    let stop = GracefulStop::install(StopOptions { time_limit, ..Default::default() }).unwrap();
    assert_eq!(stop.stop_requested(&group).unwrap(), Some(StopReason::TimeLimit));
    let stop = GracefulStop::install(StopOptions::default()).unwrap();
    assert_eq!(stop.stop_requested(&group).unwrap(), None);
    let model = nn::Linear::new(1, 1);
    let mut guard = NanGuard::new();
    let mut by_guard = || {
        let at = StepCheck {
            step: 1,
            loss: rank as f64,
            grad_norm: 1.0,
            stop: stop.requested_here(),
            model: &model,
            scaler: None,
            group: &group,
        };
        guard.check(&at, || [Tensor::scalar(0f32)]).unwrap()
    };
    for (signal, of) in [(Signal::SIGUSR1, 1), (Signal::SIGINT, 0), (Signal::SIGTERM, 2)] {
        if rank == of {
            raise(signal).unwrap();
        }
        let reason = Some(StopReason::Signal(signal as i32));
        assert_eq!(stop.stop_requested(&group).unwrap(), reason);
        let agreed = by_guard();
        assert_eq!((agreed.stop, agreed.loss, agreed.take_step), (reason, 1.0, true));
    }
    // Outside of Slurm nobody starts it again.
    let options = StopOptions { requeue: true, ..Default::default() };
    let stop = GracefulStop::install(options).unwrap();
    assert!(!stop.requeue(StopReason::TimeLimit, &group).unwrap());
}

#[test]
fn one_ranks_signal_stops_all() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(stops_together, job(3, &folder), 3).unwrap();
}

fn adds_up(rank: usize, job: Job) {
    let group = job.join(rank);
    torchrs::manual_seed(4);
    // Five batches for each of two ranks, of unequal lengths.
    let lengths = [[3, 1, 4, 2, 5], [2, 2, 1, 6, 3]];
    let all: Vec<Vec<Tensor>> =
        lengths.map(|of| of.map(|n| Tensor::randn([n, 3], Dtype::F64)).to_vec()).to_vec();
    let mut linear = nn::Linear::new(3, 2);
    linear.double();
    let alone = linear.deep_copy();
    let model = DistributedDataParallel::new(linear, &group).unwrap();
    let close = |got: &Tensor, want: &Tensor| {
        assert!((got - want).abs().max().item() < 1e-12, "{got:?}, not {want:?}");
    };
    let gradients = |module: &dyn Module| {
        let parameters = module.parameters();
        parameters.iter().map(|p| p.grad().unwrap().clone_contiguous()).collect::<Vec<_>>()
    };
    let scaler = GradScaler::new(Default::default());
    let scale = scaler.get_scale();
    let mine = || all[rank].iter().cloned().map(Ok);

    // Means of three batches, then of the two that are left: as of all means in one process.
    let mut batches = mine();
    for (start, count) in [(0, 3), (3, 2)] {
        alone.zero_grad();
        model.zero_grad();
        let means: Vec<Tensor> = (all.iter())
            .flat_map(|of| {
                of[start..start + count].iter().map(|x| alone.forward(x).square().mean())
            })
            .collect();
        let mean = Tensor::stack(&means, 0).mean();
        mean.backward();
        let loss = |x: &Tensor| model.forward(x).square().mean();
        let done = accumulate(3, &mut batches, &model, Some(&scaler), loss).unwrap().unwrap();
        assert_eq!(done.batches.len(), count);
        for (got, want) in gradients(&*model).iter().zip(gradients(&alone)) {
            close(&(got / scale), &want);
        }
        let losses = group.all_gather_object(&done.loss).unwrap();
        assert!((losses.iter().sum::<f64>() / 2.0 - mean.item()).abs() < 1e-12);
    }
    let none = accumulate(3, &mut batches, &model, None, |x| model.forward(x).sum()).unwrap();
    assert!(none.is_none());
    let error = accumulate(0, &mut mine(), &model, None, |x| model.forward(x).sum());
    assert!(error.unwrap_err().to_string().contains("argument `k`"));

    // By rows, of which ranks have unequal numbers: as of all rows in one process.
    alone.zero_grad();
    model.zero_grad();
    let rows: Vec<Tensor> = all.iter().flat_map(|of| of[..4].to_vec()).collect();
    let mean = alone.forward(&Tensor::cat(&rows, 0)).square().sum()
        / rows.iter().map(|x| x.size(0)).sum::<usize>() as f64;
    mean.backward();
    let weight = |x: &Tensor| x.size(0) as f64;
    let loss = |x: &Tensor| model.forward(x).square().sum();
    let done = accumulate_weighted(4, &mut mine(), &model, None, &group, weight, loss);
    assert!((done.unwrap().unwrap().loss - mean.item()).abs() < 1e-12);
    for (got, want) in gradients(&*model).iter().zip(gradients(&alone)) {
        close(got, &want);
    }
    let error = accumulate_weighted(1, &mut mine(), &model, None, &group, |_| 0.0, loss);
    assert!(error.unwrap_err().to_string().contains("weight 0"));
}

#[test]
fn gradients_of_several_batches_are_those_of_one() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(adds_up, job(2, &folder), 2).unwrap();
}

fn guards(rank: usize, job: Job) {
    let group = job.join(rank);
    let model = nn::Linear::new(2, 1);
    let bad = Tensor::from([[1f32, if rank == 1 { f32::NAN } else { 2.0 }]]);
    let mut guard = NanGuard::new().max_skipped(2);
    let mut check = |scaler: Option<&GradScaler>| {
        let loss = model.forward(&bad).sum();
        model.zero_grad();
        loss.backward();
        let (loss, grad_norm) = (loss.item(), model.weight.grad().unwrap().norm().item());
        let at = StepCheck {
            step: 7,
            loss,
            grad_norm,
            stop: None,
            model: &model,
            scaler,
            group: &group,
        };
        guard.check(&at, || [model.forward(&bad).sum()])
    };
    // A loss scaler may leave out some steps, but not all.
    let scaler = GradScaler::new(Default::default());
    for _ in 0..2 {
        assert!(!check(Some(&scaler)).unwrap().take_step);
    }
    for scaler in [Some(&scaler), None] {
        let error = check(scaler).unwrap_err().to_string();
        assert!(error.contains("step 7: ") && error.contains("rank 1, loss NaN"), "{error}");
        assert!(error.contains("`linear` gave NaN") && !error.contains("rank 0, loss"), "{error}");
        assert!(error.contains("2 steps before it were left out"), "{error}");
        let findings: Vec<&str> = error.lines().filter(|line| !line.contains("gradient")).collect();
        same_everywhere(&group, &findings.join("\n"));
    }

    let mut early = EarlyStopping::new(2, Best::Lowest).min_delta(0.1);
    let said = [1.0, 0.95, 0.85, 0.8, 0.8].map(|loss| early.update(loss, &group).unwrap());
    assert_eq!((said, early.best()), ([false, false, false, false, true], Some(0.85)));
    let error = early.update(rank as f64, &group).unwrap_err().to_string();
    assert!(error.contains("rank 0 has 0, rank 1 1"), "{error}");
    let error = early.update(f64::NAN, &group).unwrap_err().to_string();
    assert!(error.contains("NaN on rank 0"), "{error}");

    let mut speed = Throughput::new(Device::Cpu).flops_per_sample(10.0).peak_flops(1e12);
    assert!(speed.report(&group).unwrap_err().to_string().contains("no step"));
    let mut speed = speed.clone();
    speed.step(rank * 6);
    std::thread::sleep(Duration::from_millis(20));
    let report = speed.report(&group).unwrap();
    assert_eq!(report.samples, 6);
    assert!(report.samples_per_s < 6.0 / 0.02 && report.memory > 1 << 20);
    let flops = report.flops.unwrap();
    assert!((flops - 10.0 * report.samples_per_s).abs() < 1e-6 * flops);
    assert!((report.mfu.unwrap() - flops / 2e12).abs() < 1e-12);
}

#[test]
fn what_is_not_finite_or_differs_is_the_same_error_on_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(guards, job(2, &folder), 2).unwrap();
}

/// Steps by hand and steps of a learner, with all that a step may have but a loss scaler.
fn steps_as_by_hand(rank: usize, job: Job) {
    let group = job.join(rank);
    torchrs::manual_seed(1);
    let net = nn::Linear::new(3, 2);
    let by_hand = net.deep_copy();
    let batches: Vec<Tensor> = (0..5).map(|_| Tensor::randn([4, 3], Dtype::F32)).collect();
    let batches = || batches.iter().map(|x| Ok(x * (1.0 + rank as f64)));
    let sgd =
        |net: &nn::Linear| SGD::new(net.parameters(), SGDOptions { lr: 0.5, ..Default::default() });

    let mut optimizer = sgd(&net);
    let schedule = StepLR::new(&mut optimizer, 1, 0.5);
    let learner = Learner::new(net, optimizer, &group).unwrap().schedule(schedule);
    let mut learner = learner.accumulate(2).clip_norm(0.1).ema(0.2);
    let (mut all, mut steps) = (batches(), Vec::new());
    while let Some(step) = learner.step(&mut all, |net, x| net.forward(x).square().mean()).unwrap()
    {
        steps.push(step);
    }
    assert_eq!(
        steps.iter().map(|step| (step.step, step.lr)).collect::<Vec<_>>(),
        [(1, 0.5), (2, 0.25), (3, 0.125)]
    );
    let mut tested = 0;
    let samples =
        DataLoader::builder(Synthetic::new(5)).batch_size(2).ranks(2, rank).build().unwrap();
    learner.evaluate(&samples, |_, (x, _)| tested += x.size(0)).unwrap();
    assert_eq!(tested, 3 - rank);
    let losses: f64 = steps.iter().map(|step| step.loss).sum();
    assert_eq!(
        (learner.end_epoch().unwrap(), learner.epoch(), learner.steps()),
        (losses / 3.0, 1, 3)
    );

    let model = DistributedDataParallel::new(by_hand, &group).unwrap();
    let mut optimizer = sgd(&model);
    let (mut all, mut average) = (batches(), None);
    for (step, lr) in steps.iter().zip([0.5, 0.25, 0.125]) {
        optimizer.set_lr(0, lr);
        optimizer.zero_grad();
        let loss = |x: &Tensor| model.forward(x).square().mean();
        accumulate(2, &mut all, &model, None, loss).unwrap().unwrap();
        assert_eq!(nn::clip_grad_norm_(&model.parameters(), 0.1).item(), step.grad_norm);
        optimizer.step();
        let weight = model.weight.detach().clone_contiguous();
        let new = 1.0 - (step.step as f64 / (step.step as f64 + 9.0)).min(0.2);
        average = Some(average.map_or(weight.clone(), |old: Tensor| old.lerp(&weight, new)));
    }
    assert!(learner.model().weight.equal(&model.weight));
    assert!(learner.validated().weight.equal(&average.unwrap()));

    let error = Learner::new(nn::Linear::new(1, 1), sgd(&model), &group).err().unwrap().to_string();
    assert!(error.contains("none of the model's parameters"), "{error}");
}

#[test]
fn a_learners_steps_are_those_of_a_loop_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(steps_as_by_hand, job(2, &folder), 2).unwrap();
}

#[derive(Module)]
struct Pair {
    first: nn::Linear,
    second: nn::Linear,
}

impl Pair {
    fn new() -> Self {
        torchrs::manual_seed(2);
        Pair { first: nn::Linear::new(3, 4), second: nn::Linear::new(4, 2) }
    }

    fn loss(&self, x: &Tensor) -> Tensor {
        self.second.forward(&self.first.forward(x)).square().mean()
    }
}

/// The steps of shards are those of replicas, with several batches in each; a part that nobody averages is an error.
fn sharded_steps(rank: usize, job: Job) {
    let group = job.join(rank);
    let sgd = |net: &Pair| SGD::new(net.parameters(), SGDOptions { lr: 0.5, ..Default::default() });
    let (replicas, mut shards) = (Pair::new(), Pair::new());
    fully_shard(&mut shards.first, &group, Default::default()).unwrap();
    let root = fully_shard(&mut shards, &group, Default::default()).unwrap();
    let mut some = Pair::new();
    let alone = fully_shard(&mut some.first, &group, Default::default()).unwrap();
    let optimizer = sgd(&some);
    let error = Learner::sharded(some, alone, optimizer, &group).err().unwrap().to_string();
    assert!(error.contains("`second.weight`, which is not sharded"), "{error}");
    let optimizer = sgd(&shards);
    let shards = Learner::sharded(shards, root, optimizer, &group).unwrap();
    let optimizer = sgd(&replicas);
    let replicas = Learner::new(replicas, optimizer, &group).unwrap();
    let [mut replicas, mut shards] =
        [replicas, shards].map(|learner| learner.clip_norm(0.3).accumulate(2));
    torchrs::manual_seed(rank as u64);
    let batches: Vec<Tensor> = (0..5).map(|_| Tensor::randn([4, 3], Dtype::F32)).collect();
    let steps = |learner: &mut Learner<Pair>| -> Vec<(f64, f64)> {
        let mut batches = batches.iter().cloned().map(Ok);
        let mut step = || learner.step(&mut batches, |net, x| net.loss(x)).unwrap();
        std::iter::from_fn(|| step().map(|step| (step.loss, step.grad_norm))).collect()
    };
    let (a, b) = (steps(&mut replicas), steps(&mut shards));
    assert_eq!((a.len(), b.len()), (3, 3));
    for ((a, x), (b, y)) in a.iter().zip(&b) {
        assert!((a - b).abs() < 1e-5 && (x - y).abs() < 1e-5, "{a} {b}, {x} {y}");
    }
}

#[test]
fn a_learners_steps_of_shards_are_those_of_replicas() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(sharded_steps, job(2, &folder), 2).unwrap();
}

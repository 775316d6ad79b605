//! `SyncBatchNorm` in real processes: what one process computes on all rows, also with uneven shares
//! and in second derivatives; and how it fails when a rank is missing.

use std::path::PathBuf;

use torchrs::distributed::ReduceOp;
use torchrs::nn::{BatchNorm1d, BatchNorm2d, Forward, Module, Sequential, SyncBatchNorm};
use torchrs::{Dtype, Tensor, autograd, catch, multiprocessing};

use super::job::Job;

fn close(got: &Tensor, want: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    for (a, b) in got.to_vec::<f64>().iter().zip(want.to_vec::<f64>()) {
        assert!((a - b).abs() <= tolerance, "{what}: {got:?}, not {want:?}");
    }
}

/// Rows of each of three ranks; the last has none.
const SHARES: [usize; 3] = [4, 1, 0];

fn as_one_process(rank: usize, job: Job) {
    let group = job.join(rank);
    torchrs::manual_seed(11);
    let rows = SHARES.iter().sum();
    let (x, c) = (Tensor::randn([rows, 3, 2], Dtype::F64), Tensor::randn([rows, 3, 2], Dtype::F64));
    let mut whole = BatchNorm1d::new(3);
    whole.double();
    torchrs::no_grad(|| {
        _ = whole.weight.as_ref().unwrap().copy_(&Tensor::from([0.5f64, -2.0, 1.5]));
    });
    let shared = SyncBatchNorm::convert_sync_batchnorm(whole.deep_copy(), Some(&group));
    assert!(
        shared.repr().starts_with("SyncBatchNorm(3,") && whole.repr().starts_with("BatchNorm1d")
    );
    let (start, share) = (SHARES[..rank].iter().sum::<usize>(), SHARES[rank]);
    let mine = |t: &Tensor| t.narrow(0, start, share);
    let weight = |norm: &BatchNorm1d| norm.weight.as_ref().unwrap().tensor().clone();
    for _ in 0..2 {
        let all = x.detach().requires_grad_(true);
        let want = whole.forward(&all);
        let own = mine(&x).clone_contiguous().requires_grad_(true);
        let got = shared.forward(&own);
        close(&got, &mine(&want), 1e-12, "output");
        let twice = |y: &Tensor, x: &Tensor, c: &Tensor| {
            let grads =
                autograd::grad(&[&(y * c).sum()], &[x], &[None], autograd::GraphMode::Create);
            let dx = grads.into_iter().next().flatten().unwrap();
            let second =
                autograd::grad(&[&dx.sin().sum()], &[x], &[None], autograd::GraphMode::Free);
            (dx, second.into_iter().next().flatten().unwrap())
        };
        let (dx, ddx) = twice(&want, &all, &c);
        let (own_dx, own_ddx) = twice(&got, &own, &mine(&c));
        close(&own_dx, &mine(&dx), 1e-12, "gradient");
        close(&own_ddx, &mine(&ddx), 1e-10, "second gradient");
    }
    // First derivatives without a graph, and those of weight and bias.
    let (all, own) = (x.detach().requires_grad_(true), mine(&x).detach().requires_grad_(true));
    (whole.forward(&all) * &c).sum().backward();
    (shared.forward(&own) * mine(&c)).sum().backward();
    close(&own.grad().unwrap(), &mine(&all.grad().unwrap()), 1e-12, "gradient");
    let total = weight(&shared).grad().unwrap();
    group.all_reduce(&total, ReduceOp::Sum).unwrap();
    close(&total, &weight(&whole).grad().unwrap(), 1e-12, "weight's gradient");
    for (name, want) in whole.state_dict().iter() {
        close(&shared.state_dict()[name], want, 1e-12, name);
    }
    // In evaluation nobody waits for anybody.
    shared.eval();
    whole.eval();
    if rank == 0 {
        close(&shared.forward(&mine(&x)), &mine(&whole.forward(&x)), 1e-12, "evaluated");
    }
    group.barrier().unwrap();
}

#[test]
fn ranks_with_different_shares_compute_what_one_process_does() {
    multiprocessing::spawn(as_one_process, Job::new(3, PathBuf::new()), 3).unwrap();
}

fn half(rank: usize, job: Job) {
    let _group = job.join(rank);
    let x = Tensor::arange(0.0, 16.0, 1.0, Dtype::BF16).reshape([4, 2, 2]);
    let plain = BatchNorm1d::new(2);
    let want = plain.forward(&x);
    let own = x.narrow(0, 2 * rank, 2).clone_contiguous().requires_grad_(true);
    let shared = SyncBatchNorm::new(2);
    let got = shared.forward(&own);
    assert_eq!(got.dtype(), Dtype::BF16);
    close(&got, &want.narrow(0, 2 * rank, 2), 1e-2, "output");
    got.sum().backward();
    assert_eq!(own.grad().unwrap().dtype(), Dtype::BF16);
}

#[test]
fn half_types_are_computed_in_f32() {
    multiprocessing::spawn(half, Job::new(2, PathBuf::new()), 2).unwrap();
}

fn one_is_missing(rank: usize, job: Job) {
    let group = job.join(rank);
    group.barrier().unwrap();
    if rank == 1 {
        panic!("bad sample");
    }
    let net = Sequential::new().append(BatchNorm2d::new(2));
    let net = SyncBatchNorm::convert_sync_batchnorm(net, None);
    let error = catch(|| net.forward(&Tensor::ones([1, 2, 3, 3], Dtype::F32)));
    std::fs::write(&job.out, error.unwrap_err().to_string()).unwrap();
}

#[test]
fn a_missing_rank_is_an_error_of_forward() {
    let dir = tempfile::tempdir().unwrap();
    let job = Job::new(2, dir.path().join("seen"));
    let context = multiprocessing::start_processes(one_is_missing, job.clone(), 2).unwrap();
    for process in context.processes() {
        process.wait_timeout(std::time::Duration::from_secs(60)).expect("it ends by itself");
    }
    let seen = std::fs::read_to_string(&job.out).unwrap();
    assert!(seen.contains("rank 1"), "{seen}");
}

#[test]
fn without_a_group_it_is_a_plain_batch_norm() {
    let x = Tensor::randn([5, 3], Dtype::F64);
    let (mut shared, mut plain) = (SyncBatchNorm::new(3), BatchNorm1d::new(3));
    shared.double();
    plain.double();
    close(&shared.forward(&x), &plain.forward(&x), 0.0, "output");
    let error = catch(|| shared.forward(&Tensor::ones([3], Dtype::F64))).unwrap_err().to_string();
    assert!(error.contains("SyncBatchNorm") && error.contains("[3]"), "{error}");
}

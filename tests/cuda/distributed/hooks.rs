//! Communication hooks on GPUs: what they promise on the CPU, and nothing waits for a GPU.

use torchrs::distributed::DistributedDataParallel;
use torchrs::distributed::comm_hooks::{PowerSgd, PowerSgdOptions, fp16_compress_wrapper};
use torchrs::nn::{Forward, Linear, Module, Sequential};
use torchrs::{Dtype, Result, Tensor, cuda};

use super::checks;
use super::job::{ADVERSARY, gpu, join_job, run, run_with};

fn averages(_: ()) -> Result<()> {
    let group = join_job()?;
    checks::averages(&group, gpu())?;
    checks::runs_beside_backward(&group, gpu())?;
    checks::keeps_the_order_of_collectives(&group, gpu())
}

#[test]
fn hooks_average_gradients_beside_backward() {
    run_with(2, [&[(ADVERSARY, "21")], &[]], averages);
}

fn approximates(_: ()) -> Result<()> {
    let group = join_job()?;
    checks::approximates(&group, gpu())?;
    checks::feeds_errors_back(&group, gpu())
}

#[test]
fn power_sgd_approximates_the_mean() {
    run(2, approximates);
}

/// The host never waits for the GPU, whatever the hook.
fn never_waits(_: ()) -> Result<()> {
    let group = join_job()?;
    let mut model = Sequential::new().append(Linear::new(32, 32)).append(Linear::new(32, 32));
    model.to_device(gpu());
    let model = DistributedDataParallel::new(model, &group)?;
    let options =
        PowerSgdOptions { start_iter: 0, matrix_approximation_rank: 2, ..Default::default() };
    model.register_comm_hook(fp16_compress_wrapper(PowerSgd::new(options)?))?;
    let x = Tensor::ones([4, 32], (Dtype::F32, gpu()));
    let step = || {
        let y = model.forward(&x).sum();
        model.zero_grad();
        y.backward();
    };
    step();
    let before = cuda::synchronisations();
    step();
    assert_eq!(cuda::synchronisations(), before);
    Ok(())
}

#[test]
fn hooks_do_not_wait_for_the_gpu() {
    run(2, never_waits);
}

fn wrong_shape(_: ()) -> Result<()> {
    checks::refuses_a_wrong_result(&join_job()?, gpu(), false)
}

fn wrong_dtype(_: ()) -> Result<()> {
    checks::refuses_a_wrong_result(&join_job()?, gpu(), true)
}

fn one_fails(_: ()) -> Result<()> {
    checks::fails_on_one_rank(&join_job()?, gpu())
}

/// FAULTS row 33 on GPUs.
#[test]
fn a_hook_that_gives_a_wrong_shape_or_dtype_is_named() {
    run(2, wrong_shape);
    run(2, wrong_dtype);
}

#[test]
fn a_hook_that_fails_on_one_rank_ends_the_others_backward() {
    run(2, one_fails);
}

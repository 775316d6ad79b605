//! Collectives on GPUs through which gradients pass.

use torchrs::Result;

use super::functional_checks;
use super::job::{ADVERSARY, gpu, join_job, run, run_with};

fn differentiates(_: ()) -> Result<()> {
    functional_checks::derivatives_are_those_of_one_process(&join_job()?, gpu())
}

#[test]
fn derivatives_over_gpus_are_those_of_one_process() {
    run(1, differentiates);
    run(2, differentiates);
    run_with(3, [&[(ADVERSARY, "3")], &[]], differentiates);
}

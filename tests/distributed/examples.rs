//! The examples of one idea each: with two workers they learn what they are to learn, by their own measure. Each is of
//! fewer than 80 lines.

use std::fs;
use std::process::Command;

use crate::train_program::{build, programs};

const EXAMPLES: [&str; 10] = [
    "autograd_function",
    "cartpole",
    "diffusion",
    "finetune_gpt2",
    "gan",
    "gradient_penalty",
    "local_sgd",
    "mixture_of_experts",
    "own_dataset",
    "text_classification",
];

#[test]
fn examples_learn_with_two_workers() {
    let (launcher, train) = programs();
    build(&EXAMPLES.map(|name| ["--example", name]).concat());
    for name in EXAMPLES {
        let source = format!("{}/examples/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        let lines = fs::read_to_string(source).unwrap().lines().count();
        assert!(lines < 80, "{name}: {lines} lines");
        let mut job = Command::new(launcher);
        job.args(["--nproc", "2"]).arg(train.with_file_name(name));
        let output = job.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
        assert!(!output.stdout.is_empty(), "{name} says what it has learned");
    }
}

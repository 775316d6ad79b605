//! `torchrs-warm` as a user runs it, where it has nothing to compile.

use std::process::{Command, Output};

fn warm(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchrs-warm"));
    for name in ["TORCHRS_SIMULATE_GPUS", "TORCHRS_KERNEL_CACHE", "TORCHRS_KERNEL_PACK"] {
        command.env_remove(name);
    }
    command.args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn refused(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = warm(arguments, variables);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(output.stdout.is_empty());
    text
}

#[test]
fn models_with_lists_are_listed() {
    let output = warm(&["--list"], &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(["gpt2", "llama", "bert", "resnet50"].iter().all(|name| text.contains(name)), "{text}");
}

#[test]
fn what_is_misspelt_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let cache = [("TORCHRS_KERNEL_CACHE", folder.path().to_str().unwrap())];
    let text = refused(&["--architectures", "hopper"], &cache);
    assert!(text.contains("`hopper` is not an architecture such as sm_80"), "{text}");
    let text = refused(&["--architectures", "sm_90a", "--models", "gtp2"], &cache);
    assert!(text.contains("there is no list for gtp2; known: gpt2"), "{text}");
    let text = refused(&["--architectures", "sm_90a"], &[("TORCHRS_KERNEL_CACHE", "")]);
    assert!(text.contains("TORCHRS_KERNEL_CACHE"), "{text}");
}

#[test]
fn without_a_compiler_the_error_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let variables = [("TORCHRS_CUDA_PATH", path), ("TORCHRS_KERNEL_CACHE", path)];
    let text = refused(&["--architectures", "sm_90a"], &variables);
    assert!(text.starts_with("torchrs doctor --warm: ") && text.contains(path), "{text}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}

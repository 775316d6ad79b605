//! Tests inside the crate on a simulated GPU: each starts itself again in a process that has one.

use std::env;
use std::process::Command;

use crate::loading::library::{SIMULATE, SIMULATED_LIBRARY, simulated_path};

/// The test that this process was started for.
const INSIDE: &str = "TORCHRS_TEST_INSIDE";

/// Runs `body`, the body of the test of this path within the crate, where there is a simulated GPU.
pub fn on_gpu(test: &str, body: fn()) {
    on_gpu_with(test, &[], body);
}

/// [`on_gpu`] with these variables.
pub fn on_gpu_with(test: &str, variables: &[(&str, &str)], body: fn()) {
    if env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return body();
    }
    let Some(library) = simulated_path() else {
        return println!("skipped: the simulated GPU is not beside this test");
    };
    let executable = env::current_exe().unwrap();
    // Where tests of other programs keep their kernels, too.
    let cache = executable.ancestors().nth(3).expect("target/profile/deps").join("tmp");
    let mut command = Command::new(&executable);
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(INSIDE, test).env(SIMULATE, "1").env(SIMULATED_LIBRARY, library);
    command.envs(variables.iter().copied());
    let output = command.env("TORCHRS_KERNEL_CACHE", cache).output().unwrap();
    let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    assert!(output.status.success() && text[0].contains("1 passed"), "{}\n{}", text[0], text[1]);
    print!("{}", text[0]);
}

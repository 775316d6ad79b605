//! The program of `torchrs new`, which is an example of this repository too, so that it builds. A project outside it:
//! `tools/checks/check-package`.

use std::process::Command;

use crate::train_program::{build, programs};

#[test]
fn the_program_of_a_new_project_learns_with_two_workers() {
    let (launcher, train) = programs();
    build(&["--example", "new_project"]);
    let output = Command::new(launcher)
        .args(["--nproc", "2"])
        .arg(train.with_file_name("new_project"))
        .output()
        .unwrap();
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{text}{errors}");
    let last = text.lines().rfind(|line| line.contains("accuracy")).unwrap_or_default();
    let accuracy = last.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    assert!(accuracy.is_some_and(|accuracy| accuracy > 0.93), "{text}");
}

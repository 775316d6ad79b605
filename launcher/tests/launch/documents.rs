//! The completions and the man page that the launcher prints of its own options.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::job::{LAUNCHER, run};

/// What the launcher prints with `args`, whatever torchrun's variables say.
fn printed(args: &[&str]) -> String {
    let mut command = Command::new(LAUNCHER);
    command.args(args).env("PET_NNODES", "2").env("TORCHRS_SIMULATE_GPUS", "1");
    let done = run(command);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{args:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn every_shell_is_told_every_option() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["--completions", shell]);
        for option in ["nproc", "simulate-gpus", "max-restarts", "log-dir", "completions", "man"] {
            assert!(script.contains(option), "{shell}: {option}");
        }
        assert!(script.contains("torchrs-launch"), "{shell}");
    }
}

#[test]
fn bash_completes_an_option() {
    let launcher = std::path::Path::new(LAUNCHER);
    let script = "source <(torchrs-launch --completions bash)
        COMP_WORDS=(torchrs-launch --no-); COMP_CWORD=1
        $(complete -p torchrs-launch | sed 's/.*-F \\([^ ]*\\).*/\\1/') torchrs-launch --no- torchrs-launch
        echo ${COMPREPLY[@]}";
    let path =
        format!("{}:{}", launcher.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let out = Command::new("bash").args(["-c", script]).env("PATH", path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "--no-build\n", "{out:?}");
}

#[test]
fn the_man_page_has_every_option() {
    let page = printed(&["--man"]);
    assert!(page.contains(".TH torchrs-launch 1"), "{page}");
    assert!(page.contains("torchrs\\-launch \\- Start PROGRAM"), "{page}");
    for option in ["nproc", "simulate\\-gpus", "max\\-restarts", "grace", "man"] {
        assert!(page.contains(&format!("\\fB\\-\\-{option}\\fR")), "{option}");
    }
}

#[test]
fn a_document_is_all_that_is_asked_for() {
    for args in [&["--man", "train"][..], &["--man", "--nproc", "2"], &["--completions", "csh"]] {
        let mut command = Command::new(LAUNCHER);
        command.args(args);
        let done = run(command);
        assert_eq!((done.code, done.stdout.len()), (2, 0), "{args:?}");
    }
    let mut command = Command::new(LAUNCHER);
    command.args(["--no-build", "echo", "--man"]);
    assert_eq!(run(command).lines(), ["--man"]);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut command = Command::new(LAUNCHER);
    command.arg("--man").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(said, "");
}

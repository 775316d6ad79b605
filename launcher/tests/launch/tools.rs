//! `torchrs new`, `torchrs doctor` and `torchrs ckpt`, as a user runs them.

use std::process::{Command, Output};

fn torchrs(arguments: &[&str], folder: &std::path::Path) -> Output {
    let torchrs = env!("CARGO_BIN_EXE_torchrs");
    Command::new(torchrs).args(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn a_project_is_made_and_what_is_there_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let made = torchrs(&["new", "my-net"], folder.path());
    let text = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(
        text.contains("cd my-net") && text.contains("torchrs-launch --nproc 2 my-net"),
        "{text}"
    );
    assert!(folder.path().join("my-net/src/main.rs").is_file());
    for (name, part) in [("my-net", "not an empty folder"), ("1", "begins with a letter")] {
        let refused = torchrs(&["new", name], folder.path());
        let why = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(why.starts_with("torchrs new: PATH") && why.contains(part), "{name}: {why}");
    }
}

#[test]
fn doctor_reports_for_people_and_for_programs() {
    let here = std::path::Path::new(".");
    let (text, json) = (torchrs(&["doctor"], here), torchrs(&["doctor", "--json"], here));
    let lines = String::from_utf8(text.stdout).unwrap();
    for subject in ["processor", "memory", "huge pages", "open files", "clock", "libcuda", "cargo"]
    {
        assert!(lines.contains(subject), "{subject}: {lines}");
    }
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["exit_code"], json.status.code().unwrap());
    assert_eq!(text.status.code(), json.status.code());
    assert!(report["hosts"][0]["findings"].as_array().unwrap().len() > 15, "{report}");
}

#[test]
fn ckpt_becomes_the_program_beside_it_or_on_the_path() {
    let folder = tempfile::tempdir().unwrap();
    // Beside a copy, as the real one may lie beside the one under test.
    let torchrs = folder.path().join("torchrs");
    std::fs::copy(env!("CARGO_BIN_EXE_torchrs"), &torchrs).unwrap();
    let run = |path: &std::path::Path, arguments: &[&str]| {
        Command::new(&torchrs).arg("ckpt").args(arguments).env("PATH", path).output().unwrap()
    };
    let none = run(std::path::Path::new("/none"), &["verify", "x"]);
    let why = String::from_utf8(none.stderr).unwrap();
    assert_eq!(none.status.code(), Some(127));
    assert!(why.contains("`cargo install --path crates/ckpt` installs it"), "{why}");
    let program = |folder: &std::path::Path, says: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::create_dir_all(folder).unwrap();
        let path = folder.join("torchrs-ckpt");
        std::fs::write(&path, format!("#!/bin/sh\necho {says} \"$@\"\nexit 1\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let bin = folder.path().join("bin");
    program(&bin, "path");
    let found = run(&bin, &["inspect", "--json", "a b"]);
    assert_eq!(String::from_utf8(found.stdout).unwrap(), "path inspect --json a b\n");
    assert_eq!(found.status.code(), Some(1));
    program(folder.path(), "beside");
    let help = run(&bin, &["--help"]);
    assert_eq!(String::from_utf8(help.stdout).unwrap(), "beside --help\n");
}

//! PROGRAM as a target of a cargo workspace, and a terminal at the other end.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};
use nix::unistd::read;

use crate::job::{LAUNCHER, run};

/// A package `demo` with an example `hello`, a binary `tool`, and a name that PATH has too.
fn workspace(folder: &Path) {
    let manifest = "[package]\nname = \"demo\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
                    [profile.release]\nopt-level = 0\ndebug = false\n[workspace]\n";
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let files = [
        ("src/lib.rs", ""),
        ("src/bin/tool.rs", "fn main() { println!(\"tool\"); }"),
        ("examples/true.rs", "fn main() { println!(\"mine\"); }"),
        ("examples/broken.rs", "fn main() { let x: u8 = \"\"; }"),
        ("deep/er/note", ""),
    ];
    for (name, text) in files {
        fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }
}

#[test]
fn a_target_of_the_workspace_is_built_and_wins_over_path() {
    let folder = tempfile::tempdir().unwrap();
    workspace(folder.path());
    let launch = |options: &[&str]| {
        let mut command = Command::new(LAUNCHER);
        command.current_dir(folder.path().join("deep/er")).args(["--nproc", "2"]).args(options);
        command
            .env("CARGO_TARGET_DIR", folder.path().join("target"))
            .env("CARGO_NET_OFFLINE", "true");
        run(command)
    };
    let sorted = |options: &[&str]| {
        let mut lines = launch(options).lines();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&["tool", "--nproc", "9"]), ["[rank0]: tool", "[rank1]: tool"]);
    assert_eq!(sorted(&["true"]), ["[rank0]: mine", "[rank1]: mine"]);
    assert_eq!(sorted(&["--no-build", "true"]), Vec::<String>::new());
    let broken = launch(&["broken"]);
    assert_eq!(broken.code, 101);
    broken.says("mismatched types").says("cargo could not build example `broken`");
    let missing = launch(&["no-such-target"]);
    assert_eq!(missing.code, 127);
    missing.says("(it has: broken, tool, true)");
}

/// Runs the launcher on a terminal of 100 columns; what a person sees.
fn on_terminal(nproc: &str, script: &str) -> String {
    let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let slave = || Stdio::from(pty.slave.as_fd().try_clone_to_owned().unwrap());
    let mut command = Command::new(LAUNCHER);
    command.args(["--no-build", "--nproc", nproc, "sh", "-c", script]);
    let mut child = command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
    drop(command);
    let pty = (pty.master, drop(pty.slave)).0;
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    // The last writer's end of a terminal is an error, not an end of file.
    while let Ok(count @ 1..) = read(pty.as_fd(), &mut buffer) {
        seen.extend_from_slice(&buffer[..count]);
    }
    assert!(pty.as_raw_fd() > 2 && child.wait().unwrap().success());
    String::from_utf8(seen).unwrap()
}

#[test]
fn a_lone_worker_has_the_terminal_to_itself() {
    assert_eq!(
        on_terminal("1", "test -t 1 && test -t 2 && printf 'at 10%%\\rat 20%%\\n'"),
        "at 10%\rat 20%\r\n"
    );
}

#[test]
fn several_workers_share_a_terminal_and_may_draw_bars() {
    let script = "[ $RANK = 1 ] && exit
        test -t 1 && exit 1
        echo $TORCHRS_TERMINAL $COLUMNS $LINES
        printf 'at 10%%\\r'; sleep 0.05; printf 'at 20%%\\r'; sleep 0.05; echo";
    let seen = on_terminal("2", script);
    let bar = "[rank0]: at 10%\r\u{1b}[K[rank0]: at 20%\r\r\n";
    assert_eq!(seen, format!("[rank0]: stdout,stderr 91 30\r\n{bar}"));
}

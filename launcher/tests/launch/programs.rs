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

/// A package `mine` in `folder` that uses the one in `torchrs`, with a program `show` that prints where the
/// simulated GPU's library is.
fn uses_torchrs(folder: &Path, torchrs: &Path) {
    let manifest = format!(
        "[package]\nname = \"mine\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n\
         [dependencies]\ntorchrs = {{ path = \"{}\" }}\n[profile.release]\nopt-level = 0\n",
        torchrs.display()
    );
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let show = "fn main() { println!(\"{}\", env!(\"CARGO_PKG_NAME\")); println!(\"{}\", \
                std::env::var(\"TORCHRS_SIMULATED_GPU_LIBRARY\").unwrap()); }";
    fs::write(folder.join("src/main.rs"), show).unwrap();
}

#[test]
fn the_simulated_gpu_is_built_in_a_users_own_workspace() {
    let folder = tempfile::tempdir().unwrap();
    let (mine, torchrs) = (folder.path().join("mine"), folder.path().join("torchrs"));
    uses_torchrs(&mine, &torchrs);
    // A small stand-in for the real packages, which take minutes; it is a workspace of its own, as they are.
    let package = |name: &str, more: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2021\"\n{more}")
    };
    let library = "[lib]\nname = \"torchrs_simulated_gpu\"\ncrate-type = [\"cdylib\", \"rlib\"]\n";
    for (path, text) in [
        ("Cargo.toml", package("torchrs", "[workspace]\nmembers = [\"crates/simulator\"]\n")),
        ("src/lib.rs", String::new()),
        ("crates/simulator/Cargo.toml", package("torchrs-simulated-gpu", library)),
        ("crates/simulator/src/lib.rs", String::new()),
    ] {
        fs::create_dir_all(torchrs.join(path).parent().unwrap()).unwrap();
        fs::write(torchrs.join(path), text).unwrap();
    }
    let launch = |program: &str| {
        let mut command = Command::new(LAUNCHER);
        command.current_dir(mine.join("src")).args(["--simulate-gpus", "2", program]);
        command.env_remove("CARGO_TARGET_DIR").env("CARGO_NET_OFFLINE", "true");
        run(command)
    };
    let built = mine.join("target/release/libtorchrs_simulated_gpu.so").canonicalize();
    assert!(built.is_err());
    let done = launch("mine");
    let built = mine.join("target/release/libtorchrs_simulated_gpu.so").canonicalize();
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(done.lines(), ["mine".to_owned(), built.unwrap().display().to_string()]);
    // A copy without it, as from a registry; the launcher's own folder may have one.
    fs::remove_dir_all(torchrs.join("crates")).unwrap();
    fs::write(torchrs.join("Cargo.toml"), package("torchrs", "[workspace]\n")).unwrap();
    fs::remove_dir_all(mine.join("target")).unwrap();
    let alone = folder.path().join("alone/torchrs-launch");
    fs::create_dir(alone.parent().unwrap()).unwrap();
    // By another process: a descriptor that another test's child inherits would keep it from running.
    assert!(Command::new("cp").arg(LAUNCHER).arg(&alone).status().unwrap().success());
    let mut command = Command::new(&alone);
    command.current_dir(&mine).args(["--simulate-gpus", "2", "mine"]);
    command.env_remove("CARGO_TARGET_DIR").env("CARGO_NET_OFFLINE", "true");
    let done = run(command);
    assert_eq!((done.code, done.stdout.len()), (1, 0), "{}", done.stderr);
    done.says("uses torchrs by path or by git").says("a registry's copy has none");
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

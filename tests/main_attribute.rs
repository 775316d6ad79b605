//! `#[torchrs::main]` and `init` in a program that owns its `main` (no test harness): exit codes,
//! the error report, and how the process is bound to the one that started it. The program runs
//! itself with `TORCHRS_TEST_ROLE` set, to play the worker.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Command, Output, Stdio};

use torchrs::multiprocessing::report::{ErrorRecord, Kind};
use torchrs::multiprocessing::{self, Process, channel};
use torchrs::{Dtype, Error, Result, Tensor};

const ROLE: &str = "TORCHRS_TEST_ROLE";

#[torchrs::main]
fn main() -> Result<()> {
    match env::var(ROLE).as_deref() {
        Ok("succeed") => Ok(()),
        Ok("fail") => Err(fs::read("/no/such/file")
            .map_err(|e| Error::os("open the dataset", e))
            .unwrap_err()),
        Ok("panic") => panic!("loss is NaN"),
        Ok("misuse") => {
            let _ = &Tensor::zeros([2], Dtype::F32) + &Tensor::zeros([3], Dtype::F32);
            Ok(())
        }
        Ok("print") => loop {
            println!("a line");
        },
        Ok("print caught") => loop {
            let _ = torchrs::catch(|| eprintln!("a line"));
        },
        Ok("exit codes") => {
            let child =
                Process::spawn(|_: ()| -> () { process::exit(exit_code_of_a_shell()) }, ())?;
            println!("{} {}", child.wait()?.shell_code(), exit_code_of_a_shell());
            Ok(())
        }
        Ok("threads") => {
            println!("{}", env::var("OMP_NUM_THREADS").unwrap_or_default());
            Ok(())
        }
        Ok("connections") => {
            println!("{}", env::var("CUDA_DEVICE_MAX_CONNECTIONS").unwrap_or_default());
            Ok(())
        }
        Ok("sleep") => {
            println!("up");
            loop {
                std::thread::park();
            }
        }
        Ok(other) => panic!("no role {other}"),
        Err(_) => tests(),
    }
}

/// What a test harness understands: `--list`, and a name to filter by.
fn tests() -> Result<()> {
    let all: [(&str, fn()); 11] = [
        ("success_is_exit_code_0", success_is_exit_code_0),
        ("an_error_is_printed_recorded_and_exit_code_1", an_error),
        ("a_panic_is_recorded_without_opt_in", a_panic),
        ("a_misuse_shows_its_backtrace_when_asked", a_misuse),
        ("a_closed_pipe_ends_the_program_quietly", a_closed_pipe),
        ("children_are_waited_for_whatever_was_inherited", inherited_signals),
        ("children_start_from_main", children_start_from_main),
        ("cores_are_shared", cores_are_shared),
        ("streams_get_hardware_queues", streams_get_hardware_queues),
        ("a_worker_behind_a_shell_is_bound_to_its_launcher", behind_a_shell),
        ("unusable_variables_are_named", unusable_variables),
    ];
    let arguments: Vec<String> = env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|a| a == flag);
    let names: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-') && *a != "terse").collect();
    for (name, test) in all {
        let named = names
            .iter()
            .any(|n| if has("--exact") { *n == name } else { name.contains(n.as_str()) });
        if has("--ignored") || !(names.is_empty() || named) {
            continue;
        }
        if has("--list") {
            println!("{name}: test");
            continue;
        }
        test();
        println!("test {name} ... ok");
    }
    Ok(())
}

/// This program in another role.
fn worker(role: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(ROLE, role).env_remove("OMP_NUM_THREADS").env_remove("RUST_BACKTRACE");
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn success_is_exit_code_0() {
    let output = worker("succeed").output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

fn an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = worker("fail").env("TORCHELASTIC_ERROR_FILE", file.path()).output().unwrap();
    let expected = "open the dataset: No such file or directory (os error 2)";
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), format!("Error: {expected}\n"));
    let record = ErrorRecord::read(file.path()).unwrap().unwrap();
    assert_eq!((record.kind, record.text()), (Kind::Error, expected));
}

fn a_panic() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = worker("panic");
    let output =
        command.env("TORCHELASTIC_ERROR_FILE", file.path()).env("RANK", "5").output().unwrap();
    assert_eq!(output.status.code(), Some(101));
    assert!(stderr(&output).contains("loss is NaN"), "{}", stderr(&output));
    let record = ErrorRecord::read(file.path()).unwrap().unwrap();
    assert_eq!((record.kind, record.rank), (Kind::Panic, Some(5)));
    assert!(record.text().ends_with("loss is NaN"), "{}", record.text());
    assert!(record.backtrace().contains("main_attribute"), "{}", record.backtrace());
}

fn a_misuse() {
    let note = "RUST_BACKTRACE=1";
    let output = worker("misuse").output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(101));
    assert!(text.contains("[2] and [3]") && text.contains(note), "{text}");
    assert!(!text.contains("stack backtrace"), "{text}");
    let output = worker("misuse").env("RUST_BACKTRACE", "1").output().unwrap();
    let text = stderr(&output);
    assert!(text.contains("[2] and [3]") && !text.contains(note), "{text}");
    assert!(
        text.contains("stack backtrace:\n   0: ") && text.contains("main_attribute::"),
        "{text}"
    );
}

/// The writing end of a pipe that nobody reads.
fn closed_pipe() -> OwnedFd {
    std::io::pipe().unwrap().1.into()
}

fn a_closed_pipe() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut prints = worker("print");
    prints.env("TORCHELASTIC_ERROR_FILE", file.path()).stderr(Stdio::piped());
    let output = prints.stdout(closed_pipe()).output().unwrap();
    assert_eq!(stderr(&output), "");
    assert_eq!(output.status.signal(), Some(libc::SIGPIPE));
    assert_eq!(ErrorRecord::read(file.path()).unwrap(), None);
    let status = worker("print caught").stderr(closed_pipe()).status().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGPIPE));
    // Also with the signal ignored and blocked, as a daemon may leave it.
    let status = inheriting(worker("print"), libc::SIGPIPE).stdout(closed_pipe()).status().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGPIPE));
    // A message that nobody hears does not make it an abort.
    let status = worker("misuse").stderr(closed_pipe()).status().unwrap();
    assert_eq!(status.code(), Some(101));
}

/// `command`, started with `signal` ignored and blocked.
fn inheriting(mut command: Command, signal: i32) -> Command {
    let leave = move || {
        // SAFETY: system calls on a set of its own.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, signal);
            libc::signal(signal, libc::SIG_IGN);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: nothing but system calls between fork and exec.
    unsafe { command.pre_exec(leave) };
    command
}

/// What a child that exits with 7 is seen to exit with.
fn exit_code_of_a_shell() -> i32 {
    Command::new("sh").args(["-c", "exit 7"]).status().ok().and_then(|s| s.code()).unwrap_or(-1)
}

fn inherited_signals() {
    for signal in
        [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGUSR1]
    {
        let output = inheriting(worker("exit codes"), signal).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "7 7\n", "signal {signal}");
    }
}

fn add(rank: usize, sums: multiprocessing::Sender<usize>) -> Result<()> {
    sums.send(&(rank + 10))
}

fn children_start_from_main() {
    let (sender, receiver) = channel().unwrap();
    multiprocessing::spawn(add, sender, 2).unwrap();
    assert_eq!(receiver.recv().unwrap() + receiver.recv().unwrap(), 21);
}

fn streams_get_hardware_queues() {
    let connections = |set: Option<&str>| {
        let name = "CUDA_DEVICE_MAX_CONNECTIONS";
        let mut worker = worker("connections");
        worker.env_remove(name).envs(set.map(|set| (name, set)));
        String::from_utf8(worker.output().unwrap().stdout).unwrap()
    };
    assert_eq!((connections(None), connections(Some("1"))), ("32\n".into(), "1\n".into()));
}

fn cores_are_shared() {
    let threads = |processes: &str| {
        let output = worker("threads").env("LOCAL_WORLD_SIZE", processes).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(threads("100000"), "1\n");
    let cores = std::thread::available_parallelism().unwrap();
    assert_eq!(threads("1"), format!("{cores}\n"));
}

/// The launcher here is `cat`, which ends when its input does.
fn behind_a_shell() {
    let mut launcher = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let mut shell = worker("sleep");
    let program = shell.get_program().to_owned();
    shell = Command::new("sh");
    shell.arg("-c").arg("\"$0\"; exit 7").arg(program).env(ROLE, "sleep");
    shell.env("TORCHRS_PARENT_PID", launcher.id().to_string()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    // The shell only goes on once the worker has gone.
    assert_eq!(shell.wait().unwrap().code(), Some(7));
}

fn unusable_variables() {
    for (name, value) in
        [("TORCHRS_PARENT_PID", "x"), ("TORCHRS_CHILD", "3"), ("TORCHRS_STORE_FD", "")]
    {
        let output = worker("succeed").env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(stderr(&output).starts_with(&format!("Error: {name}: ")), "{}", stderr(&output));
    }
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let output =
        worker("succeed").env("TORCHRS_PARENT_PID", gone.id().to_string()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is gone"), "{}", stderr(&output));
    // The right parent, for comparison.
    let own = process::id().to_string();
    assert!(worker("succeed").env("TORCHRS_PARENT_PID", own).status().unwrap().success());
}

//! `--hosts`: a launcher that starts those of other hosts. The remote shell is a script, which forgets the
//! environment as a login does, and the hosts are this machine's loopback.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::hosts::port;
use crate::job::{Done, Job, LAUNCHER, eventually, living, run, start};

/// What stands for ssh, in a folder of its own.
pub struct Shell {
    folder: tempfile::TempDir,
}

impl Shell {
    /// `hosts` says in shell what is special about some `$host`.
    pub fn new(hosts: &str) -> Shell {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "#!/bin/sh\n\
             host=$1; shift; echo $$ > {}/$host.pid; echo a login greets you; echo from $host >&2\n\
             case $host in\n{hosts}\nnothing-special) ;;\nesac\n\
             # Not exec: a remote shell is a process of its own, and its death is the connection's.\n\
             env -i PATH=\"$PATH\" LAUNCH_TEST_MARK=\"$LAUNCH_TEST_MARK\" HOST=$host sh -c \"$*\"\n",
            folder.path().display()
        );
        let path = folder.path().join("rsh");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Shell { folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("rsh")
    }

    /// The process that stands for the connection to a host.
    fn pid(&self, host: &str) -> Pid {
        let text = fs::read_to_string(self.folder.path().join(format!("{host}.pid"))).unwrap();
        Pid::from_raw(text.trim().parse().unwrap())
    }

    /// A launcher for these hosts, who meet on the loopback.
    fn launcher(&self, hosts: &str, options: &str, script: &str) -> Command {
        let mut command = Command::new(LAUNCHER);
        command.args(["--no-build", "--hosts", hosts, "--ssh"]).arg(self.path());
        command.args(["--rdzv-endpoint", &format!("127.0.0.1:{}", port())]);
        command.args(options.split_whitespace()).args(["sh", "-c", script]);
        command
    }
}

fn sorted(done: &Done) -> Vec<String> {
    let mut lines = done.lines();
    lines.sort();
    lines
}

/// Checks that a report stands there, and once.
#[track_caller]
fn reports_once(done: &Done, what: &str) {
    assert_eq!(done.stderr.matches("the job failed").count(), 1, "{}", done.stderr);
    done.says(what);
}

#[test]
fn one_launcher_starts_those_of_all_hosts() {
    let shell = Shell::new("");
    let script = "echo $RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE $HOST $A $NCCL_X $B $(pwd) $TORCHELASTIC_RUN_ID; echo e$RANK >&2";
    let mut command = shell.launcher("alpha,beta:2", "-x A --run-id r", script);
    command.env("A", "a").env("B", "b").env("NCCL_X", "n").current_dir(shell.folder.path());
    let done = run(command);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let here = shell.folder.path().canonicalize().unwrap();
    let line = |rank: usize, local: usize, group: usize, host: &str| {
        format!("[rank{rank}]: {rank} {local} {group} 3 {host} a n {} r", here.display())
    };
    assert_eq!(
        sorted(&done),
        [line(0, 0, 0, "alpha"), line(1, 0, 1, "beta"), line(2, 1, 1, "beta")]
    );
    for rank in 0..3 {
        done.says(&format!("[rank{rank}]: e{rank}\n"));
    }
    // What a login prints is no output of the job.
    assert!(!done.stderr.contains("from alpha"), "{}", done.stderr);
}

#[test]
fn a_lone_host_and_this_one_need_no_meeting() {
    let shell = Shell::new("");
    let of = |hosts: &str, options: &str| {
        let mut command = Command::new(LAUNCHER);
        command.args(["--no-build", "--hosts", hosts, "--ssh"]).arg(shell.path());
        command.args(options.split_whitespace()).args([
            "sh",
            "-c",
            "echo $RANK of $WORLD_SIZE at ${HOST:-here}",
        ]);
        run(command)
    };
    assert_eq!(of("alpha", "").lines(), ["0 of 1 at alpha"]);
    assert_eq!(of("localhost", "").lines(), ["0 of 1 at here"]);
    assert_eq!(
        sorted(&of("localhost:2", "")),
        ["[rank0]: 0 of 2 at here", "[rank1]: 1 of 2 at here"]
    );
}

#[test]
fn a_hostfile_names_hosts_and_their_workers() {
    let shell = Shell::new("");
    let file = shell.folder.path().join("hosts");
    fs::write(&file, "# two\nalpha slots=2\n\nbeta # one\n").unwrap();
    let mut command = Command::new(LAUNCHER);
    command
        .args(["--no-build", "--rdzv-endpoint", &format!("127.0.0.1:{}", port()), "--hostfile"])
        .arg(file);
    command.args(["sh", "-c", "echo $HOST"]).env("TORCHRS_SSH", shell.path());
    let done = run(command);
    assert_eq!(
        sorted(&done),
        ["[rank0]: alpha", "[rank1]: alpha", "[rank2]: beta"],
        "{}",
        done.stderr
    );
}

#[test]
fn the_token_is_in_no_command_line_and_no_environment() {
    let shell = Shell::new("");
    let (token, file) = ("f00dfacef00dfacef00d", shell.folder.path().join("token"));
    fs::write(&file, token).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let options = format!("--token-file {}", file.display());
    let job = start(shell.launcher("alpha,beta,localhost", &options, "echo there; sleep 100"));
    job.stdout.wait_for("there", 3);
    let pids = living(&job.mark);
    // Front, supervisor, and for each host its shell, front, supervisor, worker; this one has no shell.
    assert!(pids.len() > 12, "{pids:?}");
    for pid in pids {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(token) && !text.contains("TORCHRS_JOB_TOKEN="), "{pid}: {text}");
        }
    }
    job.send(Signal::SIGTERM);
    assert_eq!(job.finish().code, 143);
}

#[test]
fn a_failure_is_reported_once_with_one_exit_code() {
    let shell = Shell::new("");
    let script = "[ $RANK = 2 ] && { echo oh no >&2; exit 7; }; sleep 100";
    let done = run(shell.launcher("alpha,beta:2", "--grace 2", script));
    assert_eq!(done.code, 7, "{}", done.stderr);
    reports_once(&done, "the job failed: rank 2 exited with code 7");
    done.says("oh no");
    assert!(!done.stderr.contains("has the report"), "{}", done.stderr);
}

#[test]
fn signals_reach_the_workers_of_all_hosts() {
    let shell = Shell::new("");
    let script = "trap 'echo usr $RANK' USR1; trap 'echo term $RANK; exit 0' TERM; echo ready; \
                  while :; do sleep 0.05; done";
    let job = start(shell.launcher("alpha,beta,localhost", "", script));
    job.stdout.wait_for("ready", 3);
    job.send(Signal::SIGUSR1);
    job.stdout.wait_for("usr", 3);
    job.send(Signal::SIGTERM);
    let done = job.finish();
    assert_eq!(done.code, 143, "{}", done.stderr);
    let text = String::from_utf8_lossy(&done.stdout);
    (0..3).for_each(|rank| assert!(text.contains(&format!("term {rank}\n")), "{text}"));
    let notices = done.stderr.matches("a second signal kills them at once").count();
    assert_eq!(notices, 1, "{}", done.stderr);
}

#[test]
fn a_second_signal_kills_workers_that_do_not_end() {
    let shell = Shell::new("");
    let job =
        start(shell.launcher("alpha,beta", "", "trap '' INT; echo ready; sleep 100; sleep 100"));
    job.stdout.wait_for("ready", 2);
    job.send(Signal::SIGINT);
    job.stderr.wait_for("a second signal kills them", 1);
    std::thread::sleep(Duration::from_millis(400));
    job.send(Signal::SIGINT);
    let done = job.finish();
    assert_eq!(done.code, 130, "{}", done.stderr);
    assert!(done.took < Duration::from_secs(20), "{:?}", done.took);
}

/// Three hosts whose workers run until they are ended.
fn running(shell: &Shell, hosts: &str, options: &str) -> Job {
    let job = start(shell.launcher(hosts, options, "echo start $WORLD_SIZE; sleep 1000"));
    job.stdout.wait_for("start", hosts.split(',').count());
    job
}

#[test]
fn nothing_outlives_a_launcher_that_is_killed() {
    for which in ["the front", "the supervisor"] {
        let shell = Shell::new("");
        let job = running(&shell, "alpha,beta,localhost", "");
        let victim = if which == "the front" { job.pid() } else { children(job.pid())[0] };
        kill(victim, Signal::SIGKILL).unwrap();
        let mark = job.mark.clone();
        eventually(which, || living(&mark).is_empty());
        assert_eq!(job.finish().code, 137, "{which}");
    }
}

#[test]
fn a_lost_connection_is_a_lost_host() {
    let shell = Shell::new("");
    let job = running(&shell, "alpha,beta", "--grace 1");
    kill(shell.pid("beta"), Signal::SIGKILL).unwrap();
    let done = job.finish();
    assert_eq!(done.code, 1, "{}", done.stderr);
    done.says("beta: its launcher is lost: rsh killed by SIGKILL");
    // By the other's launcher: of a host, or of the leader if that was there.
    done.says("was lost");
    assert!(done.took < Duration::from_secs(15), "{:?}", done.took);
}

#[test]
fn an_elastic_job_goes_on_without_hosts_that_are_lost_or_cannot_be_reached() {
    let shell =
        Shell::new("denied) echo 'x@denied: Permission denied (publickey).' >&2; exit 255;;");
    let end = shell.folder.path().join("end");
    let script = format!(
        "echo start $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT; until [ -e {} ]; do sleep 0.02; done",
        end.display()
    );
    let options = "--nnodes 2:4 --max-restarts 2 --grace 1 --rdzv-conf last_call_timeout=0.3";
    let job = start(shell.launcher("alpha,beta,denied,gamma", options, &script));
    job.stdout.wait_for("start 3 0", 3);
    kill(shell.pid("beta"), Signal::SIGKILL).unwrap();
    job.stdout.wait_for("start 2 1", 2);
    fs::write(&end, "").unwrap();
    let done = job.finish();
    assert_eq!(done.code, 0, "{}", done.stderr);
    done.says("denied: it does not let this user in without a password")
        .says("beta: its launcher is lost");
    done.says("Permission denied (publickey)");
}

#[test]
fn hosts_that_cannot_take_part_are_named_before_anything_starts() {
    let shell = Shell::new(
        "denied) echo 'x@denied: Permission denied (publickey).' >&2; exit 255;;\n\
         unknown) echo 'ssh: Could not resolve hostname unknown: Name or service not known' >&2; exit 255;;\n\
         strange) echo 'welcome to a menu'; sleep 0.1; exit 3;;\n\
         bare) cd /; exec chroot . sh -c 'exec /no/such/torchrs-launch';;",
    );
    for (hosts, options, code, parts) in [
        (
            "alpha,denied,unknown",
            "",
            1,
            &[
                "ssh-copy-id denied",
                "look at --hosts",
                "1 of 3 hosts can be reached, and it needs 3",
            ][..],
        ),
        ("strange,alpha", "", 1, &["strange: rsh exited with code 3", "welcome to a menu"]),
        ("alpha,bare", "", 1, &["bare: ", "is not there", "--remote-launcher"]),
        (
            "alpha,beta",
            "--remote-launcher /no/such/launcher",
            1,
            &["alpha: /no/such/launcher is not there"],
        ),
        ("alpha,denied,unknown", "--nnodes 2:3", 1, &["it needs 2"]),
        ("alpha,beta", "--redirects 7:1,x", 2, &["--redirects"]),
        ("alpha,beta", "--tee 5:3", 2, &["--tee names local rank 5"]),
        ("alpha,beta", "--rdzv-conf a=1", 2, &["`a=1` is not known"]),
    ] {
        let done = run(shell.launcher(hosts, options, "echo started"));
        assert_eq!((done.code, done.stdout.len()), (code, 0), "{hosts} {options}: {}", done.stderr);
        for part in parts {
            done.says(part);
        }
        assert!(done.took < Duration::from_secs(20), "{:?}", done.took);
    }
}

#[test]
fn what_is_missing_on_a_host_is_named_with_it() {
    let shell = Shell::new("");
    let mut nothing = Command::new(LAUNCHER);
    nothing
        .args(["--no-build", "--hosts", "alpha,beta", "--rdzv-endpoint"])
        .arg(format!("127.0.0.1:{}", port()));
    nothing.arg("--ssh").arg(shell.path()).arg("/no/such/program");
    let done = run(nothing);
    assert_eq!((done.code, done.stdout.len()), (127, 0), "{}", done.stderr);
    done.says("cannot run /no/such/program");
    assert!(done.stderr.contains("alpha: ") || done.stderr.contains("beta: "), "{}", done.stderr);
    // A folder that the far end does not find, for it is gone by then.
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    fs::create_dir(&gone).unwrap();
    let shell = Shell::new(&format!("beta) rm -r {};;", gone.display()));
    let mut command = shell.launcher("beta,alpha", "", "echo started");
    command.current_dir(&gone);
    let done = run(command);
    assert_eq!((done.code, done.stdout.len()), (1, 0), "{}", done.stderr);
    // Whichever of them looks first: alpha does not find it any more, either.
    done.says("a: the working folder ").says("is not usable here");
}

#[test]
fn options_that_make_no_sense_with_hosts_are_refused() {
    for (options, part) in [
        ("--hosts a,,b", "write HOST, USER@HOST or HOST:SLOTS"),
        ("--hosts a --hostfile f", "cannot be used with"),
        ("--hostfile /no/such/file", "--hostfile /no/such/file: No such file"),
        ("--hosts a,b --nnodes 3", "asks for 3 hosts at least, and 2 are named"),
        ("--hosts a,b,c --nnodes 2", "--nnodes says 2 hosts, and 3 are named"),
        ("--hosts a,b --node-rank 1", "--node-rank is a single host's"),
        ("--hosts a,b --standalone", "--standalone"),
        ("--hosts a,b --rdzv-conf is_host=1", "is_host"),
        ("--hosts a,b -x NOT_SET_ANYWHERE", "NOT_SET_ANYWHERE`: it is not set here"),
        ("-x A=1", "--export concerns other hosts"),
        ("--ssh rsh", "--ssh concerns other hosts"),
        ("--remote-launcher /x", "--remote-launcher concerns other hosts"),
    ] {
        let mut command = Command::new(LAUNCHER);
        command.args(options.split(' ')).args(["--no-build", "echo", "started"]);
        let done = run(command);
        assert_eq!((done.code, done.stdout.len()), (2, 0), "{options}: {}", done.stderr);
        done.says(part);
    }
    let mut missing = Command::new(LAUNCHER);
    missing.args(["--ssh", "no-such-ssh -v", "--hosts", "a", "--no-build", "echo"]);
    let done = run(missing);
    assert_eq!(done.code, 127);
    done.says("no program `no-such-ssh`").says("--ssh");
}

#[test]
fn much_output_of_several_hosts_arrives_whole() {
    let shell = Shell::new("");
    let script = "seq -f \"$RANK %07.0f xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\" 100000";
    let done = run(shell.launcher("alpha,beta:2", "", script));
    assert_eq!(done.code, 0, "{}", done.stderr);
    let lines = done.lines();
    assert_eq!(lines.len(), 300_000);
    for rank in 0..3 {
        let start = format!("[rank{rank}]: {rank} ");
        let own = lines.iter().filter_map(|line| line.strip_prefix(&start)?.split(' ').next());
        let numbers: Vec<usize> = own.map(|text| text.parse().unwrap()).collect();
        assert!(numbers.iter().copied().eq(1..=100_000), "rank {rank}");
    }
}

/// The children of a process.
fn children(pid: Pid) -> Vec<Pid> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap();
    text.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap())).collect()
}

/// Two hosts that take each other for lost after 3 s of silence.
fn hasty(shell: &Shell) -> Job {
    let mut command = shell.launcher("alpha,beta", "--grace 1", "echo start; sleep 1000");
    command.env("TORCHRS_TEST_SILENT_AFTER_S", "3");
    let job = start(command);
    job.stdout.wait_for("start", 2);
    job
}

#[test]
fn a_host_that_is_silent_is_given_up() {
    let shell = Shell::new("");
    let job = hasty(&shell);
    let front = children(shell.pid("beta"))[0];
    for pid in [&children(front)[..], &[front]].concat() {
        kill(pid, Signal::SIGSTOP).unwrap();
    }
    let done = job.finish();
    assert_eq!(done.code, 1, "{}", done.stderr);
    done.says("beta: its launcher is lost: nothing came from there for 3 s");
    // By the other's launcher: of a host, or of the leader if that was there.
    done.says("was lost");
}

#[test]
fn a_launcher_that_is_silent_is_given_up_by_those_it_has_started() {
    let shell = Shell::new("");
    let job = hasty(&shell);
    let own = [children(job.pid())[0], job.pid()];
    own.iter().for_each(|pid| kill(*pid, Signal::SIGSTOP).unwrap());
    let mark = job.mark.clone();
    eventually("only those that are stopped are left", || living(&mark).len() == own.len());
    own.iter().for_each(|pid| kill(*pid, Signal::SIGCONT).unwrap());
    assert_ne!(job.finish().code, 0);
}

/// The path of the script is all that these tests need of it.
#[test]
fn the_remote_shell_may_have_options() {
    let shell = Shell::new("-v) shift;;");
    let mut command = Command::new(LAUNCHER);
    command.args(["--no-build", "--hosts", "alpha", "--ssh"]);
    let words = |path: &Path| format!("{} -v", path.display());
    command.arg(words(&shell.path())).args(["sh", "-c", "echo there"]);
    assert_eq!(run(command).lines(), ["there"]);
}

//! `examples/train` on several hosts, each a launcher on this machine's loopback, of which some are killed and others
//! come: it goes on from its checkpoint, on the hosts that are there.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::hosts::LONG;
use crate::train_program::{metrics, programs};

/// Steps from one checkpoint to the next.
const SAVE_EVERY: u64 = 10;

/// A host, which is a launcher and all that it has started.
struct Host {
    launcher: Child,
    /// In the environment of each of its processes.
    mark: String,
    said: Arc<Mutex<String>>,
}

impl Host {
    fn start(port: u16, run: &Path, place: usize, options: &[&str]) -> Host {
        let (launcher, train) = programs();
        let mark = format!("ELASTIC_TEST_HOST={}.{port}.{place}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut command = Command::new(launcher);
        command.args(["--nnodes", "2:3", "--rdzv-endpoint", &format!("127.0.0.1:{port}")]);
        command.args(["--rdzv-conf", "last_call_timeout=0.5", "--grace", "5"]).args(options);
        command.arg(train).arg("--run-dir").arg(run).args(["--epochs", "100000", "--seed", "7"]);
        command.args(["--batch-size", "36", "--save-every", &SAVE_EVERY.to_string()]);
        command.args(["--loader-workers", "0"]).env(name, value).stdin(Stdio::null());
        command.env("OMP_NUM_THREADS", "1");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut launcher = command.spawn().expect("the launcher starts");
        let said: Arc<Mutex<String>> = Arc::default();
        keep(launcher.stdout.take().unwrap(), &said);
        keep(launcher.stderr.take().unwrap(), &said);
        Host { launcher, mark, said }
    }

    fn says(&self, part: &str) -> bool {
        self.said.lock().unwrap().contains(part)
    }

    /// Ends all its processes at once.
    fn kill(&mut self) {
        while let pids @ [_, ..] = &living(&self.mark)[..] {
            pids.iter().for_each(|pid| _ = kill(Pid::from_raw(*pid), Signal::SIGKILL));
            let _ = self.launcher.try_wait();
        }
    }

    /// The steps from which rank 0 has gone on here, one after the other.
    fn resumed(&self) -> Vec<u64> {
        let said = self.said.lock().unwrap();
        let steps =
            said.lines().filter_map(|line| line.split_once(" from step ")?.1.trim().parse().ok());
        steps.collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
        let _ = self.launcher.wait();
    }
}

fn keep(mut pipe: impl Read + Send + 'static, said: &Arc<Mutex<String>>) {
    let said = said.clone();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            said.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    });
}

/// The processes that carry a mark, but zombies.
fn living(mark: &str) -> Vec<i32> {
    let wanted = format!("{mark}\0");
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.windows(wanted.len()).any(|window| window == wanted.as_bytes())
    })
    .collect()
}

#[track_caller]
fn eventually(what: &str, hosts: &[Host], condition: impl Fn(&[Host]) -> bool) {
    let start = Instant::now();
    while !condition(hosts) {
        if start.elapsed() > LONG {
            let said = hosts.iter().map(|host| host.said.lock().unwrap().clone());
            panic!("never: {what}\n{}", said.collect::<Vec<_>>().join("\n---\n"));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// The last step that is in a run's metrics.
fn last_step(run: &Path) -> u64 {
    metrics(run).iter().filter_map(|line| line["step"].as_u64()).max().unwrap_or(0)
}

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// How often rank 0 has gone on from a checkpoint, on any of these hosts, and from which step the last time.
fn resumed(hosts: &[Host]) -> (usize, u64) {
    let all: Vec<u64> = hosts.iter().flat_map(Host::resumed).collect();
    (all.len(), all.iter().copied().max().unwrap_or(0))
}

#[test]
fn training_goes_on_from_its_checkpoint_when_hosts_are_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    let (port, options) = (port(), ["--max-restarts", "5"]);
    let mut hosts = vec![Host::start(port, &run, 0, &options)];
    eventually("the first waits", &hosts, |hosts| hosts[0].says("of at least"));
    hosts.extend((1..4).map(|place| Host::start(port, &run, place, &options)));
    eventually("a spare", &hosts, |hosts| hosts.iter().any(|host| host.says("waits as a spare")));
    let first_steps = 2 * SAVE_EVERY + 3;
    eventually("steps", &hosts, |_| last_step(&run) >= first_steps);

    let spare = hosts.iter().position(|host| host.says("waits as a spare")).unwrap();
    let other = (1..4).find(|place| *place != spare).unwrap();
    for (victim, whose, world) in [(other, "a host", 3), (0, "the leader's host", 2)] {
        let (before, (times, _)) = (last_step(&run), resumed(&hosts));
        let at = Instant::now();
        hosts[victim].kill();
        eventually("rank 0 goes on", &hosts, |hosts| resumed(hosts).0 > times);
        let from = resumed(&hosts).1;
        eventually("a step", &hosts, |_| last_step(&run) > from);
        let took = at.elapsed();
        println!(
            "from the kill of {whose} to the next completed step: {took:.2?}, on {world} hosts"
        );
        assert!(took < Duration::from_secs(20), "{took:?}");
        assert!(from + 2 * SAVE_EVERY > before, "from step {from}, and step {before} was done");
        let text = format!("{world} worker(s)");
        assert!(hosts.iter().any(|host| host.says(&text)), "{text}");
        eventually("more steps", &hosts, |_| last_step(&run) > from + 2 * SAVE_EVERY);
    }
}

#[test]
fn a_host_that_comes_late_is_welcome_after_a_checkpoint() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    let (port, options) = (port(), ["--max-restarts", "0", "--scale-up", "at-checkpoint"]);
    let mut hosts = vec![Host::start(port, &run, 0, &options)];
    eventually("the first waits", &hosts, |hosts| hosts[0].says("of at least"));
    hosts.push(Host::start(port, &run, 1, &options));
    eventually("steps", &hosts, |_| last_step(&run) > SAVE_EVERY);
    assert!(hosts[0].says("2 worker(s)") && resumed(&hosts).0 == 0);

    let before = last_step(&run);
    hosts.push(Host::start(port, &run, 2, &options));
    eventually("all three", &hosts, |hosts| hosts.iter().any(|host| host.says("3 worker(s)")));
    let (times, from) = resumed(&hosts);
    assert!(times == 1 && from > before, "{times} times, from {from} after {before}");
    eventually("steps of three", &hosts, |_| last_step(&run) > from + SAVE_EVERY);
    assert!(hosts[0].says("another host is there"));
}

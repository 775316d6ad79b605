//! A job over hosts that are apart: network namespaces with their own names, addresses and clocks, whose links are
//! taken down and whose processes are frozen or lose their power. Needs root; where that is not so, says so and
//! tests nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;

use crate::job::{Job, LAUNCHER, eventually, start};

/// Hosts h1 to hN, gone when this is dropped.
pub struct Lab {
    pub folder: tempfile::TempDir,
}

impl Lab {
    /// Nothing where namespaces cannot be made.
    pub fn new(hosts: usize) -> Option<Lab> {
        if !geteuid().is_root() {
            println!("skipped: hosts are network namespaces, which only root can make");
            return None;
        }
        let lab = Lab { folder: tempfile::tempdir().unwrap() };
        let up =
            lab.script(&["up", &hosts.to_string(), "--owner", &std::process::id().to_string()]);
        if !up.status.success() {
            let why = String::from_utf8_lossy(&up.stderr).into_owned();
            println!("skipped: no network namespaces here: {why}");
            return None;
        }
        Some(lab)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tools/hosts/hosts");
        let mut command = Command::new(script);
        command.env("HOSTS_DIR", self.folder.path().join("lab")).args(arguments);
        command
    }

    /// Does what the words say, such as `cut 2`.
    #[track_caller]
    pub fn does(&self, words: &str) -> String {
        let words: Vec<&str> = words.split_whitespace().collect();
        let done = self.script(&words);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{}: {said}", words.join(" "));
        String::from_utf8(done.stdout).unwrap()
    }

    /// What a host calls others: lines of its /etc/hosts, beside the loopback's.
    pub fn calls(&self, host: usize, lines: &str) {
        let file = self.folder.path().join(format!("lab/hosts.{host}"));
        std::fs::write(file, format!("127.0.0.1 localhost\n::1 localhost\n{lines}\n")).unwrap();
    }

    fn script(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    pub fn do_to(&self, what: &str, host: usize) {
        let done = self.script(&[what, &host.to_string()]);
        assert!(done.status.success(), "{what} h{host}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Sends a signal to all processes of a host.
    fn signal(&self, host: usize, signal: &str) {
        let pids = self.script(&["pids", &host.to_string()]).stdout;
        let pids = String::from_utf8(pids).unwrap();
        // One of them may be a worker's `sleep`, which has ended meanwhile.
        Command::new("kill").arg(signal).args(pids.split_whitespace()).output().unwrap();
    }

    /// The launcher of a host; h1 is where the job begins. Its one worker says when it starts, by one clock for all,
    /// then says each 50 ms that it is there.
    fn launch(&self, host: usize, hosts: &str) -> Job {
        self.launch_with(host, hosts, &[])
    }

    fn launch_with(&self, host: usize, hosts: &str, more: &[&str]) -> Job {
        let script = "echo \"$(date +%s%N) start $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT\"; \
                      while :; do echo \"$(date +%s%N) there\"; sleep 0.05; done";
        let number = host.to_string();
        let mut command =
            self.command(&["exec", &number, LAUNCHER, "--no-build", "--nnodes", hosts]);
        command.args(["--rdzv-endpoint", "h1:29400", "--rdzv-conf", "last_call_timeout=0.5"]);
        command.args(more).args(["--max-restarts", "5", "--grace", "2", "sh", "-c", script]);
        command.env("TORCHRS_JOB_TOKEN", "a-token-for-the-tests");
        start(command)
    }
}

impl Lab {
    /// The launcher of one of two hosts with two simulated GPUs and workers each, which train.
    fn train(&self, host: usize, library: &Path) -> Job {
        let number = host.to_string();
        let mut command = self.command(&["exec", &number, LAUNCHER]);
        command.args(["--nnodes", "2", "--rdzv-endpoint", "h1:29400"]);
        start(training(command, 2, library))
    }
}

/// A launcher with a worker per simulated GPU, which train.
fn training(mut launcher: Command, gpus: usize, library: &Path) -> Command {
    let count = gpus.to_string();
    launcher.args(["--no-build", "--simulate-gpus", &count, "--nproc", &count]);
    launcher.arg(std::env::current_exe().unwrap());
    launcher.args(["--exact", "worker::worker", "--nocapture"]);
    launcher.env("LAUNCH_TEST_WORKER", "train-on-gpus");
    launcher.env("TORCHRS_JOB_TOKEN", "a-token-for-the-tests");
    launcher.env("TORCHRS_SIMULATED_GPU_LIBRARY", library);
    launcher.env("TORCHRS_KERNEL_CACHE", env!("CARGO_TARGET_TMPDIR"));
    launcher
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.script(&["down"]);
    }
}

/// A worker's line without its rank, which only lines of several have.
fn said(line: &str) -> &str {
    line.split_once("]: ").map_or(line, |(_, said)| said)
}

/// The times of a worker's lines with this word, in nanoseconds.
fn times(job: &Job, word: &str) -> Vec<u64> {
    let text = job.stdout.text();
    let of = |line: &str| said(line).split_once(' ')?.0.parse().ok();
    text.lines().filter(|line| line.contains(word)).filter_map(of).collect()
}

/// Waits until a worker has started with these numbers: rank, world size, restarts.
#[track_caller]
fn started(job: &Job, numbers: &str) {
    job.stdout.wait_for(&format!(" start {numbers}\n"), 1);
}

#[test]
fn short_trouble_is_not_noticed_and_lost_power_is_survived() {
    let Some(lab) = Lab::new(4) else { return };
    let first = lab.launch(1, "2:3");
    first.stderr.wait_for("of at least", 1);
    let others: Vec<Job> = [2, 3].map(|host| lab.launch(host, "2:3")).into();
    [&first, &others[0], &others[1]].iter().for_each(|job| job.stdout.wait_for(" start ", 1));
    let spare = lab.launch(4, "2:3");
    spare.stderr.wait_for("waits as a spare", 1);

    lab.do_to("cut", 2);
    std::thread::sleep(Duration::from_secs(2));
    lab.do_to("heal", 2);
    lab.signal(3, "-STOP");
    std::thread::sleep(Duration::from_secs(3));
    lab.signal(3, "-CONT");
    std::thread::sleep(Duration::from_millis(500));
    for job in [&first, &others[0], &others[1]] {
        assert_eq!(times(job, " start ").len(), 1, "{}", job.stderr.text());
    }

    // Its peers hear nothing of it.
    let at = Instant::now();
    lab.do_to("crash", 3);
    spare.stdout.wait_for(" start ", 1);
    let took = at.elapsed();
    println!("from a host's loss of power to the next workers: {took:.1?}");
    assert!(took < Duration::from_secs(9), "{took:?}");
    first.stderr.wait_for("host h3 was lost", 1);
    started(&first, "0 3 1");
}

/// The losses that a job has printed.
fn losses(job: &Job) -> Vec<f64> {
    job.stdout.wait_for("losses [", 1);
    eventually("a whole line", || job.stdout.text().contains("]\n"));
    let text = job.stdout.text();
    let list = text.split_once("losses [").unwrap().1.split_once(']').unwrap().0;
    list.split(", ").map(|loss| loss.parse().unwrap()).collect()
}

/// Hosts that share no memory and only an address of the network.
#[test]
fn simulated_gpus_of_two_hosts_train_as_those_of_one() {
    let Some(library) = torchrs::cuda::library::simulated_path() else {
        return println!("skipped: the simulated GPU is not built");
    };
    let Some(lab) = Lab::new(2) else { return };
    let one = losses(&start(training(Command::new(LAUNCHER), 4, &library)));
    let jobs = [1, 2].map(|host| lab.train(host, &library));
    // Rank 0 is on either.
    eventually("losses", || jobs.iter().any(|job| job.stdout.text().contains("losses [")));
    let first = jobs.iter().find(|job| job.stdout.text().contains("losses ["));
    let two = losses(first.unwrap());
    assert!(one.len() == 50 && two.len() == 50 && one[49] < 0.5 * one[0], "{one:?}");
    for (step, (a, b)) in one.iter().zip(&two).enumerate() {
        assert!((a - b).abs() <= 1e-5 * a.abs(), "step {step}: {a} on one host, {b} on two");
    }
    for job in jobs {
        let done = job.finish();
        assert_eq!(done.code, 0, "{}", done.stderr);
    }
}

#[test]
fn a_host_that_is_cut_off_ends_its_workers_before_others_go_on() {
    let Some(lab) = Lab::new(3) else { return };
    let first = lab.launch(1, "2:3");
    first.stderr.wait_for("of at least", 1);
    let others: Vec<Job> = [2, 3].map(|host| lab.launch(host, "2:3")).into();
    [&first, &others[0], &others[1]].iter().for_each(|job| job.stdout.wait_for(" start ", 1));

    let at = Instant::now();
    lab.do_to("cut", 1);
    let again = |job: &Job| times(job, " start ").len() == 2;
    eventually("the others go on", || others.iter().all(again));
    println!("from the leader's being cut off to the next workers: {:.1?}", at.elapsed());
    let begin = others.iter().map(|job| times(job, " start ")[1]).min().unwrap();
    let last = times(&first, " there").pop().unwrap();
    assert!(last < begin, "workers of two rounds at once for {} ms", (last - begin) / 1_000_000);

    lab.do_to("heal", 1);
    eventually("it takes part again", || again(&first));
    let world =
        |job: &Job| job.stdout.text().lines().rfind(|l| l.contains(" start ")).unwrap().to_owned();
    eventually("all three", || {
        [&first, &others[0], &others[1]].iter().all(|job| world(job).contains(" 3 "))
    });
}

/// The world size of a worker's last start, and when that was.
fn last_start(job: &Job) -> (usize, u64) {
    let text = job.stdout.text();
    let line = text.lines().rfind(|line| line.contains(" start ")).expect("a start");
    let words: Vec<&str> = said(line).split(' ').collect();
    (words[3].parse().unwrap(), words[0].parse().unwrap())
}

#[test]
fn of_two_hosts_the_one_that_has_the_tie_goes_on() {
    let Some(lab) = Lab::new(2) else { return };
    let shared = tempfile::tempdir().unwrap();
    let lock = ["--rdzv-lock", shared.path().to_str().unwrap()];
    let first = lab.launch_with(1, "1:2", &lock);
    first.stderr.wait_for("of at least", 1);
    let second = lab.launch_with(2, "1:2", &lock);
    let jobs = [&first, &second];
    let both =
        || jobs.iter().all(|job| job.stdout.text().contains(" start ") && last_start(job).0 == 2);
    eventually("both run", both);

    // Both live and neither hears the other: exactly one goes on, after the other's workers have ended.
    let at = Instant::now();
    lab.do_to("cut", 2);
    eventually("one goes on", || jobs.iter().any(|job| last_start(job).0 == 1));
    println!("from two hosts' parting to the next workers of one: {:.1?}", at.elapsed());
    std::thread::sleep(Duration::from_secs(2));
    let alone: Vec<_> = jobs.iter().filter(|job| last_start(job).0 == 1).collect();
    assert_eq!(alone.len(), 1, "{} {}", first.stderr.text(), second.stderr.text());
    let other = jobs.iter().find(|job| last_start(job).0 == 2).unwrap();
    let (begin, last) = (last_start(alone[0]).1, times(other, " there").pop().unwrap());
    assert!(
        last < begin,
        "workers of two rounds at once for {} ms",
        last.abs_diff(begin) / 1_000_000
    );
    lab.do_to("heal", 2);
    eventually("both run again", both);

    // The leader's host loses its power.
    let (lost, rest) = match first.stderr.text().contains("this host leads now") {
        true => (2, &first),
        false => (1, &second),
    };
    let at = Instant::now();
    lab.do_to("crash", lost);
    eventually("the other goes on", || last_start(rest).0 == 1);
    println!(
        "from the leader's loss of power to the next workers of the other host: {:.1?}",
        at.elapsed()
    );
    let ties = std::fs::read_dir(shared.path()).unwrap().count();
    assert_eq!(ties, 2, "a file for each tie");
}

#[test]
fn a_host_whose_own_name_is_its_loopback_is_reached_all_the_same() {
    let Some(lab) = Lab::new(2) else { return };
    // As Debian writes it.
    let own = lab.folder.path().join("lab/hosts.1");
    let text = std::fs::read_to_string(&own).unwrap();
    std::fs::write(&own, text.replace("10.77.0.1 h1", "127.0.1.1 h1")).unwrap();
    let jobs = [1, 2].map(|host| lab.launch(host, "2"));
    jobs.iter().for_each(|job| job.stdout.wait_for(" start ", 1));
    assert!(jobs.iter().all(|job| last_start(job).0 == 2));
    let said = jobs[0].stderr.text();
    assert!(said.contains("`h1` is 127.0.1.1") && said.contains("10.77.0.1:29400"), "{said}");
}

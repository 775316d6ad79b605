//! Starting the launcher, watching its output while it runs, and looking for what it left behind.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, kill};
use nix::unistd::Pid;

/// The binary under test.
pub const LAUNCHER: &str = env!("CARGO_BIN_EXE_torchrs-launch");

/// A test that waits longer than this has found a hang.
const HANG: Duration = Duration::from_secs(60);

/// A running launcher. Everything that descends from it carries `mark` in its environment.
pub struct Job {
    child: Child,
    started: Instant,
    pub mark: String,
    pub stdout: Stream,
    pub stderr: Stream,
}

/// How a launcher ended.
#[derive(Debug)]
pub struct Done {
    /// Its exit code, or 128 + the signal that killed it.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub took: Duration,
}

/// `torchrs-launch OPTIONS sh -c SCRIPT`, with no build.
pub fn sh(options: &str, script: &str) -> Command {
    program(options, &["sh", "-c", script])
}

/// `torchrs-launch OPTIONS PROGRAM...`, with no build.
pub fn program(options: &str, program: &[&str]) -> Command {
    let mut command = Command::new(LAUNCHER);
    command.arg("--no-build").args(options.split_whitespace()).args(program);
    command
}

/// Starts a launcher.
pub fn start(mut command: Command) -> Job {
    // Whatever started the tests may ignore signals, as `nohup` and a shell's `&` do.
    let heed = || {
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
            // SAFETY: the default action is no function of this program.
            unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: nothing but system calls between fork and exec.
    unsafe { command.pre_exec(heed) };
    start_as_it_is(command)
}

/// Starts a launcher with the signals that `command` leaves it.
pub fn start_as_it_is(mut command: Command) -> Job {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    command.env("LAUNCH_TEST_MARK", &mark).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // Its own process group, for the tests that kill that.
    let mut child = command.process_group(0).spawn().unwrap();
    let stdout = Stream::read(child.stdout.take().unwrap());
    let stderr = Stream::read(child.stderr.take().unwrap());
    Job { child, started: Instant::now(), mark, stdout, stderr }
}

/// Runs a launcher to its end and checks that nothing is left of it.
pub fn run(command: Command) -> Done {
    start(command).finish()
}

impl Job {
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn send(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for the launcher's end, and checks that no process of the job is left.
    pub fn finish(mut self) -> Done {
        let status = self.wait();
        let took = self.started.elapsed();
        assert_eq!(living(&self.mark), Vec::<i32>::new(), "processes outlived the launcher");
        Done {
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap()),
            stdout: self.stdout.take_all(),
            stderr: String::from_utf8_lossy(&self.stderr.take_all()).into_owned(),
            took,
        }
    }

    fn wait(&mut self) -> std::process::ExitStatus {
        let until = Instant::now() + HANG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > until {
                let living = living(&self.mark);
                for pid in &living {
                    let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
                }
                panic!("the launcher hangs; living: {living:?}\n{}", self.stderr.text());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Done {
    pub fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.stdout).lines().map(str::to_owned).collect()
    }

    /// Checks that the report or message says `part`.
    #[track_caller]
    pub fn says(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "expected `{part}` in:\n{}", self.stderr);
        self
    }
}

/// Pids of processes that carry `mark`, but zombies.
pub fn living(mark: &str) -> Vec<i32> {
    let wanted = format!("LAUNCH_TEST_MARK={mark}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.windows(wanted.len()).any(|window| window == wanted.as_bytes())
    })
    .collect()
}

/// Waits for `condition`, which has to become true soon.
#[track_caller]
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + HANG;
    while !condition() {
        assert!(Instant::now() < until, "never happened: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process of this number runs (not: is a zombie).
pub fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rfind(')').is_some_and(|end| !stat[end..].starts_with(") Z"))
}

/// The bytes of a pipe, as they come.
pub struct Stream {
    shared: Arc<(Mutex<Vec<u8>>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    fn read(mut pipe: impl Read + Send + 'static) -> Self {
        let shared: Arc<(Mutex<Vec<u8>>, Condvar)> = Arc::default();
        let sink = shared.clone();
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                sink.0.lock().unwrap().extend_from_slice(&buffer[..count]);
                sink.1.notify_all();
            }
        });
        Stream { shared, reader: Some(reader) }
    }

    /// What has come so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.shared.0.lock().unwrap()).into_owned()
    }

    /// Waits until `part` has come `count` times.
    #[track_caller]
    pub fn wait_for(&self, part: &str, count: usize) {
        let until = Instant::now() + HANG;
        let mut bytes = self.shared.0.lock().unwrap();
        while String::from_utf8_lossy(&bytes).matches(part).count() < count {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "`{part}` never came {count} times");
            bytes = self.shared.1.wait_timeout(bytes, left).unwrap().0;
        }
    }

    fn take_all(&mut self) -> Vec<u8> {
        self.reader.take().unwrap().join().unwrap();
        std::mem::take(&mut self.shared.0.lock().unwrap())
    }
}

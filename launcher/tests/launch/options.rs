//! Options that cannot be, limits of the machine, and what the workers find in their environment.

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use crate::job::{LAUNCHER, program, run, sh, start};

#[test]
fn row_13_eight_launches_at_once_do_not_collide() {
    let folder = tempfile::tempdir().unwrap();
    let options = format!("--nproc 2 --log-dir {} --run-id same", folder.path().display());
    let jobs: Vec<_> =
        (0..8).map(|i| start(sh(&options, &format!("echo {i}; sleep 0.2; echo {i}")))).collect();
    for (i, job) in jobs.into_iter().enumerate() {
        let done = job.finish();
        assert_eq!(done.code, 0, "{}", done.stderr);
        let mut lines = done.lines();
        lines.sort();
        assert_eq!(lines, [0, 0, 1, 1].map(|rank| format!("[rank{rank}]: {i}")));
    }
    let mut logged: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|run| {
            std::fs::read_to_string(run.unwrap().path().join("attempt_0/1/stdout.log")).unwrap()
        })
        .collect();
    logged.sort();
    assert_eq!(logged, (0..8).map(|i| format!("{i}\n{i}\n")).collect::<Vec<_>>());
}

#[test]
fn row_14_a_busy_port_is_named_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let done = run(sh(&format!("--nproc 2 --master-port {port}"), "echo started"));
    assert_eq!((done.code, done.stdout.len()), (1, 0));
    done.says(&format!("--master-port {port} is busy"));
    assert!(done.took < Duration::from_secs(1), "{:?}", done.took);
    drop(listener);
    let done = run(sh(&format!("--nproc 1 --master-port {port}"), "echo $MASTER_PORT"));
    assert_eq!(done.lines(), [port.to_string()]);
}

#[test]
fn row_15_a_number_of_workers_that_cannot_be_is_refused() {
    let gpu = std::path::Path::new("/dev/nvidia0").exists();
    let cases = [("0", "at least 1"), ("-1", "at least 1"), ("abc", "auto, cpu or gpu")];
    for (nproc, reason) in cases.into_iter().chain((!gpu).then_some(("gpu", "has no GPU"))) {
        let done = run(sh(&format!("--nproc {nproc}"), "echo started"));
        assert_eq!((done.code, done.stdout.len()), (2, 0), "--nproc {nproc}");
        done.says(reason);
    }
    let mut hidden = sh("--nproc gpu", "echo started");
    hidden.env("CUDA_VISIBLE_DEVICES", "");
    assert_eq!(run(hidden).code, 2);
}

#[test]
fn row_16_a_missing_program_is_127_and_one_that_cannot_run_126() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "echo hello").unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    for (path, code, reason) in [
        (folder.path().join("nothing"), 127, "No such file"),
        ("no-such-program-anywhere".into(), 127, "no program `no-such-program-anywhere`"),
        (plain, 126, "not executable"),
        (folder.path().into(), 126, "it is a folder"),
        (script, 127, "the interpreter or loader that it names is not there"),
    ] {
        let done = run(program("--nproc 2", &[path.to_str().unwrap()]));
        assert_eq!(done.code, code, "{}: {}", path.display(), done.stderr);
        done.says(reason);
    }
}

/// The launcher under `ulimit -n LIMIT`.
fn limited(limit: u32, options: &str) -> Command {
    let mut command = Command::new("sh");
    let shell = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
    command.args(["-c", &shell, LAUNCHER, "--no-build"]).args(options.split(' '));
    command.args(["sh", "-c", "echo started"]);
    command
}

#[test]
fn row_38_few_open_files_work_or_the_limit_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let done = run(limited(64, "--nproc 8"));
    assert_eq!((done.code, done.lines().len()), (0, 8), "{}", done.stderr);
    let done = run(limited(64, &format!("--nproc 8 --log-dir {}", folder.path().display())));
    assert_eq!((done.code, done.stdout.len()), (1, 0));
    done.says("the limit is 64 (ulimit -n)");
}

#[test]
fn logs_without_a_folder_are_where_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = sh("--nproc 2 --redirects 3 --run-id j", "echo hidden");
    command.env("TMPDIR", folder.path());
    let done = run(command);
    assert_eq!((done.code, done.stdout.len()), (0, 0));
    let logs = folder.path().canonicalize().unwrap().join("torchrs-logs/j");
    done.says(&format!("without --log-dir, logs are in {}", logs.display()));
    assert!(logs.join("attempt_0/1/stdout.log").exists());
    let done = run(sh("--nproc 2 --tee 2:1", "echo started"));
    assert_eq!((done.code, done.stdout.len()), (2, 0));
    done.says("--tee names local rank 2, but local ranks are 0 to 1");
}

/// The environment of each rank.
fn environments(options: &str, set: &[(&str, &str)]) -> Vec<HashMap<String, String>> {
    let mut command = sh(options, "env");
    command.envs(set.iter().copied());
    let done = run(command);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let of = |rank: usize| {
        let prefix = format!("[rank{rank}]: ");
        let lines = done.lines();
        let pairs = lines.iter().filter_map(|l| l.strip_prefix(&prefix)?.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    (0..2).map(of).collect()
}

#[test]
fn the_environment_is_torchruns() {
    let options = "--nproc 2 --max-restarts 4 --rdzv-id j7 --role trainer --master-addr node";
    let both = environments(options, &[("OMP_NUM_THREADS", "5"), ("RANK", "9")]);
    for (rank, env) in both.iter().enumerate() {
        let rank = rank.to_string();
        for (name, value) in [
            ("RANK", rank.as_str()),
            ("LOCAL_RANK", &rank),
            ("ROLE_RANK", &rank),
            ("GROUP_RANK", "0"),
            ("ROLE_NAME", "trainer"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("ROLE_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "node"),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
            ("TORCHELASTIC_MAX_RESTARTS", "4"),
            ("TORCHELASTIC_RUN_ID", "j7"),
            ("OMP_NUM_THREADS", "5"),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
        ] {
            assert_eq!(env.get(name).map(String::as_str), Some(value), "{name} of rank {rank}");
        }
        assert!(env["MASTER_PORT"].parse::<u16>().unwrap() > 0);
        assert!(!env.contains_key("TORCHRS_TERMINAL"), "there is no terminal here");
    }
    assert_eq!(both[0]["TORCHRS_JOB_ID"], both[1]["TORCHRS_JOB_ID"]);
    let cores = std::thread::available_parallelism().unwrap().get();
    let env = environments("--nproc 2", &[("CUDA_DEVICE_MAX_CONNECTIONS", "1")]);
    assert_eq!(env[0]["CUDA_DEVICE_MAX_CONNECTIONS"], "1");
    let threads = std::env::var("OMP_NUM_THREADS").unwrap_or((cores / 2).max(1).to_string());
    assert_eq!(env[0]["OMP_NUM_THREADS"], threads);
}

#[test]
fn a_worker_gets_its_own_descriptors_and_no_others() {
    let mut command = Command::new("sh");
    command.args(["-c", "exec 7</dev/null 8>/dev/null; exec \"$0\" \"$@\"", LAUNCHER]);
    // What `ls` itself opens is the folder that it lists.
    let list = "ls -l /proc/self/fd | sed -n 's/.* -> //p' | grep -v ^/proc/";
    command.args(["--no-build", "--nproc", "2", "sh", "-c", list]);
    let done = run(command);
    for rank in 0..2 {
        let prefix = format!("[rank{rank}]: ");
        let lines = done.lines();
        let mut kinds: Vec<_> = lines
            .iter()
            .filter_map(|line| line.strip_prefix(&prefix)?.split(['[', ' ']).next())
            .collect();
        kinds.sort();
        let (board, record) = ("/memfd:torchrs-board", "/memfd:torchrs-error-record");
        assert_eq!(kinds, ["/dev/null", board, record, "pipe:", "pipe:", "socket:"], "rank {rank}");
    }
}

#[test]
fn simulated_gpus_are_announced_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    // It is only handed on here.
    let library = folder.path().join("library.so");
    std::fs::write(&library, "").unwrap();
    let logs = folder.path().join("logs");
    let options = format!("--simulate-gpus 2 --nproc gpu --run-id j --log-dir {}", logs.display());
    let mut command = sh(&options, "echo $TORCHRS_SIMULATE_GPUS $TORCHRS_SIMULATED_GPU_LIBRARY");
    command.env("TORCHRS_SIMULATED_GPU_LIBRARY", &library);
    let done = run(command);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let line = format!("torchrs-launch: 2 simulated GPUs ({}): results are", library.display());
    assert!(done.stderr.starts_with(&line), "{}", done.stderr);
    let mut lines = done.lines();
    lines.sort();
    assert_eq!(lines, [0, 1].map(|rank| format!("[rank{rank}]: 2 {}", library.display())));
    for rank in 0..2 {
        let log = logs.join(format!("j/attempt_0/{rank}/stderr.log"));
        assert!(std::fs::read_to_string(log).unwrap().starts_with(&line));
    }
    let mut missing = sh("--simulate-gpus 2", "echo started");
    missing.env("TORCHRS_SIMULATED_GPU_LIBRARY", "/no/such.so");
    let done = run(missing);
    assert_eq!((done.code, done.stdout.len()), (1, 0));
    done.says("TORCHRS_SIMULATED_GPU_LIBRARY=/no/such.so is no file");
}

/// The cores on which each worker of a job may run, and its threads, by local rank.
fn bound(options: &str) -> Vec<(String, String)> {
    let script =
        "echo $LOCAL_RANK:$(grep Cpus_allowed_list /proc/self/status | cut -f2):$OMP_NUM_THREADS";
    let mut command = sh(options, script);
    command.env_remove("OMP_NUM_THREADS");
    let done = run(command);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let mut lines = done.lines();
    lines.sort();
    let words = lines.iter().map(|line| line.split(':').collect::<Vec<_>>());
    words.map(|words| (words[words.len() - 2].into(), words[words.len() - 1].into())).collect()
}

#[test]
fn workers_run_on_the_cores_that_numa_binding_gives_them() {
    let physical =
        std::fs::read_to_string("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    let cores = std::thread::available_parallelism().unwrap().get();
    if physical.is_err() || cores < 2 {
        println!("skipped: /sys tells of no cores here, or there is one only");
        return;
    }
    // The shim has them before the program begins, and a job on one node keeps all of it.
    let all = bound("--nproc 2 --numa-binding node");
    assert_eq!(all.len(), 2);
    let refused = run(sh("--nproc 2048 --numa-binding exclusive", "echo started"));
    assert_eq!((refused.code, refused.stdout.len()), (2, 0));
    refused.says("--numa-binding exclusive").says("start fewer workers");
    let alone = physical.unwrap().trim() == "0";
    if alone {
        let own = bound("--nproc 2 --numa-binding exclusive");
        assert_ne!(own[0].0, own[1].0, "{own:?}");
        let threads: usize = own.iter().map(|(_, threads)| threads.parse::<usize>().unwrap()).sum();
        assert!(threads <= cores, "{own:?}");
    }
    let wrong = run(sh("--numa-binding nodes", "echo started"));
    assert_eq!(wrong.code, 2);
    wrong.says("core-complex");
}

//! The status page by a plain client of TCP, and `torchrs top`: who gets in, what is shown of a job with a death and a
//! restart, what hostile bytes do, and that the job goes on whatever a client does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::hosts::port;
use crate::job::{Job, eventually, program, run, sh, start};
use crate::worker::rust_worker;

/// A job's page.
struct Page {
    address: SocketAddr,
    token: String,
}

impl Page {
    /// That of the last address that a launcher has printed.
    fn of(job: &Job) -> Page {
        job.stderr.wait_for("/?token=", 1);
        eventually("the line is whole", || job.stderr.text().contains('\n'));
        let text = job.stderr.text();
        let (before, after) = text.rsplit_once("/?token=").unwrap();
        let token = after.split_whitespace().next().unwrap().to_owned();
        let address = before.rsplit_once("http://").unwrap().1.parse().unwrap();
        Page { address, token }
    }

    /// The answer to these bytes, to its end.
    fn send(&self, bytes: &[u8]) -> String {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // It may be refused before it is whole.
        let _ = socket.write_all(bytes);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The answer to a request with these lines in its head.
    fn ask(&self, method: &str, path: &str, lines: &[&str]) -> String {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.send(format!("{method} {path} HTTP/1.1\r\n{lines}\r\n").as_bytes())
    }

    fn bearer(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }

    /// The body of an answer to whoever has the token.
    fn get(&self, path: &str) -> String {
        let answer = self.ask("GET", path, &["Host: localhost", &self.bearer()]);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    fn snapshot(&self) -> Value {
        serde_json::from_str(&self.get("/snapshot.json")).unwrap()
    }
}

/// Workers that say their rank and wait until a file is there.
fn waiting(end: &Path) -> String {
    format!("echo hello from $RANK; while [ ! -e {} ]; do sleep 0.02; done", end.display())
}

#[track_caller]
fn status(answer: &str, code: u32) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
}

#[test]
fn whoever_has_the_token_sees_the_job_and_may_stop_it() {
    let folder = tempfile::tempdir().unwrap();
    let job =
        start(sh("--nproc 2 --run-id secretrun --dashboard", &waiting(&folder.path().join("end"))));
    job.stdout.wait_for("hello", 2);
    let page = Page::of(&job);
    let host = "Host: localhost";
    eventually("it is ready", || page.ask("GET", "/readyz", &[]).starts_with("HTTP/1.1 200 "));
    // Health is no secret, and says no more.
    for path in ["/healthz", "/readyz"] {
        let answer = page.ask("GET", path, &[]);
        status(&answer, 200);
        assert!(!answer.contains("secretrun"), "{answer}");
    }
    for path in [
        "/",
        "/?token=",
        "/?token=0",
        "/metrics",
        "/events",
        "/snapshot.json",
        "/rank/0",
        "/nothing",
    ] {
        for lines in
            [&[host][..], &[host, "Cookie: torchrs_x=1"], &[host, "Authorization: Bearer x"]]
        {
            let answer = page.ask("GET", path, lines);
            status(&answer, 401);
            assert!(!answer.contains("secretrun") && !answer.contains(&page.token), "{answer}");
        }
    }
    // The address with the token gives a cookie, and leads to the address without it.
    let answer = page.ask("GET", &format!("/?token={}", page.token), &[host]);
    status(&answer, 303);
    assert!(
        answer.contains("Location: /\r\n") && answer.contains("; HttpOnly; SameSite=Strict"),
        "{answer}"
    );
    let cookie = answer.split_once("Set-Cookie: ").unwrap().1.split(';').next().unwrap();
    let cookie = format!("Cookie: {cookie}");
    let answer = page.ask("GET", "/", &[host, &cookie]);
    status(&answer, 200);
    assert!(
        answer.contains("Content-Security-Policy: default-src 'none'; script-src 'nonce-"),
        "{answer}"
    );
    assert!(answer.contains("Cache-Control: no-store") && answer.contains("<!doctype html>"));
    // Another site's name that leads here.
    status(&page.ask("GET", "/", &["Host: evil.example", &cookie]), 421);
    // What it shows.
    let snapshot = page.snapshot();
    assert_eq!(snapshot["job"]["run_id"], "secretrun");
    assert_eq!(snapshot["job"]["state"], "running");
    assert_eq!(snapshot["ranks"].as_array().unwrap().len(), 2);
    assert_eq!(snapshot["ranks"][1]["state"], "started");
    let rank: Value = serde_json::from_str(&page.get("/rank/1")).unwrap();
    assert_eq!(rank["log"], "hello from 1\n");
    let metrics = page.get("/metrics");
    assert!(
        metrics.contains("torchrs_rank_up{rank=\"1\",host=")
            && metrics.contains("torchrs_world_size 2\n")
    );
    status(&page.ask("GET", "/rank/2", &[host, &cookie]), 404);
    status(&page.ask("DELETE", "/", &[host, &cookie]), 405);
    status(&page.ask("GET", "/stop", &[host, &cookie]), 405);
    status(&page.ask("HEAD", "/events", &[host, &cookie]), 405);
    // A shell does not handle SIGUSR1, and would die of it.
    let answer = page.ask("POST", "/save", &[host, &page.bearer()]);
    status(&answer, 409);
    // A button of another site.
    for lines in [&[host, &cookie][..], &[host, &cookie, "Origin: http://evil.example"]] {
        status(&page.ask("POST", "/stop", lines), 403);
    }
    assert_eq!(page.snapshot()["job"]["state"], "running");
    status(&page.ask("POST", "/stop", &[host, &cookie, "Origin: http://localhost"]), 202);
    let done = job.finish();
    assert_eq!(done.code, 143);
    done.says("stopped by SIGTERM");
}

#[test]
fn a_death_and_a_restart_are_streamed_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let wait = waiting(&end);
    let script = format!(
        "if [ $TORCHELASTIC_RESTART_COUNT$RANK = 01 ]; then sleep 0.3; exit 3; fi; trap 'exit 0' TERM; {wait}"
    );
    let job = start(sh("--nproc 2 --max-restarts 1 --grace 0.4 --dashboard", &script));
    let page = Page::of(&job);
    let mut stream = TcpStream::connect(page.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!("GET /events HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n", page.bearer());
    stream.write_all(head.as_bytes()).unwrap();
    job.stdout.wait_for("hello from 1", 1);
    std::fs::write(&end, "").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(job.finish().code, 0);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"), "{text}");
    for part in [
        "2 workers started\"",
        "exited with code 3",
        "starting all workers again (1 of 1 restarts)",
        "2 workers started again",
        "the job is done",
        "event: end\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // Each event once.
    assert_eq!(text.matches("2 workers started again").count(), 1, "{text}");
    let messages = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let messages: Vec<Value> = messages.map(|text| serde_json::from_str(text).unwrap()).collect();
    assert!(messages.iter().all(|message| !message.is_null()));
}

#[test]
fn hostile_clients_get_an_answer_or_none_and_the_job_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let job = start(sh("--nproc 2 --dashboard=127.0.0.1:0", &waiting(&end)));
    let page = Page::of(&job);
    for (bytes, code) in [
        (&b"\x16\x03\x01\x02\x00\x01\r\n\r\n"[..], 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"\r\n\r\n\r\n", 400),
        (b"POST /stop HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST /stop HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 413),
        (b"POST /stop HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", 400),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
    ] {
        status(&page.send(bytes), code);
    }
    let long =
        [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 40_000], b"\r\n\r\n".to_vec()].concat();
    let answer = page.send(&long);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    // Clients that connect and say nothing fill it up; when they go, others come in.
    let idle: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(page.address).unwrap()).collect();
    eventually("it is full", || page.ask("GET", "/healthz", &[]).starts_with("HTTP/1.1 503 "));
    drop(idle);
    eventually("it has room", || page.ask("GET", "/healthz", &[]).starts_with("HTTP/1.1 200 "));
    std::fs::write(&end, "").unwrap();
    assert_eq!(job.finish().code, 0);
}

#[test]
fn a_taken_port_is_an_error_before_workers_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let done = run(sh(&format!("--dashboard {port} --nproc 2"), "echo started"));
    assert_eq!((done.code, done.lines()), (1, Vec::<String>::new()));
    done.says(&format!("--dashboard: cannot listen at 127.0.0.1:{port}: "));
    let done = run(sh("--dashboard=nowhere", "echo started"));
    assert_eq!(done.code, 2);
    done.says("HOST:PORT");
}

#[test]
fn an_address_for_others_is_warned_of() {
    let done = run(sh("--dashboard 0.0.0.0:0 --nproc 2", "true"));
    assert_eq!(done.code, 0);
    done.says("warning: the status page listens at 0.0.0.0:").says("/?token=");
}

#[test]
fn what_a_program_notes_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let mut command = rust_worker("--nproc 2 --dashboard", "notes");
    command.env("LAUNCH_TEST_END", &end);
    let job = start(command);
    let page = Page::of(&job);
    eventually("it has taken steps", || {
        let snapshot = page.snapshot();
        let ranks = snapshot["ranks"].as_array().unwrap();
        ranks.len() == 2 && ranks.iter().all(|line| line["step"].as_u64() > Some(3))
    });
    let snapshot = page.snapshot();
    let scalar = |name: &str| {
        let scalars = snapshot["scalars"].as_array().unwrap();
        scalars
            .iter()
            .find(|scalar| scalar["name"] == name)
            .unwrap_or_else(|| panic!("{snapshot:#}"))
    };
    assert_eq!(scalar("lr")["value"], 0.5);
    assert_eq!(scalar("bad")["value"], "NaN");
    let rank = &snapshot["ranks"][1];
    assert_eq!((&rank["state"], &rank["device"]), (&"running".into(), &"CPU".into()));
    assert!(rank["host_tensors"].as_u64() > Some(0), "{rank:#}");
    eventually("speed is known", || page.snapshot()["speed"]["tokens_per_s"].as_f64() > Some(0.0));
    eventually("a checkpoint is told of", || {
        let events = page.snapshot()["events"].clone();
        let is_saved = |event: &Value| event["event"]["kind"] == "checkpoint";
        events.as_array().unwrap().iter().any(is_saved)
    });
    let metrics = page.get("/metrics");
    assert!(metrics.contains("torchrs_scalar{name=\"lr\"} 0.5\n"), "{metrics}");
    assert!(metrics.contains("phase=\"optimizer\"}"), "{metrics}");
    std::fs::write(&end, "").unwrap();
    assert_eq!(job.finish().code, 0);
}

/// A program in place of NVIDIA's says how busy the GPUs are.
#[test]
fn what_a_rank_uses_of_its_gpu_is_shown() {
    let Some(library) = torchrs::cuda::library::simulated_path() else {
        return eprintln!("skipped: the simulated GPU is not built");
    };
    let folder = tempfile::tempdir().unwrap();
    let (end, said) = (folder.path().join("end"), folder.path().join("nvidia-smi"));
    std::fs::write(&said, "#!/bin/sh\necho '00000000:01:00.0, 37, 100, 200'\necho 'broken'\n")
        .unwrap();
    std::fs::set_permissions(&said, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = rust_worker("--nproc 1 --simulate-gpus 1 --dashboard", "notes");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    command.env("LAUNCH_TEST_END", &end).env("PATH", path);
    command.env("TORCHRS_SIMULATED_GPU_LIBRARY", library);
    command.env("TORCHRS_KERNEL_CACHE", env!("CARGO_TARGET_TMPDIR"));
    let job = start(command);
    let page = Page::of(&job);
    eventually("its use is shown", || {
        let rank = page.snapshot()["ranks"][0].clone();
        let device = rank["device"].as_str().unwrap_or_default().to_owned();
        device.starts_with("cuda:0 ")
            && rank["device_peak"].as_u64() > Some(0)
            && rank["gpu_busy"] == 0.37
    });
    assert_eq!(page.snapshot()["ranks"][0]["gpu_total"], 200u64 << 20);
    std::fs::write(&end, "").unwrap();
    assert_eq!(job.finish().code, 0);
}

#[test]
fn the_leader_s_page_shows_all_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let (port, end) = (port(), folder.path().join("end"));
    let launcher = |node: usize| {
        let options = format!(
            "--nnodes 2 --node-rank {node} --master-addr 127.0.0.1 --master-port {port} --nproc 2 --dashboard"
        );
        start(sh(&options, &waiting(&end)))
    };
    let jobs: Vec<Job> = (0..2).map(launcher).collect();
    let pages: Vec<Page> = jobs.iter().map(Page::of).collect();
    eventually("one shows all", || {
        pages.iter().any(|page| page.snapshot()["ranks"].as_array().unwrap().len() == 4)
    });
    let leads = |page: &&Page| page.snapshot()["ranks"].as_array().unwrap().len() == 4;
    let leader = pages.iter().find(leads).unwrap().snapshot();
    assert_eq!((&leader["job"]["world_size"], &leader["job"]["hosts"]), (&4.into(), &2.into()));
    let ranks: Vec<_> =
        leader["ranks"].as_array().unwrap().iter().map(|r| r["rank"].clone()).collect();
    assert_eq!(ranks, [0, 1, 2, 3]);
    assert_eq!(leader["hosts"].as_array().unwrap().len(), 2);
    std::fs::write(&end, "").unwrap();
    assert!(jobs.into_iter().all(|job| job.finish().code == 0));
}

fn top(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_torchrs")).arg("top").args(words).output().unwrap()
}

#[test]
fn top_shows_a_job_without_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let run_id = format!("top-{}", std::process::id());
    let job = start(sh(&format!("--nproc 2 --run-id {run_id}"), &waiting(&end)));
    job.stdout.wait_for("hello", 2);
    let shown = top(&[&run_id]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    for part in ["running", &format!("run {run_id}; 2 ranks"), "2 workers started", "MiB"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let json: Value = serde_json::from_slice(&top(&[&run_id, "--json"]).stdout).unwrap();
    assert_eq!(json["ranks"][1]["rank"], 1);
    // By its launcher's pid, too, and in the list of all.
    assert!(top(&[&json["job"]["pid"].to_string()]).status.success());
    // The process that the shell has started is another.
    assert!(top(&[&job.pid().to_string()]).status.success());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchrs"));
    let lost = command.args(["top", &run_id, "--json"]).stdout(full).output().unwrap();
    assert_eq!(lost.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&lost.stderr).contains("cannot write to standard output"));
    // Of several none is meant.
    let other = start(sh("--nproc 1", &waiting(&end)));
    other.stdout.wait_for("hello", 1);
    let several = top(&["--json"]);
    assert!(several.status.code() == Some(1) && several.stdout.is_empty(), "{several:?}");
    let said = String::from_utf8(several.stderr).unwrap();
    assert!(said.contains("name one of") && said.contains(json["job"]["job_id"].as_str().unwrap()));
    // One that is stopped is still there.
    let launcher = nix::unistd::Pid::from_raw(json["job"]["pid"].as_i64().unwrap() as i32);
    nix::sys::signal::kill(launcher, Signal::SIGSTOP).unwrap();
    let silent = top(&[json["job"]["job_id"].as_str().unwrap()]);
    nix::sys::signal::kill(launcher, Signal::SIGCONT).unwrap();
    let said = String::from_utf8(silent.stderr).unwrap();
    assert!(silent.status.code() == Some(1) && said.contains("does not answer"), "{said}");
    let none = top(&["no-such-job"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("no job here has the run id"));
    assert!(String::from_utf8_lossy(&none.stderr).contains(&run_id), "what runs is listed");
    // By its program, too, unless several run it.
    let name = format!("program-{run_id}");
    std::os::unix::fs::symlink("/bin/sh", folder.path().join(&name)).unwrap();
    let named = folder.path().join(&name).display().to_string();
    let waiting = waiting(&end);
    let started: Vec<Job> = (0..2)
        .map(|place| {
            let job = start(program("", &[&named, "-c", &waiting]));
            job.stdout.wait_for("hello", 1);
            let shown = top(&[&name]);
            let [text, why] =
                [shown.stdout, shown.stderr].map(|said| String::from_utf8(said).unwrap());
            match place {
                0 => assert!(text.contains("; 1 rank, "), "{text}{why}"),
                _ => assert!(why.contains("2 jobs here are named"), "{text}{why}"),
            }
            job
        })
        .collect();
    for job in started.into_iter().chain([job, other]) {
        job.send(Signal::SIGTERM);
        assert_eq!(job.finish().code, 143);
    }
    assert_eq!(top(&[&run_id]).status.code(), Some(1));
}

//! `--hosts` over hosts that are apart: network namespaces, whose launchers find each other by the addresses that the
//! near end has chosen. Needs root; where that is not so, says so and tests nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;

use crate::apart::Lab;
use crate::job::{Job, LAUNCHER, eventually, living, start};

/// A launcher on host 1 for these hosts. Its remote shell enters another namespace, and says what sshd would if
/// `tells` is so.
fn launch(lab: &Lab, hosts: &str, options: &str, script: &str, tells: bool) -> Job {
    let shell = lab.folder.path().join("rsh");
    let tool = format!("{}/../tools/hosts/hosts", env!("CARGO_MANIFEST_DIR"));
    let told = if tells { "SSH_CONNECTION=\"10.77.0.1 50022 10.77.0.${host#h} 22\"" } else { "" };
    let text = format!(
        "#!/bin/sh\nhost=$1; shift\n\
         exec env -i PATH=\"$PATH\" LAUNCH_TEST_MARK=\"$LAUNCH_TEST_MARK\" HOSTS_DIR={}/lab {told} \
         {tool} exec ${{host#h}} sh -c \"$*\"\n",
        lab.folder.path().display()
    );
    fs::write(&shell, text).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command =
        lab.command(&["exec", "1", LAUNCHER, "--no-build", "--hosts", hosts, "--ssh"]);
    command.arg(shell).args(options.split_whitespace()).args(["sh", "-c", script]);
    start(command)
}

#[test]
fn hosts_meet_where_the_first_of_them_is() {
    let Some(lab) = Lab::new(3) else { return };
    let script = "echo $RANK $(hostname) $MASTER_ADDR";
    for (hosts, tells, first) in [
        ("h2,h3", false, "10.77.0.2"),
        ("h2,h3", true, "10.77.0.2"),
        ("h1,h2,h3", false, "10.77.0.1"),
        ("localhost,h3", true, "10.77.0.1"),
        ("h3,h1", false, "10.77.0.3"),
    ] {
        let done = launch(&lab, hosts, "", script, tells).finish();
        assert_eq!(done.code, 0, "{hosts}: {}", done.stderr);
        let names = hosts.replace("localhost", "h1");
        let expected = names.split(',').enumerate();
        let expected: Vec<String> =
            expected.map(|(rank, host)| format!("[rank{rank}]: {rank} {host} {first}")).collect();
        let mut lines = done.lines();
        lines.sort();
        assert_eq!(lines, expected, "{hosts}");
    }
}

#[test]
fn a_host_that_is_cut_off_is_ended_with_the_job() {
    let Some(lab) = Lab::new(3) else { return };
    let end = lab.folder.path().join("end");
    let script =
        format!("echo start $WORLD_SIZE; until [ -e {} ]; do sleep 0.02; done", end.display());
    let options = "--nnodes 2:3 --max-restarts 2 --grace 1 --rdzv-conf last_call_timeout=0.3";
    let job = launch(&lab, "h1,h2,h3", options, &script, false);
    job.stdout.wait_for("start 3", 3);
    lab.do_to("cut", 3);
    job.stdout.wait_for("start 2", 2);
    fs::write(&end, "").unwrap();
    let done = job.finish();
    assert_eq!(done.code, 0, "{}", done.stderr);
    done.says("the job is over; ending the launchers on h3");
}

#[test]
fn nothing_outlives_a_launcher_that_only_supervises() {
    let Some(lab) = Lab::new(3) else { return };
    let job = launch(&lab, "h2,h3", "", "echo start; sleep 1000", true);
    job.stdout.wait_for("start", 2);
    job.send(Signal::SIGKILL);
    let mark = job.mark.clone();
    eventually("all are gone", || living(&mark).is_empty());
    assert_eq!(job.finish().code, 137);
}

//! `/metrics`: a job in Prometheus' text format.

use std::fmt::Write;

use crate::status::snapshot::{JobState, RankLine, RankState, Snapshot};

/// What is written.
#[derive(Default)]
struct Page {
    text: String,
}

/// Of a metric: its name and what it means. One that ends in `_total` is a counter, others are gauges.
struct Metric(&'static str, &'static str);

impl Page {
    fn metric(&mut self, Metric(name, help): Metric, samples: &[(Vec<(&str, &str)>, f64)]) {
        if samples.is_empty() {
            return;
        }
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let _ = writeln!(self.text, "# HELP torchrs_{name} {help}\n# TYPE torchrs_{name} {kind}");
        for (labels, value) in samples {
            let _ = write!(self.text, "torchrs_{name}");
            let labels: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            if !labels.is_empty() {
                let _ = write!(self.text, "{{{}}}", labels.join(","));
            }
            let value = match *value {
                value if value.is_nan() => "NaN".to_owned(),
                f64::INFINITY => "+Inf".to_owned(),
                f64::NEG_INFINITY => "-Inf".to_owned(),
                value => value.to_string(),
            };
            let _ = writeln!(self.text, " {value}");
        }
    }

    /// A metric of the job.
    fn one(&mut self, metric: Metric, value: f64) {
        self.metric(metric, &[(Vec::new(), value)]);
    }

    /// A metric of the job that may be unknown.
    fn some(&mut self, metric: Metric, value: Option<f64>) {
        if let Some(value) = value {
            self.one(metric, value);
        }
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The page.
pub fn metrics(snapshot: &Snapshot) -> String {
    let mut page = Page::default();
    let (job, speed) = (&snapshot.job, &snapshot.speed);
    let about = vec![
        ("run_id", &*job.run_id),
        ("job_id", &*job.job_id),
        ("program", &*job.program),
        ("host", &*job.host),
        ("version", &*job.version),
    ];
    page.metric(Metric("job_info", "The job; always 1."), &[(about, 1.0)]);
    let states = [
        ("starting", JobState::Starting),
        ("running", JobState::Running),
        ("stopping", JobState::Stopping),
        ("failing", JobState::Failing),
        ("ended", JobState::Ended),
    ];
    let state = states
        .map(|(name, state)| (vec![("state", name)], f64::from(u8::from(job.state == state))));
    page.metric(Metric("job_state", "1 for the state that the job is in."), &state);
    page.one(
        Metric("job_start_time_seconds", "When the launcher started, since 1970."),
        job.started_ms as f64 / 1e3,
    );
    page.one(
        Metric("restarts_total", "Starts of all workers after a failure."),
        job.restarts.into(),
    );
    page.one(Metric("world_size", "Ranks of the job."), job.world_size as f64);
    page.one(Metric("hosts", "Hosts of the job."), job.hosts as f64);
    let events = snapshot.events.last().map_or(0, |event| event.number);
    page.one(Metric("events_total", "Starts, ends, checkpoints and the like."), events as f64);
    page.one(Metric("step", "The step that the program has come to."), speed.step as f64);
    page.one(Metric("steps_per_second", "Steps a second of the median rank."), speed.steps_per_s);
    page.some(Metric("samples_per_second", "Samples a second of all ranks."), speed.samples_per_s);
    page.some(Metric("tokens_per_second", "Tokens a second of all ranks."), speed.tokens_per_s);
    page.some(
        Metric("flops_per_second", "Floating-point operations a second of all ranks."),
        speed.flops_per_s,
    );
    page.some(Metric("mfu_ratio", "The share of what the devices can do."), speed.mfu);
    let scalar = |scalar: &crate::status::snapshot::ScalarLine| scalar.value.0;
    let scalars: Vec<_> =
        snapshot.scalars.iter().map(|line| (vec![("name", &*line.name)], scalar(line))).collect();
    page.metric(Metric("scalar", "A number that the program has logged last."), &scalars);
    let saved = snapshot.checkpoint;
    page.some(
        Metric("checkpoint_step", "The step of the last checkpoint."),
        saved.map(|saved| saved.step as f64),
    );
    page.some(
        Metric("checkpoint_time_seconds", "When the last checkpoint was saved, since 1970."),
        saved.map(|saved| saved.at_ms as f64 / 1e3),
    );
    ranks(&mut page, snapshot);
    page.text
}

/// The metrics of each rank.
fn ranks(page: &mut Page, snapshot: &Snapshot) {
    let names: Vec<String> = snapshot.ranks.iter().map(|line| line.rank.to_string()).collect();
    let host = |line: &RankLine| snapshot.hosts.get(line.host).map_or("", |host| &*host.name);
    let mut all = |metric: Metric, of: &dyn Fn(&RankLine) -> Option<f64>| {
        let samples: Vec<_> = snapshot
            .ranks
            .iter()
            .zip(&names)
            .filter_map(|(line, name)| {
                Some((vec![("rank", &**name), ("host", host(line))], of(line)?))
            })
            .collect();
        page.metric(metric, &samples);
    };
    let flag = |value: bool| Some(f64::from(u8::from(value)));
    let bytes = |bytes: u64| (bytes > 0).then_some(bytes as f64);
    let runs = |line: &RankLine| matches!(line.state, RankState::Started | RankState::Running);
    all(Metric("rank_up", "1 while the rank's process runs."), &|line| flag(runs(line)));
    all(Metric("rank_slow", "1 while the other ranks wait for it."), &|line| flag(line.slow));
    all(Metric("rank_steps_total", "Steps of its optimizers since it started."), &|line| {
        Some(line.step as f64)
    });
    all(Metric("rank_cpu_cores", "Cores that its process keeps busy."), &|line| Some(line.cpu));
    all(Metric("rank_resident_memory_bytes", "Resident memory of its process."), &|line| {
        bytes(line.resident)
    });
    all(Metric("rank_host_tensor_bytes", "Tensors in the host's memory."), &|line| {
        bytes(line.host_tensors)
    });
    all(Metric("rank_device_tensor_bytes", "Tensors in its device's memory."), &|line| {
        bytes(line.device_tensors)
    });
    all(Metric("rank_device_tensor_peak_bytes", "The most of them."), &|line| {
        bytes(line.device_peak)
    });
    all(Metric("rank_gpu_busy_ratio", "Share of its GPU's time in which a kernel ran."), &|line| {
        line.gpu_busy
    });
    all(
        Metric("rank_gpu_memory_used_bytes", "Memory in use of its GPU, by all processes."),
        &|line| bytes(line.gpu_used),
    );
    all(Metric("rank_gpu_memory_bytes", "Memory of its GPU."), &|line| bytes(line.gpu_total));
    all(
        Metric("rank_waited_ratio", "Share of its time in which it waits for other ranks."),
        &|line| Some(line.waited),
    );
    let mut shares = Vec::new();
    for (line, name) in snapshot.ranks.iter().zip(&names) {
        for (phase, share) in line.time.iter().flat_map(|time| time.named()) {
            let labels = vec![("rank", &**name), ("host", host(line)), ("phase", phase)];
            shares.push((labels, share));
        }
    }
    page.metric(Metric("rank_time_ratio", "Share of its time, by what it goes into."), &shares);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::numbers::Number;
    use crate::status::snapshot::{HostLine, ScalarLine};

    #[test]
    fn each_metric_has_its_help_and_type_and_labels_are_escaped() {
        let scalar =
            |name: &str, value| ScalarLine { name: name.into(), value: Number(value), step: 1 };
        let mut snapshot = Snapshot {
            scalars: vec![scalar("loss", f64::NAN), scalar("a\"b\\c\nd", f64::NEG_INFINITY)],
            hosts: vec![HostLine { name: "node1".into(), ..Default::default() }],
            ranks: vec![RankLine { rank: 3, step: 7, ..Default::default() }],
            ..Default::default()
        };
        snapshot.job.restarts = 2;
        let text = metrics(&snapshot);
        for line in [
            "# TYPE torchrs_restarts_total counter",
            "torchrs_restarts_total 2",
            "torchrs_scalar{name=\"loss\"} NaN",
            r#"torchrs_scalar{name="a\"b\\c\nd"} -Inf"#,
            "torchrs_rank_steps_total{rank=\"3\",host=\"node1\"} 7",
            "torchrs_job_state{state=\"starting\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        let mut described = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                described = rest.split(' ').next().unwrap();
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                assert_eq!(name, described, "{line}");
            }
        }
    }
}

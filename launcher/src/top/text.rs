//! A job as lines of text.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use crate::status::numbers::unix_ms;
use crate::status::snapshot::{JobState, RankLine, RankState, Snapshot};

/// Events that are shown.
const EVENTS: usize = 8;

/// A text that others have made, in one line and without a terminal's commands.
fn plain(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(shown).collect()
}

/// A line for each of several jobs.
pub fn list(jobs: &[Snapshot]) -> String {
    let mut text = format!(
        "{:<10} {:>8} {:<9} {:>6} {:>9} {:<22} program\n",
        "job", "pid", "state", "ranks", "step", "run"
    );
    for snapshot in jobs {
        let job = &snapshot.job;
        let run = if job.run_id == job.job_id { String::new() } else { plain(&job.run_id) };
        let _ = writeln!(
            text,
            "{:<10} {:>8} {:<9} {:>6} {:>9} {run:<22} {}",
            &job.job_id[..job.job_id.len().min(8)],
            job.pid,
            state(snapshot),
            job.world_size,
            snapshot.speed.step,
            plain(&job.program)
        );
    }
    text + "torchrs top JOB shows one of them\n"
}

fn state(snapshot: &Snapshot) -> String {
    match (snapshot.job.state, snapshot.job.exit_code) {
        (JobState::Starting, _) => "starting".into(),
        (JobState::Running, _) => "running".into(),
        (JobState::Stopping, _) => "stopping".into(),
        (JobState::Failing, _) => "failing".into(),
        (JobState::Ended, Some(0) | None) => "done".into(),
        (JobState::Ended, Some(code)) => format!("ended with exit code {code}"),
    }
}

/// A job, in so many columns and lines at most, with the ranks from `first` on.
pub fn job(snapshot: &Snapshot, columns: usize, lines: usize, first: usize) -> String {
    let mut text = head(snapshot);
    let events = events(snapshot);
    let used = text.lines().count() + events.lines().count() + 2;
    let room = lines.saturating_sub(used).max(3);
    text += &ranks(snapshot, first.min(snapshot.ranks.len().saturating_sub(1)), room);
    text += &events;
    let cut = |line: &str| line.chars().take(columns).collect::<String>() + "\n";
    // The head is more than some terminals have room for.
    text.lines().take(lines).map(cut).collect()
}

fn head(snapshot: &Snapshot) -> String {
    let (job, speed) = (&snapshot.job, &snapshot.speed);
    let mut text = String::new();
    let lasting = Duration::from_secs(snapshot.at_ms.saturating_sub(job.started_ms) / 1000);
    let plural =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut facts = vec![plural(job.world_size, "rank")];
    if job.hosts > 1 {
        facts.push(plural(job.hosts, "host"));
    }
    facts.push(humantime::format_duration(lasting).to_string());
    if job.restarts > 0 || job.max_restarts > 0 {
        facts.push(format!("{} of {} restarts", job.restarts, job.max_restarts));
    }
    if job.simulated_gpus.is_some() {
        facts.push("simulated GPUs: speeds mean nothing".into());
    }
    let _ = writeln!(
        text,
        "{} {} (pid {}): {}",
        plain(&job.program),
        plain(&job.arguments.join(" ")),
        job.pid,
        state(snapshot)
    );
    let _ = writeln!(text, "run {}; {}", plain(&job.run_id), facts.join(", "));
    let mut numbers =
        vec![format!("step {}", speed.step), format!("{} steps/s", speed.steps_per_s)];
    let known = [
        ("samples/s", speed.samples_per_s),
        ("tokens/s", speed.tokens_per_s),
        ("TFLOP/s", speed.flops_per_s.map(|flops| flops / 1e12)),
        ("% MFU", speed.mfu.map(|mfu| 100.0 * mfu)),
    ];
    for (name, number) in known {
        numbers.extend(number.map(|number| format!("{} {name}", brief(number))));
    }
    let _ = writeln!(text, "{}", numbers.join(", "));
    if !snapshot.scalars.is_empty() {
        let scalars = snapshot.scalars.iter();
        let scalars: Vec<String> = scalars
            .map(|scalar| format!("{} {}", plain(&scalar.name), brief(scalar.value.0)))
            .collect();
        let _ = writeln!(text, "{}", scalars.join(", "));
    }
    if let Some(time) = &snapshot.time {
        let shares = time.named();
        let shares: Vec<String> =
            shares.iter().map(|(name, share)| format!("{name} {:.0}%", 100.0 * share)).collect();
        let _ = writeln!(text, "time: {}", shares.join(", "));
    }
    if let Some(saved) = &snapshot.checkpoint {
        let ago = Duration::from_secs(snapshot.at_ms.saturating_sub(saved.at_ms) / 1000);
        let ago = humantime::format_duration(ago);
        let _ = writeln!(text, "checkpoint of step {}, {ago} ago", saved.step);
    }
    for host in snapshot.hosts.iter().filter(|_| snapshot.hosts.len() > 1) {
        let last = host.first_rank + host.ranks.max(1) - 1;
        let _ = writeln!(
            text,
            "host {}: ranks {} to {last}, load {} on {} cores",
            plain(&host.name),
            host.first_rank,
            host.load,
            host.cores
        );
    }
    text
}

fn ranks(snapshot: &Snapshot, first: usize, room: usize) -> String {
    let mut text = format!(
        "\n{:>5} {:>8} {:<28} {:<16} {:>9} {:>9} {:>6} {:>5} {:>6} {:>9}\n",
        "rank", "pid", "state", "device", "memory", "tensors", "cpu", "gpu", "waits", "step"
    );
    for line in snapshot.ranks.iter().skip(first).take(room) {
        let tensors = if line.device_peak > 0 { line.device_tensors } else { line.host_tensors };
        let device: String = plain(&line.device).chars().take(16).collect();
        let _ = writeln!(
            text,
            "{:>5} {:>8} {:<28} {device:<16} {:>9} {:>9} {:>5.0}% {:>5} {:>5.0}% {:>9}",
            line.rank,
            line.pid,
            is_at(line),
            bytes(line.resident),
            bytes(tensors),
            100.0 * line.cpu,
            line.gpu_busy.map_or_else(String::new, |busy| format!("{:.0}%", 100.0 * busy)),
            100.0 * line.waited,
            line.step
        );
    }
    let shown = snapshot.ranks.len().saturating_sub(first).min(room);
    if shown < snapshot.ranks.len() {
        let last = first + shown;
        let _ = writeln!(
            text,
            "ranks {first} to {} of {}; j and k go on",
            last - 1,
            snapshot.ranks.len()
        );
    }
    text
}

fn is_at(line: &RankLine) -> String {
    match line.state {
        RankState::Done | RankState::Failed => plain(&line.how),
        RankState::Started => "started".into(),
        RankState::Running if line.slow => "slow: others wait for it".into(),
        RankState::Running if line.doing.is_empty() => "running".into(),
        RankState::Running => format!("in {} for {:.0} s", line.doing, line.doing_s),
    }
}

fn events(snapshot: &Snapshot) -> String {
    let mut text = String::from("\n");
    let events = &snapshot.events;
    for event in &events[events.len().saturating_sub(EVENTS)..] {
        let at = UNIX_EPOCH + Duration::from_millis(event.at_ms);
        let ago = Duration::from_secs(snapshot.at_ms.saturating_sub(unix_ms(at)) / 1000);
        let _ =
            writeln!(text, "{:>12} ago  {}", humantime::format_duration(ago), plain(&event.text));
    }
    text
}

fn bytes(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        0.0 => String::new(),
        mib if mib < 10_240.0 => format!("{mib:.0} MiB"),
        mib => format!("{:.1} GiB", mib / 1024.0),
    }
}

/// A number in few digits.
fn brief(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        number.to_string()
    } else if size != 0.0 && !(1e-3..1e9).contains(&size) {
        format!("{number:.2e}")
    } else if size >= 1000.0 || number.fract() == 0.0 {
        format!("{number:.0}")
    } else {
        format!("{number:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::numbers::Number;
    use crate::status::snapshot::ScalarLine;

    fn snapshot(ranks: usize) -> Snapshot {
        let line = |rank| RankLine { rank, state: RankState::Running, ..Default::default() };
        let value = Number(f64::NAN);
        let scalars = vec![ScalarLine { name: "loss".into(), value, step: 3 }];
        let mut snapshot =
            Snapshot { ranks: (0..ranks).map(line).collect(), scalars, ..Default::default() };
        snapshot.job.program = "train".into();
        snapshot.job.world_size = ranks;
        snapshot
    }

    #[test]
    fn a_job_fits_on_the_terminal() {
        let text = job(&snapshot(1000), 60, 24, 990);
        assert!(text.lines().count() <= 24, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(
            text.contains("  990 ") && text.contains("of 1000") && text.contains("loss NaN"),
            "{text}"
        );
        let all = job(&snapshot(3), usize::MAX, usize::MAX, 0);
        assert!(all.contains("    2 ") && !all.contains("j and k"), "{all}");
    }

    #[test]
    fn a_small_terminal_has_the_beginning_and_nothing_moves_its_cursor() {
        let mut snapshot = snapshot(8);
        snapshot.job.arguments = vec!["\x1b]0;title\x07\nsecond\tline".into()];
        snapshot.job.run_id = "run\x1b[2J".into();
        for lines in [1, 3, 12] {
            let text = job(&snapshot, 30, lines, 0);
            assert!(text.lines().count() <= lines, "{text}");
            assert!(text.starts_with("train \u{fffd}]0;title\u{fffd} second"), "{text}");
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        }
        assert!(!list(&[snapshot]).contains('\x1b'));
    }

    #[test]
    fn numbers_are_brief() {
        let texts = [12345.678, 0.5, 2.0, 1e-5, 3e12, 0.0].map(brief);
        assert_eq!(texts, ["12346", "0.5000", "2", "1.00e-5", "3.00e12", "0"]);
    }
}

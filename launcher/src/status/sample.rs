//! Looks at this host's workers: their slots of the board and what the kernel knows of them, compared with looks
//! before; and one picture of all hosts.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use torchrs_job::board::{Reading, TimeOf};
use torchrs_job::report::monotonic_ns;

use super::event::JobEvent;
use super::gpus::Gpus;
use super::live::{Member, Round};
use super::numbers::{Number, short, unix_ms};
use super::slow::{SlowRanks, slow_ranks};
use super::snapshot::{
    CheckpointLine, HostLine, JobLine, RankLine, RankState, ScalarLine, Snapshot, Speed, TimeShares,
};
use super::usage::{Usage, of_host};
use crate::nproc::cores;
use crate::signals::is_prepared;

/// Rates are taken over as much time.
const WINDOW: Duration = Duration::from_secs(8);
/// Nanoseconds after which it is said what a worker is at, rather than that it runs.
const NOTABLE: u64 = 1_000_000_000;

/// What a host says of its workers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSample {
    /// Of the round.
    pub attempt: u32,
    pub host: HostLine,
    pub ranks: Vec<RankLine>,
    pub scalars: Vec<ScalarLine>,
    pub checkpoint: Option<CheckpointLine>,
    pub can_save: bool,
}

/// What a worker had done by some moment.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    at: u64,
    steps: u64,
    samples: u64,
    /// Seconds.
    cpu: f64,
    /// Nanoseconds, with what is under way.
    times: [u64; TimeOf::ALL.len()],
    waited: u64,
}

/// Looks at workers, and remembers.
#[derive(Debug, Default)]
pub struct Sampler {
    /// By pid, oldest first.
    before: HashMap<i32, VecDeque<Done>>,
    /// The last whole readings: a worker may be killed while it writes.
    readings: HashMap<i32, Reading>,
    slow: SlowRanks,
    gpus: Gpus,
    /// The last checkpoint that was told of, and the start of workers that slow ranks were looked for in.
    saved: Option<CheckpointLine>,
    attempt: u32,
}

impl Sampler {
    /// A look at the workers of a round.
    pub fn sample(&mut self, round: &Round, members: &[Member]) -> HostSample {
        let pids: Vec<i32> = members.iter().map(|member| member.pid).collect();
        self.before.retain(|pid, _| pids.contains(pid));
        self.readings.retain(|pid, _| pids.contains(pid));
        let (load, memory_total, memory_used) = of_host();
        let first_rank = round.place.first_rank;
        let host = HostLine {
            name: nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned(),
            first_rank,
            ranks: members.len(),
            cores: cores(),
            load,
            memory_total,
            memory_used,
            silent_s: 0.0,
        };
        let mut sample = HostSample { attempt: round.place.attempt, host, ..Default::default() };
        for (local_rank, member) in members.iter().enumerate() {
            let reading = round.board.as_ref().and_then(|board| board.read(local_rank));
            let reading = reading.map(|reading| self.whole(member.pid, reading));
            let line = self.line(local_rank, member, reading.as_ref());
            if let Some(reading) = &reading {
                note_logged(&mut sample, reading);
            }
            sample.ranks.push(line);
        }
        let runs = members.iter().find(|member| member.ended.is_none());
        let pid = runs.map(|member| nix::unistd::Pid::from_raw(member.pid));
        sample.can_save =
            pid.is_some_and(|pid| is_prepared(pid, nix::sys::signal::Signal::SIGUSR1));
        sample
    }

    /// With what was logged before, where the worker is writing just now.
    fn whole(&mut self, pid: i32, mut reading: Reading) -> Reading {
        if reading.logged.is_none() {
            reading.logged = self.readings.get(&pid).and_then(|before| before.logged.clone());
        }
        self.readings.insert(pid, reading.clone());
        reading
    }

    fn line(&mut self, local_rank: usize, member: &Member, reading: Option<&Reading>) -> RankLine {
        let mut line =
            RankLine { rank: member.rank, local_rank, pid: member.pid, ..Default::default() };
        line.state = match (&member.ended, reading) {
            (Some((_, true)), _) => RankState::Done,
            (Some((_, false)), _) => RankState::Failed,
            (None, Some(_)) => RankState::Running,
            (None, None) => RankState::Started,
        };
        let usage = member.ended.is_none().then(|| Usage::of(member.pid)).flatten();
        if let Some((how, _)) = &member.ended {
            line.how.clone_from(how);
        }
        line.resident = usage.map_or(0, |usage| usage.resident);
        let now = monotonic_ns();
        let mut done = Done { at: now, cpu: usage.map_or(0.0, |u| u.cpu_s), ..Default::default() };
        if let Some(reading) = reading {
            fill(&mut line, &mut done, reading, member.ended.is_none());
            let bus = reading.logged.as_ref().map_or("", |logged| &logged.device.bus);
            if member.ended.is_none()
                && !bus.is_empty()
                && let Some(gpu) = self.gpus.at(bus)
            {
                line.gpu_busy = gpu.busy;
                (line.gpu_used, line.gpu_total) = (gpu.memory_used, gpu.memory_total);
            }
        }
        let before = self.before.entry(member.pid).or_default();
        let window = WINDOW.as_nanos() as u64;
        while before.len() > 1 && before[1].at + window < now {
            before.pop_front();
        }
        // The first look compares with the worker's own beginning.
        let begun = reading.map_or(now, |reading| reading.attached_at);
        let from = before.front().copied().unwrap_or(Done { at: begun, ..Default::default() });
        if usage.is_some() {
            rates(&mut line, &from, &done, reading);
        }
        before.push_back(done);
        line
    }

    /// What is noteworthy in a picture of all hosts: ranks that the others wait for, and new checkpoints.
    pub fn judge(&mut self, snapshot: &mut Snapshot) -> Vec<JobEvent> {
        if self.attempt != snapshot.job.attempt {
            self.attempt = snapshot.job.attempt;
            self.slow.forget();
        }
        let mut events = Vec::new();
        let running = |line: &&RankLine| line.state == RankState::Running && line.time.is_some();
        let lines: Vec<&RankLine> = snapshot.ranks.iter().filter(running).collect();
        let waited: Vec<f64> = lines.iter().map(|line| line.waited).collect();
        let (slow, most) = slow_ranks(&waited);
        let slow = slow.into_iter().map(|place| lines[place].rank).collect();
        let (slow, is_news) = self.slow.look(slow);
        for line in &mut snapshot.ranks {
            line.slow = slow.contains(&line.rank);
        }
        if is_news {
            let percent = (100.0 * most).round() as u32;
            events.push(JobEvent::Slow { ranks: slow, percent });
        }
        // Of workers that were started again after it.
        let saved = snapshot.checkpoint.or(self.saved);
        if let Some(saved) = saved
            && self.saved.is_none_or(|before| before.at_ns != saved.at_ns)
        {
            events.push(JobEvent::Checkpoint { step: saved.step, seconds: saved.seconds });
        }
        (self.saved, snapshot.checkpoint) = (saved, saved);
        events
    }
}

/// What a slot says of its worker.
fn fill(line: &mut RankLine, done: &mut Done, reading: &Reading, runs: bool) {
    let logged = reading.logged.as_ref();
    let logged_step = logged.filter(|logged| logged.at != 0).map_or(0, |logged| logged.step);
    line.step = if reading.steps > 0 { reading.steps } else { logged_step };
    (line.host_tensors, line.host_peak) = reading.host_memory;
    (line.device_tensors, line.device_peak) = reading.device_memory;
    if let Some(logged) = logged {
        line.device = match logged.device.gpu {
            Some(index) => format!("cuda:{index} {}", logged.device.name).trim_end().to_owned(),
            None => logged.device.name.clone(),
        };
    }
    line.peak_flops = reading.peak_flops.unwrap_or(0.0);
    (done.steps, done.samples) = (line.step, reading.samples);
    (done.times, done.waited) = (reading.times, reading.waited);
    let Some((doing, since)) = reading.doing.filter(|_| runs) else { return };
    let time = done.at.saturating_sub(since.as_nanos() as u64);
    if time >= NOTABLE {
        line.doing = doing.name().to_owned();
        line.doing_s = short(time as f64 / 1e9);
    }
    done.times[doing.time_of() as usize] += time;
    if doing.time_of() == TimeOf::Communication && time >= NOTABLE {
        done.waited += time;
    }
}

/// From one look to another.
fn rates(line: &mut RankLine, from: &Done, to: &Done, reading: Option<&Reading>) {
    let seconds = to.at.saturating_sub(from.at) as f64 / 1e9;
    if seconds < 0.05 {
        return;
    }
    let a_second = |from: u64, to: u64| short(to.saturating_sub(from) as f64 / seconds);
    line.cpu = short((to.cpu - from.cpu).max(0.0) / seconds);
    line.steps_per_s = a_second(from.steps, to.steps);
    let Some(reading) = reading else { return };
    line.samples_per_s = a_second(from.samples, to.samples);
    line.tokens_per_s = short(line.samples_per_s * reading.tokens_per_sample.unwrap_or(0.0));
    line.flops_per_s = short(line.samples_per_s * reading.flops_per_sample.unwrap_or(0.0));
    let share = |ns: u64| (ns as f64 / 1e9 / seconds).min(1.0);
    line.waited = short(share(to.waited.saturating_sub(from.waited)));
    if to.steps == 0 {
        return;
    }
    let part = |of: TimeOf| {
        let place = of as usize;
        short(share(to.times[place].saturating_sub(from.times[place])))
    };
    let mut time = TimeShares {
        compute: 0.0,
        data: part(TimeOf::Data),
        communication: part(TimeOf::Communication),
        optimizer: part(TimeOf::Optimizer),
        checkpoint: part(TimeOf::Checkpoint),
    };
    let others: f64 = time.named().iter().map(|(_, share)| share).sum();
    time.compute = short((1.0 - others).max(0.0));
    line.time = Some(time);
}

/// Takes over what a worker has logged, where one of a lower rank has not.
fn note_logged(sample: &mut HostSample, reading: &Reading) {
    let Some(logged) = &reading.logged else { return };
    if sample.scalars.is_empty() && logged.at != 0 {
        let scalar = |scalar: &torchrs_job::board::Scalar| ScalarLine {
            name: scalar.name.clone(),
            value: Number(scalar.value),
            step: scalar.step,
        };
        sample.scalars = logged.scalars.iter().map(scalar).collect();
    }
    if let Some(saved) = logged.saved {
        let ago = Duration::from_nanos(monotonic_ns().saturating_sub(saved.at));
        let line = CheckpointLine {
            step: saved.step,
            at_ns: saved.at,
            at_ms: unix_ms(SystemTime::now() - ago),
            seconds: short(saved.took as f64 / 1e9),
        };
        let is_later = sample.checkpoint.is_none_or(|other| other.at_ns < line.at_ns);
        if is_later {
            sample.checkpoint = Some(line);
        }
    }
}

/// One picture of all hosts.
pub fn merged(mut job: JobLine, mut samples: Vec<HostSample>) -> Snapshot {
    samples.sort_by_key(|sample| sample.host.first_rank);
    let mut snapshot = Snapshot { at_ms: unix_ms(SystemTime::now()), ..Default::default() };
    for (place, sample) in samples.into_iter().enumerate() {
        job.can_save |= sample.can_save;
        snapshot.hosts.push(sample.host);
        snapshot.ranks.extend(sample.ranks.into_iter().map(|mut line| {
            line.host = place;
            line
        }));
        if snapshot.scalars.is_empty() {
            snapshot.scalars = sample.scalars;
        }
        let is_later = |line: &CheckpointLine| {
            snapshot.checkpoint.is_none_or(|other| other.at_ms < line.at_ms)
        };
        if let Some(line) = sample.checkpoint.filter(is_later) {
            snapshot.checkpoint = Some(line);
        }
    }
    snapshot.ranks.sort_by_key(|line| line.rank);
    snapshot.job = job;
    snapshot.speed = speed(&snapshot);
    let times: Vec<TimeShares> = snapshot.ranks.iter().filter_map(|line| line.time).collect();
    snapshot.time = mean(&times);
    snapshot
}

fn speed(snapshot: &Snapshot) -> Speed {
    let sum = |of: fn(&RankLine) -> f64| snapshot.ranks.iter().map(of).sum::<f64>();
    let known = |sum: f64| (sum > 0.0).then(|| short(sum));
    let mut steps: Vec<f64> = snapshot.ranks.iter().map(|line| line.steps_per_s).collect();
    steps.sort_by(f64::total_cmp);
    let logged = snapshot.scalars.iter().map(|scalar| scalar.step).max();
    let counted = snapshot.ranks.iter().map(|line| line.step).max();
    let (flops, peak) = (sum(|line| line.flops_per_s), sum(|line| line.peak_flops));
    Speed {
        step: logged.or(counted).unwrap_or(0),
        steps_per_s: steps.get(steps.len() / 2).copied().unwrap_or(0.0),
        samples_per_s: known(sum(|line| line.samples_per_s)),
        tokens_per_s: known(sum(|line| line.tokens_per_s)),
        flops_per_s: known(flops),
        mfu: known(flops / peak).filter(|mfu| mfu.is_finite()),
    }
}

fn mean(times: &[TimeShares]) -> Option<TimeShares> {
    if times.is_empty() {
        return None;
    }
    let mean =
        |of: fn(&TimeShares) -> f64| short(times.iter().map(of).sum::<f64>() / times.len() as f64);
    Some(TimeShares {
        compute: mean(|time| time.compute),
        data: mean(|time| time.data),
        communication: mean(|time| time.communication),
        optimizer: mean(|time| time.optimizer),
        checkpoint: mean(|time| time.checkpoint),
    })
}

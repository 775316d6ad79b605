//! What the supervisor says of a job, and the looks at it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gethostname};
use torchrs_job::board::Board;

use super::event::{Events, JobEvent};
use super::numbers::unix_ms;
use super::sample::{HostSample, Sampler, merged};
use super::snapshot::{JobLine, JobState, Snapshot};
use crate::place::Place;
use crate::plan::Plan;
use crate::streams::Shared;
use crate::supervisor::say;

/// What was looked at so recently is not looked at again.
const FRESH: Duration = Duration::from_millis(90);
/// Bytes of a host's report at most.
const REPORT: usize = 1 << 20;
/// A host that was silent for so long is shown no more.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// All that is known of a job.
pub struct Status {
    /// What stays the same.
    fixed: JobLine,
    live: Mutex<Live>,
    /// Held while somebody looks.
    looking: Mutex<Looking>,
    /// Something has happened that whoever watches wants to see.
    news: Condvar,
}

/// The workers of one start.
pub struct Round {
    pub place: Place,
    /// By local rank.
    pub members: Vec<Member>,
    /// Nothing where the system gave no memory for it.
    pub board: Option<Arc<Board>>,
    /// The end of their output.
    pub output: Arc<Shared>,
}

/// A worker, as far as the launcher knows it.
#[derive(Debug, Clone)]
pub struct Member {
    pub rank: usize,
    pub pid: i32,
    /// How it ended, and whether well.
    pub ended: Option<(String, bool)>,
}

struct Live {
    round: Option<Arc<Round>>,
    /// Those of the round, with their ends.
    members: Vec<Member>,
    state: JobState,
    exit_code: Option<i32>,
    leader: Option<String>,
    leads: bool,
    /// What is printed once this host leads.
    notice_to_leader: Option<String>,
    events: Events,
    /// What other hosts have said last, by their first rank.
    others: BTreeMap<usize, (Instant, HostSample)>,
    /// Counts what happens.
    news: u64,
}

struct Looking {
    sampler: Sampler,
    last: Option<(Instant, Arc<Look>)>,
}

/// A look at the job.
pub struct Look {
    /// What had happened by then, in numbers.
    news: u64,
    pub snapshot: Snapshot,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whatever a panicking holder left is something to show, no more.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Status {
    /// Of a job that is about to start.
    pub fn new(plan: &Plan) -> Arc<Self> {
        let text = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
        let host = gethostname().unwrap_or_default().to_string_lossy().into_owned();
        let fixed = JobLine {
            run_id: plan.run_id.clone(),
            job_id: plan.job_id.clone(),
            program: plan.argv.first().map(text).unwrap_or_default(),
            arguments: plan.argv.iter().skip(1).map(text).collect(),
            pid: Pid::this().as_raw(),
            host,
            started_ms: unix_ms(SystemTime::now()),
            max_restarts: plan.max_restarts,
            simulated_gpus: plan.simulated.as_ref().map(|simulated| simulated.gpus),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        };
        let live = Live {
            round: None,
            members: Vec::new(),
            state: JobState::Starting,
            exit_code: None,
            leader: None,
            leads: false,
            notice_to_leader: None,
            events: Events::default(),
            others: BTreeMap::new(),
            news: 0,
        };
        let looking = Looking { sampler: Sampler::default(), last: None };
        Arc::new(Status {
            fixed,
            live: Mutex::new(live),
            looking: Mutex::new(looking),
            news: Condvar::new(),
        })
    }

    /// The job's random name.
    pub fn job_id(&self) -> &str {
        &self.fixed.job_id
    }

    /// The host's name.
    pub fn host(&self) -> &str {
        &self.fixed.host
    }

    fn change<T>(&self, change: impl FnOnce(&mut Live) -> T) -> T {
        let mut live = locked(&self.live);
        let result = change(&mut live);
        live.news += 1;
        drop(live);
        self.news.notify_all();
        result
    }

    /// Notes that something happened.
    pub fn tell(&self, event: JobEvent) {
        self.change(|live| live.events.push(event));
    }

    /// The workers of a round run.
    pub fn round_started(&self, round: Round) {
        self.change(|live| {
            let place = &round.place;
            live.events.push(JobEvent::Started {
                attempt: place.attempt,
                ranks: round.members.len(),
                world_size: place.world_size,
                hosts: place.hosts,
            });
            live.state = JobState::Running;
            live.others.clear();
            live.members.clone_from(&round.members);
            live.round = Some(Arc::new(round));
        });
    }

    /// A worker has ended.
    pub fn rank_ended(&self, local_rank: usize, how: String, success: bool) {
        self.change(|live| {
            let Some(member) = live.members.get_mut(local_rank) else { return };
            member.ended = Some((how.clone(), success));
            let (rank, pid) = (member.rank, member.pid);
            live.events.push(JobEvent::RankEnded { rank, pid, how, success });
            if !success && live.state == JobState::Running {
                live.state = JobState::Failing;
            }
        });
    }

    /// The job was asked to end.
    pub fn stopping(&self, why: String) {
        self.change(|live| {
            live.state = JobState::Stopping;
            live.events.push(JobEvent::Stopping { why });
        });
    }

    /// The workers are about to be started again. `why`: the launcher's line about it.
    pub fn restarting(&self, why: &str) {
        let why = why.trim().trim_start_matches("torchrs-launch: ").to_owned();
        self.change(|live| {
            live.state = JobState::Starting;
            live.events.push(JobEvent::Restarting { why });
        });
    }

    /// The job is over.
    pub fn ended(&self, code: i32) {
        self.change(|live| {
            live.state = JobState::Ended;
            live.exit_code = Some(code);
            live.events.push(JobEvent::Ended { code });
        });
    }

    /// Who leads the job over several hosts.
    pub fn led_by(&self, leader: Option<String>) {
        self.change(|live| live.leader = leader);
    }

    /// What another host [reports](Self::own_report) of its workers.
    pub fn heard(&self, report: &[u8]) {
        // Another release's is of no use.
        let Ok(sample) = serde_json::from_slice::<HostSample>(report) else { return };
        let mut live = locked(&self.live);
        // It may be late, and of a round before.
        let round = live.round.as_ref().map(|round| round.place.attempt);
        if round == Some(sample.attempt) {
            live.others.insert(sample.host.first_rank, (Instant::now(), sample));
        }
    }

    /// What this host's launcher says of its own workers to the one that leads; nothing while none run, or where that
    /// would be long.
    pub fn own_report(&self) -> Option<Vec<u8>> {
        let mut looking = locked(&self.looking);
        let (round, members) = self.present()?;
        let sample = looking.sampler.sample(&round, &members);
        serde_json::to_vec(&sample).ok().filter(|report| report.len() <= REPORT)
    }

    /// This host leads the job over several hosts: it knows of all.
    pub fn leads(&self) {
        let notice = self.change(|live| {
            live.leads = true;
            std::mem::take(&mut live.notice_to_leader)
        });
        if let Some(notice) = notice {
            say(notice);
        }
    }

    /// What to print when this host leads, or at once if it does.
    pub fn say_when_leading(&self, notice: String) {
        let now = self.change(|live| {
            if live.leads {
                return Some(notice);
            }
            live.notice_to_leader = Some(notice);
            None
        });
        if let Some(notice) = now {
            say(notice);
        }
    }

    fn present(&self) -> Option<(Arc<Round>, Vec<Member>)> {
        let live = locked(&self.live);
        Some((live.round.clone()?, live.members.clone()))
    }

    /// Looks at the job.
    pub fn look(&self) -> Arc<Look> {
        let mut looking = locked(&self.looking);
        if let Some((at, last)) = &looking.last
            && at.elapsed() < FRESH
        {
            return last.clone();
        }
        let news = locked(&self.live).news;
        let own = self.present().map(|(round, members)| {
            let sample = looking.sampler.sample(&round, &members);
            (round, sample)
        });
        let mut samples = Vec::new();
        let mut job = self.fixed.clone();
        let mut live = locked(&self.live);
        if let Some((round, sample)) = own {
            job.attempt = round.place.attempt;
            job.restarts = round.place.restarts;
            job.world_size = round.place.world_size;
            job.hosts = round.place.hosts;
            samples.push(sample);
        }
        live.others.retain(|_, (at, _)| at.elapsed() < FORGOTTEN);
        for (at, sample) in live.others.values() {
            let mut sample = sample.clone();
            sample.host.silent_s = at.elapsed().as_secs_f64();
            samples.push(sample);
        }
        (job.state, job.exit_code, job.leader) = (live.state, live.exit_code, live.leader.clone());
        drop(live);
        let mut snapshot = merged(job, samples);
        for event in looking.sampler.judge(&mut snapshot) {
            locked(&self.live).events.push(event);
        }
        snapshot.events = locked(&self.live).events.all();
        let look = Arc::new(Look { news, snapshot });
        looking.last = Some((Instant::now(), look.clone()));
        look
    }

    /// Waits until something happens that a look has not seen, at most for `time`.
    pub fn wait_for_news(&self, look: &Look, time: Duration) {
        let live = locked(&self.live);
        let _ = self.news.wait_timeout_while(live, time, |live| live.news == look.news);
    }

    /// The end of a rank's output; nothing where it is not this host's, or no worker runs.
    pub fn output_of(&self, rank: usize) -> Option<Vec<u8>> {
        let (round, _) = self.present()?;
        let local_rank = rank.checked_sub(round.place.first_rank)?;
        (local_rank < round.members.len()).then(|| round.output.log(local_rank))
    }

    /// Asks for the job's end, as a signal to the launcher does: a second time, at once.
    pub fn stop(&self) {
        let _ = kill(Pid::this(), Signal::SIGTERM);
    }

    /// Asks the workers to save and end, as SIGUSR1 to the launcher does.
    pub fn save_and_stop(&self) {
        let _ = kill(Pid::this(), Signal::SIGUSR1);
    }
}

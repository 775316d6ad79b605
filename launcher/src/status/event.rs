//! What happens to a job, as whoever watches it is told: one enumeration, and the last few of them.

use std::collections::VecDeque;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use torchrs_job::ranks::list_ranks;

use super::numbers::unix_ms;

/// Events that are kept; of older ones the count is known.
const KEPT: usize = 256;
/// Ends of ranks, of one start of the workers, that are events of their own. The rest share one.
const ENDS: usize = 24;

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JobEvent {
    /// The workers of a round were started on this host.
    Started { attempt: u32, ranks: usize, world_size: usize, hosts: usize },
    /// A worker has ended by itself, or was ended.
    RankEnded { rank: usize, pid: i32, how: String, success: bool },
    /// So many others have, in the same round.
    OthersEnded { count: usize },
    /// A signal asks for the job's end.
    Stopping { why: String },
    /// The workers are started again.
    Restarting { why: String },
    /// A checkpoint was saved.
    Checkpoint { step: u64, seconds: f64 },
    /// The others wait for these ranks.
    Slow { ranks: Vec<usize>, percent: u32 },
    /// A line of the launcher's about other hosts.
    Hosts { text: String },
    /// The job is over.
    Ended { code: i32 },
}

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Info,
    Warning,
    Error,
}

impl JobEvent {
    /// In words.
    pub fn text(&self) -> String {
        match self {
            JobEvent::Started { attempt, ranks, world_size, hosts } => {
                let again = if *attempt > 0 { " again" } else { "" };
                let of = match hosts {
                    1 => String::new(),
                    _ => format!(" here, of {world_size} on {hosts} hosts"),
                };
                let plural = if *ranks == 1 { "" } else { "s" };
                format!("{ranks} worker{plural} started{again}{of}")
            }
            JobEvent::RankEnded { rank, pid, how, .. } => format!("rank {rank} (pid {pid}) {how}"),
            JobEvent::OthersEnded { count: 1 } => "1 other rank ended".to_owned(),
            JobEvent::OthersEnded { count } => format!("{count} other ranks ended"),
            JobEvent::Stopping { why } => format!("stopping: {why}"),
            JobEvent::Restarting { why } => why.clone(),
            JobEvent::Checkpoint { step, seconds } => {
                format!("checkpoint of step {step} saved in {seconds:.2} s")
            }
            JobEvent::Slow { ranks, percent } => {
                format!("slow: {}; the others wait {percent}% of their time", list_ranks(ranks))
            }
            JobEvent::Hosts { text } => text.clone(),
            JobEvent::Ended { code: 0 } => "the job is done".to_owned(),
            JobEvent::Ended { code } => format!("the job ended with exit code {code}"),
        }
    }

    /// How much it matters.
    pub fn level(&self) -> Level {
        match self {
            JobEvent::RankEnded { success: false, .. } => Level::Error,
            JobEvent::Ended { code } if *code != 0 => Level::Error,
            JobEvent::Restarting { .. } | JobEvent::Stopping { .. } | JobEvent::Slow { .. } => {
                Level::Warning
            }
            _ => Level::Info,
        }
    }
}

/// An event with its number and time, as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Counts the events of a job, from 1.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub level: Level,
    pub text: String,
    pub event: JobEvent,
}

/// The last events of a job.
#[derive(Debug, Default)]
pub struct Events {
    told: VecDeque<Told>,
    last: u64,
    /// Ends of ranks since the last start.
    ends: usize,
}

impl Events {
    /// Takes an event that happens now.
    pub fn push(&mut self, mut event: JobEvent) {
        match &event {
            JobEvent::Started { .. } => self.ends = 0,
            JobEvent::RankEnded { .. } => {
                self.ends += 1;
                if self.ends > ENDS {
                    let is_others =
                        |told: &Told| matches!(told.event, JobEvent::OthersEnded { .. });
                    if self.told.back().is_some_and(is_others) {
                        self.told.pop_back();
                    }
                    event = JobEvent::OthersEnded { count: self.ends - ENDS };
                }
            }
            // One after the other are one line, or they would push out all else.
            JobEvent::Checkpoint { .. } => {
                let is_one = |told: &Told| matches!(told.event, JobEvent::Checkpoint { .. });
                if self.told.back().is_some_and(is_one) {
                    self.told.pop_back();
                }
            }
            _ => {}
        }
        self.last += 1;
        let (level, text) = (event.level(), event.text());
        let at_ms = unix_ms(SystemTime::now());
        self.told.push_back(Told { number: self.last, at_ms, level, text, event });
        if self.told.len() > KEPT {
            self.told.pop_front();
        }
    }

    /// Those that are kept, oldest first.
    pub fn all(&self) -> Vec<Told> {
        self.told.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ends_share_an_event_and_old_events_go() {
        let mut events = Events::default();
        let started = || JobEvent::Started { attempt: 0, ranks: 40, world_size: 40, hosts: 1 };
        let ended = |rank| {
            let how = "exited with code 1".to_owned();
            JobEvent::RankEnded { rank, pid: 7, how, success: false }
        };
        events.push(started());
        (0..40).for_each(|rank| events.push(ended(rank)));
        let all = events.all();
        assert_eq!(all.len(), 1 + ENDS + 1);
        assert_eq!(all.last().unwrap().text, "16 other ranks ended");
        assert_eq!(all[1].text, "rank 0 (pid 7) exited with code 1");
        events.push(started());
        (0..3).for_each(|step| events.push(JobEvent::Checkpoint { step, seconds: 0.5 }));
        let all = events.all();
        assert_eq!(all.last().unwrap().text, "checkpoint of step 2 saved in 0.50 s");
        assert_eq!(all.len(), 1 + ENDS + 1 + 1 + 1);
        (0..KEPT + 5).for_each(|_| events.push(JobEvent::Hosts { text: "x".into() }));
        let all = events.all();
        assert_eq!(all.len(), KEPT);
        assert!(all.windows(2).all(|two| two[0].number < two[1].number));
    }
}

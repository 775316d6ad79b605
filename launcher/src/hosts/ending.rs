//! How a round or the whole job ended, in words and as an exit code. Only the leader's launcher says it in full.

use torchrs_rendezvous::ending::Ending;
use torchrs_rendezvous::protocol::{HostId, Round, Verdict, Why};

use super::report::{HostReport, signal_name};
use crate::failure;
use crate::group::Outcome;
use crate::plan::Plan;
use crate::report::Report;

/// The story of a round.
pub struct Story<'a> {
    plan: &'a Plan,
    ending: &'a Ending,
    outcome: Outcome,
    /// The first host whose workers could not be started, why, and the exit code.
    unstarted: Option<(String, i32, String)>,
    /// The signal by which users stopped a host's launcher, and which host.
    signal: Option<(String, i32)>,
    started_at: std::time::SystemTime,
}

fn name_of(round: &Round, id: HostId) -> String {
    let host = round.hosts.iter().chain(&round.spares).find(|host| host.id == id);
    host.map_or_else(|| "a host".to_owned(), |host| host.name.clone())
}

impl<'a> Story<'a> {
    pub fn new(plan: &'a Plan, ending: &'a Ending, started_at: std::time::SystemTime) -> Self {
        let mut outcome =
            Outcome { workers: Vec::new(), signal: None, stopped: false, output_complete: true };
        let (mut unstarted, mut signal) = (None, None);
        for (host, report) in ending.round.hosts.iter().zip(&ending.reports) {
            let Some((verdict, bytes)) = report else { continue };
            let report = HostReport::from_bytes(bytes);
            if let Verdict::Signal(number) = verdict {
                signal.get_or_insert((host.name.clone(), *number));
            }
            if let Some((code, why)) = report.failure {
                unstarted.get_or_insert((host.name.clone(), code, why));
            }
            outcome.output_complete &= report.output_complete;
            outcome.workers.extend(report.workers);
        }
        Story { plan, ending, outcome, unstarted, signal, started_at }
    }

    fn report(&self) -> Report<'_> {
        Report {
            plan: self.plan,
            attempt: self.ending.round.restarts,
            started_at: self.started_at,
            outcome: &self.outcome,
        }
    }

    /// Why another round follows, as one line.
    pub fn restart_notice(&self) -> String {
        let round = &self.ending.round;
        let (next, most) = (round.restarts + 1, self.plan.max_restarts);
        let count = format!("({next} of {most} restarts)");
        let why = match &self.ending.why {
            Some(Why::Joined) => {
                return "torchrs-launch: another host is there; starting all workers again\n"
                    .into();
            }
            Some(Why::Lost(host)) => format!("host {} was lost", name_of(round, *host)),
            Some(Why::Left(host)) => format!("host {} was asked to leave", name_of(round, *host)),
            Some(Why::CutOff) => "too few hosts were in reach".to_owned(),
            Some(Why::Failed(_) | Why::Over) | None => match &self.unstarted {
                Some((host, _, why)) => format!("on {host}: {why}"),
                None => return self.report().restart_notice(),
            },
        };
        format!("torchrs-launch: {why}; starting all workers again {count}\n")
    }

    /// The job's exit code.
    pub fn exit_code(&self) -> i32 {
        if let Some((_, number)) = &self.signal {
            return failure::SIGNAL + number;
        }
        if let Some((_, code, _)) = &self.unstarted {
            return *code;
        }
        match (self.report().exit_code(), &self.ending.why, &self.ending.hindrance) {
            (0, None, None) => 0,
            (0, _, _) => failure::OWN,
            // The launcher's own signals say nothing where a host was lost.
            (_, Some(Why::Lost(_) | Why::CutOff), _) if !self.somebody_failed() => failure::OWN,
            (code, _, _) => code,
        }
    }

    /// Whether a worker failed by itself.
    fn somebody_failed(&self) -> bool {
        self.report().has_own_failure()
    }

    /// What to print at the job's end; empty if there is nothing to say.
    pub fn text(&self) -> String {
        let round = &self.ending.round;
        let after = match &self.ending.hindrance {
            Some(why) if self.plan.max_restarts > 0 => format!(" ({why})"),
            _ => String::new(),
        };
        if let Some((host, number)) = &self.signal {
            let signal = signal_name(*number);
            return format!("torchrs-launch: stopped by {signal} on {host}\n");
        }
        if let Some((host, _, why)) = &self.unstarted {
            return format!("torchrs-launch: on {host}: {why}\n");
        }
        match (&self.ending.why, &self.ending.hindrance) {
            (None, Some(why)) => format!("torchrs-launch: the job was not started: {why}\n"),
            (Some(Why::Lost(host)), _) if !self.somebody_failed() => {
                let host = name_of(round, *host);
                format!(
                    "torchrs-launch: the job failed: host {host} was lost: its launcher ended without a word, or \
                     the way to it is cut{after}\n"
                )
            }
            (Some(Why::CutOff), _) if !self.somebody_failed() => {
                format!("torchrs-launch: the job failed: too few hosts were in reach{after}\n")
            }
            (Some(Why::Over), _) => "torchrs-launch: the job was stopped\n".to_owned(),
            _ => self.report().text(),
        }
    }
}

//! This launcher's way through a job over several hosts: rounds of workers, until the job is over.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use torchrs_rendezvous::driver::{Command, Commander, Event};
use torchrs_rendezvous::host_store::HostStore;
use torchrs_rendezvous::protocol::{Round, Verdict};

use super::HostsPlan;
use super::ending::Story;
use super::link::Link;
use super::report::HostReport;
use crate::failure::{self, Doing, Failure};
use crate::group::{Group, Outcome, Wake, Watch};
use crate::place::Place;
use crate::plan::Plan;
use crate::status::Status;
use crate::status::event::JobEvent;

/// Runs the job to its end; returns the exit code. `say` prints on standard error, `keep` is told how the workers of
/// each round ended.
pub fn run(
    plan: &Plan,
    hosts: &HostsPlan,
    watch: &Watch,
    say: &dyn Fn(String),
    keep: &dyn Fn(u32, &Outcome),
) -> Result<i32, Failure> {
    let what = || "cannot join the job's other hosts".to_owned();
    let store = HostStore::join(hosts.config(plan)?).doing(what)?;
    if plan.dashboard.is_some() {
        report_status(watch.status.clone(), store.commander());
    }
    let link = Link::new(store, watch.status.clone());
    watch.add_hosts(&link).doing(what)?;
    let elastic = hosts.settings.hosts.0 < hosts.settings.hosts.1;
    let started_at = SystemTime::now();
    let mut job = Job {
        plan,
        watch,
        link,
        say,
        keep,
        elastic,
        started_at,
        leads: false,
        leader: None,
        asked: None,
    };
    loop {
        let Some(event) = job.link.next() else {
            job.wait();
            continue;
        };
        if let Some(code) = job.handle(event)? {
            return Ok(code);
        }
    }
}

/// Tells the host that leads how this one's workers are, each second. Without a thread it is not told.
fn report_status(status: Arc<Status>, commander: Commander) {
    let work = move || loop {
        thread::sleep(Duration::from_secs(1));
        if let Some(text) = status.own_report() {
            commander.command(Command::Status(text));
        }
    };
    let _ = thread::Builder::new().name("status-report".into()).stack_size(512 << 10).spawn(work);
}

struct Job<'a> {
    plan: &'a Plan,
    watch: &'a Watch,
    link: Link,
    say: &'a dyn Fn(String),
    keep: &'a dyn Fn(u32, &Outcome),
    /// Whether the others go on when this host leaves.
    elastic: bool,
    started_at: SystemTime,
    /// Whether this host leads, and who led the last round.
    leads: bool,
    leader: Option<String>,
    /// The signal that asked this launcher to end the job while no workers ran.
    asked: Option<Signal>,
}

impl Job<'_> {
    /// Until something has come.
    fn wait(&mut self) {
        for wake in self.watch.wait() {
            match wake {
                Wake::Hosts => {}
                Wake::FrontGone => std::process::exit(failure::SIGNAL + Signal::SIGKILL as i32),
                Wake::Stop(signal) if self.asked.is_none() => {
                    self.asked = Some(signal);
                    self.link.host.command(Command::Stop);
                }
                Wake::Stop(signal) => std::process::exit(failure::SIGNAL + signal as i32),
            }
        }
    }

    /// The exit code, when the job is over.
    fn handle(&mut self, event: Event) -> Result<Option<i32>, Failure> {
        match event {
            Event::Start { round, group_rank, leads, first_host } => {
                return Ok(self.run_round(&round, (group_rank, leads), first_host));
            }
            Event::Restarting(ending) => {
                let notice = Story::new(self.plan, &ending, self.started_at).restart_notice();
                self.watch.status.restarting(&notice);
                (self.say)(notice);
            }
            Event::Ended(ending) => {
                let story = Story::new(self.plan, &ending, self.started_at);
                let code = self.asked.map_or(story.exit_code(), |s| failure::SIGNAL + s as i32);
                let text = story.text();
                (self.say)(text.clone());
                self.link.host.command(Command::Finish(code, text));
            }
            Event::Over(code, _) => {
                let tells = code != 0 && !self.leads && !self.plan.under_launcher;
                if let Some(leader) = self.leader.as_ref().filter(|_| tells) {
                    (self.say)(format!(
                        "torchrs-launch: the job ended with exit code {code}; the launcher on {leader} has the report\n"
                    ));
                }
                return Ok(Some(code));
            }
            Event::Fail(why) => {
                return match self.asked {
                    Some(signal) => Ok(Some(failure::SIGNAL + signal as i32)),
                    None => Err(Failure::new(why)),
                };
            }
            Event::Say(text) => {
                self.watch.status.tell(JobEvent::Hosts { text: text.clone() });
                (self.say)(format!("torchrs-launch: {text}\n"));
            }
            // These concern workers, and none run.
            Event::Stop { .. } => {}
            Event::Leads(leads) => {
                self.leads = leads;
                if leads {
                    self.watch.status.leads();
                }
            }
            Event::Ask(..)
            | Event::Answer(..)
            | Event::Gone(_)
            | Event::AwaitsWelcome(_)
            | Event::Status(_) => {
                unreachable!("the link takes what is the store's, and what is said of workers")
            }
        }
        Ok(None)
    }

    /// The exit code, when this host leaves the job.
    fn run_round(
        &mut self,
        round: &Round,
        (group_rank, leads): (usize, bool),
        first_host: Option<IpAddr>,
    ) -> Option<i32> {
        let led = round.hosts.iter().find(|host| host.id == round.leader);
        self.leader = led.map(|host| host.name.clone());
        self.watch.status.led_by(self.leader.clone());
        let master = (first_host, self.plan.master_port);
        let place = Place::in_round(round, group_rank, self.plan.nproc, master);
        let opened = self.link.host.open(round, group_rank, leads);
        let opened = opened.doing(|| "cannot start the store".into());
        let started = opened.and_then(|()| Group::start(self.plan, self.watch, &place, &self.link));
        let (verdict, report) = match started {
            Ok(group) => {
                let outcome = group.run();
                (self.keep)(place.attempt, &outcome);
                HostReport::of(outcome, self.link.host.clock_offset())
            }
            Err(failure) => HostReport::of_failure(failure),
        };
        self.link.host.command(Command::WorkersEnded(verdict, report.to_bytes()));
        // Of a job of fixed size the leader says how it ends.
        match verdict {
            Verdict::Signal(number) if self.elastic => Some(failure::SIGNAL + number),
            _ => None,
        }
    }
}

//! The near end: runs the launchers of all hosts from the user's. It calls the hosts, tells those that answer where
//! to meet, passes signals on and output back, and ends them all when there is no more use in going on.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::signal::Signal;
use nix::unistd::pipe2;

use super::host::{Host, Phase};
use super::line::{Line, News, Post};
use super::meeting::{Present, address_of_first};
use super::plan::{MeetingPoint, SshPlan};
use super::wire::{ALIVE_EVERY, FromHost, Hello, ToHost};
use crate::cli::{self, Options};
use crate::console::say;
use crate::deadline::poll_timeout;
use crate::failure::{Doing, Failure, OWN, SIGNAL};
use crate::front::supervise;
use crate::group::{SAME_WISH, STUCK_READER, grace_notice};
use crate::outputs::Stream;
use crate::preflight;
use crate::process::Process;
use crate::relay::Relay;
use crate::signals::{STOP, Signals, USER};
use crate::spawn::SSH_SUPERVISOR;
use crate::streams::{Input, event};
use crate::tool::Overseer;
use crate::tree;

/// How long hosts have to answer a call.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How long the launchers have, beyond the workers' grace time, to find out by themselves that too few are left, or
/// to end after they were asked.
const PATIENCE: Duration = Duration::from_secs(15);
/// Where one has ended by itself: when the job is over, the workers of all hosts have ended.
const SAME_END: Duration = Duration::from_secs(5);
/// Exit code of a check that has found an error.
const ERROR: i32 = 2;
/// And after a second signal.
const IMPATIENCE: Duration = Duration::from_secs(3);

/// In the front: runs the job of these options on the hosts that they name; returns the exit code.
pub fn launch(options: Options) -> Result<i32, Failure> {
    let mut overseer = Overseer::new()?;
    begin(&mut overseer, &options, false)
}

/// The same of a check.
pub fn check(options: &Options) -> Result<i32, Failure> {
    begin(&mut Overseer::new()?, options, true)
}

fn begin(overseer: &mut Overseer, options: &Options, is_check: bool) -> Result<i32, Failure> {
    let plan =
        SshPlan::of(overseer, options, is_check).unwrap_or_else(|failure| match failure.code {
            2 => cli::refuse(cli::with_variables(failure.message)),
            _ => {
                say(&format!("{failure}\n"));
                std::process::exit(failure.code)
            }
        });
    preflight::descriptors_of_hosts(plan.hosts.len())?;
    supervise(overseer, SSH_SUPERVISOR, &plan)
}

/// In the supervisor: to the job's end; returns the exit code.
pub fn run(plan: SshPlan, front: Process) -> Result<i32, Failure> {
    let what = || "cannot set up the supervisor of the hosts".to_owned();
    let signals = Signals::take_over().doing(what)?;
    let wake = Arc::new(event().doing(what)?);
    let (sender, news) = channel();
    let post = Post { news: sender, wake: wake.clone() };
    let (mut hosts, mut inputs) = (Vec::new(), Vec::new());
    for (place, host) in plan.hosts.iter().enumerate() {
        let (out, their_out) = output(&plan, place, Stream::Stdout)?;
        let (err, their_err) = output(&plan, place, Stream::Stderr)?;
        let line = Line::open(place, plan.command(host), [their_out, their_err], post.clone());
        inputs.extend([out, err]);
        hosts.push(match line {
            Ok(line) => Host::called(line),
            Err(failure) => {
                tree::kill_all(&signals);
                return Err(failure);
            }
        });
    }
    drop(post);
    let relay = Relay::start(inputs, hosts.len()).doing(what)?;
    let called_at = Instant::now();
    let fleet = Fleet {
        plan: &plan,
        hosts,
        relay,
        signals,
        front,
        news,
        wake,
        called_at,
        said: called_at,
        meeting: None,
        asked: None,
        ending: None,
        code: None,
        last_ended: None,
    };
    Ok(fleet.run())
}

/// A pipe from a host's reader to the relay: the relay's end, and the reader's.
fn output(plan: &SshPlan, host: usize, stream: Stream) -> Result<(Input, OwnedFd), Failure> {
    let what = || "cannot make pipes for the hosts' output".to_owned();
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC).doing(what)?;
    nix::fcntl::fcntl(&ours, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).doing(what)?;
    // Lines of several workers come with prefixes; those of a lone one, and a report, are passed on as they come.
    let alone = plan.start.is_check || plan.hosts.len() == 1 && plan.nproc == "1";
    let prefix = (!alone).then(String::new);
    Ok((Input { pipe: ours, local_rank: host, prefix, stream, terminal: true, log: None }, theirs))
}

/// How the launchers that are left are ended.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// By themselves, until then.
    Expected(Instant),
    /// They were asked; their lines are closed then.
    Asked(Instant),
    Closed,
}

/// How a host has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    NeverBegan,
    /// Its launcher has ended with exit code 0, as those of all hosts do that the job still had.
    InPeace,
    /// With another one.
    Failed,
    /// Without a word.
    Lost,
}

/// The hosts of a job.
struct Fleet<'a> {
    plan: &'a SshPlan,
    hosts: Vec<Host>,
    relay: Relay,
    signals: Signals,
    /// Its end is this process's.
    front: Process,
    news: Receiver<(usize, News)>,
    wake: Arc<EventFd>,
    called_at: Instant,
    /// When signs of life were last sent.
    said: Instant,
    /// Once that is decided.
    meeting: Option<MeetingPoint>,
    /// The first signal that asked for the end, and when.
    asked: Option<(Signal, Instant)>,
    ending: Option<Ending>,
    /// The exit code, where this launcher has decided it.
    code: Option<i32>,
    /// That of the launcher that ended last, or of one that ended in peace.
    last_ended: Option<i32>,
}

impl Fleet<'_> {
    fn run(mut self) -> i32 {
        while self.hosts.iter().any(|host| !host.is_gone()) {
            self.wait();
            self.begin_if_due();
            self.step_ending();
        }
        let code = match (self.code, self.last_ended, self.asked) {
            (Some(code), ..) | (None, Some(code), _) => code,
            (None, None, Some((signal, _))) => SIGNAL + signal as i32,
            (None, None, None) => self.code_of_own(),
        };
        self.drain(code == 0);
        tree::kill_all(&self.signals);
        for line in self.relay.unprinted() {
            say(&format!("{line}\n"));
        }
        code
    }

    fn notice(&self, text: &str) {
        self.relay.notice(format!("torchrs-launch: {text}"));
    }

    /// Waits for events, and handles them.
    fn wait(&mut self) {
        let mut due = self.said + ALIVE_EVERY;
        if self.meeting.is_none() {
            due = due.min(self.called_at + ANSWER_WITHIN);
        }
        if let Some(Ending::Expected(at) | Ending::Asked(at)) = self.ending {
            due = due.min(at);
        }
        due = self.hosts.iter().filter_map(Host::due).fold(due, Instant::min);
        let mut events = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.front.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
        ];
        self.hosts.iter().for_each(|host| events.extend(host.events()));
        match poll(&mut events, poll_timeout(Some(due))) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => panic!("poll of the hosts failed: {errno}"),
        }
        let front_gone = events[1].any() == Some(true);
        drop(events);
        if front_gone {
            // Whoever killed it wanted the job gone.
            tree::kill_all(&self.signals);
            std::process::exit(SIGNAL + Signal::SIGKILL as i32);
        }
        let _ = self.wake.read();
        while let Some(signal) = self.signals.next() {
            self.take_signal(signal);
        }
        while let Ok((host, news)) = self.news.try_recv() {
            self.take_news(host, news);
        }
        if self.said.elapsed() >= ALIVE_EVERY {
            self.said = Instant::now();
            self.hosts.iter_mut().for_each(|host| host.say_alive());
        }
        for place in 0..self.hosts.len() {
            if let Some(why) = self.hosts[place].step(&self.plan.way(place)) {
                self.host_gone(place, why);
            }
        }
        // What hosts' shells leave behind is this process's child.
        let hosts = &self.hosts;
        tree::reap_orphans(|pid| hosts.iter().any(|host| host.is_child(pid)));
    }

    fn take_signal(&mut self, signal: Signal) {
        if USER.contains(&signal) {
            self.send(&ToHost::Signal(signal as i32));
        }
        if !STOP.contains(&signal) {
            return;
        }
        let now = Instant::now();
        match self.asked {
            Some((_, at)) if now < at + SAME_WISH => return,
            Some(_) => self.ending = Some(Ending::Asked(now + IMPATIENCE)),
            None => {
                self.asked = Some((signal, now));
                if self.meeting.is_some() {
                    self.relay.notice(grace_notice(signal, self.plan.grace));
                }
                self.ending = Some(Ending::Asked(now + self.plan.grace + PATIENCE));
            }
        }
        self.send(&ToHost::Signal(signal as i32));
        // Who has not begun has nothing to end.
        self.hosts.iter_mut().filter(|host| !host.has_begun()).for_each(Host::close);
    }

    fn send(&mut self, message: &ToHost) {
        self.hosts.iter_mut().filter(|host| host.has_begun()).for_each(|host| host.send(message));
    }

    fn take_news(&mut self, place: usize, news: News) {
        let name = self.plan.hosts[place].target.destination.clone();
        let host = &mut self.hosts[place];
        match news {
            News::Words(line) if host.has_begun() => {
                let line = line.strip_prefix("torchrs-launch: ").unwrap_or(&line).to_owned();
                self.notice(&format!("{name}: {line}"));
            }
            News::Words(line) => host.words.push(line),
            News::Closed(why) => host.closed(why),
            News::Message(FromHost::Hello(hello)) => self.answered(place, hello),
            News::Message(FromHost::Ready) => host.phase = Phase::Running,
            News::Message(FromHost::Alive) => {}
            News::Message(FromHost::Failed(code, why)) => {
                host.over();
                self.notice(&format!("{name}: {why}"));
                self.code_of_failure(code);
                self.count_who_is_left(Left::NeverBegan);
            }
            News::Message(FromHost::Ended(code)) => {
                host.over();
                if self.last_ended != Some(0) {
                    self.last_ended = Some(code);
                }
                self.count_who_is_left(if code == 0 { Left::InPeace } else { Left::Failed });
            }
        }
    }

    fn answered(&mut self, place: usize, hello: Hello) {
        let (own, host) = (env!("CARGO_PKG_VERSION"), &mut self.hosts[place]);
        if hello.version != own {
            host.words
                .push(format!("torchrs-launch there is release {} and here {own}", hello.version));
            host.close();
            return;
        }
        host.phase = Phase::Answered(hello);
        if self.asked.is_some() {
            host.close();
        } else if let Some(meeting) = self.meeting.clone() {
            // Late, but the job goes on. A check is of those that were there.
            match self.plan.start.is_check {
                true => self.hosts[place].close(),
                false => self.hosts[place].start(self.plan.start_of(place, &meeting)),
            }
        }
    }

    /// A host's line has ended before its launcher had said how.
    fn host_gone(&mut self, place: usize, why: String) {
        if self.asked.is_some() || matches!(self.ending, Some(Ending::Closed)) {
            return;
        }
        if self.meeting.is_some() {
            self.notice(&why);
            self.count_who_is_left(Left::Lost);
        } else {
            self.hosts[place].trouble = Some(why);
        }
    }

    /// Ends those that are left where they are too few to go on.
    fn count_who_is_left(&mut self, how: Left) {
        let (fewest, most) =
            self.meeting.as_ref().map_or(self.plan.nnodes, |meeting| meeting.nnodes);
        let left = self.hosts.iter().filter(|host| !host.is_over()).count();
        let enough = left >= fewest as usize && how != Left::InPeace;
        if left == 0 || enough || self.ending.is_some() {
            return;
        }
        let patience = match how {
            // None can have started a worker.
            Left::NeverBegan if fewest == most => return self.close_all(),
            Left::NeverBegan | Left::InPeace | Left::Failed => SAME_END,
            Left::Lost => self.plan.grace + PATIENCE,
        };
        self.ending = Some(Ending::Expected(Instant::now() + patience));
    }

    fn code_of_failure(&mut self, code: i32) {
        let nnodes = self.meeting.as_ref().map_or(self.plan.nnodes, |meeting| meeting.nnodes);
        let fewest = nnodes.0 as usize;
        let left = self.hosts.iter().filter(|host| !host.is_over()).count();
        if left < fewest {
            self.code.get_or_insert(code);
        }
    }

    fn close_all(&mut self) {
        self.ending = Some(Ending::Closed);
        self.hosts.iter_mut().for_each(Host::close);
    }

    fn step_ending(&mut self) {
        let now = Instant::now();
        match self.ending {
            Some(Ending::Expected(at)) if at <= now => {
                let in_peace = self.last_ended == Some(0);
                // All of them are asked, so that the next answer is of this moment.
                let talking =
                    self.hosts.iter_mut().filter_map(|h| h.is_talking().then_some(())).count();
                if in_peace && talking > 0 {
                    self.ending = Some(Ending::Expected(now + SAME_END));
                    return;
                }
                let left =
                    self.plan.hosts.iter().zip(&self.hosts).filter(|(_, host)| !host.is_over());
                let names: Vec<&str> =
                    left.map(|(called, _)| called.target.destination.as_str()).collect();
                let why =
                    if in_peace { "the job is over" } else { "too few hosts are left to go on" };
                self.notice(&format!("{why}; ending the launchers on {}", names.join(", ")));
                if !in_peace {
                    let code = self.last_ended.unwrap_or(self.code_of_own());
                    self.code.get_or_insert(code);
                }
                self.send(&ToHost::Signal(Signal::SIGTERM as i32));
                self.ending = Some(Ending::Asked(now + self.plan.grace + PATIENCE));
            }
            Some(Ending::Asked(at)) if at <= now => self.close_all(),
            _ => {}
        }
    }

    /// Once every host has answered or cannot, or has had its time: tells them where to meet, or ends the job.
    fn begin_if_due(&mut self) {
        let calling =
            self.hosts.iter().any(|host| matches!(host.phase, Phase::Called) && !host.is_gone());
        let late = self.called_at.elapsed() >= ANSWER_WITHIN;
        if self.meeting.is_some() || self.ending.is_some() || (calling && !late) {
            return;
        }
        let answered: Vec<usize> =
            (0..self.hosts.len()).filter(|&place| self.hosts[place].hello().is_some()).collect();
        let silent = self.hosts.iter().enumerate().filter(|(_, host)| host.hello().is_none());
        let missing: Vec<String> = silent
            .map(|(place, host)| {
                host.trouble.clone().unwrap_or_else(|| host.unreached(&self.plan.way(place)))
            })
            .collect();
        let is_check = self.plan.start.is_check;
        let fewest = if is_check { 1 } else { self.plan.nnodes.0 };
        if !is_check || answered.is_empty() {
            missing.iter().for_each(|why| self.notice(why));
        }
        if answered.len() < fewest as usize {
            let (named, what) = (self.hosts.len(), if is_check { "check" } else { "job" });
            self.notice(&format!(
                "the {what} was not started: {} of {named} hosts can be reached, and it needs {fewest}",
                answered.len()
            ));
            self.code = Some(self.code_of_own());
            self.close_all();
            return;
        }
        let (endpoint, first) = self.choose_endpoint(&answered);
        let (hosts, nnodes) = match is_check {
            true => (answered.clone(), (answered.len() as u32, answered.len() as u32)),
            false => ((0..self.hosts.len()).collect(), self.plan.nnodes),
        };
        let meeting = MeetingPoint { endpoint, first, hosts, nnodes, missing };
        for place in answered {
            self.hosts[place].start(self.plan.start_of(place, &meeting));
        }
        self.meeting = Some(meeting);
    }

    /// The exit code of what hindered this launcher itself: of a check, that of an error.
    fn code_of_own(&self) -> i32 {
        if self.plan.start.is_check { ERROR } else { OWN }
    }

    /// Where to meet, and which host begins there, if that is not for the address to say.
    fn choose_endpoint(&self, answered: &[usize]) -> ((String, u16), Option<usize>) {
        if let Some(endpoint) = &self.plan.endpoint {
            return (endpoint.clone(), None);
        }
        let present: Vec<Present<'_>> = answered
            .iter()
            .map(|&place| {
                let called = &self.plan.hosts[place];
                let hello = self.hosts[place].hello().expect("it has answered");
                Present { host: called.target.host(), is_here: called.is_here, hello }
            })
            .collect();
        let port = self.plan.port.unwrap_or(present[0].hello.port);
        ((address_of_first(&present), port), Some(answered[0]))
    }

    /// Waits until all output has been passed on, or is stuck after a failure.
    fn drain(&mut self, patient: bool) {
        self.relay.finish();
        let mut seen = (self.relay.written(), Instant::now());
        let mut asked = false;
        while !self.relay.is_done() {
            let deadline = (!patient).then_some(seen.1 + STUCK_READER);
            let mut events = [
                PollFd::new(self.relay.done(), PollFlags::POLLIN),
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.front.as_fd(), PollFlags::POLLIN),
            ];
            let _ = poll(&mut events, poll_timeout(deadline));
            let front_gone = events[2].any() == Some(true);
            while let Some(signal) = self.signals.next() {
                asked |= STOP.contains(&signal);
            }
            let now = (self.relay.written(), Instant::now());
            if now.0 != seen.0 {
                seen = now;
            }
            if front_gone || asked || (!patient && now.1 >= seen.1 + STUCK_READER) {
                return;
            }
        }
    }
}

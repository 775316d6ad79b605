//! Recordings of some of a loop's steps (`torch.profiler.schedule`).

use super::options::ProfilerOptions;
use super::profile::Profile;
use super::recorder::Span;
use super::{Profiler, record_function};

/// Which steps are recorded: after `skip_first`, cycles of `wait`, `warmup` and `active` ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Steps before the first cycle.
    pub skip_first: usize,
    /// Steps of a cycle that are not recorded.
    pub wait: usize,
    /// Steps of a cycle that are recorded and thrown away: the first spans of a recording are slower.
    pub warmup: usize,
    /// Steps of a cycle that are recorded, at least one.
    pub active: usize,
    /// How many cycles there are; 0 is no end.
    pub repeat: usize,
}

/// What is done in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// It is recorded, and thrown away.
    Warmup,
    /// It is recorded.
    Record,
    /// It is recorded, and is the last of its cycle.
    RecordAndSave,
}

/// A [`Schedule`] without skipped steps (`torch.profiler.schedule`).
///
/// ```
/// use torchrs::profiler::{Action, schedule};
/// let plan = schedule(1, 1, 2, 1);
/// let actions: Vec<Action> = (0..5).map(|step| plan.action(step)).collect();
/// use Action::*;
/// assert_eq!(actions, [None, Warmup, Record, RecordAndSave, None]);
/// ```
///
/// # Panics
/// When `active` is 0: nothing would be recorded.
#[track_caller]
pub fn schedule(wait: usize, warmup: usize, active: usize, repeat: usize) -> Schedule {
    assert!(active > 0, "schedule: active is 0, so nothing would be recorded; must be at least 1");
    Schedule { skip_first: 0, wait, warmup, active, repeat }
}

impl Schedule {
    /// What is done in a step, counted from 0.
    pub fn action(&self, step: usize) -> Action {
        let Some(step) = step.checked_sub(self.skip_first) else { return Action::None };
        // Of a cycle that never ends the sum would be too large.
        let warm = self.wait.saturating_add(self.warmup);
        let cycle = warm.saturating_add(self.active.max(1));
        if self.repeat > 0 && step / cycle >= self.repeat {
            return Action::None;
        }
        match step % cycle {
            at if at < self.wait => Action::None,
            at if at < warm => Action::Warmup,
            at if at + 1 < cycle => Action::Record,
            _ => Action::RecordAndSave,
        }
    }
}

/// Records steps of a loop by a [`Schedule`] (`torch.profiler.profile(schedule=, on_trace_ready=)`).
///
/// ```
/// use torchrs::{Tensor, profiler::{ScheduledProfiler, SortBy, schedule}};
/// let mut tables = Vec::new();
/// let mut profiler = ScheduledProfiler::new(schedule(1, 1, 2, 1), Default::default(), |profile| {
///     tables.push(profile.key_averages().table(SortBy::Count, 10));
/// });
/// for _ in 0..6 {
///     Tensor::from([1f32]).exp();
///     profiler.step();
/// }
/// profiler.finish();
/// assert_eq!(tables.len(), 1);
/// assert!(tables[0].contains("ProfilerStep#2") && tables[0].contains("ProfilerStep#3"));
/// ```
pub struct ScheduledProfiler<F: FnMut(Profile)> {
    schedule: Schedule,
    options: ProfilerOptions,
    on_trace_ready: F,
    step: usize,
    running: Option<Profiler>,
    span: Option<Span>,
}

impl<F: FnMut(Profile)> ScheduledProfiler<F> {
    /// Begins with step 0. `on_trace_ready` gets the profile of each cycle.
    ///
    /// # Panics
    /// As [`Profiler::start`], where step 0 is recorded.
    #[track_caller]
    pub fn new(schedule: Schedule, options: ProfilerOptions, on_trace_ready: F) -> Self {
        let mut profiler = ScheduledProfiler {
            schedule,
            options,
            on_trace_ready,
            step: 0,
            running: None,
            span: None,
        };
        profiler.begin(Action::None);
        profiler
    }

    /// Says that a step is over, and the next one begins.
    ///
    /// # Panics
    /// As [`Profiler::start`], where that one is the first that is recorded.
    #[track_caller]
    pub fn step(&mut self) {
        self.span = None;
        let done = self.schedule.action(self.step);
        if done == Action::RecordAndSave
            && let Some(running) = self.running.take()
        {
            (self.on_trace_ready)(running.stop());
        }
        self.step += 1;
        self.begin(done);
    }

    #[track_caller]
    fn begin(&mut self, before: Action) {
        let next = self.schedule.action(self.step);
        match next {
            Action::None => self.running = None,
            // What was recorded to warm up is thrown away.
            _ if before == Action::Warmup && next != Action::Warmup => {
                self.running = None;
                self.running = Some(Profiler::with(self.options));
            }
            _ if self.running.is_none() => self.running = Some(Profiler::with(self.options)),
            _ => {}
        }
        if self.running.is_some() {
            self.span = Some(record_function(format!("ProfilerStep#{}", self.step)));
        }
    }

    /// Ends the recording. A cycle that has begun to record is given to `on_trace_ready` as far as it is.
    pub fn finish(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.span = None;
        let action = self.schedule.action(self.step);
        if let Some(running) = self.running.take()
            && matches!(action, Action::Record | Action::RecordAndSave)
        {
            let profile = running.stop();
            if !profile.events().is_empty() {
                (self.on_trace_ready)(profile);
            }
        }
    }
}

impl<F: FnMut(Profile)> Drop for ScheduledProfiler<F> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_without_an_end_is_as_long_as_it_says() {
        let base = Schedule { skip_first: 0, wait: 1, warmup: 1, active: 1, repeat: 1 };
        let endless = usize::MAX;
        for (schedule, last) in [
            (Schedule { wait: endless, ..base }, Action::None),
            (Schedule { warmup: endless, ..base }, Action::Warmup),
            (Schedule { active: endless, ..base }, Action::Record),
            (Schedule { skip_first: endless, ..base }, Action::None),
        ] {
            assert_eq!(schedule.action(1 << 40), last, "{schedule:?}");
        }
    }
}

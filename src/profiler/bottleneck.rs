//! Where the time of steps goes, in words (`torch.utils.bottleneck`): each moment of the thread that trains is one of
//! a few parts, and each part has a sentence that says what to do about it.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use torchrs_job::cluster::told_rank;

use super::averages::time;
use super::profile::{Category, Event, Profile};
use super::text::{Align, Table};
use super::{BACKWARD, WAIT};

/// What a moment is spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PartKind {
    /// The wait for the loader's next batch.
    Data,
    /// Ops and the nodes of backward: on a GPU, their launch.
    Kernels,
    /// Collectives that nothing hides, without the waits for other ranks.
    Communication,
    /// Waits for other ranks inside collectives.
    Waiting,
    /// The optimizer's steps.
    Optimizer,
    /// The program between ops, and the engine of autograd.
    Host,
}

impl PartKind {
    pub(super) fn title(self) -> &'static str {
        match self {
            PartKind::Data => "waiting for data",
            PartKind::Kernels => "ops",
            PartKind::Communication => "communication",
            PartKind::Waiting => "waiting for ranks",
            PartKind::Optimizer => "optimizer",
            PartKind::Host => "between ops",
        }
    }

    /// What helps.
    pub fn advice(self) -> &'static str {
        match self {
            PartKind::Data => {
                "The loader is slower than training: give it more `workers` or `prefetch`, or do costly transforms once, \
                 before training."
            }
            PartKind::Kernels => {
                "Computing is the bottleneck, as it should be: larger batches, bf16 (`autocast`) or fewer operations in \
                 the largest ops below are what is left."
            }
            PartKind::Communication => {
                "Communication is not hidden behind backward: larger batches or accumulated gradients (`no_sync`), half \
                 as many bytes (a bf16 hook), or other bucket sizes (`bucket_cap_mb`) help."
            }
            PartKind::Waiting => {
                "Ranks are not equally fast: look at the report of the rank that is waited for, at the balance of the \
                 data, and at what else runs on its cores."
            }
            PartKind::Optimizer => {
                "The optimizer's step is long for the model: accumulate gradients over several batches, or shard it with \
                 `ZeroRedundancyOptimizer`."
            }
            PartKind::Host => {
                "The program itself is busy between ops: look for `item()`, printing, logging and conversions in the loop; \
                 where ops are tiny, larger batches (on a GPU, `CudaGraph`) help."
            }
        }
    }
}

/// A part of the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// How long, in nanoseconds.
    pub ns: u64,
    /// What it consists of, by name, the longest first.
    pub names: Vec<(String, u64)>,
}

/// Where the time of a profile went; see [`Profile::bottleneck`]. Printed, a report in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// The rank, if the environment has one.
    pub rank: Option<usize>,
    /// Wall time, in nanoseconds.
    pub wall_ns: u64,
    /// The optimizer's steps in it.
    pub steps: usize,
    /// The parts, the longest first; together they are the wall time.
    pub parts: Vec<Part>,
    /// For how long this rank waited for which other one, in nanoseconds, the longest first. Only collectives over
    /// shared memory know whom they wait for.
    pub waited_for: Vec<(usize, u64)>,
    /// Nanoseconds of the current GPU's stream in the spans, where they are recorded.
    pub device_ns: Option<u64>,
}

impl Profile {
    /// Where the time of the thread that trains went.
    ///
    /// It is the one with most optimizer steps, backward passes and waits for data. What other threads do at the same
    /// time costs nothing, but where that thread waits for them.
    ///
    /// ```
    /// use torchrs::{Dtype::F32, Tensor, profiler::{self, PartKind}};
    /// let w = Tensor::randn([256, 256], F32).requires_grad_(true);
    /// let ((), profile) = profiler::profile(|| w.matmul(&w).sum().backward());
    /// let report = profile.bottleneck();
    /// assert_eq!(report.parts.iter().map(|part| part.ns).sum::<u64>(), report.wall_ns);
    /// assert!(report.share(PartKind::Kernels) > 0.0);
    /// println!("{report}");
    /// ```
    pub fn bottleneck(&self) -> Bottleneck {
        let main = self.training_thread();
        let mut parts: HashMap<PartKind, HashMap<String, u64>> = HashMap::new();
        let mut add = |kind: PartKind, name: &str, ns: u64| {
            *parts.entry(kind).or_default().entry(name.to_owned()).or_default() += ns;
        };
        let mut open: Vec<&Event> = Vec::new();
        let (mut covered, mut steps, mut exposed) = (0, 0, Vec::new());
        for event in self.events().iter().filter(|event| Some(event.thread) == main) {
            while open.last().is_some_and(|last| last.depth >= event.depth) {
                open.pop();
            }
            if event.depth == 0 {
                covered += event.duration_ns;
            }
            let inside = |category| open.iter().find(|o| o.category == category);
            let name = match event.category {
                Category::Backward if event.name != BACKWARD => {
                    format!("{} (backward)", event.name)
                }
                _ => event.name.to_string(),
            };
            if let Some(step) = inside(Category::Optimizer) {
                add(PartKind::Optimizer, &step.name, event.self_ns);
            } else if inside(Category::Data).is_some() {
                add(PartKind::Data, "DataLoader", event.self_ns);
            } else if let Some(call) = inside(Category::Communication) {
                let kind =
                    if event.name == WAIT { PartKind::Waiting } else { PartKind::Communication };
                add(kind, &call.name, event.self_ns);
            } else {
                let kind = match event.category {
                    Category::Optimizer => PartKind::Optimizer,
                    Category::Data => PartKind::Data,
                    Category::Communication => PartKind::Communication,
                    Category::Op => PartKind::Kernels,
                    Category::Backward if event.name != BACKWARD => PartKind::Kernels,
                    Category::Backward | Category::User => PartKind::Host,
                };
                if kind == PartKind::Communication {
                    exposed.push(event.start_ns..event.end_ns());
                }
                steps += usize::from(kind == PartKind::Optimizer);
                add(kind, &name, event.self_ns);
            }
            open.push(event);
        }
        let time = self.time();
        let wall_ns = (time.end - time.start).max(covered);
        add(PartKind::Host, "the program", wall_ns - covered);
        let waited_for = self.move_waits(&exposed, main, &mut parts);
        let mut parts: Vec<Part> = parts
            .into_iter()
            .map(|(kind, names)| {
                let mut names: Vec<(String, u64)> =
                    names.into_iter().filter(|(_, ns)| *ns > 0).collect();
                names.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
                Part { kind, ns: names.iter().map(|(_, ns)| ns).sum(), names }
            })
            .filter(|part| part.ns > 0)
            .collect();
        parts.sort_by_key(|part| (std::cmp::Reverse(part.ns), part.kind));
        let on_device = self.events().iter().filter_map(|event| event.self_device_ns);
        let device_ns = self.options().cuda.then(|| on_device.sum());
        let rank = told_rank().map(|(rank, _)| rank);
        Bottleneck { rank, wall_ns, steps, parts, waited_for, device_ns }
    }

    /// The thread whose time is looked at.
    fn training_thread(&self) -> Option<usize> {
        let trains = |event: &&Event| {
            matches!(event.category, Category::Optimizer | Category::Data) || event.name == BACKWARD
        };
        let busy = |thread: usize| -> u64 {
            let outer =
                self.events().iter().filter(|event| event.thread == thread && event.depth == 0);
            outer.map(|event| event.duration_ns).sum()
        };
        let trained = |thread: usize| -> u64 {
            let events = self.events().iter().filter(|event| event.thread == thread);
            events.filter(trains).map(|event| event.duration_ns).sum()
        };
        (0..self.threads().len()).max_by_key(|&thread| (trained(thread), busy(thread)))
    }

    /// Of exposed communication, what other threads spend in waits for ranks is waiting: moves it there, and gives the
    /// times by rank.
    fn move_waits(
        &self,
        exposed: &[Range<u64>],
        main: Option<usize>,
        parts: &mut HashMap<PartKind, HashMap<String, u64>>,
    ) -> Vec<(usize, u64)> {
        let mut by_rank: HashMap<usize, u64> = HashMap::new();
        let mut moved = 0;
        for wait in self.events().iter().filter(|event| event.name == WAIT) {
            let shared: u64 = exposed
                .iter()
                .map(|span| {
                    wait.end_ns().min(span.end).saturating_sub(wait.start_ns.max(span.start))
                })
                .sum();
            if Some(wait.thread) != main {
                moved += shared;
            }
            if let Some(rank) = wait.peer {
                *by_rank.entry(rank).or_default() += shared;
            }
        }
        let mut left = moved;
        if let Some(communication) = parts.get_mut(&PartKind::Communication) {
            for ns in communication.values_mut() {
                let taken = left.min(*ns);
                *ns -= taken;
                left -= taken;
            }
        }
        if moved > left {
            let waiting = parts.entry(PartKind::Waiting).or_default();
            *waiting.entry("background collectives".to_owned()).or_default() += moved - left;
        }
        let mut by_rank: Vec<(usize, u64)> =
            by_rank.into_iter().filter(|(_, ns)| *ns > 0).collect();
        by_rank.sort_by_key(|&(rank, ns)| (std::cmp::Reverse(ns), rank));
        by_rank
    }
}

impl Bottleneck {
    /// The share of the wall time that a part has.
    pub fn share(&self, kind: PartKind) -> f64 {
        let ns: u64 = self.parts.iter().filter(|part| part.kind == kind).map(|part| part.ns).sum();
        ns as f64 / self.wall_ns.max(1) as f64
    }
}

/// Parts below this share get no advice.
const WORTH: f64 = 0.1;
/// Names of a part that are shown.
const NAMES: usize = 4;

fn percent(part: u64, all: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / all.max(1) as f64)
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Where {} went", time(self.wall_ns as f64))?;
        if let Some(rank) = self.rank {
            write!(f, " on rank {rank}")?;
        }
        if self.steps > 0 {
            let step = time(self.wall_ns as f64 / self.steps as f64);
            write!(f, ", {} steps of {step}", self.steps)?;
        }
        writeln!(f)?;
        let mut table = Table::new([
            ("Part", Align::Left),
            ("Time", Align::Right),
            ("Share", Align::Right),
            ("Of what", Align::Left),
        ]);
        for part in &self.parts {
            let names = part.names.iter().take(NAMES);
            let names: Vec<String> =
                names.map(|(name, ns)| format!("{name} {}", percent(*ns, self.wall_ns))).collect();
            let rest = if part.names.len() > NAMES { ", .." } else { "" };
            table.row([
                part.kind.title().to_owned(),
                time(part.ns as f64),
                percent(part.ns, self.wall_ns),
                format!("{}{rest}", names.join(", ")),
            ]);
        }
        write!(f, "{table}")?;
        if let Some(device_ns) = self.device_ns {
            let share = percent(device_ns, self.wall_ns);
            writeln!(f, "The GPU's stream was inside ops for {share} of the time.")?;
        }
        for (rank, ns) in &self.waited_for {
            let share = percent(*ns, self.wall_ns);
            writeln!(f, "Waited for rank {rank}: {} ({share}).", time(*ns as f64))?;
        }
        for part in self.parts.iter().filter(|part| self.share(part.kind) >= WORTH) {
            let share = percent(part.ns, self.wall_ns);
            writeln!(f, "- {} ({share}): {}", part.kind.title(), part.kind.advice())?;
        }
        Ok(())
    }
}

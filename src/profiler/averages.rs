//! Spans of one name, added up, as PyTorch's table shows them.

use std::collections::HashMap;
use std::fmt;

use super::flops::compact;
use super::options::ProfilerOptions;
use super::profile::{Category, Event, Profile};
use super::text::{Align, Table};
use crate::cuda::traffic::Traffic;

/// All spans of one name and category.
///
/// ```
/// use torchrs::{Tensor, profiler::{self, Category}};
/// let ((), profile) = profiler::profile(|| (0..3).for_each(|_| _ = Tensor::from([1f32]).exp()));
/// let averages = profile.key_averages();
/// let row = averages.rows().iter().find(|row| row.name == "exp").unwrap();
/// assert_eq!((row.category, row.calls), (Category::Op, 3));
/// assert!(row.self_ns <= row.total_ns);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Their name.
    pub name: String,
    /// What they are.
    pub category: Category,
    /// How many there are.
    pub calls: usize,
    /// How long they were together. One inside another of the same name counts once.
    pub total_ns: u64,
    /// The same without the spans directly inside them.
    pub self_ns: u64,
    /// Bytes of host memory that they took less those that they gave back, where that is recorded.
    pub memory: isize,
    /// The same without the spans directly inside them.
    pub self_memory: isize,
    /// Floating-point operations, those of spans inside included, where they are counted.
    pub flops: u64,
    /// The GPU's nanoseconds, where they are recorded.
    pub device_ns: u64,
    /// The same without the spans directly inside them.
    pub self_device_ns: u64,
    /// What GPUs were asked to do, those of spans inside left out, where that is counted.
    pub traffic: Traffic,
    /// Where rows are grouped by shapes: those of the inputs.
    pub shapes: Option<Vec<Vec<usize>>>,
    /// Where rows are grouped by lines: the user's line.
    pub at: Option<String>,
    /// Where rows are grouped by modules: the module's path.
    pub module: Option<String>,
}

/// By what spans are added up besides their name.
///
/// ```
/// use torchrs::{Dtype::F32, Tensor, profiler::{self, GroupBy, ProfilerOptions}};
/// let options = ProfilerOptions { record_shapes: true, ..Default::default() };
/// let exp = |n: usize| Tensor::ones([n], F32).exp();
/// let (_, profile) = profiler::profile_with(options, || (exp(2), exp(2), exp(3)));
/// let by_shape = profile.key_averages_by(GroupBy { input_shape: true, ..Default::default() });
/// let calls = |shape: usize| {
///     let row = by_shape.rows().iter().find(|r| r.name == "exp" && r.shapes == Some(vec![vec![shape]]));
///     row.unwrap().calls
/// };
/// assert_eq!([calls(2), calls(3)], [2, 1]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupBy {
    /// Shapes of inputs (`group_by_input_shape`); needs [`ProfilerOptions::record_shapes`].
    pub input_shape: bool,
    /// The user's line (`group_by_stack_n`); needs [`ProfilerOptions::with_stack`].
    pub stack: bool,
    /// The module; needs [`ProfilerOptions::with_modules`].
    pub module: bool,
}

/// What a table is sorted by, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortBy {
    /// Time without that of spans inside.
    #[default]
    SelfCpuTimeTotal,
    /// Time.
    CpuTimeTotal,
    /// Time of a call.
    CpuTime,
    /// Bytes taken, without those of spans inside.
    SelfCpuMemoryUsage,
    /// Bytes taken.
    CpuMemoryUsage,
    /// The GPU's time, without that of spans inside.
    SelfDeviceTimeTotal,
    /// The GPU's time.
    DeviceTimeTotal,
    /// Calls.
    Count,
    /// Floating-point operations.
    Flops,
    /// Bytes that GPUs' kernels were given.
    DeviceBytes,
}

/// The spans of a profile by name, those with the longest times of their own first; printed, the
/// [`table`](Self::table) of all.
///
/// ```
/// use torchrs::{Tensor, profiler};
/// let (_, profile) = profiler::profile(|| Tensor::from([1f32]).exp());
/// let table = profile.key_averages().to_string();
/// assert!(table.contains("Self CPU %") && table.contains("exp"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAverages {
    rows: Vec<KeyRow>,
    options: ProfilerOptions,
    group_by: GroupBy,
}

type Key<'a> = (&'a str, Category, Option<&'a [Vec<usize>]>, Option<String>, Option<&'a str>);

impl Profile {
    /// The spans by name (`torch.profiler.profile.key_averages`).
    ///
    /// ```
    /// use torchrs::{Tensor, profiler};
    /// let x = Tensor::from([1f32]);
    /// let (_, profile) = profiler::profile(|| x.exp() + x.exp());
    /// assert_eq!(profile.key_averages().calls("exp"), Some(2));
    /// ```
    pub fn key_averages(&self) -> KeyAverages {
        self.key_averages_by(GroupBy::default())
    }

    /// The spans by name and by what else is asked for.
    pub fn key_averages_by(&self, group_by: GroupBy) -> KeyAverages {
        let mut rows: HashMap<Key<'_>, KeyRow> = HashMap::new();
        let mut open: Vec<(&Event, Key<'_>)> = Vec::new();
        for event in self.events() {
            let around = |o: &&Event| o.thread == event.thread && o.depth < event.depth;
            while open.last().is_some_and(|(last, _)| !around(last)) {
                open.pop();
            }
            let nested =
                open.iter().any(|(o, _)| o.name == event.name && o.category == event.category);
            let key: Key<'_> = (
                &event.name,
                event.category,
                event.shapes.as_deref().filter(|_| group_by.input_shape),
                event
                    .at
                    .filter(|_| group_by.stack)
                    .map(|at| format!("{}:{}", at.file(), at.line())),
                event.module.as_deref().filter(|_| group_by.module),
            );
            let row = rows.entry(key.clone()).or_insert_with(|| KeyRow {
                name: event.name.to_string(),
                category: event.category,
                calls: 0,
                total_ns: 0,
                self_ns: 0,
                memory: 0,
                self_memory: 0,
                flops: 0,
                device_ns: 0,
                self_device_ns: 0,
                traffic: Traffic::default(),
                shapes: key.2.map(<[_]>::to_vec),
                at: key.3.clone(),
                module: key.4.map(str::to_owned),
            });
            row.calls += 1;
            row.self_ns += event.self_ns;
            row.self_memory += event.self_memory;
            row.self_device_ns += event.self_device_ns.unwrap_or(0);
            row.flops += event.flops;
            row.traffic = row.traffic + event.traffic;
            if !nested {
                row.total_ns += event.duration_ns;
                row.memory += event.memory;
                row.device_ns += event.device_ns.unwrap_or(0);
            }
            if event.flops > 0 {
                // Those of spans inside are the outer ones' as well, each row's once.
                let mut added = vec![key.clone()];
                for (_, outer) in open.iter().rev() {
                    if !added.contains(outer)
                        && let Some(row) = rows.get_mut(outer)
                    {
                        row.flops += event.flops;
                        added.push(outer.clone());
                    }
                }
            }
            open.push((event, key));
        }
        let mut rows: Vec<KeyRow> = rows.into_values().collect();
        rows.sort_by(|a, b| (b.self_ns, &a.name).cmp(&(a.self_ns, &b.name)));
        KeyAverages { rows, options: self.options(), group_by }
    }
}

impl KeyAverages {
    /// The rows, by falling [`self_ns`](KeyRow::self_ns).
    pub fn rows(&self) -> &[KeyRow] {
        &self.rows
    }

    /// How many spans have this name, in all categories but [`Category::Backward`], whose spans have the
    /// names of forward's ops. `None` where no span has it, as for a name that is misspelt.
    ///
    /// ```
    /// use torchrs::{Tensor, profiler};
    /// let x = Tensor::from([1f32]).requires_grad_(true);
    /// let ((), profile) = profiler::profile(|| x.exp().backward());
    /// assert_eq!(profile.key_averages().calls("exp"), Some(1));
    /// assert_eq!(profile.key_averages().calls("expp"), None);
    /// ```
    pub fn calls(&self, name: &str) -> Option<usize> {
        let forward = |row: &&KeyRow| row.name == name && row.category != Category::Backward;
        self.rows.iter().filter(forward).map(|row| row.calls).reduce(|a, b| a + b)
    }

    /// The rows as PyTorch's table (`key_averages().table(sort_by, row_limit)`): all with `None`. Columns of what was
    /// not recorded are left out.
    ///
    /// ```
    /// use torchrs::{Tensor, profiler::{self, SortBy}};
    /// let x = Tensor::from([1f32]);
    /// let (_, profile) = profiler::profile(|| x.exp().exp().sin());
    /// let table = profile.key_averages().table(SortBy::Count, 1);
    /// assert!(table.contains("exp") && !table.contains("sin"));
    /// assert!(table.contains("# of Calls") && table.contains("Self CPU time total: "));
    /// ```
    pub fn table(&self, sort_by: SortBy, row_limit: impl Into<Option<usize>>) -> String {
        let mut rows: Vec<&KeyRow> = self.rows.iter().collect();
        rows.sort_by_key(|row| {
            std::cmp::Reverse(match sort_by {
                SortBy::SelfCpuTimeTotal => i128::from(row.self_ns),
                SortBy::CpuTimeTotal => i128::from(row.total_ns),
                SortBy::CpuTime => i128::from(row.total_ns) / row.calls as i128,
                SortBy::SelfCpuMemoryUsage => row.self_memory as i128,
                SortBy::CpuMemoryUsage => row.memory as i128,
                SortBy::SelfDeviceTimeTotal => i128::from(row.self_device_ns),
                SortBy::DeviceTimeTotal => i128::from(row.device_ns),
                SortBy::Count => row.calls as i128,
                SortBy::Flops => i128::from(row.flops),
                SortBy::DeviceBytes => i128::from(row.traffic.bytes),
            })
        });
        rows.truncate(row_limit.into().unwrap_or(usize::MAX));
        let all: u64 = self.rows.iter().map(|row| row.self_ns).sum();
        let of_device: u64 = self.rows.iter().map(|row| row.self_device_ns).sum();
        let columns = self.columns(all, of_device);
        let mut table = Table::new(columns.iter().map(|(name, align, _)| (*name, *align)));
        for row in rows {
            table.row(columns.iter().map(|(.., cell)| cell(row)));
        }
        let mut text = format!("{table}Self CPU time total: {}\n", time(all as f64));
        if self.options.cuda {
            text += &format!("Self CUDA time total: {}\n", time(of_device as f64));
        }
        text
    }

    fn columns(&self, all: u64, of_device: u64) -> Vec<Column> {
        let share =
            |part: u64, all: u64| format!("{:.2}%", 100.0 * part as f64 / all.max(1) as f64);
        let average = |ns: u64, row: &KeyRow| time(ns as f64 / row.calls as f64);
        let right = |name: &'static str, cell: Cell| (name, Align::Right, cell);
        let mut columns: Vec<Column> = vec![
            ("Name", Align::Left, Box::new(title)),
            right("Self CPU %", Box::new(move |row| share(row.self_ns, all))),
            right("Self CPU", Box::new(|row| time(row.self_ns as f64))),
            right("CPU total %", Box::new(move |row| share(row.total_ns, all))),
            right("CPU total", Box::new(|row| time(row.total_ns as f64))),
            right("CPU time avg", Box::new(move |row| average(row.total_ns, row))),
        ];
        if self.options.cuda {
            columns.push(right("Self CUDA", Box::new(|row| time(row.self_device_ns as f64))));
            columns.push(right(
                "Self CUDA %",
                Box::new(move |row| share(row.self_device_ns, of_device)),
            ));
            columns.push(right("CUDA total", Box::new(|row| time(row.device_ns as f64))));
            columns.push(right("CUDA time avg", Box::new(move |row| average(row.device_ns, row))));
        }
        if self.options.profile_memory {
            columns.push(right("CPU Mem", Box::new(|row| bytes(row.memory as i128))));
            columns.push(right("Self CPU Mem", Box::new(|row| bytes(row.self_memory as i128))));
        }
        columns.push(right("# of Calls", Box::new(|row| row.calls.to_string())));
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "--".to_owned());
        if self.group_by.input_shape {
            let shapes = |row: &KeyRow| format!("{:?}", row.shapes.as_deref().unwrap_or_default());
            columns.push(right("Input Shapes", Box::new(shapes)));
        }
        if self.group_by.stack {
            columns.push((
                "Source Location",
                Align::Left,
                Box::new(move |row| or_none(row.at.clone())),
            ));
        }
        if self.group_by.module {
            columns.push(("Module", Align::Left, Box::new(move |row| or_none(row.module.clone()))));
        }
        if self.options.with_traffic {
            columns.push(right("Launches", Box::new(|row| row.traffic.launches.to_string())));
            let of = |n: u64| bytes(i128::from(n));
            columns.push(right("Device Bytes", Box::new(move |row| of(row.traffic.bytes))));
            let calls = |row: &KeyRow| row.traffic.library_calls.to_string();
            columns.push(right("Library Calls", Box::new(calls)));
            columns.push(right("Library Bytes", Box::new(move |r| of(r.traffic.library_bytes))));
        }
        if self.options.with_flops {
            let flops =
                |row: &KeyRow| if row.flops == 0 { "--".to_owned() } else { compact(row.flops) };
            columns.push(right("Total FLOPs", Box::new(flops)));
        }
        columns
    }
}

type Cell = Box<dyn Fn(&KeyRow) -> String>;
type Column = (&'static str, Align, Cell);

/// A row's name; one of backward has forward's.
fn title(row: &KeyRow) -> String {
    const LONGEST: usize = 55;
    let name = match row.category {
        Category::Backward if row.name != super::BACKWARD => format!("{} (backward)", row.name),
        _ => row.name.clone(),
    };
    match name.chars().count() {
        ..=LONGEST => name,
        _ => name.chars().take(LONGEST - 3).chain("...".chars()).collect(),
    }
}

/// A time with a unit that leaves it at least one digit before the point.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e6 => format!("{:.3}us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.3}ms", ns / 1e6),
        ns => format!("{:.3}s", ns / 1e9),
    }
}

/// Bytes as PyTorch's table has them.
pub(super) fn bytes(n: i128) -> String {
    let value = n as f64;
    match n.unsigned_abs() {
        0x4000_0000.. => format!("{:.2} Gb", value / 1_073_741_824.0),
        0x10_0000.. => format!("{:.2} Mb", value / 1_048_576.0),
        0x400.. => format!("{:.2} Kb", value / 1024.0),
        _ => format!("{n} b"),
    }
}

impl fmt::Display for KeyAverages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table(SortBy::default(), None))
    }
}

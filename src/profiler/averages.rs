//! Spans of one name, added up.

use std::collections::HashMap;
use std::fmt;

use super::profile::{Category, Event, Profile};

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
}

/// The spans of a profile by name, those with the longest times of their own first; printed, a table.
///
/// ```
/// use torchrs::{Tensor, profiler};
/// let (_, profile) = profiler::profile(|| Tensor::from([1f32]).exp());
/// let table = profile.key_averages().to_string();
/// assert!(table.contains("Self %") && table.contains("exp"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAverages {
    rows: Vec<KeyRow>,
}

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
        let mut rows: HashMap<(&str, Category), KeyRow> = HashMap::new();
        let mut open: Vec<&Event> = Vec::new();
        for event in self.events() {
            let around = |o: &&Event| o.thread == event.thread && o.depth < event.depth;
            while open.last().is_some_and(|last| !around(last)) {
                open.pop();
            }
            let nested = open.iter().any(|o| o.name == event.name && o.category == event.category);
            let row = rows.entry((&event.name, event.category)).or_insert_with(|| KeyRow {
                name: event.name.to_string(),
                category: event.category,
                calls: 0,
                total_ns: 0,
                self_ns: 0,
            });
            row.calls += 1;
            row.total_ns += if nested { 0 } else { event.duration_ns };
            row.self_ns += event.self_ns;
            open.push(event);
        }
        let mut rows: Vec<KeyRow> = rows.into_values().collect();
        rows.sort_by(|a, b| (b.self_ns, &a.name).cmp(&(a.self_ns, &b.name)));
        KeyAverages { rows }
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
}

/// A time with a unit that leaves it at least one digit before the point.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e6 => format!("{:.3} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.3} ms", ns / 1e6),
        ns => format!("{:.3} s", ns / 1e9),
    }
}

impl fmt::Display for KeyAverages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: u64 = self.rows.iter().map(|row| row.self_ns).sum();
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(4);
        let line = |f: &mut fmt::Formatter<'_>, cells: [&str; 7]| {
            let [name, category, calls, own, share, total, average] = cells;
            writeln!(
                f,
                "{name:width$}  {category:13}  {calls:>8}  {own:>12}  {share:>7}  {total:>12}  {average:>12}"
            )
        };
        line(f, ["Name", "Category", "Calls", "Self", "Self %", "Total", "Average"])?;
        for row in &self.rows {
            let cells = [
                row.calls.to_string(),
                time(row.self_ns as f64),
                format!("{:.2}%", 100.0 * row.self_ns as f64 / all.max(1) as f64),
                time(row.total_ns as f64),
                time(row.total_ns as f64 / row.calls as f64),
            ];
            let [calls, own, share, total, average] = cells.each_ref().map(String::as_str);
            let category = row.category.to_string();
            line(f, [&row.name, &category, calls, own, share, total, average])?;
        }
        writeln!(f, "Self time in all: {}", time(all as f64))
    }
}

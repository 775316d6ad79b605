//! Bytes of tensors over time, of the host and of each GPU, and who holds them when they are most: by op, by module, by
//! line.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::panic::Location;
use std::path::Path;

use super::averages::time;
use super::profile::Profile;
use super::text::{Align, Table};
use crate::error::{Context, Error, Result};
use crate::storage::Device;
use crate::storage::living::{Change, bytes};

/// What holds the bytes that were there when the recording began.
const BEFORE: &str = "made before";
/// What no op of a profile made.
const NO_OP: &str = "outside ops";
/// What no module made.
const NO_MODULE: &str = "outside modules";

/// A device's memory in a profile; see [`Profile::memory_timeline`]. Printed, who holds the bytes at the peak.
#[derive(Debug, Clone)]
pub struct MemoryTimeline {
    /// Whose memory.
    pub device: Device,
    /// Nanoseconds since the recording began, and the bytes from then on; the first is its begin.
    pub samples: Vec<(u64, usize)>,
    /// The largest of them.
    pub peak: MemoryPeak,
}

/// Who holds the bytes when they are most; each list from the largest on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryPeak {
    /// When, in nanoseconds since the recording began.
    pub at_ns: u64,
    /// How many.
    pub bytes: usize,
    /// By the op that made them; what was there before the recording began is one.
    pub by_op: Vec<(String, usize)>,
    /// By the module that made them, where modules are recorded.
    pub by_module: Vec<(String, usize)>,
    /// By the user's line that made them.
    pub by_line: Vec<(String, usize)>,
}

struct Block {
    bytes: usize,
    op: String,
    module: String,
    at: &'static Location<'static>,
}

impl Profile {
    /// The devices whose memory changed in the recording.
    pub fn memory_devices(&self) -> Vec<Device> {
        let mut devices = vec![Device::Cpu];
        for change in self.changes() {
            if !devices.contains(&change.device) {
                devices.push(change.device);
            }
        }
        devices[1..].sort_by_key(|device| device.to_string());
        devices
    }

    /// Every block of memory that tensors took and gave back on a device, over time
    /// ([`profile_memory`](super::ProfilerOptions::profile_memory)).
    ///
    /// ```
    /// use torchrs::{Device, Dtype::F32, Tensor, profiler::{self, ProfilerOptions}};
    /// let options = ProfilerOptions { profile_memory: true, ..Default::default() };
    /// let (_, profile) = profiler::profile_with(options, || {
    ///     let x = Tensor::ones([1 << 18], F32);
    ///     drop(x.exp() + 1.0);
    /// });
    /// let timeline = profile.memory_timeline(Device::Cpu)?;
    /// let of = |op: &str| timeline.peak.by_op.iter().find(|(name, _)| name == op).unwrap().1;
    /// assert_eq!([of("exp"), of("add")], [1 << 20; 2]);
    /// println!("{timeline}");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] where the recording was not asked for memory.
    pub fn memory_timeline(&self, device: Device) -> Result<MemoryTimeline> {
        if !self.options().profile_memory {
            let what =
                "the recording was not asked for memory; set `ProfilerOptions::profile_memory`";
            return Err(Error::argument("Profile::memory_timeline", "device", what));
        }
        let changes: Vec<&Change> = self.changes().iter().filter(|c| c.device == device).collect();
        let begin = self.time().start;
        let mut now = self.base(device);
        let (mut samples, mut peak) = (vec![(0, now)], (0, now, 0));
        for (i, change) in changes.iter().enumerate() {
            now = match change.made {
                Some(_) => now + change.bytes,
                None => now.saturating_sub(change.bytes),
            };
            let at = change.at_ns.saturating_sub(begin);
            samples.push((at, now));
            if now > peak.1 {
                peak = (at, now, i + 1);
            }
        }
        let (at_ns, bytes, until) = peak;
        let peak =
            self.held(device, &changes[..until], MemoryPeak { at_ns, bytes, ..Default::default() });
        Ok(MemoryTimeline { device, samples, peak })
    }

    /// Who holds what is left after those changes.
    fn held(&self, device: Device, changes: &[&Change], mut peak: MemoryPeak) -> MemoryPeak {
        let mut before = self.base(device);
        let mut blocks: HashMap<usize, Block> = HashMap::new();
        for change in changes {
            match &change.made {
                Some((maker, at)) => {
                    let op = maker.op.as_deref().unwrap_or(NO_OP).to_owned();
                    let module = maker.module.as_deref().unwrap_or(NO_MODULE).to_owned();
                    blocks.insert(change.address, Block { bytes: change.bytes, op, module, at });
                }
                None => {
                    if blocks.remove(&change.address).is_none() {
                        before = before.saturating_sub(change.bytes);
                    }
                }
            }
        }
        let sums = |key: &dyn Fn(&Block) -> String| {
            let mut sums: HashMap<String, usize> = HashMap::from([(BEFORE.to_owned(), before)]);
            for block in blocks.values() {
                *sums.entry(key(block)).or_default() += block.bytes;
            }
            let mut sums: Vec<(String, usize)> = sums.into_iter().filter(|(_, n)| *n > 0).collect();
            sums.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
            sums
        };
        peak.by_op = sums(&|block| block.op.clone());
        peak.by_line = sums(&|block| block.at.to_string());
        if self.options().with_modules {
            peak.by_module = sums(&|block| block.module.clone());
        }
        peak
    }

    /// Writes the memory of all devices over time with who holds it at the peak (`export_memory_timeline`): an HTML page
    /// by a name that ends with `.html`, only the pictures by `.svg`.
    ///
    /// ```
    /// use torchrs::{Dtype::F32, Tensor, profiler::{self, ProfilerOptions}};
    /// let options = ProfilerOptions { profile_memory: true, ..Default::default() };
    /// let (_, profile) = profiler::profile_with(options, || Tensor::ones([1 << 18], F32).exp());
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("memory.html");
    /// profile.export_memory_timeline(&path)?;
    /// assert!(std::fs::read_to_string(&path).unwrap().contains("<svg"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for another ending and where the recording was not asked for memory; [`Error::Os`] when the
    /// file cannot be written.
    pub fn export_memory_timeline(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let timelines: Vec<MemoryTimeline> = self
            .memory_devices()
            .into_iter()
            .map(|device| self.memory_timeline(device))
            .collect::<Result<_>>()?;
        let text = match path.extension().and_then(|ending| ending.to_str()) {
            Some("html") => {
                let parts = timelines.iter().map(|t| {
                    format!("{}\n<pre>{}</pre>\n", t.to_svg(0.0, true), escaped(&t.to_string()))
                });
                let parts: String = parts.collect();
                format!("<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>Memory</title>\n{parts}")
            }
            Some("svg") => {
                let height = HEIGHT * timelines.len() as f64;
                let pictures = timelines.iter().enumerate();
                let pictures: String =
                    pictures.map(|(i, t)| t.to_svg(HEIGHT * i as f64, false)).collect();
                format!(
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\">\n{pictures}</svg>\n"
                )
            }
            _ => {
                let message = format!("{} ends with neither .html nor .svg", path.display());
                return Err(Error::argument("Profile::export_memory_timeline", "path", message));
            }
        };
        std::fs::write(path, text).context(|| format!("write {}", path.display()))
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 260.0;
/// Room for the axes' words.
const LEFT: f64 = 90.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 30.0;

impl MemoryTimeline {
    /// The bytes over time as a picture, `y` below the top of the one around it.
    fn to_svg(&self, y: f64, alone: bool) -> String {
        let end = self.samples.last().map_or(0, |s| s.0).max(1) as f64;
        let most = self.peak.bytes.max(1) as f64;
        let x_of = |at: u64| LEFT + (WIDTH - LEFT - 20.0) * at as f64 / end;
        let y_of = |n: usize| y + TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - n as f64 / most);
        let mut points = format!("{:.1},{:.1}", x_of(0), y_of(0));
        let mut last = self.samples[0].1;
        for &(at, now) in &self.samples {
            let _ = write!(
                points,
                " {:.1},{:.1} {:.1},{:.1}",
                x_of(at),
                y_of(last),
                x_of(at),
                y_of(now)
            );
            last = now;
        }
        let _ = write!(points, " {:.1},{:.1}", x_of(end as u64), y_of(0));
        let text = |x: f64, y: f64, anchor: &str, text: &str| {
            format!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" font-size=\"12\">{}</text>\n",
                escaped(text)
            )
        };
        let mut svg = String::new();
        if alone {
            let _ = writeln!(
                svg,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\">"
            );
        }
        let _ = writeln!(svg, "<polygon points=\"{points}\" fill=\"#9ecae1\" stroke=\"#3182bd\"/>");
        let (x, top) = (x_of(self.peak.at_ns), y_of(self.peak.bytes));
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{top:.1}\" r=\"4\" fill=\"#de2d26\"/>");
        let title = format!(
            "{}: {} at the peak, after {}",
            self.device,
            bytes(self.peak.bytes),
            time(self.peak.at_ns as f64)
        );
        svg += &text(LEFT, y + 18.0, "start", &title);
        svg += &text(LEFT - 6.0, y_of(self.peak.bytes) + 4.0, "end", &bytes(self.peak.bytes));
        svg += &text(LEFT - 6.0, y_of(0) + 4.0, "end", "0");
        svg += &text(WIDTH - 20.0, y + HEIGHT - 10.0, "end", &time(end));
        if alone {
            svg += "</svg>";
        }
        svg
    }
}

/// Rows of each list that are shown.
const ROWS: usize = 10;

impl fmt::Display for MemoryTimeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peak = &self.peak;
        let at = time(peak.at_ns as f64);
        writeln!(f, "{}: {} at the peak, after {at}", self.device, bytes(peak.bytes))?;
        for (what, list) in
            [("By op", &peak.by_op), ("By module", &peak.by_module), ("By line", &peak.by_line)]
        {
            if list.is_empty() {
                continue;
            }
            let mut table =
                Table::new([(what, Align::Left), ("Bytes", Align::Right), ("Share", Align::Right)]);
            for (name, n) in list.iter().take(ROWS) {
                let share = 100.0 * *n as f64 / peak.bytes.max(1) as f64;
                table.row([name.clone(), bytes(*n), format!("{share:.1}%")]);
            }
            write!(f, "{table}")?;
        }
        Ok(())
    }
}

//! The trace as a file in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and
//! `chrome://tracing` read.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};
use torchrs_job::cluster::told_rank;

use super::profile::Profile;
use crate::error::{Context, Error, Result};

/// Nanoseconds in the format's microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Profile {
    /// Writes the trace of this process: a track for each thread, and a counter of allocated bytes. The
    /// process has the name of its rank, if the environment has one (`RANK`).
    ///
    /// ```
    /// use torchrs::{Tensor, profiler};
    /// let (_, profile) = profiler::profile(|| Tensor::from([1f32]).exp());
    /// # let folder = std::env::temp_dir().join(format!("chrome-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// let path = folder.join("trace.json");
    /// profile.export_chrome_trace(&path)?;
    /// let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    /// assert!(trace["traceEvents"].as_array().unwrap().iter().any(|e| e["name"] == "exp"));
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the file cannot be written.
    pub fn export_chrome_trace(&self, path: impl AsRef<Path>) -> Result<()> {
        let rank = told_rank().map(|(rank, _)| rank as u64);
        write(path.as_ref(), self.chrome_events(std::process::id(), rank))
    }

    fn chrome_events(&self, pid: u32, rank: Option<u64>) -> Vec<Value> {
        let program = std::env::args().next().unwrap_or_default();
        let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
        let process = match rank {
            Some(rank) => format!("rank {rank} ({program})"),
            None => program.into_owned(),
        };
        let about = |name: &str, tid: i64, args: Value| json!({ "ph": "M", "name": name, "pid": pid, "tid": tid, "args": args });
        let first = i64::from(pid);
        let mut all = vec![
            about("process_name", first, json!({ "name": process })),
            about("process_sort_index", first, json!({ "sort_index": rank.unwrap_or(0) })),
        ];
        for thread in self.threads() {
            all.push(about("thread_name", thread.tid.into(), json!({ "name": thread.name })));
        }
        for event in self.events() {
            let mut args = serde_json::Map::new();
            let mut about = |name: &str, value: Option<Value>| {
                args.extend(value.map(|value| (name.to_owned(), value)));
            };
            about("bytes", event.bytes.map(Value::from));
            about("Input Dims", event.shapes.as_ref().map(|shapes| json!(shapes)));
            about("flops", (event.flops > 0).then(|| event.flops.into()));
            about("module", event.module.as_deref().map(Value::from));
            about("at", event.at.map(|at| at.to_string().into()));
            about("waited for rank", event.peer.map(Value::from));
            about("device us", event.device_ns.map(|ns| us(ns).into()));
            all.push(json!({
                "ph": "X", "name": event.name, "cat": event.category.to_string(), "pid": pid,
                "tid": self.threads()[event.thread].tid, "ts": us(event.start_ns),
                "dur": us(event.duration_ns), "args": args,
            }));
        }
        for device in self.memory_devices().into_iter().skip(1) {
            let Ok(timeline) = self.memory_timeline(device) else { continue };
            for (at, bytes) in timeline.samples {
                all.push(json!({
                    "ph": "C", "name": format!("allocated {device}"), "pid": pid,
                    "ts": us(self.time().start + at), "args": { "bytes": bytes },
                }));
            }
        }
        for sample in self.memory() {
            all.push(json!({
                "ph": "C", "name": "allocated", "pid": pid, "ts": us(sample.at_ns),
                "args": { "bytes": sample.bytes },
            }));
        }
        all
    }
}

fn write(path: &Path, events: Vec<Value>) -> Result<()> {
    let what = || format!("write the trace {}", path.display());
    let mut file = BufWriter::new(File::create(path).context(what)?);
    let trace = json!({ "displayTimeUnit": "ms", "traceEvents": events });
    serde_json::to_writer(&mut file, &trace).map_err(std::io::Error::from).context(what)?;
    file.flush().context(what)
}

/// One trace of the traces of several ranks of a host, which have one clock.
///
/// ```
/// use torchrs::{Tensor, profiler};
/// # let folder = std::env::temp_dir().join(format!("merge-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let paths = [folder.join("0.json"), folder.join("1.json")];
/// for path in &paths {
///     profiler::profile(|| Tensor::from([1f32]).exp()).1.export_chrome_trace(path)?;
/// }
/// profiler::merge_chrome_traces(&paths, folder.join("all.json"))?;
/// # let text = std::fs::read_to_string(folder.join("all.json")).unwrap();
/// # assert_eq!(text.matches("\"exp\"").count(), 2);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`] for a file that is no trace, [`Error::Os`] when one cannot be read or written.
pub fn merge_chrome_traces<P: AsRef<Path>>(traces: &[P], merged: impl AsRef<Path>) -> Result<()> {
    let mut all = Vec::new();
    for path in traces.iter().map(AsRef::as_ref) {
        let file = File::open(path).context(|| format!("read the trace {}", path.display()))?;
        let no_trace = |message: String| Error::File { path: path.to_owned(), message };
        let mut trace: Value = serde_json::from_reader(BufReader::new(file))
            .map_err(|e| no_trace(format!("is not a trace: {e}")))?;
        match trace.get_mut("traceEvents") {
            Some(Value::Array(events)) => all.append(events),
            _ => return Err(no_trace("is not a trace: it has no list `traceEvents`".into())),
        }
    }
    write(merged.as_ref(), all)
}

//! How a row is timed and printed: time on the device by events, time on the host by its clock.

use std::time::{Duration, Instant};

use torchrs::cuda::{Event, EventOptions, Stream, memory};
use torchrs::{Device, Dtype, Result, Tensor, catch};

use crate::counts;

/// Where everything is computed.
pub const GPU: Device = Device::Cuda(0);

/// The exit status where the device takes no more work.
const LOST: i32 = 75;

/// What rows are timed with.
pub struct Bench {
    /// Sizes that the simulated GPU can do.
    pub tiny: bool,
    /// Seconds that a row may take, beside its first calls.
    budget: f64,
    /// Names of rows that are left out.
    skipped: Vec<String>,
    /// The stream that is timed.
    stream: Stream,
    start: Event,
    end: Event,
    /// Rows are counted and not timed; with a table of ops.
    counts: Option<bool>,
}

impl Bench {
    /// For the first device's current stream.
    pub fn new(tiny: bool, budget: f64, skipped: Vec<String>) -> Result<Bench> {
        let timing = EventOptions { timing: true, ..EventOptions::default() };
        let (start, end) = (Event::new(0, timing)?, Event::new(0, timing)?);
        let stream = Stream::current(0)?;
        Ok(Bench { tiny, budget, skipped, stream, start, end, counts: None })
    }

    /// Counts rows instead, with a table of ops if wanted.
    #[must_use]
    pub fn counting(self, with_ops: bool) -> Bench {
        Bench { counts: Some(with_ops), ..self }
    }

    /// Whether rows are counted, and values do not matter.
    pub fn is_counting(&self) -> bool {
        self.counts.is_some()
    }

    /// One of two sizes.
    pub fn size(&self, full: usize, tiny: usize) -> usize {
        if self.tiny { tiny } else { full }
    }

    /// Calls `call` some times; seconds per call on the device, and on the host until all was started.
    fn sample(&self, times: usize, call: &mut dyn FnMut()) -> Result<(f64, f64)> {
        self.stream.synchronize()?;
        self.start.record(self.stream)?;
        let begin = Instant::now();
        (0..times).for_each(|_| call());
        let host = begin.elapsed().as_secs_f64();
        self.end.record(self.stream)?;
        self.end.synchronize()?;
        let device = f64::from(self.start.elapsed_ms(&self.end)?) * 1e-3;
        Ok((device / times as f64, host / times as f64))
    }

    /// Times `call` and prints a row of its time on the device. `work` is what a call does in units of 1e9, or
    /// for rates in pieces what it does. A row that fails says so and ends no other.
    pub fn device(&self, name: &str, unit: &str, work: f64, mut call: impl FnMut()) {
        self.attempt(name, || {
            if let Some(with_ops) = self.counts {
                return counts::row(name, with_ops, &mut call);
            }
            let samples = self.samples(5e-3, 512, &mut call)?;
            self.emit(name, unit, work, samples.iter().map(|s| s.0).collect(), &samples);
            Ok(())
        });
    }

    /// The same of its time on the host, in microseconds: what a call costs the thread that makes it.
    pub fn host(&self, name: &str, mut call: impl FnMut()) {
        self.attempt(name, || {
            if let Some(with_ops) = self.counts {
                return counts::row(name, with_ops, &mut call);
            }
            // Few enough that the device's queue never holds the host up.
            let samples = self.samples(1e-3, 256, &mut call)?;
            self.emit(name, "us", 0.0, samples.iter().map(|s| s.1).collect(), &samples);
            Ok(())
        });
    }

    /// A row, with a line before it that says which one hangs or ends the process. A fault that no later row
    /// would survive ends it with [`LOST`].
    fn attempt(&self, name: &str, row: impl FnOnce() -> Result<()>) {
        if self.skipped.iter().any(|skipped| skipped == name) {
            return;
        }
        println!("{}", serde_json::json!({ "begin": name }));
        let outcome = catch(std::panic::AssertUnwindSafe(row)).and_then(|result| result);
        if let Err(error) = outcome {
            let text = error.to_string();
            println!("{}", serde_json::json!({ "name": name, "error": text }));
            if self.stream.synchronize().is_err() {
                std::process::exit(LOST);
            }
        }
        // What is left of a row would be in the way of the next one's.
        let _ = memory::empty_cache();
    }

    /// Samples of at least so many seconds and at most so many calls each.
    fn samples(&self, least: f64, most: usize, call: &mut dyn FnMut()) -> Result<Vec<(f64, f64)>> {
        self.sample(1, call)?;
        let (device, host) = self.sample(1, call)?;
        let times =
            if self.tiny { 1 } else { ((least / device.max(host)) as usize).clamp(1, most) };
        let start = Instant::now();
        let mut samples = Vec::new();
        while samples.len() < 3
            || (start.elapsed() < Duration::from_secs_f64(self.budget) && samples.len() < 200)
        {
            samples.push(self.sample(times, call)?);
        }
        Ok(samples)
    }

    fn emit(&self, name: &str, unit: &str, work: f64, mut seconds: Vec<f64>, all: &[(f64, f64)]) {
        seconds.sort_by(f64::total_cmp);
        let (least, median) = (seconds[0], seconds[seconds.len() / 2]);
        let host = all.iter().map(|s| s.1).fold(f64::INFINITY, f64::min);
        let rate = if unit == "us" { least * 1e6 } else { work / least };
        println!(
            "{}",
            serde_json::json!({
                "name": name, "unit": unit, "median_s": median, "min_s": least, "rate": rate, "host_s": host,
            })
        );
    }
}

/// Normal numbers on the GPU.
pub fn normal(shape: &[usize], dtype: Dtype) -> Tensor {
    Tensor::randn(shape, (Dtype::F32, GPU)).to_dtype(dtype)
}

/// What a dtype is called in rows' names.
pub fn short(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::BF16 => "bf16",
        Dtype::F16 => "f16",
        _ => "f32",
    }
}

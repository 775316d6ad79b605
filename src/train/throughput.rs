//! How fast a run is: samples a second over all ranks, the share of the devices' peak that it uses (MFU), and memory.

use std::fmt;
use std::time::Instant;

use crate::cuda;
use crate::distributed::{ProcessGroup, ReduceOp};
use crate::error::{Error, Result};
use crate::profiler::{FlopCounter, notes};
use crate::tensor::{Device, Tensor};

/// Counts samples, and the time that steps take.
///
/// ```
/// use torchrs::{Device, train::{Throughput, transformer_flops}};
/// let group = torchrs::distributed::init_process_group(Default::default())?;
/// let mut speed = Throughput::new(Device::Cpu).flops_per_sample(transformer_flops(1_000_000, 4, 256, 128));
/// for step in 0..3 {
///     // ...
///     speed.step(32);
/// }
/// let report = speed.report(&group)?; // and counts anew
/// assert!(report.samples == 96 && report.samples_per_s > 0.0 && report.mfu.is_none());
/// assert!(report.memory > 1 << 20);
/// println!("{report}");
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Throughput {
    device: Device,
    flops_per_sample: Option<f64>,
    peak_flops: Option<f64>,
    tokens_per_sample: Option<f64>,
    since: Instant,
    samples: u64,
    steps: u64,
}

/// What [`Throughput`] has counted, of all ranks. As text it is a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThroughputReport {
    /// Samples of all ranks.
    pub samples: u64,
    /// Samples a second of all ranks, over the time of the slowest.
    pub samples_per_s: f64,
    /// Tokens a second of all ranks, where those of a sample are known.
    pub tokens_per_s: Option<f64>,
    /// Seconds of a step, of the slowest rank.
    pub seconds_per_step: f64,
    /// Operations a second of all ranks, where those of a sample are known.
    pub flops: Option<f64>,
    /// Their share of what the devices can do, where that is known (model FLOPs utilization).
    pub mfu: Option<f64>,
    /// The most bytes that a rank has: of a GPU's memory by tensors since the program began, of a CPU the process's
    /// resident memory now.
    pub memory: u64,
}

impl Throughput {
    /// Counts from now on. The device is that of this rank.
    pub fn new(device: Device) -> Self {
        Throughput {
            device,
            flops_per_sample: None,
            peak_flops: None,
            tokens_per_sample: None,
            since: Instant::now(),
            samples: 0,
            steps: 0,
        }
    }

    /// Floating-point operations of a sample, forward and backward: [`transformer_flops`], or one's own count.
    /// [`count_flops`](Self::count_flops) counts them.
    pub fn flops_per_sample(mut self, flops: f64) -> Self {
        self.flops_per_sample = Some(flops);
        self
    }

    /// Calls `step`, which trains on so many samples, and takes its operations, counted as
    /// [`FlopCounter`] does, for [`flops_per_sample`](Self::flops_per_sample). Once is enough: counting costs little, but
    /// something for every op.
    ///
    /// ```
    /// use torchrs::{Device, Dtype::F32, Tensor, nn::{Forward, Linear}, train::Throughput};
    /// let layer = Linear::no_bias(8, 4);
    /// let mut speed = Throughput::new(Device::Cpu);
    /// speed.count_flops(16, || layer.forward(&Tensor::ones([16, 8], F32)).sum().backward());
    /// speed.step(16);
    /// let group = torchrs::distributed::init_process_group(Default::default())?;
    /// let report = speed.report(&group)?;
    /// // Forward, and the gradient of the weight.
    /// assert_eq!((report.flops.unwrap() / report.samples_per_s).round(), f64::from(2 * 2 * 8 * 4));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Panics
    /// For no samples.
    #[track_caller]
    pub fn count_flops<T>(&mut self, samples: usize, step: impl FnOnce() -> T) -> T {
        assert!(samples > 0, "Throughput::count_flops: samples is 0; must be those of the step");
        let counter = FlopCounter::new();
        let result = step();
        self.flops_per_sample = Some(counter.total_flops() as f64 / samples as f64);
        result
    }

    /// Floating-point operations a second that a rank's device can do at most, in the precision that is used: 989e12 is
    /// an H100's in dense bf16. Without it there is no MFU.
    pub fn peak_flops(mut self, flops: f64) -> Self {
        self.peak_flops = Some(flops);
        self
    }

    /// Tokens of a sample: the length of a text that is one.
    pub fn tokens_per_sample(mut self, tokens: f64) -> Self {
        self.tokens_per_sample = Some(tokens);
        self
    }

    /// A step of so many samples of this rank is done. The launcher's status page counts them, too.
    pub fn step(&mut self, samples: usize) {
        self.samples += samples as u64;
        self.steps += 1;
        notes::samples_done(
            samples,
            self.tokens_per_sample,
            self.flops_per_sample,
            self.peak_flops,
        );
    }

    /// Leaves out the time from `pause` until now: of a validation, or a checkpoint.
    ///
    /// ```
    /// use std::time::Instant;
    /// use torchrs::{Device, train::Throughput};
    /// let mut speed = Throughput::new(Device::Cpu);
    /// speed.step(8);
    /// let pause = Instant::now();
    /// // Validate.
    /// speed.skip(pause);
    /// ```
    pub fn skip(&mut self, pause: Instant) {
        self.since += pause.elapsed();
    }

    /// What all ranks have done since the last report, and begins to count anew. Collective.
    ///
    /// # Errors
    /// [`Error::Argument`] on all ranks where there was no step; otherwise as
    /// [`ProcessGroup::all_reduce`](crate::distributed::ProcessGroup::all_reduce).
    #[track_caller]
    pub fn report(&mut self, group: &ProcessGroup) -> Result<ThroughputReport> {
        let seconds = self.since.elapsed().as_secs_f64();
        let per_step = seconds / self.steps.max(1) as f64;
        let sums =
            Tensor::from_slice(&[self.samples as f64, self.peak_flops.unwrap_or(f64::NAN)], [2]);
        group.all_reduce(&sums, ReduceOp::Sum)?;
        let most = Tensor::from_slice(&[seconds, per_step, memory(self.device)? as f64], [3]);
        group.all_reduce(&most, ReduceOp::Max)?;
        let (sums, most) = (sums.to_vec::<f64>(), most.to_vec::<f64>());
        let (samples, peak) = (sums[0], sums[1]);
        if samples == 0.0 {
            let what = "no step since the last report; call `step` after each";
            return Err(Error::argument("Throughput::report", "samples", what));
        }
        let samples_per_s = samples / most[0];
        let flops = self.flops_per_sample.map(|flops| flops * samples_per_s);
        (self.samples, self.steps, self.since) = (0, 0, Instant::now());
        Ok(ThroughputReport {
            samples: samples as u64,
            samples_per_s,
            tokens_per_s: self.tokens_per_sample.map(|tokens| tokens * samples_per_s),
            seconds_per_step: most[1],
            flops,
            mfu: flops.map(|flops| flops / peak).filter(|mfu| mfu.is_finite()),
            memory: most[2] as u64,
        })
    }
}

impl fmt::Display for ThroughputReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} samples/s, {:.1} ms a step",
            self.samples_per_s,
            1e3 * self.seconds_per_step
        )?;
        if let Some(tokens) = self.tokens_per_s {
            write!(f, ", {tokens:.0} tokens/s")?;
        }
        if let Some(flops) = self.flops {
            write!(f, ", {:.2} TFLOP/s", flops / 1e12)?;
        }
        if let Some(mfu) = self.mfu {
            write!(f, ", {:.1}% MFU", 100.0 * mfu)?;
        }
        write!(f, ", {:.2} GiB", self.memory as f64 / f64::from(1 << 30))
    }
}

/// Floating-point operations of a training sample of a transformer, forward and backward: 6 for each parameter and token,
/// and 12 for each layer, feature and pair of tokens in attention (PaLM, appendix B).
///
/// ```
/// use torchrs::train::transformer_flops;
/// assert_eq!(transformer_flops(100, 2, 8, 4), (6 * 100 * 4 + 12 * 2 * 8 * 4 * 4) as f64);
/// ```
pub fn transformer_flops(parameters: usize, layers: usize, features: usize, tokens: usize) -> f64 {
    let [parameters, layers, features, tokens] =
        [parameters, layers, features, tokens].map(|n| n as f64);
    6.0 * parameters * tokens + 12.0 * layers * features * tokens * tokens
}

/// Bytes that this process has: on a GPU the peak of its tensors', else its resident memory.
fn memory(device: Device) -> Result<u64> {
    match device {
        Device::Cuda(index) => Ok(cuda::memory::statistics(index)?.allocated.peak as u64),
        _ => {
            let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib =
                line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
            Ok(kib.unwrap_or(0) * 1024)
        }
    }
}

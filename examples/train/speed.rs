//! How fast a run is: tokens a second, the share of the devices' peak, memory.

use torchrs::distributed::ProcessGroup;
use torchrs::train::{Throughput, ThroughputReport, transformer_flops};
use torchrs::{Device, Error, Result};

use crate::args::{Amp, Args, ModelKind};
use crate::data::Shape;
use crate::settings::Settings;
use crate::{llama, models};

/// Operations a second, in 10^12, of products of half types with sums in f32, without sparsity, from NVIDIA's data sheets.
/// Names are looked for in this order.
const PEAKS: [(&str, f64); 16] = [
    ("B200", 2250.0),
    ("H200", 989.0),
    ("GH200", 989.0),
    ("H100 PCIe", 756.0),
    ("H100 NVL", 835.0),
    ("H100", 989.0),
    ("H800", 989.0),
    ("A100", 312.0),
    ("A800", 312.0),
    ("L40S", 362.0),
    ("L40", 181.0),
    ("L4", 121.0),
    ("A10G", 70.0),
    ("A10", 125.0),
    ("RTX 4090", 165.0),
    ("RTX 3090", 71.0),
];

/// The peak of a device that is known, for the type that products are of.
fn known_peak(device: Device, amp: Amp) -> Option<f64> {
    let Device::Cuda(index) = device else { return None };
    let name = &torchrs::cuda::device::properties(index).ok()?.name;
    let words: Vec<&str> = name.split([' ', '-']).collect();
    let has = |product: &str| {
        let product: Vec<&str> = product.split(' ').collect();
        words.windows(product.len()).any(|words| words == product)
    };
    (amp != Amp::Off).then(|| PEAKS.iter().find(|(product, _)| has(product)))?.map(|peak| peak.1)
}

/// Counts the steps of a run, and an epoch's.
pub struct Speed {
    steps: Throughput,
    /// Of this epoch: samples, seconds, and the last report.
    epoch: (f64, f64, Option<ThroughputReport>),
}

impl Speed {
    /// Counts samples; of a language model, also tokens and operations.
    pub fn new(
        args: &Args,
        settings: &Settings,
        shape: Shape,
        device: Device,
        parameters: usize,
    ) -> Result<Self> {
        let tokens = settings.context_length;
        let flops = match (settings.model, shape) {
            (ModelKind::Gpt, _) => {
                let gpt = models::gpt_config(1, tokens);
                transformer_flops(parameters, gpt.n_layer, gpt.n_embd, tokens)
            }
            (ModelKind::Llama, Shape::Text { vocabulary }) => {
                llama::flops(&llama::config(settings, vocabulary)?, tokens)
            }
            _ if args.peak_tflops.is_some() => {
                let message = format!(
                    "is for --model gpt and llama; the operations of {} are not counted",
                    settings.model.name()
                );
                return Err(Error::config("--peak-tflops", message));
            }
            _ => return Ok(Speed { steps: Throughput::new(device), epoch: (0.0, 0.0, None) }),
        };
        let steps =
            Throughput::new(device).tokens_per_sample(tokens as f64).flops_per_sample(flops);
        let peak = args.peak_tflops.or_else(|| known_peak(device, settings.amp));
        let steps = peak.map_or(steps.clone(), |peak| steps.peak_flops(peak * 1e12));
        Ok(Speed { steps, epoch: (0.0, 0.0, None) })
    }

    /// Counts anew, from now on: what came before, such as a validation, is no part of it.
    pub fn start(&mut self, pause: std::time::Instant) {
        self.steps.skip(pause);
    }

    /// A step of so many samples of this rank is done.
    pub fn step(&mut self, samples: usize) {
        self.steps.step(samples);
    }

    /// Since the last report. Collective, after a step.
    pub fn report(&mut self, group: &ProcessGroup) -> Result<ThroughputReport> {
        let report = self.steps.report(group)?;
        let (samples, seconds, _) = self.epoch;
        let more = report.samples as f64;
        self.epoch = (samples + more, seconds + more / report.samples_per_s, Some(report));
        Ok(report)
    }

    /// Of the epoch, whose last steps are reported; `None` without any.
    pub fn epoch(&mut self) -> Option<ThroughputReport> {
        let (samples, seconds, last) = std::mem::replace(&mut self.epoch, (0.0, 0.0, None));
        let last = last?;
        let rate = samples / seconds;
        let scaled = |of: f64| of * rate / last.samples_per_s;
        Some(ThroughputReport {
            samples: samples as u64,
            samples_per_s: rate,
            tokens_per_s: last.tokens_per_s.map(scaled),
            flops: last.flops.map(scaled),
            mfu: last.mfu.map(scaled),
            ..last
        })
    }
}

/// As the lines of a run have it: `tokens_per_s=81920 mfu=41.2% memory=12.31GiB`.
pub fn words(report: &ThroughputReport) -> String {
    let mut words = Vec::new();
    words.extend(report.tokens_per_s.map(|tokens| format!("tokens_per_s={tokens:.0}")));
    words.extend(report.mfu.map(|mfu| format!("mfu={:.1}%", 100.0 * mfu)));
    words.push(format!("memory={:.2}GiB", report.memory as f64 / f64::from(1 << 30)));
    words.join(" ")
}

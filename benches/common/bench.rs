//! What the benchmarks of ops share: their options, how a row is timed and printed.

use std::io::stdin;
use std::time::{Duration, Instant};

use torchrs::{Tensor, get_num_threads, set_num_threads};

/// Which rows to time, on how many threads, for how long each.
pub struct Bench {
    filters: Vec<String>,
    /// Threads that an operation uses.
    pub threads: usize,
    /// Seconds that a row may take.
    pub budget: f64,
    /// Whether rows are taken when standard input says so.
    pub turns: bool,
}

impl Bench {
    /// Calls `rows` once for each number of threads that the command line asks for:
    /// `[FILTER ..] [--threads 1,2] [--budget SECONDS] [--turns]`.
    pub fn main(rows: impl Fn(&Bench)) {
        let mut bench = Bench { filters: Vec::new(), threads: 1, budget: 0.5, turns: false };
        let mut threads = vec![get_num_threads()];
        let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("the option has a value");
            match &argument[..] {
                "--threads" => {
                    let number = |n: &str| n.parse().expect("a number of threads");
                    threads = value().split(',').map(number).collect();
                }
                "--budget" => bench.budget = value().parse().expect("seconds"),
                "--turns" => bench.turns = true,
                _ => bench.filters.push(argument),
            }
        }
        for n in threads {
            set_num_threads(n);
            bench.threads = n;
            rows(&bench);
        }
    }

    /// Whether a row is to be timed: a filter is part of its name, or of the name that tables give it, without the way
    /// to the same result.
    pub fn wants(&self, name: &str) -> bool {
        let plain = name.replace("_nchw", "").replace("_fused", "");
        self.filters.is_empty()
            || self.filters.iter().any(|f| name.contains(f) || plain.contains(f))
    }

    /// Times `call` and prints a row, if its name contains one of the filters. `work` is what a call
    /// does in units of 1e9 (`GB/s`, `GFLOP/s`); for `us` the rate is the time itself.
    pub fn row<T>(&self, name: &str, unit: &str, work: f64, call: impl Fn() -> T) {
        if !self.wants(name) {
            return;
        }
        let once = |n: usize| {
            let start = Instant::now();
            (0..n).for_each(|_| drop(call()));
            start.elapsed().as_secs_f64() / n as f64
        };
        let mut per_sample = 0;
        self.in_turns(name, || {
            if per_sample == 0 {
                once(1);
                per_sample = ((2e-3 / once(1).max(1e-8)) as usize).max(1);
            }
            once(per_sample);
            let samples = self.samples(1.0, 5, || once(per_sample));
            self.emit(name, samples, unit, work, &[]);
        });
    }

    /// Samples for as many budgets as `budgets` says, but `least` of them; in turns two suffice.
    pub fn samples(&self, budgets: f64, least: usize, mut sample: impl FnMut() -> f64) -> Vec<f64> {
        let least = if self.turns { least.min(2) } else { least };
        let time = Duration::from_secs_f64(budgets * self.budget);
        let (start, mut samples) = (Instant::now(), Vec::new());
        while samples.len() < least || start.elapsed() < time {
            samples.push(sample());
        }
        samples
    }

    /// Calls `take`, which times a row and prints it; with `--turns` for each line `go` of standard input, which is
    /// asked for by a line that names the row. So two programs can take turns within a row.
    pub fn in_turns(&self, name: &str, mut take: impl FnMut()) {
        if !self.turns {
            return take();
        }
        loop {
            println!("{{\"turn\": \"{name}\"}}");
            let mut line = String::new();
            stdin().read_line(&mut line).expect("standard input can be read");
            if line.trim_end() != "go" {
                return;
            }
            take();
        }
    }

    /// Prints a row of the times `samples`, with `more` numbers at its end.
    pub fn emit(
        &self,
        name: &str,
        mut samples: Vec<f64>,
        unit: &str,
        work: f64,
        more: &[(&str, f64)],
    ) {
        samples.sort_by(f64::total_cmp);
        let (least, median) = (samples[0], samples[samples.len() / 2]);
        let rate = if unit == "us" { least * 1e6 } else { work / least };
        let threads = self.threads;
        let more: String =
            more.iter().map(|(key, value)| format!(", \"{key}\": {value}")).collect();
        println!(
            "{{\"name\": \"{name}\", \"threads\": {threads}, \"median_s\": {median:.4e}, \
             \"min_s\": {least:.4e}, \"unit\": \"{unit}\", \"rate\": {rate:.4}{more}}}"
        );
    }

    /// A row whose rate is that of `bytes` moved per call.
    #[allow(dead_code, reason = "not every benchmark moves bytes")]
    pub fn bytes<T>(&self, name: &str, bytes: usize, call: impl Fn() -> T) {
        self.row(name, "GB/s", bytes as f64 * 1e-9, call);
    }
}

/// The most memory that this process has had, in MiB.
#[allow(dead_code, reason = "not every benchmark looks at memory")]
pub fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line of it");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    (kib / 1024.0).round()
}

/// Numbers between -2 and 2.
#[allow(dead_code, reason = "some benchmarks draw theirs")]
pub fn numbers(shape: impl AsRef<[usize]>) -> Tensor {
    let n = shape.as_ref().iter().product::<usize>();
    let mut state = 1u32;
    let data: Vec<f32> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 4_194_304.0 - 2.0
        })
        .collect();
    Tensor::from_slice(&data, shape)
}

//! How busy this host's GPUs are, as `nvidia-smi` says. It runs now and then while somebody looks, in a thread of its own
//! that may wait for it: a driver that hangs, or a library that ends its process, does no harm to the launcher.

use std::collections::HashMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two questions.
const PACE: Duration = Duration::from_secs(3);
const PROGRAM: &str = "nvidia-smi";

/// A GPU, as the driver sees it, all processes together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    /// The share of its time in which a kernel ran; nothing where the driver does not say.
    pub busy: Option<f64>,
    /// Bytes.
    pub memory_used: u64,
    pub memory_total: u64,
}

/// The GPUs of this host.
#[derive(Debug, Default)]
pub struct Gpus {
    shared: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// By their places on the bus.
    gpus: HashMap<String, Gpu>,
    /// When it was asked last.
    asked: Option<Instant>,
    /// Whether an answer is on its way, or none will ever come.
    waits: bool,
}

fn locked(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpus {
    /// What is known of a GPU by its place on the bus. Asks anew where that is old.
    pub fn at(&self, bus: &str) -> Option<Gpu> {
        let mut known = locked(&self.shared);
        if !known.waits && known.asked.is_none_or(|at| at.elapsed() >= PACE) {
            (known.waits, known.asked) = (true, Some(Instant::now()));
            let shared = self.shared.clone();
            let asks = move || {
                let answer = ask();
                let mut known = locked(&shared);
                // Without the program there is no use in asking again.
                known.waits = answer.is_none();
                known.gpus = answer.map_or_else(HashMap::new, |text| parse(&text));
            };
            let thread = thread::Builder::new().name("status-gpus".into()).stack_size(256 << 10);
            // Without a thread it is not asked.
            let _ = thread.spawn(asks);
        }
        known.gpus.get(&place(bus)).copied()
    }
}

/// What it says; nothing where it cannot be started. Who reaps the workers reaps it, too.
fn ask() -> Option<String> {
    let mut child = Command::new(PROGRAM)
        .args(["--query-gpu=pci.bus_id,utilization.gpu,memory.used,memory.total"])
        .arg("--format=csv,noheader,nounits")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut text = String::new();
    let _ = child.stdout.take()?.take(1 << 20).read_to_string(&mut text);
    Some(text)
}

fn parse(text: &str) -> HashMap<String, Gpu> {
    let gpu = |line: &str| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let &[bus, busy, used, total] = fields.as_slice() else { return None };
        let mib = |text: &str| text.parse::<u64>().map_or(0, |mib| mib << 20);
        let busy = busy.parse::<f64>().ok().map(|percent| percent / 100.0);
        Some((place(bus), Gpu { busy, memory_used: mib(used), memory_total: mib(total) }))
    };
    text.lines().filter_map(gpu).collect()
}

/// A place on the bus in one spelling: domains have four digits in one library, and eight in another.
fn place(bus: &str) -> String {
    let bus = bus.to_ascii_lowercase();
    bus[bus.len().saturating_sub("0000:17:00.0".len())..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nvidia_smi_says_is_read() {
        let text =
            "00000000:17:00.0, 93, 1024, 143771\n00000000:CA:00.0, [N/A], 0, 143771\nNo devices\n";
        let gpus = parse(text);
        assert_eq!(gpus.len(), 2);
        let first = gpus[&place("0000:17:00.0")];
        assert_eq!(
            first,
            Gpu { busy: Some(0.93), memory_used: 1 << 30, memory_total: 143_771 << 20 }
        );
        assert_eq!(gpus[&place("0000:ca:00.0")].busy, None);
        assert_eq!(place(""), "");
    }
}

//! `--nproc`: how many workers, and what this machine has to answer `auto`, `cpu` and `gpu`.

use std::fs;
use std::str::FromStr;
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};
use torchrs_job::ranks::MAX_WORLD_SIZE;

/// The value of `--nproc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nproc {
    Count(usize),
    Auto,
    Cpu,
    Gpu,
}

impl FromStr for Nproc {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Nproc::Auto),
            "cpu" => Ok(Nproc::Cpu),
            "gpu" => Ok(Nproc::Gpu),
            _ => match text.parse::<i128>() {
                Ok(count) if count < 1 => Err("there must be at least 1 worker".into()),
                Ok(count) if count <= MAX_WORLD_SIZE as i128 => Ok(Nproc::Count(count as usize)),
                Ok(_) => Err(format!("a job has at most {MAX_WORLD_SIZE} workers")),
                Err(_) => Err("give a number of workers, or auto, cpu or gpu".into()),
            },
        }
    }
}

impl Nproc {
    /// The number of workers on this machine, or on one with so many simulated GPUs.
    ///
    /// # Errors
    /// `gpu` on a machine where no GPU can be used, with the reason.
    pub fn resolve(self, simulated: Option<u32>) -> Result<usize, String> {
        let gpus = || simulated.map_or_else(gpus, |count| Ok(count as usize));
        match self {
            Nproc::Count(count) => Ok(count),
            Nproc::Cpu => Ok(cores()),
            Nproc::Auto => Ok(gpus().unwrap_or_else(|_| cores())),
            Nproc::Gpu => gpus(),
        }
    }
}

/// Cores that this process may use: its affinity mask and its cgroup's quota count.
pub fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// GPUs that workers would see: at least one, or the reason why there is none. No library is
/// loaded for this: device files are counted, and CUDA's own filter is applied.
fn gpus() -> Result<usize, String> {
    let files = fs::read_dir("/dev").into_iter().flatten().flatten();
    let present = files.filter(|f| is_gpu(&f.file_name().to_string_lossy())).count();
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    match (present, visible) {
        (0, _) => Err("--nproc gpu: this machine has no GPU (no /dev/nvidia0 or alike); use \
                       --nproc cpu, or a number"
            .into()),
        (_, Some(list)) => match visible_devices(&list).min(present) {
            0 => Err(format!("--nproc gpu: CUDA_VISIBLE_DEVICES=\"{list}\" hides every GPU")),
            count => Ok(count),
        },
        (count, None) => Ok(count),
    }
}

/// `nvidia0`, `nvidia1`, ...: not `nvidiactl`, not `nvidia-uvm`.
fn is_gpu(file: &str) -> bool {
    file.strip_prefix("nvidia")
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// CUDA reads the list up to the first entry that names no device.
fn visible_devices(list: &str) -> usize {
    list.split(',').map(str::trim).take_while(|d| !d.is_empty() && !d.starts_with('-')).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_device_files_are_gpus() {
        assert!(is_gpu("nvidia0") && is_gpu("nvidia12"));
        assert!(!is_gpu("nvidia") && !is_gpu("nvidiactl") && !is_gpu("nvidia-uvm"));
    }

    #[test]
    fn a_visible_list_ends_at_its_first_gap() {
        assert_eq!(visible_devices("0, 2,GPU-8932f937"), 3);
        assert_eq!(visible_devices("0,-1,1"), 1);
        assert_eq!((visible_devices(""), visible_devices("-1")), (0, 0));
    }
}

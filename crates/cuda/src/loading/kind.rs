//! Which libraries of CUDA there are: their names, files and versions, and what to do to get one.

use std::fmt;

use super::places::CUDA_PATH;

/// A library of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The driver, which comes with the system's NVIDIA driver.
    Driver,
    /// The compiler of kernels.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Convolutions.
    Cudnn,
    /// Collectives between GPUs.
    Nccl,
}

impl Kind {
    /// All libraries, the driver first.
    pub const ALL: [Kind; 5] = [Kind::Driver, Kind::Nvrtc, Kind::CublasLt, Kind::Cudnn, Kind::Nccl];

    /// The name that people know it by.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Driver => "CUDA driver",
            Kind::Nvrtc => "NVRTC",
            Kind::CublasLt => "cuBLASLt",
            Kind::Cudnn => "cuDNN",
            Kind::Nccl => "NCCL",
        }
    }

    /// The file name without its version.
    pub(super) fn stem(self) -> &'static str {
        match self {
            Kind::Driver => "libcuda.so",
            Kind::Nvrtc => "libnvrtc.so",
            Kind::CublasLt => "libcublasLt.so",
            Kind::Cudnn => "libcudnn.so",
            Kind::Nccl => "libnccl.so",
        }
    }

    /// The versions that can be used, the newest first.
    pub(super) fn versions(self) -> &'static [u32] {
        match self {
            Kind::Driver => &[1],
            Kind::Nvrtc | Kind::CublasLt => &[13, 12],
            Kind::Cudnn => &[9],
            Kind::Nccl => &[2],
        }
    }

    /// Whether its version is the major version of CUDA, which has to fit the driver's.
    pub(super) fn follows_cuda(self) -> bool {
        matches!(self, Kind::Nvrtc | Kind::CublasLt)
    }

    /// Versions in the order in which they are looked for, given the driver's CUDA version: a
    /// driver runs what was made for its own major version or an older one.
    pub(super) fn preferred(self, driver: Option<u32>) -> Vec<u32> {
        let mut versions = self.versions().to_vec();
        if let Some(driver) = driver.filter(|_| self.follows_cuda()) {
            versions.sort_by_key(|&v| v > driver);
        }
        versions
    }

    /// What to do to get it.
    pub(super) fn advice(self, cuda: Option<u32>) -> String {
        let cuda = cuda.filter(|c| [12, 13].contains(c)).unwrap_or(13);
        let wheel = match (self, cuda) {
            (Kind::Driver, _) => {
                return "install the NVIDIA driver (its user-space part in a container: run it \
                        with `--gpus all`)"
                    .to_owned();
            }
            (Kind::Nvrtc, 12) => "nvidia-cuda-nvrtc-cu12".to_owned(),
            (Kind::Nvrtc, _) => "nvidia-cuda-nvrtc==13.*".to_owned(),
            (Kind::CublasLt, 12) => "nvidia-cublas-cu12".to_owned(),
            (Kind::CublasLt, _) => "nvidia-cublas==13.*".to_owned(),
            (Kind::Cudnn, _) => format!("nvidia-cudnn-cu{cuda}"),
            (Kind::Nccl, _) => format!("nvidia-nccl-cu{cuda}"),
        };
        format!("`pip install {wheel}`, or name its folder in {CUDA_PATH}")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

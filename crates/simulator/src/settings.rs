//! What the environment says, read once, when the driver is initialised.

use std::sync::OnceLock;

/// Everything that can be set.
#[derive(Debug)]
pub struct Settings {
    /// The devices that this process sees, in its order: as many as `TORCHRS_SIMULATE_GPUS` says, of
    /// which `CUDA_VISIBLE_DEVICES` may pick.
    pub visible: Vec<usize>,
    /// `TORCHRS_SIMULATED_MEMORY`: bytes of each device.
    pub memory: usize,
    /// `TORCHRS_SIMULATED_ADVERSARY`: delay and reorder what is independent, as this seed says.
    pub adversary: Option<u64>,
    /// `TORCHRS_SIMULATED_GUARD`: where blocks of memory lie beside forbidden pages.
    pub guard: Guard,
    /// `TORCHRS_SIMULATED_FAULT`: what shall fail, and when.
    pub faults: Vec<(Fault, u64)>,
    /// `GROUP_RANK`: the number of this host in its job, whose devices are others than those of another host.
    pub host: u32,
    /// Whether `LOCAL_WORLD_SIZE` and `WORLD_SIZE` differ: the job is on several hosts.
    pub spans_hosts: bool,
    /// `TORCHRS_SIMULATED_DRY`: kernels, calls of libraries and fills are counted and not performed.
    pub dry: bool,
    /// `TORCHRS_SIMULATED_QUIET`: no note on standard error that this is a simulation.
    pub quiet: bool,
}

/// Which end of a block of memory lies at a forbidden page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// The end, of a block whose size is rounded as CUDA's are.
    Rounded,
    /// The end, as near as a block that begins at a multiple of so many bytes allows.
    End(usize),
    /// The beginning.
    Start,
}

impl Guard {
    /// From the variable's text: `start`, or the alignment of blocks that end at the page.
    fn of(text: &str) -> Option<Guard> {
        match text.trim() {
            "start" => Some(Guard::Start),
            text => text
                .parse()
                .ok()
                .filter(|n| usize::is_power_of_two(*n) && *n <= 512)
                .map(Guard::End),
        }
    }
}

/// A fault on demand; each comes with the number of the call that it strikes, counted from one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// An allocation of device memory fails.
    OutOfMemory,
    /// A kernel makes an illegal access; its context is lost.
    IllegalAddress,
    /// A kernel never ends.
    Hang,
    /// A call of NCCL never ends.
    NcclHang,
    /// A call of NCCL becomes its communicator's asynchronous error.
    NcclError,
    /// This process never gets to join a communicator (the number is not used).
    NcclJoinHang,
    /// No device can reach another one's memory (the number is not used).
    NoPeer,
    /// NVRTC knows no architecture as new as the devices' (the number is not used).
    OldNvrtc,
    /// cuDNN was made for a later CUDA than the driver's (the number is not used).
    NewCudnn,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The settings of this process.
pub fn get() -> &'static Settings {
    SETTINGS.get_or_init(|| read(|name| std::env::var(name).ok()))
}

/// The adversary's seed, if there is an adversary.
pub fn adversary() -> Option<u64> {
    get().adversary
}

/// The settings as a function of the variables; what cannot be read is said on standard error.
fn read(variable: impl Fn(&str) -> Option<String>) -> Settings {
    let complain = |name: &str, text: &str| {
        eprintln!("simulated GPU: {name}={text} is not understood and has no effect");
    };
    let devices = variable("TORCHRS_SIMULATE_GPUS").map_or(0, |text| {
        text.trim().parse::<usize>().unwrap_or_else(|_| {
            complain("TORCHRS_SIMULATE_GPUS", &text);
            0
        })
    });
    let devices = devices.min(64);
    let memory = variable("TORCHRS_SIMULATED_MEMORY").and_then(|text| {
        bytes(&text).or_else(|| {
            complain("TORCHRS_SIMULATED_MEMORY", &text);
            None
        })
    });
    let adversary = variable("TORCHRS_SIMULATED_ADVERSARY").and_then(|text| {
        text.trim().parse().ok().or_else(|| {
            complain("TORCHRS_SIMULATED_ADVERSARY", &text);
            None
        })
    });
    let mut faults = Vec::new();
    for part in variable("TORCHRS_SIMULATED_FAULT").unwrap_or_default().split(',') {
        match fault(part.trim()) {
            Some(fault) => faults.push(fault),
            None if part.trim().is_empty() => {}
            None => complain("TORCHRS_SIMULATED_FAULT", part),
        }
    }
    let guard = variable("TORCHRS_SIMULATED_GUARD").and_then(|text| {
        Guard::of(&text).or_else(|| {
            complain("TORCHRS_SIMULATED_GUARD", &text);
            None
        })
    });
    let guard = guard.unwrap_or(Guard::Rounded);
    let visible = visible(variable("CUDA_VISIBLE_DEVICES").as_deref(), devices);
    let is_set = |name: &str| variable(name).is_some_and(|text| text != "0");
    let (quiet, dry) = (is_set("TORCHRS_SIMULATED_QUIET"), is_set("TORCHRS_SIMULATED_DRY"));
    let memory = memory.unwrap_or(1 << 30);
    let number = |name: &str| variable(name).and_then(|text| text.trim().parse::<u32>().ok());
    let sizes = number("LOCAL_WORLD_SIZE").zip(number("WORLD_SIZE"));
    let spans_hosts = sizes.is_some_and(|(own, all)| own != all);
    let host = number("GROUP_RANK").filter(|_| spans_hosts).unwrap_or(0);
    Settings { visible, memory, adversary, guard, faults, host, spans_hosts, dry, quiet }
}

/// A number of bytes with an optional suffix.
fn bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0), ("", 0)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    number.trim().parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// One fault, such as `oom@3`; without a number the first call is meant.
fn fault(text: &str) -> Option<(Fault, u64)> {
    let (name, number) = match text.split_once('@') {
        Some((name, number)) => (name, number.parse().ok()?),
        None => (text, 1),
    };
    let fault = match name {
        "oom" => Fault::OutOfMemory,
        "illegal-address" => Fault::IllegalAddress,
        "hang" => Fault::Hang,
        "nccl-hang" => Fault::NcclHang,
        "nccl-error" => Fault::NcclError,
        "nccl-join-hang" => Fault::NcclJoinHang,
        "no-peer" => Fault::NoPeer,
        "old-nvrtc" => Fault::OldNvrtc,
        "new-cudnn" => Fault::NewCudnn,
        _ => return None,
    };
    Some((fault, number))
}

/// The devices that a list such as `0,2` names; as in CUDA the list ends at the first bad entry.
fn visible(list: Option<&str>, devices: usize) -> Vec<usize> {
    let Some(list) = list else { return (0..devices).collect() };
    list.split(',').map_while(|one| one.trim().parse().ok().filter(|one| *one < devices)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read() {
        let settings = read(|name| {
            Some(match name {
                "TORCHRS_SIMULATE_GPUS" => "8".into(),
                "TORCHRS_SIMULATED_MEMORY" => "256MiB".into(),
                "TORCHRS_SIMULATED_ADVERSARY" => "7".into(),
                "TORCHRS_SIMULATED_GUARD" => "16".into(),
                "TORCHRS_SIMULATED_FAULT" => "oom@3, hang@2".into(),
                "CUDA_VISIBLE_DEVICES" => "3,1,99,0".into(),
                "TORCHRS_SIMULATED_DRY" => "1".into(),
                "GROUP_RANK" => "2".into(),
                "LOCAL_WORLD_SIZE" => "4".into(),
                "WORLD_SIZE" => "12".into(),
                _ => return None,
            })
        });
        assert_eq!(settings.memory, 256 << 20);
        assert_eq!(settings.visible, [3, 1]);
        assert_eq!(settings.adversary, Some(7));
        assert_eq!((settings.host, settings.spans_hosts), (2, true));
        assert!(!read(|_| Some("4".into())).spans_hosts);
        assert_eq!(settings.guard, Guard::End(16));
        assert_eq!([Guard::of("start"), Guard::of("3")], [Some(Guard::Start), None]);
        assert_eq!(settings.faults, [(Fault::OutOfMemory, 3), (Fault::Hang, 2)]);
        assert!(settings.dry && !settings.quiet);
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes(" 2 GiB"), Some(2 << 30));
        assert_eq!(bytes("much"), None);
    }
}

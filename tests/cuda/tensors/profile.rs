//! What a profile and an error say of a GPU's memory and time.

use torchrs::profiler::{self, ProfilerOptions};
use torchrs::{Device, Dtype::F32, Tensor, catch};

simulated! {
    fn an_error_lists_the_largest_tensors_and_their_lines() ["TORCHRS_SIMULATED_MEMORY" = "64MiB"] {
        let gpu = Device::Cuda(0);
        let (line, kept) = (line!(), Tensor::zeros([10, 1 << 20], (F32, gpu)));
        let error = catch(|| Tensor::zeros([8 << 20], (F32, gpu))).unwrap_err().to_string();
        assert!(error.contains("cuda:0 has no room for 32.00 MiB"), "{error}");
        let of = format!("40.00 MiB f32 [10, 1048576], made at tests/cuda/tensors/profile.rs:{line}:");
        assert!(error.contains(&of), "{error}");
        drop(kept);
        let error = catch(|| Tensor::zeros([32 << 20], (F32, gpu))).unwrap_err().to_string();
        assert!(error.contains("no tensor of 1.00 MiB or more is alive"), "{error}");
    }

    fn a_profile_has_the_gpus_memory_and_times() {
        let gpu = Device::Cuda(0);
        let x = Tensor::ones([512, 512], (F32, gpu)).requires_grad_(true);
        let options = ProfilerOptions { profile_memory: true, cuda: true, ..Default::default() };
        let ((), profile) = profiler::profile_with(options, || x.matmul(&x).exp().sum().backward());
        assert_eq!(profile.memory_devices(), [Device::Cpu, gpu]);
        let peak = profile.memory_timeline(gpu)?.peak;
        let of = |op: &str| peak.by_op.iter().find(|(name, _)| name == op).map(|(_, n)| *n);
        // Of its result and its gradient.
        assert!(of("made before") >= Some(1 << 20) && of("exp") >= Some(1 << 20), "{peak:?}");
        assert!(peak.by_line.iter().all(|(line, _)| !line.starts_with("src/")), "{peak:?}");
        let matmul = profile.events().iter().find(|e| e.name == "matmul" || e.name == "mm").unwrap();
        assert!(matmul.device_ns.is_some() && matmul.self_device_ns <= matmul.device_ns);
        let table = profile.key_averages().to_string();
        assert!(table.contains("CUDA total") && table.contains("Self CUDA time total: "), "{table}");
        assert!(profile.bottleneck().to_string().contains("The GPU's stream was inside ops"));
    }
}

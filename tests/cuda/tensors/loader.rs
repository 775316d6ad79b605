//! Batches of loader workers on a GPU.

use torchrs::data::{DataLoader, Dataset};
use torchrs::{Result, Tensor, cuda};

use crate::support::{last_gpu, simulated, waits};

/// Sample i is 512 times i, and i.
#[derive(serde::Serialize, serde::Deserialize)]
struct Numbers(usize);

impl Dataset for Numbers {
    type Sample = (Tensor, i64);
    fn len(&self) -> usize {
        self.0
    }
    fn get(&self, index: usize) -> Result<Self::Sample> {
        Ok((Tensor::full([512], index as f64, torchrs::Dtype::F32), index as i64))
    }
}

/// What batches hold, computed on the device and read at the end only: copies may be late.
fn check(workers: usize) -> Result<()> {
    let gpu = last_gpu();
    let loader =
        DataLoader::builder(Numbers(60)).batch_size(4).workers(workers).device(gpu).build()?;
    for _ in 0..2 {
        let mut kept = Vec::new();
        let mut waited = None;
        for batch in loader.iter() {
            let (x, labels) = batch?;
            assert_eq!((x.device(), labels.device(), x.shape()), (gpu, gpu, &[4, 512][..]));
            kept.push((&x * 2.0, labels));
            if kept.len() == 3 {
                waited = Some(waits());
            }
        }
        assert_eq!(waited, Some(waits()), "copies from slots do not wait");
        // Each of the few arenas once, not each of thirty slots.
        let pinned = cuda::pinned::registrations();
        assert!((1..=8).contains(&pinned), "{pinned} times");
        let twice: Vec<f32> = kept.iter().flat_map(|(x, _)| x.to_vec::<f32>()).collect();
        let labels: Vec<i64> = kept.iter().flat_map(|(_, y)| y.to_vec::<i64>()).collect();
        assert_eq!(labels, (0..60).collect::<Vec<i64>>());
        assert!(
            twice.chunks(512).enumerate().all(|(i, row)| row.iter().all(|v| *v == 2.0 * i as f32))
        );
    }
    // A position in mid-epoch does not count the batch that is ahead.
    let mut batches = loader.iter();
    for _ in 0..3 {
        batches.next().unwrap()?;
    }
    let state = loader.state_dict();
    assert_eq!(state.position, 12);
    drop(batches);
    loader.load_state_dict(&state)?;
    let next = loader.iter().next().unwrap()?.1;
    assert_eq!(next.to_vec::<i64>(), [12, 13, 14, 15]);
    Ok(())
}

/// As [`Numbers`], with more bytes than the smallest GPU memory has.
#[derive(serde::Serialize, serde::Deserialize)]
struct Large;

impl Dataset for Large {
    type Sample = Tensor;
    fn len(&self) -> usize {
        4
    }
    fn get(&self, _: usize) -> Result<Tensor> {
        Ok(Tensor::ones([300_000], torchrs::Dtype::F64))
    }
}

simulated! {
    /// When a batch is handed out, the next one's copy is under way if workers have finished it.
    fn the_next_batch_is_copied_ahead() {
        let loader =
            DataLoader::builder(Numbers(60)).batch_size(4).workers(2).device(last_gpu()).build()?;
        let mut batches = loader.iter();
        let copies = || simulated("torchrs_simulated_copies");
        cuda::device::synchronize(0)?;
        let Some(before) = copies() else {
            println!("skipped: only the simulated GPU counts copies");
            return Ok(());
        };
        // Workers are given time for the batch after the one that is handed out.
        let ahead = (1..12).any(|handed_out| {
            batches.next().unwrap().unwrap();
            let copied = copies().unwrap() - before;
            std::thread::sleep(std::time::Duration::from_millis(100));
            copied == 2 * (handed_out + 1)
        });
        assert!(ahead, "two copies of a batch that was not handed out yet");
    }

    fn a_batch_without_room_on_the_gpu_is_an_error() ["TORCHRS_SIMULATED_MEMORY" = "2MiB"] {
        for workers in [0, 1] {
            let loader =
                DataLoader::builder(Large).batch_size(2).workers(workers).device(last_gpu()).build()?;
            let error = loader.iter().next().unwrap().unwrap_err();
            assert!(matches!(error, torchrs::Error::OutOfMemory(_)), "{error}");
        }
    }

    fn batches_arrive_on_the_gpu() { check(2)?; }
    fn batches_made_here_arrive_on_the_gpu() { check(0)?; }
    fn slots_are_not_used_again_before_they_are_copied() ["TORCHRS_SIMULATED_ADVERSARY" = "7"] { check(2)?; }
}

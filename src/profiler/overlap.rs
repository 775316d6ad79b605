//! How much of data-parallel communication is hidden behind backward.

use super::profile::{Category, Event, Profile};
use super::{BACKWARD, BUCKET, END_OF_BACKWARD, WAIT};

/// A backward pass of a `DistributedDataParallel` model, and its buckets' all-reduces.
///
/// An all-reduce by CPU is itself work for a core: hidden communication costs no waiting, but where each
/// rank has one core it slows backward down.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Dtype, Tensor, nn::{self, Forward}, distributed::DistributedDataParallel, profiler};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let model = DistributedDataParallel::new(nn::Linear::new(8, 8), &group)?;
/// let x = Tensor::randn([4, 8], Dtype::F32);
/// let ((), profile) = profiler::profile(|| model.forward(&x).sum().backward());
/// let [pass] = profile.communication_overlap().try_into().unwrap();
/// assert_eq!(pass.buckets, 1);
/// assert!(pass.hidden_ns <= pass.communication_ns);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overlap {
    /// From backward's start until all gradients are made.
    pub backward_ns: u64,
    /// In the all-reduces of buckets, which run one after the other.
    pub communication_ns: u64,
    /// What of that are waits for other ranks, whose backward is not as far.
    pub waiting_ns: u64,
    /// What of it, waits included, lies before all gradients are made.
    pub hidden_ns: u64,
    /// What backward takes from then on: the wait for the last all-reduces, and rank 0's buffers.
    pub exposed_ns: u64,
    /// The all-reduces.
    pub buckets: usize,
    /// Those that began before all gradients were made.
    pub early_buckets: usize,
}

impl Profile {
    /// One for each backward pass that ended in all-reduces, in order of time.
    ///
    /// ```
    /// use torchrs::{Tensor, profiler};
    /// let x = Tensor::from([1f32]).requires_grad_(true);
    /// let ((), profile) = profiler::profile(|| x.exp().backward());
    /// assert!(profile.communication_overlap().is_empty()); // one process
    /// ```
    pub fn communication_overlap(&self) -> Vec<Overlap> {
        let named = |name: &'static str, category| {
            self.events().iter().filter(move |e| e.name == name && e.category == category)
        };
        let mut passes = Vec::new();
        for end in named(END_OF_BACKWARD, Category::Communication) {
            let is_around = |e: &&Event| {
                e.thread == end.thread && e.start_ns <= end.start_ns && end.end_ns() <= e.end_ns()
            };
            let Some(pass) = named(BACKWARD, Category::Backward).find(is_around) else { continue };
            let mut overlap = Overlap {
                backward_ns: end.start_ns - pass.start_ns,
                exposed_ns: pass.end_ns() - end.start_ns,
                ..Overlap::default()
            };
            let during = pass.start_ns..pass.end_ns();
            for bucket in named(BUCKET, Category::Communication) {
                if !during.contains(&bucket.start_ns) {
                    continue;
                }
                let hidden = bucket.end_ns().min(end.start_ns).saturating_sub(bucket.start_ns);
                let inside = |e: &&Event| {
                    e.thread == bucket.thread
                        && bucket.start_ns <= e.start_ns
                        && e.end_ns() <= bucket.end_ns()
                };
                let waits = named(WAIT, Category::Communication).filter(inside);
                overlap.waiting_ns += waits.map(|e| e.duration_ns).sum::<u64>();
                overlap.communication_ns += bucket.duration_ns;
                overlap.hidden_ns += hidden;
                overlap.buckets += 1;
                overlap.early_buckets += usize::from(bucket.start_ns < end.start_ns);
            }
            passes.push((pass.start_ns, overlap));
        }
        passes.sort_by_key(|(start, _)| *start);
        passes.into_iter().map(|(_, overlap)| overlap).collect()
    }
}

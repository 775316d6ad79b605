//! Random numbers in graphs. What is recorded once would draw the same numbers at every replay; so recorded
//! kernels read the generator's place from the GPU's memory, and a replay writes it there and moves the
//! generator on.

use std::cell::Cell;

use super::cuda;
use super::generator::{DEFAULT, Draw, GENERATOR_STREAMS, GeneratorState};
use super::words::Words;
use crate::cuda::graph;
use crate::error::{Error, throw};
use crate::ops::gpu::Gpu;
use crate::tensor::{Dtype, Tensor};

/// The recording that this thread makes.
#[derive(Clone, Copy)]
struct Recording {
    start: GeneratorState,
    /// Where the seed and the place will be: two numbers of 64 bits.
    place: *const u64,
}

thread_local! {
    static RECORDING: Cell<Option<Recording>> = const { Cell::new(None) };
}

/// The default generator's draws that are part of a graph.
#[derive(Debug)]
pub(crate) struct RecordedDraws {
    gpu: Gpu,
    /// The seed and the place, for the replay that is put on a stream next.
    place: Tensor,
    count: u64,
}

impl RecordedDraws {
    /// None yet; not to be called during a capture, whose memory it would take.
    #[track_caller]
    pub(crate) fn new(device: usize) -> Self {
        let gpu = Gpu { index: device };
        let place = Tensor::empty([2], (Dtype::I64, gpu.device()));
        // The kernel is compiled now.
        cuda::set_place(gpu, &place, GeneratorState { seed: 0, offset: 0 });
        RecordedDraws { gpu, place, count: 0 }
    }

    /// Runs `work` during a capture; afterwards the generator is where it was.
    pub(crate) fn record<T>(&mut self, work: impl FnOnce() -> T) -> T {
        /// Also where `work` panics.
        struct Restore(Option<Recording>, GeneratorState);
        impl Drop for Restore {
            fn drop(&mut self) {
                RECORDING.set(self.0);
                DEFAULT.set_state(self.1);
            }
        }
        let start = DEFAULT.get_state();
        let place = self.place.device_ptr().cast::<u64>().cast_const();
        let _restore = Restore(RECORDING.replace(Some(Recording { start, place })), start);
        let result = work();
        let end = DEFAULT.get_state();
        if end.seed != start.seed || end.offset < start.offset {
            throw(Error::argument("manual_seed", "seed", "a graph cannot set the seed"));
        }
        self.count = end.offset - start.offset;
        result
    }

    /// Before a replay, on the same stream: lets it draw the generator's next numbers.
    #[track_caller]
    pub(crate) fn advance(&self) {
        if self.count == 0 {
            return;
        }
        let now = DEFAULT.get_state();
        cuda::set_place(self.gpu, &self.place, now);
        DEFAULT.set_state(GeneratorState { offset: now.offset + self.count, ..now });
    }
}

impl Words {
    /// Of the default generator's next draw.
    #[track_caller]
    pub(in crate::ops) fn of_default(gpu: Gpu) -> Words {
        resolve(gpu, DEFAULT.draw_on(gpu.device()))
    }
}

/// A draw's words for a kernel that is started now.
#[track_caller]
pub(super) fn resolve(gpu: Gpu, draw: Draw) -> Words {
    let Draw { seed, stream, of_default } = draw;
    match graph::is_current_stream_capturing(gpu.index) {
        Ok(false) => return Words { seed, stream, place: 0 },
        Ok(true) => {}
        Err(error) => throw(error),
    }
    let recording = RECORDING.get().filter(|recording| of_default && recording.start.seed == seed);
    let Some(Recording { start, place }) = recording else {
        throw(Error::Device(
            "random numbers can be captured in a graph only from the default generator, by \
             `cuda_graphs::CudaGraph`, without a new seed: others would be the same at every replay"
                .into(),
        ))
    };
    let offset = (stream & !GENERATOR_STREAMS).wrapping_sub(start.offset);
    Words { seed: 0, stream: offset | GENERATOR_STREAMS, place: place as usize }
}

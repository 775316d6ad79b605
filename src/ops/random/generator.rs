//! Generators: a seed and a count of draws, the process's own and those of a thread.

use crate::cpu::numbers::philox::PhiloxStream;
use crate::storage::Device;
use crate::tensor::initial;
use parking_lot::Mutex;
use std::cell::Cell;
use std::hash::BuildHasher;
use std::hash::RandomState;

/// Streams of generators have this bit set; those below belong to samplers of datasets, which count
/// epochs, so that a program may use one seed for both.
pub(super) const GENERATOR_STREAMS: u64 = 1 << 63;

/// Where a generator stands: what a checkpoint keeps of it.
///
/// ```
/// use torchrs::{Dtype, Generator};
/// use torchrs::ops::random::GeneratorState;
/// let generator = Generator::new(7);
/// generator.rand([2], Dtype::F32);
/// assert_eq!(generator.get_state(), GeneratorState { seed: 7, offset: 1 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GeneratorState {
    /// The seed.
    pub seed: u64,
    /// Draws made since it was set.
    pub offset: u64,
}

/// A source of random numbers (`torch.Generator`): Philox 4x32-10.
///
/// ```
/// use torchrs::{Dtype::F32, Generator};
/// let g = Generator::new(7);
/// let first = g.randn([3], F32);
/// let state = g.get_state();
/// let second = g.randn([3], F32);
/// g.set_state(state);
/// assert_eq!(g.randn([3], F32).to_vec::<f32>(), second.to_vec::<f32>());
/// assert_ne!(first.to_vec::<f32>(), second.to_vec::<f32>());
/// ```
#[derive(Debug)]
pub struct Generator(Mutex<Option<GeneratorState>>);

/// `None` until first used: then its seed is unpredictable.
pub(super) static DEFAULT: Generator = Generator(Mutex::new(None));

/// The seed that was last set by hand for the default generator.
pub(super) static SEEDED: Mutex<Option<u64>> = Mutex::new(None);

/// The default generator of a thread that is in a [`fork_rng`], and the seed that was set by hand.
#[derive(Clone, Copy)]
pub(super) struct Fork {
    pub(super) state: GeneratorState,
    pub(super) seeded: Option<u64>,
}

thread_local! {
    static FORK: Cell<Option<Fork>> = const { Cell::new(None) };
}

/// The last argument of [`manual_seed`] on this thread's default generator; `None` without a call.
pub(crate) fn seed_by_hand() -> Option<u64> {
    FORK.get().map_or_else(|| *SEEDED.lock(), |fork| fork.seeded)
}

/// The process's default generator (`torch.default_generator`).
///
/// ```
/// use torchrs::{Dtype, Tensor, default_generator, manual_seed};
/// manual_seed(7);
/// let state = default_generator().get_state();
/// let x = Tensor::rand([2], Dtype::F32);
/// default_generator().set_state(state);
/// assert!(Tensor::rand([2], Dtype::F32).equal(&x));
/// ```
pub fn default_generator() -> &'static Generator {
    &DEFAULT
}

/// Sets the seed of the default generator (`torch.manual_seed`), and of each
/// [`DataLoader`](crate::data::DataLoader) made later that is given none.
///
/// ```
/// use torchrs::{Dtype, Tensor};
/// torchrs::manual_seed(7);
/// let x = Tensor::rand([2], Dtype::F32);
/// torchrs::manual_seed(7);
/// assert!(Tensor::rand([2], Dtype::F32).equal(&x));
/// ```
pub fn manual_seed(seed: u64) {
    DEFAULT.manual_seed(seed);
}

/// Runs `f` with a default generator of this thread's own, which starts where the default generator
/// stands: what `f` draws and seeds changes nothing outside, and other threads do not disturb it
/// (`torch.random.fork_rng`, there for the whole process). For numbers that must come out the same
/// while other threads draw too, as in tests.
///
/// ```
/// use torchrs::{Dtype, Tensor, default_generator, fork_rng, manual_seed};
/// let before = default_generator().get_state();
/// let draw = || {
///     manual_seed(7);
///     Tensor::rand([2], Dtype::F32)
/// };
/// assert!(fork_rng(draw).equal(&fork_rng(draw)));
/// assert_eq!(default_generator().get_state(), before);
/// ```
pub fn fork_rng<R>(f: impl FnOnce() -> R) -> R {
    fork_rng_at(DEFAULT.get_state(), f)
}

/// [`fork_rng`] whose generator starts at `state`.
pub(crate) fn fork_rng_at<R>(state: GeneratorState, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Fork>);
    impl Drop for Restore {
        fn drop(&mut self) {
            FORK.set(self.0);
        }
    }
    let seeded = seed_by_hand();
    let _restore = Restore(FORK.replace(Some(Fork { state, seeded })));
    f()
}

/// A key and a stream: the numbers of one draw.
#[derive(Clone, Copy)]
pub(super) struct Draw {
    pub(super) seed: u64,
    pub(super) stream: u64,
    /// Whether it is one of the default generator's.
    pub(super) of_default: bool,
}

impl Draw {
    /// The same words one by one, for draws that need an unforeseeable number of them.
    pub(super) fn words(self) -> PhiloxStream {
        PhiloxStream::new(self.seed, self.stream)
    }
}

impl Generator {
    /// A generator at the beginning of `seed`.
    ///
    /// ```
    /// use torchrs::{Dtype, Generator};
    /// let (a, b, c) = (Generator::new(7), Generator::new(7), Generator::new(8));
    /// let x = a.randint(0, 1_000_000, [4], Dtype::I64);
    /// assert!(x.equal(&b.randint(0, 1_000_000, [4], Dtype::I64)));
    /// assert!(!x.equal(&c.randint(0, 1_000_000, [4], Dtype::I64)));
    /// ```
    pub fn new(seed: u64) -> Self {
        Generator(Mutex::new(Some(GeneratorState { seed, offset: 0 })))
    }

    /// Goes to the beginning of `seed` (`torch.Generator.manual_seed`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator};
    /// let generator = Generator::new(7);
    /// let x = generator.rand([2], Dtype::F32);
    /// generator.manual_seed(7);
    /// assert!(generator.rand([2], Dtype::F32).equal(&x));
    /// ```
    pub fn manual_seed(&self, seed: u64) {
        self.set_state(GeneratorState { seed, offset: 0 });
        if std::ptr::eq(self, &DEFAULT) {
            match FORK.get() {
                Some(fork) => FORK.set(Some(Fork { seeded: Some(seed), ..fork })),
                None => *SEEDED.lock() = Some(seed),
            }
        }
    }

    /// The seed that was set last (`torch.Generator.initial_seed`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator};
    /// let generator = Generator::new(7);
    /// generator.rand([2], Dtype::F32);
    /// assert_eq!(generator.initial_seed(), 7);
    /// ```
    pub fn initial_seed(&self) -> u64 {
        self.get_state().seed
    }

    /// Where the generator stands.
    ///
    /// ```
    /// use torchrs::{Dtype, Generator};
    /// let generator = Generator::new(7);
    /// generator.rand([2], Dtype::F32);
    /// let state = generator.get_state();
    /// assert_eq!((state.seed, state.offset), (7, 1));
    /// ```
    pub fn get_state(&self) -> GeneratorState {
        self.with_state(|state| *state.get_or_insert_with(unpredictable))
    }

    /// Goes where `state` was taken.
    ///
    /// ```
    /// use torchrs::{Dtype, Generator};
    /// let generator = Generator::new(7);
    /// let state = generator.get_state();
    /// let x = generator.rand([2], Dtype::F32);
    /// generator.set_state(state);
    /// assert!(generator.rand([2], Dtype::F32).equal(&x));
    /// ```
    pub fn set_state(&self, state: GeneratorState) {
        self.with_state(|now| *now = Some(state));
    }

    /// The next draw's stream.
    pub(super) fn draw(&self) -> Draw {
        if std::ptr::eq(self, &DEFAULT) && initial::counts() {
            return counted();
        }
        self.with_state(|state| {
            let state = state.get_or_insert_with(unpredictable);
            let of_default = std::ptr::eq(self, &DEFAULT);
            let stream = state.offset | GENERATOR_STREAMS;
            let draw = Draw { seed: state.seed, stream, of_default };
            state.offset += 1;
            draw
        })
    }

    /// `f` of the state: of this thread's copy where this is the default generator in a [`fork_rng`].
    /// [`draw`](Self::draw) for a tensor on a device: on the meta device the default generator stays where it is.
    pub(super) fn draw_on(&self, device: Device) -> Draw {
        if std::ptr::eq(self, &DEFAULT) && device.is_meta() { counted() } else { self.draw() }
    }

    /// A generator in a state.
    pub(super) fn in_state(state: GeneratorState) -> Generator {
        Generator(Mutex::new(Some(state)))
    }

    pub(super) fn with_state<R>(&self, f: impl FnOnce(&mut Option<GeneratorState>) -> R) -> R {
        if std::ptr::eq(self, &DEFAULT)
            && let Some(fork) = FORK.get()
        {
            let mut state = Some(fork.state);
            let result = f(&mut state);
            FORK.set(state.map(|state| Fork { state, ..fork }));
            return result;
        }
        f(&mut self.0.lock())
    }
}

/// A draw of the default generator that is counted, and leaves it as it is: with the words that a tensor which is built
/// directly would have here.
fn counted() -> Draw {
    let GeneratorState { seed, offset } = DEFAULT.get_state();
    let stream = offset.wrapping_add(initial::draw()) | GENERATOR_STREAMS;
    Draw { seed, stream, of_default: true }
}

/// A seed from the system's randomness, by way of the standard library's hash keys.
pub(super) fn unpredictable() -> GeneratorState {
    GeneratorState { seed: RandomState::new().hash_one(std::process::id()), offset: 0 }
}

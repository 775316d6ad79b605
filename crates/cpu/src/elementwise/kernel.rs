//! A pointwise formula compiled for every compute type and instruction set. A [`Kernel`] is a static
//! table of function pointers, each a loop over dense tiles; the driver in `tile.rs` is compiled
//! once and runs them all.

use crate::arch::isa::{BASELINE_FMA, COUNT, Isa};
use crate::numbers::lane::{F32, F64, I64, Near};
use torchrs_loops::{Compute, Text};

/// One formula: `OUT` results from `IN` values and `PARAMS` numbers that are the same for all
/// elements. Must be `#[inline(always)]`, so that it becomes part of the vector loop.
pub trait Formula<S, const IN: usize, const PARAMS: usize, const OUT: usize> {
    /// Whether a function in it is quicker where its arguments are moderate (`lane::Near`).
    const REDUCES: bool = false;
    /// Whether operands in memory take longer to come than results to be computed.
    const LIGHT: bool = false;

    /// The results for one element.
    fn eval(inputs: [S; IN], params: [S; PARAMS]) -> [S; OUT];
}

/// Runs a formula over `n` elements. `pointers` are the outputs' dense tiles, then the inputs';
/// `params` the parameters in the compute type. For a result of two or three inputs without parameters they may be
/// null, if the kernel does not work in place: then each input after the first is one value for all elements.
///
/// # Safety
/// *Tile invariant*: there are so many pointers and parameters as the formula has. Every tile has `n` values; outputs
/// overlap nothing, or are the same as an input: then the loop is vector code only if the kernel works in place. The
/// processor has the level's instructions.
pub type TileFn = unsafe fn(pointers: *const *mut u8, params: *const u8, n: usize);

/// The loops of one formula: by compute type (where the formula has one), then by instruction set.
/// Of AVX-512 there are loops for f32 only: the others' would be a tenth of the build's time.
pub struct Kernel {
    tiles: [Option<[TileFn; COUNT]>; 3],
    /// An output's tile may be that of an input.
    in_place: bool,
    /// See [`Kernel::is_light`].
    light: bool,
    text: Option<Text>,
}

impl Kernel {
    /// For f32 and f64.
    pub const fn float<K, const IN: usize, const PARAMS: usize, const OUT: usize>() -> Self
    where
        K: Formula<F32<true>, IN, PARAMS, OUT>
            + Formula<F32<false>, IN, PARAMS, OUT>
            + Formula<Near, IN, PARAMS, OUT>
            + Formula<F64<true>, IN, PARAMS, OUT>
            + Formula<F64<false>, IN, PARAMS, OUT>,
    {
        Kernel {
            tiles: [
                Some(of_f32::<K, IN, PARAMS, OUT>()),
                Some(narrow::<K, F64<BASELINE_FMA>, F64<true>, IN, PARAMS, OUT>()),
                None,
            ],
            in_place: false,
            light: <K as Formula<F32<true>, IN, PARAMS, OUT>>::LIGHT,
            text: None,
        }
    }

    /// For f32 and f64, where outputs are mostly inputs: an update.
    pub const fn update<K, const IN: usize, const PARAMS: usize, const OUT: usize>() -> Self
    where
        K: Formula<F32<true>, IN, PARAMS, OUT>
            + Formula<F32<BASELINE_FMA>, IN, PARAMS, OUT>
            + Formula<F64<true>, IN, PARAMS, OUT>
            + Formula<F64<BASELINE_FMA>, IN, PARAMS, OUT>,
    {
        Kernel {
            tiles: [
                Some([
                    baseline_update::<K, F32<BASELINE_FMA>, IN, PARAMS, OUT>,
                    avx2_update::<K, F32<true>, IN, PARAMS, OUT>,
                    avx512_update::<K, F32<true>, IN, PARAMS, OUT>,
                ]),
                Some([
                    baseline_update::<K, F64<BASELINE_FMA>, IN, PARAMS, OUT>,
                    avx2_update::<K, F64<true>, IN, PARAMS, OUT>,
                    avx2_update::<K, F64<true>, IN, PARAMS, OUT>,
                ]),
                None,
            ],
            in_place: true,
            light: <K as Formula<F32<true>, IN, PARAMS, OUT>>::LIGHT,
            text: None,
        }
    }

    /// For f32, f64 and i64.
    pub const fn number<K, const IN: usize, const PARAMS: usize, const OUT: usize>() -> Self
    where
        K: Formula<F32<true>, IN, PARAMS, OUT>
            + Formula<F32<false>, IN, PARAMS, OUT>
            + Formula<Near, IN, PARAMS, OUT>
            + Formula<F64<true>, IN, PARAMS, OUT>
            + Formula<F64<false>, IN, PARAMS, OUT>
            + Formula<I64, IN, PARAMS, OUT>,
    {
        let mut kernel = Self::float::<K, IN, PARAMS, OUT>();
        kernel.tiles[Compute::I64 as usize] = Some(narrow::<K, I64, I64, IN, PARAMS, OUT>());
        kernel
    }

    /// For i64 only.
    pub const fn bits<K, const IN: usize, const PARAMS: usize, const OUT: usize>() -> Self
    where
        K: Formula<I64, IN, PARAMS, OUT>,
    {
        let tiles = [None, None, Some(narrow::<K, I64, I64, IN, PARAMS, OUT>())];
        Kernel { tiles, in_place: false, light: K::LIGHT, text: None }
    }

    /// With the formula as written.
    pub const fn written_as(mut self, text: Text) -> Self {
        self.text = Some(text);
        self
    }

    /// The formula as written, where the kernel has it.
    #[inline]
    pub fn text(&self) -> Option<&Text> {
        self.text.as_ref()
    }

    /// Whether an output's tile may be that of an input.
    #[inline]
    pub fn works_in_place(&self) -> bool {
        self.in_place
    }

    /// Whether operands in memory take longer to come than results to be computed.
    #[inline]
    pub fn is_light(&self) -> bool {
        self.light
    }

    /// Whether each of `inputs` after the first may be one value for all elements, see [`TileFn`].
    #[inline]
    pub fn takes_numbers(&self, [outputs, inputs, params]: [usize; 3]) -> bool {
        !self.in_place && take_numbers(outputs, inputs, params)
    }

    /// True when the formula is compiled for the type.
    pub fn has(&self, compute: Compute) -> bool {
        self.tiles[compute as usize].is_some()
    }

    /// The loop for a compute type at an instruction set. To call it, the processor must have that.
    ///
    /// # Panics
    /// If the formula is not compiled for the type; ops convert or refuse such operands beforehand.
    #[inline]
    pub fn tile(&self, compute: Compute, isa: Isa) -> TileFn {
        let loops = self.tiles[compute as usize].as_ref();
        loops.expect("an op runs in the types that its kind names")[isa as usize]
    }
}

/// See [`Kernel::takes_numbers`].
const fn take_numbers(outputs: usize, inputs: usize, params: usize) -> bool {
    outputs == 1 && (inputs == 2 || inputs == 3) && params == 0
}

/// The loops of f32.
const fn of_f32<K, const IN: usize, const PARAMS: usize, const OUT: usize>() -> [TileFn; COUNT]
where
    K: Formula<F32<BASELINE_FMA>, IN, PARAMS, OUT>
        + Formula<F32<true>, IN, PARAMS, OUT>
        + Formula<Near, IN, PARAMS, OUT>,
{
    if <K as Formula<Near, IN, PARAMS, OUT>>::REDUCES {
        return [
            match BASELINE_FMA {
                true => baseline_near::<K, IN, PARAMS, OUT>,
                false => baseline::<K, F32<BASELINE_FMA>, IN, PARAMS, OUT>,
            },
            avx2_near::<K, IN, PARAMS, OUT>,
            avx512_near::<K, IN, PARAMS, OUT>,
        ];
    }
    [
        baseline::<K, F32<BASELINE_FMA>, IN, PARAMS, OUT>,
        avx2::<K, F32<true>, IN, PARAMS, OUT>,
        avx512::<K, F32<true>, IN, PARAMS, OUT>,
    ]
}

/// Two loops for the three levels.
const fn narrow<K, Plain, Fused, const IN: usize, const PARAMS: usize, const OUT: usize>()
-> [TileFn; COUNT]
where
    K: Formula<Plain, IN, PARAMS, OUT> + Formula<Fused, IN, PARAMS, OUT>,
    Plain: Copy,
    Fused: Copy,
{
    [
        baseline::<K, Plain, IN, PARAMS, OUT>,
        avx2::<K, Fused, IN, PARAMS, OUT>,
        avx2::<K, Fused, IN, PARAMS, OUT>,
    ]
}

/// Keeps the loop that it is in from becoming vector instructions.
#[inline(always)]
fn no_vectors() {
    // SAFETY: no instruction at all; but it has to happen once for each element.
    unsafe { std::arch::asm!("", options(nomem, nostack, preserves_flags)) };
}

/// The inputs of element `i`; numbers take the place of all after the first.
///
/// # Safety
/// The element is inside all tiles.
#[inline(always)]
unsafe fn load<S: Copy, const IN: usize, const OUT: usize>(
    (_, inputs): ([*mut S; OUT], [*const S; IN]),
    numbers: Option<[S; IN]>,
    i: usize,
) -> [S; IN] {
    // SAFETY: this function's contract: element `i` is inside all tiles.
    unsafe {
        // Plain counting loops: iterator adaptors would stay function calls in unoptimised builds.
        let mut values = [inputs[0].add(i).read(); IN];
        let mut k = 1;
        while k < IN {
            values[k] = match numbers {
                Some(numbers) => numbers[k],
                None => inputs[k].add(i).read(),
            };
            k += 1;
        }
        values
    }
}

/// The first value of each input.
///
/// # Safety
/// All can be read.
#[inline(always)]
unsafe fn first_of<S: Copy, const IN: usize>(inputs: [*const S; IN]) -> [S; IN] {
    // SAFETY: this function's contract: each input has a value.
    unsafe {
        let mut values = [inputs[0].read(); IN];
        let mut k = 1;
        while k < IN {
            values[k] = inputs[k].read();
            k += 1;
        }
        values
    }
}

/// The formula for element `i`.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
unsafe fn element<K, S, const IN: usize, const PARAMS: usize, const OUT: usize>(
    tiles: ([*mut S; OUT], [*const S; IN]),
    params: [S; PARAMS],
    numbers: Option<[S; IN]>,
    i: usize,
) where
    K: Formula<S, IN, PARAMS, OUT>,
    S: Copy,
{
    // SAFETY: this function's contract: element `i` is inside all tiles, of outputs too.
    unsafe {
        let results = K::eval(load::<S, IN, OUT>(tiles, numbers, i), params);
        let mut k = 0;
        while k < OUT {
            tiles.0[k].add(i).write(results[k]);
            k += 1;
        }
    }
}

/// The loop itself, whatever the formula. `SCALAR` saves half of a loop's build time where few will run
/// it: on x86-64 processors before AVX2.
#[inline(always)]
unsafe fn run<K, S, const SCALAR: bool, const IN: usize, const PARAMS: usize, const OUT: usize>(
    pointers: *const *mut u8,
    params: *const u8,
    n: usize,
) where
    K: Formula<S, IN, PARAMS, OUT>,
    S: Copy,
{
    // SAFETY: by the *Tile invariant* there are `OUT + IN` pointers to tiles of `n` values, and `PARAMS` parameters.
    unsafe {
        let outputs = pointers.cast::<[*mut S; OUT]>().read();
        let inputs = pointers.add(OUT).cast::<[*const S; IN]>().read();
        let mut i = 0;
        if take_numbers(OUT, IN, PARAMS) && params.is_null() {
            let numbers = Some(first_of(inputs));
            let none = std::ptr::dangling::<[S; PARAMS]>().read();
            while i < n {
                if SCALAR {
                    no_vectors();
                }
                element::<K, S, IN, PARAMS, OUT>((outputs, inputs), none, numbers, i);
                i += 1;
            }
            return;
        }
        let params = params.cast::<[S; PARAMS]>().read();
        while i < n {
            if SCALAR {
                no_vectors();
            }
            element::<K, S, IN, PARAMS, OUT>((outputs, inputs), params, None, i);
            i += 1;
        }
    }
}

/// The loop for formulas that are quicker where arguments are moderate: block by block that way, and again both ways where
/// one was not.
#[inline(always)]
unsafe fn near<K, const IN: usize, const PARAMS: usize, const OUT: usize>(
    pointers: *const *mut u8,
    params: *const u8,
    n: usize,
) where
    K: Formula<Near, IN, PARAMS, OUT> + Formula<F32<true>, IN, PARAMS, OUT>,
{
    const BLOCK: usize = 512;
    // SAFETY: as in `run`.
    unsafe {
        let outputs = pointers.cast::<[*mut F32<true>; OUT]>().read();
        let inputs = pointers.add(OUT).cast::<[*const F32<true>; IN]>().read();
        let are_numbers = take_numbers(OUT, IN, PARAMS) && params.is_null();
        let numbers = if are_numbers { Some(first_of(inputs)) } else { None };
        let none = std::ptr::dangling::<[F32<true>; PARAMS]>();
        let params = if are_numbers { none } else { params.cast() }.read();
        // What is overwritten cannot be computed again.
        let mut is_input = false;
        let mut k = 0;
        while k < OUT * IN {
            is_input |= outputs[k / IN].cast_const() == inputs[k % IN];
            k += 1;
        }
        let mut start = 0;
        while start < n {
            let end = if n - start > BLOCK { start + BLOCK } else { n };
            let tiles = (outputs, inputs);
            let far = match numbers {
                _ if is_input => true,
                None => near_block::<K, IN, PARAMS, OUT>(tiles, params, None, start, end),
                Some(x) => near_block::<K, IN, PARAMS, OUT>(tiles, params, Some(x), start, end),
            };
            let mut i = start;
            while far && i < end {
                // Each element by itself is of one way or the other, whatever its neighbours are.
                let values = load::<_, IN, OUT>(tiles, numbers, i);
                let (quick, right) =
                    (quick::<K, IN, PARAMS, OUT>(values, params), K::eval(values, params));
                let mut k = 0;
                while k < OUT {
                    let (value, far) = quick[k].parts();
                    outputs[k].add(i).write(F32(if far { right[k].0 } else { value.0 }));
                    k += 1;
                }
                i += 1;
            }
            start = end;
        }
    }
}

/// Elements from `start` to `end` of [`near`]; gives whether one may be wrong.
///
/// # Safety
/// As for [`load`]; no output is an input.
#[inline(always)]
unsafe fn near_block<K, const IN: usize, const PARAMS: usize, const OUT: usize>(
    (outputs, inputs): ([*mut F32<true>; OUT], [*const F32<true>; IN]),
    params: [F32<true>; PARAMS],
    numbers: Option<[F32<true>; IN]>,
    start: usize,
    end: usize,
) -> bool
where
    K: Formula<Near, IN, PARAMS, OUT>,
{
    let mut any_far = 0u32;
    let mut i = start;
    // SAFETY: this function's contract: the elements from `start` to `end` are inside all tiles.
    unsafe {
        while i < end {
            let values = load::<_, IN, OUT>((outputs, inputs), numbers, i);
            let results = quick::<K, IN, PARAMS, OUT>(values, params);
            let mut k = 0;
            while k < OUT {
                let (value, far) = results[k].parts();
                outputs[k].add(i).write(value);
                any_far |= far as u32;
                k += 1;
            }
            i += 1;
        }
    }
    any_far != 0
}

/// The formula by its quick way.
#[inline(always)]
fn quick<K, const IN: usize, const PARAMS: usize, const OUT: usize>(
    values: [F32<true>; IN],
    params: [F32<true>; PARAMS],
) -> [Near; OUT]
where
    K: Formula<Near, IN, PARAMS, OUT>,
{
    let mut inputs = [Near::new(F32(0.0)); IN];
    let mut k = 0;
    while k < IN {
        inputs[k] = Near::new(values[k]);
        k += 1;
    }
    let mut numbers = [Near::new(F32(0.0)); PARAMS];
    let mut k = 0;
    while k < PARAMS {
        numbers[k] = Near::new(params[k]);
        k += 1;
    }
    K::eval(inputs, numbers)
}

/// The loop where an output may be an input: all that a block needs is read before anything of it is
/// written, so that its elements can be computed together without a look at what overlaps.
#[inline(always)]
unsafe fn update<K, S, const SCALAR: bool, const IN: usize, const PARAMS: usize, const OUT: usize>(
    pointers: *const *mut u8,
    params: *const u8,
    n: usize,
) where
    K: Formula<S, IN, PARAMS, OUT>,
    S: Copy,
{
    const BLOCK: usize = 16;
    // SAFETY: as in `run`; whole blocks are inside the tiles.
    unsafe {
        let outputs = pointers.cast::<[*mut S; OUT]>().read();
        let inputs = pointers.add(OUT).cast::<[*const S; IN]>().read();
        let params = params.cast::<[S; PARAMS]>().read();
        let mut i = 0;
        while !SCALAR && i + BLOCK <= n {
            let mut values = [inputs[0].add(i).cast::<[S; BLOCK]>().read(); IN];
            let mut results = [values[0]; OUT];
            let (mut from, mut to) = ([values[0].as_ptr(); IN], [results[0].as_mut_ptr(); OUT]);
            let mut k = 0;
            while k < IN {
                values[k] = inputs[k].add(i).cast::<[S; BLOCK]>().read();
                from[k] = values[k].as_ptr();
                k += 1;
            }
            let mut k = 0;
            while k < OUT {
                to[k] = results[k].as_mut_ptr();
                k += 1;
            }
            let mut j = 0;
            while j < BLOCK {
                element::<K, S, IN, PARAMS, OUT>((to, from), params, None, j);
                j += 1;
            }
            let mut k = 0;
            while k < OUT {
                outputs[k].add(i).cast::<[S; BLOCK]>().write(results[k]);
                k += 1;
            }
            i += BLOCK;
        }
        while i < n {
            no_vectors();
            element::<K, S, IN, PARAMS, OUT>((outputs, inputs), params, None, i);
            i += 1;
        }
    }
}

macro_rules! compiled {
    (near: $($(#[$attribute:meta])* $name:ident;)*) => {$(
        $(#[$attribute])*
        unsafe fn $name<K, const IN: usize, const PARAMS: usize, const OUT: usize>(
            pointers: *const *mut u8,
            params: *const u8,
            n: usize,
        ) where
            K: Formula<Near, IN, PARAMS, OUT> + Formula<F32<true>, IN, PARAMS, OUT>,
        {
            // SAFETY: the *Tile invariant*; the instructions are those of the level, which `near`
            // has no other demand for.
            unsafe { near::<K, IN, PARAMS, OUT>(pointers, params, n) }
        }
    )*};
    ($loop:ident: $($(#[$attribute:meta])* $name:ident $scalar:expr;)*) => {$(
        $(#[$attribute])*
        unsafe fn $name<K, S, const IN: usize, const PARAMS: usize, const OUT: usize>(
            pointers: *const *mut u8,
            params: *const u8,
            n: usize,
        ) where
            K: Formula<S, IN, PARAMS, OUT>,
            S: Copy,
        {
            // SAFETY: the *Tile invariant*; the instructions are those of the level, which the loop
            // has no other demand for.
            unsafe { $loop::<K, S, { $scalar }, IN, PARAMS, OUT>(pointers, params, n) }
        }
    )*};
    ($($loop:ident: $baseline:ident $avx2:ident $avx512:ident;)*) => {$(
        compiled! { $loop:
            $baseline cfg!(target_arch = "x86_64");
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
            $avx2 false;
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,f16c"))]
            $avx512 false;
        }
    )*};
}
compiled! {
    run: baseline avx2 avx512;
    update: baseline_update avx2_update avx512_update;
}
compiled! {
    near:
    baseline_near;
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    avx2_near;
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,f16c"))]
    avx512_near;
}

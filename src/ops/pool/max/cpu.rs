//! The loops of max pooling over dense planes (lines, volumes): maxima with their places.
//!
//! A row of windows is done in two steps: the maxima of the columns, side by side, then those of each
//! window's columns. The columns stand in a buffer with the padding around them, so that all windows of a
//! row are alike.

use std::ops::Range;

use super::lanes::{Lanes, wins};
use super::places::per_plane;
use super::small_windows::{Call, Lines};
use super::steps::Steps;
use super::stride_two;
use crate::cpu::arch::cache::is_far;
use crate::cpu::arch::prefetch::prefetch;
use crate::cpu::numbers::float::Float;
use crate::cpu::numbers::vector::Plain;
use crate::cpu::numbers::widen::Real;
use crate::cpu::threads::parts::Parts;

/// Maxima and, where they are wanted, their places in the plane, for contiguous planes of `sizes`.
pub(crate) fn all_maxima<T: Pooled>(
    x: &[T],
    sizes: [usize; 3],
    windows: &[Steps; 3],
    y: &mut [T],
    places: Option<&mut [i32]>,
) {
    let [_, h, w] = sizes;
    let [deep, down, across] = windows;
    let volume = sizes.iter().product::<usize>();
    let (planes, rows) = (x.len() / volume, deep.len() * down.len());
    if planes * rows * across.len() == 0 {
        return;
    }
    let (ys, places) = (Parts::new(y), places.map(Parts::new));
    let (plane, call) = (T::plane(), Planes { windows, sizes: [h, w], far: is_far(x) });
    let lines = rows * deep.most() * down.most();
    per_plane(planes, planes * (w * lines + rows * across.len() * across.most()), |range| {
        let mut scratch = Scratch::new(across, w);
        for p in range {
            let out = p * rows * across.len()..(p + 1) * rows * across.len();
            // SAFETY: each plane is one thread's.
            let y = unsafe { ys.slice(out.clone()) };
            // SAFETY: each plane is one thread's.
            let places = places.as_ref().map(|places| unsafe { places.slice(out) });
            let x = &x[p * volume..(p + 1) * volume];
            plane(&call, x, &mut scratch, y, places.unwrap_or_default());
        }
    });
}

/// Numbers and places behind a row, so that a register may read over its end.
const SLACK: usize = 16;

/// Columns with the padding around them.
struct Row<T> {
    best: Vec<T>,
    /// Places in the plane; in the padding behind every real one.
    from: Vec<i32>,
}

impl<T: Float> Row<T> {
    fn new(len: usize) -> Self {
        Row { best: vec![T::NEG_INFINITY; len], from: vec![i32::MAX; len] }
    }
}

/// What one thread needs for a row of windows.
pub struct Scratch<T> {
    left: usize,
    width: usize,
    columns: Row<T>,
    /// The columns `p`, `p + stride`, .. for each `p` below the stride, `phase` numbers each.
    phases: Row<T>,
    phase: usize,
    /// Where the taps of the first window are in the phases.
    taps: Vec<usize>,
    /// Where the lines of the input start that a row of windows reads.
    lines: Vec<usize>,
    held: Lines<T>,
}

impl<T: Float> Scratch<T> {
    fn new(across: &Steps, width: usize) -> Self {
        let (left, right) = across.margins();
        let (stride, kernel, dilation) = match across {
            Steps::Sliding(s) => (s.stride, s.kernel, s.dilation),
            Steps::Ranges(_) => (1, 0, 1),
        };
        let phase = (left + width + right).div_ceil(stride) + SLACK;
        let tap = |t: usize| t * dilation % stride * phase + t * dilation / stride;
        Scratch {
            left,
            width,
            columns: Row::new(phase * stride),
            phases: Row::new(if stride > 1 { phase * stride } else { 0 }),
            phase,
            taps: (0..kernel).map(tap).collect(),
            lines: Vec::new(),
            held: Lines::new(if stride == 2 { 2 * phase } else { 0 }, left),
        }
    }
}

/// The planes of a call.
pub struct Planes<'a> {
    windows: &'a [Steps; 3],
    /// Height and width.
    sizes: [usize; 2],
    /// Whether they come from memory ([`is_far`]).
    far: bool,
}

/// Computes one plane (or volume); the places may be empty.
pub type PlaneFn<T> = fn(&Planes, &[T], &mut Scratch<T>, &mut [T], &mut [i32]);

/// A type with a loop for each instruction set.
pub trait Pooled: Float {
    /// The best that this processor has.
    fn plane() -> PlaneFn<Self>;
}

impl Pooled for f32 {
    fn plane() -> PlaneFn<f32> {
        #[cfg(target_arch = "x86_64")]
        {
            use crate::cpu::arch::isa;

            #[target_feature(enable = "avx2,fma")]
            fn avx2(p: &Planes, x: &[f32], s: &mut Scratch<f32>, y: &mut [f32], at: &mut [i32]) {
                // SAFETY: this function's own instruction set.
                unsafe { plane::<std::arch::x86_64::__m256>(p, x, s, y, at) }
            }
            if isa::current() >= isa::Isa::Avx2 {
                // SAFETY: `current` never gives a level that the processor lacks.
                return |p, x, s, y, at| unsafe { avx2(p, x, s, y, at) };
            }
        }
        // SAFETY: no special instruction.
        |p, x, s, y, at| unsafe { plane::<Plain<f32>>(p, x, s, y, at) }
    }
}

impl Pooled for f64 {
    fn plane() -> PlaneFn<f64> {
        // SAFETY: no special instruction.
        |p, x, s, y, at| unsafe { plane::<Plain<f64>>(p, x, s, y, at) }
    }
}

/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn plane<V: Lanes>(
    planes: &Planes,
    x: &[V::Number],
    scratch: &mut Scratch<V::Number>,
    y: &mut [V::Number],
    places: &mut [i32],
) {
    // SAFETY: `Vector`'s *Instructions*, which `rows` asks for.
    unsafe {
        if places.is_empty() {
            rows::<V, false>(planes, x, scratch, y, places);
        } else {
            rows::<V, true>(planes, x, scratch, y, places);
        }
    }
}

/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn rows<V: Lanes, const PLACES: bool>(
    planes: &Planes,
    x: &[V::Number],
    scratch: &mut Scratch<V::Number>,
    y: &mut [V::Number],
    places: &mut [i32],
) {
    let [_, down, across] = planes.windows;
    let (w, ow) = (scratch.width, across.len());
    let (stride, dilation) = match across {
        Steps::Sliding(s) => (s.stride, s.dilation),
        Steps::Ranges(_) => (1, 1),
    };
    let by_two = stride == 2 && dilation == 1 && w >= V::LANES && ow >= V::LANES;
    scratch.held.forget();
    for i in 0..y.len() / ow {
        find_lines(&mut scratch.lines, planes, i / down.len(), i % down.len());
        let Scratch { left, columns, phases, phase, taps, lines, held, .. } = &mut *scratch;
        let (left, kernel) = (*left, taps.len());
        if by_two && PLACES && lines.len() <= kernel && (2..=3).contains(&kernel) {
            let (y, places) = (&mut y[i * ow..][..ow], &mut places[i * ow..][..ow]);
            let call = Call { x, lines, left, width: w };
            // SAFETY: `Vector`'s *Instructions*, which `squares` asks for.
            unsafe {
                match kernel {
                    2 => call.squares::<V, 2>(held, y, places),
                    _ => call.squares::<V, 3>(held, y, places),
                }
            }
            continue;
        }
        if by_two && !PLACES {
            let row = stride_two::Row { x, lines, width: w, left, kernel, far: planes.far };
            // SAFETY: `Vector`'s *Instructions*, which `maxima` asks for.
            unsafe { row.maxima::<V>(&mut columns.best, &mut y[i * ow..][..ow]) };
            continue;
        }
        // A row's last register may write over the begin of the next one, which is done later.
        let y = &mut y[i * ow..];
        let places = if PLACES { &mut places[i * ow..] } else { &mut [] };
        let (best, from) = (&mut columns.best[left..], &mut columns.from[left..]);
        // Registers, of which the last may overlap the one before; in narrow rows one by one.
        let whole = if w < V::LANES { 0 } else { w };
        for c in (0..whole).step_by(V::LANES) {
            // SAFETY: `Vector`'s *Instructions*, which `highest` asks for.
            unsafe { highest::<V, PLACES>(x, lines, c.min(w - V::LANES), best, from) };
        }
        for c in whole..w {
            highest_of_one(x, lines, c, best, from);
        }
        match across {
            Steps::Sliding(s) => {
                let mut row = &*columns;
                if s.stride > 1 {
                    // SAFETY: `Vector`'s *Instructions*, which `split` asks for.
                    unsafe { split::<V, PLACES>(columns, s.stride, *phase, phases) };
                    row = phases;
                }
                for j in (0..ow).step_by(V::LANES) {
                    // SAFETY: `Vector`'s *Instructions*, which `outputs` asks for.
                    unsafe { outputs::<V, PLACES>(taps, row, j, y, places) };
                }
            }
            Steps::Ranges(ranges) => range_maxima(ranges, columns, y, places),
        }
    }
}

/// Where the lines start that window `(i, j)` of the first two dimensions reads.
#[inline(always)]
fn find_lines(lines: &mut Vec<usize>, planes: &Planes, i: usize, j: usize) {
    let ([deep, down, _], [h, w]) = (planes.windows, planes.sizes);
    lines.clear();
    for d in deep.each(i) {
        for row in down.each(j) {
            lines.push((d * h + row) * w);
        }
    }
}

/// Numbers from `i` on.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn load<V: Lanes>(x: &[V::Number], i: usize) -> V {
    // SAFETY: the slice has them.
    unsafe { V::load(x[i..][..V::LANES].as_ptr()) }
}

/// Places from `i` on.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn load_places<V: Lanes>(x: &[i32], i: usize) -> V::Places {
    // SAFETY: the slice has them.
    unsafe { V::load_places(x[i..][..V::LANES].as_ptr()) }
}

/// Writes as much of a register as there is room for at `i`; of the places if they are wanted.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn store<V: Lanes, const PLACES: bool>(
    (top, at): (V, V::Places),
    i: usize,
    y: &mut [V::Number],
    places: &mut [i32],
) {
    let room = y.len() - i;
    if room >= V::LANES {
        // SAFETY: there is room.
        unsafe { top.store(y[i..][..V::LANES].as_mut_ptr()) };
        if PLACES {
            // SAFETY: the slice has room.
            unsafe { V::store_places(at, places[i..][..V::LANES].as_mut_ptr()) };
        }
        return;
    }
    let (mut last, mut last_places) = ([V::Number::ZERO; SLACK], [0; SLACK]);
    // SAFETY: no register has more than so many numbers.
    unsafe {
        top.store(last.as_mut_ptr());
        V::store_places(at, last_places.as_mut_ptr());
    }
    for k in 0..room {
        y[i + k] = last[k];
        if PLACES {
            places[i + k] = last_places[k];
        }
    }
}

/// Has what is read a page after position `i` brought in: several lines that are read side by side are
/// more than the processor foresees by itself.
#[inline(always)]
fn fetch_ahead<T>(x: &[T], i: usize) {
    prefetch(x.as_ptr().wrapping_add(i).wrapping_byte_add(4096));
}

/// Maxima of columns from `c` on over the lines that start at `lines`, of which there is at least one.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn highest<V: Lanes, const PLACES: bool>(
    x: &[V::Number],
    lines: &[usize],
    c: usize,
    best: &mut [V::Number],
    from: &mut [i32],
) {
    // SAFETY: `Vector`'s *Instructions*; numbers are read and written through slices of a
    // register's length.
    unsafe {
        let read = (load::<V>(x, lines[0] + c), V::places_from((lines[0] + c) as i32));
        let mut top = read;
        fetch_ahead(x, lines[0] + c);
        for i in 1..lines.len() {
            let first = lines[i] + c;
            fetch_ahead(x, first);
            top = V::later(top, load::<V>(x, first), V::places_from(first as i32));
        }
        store::<V, PLACES>(top, c, best, from);
    }
}

/// [`highest`] of one column.
fn highest_of_one<T: Float>(x: &[T], lines: &[usize], c: usize, best: &mut [T], from: &mut [i32]) {
    (best[c], from[c]) = (x[lines[0] + c], (lines[0] + c) as i32);
    for &line in &lines[1..] {
        let (v, place) = (x[line + c], (line + c) as i32);
        if wins(v, place, best[c], from[c]) {
            (best[c], from[c]) = (v, place);
        }
    }
}

/// Sorts columns by their place in a stride, so that equal taps of neighbouring windows are neighbours.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn split<V: Lanes, const PLACES: bool>(
    columns: &Row<V::Number>,
    stride: usize,
    phase: usize,
    phases: &mut Row<V::Number>,
) {
    let (x, from) = (&columns.best, &columns.from);
    let mut q = 0;
    // What is left at the end is behind what windows read.
    while stride == 2 && q + V::LANES <= phase {
        // SAFETY: `Vector`'s *Instructions*; numbers are read and written through slices of a
        // register's length.
        unsafe {
            let [even, odd] = V::halves(load::<V>(x, 2 * q), load::<V>(x, 2 * q + V::LANES));
            even.store(phases.best[q..][..V::LANES].as_mut_ptr());
            odd.store(phases.best[phase + q..][..V::LANES].as_mut_ptr());
            if PLACES {
                let at = (load_places::<V>(from, 2 * q), load_places::<V>(from, 2 * q + V::LANES));
                let [even, odd] = V::place_halves(at.0, at.1);
                V::store_places(even, phases.from[q..][..V::LANES].as_mut_ptr());
                V::store_places(odd, phases.from[phase + q..][..V::LANES].as_mut_ptr());
            }
        }
        q += V::LANES;
    }
    for p in 0..if stride == 2 { 0 } else { stride } {
        for q in 0..phase {
            phases.best[p * phase + q] = x[q * stride + p];
            phases.from[p * phase + q] = from[q * stride + p];
        }
    }
}

/// Outputs from `j` on of a row.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn outputs<V: Lanes, const PLACES: bool>(
    taps: &[usize],
    row: &Row<V::Number>,
    j: usize,
    y: &mut [V::Number],
    places: &mut [i32],
) {
    // SAFETY: `Vector`'s *Instructions*; numbers are read and written through slices of a
    // register's length.
    unsafe {
        if !PLACES {
            let mut top = load::<V>(&row.best, j);
            let mut t = 1;
            while t < taps.len() {
                let (second, third) = (taps[t] + j, taps[(t + 1).min(taps.len() - 1)] + j);
                top = top.largest(load::<V>(&row.best, second), load::<V>(&row.best, third));
                t += 2;
            }
            // The places are not written.
            return store::<V, PLACES>((top, V::places_from(0)), j, y, places);
        }
        let mut top = (load::<V>(&row.best, j), load_places::<V>(&row.from, j));
        for &tap in &taps[1..] {
            let (v, at) = (load::<V>(&row.best, tap + j), load_places::<V>(&row.from, tap + j));
            top = V::merge(top, v, at);
        }
        store::<V, PLACES>(top, j, y, places);
    }
}

/// A row of outputs whose windows are ranges of columns.
#[inline(always)]
fn range_maxima<T: Float>(
    ranges: &[Range<usize>],
    columns: &Row<T>,
    y: &mut [T],
    places: &mut [i32],
) {
    for j in 0..ranges.len() {
        let (start, end) = (ranges[j].start, ranges[j].end);
        let (best, from) = (&columns.best[start..end], &columns.from[start..end]);
        let (mut top, mut at) = (T::NEG_INFINITY, i32::MAX);
        for k in 0..best.len() {
            if wins(best[k], from[k], top, at) {
                (top, at) = (best[k], from[k]);
            }
        }
        y[j] = top;
        if !places.is_empty() {
            places[j] = at;
        }
    }
}

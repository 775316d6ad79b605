//! What is done at the places of maxima: gradients are added there, numbers read.

use std::ops::Range;

use crate::cpu::numbers::float::Float;
use crate::cpu::threads::parallel_for;
use crate::cpu::threads::parts::Parts;

/// Adds each number of `g` at its place in its plane of `dx`.
pub(crate) fn scatter<T: Float>(g: &[T], places: &[i32], planes: usize, dx: &mut [T]) {
    let (volume, size) = (dx.len() / planes.max(1), g.len() / planes.max(1));
    let parts = Parts::new(dx);
    per_plane(planes, parts.len(), |range| {
        for p in range {
            // SAFETY: each plane is one thread's.
            let dx = unsafe { parts.slice(p * volume..(p + 1) * volume) };
            dx.fill(T::ZERO);
            for (&g, &place) in g[p * size..][..size].iter().zip(&places[p * size..]) {
                dx[place as u32 as usize] += g;
            }
        }
    });
}

/// The numbers of `x` at places in its planes.
pub(crate) fn pick<T: Float>(x: &[T], places: &[i32], planes: usize, y: &mut [T]) {
    let (volume, size) = (x.len() / planes.max(1), y.len() / planes.max(1));
    let parts = Parts::new(y);
    per_plane(planes, parts.len(), |range| {
        for p in range {
            // SAFETY: each plane is one thread's.
            let y = unsafe { parts.slice(p * size..(p + 1) * size) };
            let x = &x[p * volume..(p + 1) * volume];
            for (y, &place) in y.iter_mut().zip(&places[p * size..]) {
                *y = x[place as u32 as usize];
            }
        }
    });
}

/// Calls `body` with ranges of planes; all planes together are `work` elements.
pub(crate) fn per_plane(planes: usize, work: usize, body: impl Fn(Range<usize>) + Sync) {
    parallel_for(planes, (16 << 10) / (work / planes.max(1)).max(1) + 1, body);
}

//! The input of a convolution in a form from which every tap of the filter reads straight runs.
//!
//! All three products of a convolution read, for each point (i, j) of a grid and each tap (y, x) of
//! the filter, source element (i * step + y, j * step + x), or 0 outside. A [`Field`] is a copy of
//! the source with the zero border written out, and, when the step is s, with each row split into its
//! s phases (columns 0, s, 2s, .. then 1, s + 1, ..). Neighbouring grid points are then neighbours in
//! memory for every tap, and a tap is one constant offset. The copy costs one pass over the input
//! and takes all border tests and strides out of the inner loops.

use std::ops::Range;

use crate::arch::prefetch::prefetch;
use crate::elementwise::copy::copy_short;
use crate::numbers::float::{Float, simd_fn};
use crate::products::run::Run;
use crate::threads::parts::Parts;
use crate::threads::{GRAIN, parallel_for};

/// Runs are copied in pieces of this many elements; a copy may write past the run, but what it
/// overwrites there is written after it.
pub const PIECE: usize = 8;

/// Which source elements the points of a grid read.
#[derive(Clone, Debug)]
pub struct Window {
    /// Height and width of the source planes.
    pub source: [usize; 2],
    /// Height and width of the grid.
    pub grid: [usize; 2],
    /// Distance in the source between neighbours in the grid.
    pub step: [usize; 2],
    /// Offsets (y, x) of the taps.
    pub taps: Vec<[isize; 2]>,
}

impl Window {
    /// Number of grid points.
    #[inline]
    pub fn points(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    /// Where the taps are `side` x `side` neighbours: the offset of the first, and of each tap its place,
    /// counted row by row.
    pub fn square(&self, side: usize) -> Option<([isize; 2], Vec<usize>)> {
        if self.taps.len() != side * side || side == 0 {
            return None;
        }
        let origin = [0, 1].map(|d| self.taps.iter().map(|t| t[d]).min().unwrap_or(0));
        let mut seen = vec![false; side * side];
        let mut places = Vec::with_capacity(side * side);
        for tap in &self.taps {
            let [y, x] = [0, 1].map(|d| (tap[d] - origin[d]) as usize);
            if y >= side || x >= side || std::mem::replace(&mut seen[y * side + x], true) {
                return None;
            }
            places.push(y * side + x);
        }
        Some((origin, places))
    }
}

/// Where the elements of a [`Window`] are once the source is prepared.
#[derive(Clone, Debug)]
pub struct Field {
    /// Elements per prepared plane.
    pub plane: usize,
    /// Distance between the prepared planes of neighbouring channels.
    pub channel: usize,
    /// Distance between images, where they do not lie behind one another.
    image: Option<usize>,
    /// Distance between grid rows.
    pub grid_row: usize,
    /// Offset of each tap.
    pub taps: Vec<usize>,
    /// Depth taps, each of which has all the others; 1 of a plane.
    pub depths: usize,
    /// Rows of a depth tap's taps, of the same number each.
    pub lines: usize,
    /// Which of these each row of the grid sees of the source, and not of its border: one at least.
    pub sees: Vec<Range<usize>>,
    /// Source rows, and their distance between neighbours in the grid.
    source: (usize, usize),
    /// First source row and column of the prepared plane; negative in the border.
    origin: [isize; 2],
    rows: usize,
    /// Phases of a row, and elements per phase.
    phases: usize,
    phase: usize,
    /// The source planes already are what is wanted.
    pub direct: bool,
}

impl Field {
    /// Elements that may be read past the last plane.
    pub const SLACK: usize = 32;

    /// Plans the field of a window that has at least one tap and one grid point. Products read
    /// `wide` grid points of a row at once, a multiple of [`PIECE`].
    pub fn new(window: &Window, wide: usize) -> Field {
        let copied = Field::copied(window);
        let ([h, w], [y0, x0]) = (window.source, copied.origin);
        // There is no slack without a copy: the grid's rows must be whole.
        let inside = y0 >= 0
            && x0 >= 0
            && y0 as usize + copied.rows <= h
            && x0 as usize + copied.phases * copied.phase <= w;
        if !inside || copied.phases > 1 || !window.grid[1].is_multiple_of(wide) {
            return copied;
        }
        let offset = |t: &[isize; 2]| t[0] as usize * w + t[1] as usize;
        Field {
            plane: h * w,
            channel: h * w,
            grid_row: window.step[0] * w,
            taps: window.taps.iter().map(offset).collect(),
            direct: true,
            ..copied
        }
    }

    /// The same where the source is copied in any case.
    pub fn copied(window: &Window) -> Field {
        let span = |d: usize| {
            let low = window.taps.iter().map(|t| t[d]).min().expect("a tap");
            let high = window.taps.iter().map(|t| t[d]).max().expect("a tap");
            (low, (window.grid[d] - 1) * window.step[d] + (high - low) as usize + 1)
        };
        let ((y0, rows), (x0, columns)) = (span(0), span(1));
        let phases = window.step[1];
        let phase = columns.div_ceil(phases);
        let row = phases * phase;
        let field = Field {
            plane: rows * row,
            channel: rows * row,
            image: None,
            grid_row: window.step[0] * row,
            taps: Vec::new(),
            depths: 1,
            lines: 1,
            sees: vec![0..1; window.grid[0]],
            source: (window.source[0], window.step[0]),
            origin: [y0, x0],
            rows,
            phases,
            phase,
            direct: false,
        };
        field.with_taps(&window.taps)
    }

    /// The same copy read at these taps, which lie among those of the window that it was planned for.
    pub fn with_taps(&self, taps: &[[isize; 2]]) -> Field {
        debug_assert!(!self.direct);
        let (row, [y0, x0]) = (self.phases * self.phase, self.origin);
        let offset = |t: &[isize; 2]| {
            let (y, x) = ((t[0] - y0) as usize, (t[1] - x0) as usize);
            y * row + (x % self.phases) * self.phase + x / self.phases
        };
        let (lines, sees) = self.lines(taps);
        Field { taps: taps.iter().map(offset).collect(), lines, sees, ..self.clone() }
    }

    /// The rows that taps form, and which of them each row of the grid sees.
    fn lines(&self, taps: &[[isize; 2]]) -> (usize, Vec<Range<usize>>) {
        let (height, step) = self.source;
        let lines: Vec<&[[isize; 2]]> = taps.chunk_by(|a, b| a[0] == b[0]).collect();
        let alike = lines.iter().all(|line| line.len() == lines[0].len());
        if !alike
            || !lines.is_sorted_by_key(|line| line[0][0])
                && !lines.is_sorted_by_key(|line| -line[0][0])
        {
            return (1, vec![0..1; self.sees.len()]);
        }
        let rows: Vec<isize> = lines.iter().map(|line| line[0][0]).collect();
        (rows.len(), (0..self.sees.len()).map(|i| seen(&rows, i * step, height)).collect())
    }

    /// The field of a volume with `planes` prepared planes per channel. Its images are slices: image i reads
    /// planes `i * step + t` for each t of `depths`, whose taps follow one another.
    pub fn stacked(&self, planes: usize, depths: &[usize], step: usize) -> Field {
        let tap =
            |t: &usize| self.taps.iter().map(move |tap| t * self.plane + tap).collect::<Vec<_>>();
        let taps = depths.iter().flat_map(tap).collect();
        let (channel, image) = (planes * self.plane, Some(step * self.plane));
        Field { channel, image, taps, depths: depths.len(), ..self.clone() }
    }

    /// Distance between the prepared planes of images of `channels` channels.
    #[inline]
    pub fn image(&self, channels: usize) -> usize {
        self.image.unwrap_or(channels * self.channel)
    }

    /// Elements of the prepared copy of `planes` planes; 0 where none is needed.
    #[inline]
    pub fn len(&self, planes: usize) -> usize {
        if self.direct { 0 } else { planes * self.plane + Self::SLACK }
    }

    /// Fills `out`, of `len(planes)` elements, from planes of a source; those that it has not are zeros. Of each
    /// `depth` planes the first ones are filled before the second ones, and maybe by another thread: who reads
    /// them so later finds them in its own cache.
    pub fn fill_planes<'s, T: Float>(
        &self,
        source: impl Fn(usize) -> Option<&'s [T]> + Sync,
        size: [usize; 2],
        depth: usize,
        out: &mut [T],
    ) {
        let slack = out.len() - Self::SLACK;
        out[slack..].fill(T::ZERO);
        let planes = slack / self.plane;
        assert!(planes.is_multiple_of(depth), "stacks are whole");
        let stacks = planes / depth;
        let parts = Parts::new(out);
        parallel_for(planes, GRAIN / 2 / self.plane + 1, |range| {
            for item in range {
                let p = item % stacks * depth + item / stacks;
                // SAFETY: each plane is written by one thread.
                let out = unsafe { parts.slice(p * self.plane..(p + 1) * self.plane) };
                match source(p) {
                    Some(plane) => self.fill_plane(plane, size, out),
                    None => out.fill(T::ZERO),
                }
            }
        });
    }

    /// Fills one prepared plane.
    pub fn fill_plane<T: Float>(&self, source: &[T], size: [usize; 2], out: &mut [T]) {
        match self.phases {
            1 => fill_rows(self, source, size, out),
            _ => fill_phases(self, source, size, out),
        }
    }
}

/// Those of ascending or descending taps that are in a source of `size` from `at` on; one, if none is.
pub fn seen(taps: &[isize], at: usize, size: usize) -> Range<usize> {
    let inside = |tap: &isize| (0..size as isize).contains(&(at as isize + tap));
    let first = taps.iter().position(inside).unwrap_or(0);
    first..first + taps[first..].iter().take_while(|tap| inside(tap)).count().max(1)
}

/// The part of `len` prepared rows or columns from `origin` on that lies in a source of `size`.
#[inline(always)]
fn inside(origin: isize, len: usize, size: usize) -> Range<usize> {
    let from = (-origin).clamp(0, len as isize) as usize;
    let to = (size as isize - origin).clamp(from as isize, len as isize) as usize;
    from..to
}

/// The runs of points `first..first + count`, counted over the images of a batch whose prepared
/// planes lie `image` elements apart.
pub fn runs(
    field: &Field,
    grid: [usize; 2],
    image: usize,
    first: usize,
    count: usize,
    out: &mut Vec<Run>,
) {
    out.clear();
    let points = grid[0] * grid[1];
    let (mut n, mut i, mut j) = (first / points, first % points / grid[1], first % grid[1]);
    let mut column = 0;
    while column < count {
        let len = (grid[1] - j).min(count - column);
        out.push(Run { source: n * image + i * field.grid_row + j, column, len });
        column += len;
        j = 0;
        i += 1;
        if i == grid[0] {
            (i, n) = (0, n + 1);
        }
    }
}

/// Bytes from a line that is taken apart to what is brought near meanwhile. Planes are read from end to end, but the
/// processor does not foresee enough of them beside what is written.
const AHEAD: usize = 4096;

simd_fn! {
    /// Fills a plane of one phase: zeros everywhere, then the part of each row that the source has.
    fn fill_rows<T, FMA>(field: &Field, source: &[T], size: [usize; 2], out: &mut [T]) {
        let _ = FMA;
        let ([h, w], [y0, x0]) = (size, field.origin);
        let (rows, columns) = (inside(y0, field.rows, h), inside(x0, field.phase, w));
        if rows.len() < field.rows || columns.len() < field.phase {
            for k in 0..out.len() {
                out[k] = T::ZERO;
            }
        }
        let first = ((x0 + columns.start as isize).max(0) as usize).min(w);
        for i in rows.start..rows.end {
            let line = &source[(i as isize + y0) as usize * w..][..w];
            let out = &mut out[i * field.phase..][..field.phase];
            copy_short(
                &line[first..][..columns.len()],
                &mut out[columns.start..columns.end],
            );
        }
    }

    /// Fills a plane of several phases.
    fn fill_phases<T, FMA>(field: &Field, source: &[T], size: [usize; 2], out: &mut [T]) {
        let _ = FMA;
        let ([h, w], phases, phase) = (size, field.phases, field.phase);
        let [y0, x0] = field.origin;
        for i in 0..field.rows {
            let out = &mut out[i * phases * phase..][..phases * phase];
            let y = i as isize + y0;
            if y < 0 || y >= h as isize {
                out.fill(T::ZERO);
                continue;
            }
            let line = &source[y as usize * w..][..w];
            if phases == 2 {
                let ahead = AHEAD / size_of::<T>();
                for k in (0..w).step_by(64 / size_of::<T>()) {
                    prefetch(line.as_ptr().wrapping_add(ahead + k));
                }
                let (even, odd) = out.split_at_mut(phase);
                halves(line, x0, even, odd);
                continue;
            }
            for f in 0..phases {
                let out = &mut out[f * phase..][..phase];
                // Element j is source column `x0 + j * phases`.
                let x0 = f as isize + x0;
                let from = ((-x0).max(0) as usize).div_ceil(phases).min(phase);
                let to = ((w as isize - x0).max(0) as usize).div_ceil(phases);
                let to = to.clamp(from, phase);
                out[..from].fill(T::ZERO);
                out[to..].fill(T::ZERO);
                for j in from..to {
                    out[j] = line[(x0 + (j * phases) as isize) as usize];
                }
            }
        }
    }
}

/// Columns x0, x0 + 2, .. of a line in `even`, and those between them in `odd`, which are as long; 0 outside.
#[inline(always)]
fn halves<T: Float>(line: &[T], x0: isize, even: &mut [T], odd: &mut [T]) {
    // From here to there both columns of a pair are in the line.
    let from = ((-x0).max(0) as usize).div_ceil(2).min(even.len());
    let to = ((line.len() as isize - x0).max(0) as usize / 2).clamp(from, even.len());
    for j in (0..from).chain(to..even.len()) {
        let x = x0 + 2 * j as isize;
        let at = |x: isize| line.get(x as usize).copied().unwrap_or(T::ZERO);
        (even[j], odd[j]) = (at(x), at(x + 1));
    }
    if from < to {
        let line = &line[(x0 + 2 * from as isize) as usize..];
        split(line, &mut even[from..to], &mut odd[from..to]);
    }
}

/// Takes the pairs of a line apart, in pieces that the compiler makes registers of; the last piece goes back
/// to be whole.
#[inline(always)]
fn split<T: Float>(line: &[T], even: &mut [T], odd: &mut [T]) {
    let n = even.len();
    let mut at = 0;
    while at + 2 * PIECE <= n {
        piece::<T, { 2 * PIECE }>(line, at, even, odd);
        at += 2 * PIECE;
    }
    if at + PIECE <= n {
        piece::<T, PIECE>(line, at, even, odd);
        at += PIECE;
    }
    if at < n && n >= PIECE {
        piece::<T, PIECE>(line, n - PIECE, even, odd);
    } else {
        pairs(&line[2 * at..], &mut even[at..], &mut odd[at..]);
    }
}

/// N pairs of a line from pair `at` on.
#[inline(always)]
fn piece<T: Float, const N: usize>(line: &[T], at: usize, even: &mut [T], odd: &mut [T]) {
    pairs(&line[2 * at..][..2 * N], &mut even[at..][..N], &mut odd[at..][..N]);
}

#[inline(always)]
fn pairs<T: Float>(line: &[T], even: &mut [T], odd: &mut [T]) {
    let n = even.len();
    let (line, odd) = (&line[..2 * n], &mut odd[..n]);
    for j in 0..n {
        even[j] = line[2 * j];
        odd[j] = line[2 * j + 1];
    }
}

simd_fn! {
    /// Row `r` of `out`, `width` elements apart, gets the points of `runs` displaced by `rows[r]`.
    /// `out` and `source` have [`PIECE`] elements of slack behind what is asked for.
    pub fn gather<T, FMA>(source: &[T], rows: &[usize], runs: &[Run], width: usize, out: &mut [T]) {
        let _ = FMA;
        let (Some(last), Some(first)) = (runs.last(), runs.first()) else { return };
        let reach = runs.iter().map(|r| r.source + r.len.next_multiple_of(PIECE)).max().unwrap_or(0);
        let offset = rows.iter().max().copied().unwrap_or(0);
        assert!(reach + offset <= source.len(), "the field's slack is too short");
        assert!(rows.len() * width + PIECE <= out.len() && last.column + last.len <= width);
        let whole = runs.len() == 1 && first.len == width;
        for (r, &offset) in rows.iter().enumerate() {
            let out = out[r * width..].as_mut_ptr();
            let source = source[offset..].as_ptr();
            // SAFETY: inside both slices by the assertions; what goes over the end of the row is in
            // the next, which is written later, or in the slack.
            unsafe {
                match (whole, width) {
                    (true, 8) => copy::<T, 8>(source.add(first.source), out),
                    (true, 16) => copy::<T, 16>(source.add(first.source), out),
                    (true, 32) => copy::<T, 32>(source.add(first.source), out),
                    _ => for run in runs {
                        let (from, to) = (source.add(run.source), out.add(run.column));
                        // Short runs without a call of memcpy.
                        match run.len.div_ceil(PIECE) {
                            1 => copy::<T, PIECE>(from, to),
                            2 => copy::<T, { 2 * PIECE }>(from, to),
                            _ => to.copy_from_nonoverlapping(from, run.len),
                        }
                    },
                }
            }
        }
    }
}

/// # Safety
/// N numbers can be read and written there.
#[inline(always)]
unsafe fn copy<T: Float, const N: usize>(from: *const T, to: *mut T) {
    // SAFETY: this function's contract: `N` numbers on both sides.
    unsafe { to.cast::<[T; N]>().write_unaligned(from.cast::<[T; N]>().read_unaligned()) }
}

//! Which positions the windows of a pooling read along one dimension.

use std::ops::Range;

use crate::ops::pool::cuda::Dim;

/// The windows of one dimension.
pub enum Steps {
    /// Windows at equal distances.
    Sliding(Sliding),
    /// Any ranges of positions.
    Ranges(Vec<Range<usize>>),
}

/// Window `i` reads `i * stride + t * dilation - padding` for each `t` below `kernel`.
#[derive(Clone, Copy)]
pub struct Sliding {
    pub size: usize,
    pub out: usize,
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
    pub dilation: usize,
}

impl Steps {
    /// The same for a GPU's kernels; ranges are those of adaptive pooling.
    pub fn on_gpu(&self, size: usize) -> Dim {
        match self {
            Steps::Sliding(s) => {
                Dim::sliding(s.size, s.out, [s.kernel, s.stride, s.padding, s.dilation])
            }
            Steps::Ranges(ranges) => Dim::adaptive(size, ranges.len()),
        }
    }

    /// One window of the only position.
    pub fn one() -> Steps {
        Steps::Ranges(std::iter::once(0..1).collect())
    }

    /// How many windows there are.
    pub fn len(&self) -> usize {
        match self {
            Steps::Sliding(s) => s.out,
            Steps::Ranges(ranges) => ranges.len(),
        }
    }

    /// Positions of the largest window.
    pub fn most(&self) -> usize {
        match self {
            Steps::Sliding(s) => s.kernel,
            Steps::Ranges(ranges) => ranges.iter().map(Range::len).max().unwrap_or(0),
        }
    }

    /// The input positions of window `i`, which rise.
    #[inline(always)]
    pub fn each(&self, i: usize) -> impl Iterator<Item = usize> {
        let (first, count, step) = match self {
            Steps::Sliding(s) => s.inside(i),
            Steps::Ranges(ranges) => (ranges[i].start, ranges[i].len(), 1),
        };
        (0..count).map(move |t| first + t * step)
    }

    /// Positions of padding before the input, and after it as far as windows reach.
    pub fn margins(&self) -> (usize, usize) {
        match self {
            Steps::Sliding(s) => {
                let reach = s.out.saturating_sub(1) * s.stride + (s.kernel - 1) * s.dilation + 1;
                (s.padding, reach.saturating_sub(s.padding + s.size))
            }
            Steps::Ranges(_) => (0, 0),
        }
    }
}

impl Sliding {
    /// The first position of window `i` in the input, how many there are, and from one to the next.
    #[inline(always)]
    fn inside(&self, i: usize) -> (usize, usize, usize) {
        let Sliding { size, kernel, stride, padding, dilation, .. } = *self;
        // From the padding's first position.
        let (first, end) = (i * stride, padding + size);
        let last = first + (kernel - 1) * dilation;
        if first >= padding && last < end {
            return (first - padding, kernel, dilation);
        }
        let skipped = padding.saturating_sub(first).div_ceil(dilation);
        let until = end.saturating_sub(first).div_ceil(dilation).min(kernel);
        ((first + skipped * dilation) - padding, until.saturating_sub(skipped), dilation)
    }
}

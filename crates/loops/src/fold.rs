//! Which dimensions of a strided buffer are kept and which are folded, in the fewest dimensions.

use smallvec::SmallVec;

use super::axes::sort_axes;

/// (size, stride in elements) of dimensions, outermost first.
type Dims = SmallVec<[(usize, isize); 4]>;

/// The kept dimensions, in the order of the outputs, and the folded ones, in the order of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    kept: Dims,
    folded: Dims,
}

/// Joins neighbouring dimensions that lie like one; drops those of size 1.
fn coalesce(dims: impl IntoIterator<Item = (usize, isize)>) -> Dims {
    let mut out = Dims::new();
    for (size, stride) in dims {
        match out.last_mut() {
            _ if size == 1 => {}
            Some((n, s)) if *s == stride * size as isize => (*n, *s) = (*n * size, stride),
            _ => out.push((size, stride)),
        }
    }
    out
}

impl Plan {
    /// A plan for a buffer of this shape and these strides; `folded(d)` says whether dimension `d`
    /// is folded. Outputs are numbered in row-major order of the kept dimensions.
    pub fn new(shape: &[usize], strides: &[isize], folded: &dyn Fn(usize) -> bool) -> Plan {
        let dims = |want: bool| {
            (0..shape.len()).filter(move |&d| folded(d) == want).map(|d| (shape[d], strides[d]))
        };
        let mut inside: Dims = dims(true).collect();
        // The order of folding is free: memory's order, with the widest stride outermost.
        sort_axes(&mut inside, |a, b| a.1 > b.1);
        Plan { kept: coalesce(dims(false)), folded: coalesce(inside) }
    }

    /// Number of outputs.
    #[inline]
    pub fn outputs(&self) -> usize {
        self.kept.iter().map(|d| d.0).product()
    }

    /// Number of elements of each output.
    #[inline]
    pub fn count(&self) -> usize {
        self.folded.iter().map(|d| d.0).product()
    }

    /// The innermost folded dimension, and a walk over the others.
    #[inline(always)]
    pub fn folded(&self) -> ((usize, isize), &[(usize, isize)]) {
        self.folded.split_last().map_or(((1, 1), &[]), |(&inner, outer)| (inner, outer))
    }

    /// The innermost kept dimension, and the others.
    #[inline(always)]
    pub fn kept(&self) -> ((usize, isize), &[(usize, isize)]) {
        self.kept.split_last().map_or(((1, 1), &[]), |(&inner, outer)| (inner, outer))
    }

    /// True when neighbouring outputs are nearer in memory than neighbouring elements of an output,
    /// and there are enough of them for a vector.
    #[inline(always)]
    pub fn by_columns(&self) -> bool {
        let ((width, step), ((_, stride), _)) = (self.kept().0, self.folded());
        width >= 8 && step < stride
    }

    /// Width of the rows if the buffer is a dense matrix with narrow rows, folded into one row.
    pub fn narrow_columns(&self, limit: usize) -> Option<usize> {
        match (&self.kept[..], &self.folded[..]) {
            (&[(width, 1)], &[(_, stride)]) if width < limit && stride == width as isize => {
                Some(width)
            }
            _ => None,
        }
    }

    /// Where the outputs lie inside the outermost folded dimension, as channels do inside images: the plan whose outputs
    /// are those of each image, which goes through memory from end to end.
    pub fn of_images(&self) -> Option<Plan> {
        let (&(images, apart), folded) = self.folded.split_first()?;
        let inside = self.kept.iter().all(|&(_, stride)| (0..apart).contains(&stride));
        let kept = coalesce(std::iter::once((images, apart)).chain(self.kept.iter().copied()));
        (inside && !self.kept.is_empty() && !folded.is_empty())
            .then(|| Plan { kept, folded: folded.into() })
    }

    /// Cuts the longest folded dimension into `parts` parts (fewer if it is shorter), which become
    /// the outermost kept dimension, and a rest with its offset, if they do not come out even.
    pub fn split(&self, parts: usize, interleaved: bool) -> (Plan, Option<(Plan, isize)>) {
        let d =
            (0..self.folded.len()).max_by_key(|&d| self.folded[d].0).expect("something to fold");
        let (size, stride) = self.folded[d];
        let parts = parts.min(size);
        let each = size / parts;
        let (between_parts, within_part) = if interleaved {
            (stride, parts as isize * stride)
        } else {
            (each as isize * stride, stride)
        };
        let resized = |n: usize, s: isize| {
            let mut dims = self.folded.clone();
            dims[d] = (n, s);
            coalesce(dims)
        };
        let main = Plan {
            kept: coalesce(
                std::iter::once((parts, between_parts)).chain(self.kept.iter().copied()),
            ),
            folded: resized(each, within_part),
        };
        let done = parts * each;
        let rest = (done < size).then(|| {
            let rest = Plan { kept: self.kept.clone(), folded: resized(size - done, stride) };
            (rest, done as isize * stride)
        });
        (main, rest)
    }
}

/// Walks over all positions of some dimensions in row-major order.
#[derive(Clone)]
pub struct Walk<'a> {
    dims: &'a [(usize, isize)],
    index: SmallVec<[usize; 4]>,
    /// Offset of the current position, in elements.
    pub offset: isize,
}

impl<'a> Walk<'a> {
    /// A walk that starts at position number `start`.
    #[inline]
    pub fn new(dims: &'a [(usize, isize)], start: usize) -> Self {
        let (mut left, mut offset) = (start, 0);
        let mut index = SmallVec::new();
        if !dims.is_empty() {
            index.resize(dims.len(), 0);
        }
        for d in (0..dims.len()).rev() {
            let (size, stride) = dims[d];
            index[d] = left % size;
            left /= size;
            offset += index[d] as isize * stride;
        }
        Walk { dims, index, offset }
    }

    /// Goes to the next position; after the last one comes the first.
    #[inline(always)]
    pub fn advance(&mut self) {
        for d in (0..self.dims.len()).rev() {
            let (size, stride) = self.dims[d];
            self.index[d] += 1;
            self.offset += stride;
            if self.index[d] < size {
                return;
            }
            self.offset -= stride * size as isize;
            self.index[d] = 0;
        }
    }
}

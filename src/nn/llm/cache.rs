//! Keys and values of earlier tokens of one layer, `[batch, groups, length, width]`: as many as there are, or in buffers of a length
//! that is known before, which are written in place.

use crate::autograd::{is_grad_enabled, no_grad};
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// Keys and values that grow with the tokens: each step copies them.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::llm::GrowingCache};
/// let mut cache = GrowingCache::default();
/// let token = Tensor::ones([1, 2, 1, 4], Dtype::F32);
/// cache.extend(&token, &token);
/// let (keys, _) = cache.extend(&token, &token);
/// assert_eq!((keys.shape(), cache.length()), (&[1, 2, 2, 4][..], 2));
/// ```
#[derive(Clone, Debug, Default)]
pub struct GrowingCache {
    known: Option<(Tensor, Tensor)>,
}

impl GrowingCache {
    /// One that has these keys and values already.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] unless both are `[batch, groups, length, width]` of the same first three sizes.
    #[track_caller]
    pub fn from_tensors(keys: Tensor, values: Tensor) -> Self {
        check("GrowingCache", &keys, &values);
        GrowingCache { known: Some((keys, values)) }
    }

    /// Number of tokens in it.
    pub fn length(&self) -> usize {
        self.known.as_ref().map_or(0, |(keys, _)| keys.size(2))
    }

    /// Adds those of the next tokens; gives all.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] where they do not fit to those that are there.
    #[track_caller]
    pub fn extend(&mut self, keys: &Tensor, values: &Tensor) -> (Tensor, Tensor) {
        check("GrowingCache::extend", keys, values);
        let all = match &self.known {
            Some((old_keys, old_values)) => {
                (Tensor::cat(&[old_keys, keys], 2), Tensor::cat(&[old_values, values], 2))
            }
            None => (keys.clone(), values.clone()),
        };
        self.known = Some(all.clone());
        all
    }
}

/// Keys and values in buffers of a fixed length: a step writes its tokens behind the others. Under autograd, where one of
/// the tensors requires a gradient, the buffers are new at each step, so that backward finds what forward saw.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::llm::StaticCache, no_grad};
/// let buffer = || Tensor::zeros([1, 2, 8, 4], Dtype::F32);
/// let mut cache = StaticCache::new(buffer(), buffer());
/// let token = Tensor::ones([1, 2, 1, 4], Dtype::F32);
/// let (keys, _) = no_grad(|| cache.extend(&token, &token));
/// assert_eq!((keys.shape(), cache.length(), cache.capacity()), (&[1, 2, 1, 4][..], 1, 8));
/// ```
#[derive(Clone, Debug)]
pub struct StaticCache {
    keys: Tensor,
    values: Tensor,
    length: usize,
}

impl StaticCache {
    /// An empty one of these buffers, `[batch, groups, capacity, width]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] unless both have four dimensions and the same first three sizes.
    #[track_caller]
    pub fn new(keys: Tensor, values: Tensor) -> Self {
        Self::with_length(keys, values, 0)
    }

    /// One whose buffers have the keys and values of `length` tokens already.
    ///
    /// # Panics
    /// As [`new`](Self::new); throws [`Error::Argument`] for more tokens than there is room for.
    #[track_caller]
    pub fn with_length(keys: Tensor, values: Tensor, length: usize) -> Self {
        check("StaticCache", &keys, &values);
        if length > keys.size(2) {
            let message = format!("{length}; the buffers have room for {}", keys.size(2));
            throw(Error::argument("StaticCache", "length", message));
        }
        StaticCache { keys, values, length }
    }

    /// Number of tokens in it.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Number of tokens that there is room for.
    pub fn capacity(&self) -> usize {
        self.keys.size(2)
    }

    /// The buffers, whole.
    pub fn buffers(&self) -> (&Tensor, &Tensor) {
        (&self.keys, &self.values)
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Adds those of the next tokens; gives all so far, as views of the buffers.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] where they do not fit to the buffers, [`Error::Argument`] where there is no room for them.
    #[track_caller]
    pub fn extend(&mut self, keys: &Tensor, values: &Tensor) -> (Tensor, Tensor) {
        const OP: &str = "StaticCache::extend";
        check(OP, keys, values);
        let (start, more) = (self.length, keys.size(2));
        if start + more > self.capacity() {
            let message = format!(
                "{more} tokens after {start} others; there is room for {}",
                self.capacity()
            );
            throw(Error::argument(OP, "keys", message));
        }
        for (buffer, new) in [(&self.keys, keys), (&self.values, values)] {
            let fits = [0, 1, 3].iter().all(|&d| buffer.size(d) == new.size(d));
            if !fits || buffer.dtype() != new.dtype() {
                let message = format!(
                    "{:?} of {} for buffers of {:?} and {}; all sizes but the third and the type must be the same",
                    new.shape(),
                    new.dtype(),
                    buffer.shape(),
                    buffer.dtype()
                );
                throw(Error::shape(OP, message));
            }
        }
        self.keys = written(&self.keys, keys, start);
        self.values = written(&self.values, values, start);
        self.length += more;
        (self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length))
    }
}

/// The buffer with `new` at `start`: itself, or one that remembers where it is from.
fn written(buffer: &Tensor, new: &Tensor, start: usize) -> Tensor {
    let more = new.size(2);
    if is_grad_enabled() && (buffer.requires_grad() || new.requires_grad()) {
        let rest = buffer.size(2) - start - more;
        let parts = [&buffer.narrow(2, 0, start), new, &buffer.narrow(2, start + more, rest)];
        return Tensor::cat(&parts, 2);
    }
    no_grad(|| _ = buffer.narrow(2, start, more).copy_(new));
    buffer.clone()
}

#[track_caller]
fn check(op: &str, keys: &Tensor, values: &Tensor) {
    let (k, v) = (keys.shape(), values.shape());
    if k.len() != 4 || v.len() != 4 || k[..3] != v[..3] {
        let message = format!(
            "keys are {k:?} and values {v:?}; must be [batch, groups, length, width], of which widths alone may differ"
        );
        throw(Error::shape(op, message));
    }
}

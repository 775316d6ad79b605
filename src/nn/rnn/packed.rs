//! Batches of sequences of different lengths (`torch.nn.utils.rnn`).

use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// Sequences of different lengths without padding: the elements of all sequences at the first time
/// step, then those at the second, .. (`torch.nn.utils.rnn.PackedSequence`). The sequences are sorted,
/// the longest first.
///
/// ```
/// use torchrs::{Tensor, nn::pack_sequence};
/// let packed = pack_sequence(&[Tensor::from([1f32, 2., 3.]), Tensor::from([10f32])], true);
/// assert_eq!(packed.data.to_vec::<f32>(), [1.0, 10.0, 2.0, 3.0]);
/// assert_eq!(packed.batch_sizes, [2, 1, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct PackedSequence {
    /// `[sum of the lengths, ...]`.
    pub data: Tensor,
    /// Number of sequences that have a first, second, .. element; falling.
    pub batch_sizes: Vec<usize>,
    /// Where each of the sorted sequences was in the batch.
    pub sorted_indices: Option<Vec<i64>>,
}

impl PackedSequence {
    /// For each sequence of the batch its place among the sorted ones.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::pack_sequence};
    /// let sequences = [vec![1f32], vec![2.; 2], vec![3.; 3]].map(Tensor::from);
    /// let packed = pack_sequence(&sequences, false);
    /// assert_eq!(packed.sorted_indices, Some(vec![2, 1, 0]));
    /// assert_eq!(packed.unsorted_indices(), Some(vec![2, 1, 0]));
    /// ```
    pub fn unsorted_indices(&self) -> Option<Vec<i64>> {
        self.sorted_indices.as_ref().map(|sorted| {
            let mut places = vec![0; sorted.len()];
            for (place, &sequence) in sorted.iter().enumerate() {
                places[sequence as usize] = place as i64;
            }
            places
        })
    }
}

pub(super) fn rows(x: &Tensor, dim: i64, indices: &[i64]) -> Tensor {
    x.index_select(dim, &Tensor::from_slice(indices, [indices.len()]).to_device(x.device()))
}

/// Options of [`pack_padded_sequence`].
///
/// ```
/// use torchrs::{Tensor, nn::{PackPaddedSequenceOptions, pack_padded_sequence}};
/// let padded = Tensor::from([[1f32, 0.], [10., 20.]]);
/// let options = PackPaddedSequenceOptions { batch_first: true, enforce_sorted: false };
/// let packed = pack_padded_sequence(&padded, &[1, 2], options);
/// assert_eq!(packed.data.to_vec::<f32>(), [10.0, 1.0, 20.0]);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct PackPaddedSequenceOptions {
    /// Whether the input is `[batch, time, ...]`; otherwise it is `[time, batch, ...]`.
    pub batch_first: bool,
    /// Whether the lengths must fall already. Otherwise the sequences are sorted here.
    pub enforce_sorted: bool,
}

impl Default for PackPaddedSequenceOptions {
    /// Time first, sorted already.
    fn default() -> Self {
        PackPaddedSequenceOptions { batch_first: false, enforce_sorted: true }
    }
}

/// Packs `[time, batch, ...]` (or `[batch, time, ...]`) whose sequences have these lengths
/// (`torch.nn.utils.rnn.pack_padded_sequence`).
///
/// ```
/// use torchrs::{Tensor, nn::pack_padded_sequence};
/// // Two sequences, side by side, of lengths 3 and 1.
/// let padded = Tensor::from([[1f32, 10.], [2., 0.], [3., 0.]]);
/// let packed = pack_padded_sequence(&padded, &[3, 1], Default::default());
/// assert_eq!(packed.data.to_vec::<f32>(), [1.0, 10.0, 2.0, 3.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] for lengths that are not sorted, not positive, longer than the input,
/// or not one per sequence.
#[track_caller]
pub fn pack_padded_sequence(
    input: &Tensor,
    lengths: &[usize],
    options: PackPaddedSequenceOptions,
) -> PackedSequence {
    let PackPaddedSequenceOptions { batch_first, enforce_sorted } = options;
    let bad = |message: String| -> ! {
        throw(Error::argument("pack_padded_sequence", "lengths", message))
    };
    if input.dim() < 2 {
        let message = format!("takes [time, batch, ...], got {:?}", input.shape());
        throw(Error::shape("pack_padded_sequence", message));
    }
    let mut input = if batch_first { input.transpose(0, 1) } else { input.clone() };
    let (time, batch) = (input.size(0), input.size(1));
    if lengths.len() != batch {
        bad(format!("{} lengths for a batch of {batch}", lengths.len()));
    }
    if let Some(length) = lengths.iter().find(|&&n| n == 0 || n > time) {
        bad(format!("{length} is not between 1 and the input's {time}"));
    }
    let mut order: Vec<i64> = (0..batch as i64).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(lengths[i as usize]));
    let sorted_indices = if enforce_sorted {
        if !lengths.is_sorted_by(|a, b| a >= b) {
            bad(format!("{lengths:?} do not fall, which enforce_sorted asks for"));
        }
        None
    } else {
        input = rows(&input, 1, &order);
        Some(order.clone())
    };
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let batch_sizes: Vec<usize> =
        (0..longest).map(|t| lengths.iter().filter(|&&n| n > t).count()).collect();
    let steps: Vec<Tensor> = batch_sizes
        .iter()
        .enumerate()
        .map(|(t, &n)| input.select(0, t as i64).narrow(0, 0, n))
        .collect();
    PackedSequence { data: Tensor::cat(&steps, 0), batch_sizes, sorted_indices }
}

/// Options of [`pad_packed_sequence`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PadPackedSequenceOptions {
    /// Whether the result is `[batch, time, ...]`; otherwise it is `[time, batch, ...]`.
    pub batch_first: bool,
    /// What stands behind a sequence's end.
    pub padding_value: f64,
    /// Pads to this length, not to that of the longest sequence.
    pub total_length: Option<usize>,
}

/// The padded form of packed sequences, and their lengths (`torch.nn.utils.rnn.pad_packed_sequence`).
///
/// ```
/// use torchrs::{Tensor, nn::{PadPackedSequenceOptions, pack_sequence, pad_packed_sequence}};
/// let packed = pack_sequence(&[Tensor::from([10f32]), Tensor::from([1f32, 2.])], false);
/// let options =
///     PadPackedSequenceOptions { batch_first: true, padding_value: -1.0, ..Default::default() };
/// let (padded, lengths) = pad_packed_sequence(&packed, options);
/// assert_eq!((padded.to_vec::<f32>(), lengths), (vec![10.0, -1.0, 1.0, 2.0], vec![1, 2]));
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] when `total_length` is less than the longest sequence.
#[track_caller]
pub fn pad_packed_sequence(
    sequence: &PackedSequence,
    options: PadPackedSequenceOptions,
) -> (Tensor, Vec<usize>) {
    let PadPackedSequenceOptions { batch_first, padding_value, total_length } = options;
    let sizes = &sequence.batch_sizes;
    let time = total_length.unwrap_or(sizes.len());
    if time < sizes.len() {
        let message = format!("{time} is less than the longest sequence, {}", sizes.len());
        throw(Error::argument("pad_packed_sequence", "total_length", message));
    }
    let (data, batch) = (&sequence.data, sizes.first().copied().unwrap_or(0));
    let padding = |rows: usize| {
        let mut shape = data.shape().to_vec();
        shape[0] = rows;
        Tensor::full(&shape[..], padding_value, (data.dtype(), data.device()))
    };
    let mut start = 0;
    let steps: Vec<Tensor> = (0..time)
        .map(|t| {
            let n = sizes.get(t).copied().unwrap_or(0);
            let step = data.narrow(0, start, n);
            start += n;
            if n < batch { Tensor::cat(&[step, padding(batch - n)], 0) } else { step }
        })
        .collect();
    let mut padded = Tensor::stack(&steps, 0);
    let mut lengths: Vec<usize> =
        (0..batch).map(|i| sizes.iter().filter(|&&n| n > i).count()).collect();
    if let Some(places) = sequence.unsorted_indices() {
        padded = rows(&padded, 1, &places);
        lengths = places.iter().map(|&place| lengths[place as usize]).collect();
    }
    (if batch_first { padded.transpose(0, 1) } else { padded }, lengths)
}

/// Options of [`pad_sequence`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PadSequenceOptions {
    /// Whether the result is `[batch, time, ...]`; otherwise it is `[time, batch, ...]`.
    pub batch_first: bool,
    /// What fills a sequence up.
    pub padding_value: f64,
    /// Whether it stands before a sequence (PyTorch's `padding_side="left"`), not behind it.
    pub padding_left: bool,
}

/// Sequences `[length, ...]` side by side, filled up to the longest one's length
/// (`torch.nn.utils.rnn.pad_sequence`).
///
/// ```
/// use torchrs::{Tensor, nn::{PadSequenceOptions, pad_sequence}};
/// let sequences = [Tensor::from([10f32]), Tensor::from([1f32, 2.])];
/// let right = PadSequenceOptions { batch_first: true, ..Default::default() };
/// assert_eq!(pad_sequence(&sequences, right).to_vec::<f32>(), [10.0, 0.0, 1.0, 2.0]);
/// let left = PadSequenceOptions { padding_left: true, ..right };
/// assert_eq!(pad_sequence(&sequences, left).to_vec::<f32>(), [0.0, 10.0, 1.0, 2.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] for an empty list.
#[track_caller]
pub fn pad_sequence(sequences: &[Tensor], options: PadSequenceOptions) -> Tensor {
    let PadSequenceOptions { batch_first, padding_value, padding_left } = options;
    let Some(longest) = sequences.iter().map(|s| s.size(0)).max() else {
        throw(Error::argument("pad_sequence", "sequences", "is empty"));
    };
    let padded: Vec<Tensor> = sequences
        .iter()
        .map(|s| {
            let mut shape = s.shape().to_vec();
            shape[0] = longest - s.size(0);
            let padding = Tensor::full(&shape[..], padding_value, (s.dtype(), s.device()));
            let parts = if padding_left { [padding, s.clone()] } else { [s.clone(), padding] };
            Tensor::cat(&parts, 0)
        })
        .collect();
    Tensor::stack(&padded, if batch_first { 0 } else { 1 })
}

/// Packs sequences `[length, ...]` (`torch.nn.utils.rnn.pack_sequence`). With `enforce_sorted` their
/// lengths must fall already.
///
/// ```
/// use torchrs::{Tensor, catch, nn::pack_sequence};
/// let rising = [Tensor::from([10f32]), Tensor::from([1f32, 2.])];
/// assert_eq!(pack_sequence(&rising, false).data.to_vec::<f32>(), [1.0, 10.0, 2.0]);
/// assert!(catch(|| pack_sequence(&rising, true)).is_err());
/// ```
///
/// # Panics
/// As [`pack_padded_sequence`], and for an empty list.
#[track_caller]
pub fn pack_sequence(sequences: &[Tensor], enforce_sorted: bool) -> PackedSequence {
    let lengths: Vec<usize> = sequences.iter().map(|s| s.size(0)).collect();
    let padded = pad_sequence(sequences, Default::default());
    let options = PackPaddedSequenceOptions { enforce_sorted, ..Default::default() };
    pack_padded_sequence(&padded, &lengths, options)
}

/// Copies of the sequences of a padded batch, without the padding (`torch.nn.utils.rnn.unpad_sequence`).
///
/// ```
/// use torchrs::{Tensor, nn::unpad_sequence};
/// let padded = Tensor::from([[10f32, 0.], [1., 2.]]);
/// let sequences = unpad_sequence(&padded, &[1, 2], true);
/// assert_eq!((sequences[0].to_vec::<f32>(), sequences[1].to_vec::<f32>()), (vec![10.0], vec![1.0, 2.0]));
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] when there is not a length per sequence.
#[track_caller]
pub fn unpad_sequence(padded: &Tensor, lengths: &[usize], batch_first: bool) -> Vec<Tensor> {
    let padded = if batch_first { padded.clone() } else { padded.transpose(0, 1) };
    if padded.size(0) != lengths.len() {
        let message = format!("{} for a batch of {}", lengths.len(), padded.size(0));
        throw(Error::argument("unpad_sequence", "lengths", message));
    }
    let sequence =
        |(i, &n): (usize, &usize)| padded.select(0, i as i64).narrow(0, 0, n).clone_contiguous();
    lengths.iter().enumerate().map(sequence).collect()
}

/// The sequences that were packed, in the order of the batch (`torch.nn.utils.rnn.unpack_sequence`).
///
/// ```
/// use torchrs::{Tensor, nn::{pack_sequence, unpack_sequence}};
/// let sequences = [Tensor::from([10f32]), Tensor::from([1f32, 2.])];
/// let again = unpack_sequence(&pack_sequence(&sequences, false));
/// assert!(again.iter().zip(&sequences).all(|(a, b)| a.equal(b)));
/// ```
#[track_caller]
pub fn unpack_sequence(packed: &PackedSequence) -> Vec<Tensor> {
    let options = PadPackedSequenceOptions { batch_first: true, ..Default::default() };
    let (padded, lengths) = pad_packed_sequence(packed, options);
    unpad_sequence(&padded, &lengths, true)
}

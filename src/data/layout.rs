//! How a batch lies in a slot of memory: a table of words that describes the columns, then one
//! column per field of the samples, each starting at a cache line. Dense columns hold the samples'
//! elements one after the other, which is a tensor; columns of byte strings hold their end
//! positions, and their bytes follow behind all columns.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Error, Result};
use crate::tensor::{Dtype, Shape};

/// Alignment of columns in bytes: a cache line, and the widest vector register.
pub(super) const ALIGNMENT: usize = 64;
/// Stand in the table where dense columns have their dtype's number.
const BYTES_CODE: u64 = 255;
const LIST_CODE: u64 = 254;
const NAME_CODE: u64 = 253;
/// Added to the dtype's number.
const RAGGED_CODE: u64 = 128;

/// A slot's bytes, mapped read-write. Copying the handle copies no bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotMemory {
    pub ptr: *mut u8,
    pub len: usize,
}

/// What one field of every sample is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Field {
    /// A tensor of this dtype and shape.
    Dense { dtype: Dtype, shape: Shape },
    /// A byte string of any length.
    Bytes,
    /// The next `len` fields are a list; takes no room itself.
    List { len: usize },
    /// What the next field is called; takes no room itself.
    Name(String),
    /// Any number of rows of this dtype and shape.
    Ragged { dtype: Dtype, shape: Shape },
}

impl Field {
    /// Whether its values are of any length and lie behind the columns.
    pub fn has_tail(&self) -> bool {
        matches!(self, Field::Bytes | Field::Ragged { .. })
    }
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Field::Dense { dtype, shape } => write!(f, "{dtype} {:?}", shape.as_slice()),
            Field::Bytes => f.write_str("a byte string"),
            Field::List { len } => write!(f, "a list of {len}"),
            Field::Name(name) => write!(f, "the name `{name}`"),
            Field::Ragged { dtype, shape } => {
                write!(f, "ragged rows of {dtype} {:?}", shape.as_slice())
            }
        }
    }
}

/// One field of all samples of a batch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    pub field: Field,
    /// Where it starts in the slot.
    pub offset: usize,
    /// Bytes per sample: the elements, or for byte strings one end position.
    pub row_bytes: usize,
    /// Where the bytes of byte strings start.
    pub tail: usize,
    /// How many these are in all.
    pub tail_bytes: usize,
}

/// The columns of a batch and their places.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BatchLayout {
    pub samples: usize,
    pub columns: Vec<Column>,
    /// Bytes used so far: the table and the columns, then also the byte strings.
    pub end: usize,
}

impl BatchLayout {
    /// Places for `samples` samples with these fields.
    pub fn plan(fields: Vec<Field>, samples: usize) -> Result<Self> {
        Self::try_plan(fields, samples).ok_or_else(|| {
            let message = format!("a batch of {samples} samples does not fit in the address space");
            Error::shape("DataLoader", message)
        })
    }

    fn try_plan(fields: Vec<Field>, samples: usize) -> Option<Self> {
        let words = 2 + fields.iter().map(words_of).sum::<usize>();
        let mut end = (words * 8).next_multiple_of(ALIGNMENT);
        let mut columns = Vec::with_capacity(fields.len());
        for field in fields {
            let row_bytes = match &field {
                Field::Dense { dtype, shape } => {
                    shape.iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size))?
                }
                Field::Bytes | Field::Ragged { .. } => size_of::<u64>(),
                Field::List { .. } | Field::Name(_) => 0,
            };
            let offset = end;
            end = row_bytes
                .checked_mul(samples)?
                .checked_add(offset)?
                .checked_next_multiple_of(ALIGNMENT)
                .filter(|&end| end <= isize::MAX as usize)?;
            columns.push(Column { field, offset, row_bytes, tail: 0, tail_bytes: 0 });
        }
        Some(BatchLayout { samples, columns, end })
    }

    /// Gives the byte strings of column `column` their place behind what is there.
    pub fn place_tail(&mut self, column: usize, bytes: usize) {
        self.columns[column].tail = self.end;
        self.columns[column].tail_bytes = bytes;
        self.end = (self.end + bytes).next_multiple_of(ALIGNMENT);
    }

    /// Writes the table to the beginning of a slot.
    ///
    /// # Panics
    /// If the slot is smaller than [`end`](Self::end).
    #[track_caller]
    pub fn write_table(&self, slot: SlotMemory) {
        assert!(self.end <= slot.len, "a batch of {} bytes in a slot of {}", self.end, slot.len);
        let mut words = vec![self.samples as u64, self.columns.len() as u64];
        for column in &self.columns {
            match &column.field {
                Field::Bytes => words.extend([BYTES_CODE, 0]),
                Field::List { len } => words.extend([LIST_CODE, *len as u64]),
                Field::Name(name) => {
                    words.extend([NAME_CODE, name.len() as u64]);
                    words.extend(name.as_bytes().chunks(8).map(|bytes| {
                        let mut word = [0; 8];
                        word[..bytes.len()].copy_from_slice(bytes);
                        u64::from_le_bytes(word)
                    }));
                }
                Field::Dense { dtype, shape } | Field::Ragged { dtype, shape } => {
                    let ragged = matches!(column.field, Field::Ragged { .. });
                    let code = *dtype as u64 + if ragged { RAGGED_CODE } else { 0 };
                    words.extend([code, shape.len() as u64]);
                    words.extend(shape.iter().map(|&size| size as u64));
                }
            }
            words.extend([column.tail as u64, column.tail_bytes as u64]);
        }
        for (at, word) in words.into_iter().enumerate() {
            // SAFETY: `plan` reserved room for these words at the beginning, the slot is as long
            // as `end` by the assertion, and it is aligned to a cache line.
            unsafe { AtomicU64::from_ptr(slot.ptr.cast::<u64>().add(at)) }.store(word, Relaxed);
        }
    }

    /// Reads a table that [`write_table`](Self::write_table) wrote, perhaps in another process, and
    /// checks that everything it speaks of lies inside the slot.
    pub fn read_table(slot: SlotMemory) -> Result<Self> {
        let mut at = 0;
        let mut next = || {
            let word = at;
            at += 1;
            if at * 8 > slot.len {
                return Err(damaged());
            }
            // SAFETY: inside the slot, as just checked, which is aligned to a cache line.
            let word = unsafe { AtomicU64::from_ptr(slot.ptr.cast::<u64>().add(word)) };
            Ok(word.load(Relaxed) as usize)
        };
        let (samples, columns) = (next()?, next()?);
        let (mut fields, mut tails) = (Vec::new(), Vec::new());
        for _ in 0..columns {
            let (code, dims) = (next()?, next()?);
            fields.push(match code as u64 {
                BYTES_CODE => Field::Bytes,
                LIST_CODE => Field::List { len: dims },
                NAME_CODE => {
                    let words = (0..dims.div_ceil(8)).map(|_| next());
                    let words = words.collect::<Result<Vec<usize>>>()?;
                    let bytes = words.iter().flat_map(|word| (*word as u64).to_le_bytes());
                    let name = String::from_utf8(bytes.take(dims).collect());
                    Field::Name(name.map_err(|_| damaged())?)
                }
                code => {
                    let ragged = code & RAGGED_CODE != 0;
                    let dtype = (code & !RAGGED_CODE) as usize;
                    let dtype = *Dtype::ALL.get(dtype).ok_or_else(damaged)?;
                    let shape = (0..dims).map(|_| next()).collect::<Result<_>>()?;
                    match ragged {
                        true => Field::Ragged { dtype, shape },
                        false => Field::Dense { dtype, shape },
                    }
                }
            });
            tails.push((next()?, next()?));
        }
        let mut layout = Self::plan(fields, samples)?;
        for (column, (tail, tail_bytes)) in layout.columns.iter_mut().zip(tails) {
            (column.tail, column.tail_bytes) = (tail, tail_bytes);
            let end = tail.checked_add(tail_bytes).ok_or_else(damaged)?;
            let end = end.checked_next_multiple_of(ALIGNMENT).ok_or_else(damaged)?;
            layout.end = layout.end.max(end);
        }
        if layout.end > slot.len { Err(damaged()) } else { Ok(layout) }
    }
}

/// Words in the table for a field.
fn words_of(field: &Field) -> usize {
    match field {
        Field::Dense { shape, .. } | Field::Ragged { shape, .. } => 4 + shape.len(),
        Field::Name(name) => 4 + name.len().div_ceil(8),
        Field::Bytes | Field::List { .. } => 4,
    }
}

fn damaged() -> Error {
    Error::Other("DataLoader: a worker's description of its batch is damaged".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dense(dtype: Dtype, shape: &[usize]) -> Field {
        Field::Dense { dtype, shape: Shape::from_slice(shape) }
    }

    /// Memory aligned as slots are.
    fn slot(words: &mut [[u64; 8]]) -> SlotMemory {
        SlotMemory { ptr: words.as_mut_ptr().cast(), len: size_of_val(words) }
    }

    #[test]
    fn columns_are_aligned_disjoint_and_survive_the_table() {
        let list = Field::List { len: 2 };
        let name = Field::Name("a name of 19 bytes.".to_owned());
        let ragged = Field::Ragged { dtype: Dtype::BF16, shape: Shape::from_slice(&[4]) };
        let fields = vec![
            dense(Dtype::F32, &[3, 5]),
            Field::Bytes,
            list,
            dense(Dtype::Bool, &[]),
            name,
            ragged,
        ];
        let mut layout = BatchLayout::plan(fields, 7).unwrap();
        layout.place_tail(1, 100);
        let mut end = 0;
        for column in &layout.columns {
            assert_eq!(column.offset % ALIGNMENT, 0);
            assert!(column.offset >= end);
            end = column.offset + 7 * column.row_bytes;
        }
        assert!(layout.columns[1].tail >= end && layout.end >= layout.columns[1].tail + 100);
        let mut words = vec![[0; 8]; layout.end / 64 + 1];
        layout.write_table(slot(&mut words));
        assert_eq!(BatchLayout::read_table(slot(&mut words)).unwrap(), layout);
    }

    #[test]
    fn sizes_that_overflow_are_an_error() {
        let huge = dense(Dtype::F64, &[usize::MAX / 4, 3]);
        assert!(BatchLayout::plan(vec![huge], 1).is_err());
        let large = dense(Dtype::U8, &[1 << 40]);
        assert!(BatchLayout::plan(vec![large, dense(Dtype::U8, &[])], 1 << 40).is_err());
    }

    proptest! {
        /// Whatever is in the slot, the table is refused or describes ranges inside the slot.
        #[test]
        fn garbage_never_points_outside(mut words in prop::collection::vec(any::<[u8; 8]>(), 32)) {
            let mut table: Vec<[u64; 8]> = vec![[0; 8]; 4];
            for (k, bytes) in words.drain(..).enumerate() {
                // Small numbers get past the first checks more often.
                table[k / 8][k % 8] = u64::from_le_bytes(bytes) >> (8 * (bytes[0] % 8));
            }
            let slot = slot(&mut table);
            if let Ok(layout) = BatchLayout::read_table(slot) {
                for column in &layout.columns {
                    prop_assert!(column.offset + column.row_bytes * layout.samples <= slot.len);
                    prop_assert!(column.tail + column.tail_bytes <= slot.len);
                }
            }
        }
    }
}

//! A batch that is being made, as a sample's [`write`](super::Sample::write) fills it.

use super::layout::{BatchLayout, Column, Field, SlotMemory};
use crate::cpu::elementwise::streaming::{copy_streaming, finish};
use crate::tensor::dispatch;
use crate::tensor::{Complex, Dtype, Element, Shape, Tensor};

/// Smaller rows are not worth being written past the cache.
const STREAMING_ROW: usize = 4 << 10;

/// Receives the fields of a sample; see [`Sample::write`](super::Sample::write).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
/// # use torchrs::Tensor;
/// # #[derive(Clone)]
/// struct Named(&'static str, f32);
/// impl Sample for Named {
/// #     type Batch = (Vec<Vec<u8>>, Tensor);
///     fn write(&self, out: &mut SampleWriter) {
///         out.bytes(self.0.as_bytes());
///         out.elements(&[], &[self.1]);
///     }
/// #     fn batch(columns: &mut Columns) -> Self::Batch { (columns.bytes(), columns.tensor()) }
/// }
/// # fn main() -> torchrs::Result<()> {
/// let loader = DataLoader::builder(List(vec![Named("a", 1.0)])).build()?;
/// let (names, numbers) = loader.iter().next().unwrap()?;
/// assert_eq!((names, numbers.to_vec::<f32>()), (vec![b"a".to_vec()], vec![1.0]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SampleWriter<'a> {
    pass: Pass<'a>,
    field: usize,
    problem: Option<String>,
}

#[derive(Debug)]
enum Pass<'a> {
    Describe(&'a mut Vec<Field>),
    Store { rows: &'a mut Rows, row: usize },
}

/// The columns of a batch that is being made.
#[derive(Debug)]
pub(super) struct Rows {
    pub layout: BatchLayout,
    pub memory: SlotMemory,
    /// Whether large rows are written past the cache.
    pub streaming: bool,
    /// For each column of byte strings, all bytes so far.
    pub tails: Vec<Vec<u8>>,
}

impl Rows {
    /// Gives the byte strings, whose size is known when all samples are there, their place behind
    /// the columns. The slot may be too small then.
    pub fn place_tails(&mut self) {
        for column in 0..self.layout.columns.len() {
            if self.layout.columns[column].field.has_tail() {
                self.layout.place_tail(column, self.tails[column].len());
            }
        }
    }

    /// Writes the byte strings and the table that describes the batch.
    ///
    /// # Panics
    /// If the slot is too small.
    #[track_caller]
    pub fn finish(&mut self) {
        assert!(self.layout.end <= self.memory.len, "a slot that holds the batch");
        for (column, tail) in self.layout.columns.iter().zip(&self.tails) {
            // SAFETY: the layout's end, which is behind every tail, is inside the slot.
            unsafe {
                let place = self.memory.ptr.add(column.tail);
                place.copy_from_nonoverlapping(tail.as_ptr(), tail.len());
            }
        }
        self.layout.write_table(self.memory);
    }
}

impl SampleWriter<'_> {
    /// The fields that `write` hands over.
    pub(super) fn describe(write: impl FnOnce(&mut SampleWriter)) -> Vec<Field> {
        let mut fields = Vec::new();
        let pass = Pass::Describe(&mut fields);
        write(&mut SampleWriter { pass, field: 0, problem: None });
        fields
    }

    /// Copies the bytes that `write` hands over into row `row`, or says how the sample differs from the batch.
    pub(super) fn store(
        write: impl FnOnce(&mut SampleWriter),
        rows: &mut Rows,
        row: usize,
    ) -> Result<(), String> {
        let expected = rows.layout.columns.len();
        let pass = Pass::Store { rows, row };
        let mut writer = SampleWriter { pass, field: 0, problem: None };
        write(&mut writer);
        let found = writer.field;
        match writer.problem {
            Some(problem) => Err(problem),
            None if found != expected => Err(format!(
                "the samples of a batch must be alike: this one has {found} fields, but \
                     {expected} in the batch's first sample"
            )),
            None => Ok(()),
        }
    }

    /// A field of `values` in the given shape.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
    /// # use torchrs::Tensor;
    /// # #[derive(Clone)]
    /// struct Own([i64; 2]);
    /// impl Sample for Own {
    /// #     type Batch = Tensor;
    ///     fn write(&self, out: &mut SampleWriter) {
    ///         out.elements(&[2, 1], &self.0);
    ///     }
    /// #     fn batch(columns: &mut Columns) -> Self::Batch {
    /// #         columns.tensor()
    /// #     }
    /// }
    /// # fn main() -> torchrs::Result<()> {
    /// let samples = List(vec![Own([1, 2]), Own([3, 4])]);
    /// let loader = DataLoader::builder(samples).batch_size(2).build()?;
    /// let batch = loader.iter().next().unwrap()?;
    /// assert_eq!((batch.shape(), batch.to_vec::<i64>()), (&[2, 2, 1][..], vec![1, 2, 3, 4]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If `values` are not as many as the shape has elements.
    #[track_caller]
    pub fn elements<T: Element>(&mut self, shape: &[usize], values: &[T]) {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "elements of shape {shape:?}");
        let (from, bytes) = (values.as_ptr().cast::<u8>(), size_of_val(values));
        self.dense(T::DTYPE, shape, |row, streaming| {
            // SAFETY: `dense` gives the address of a row with room for these elements, which
            // belongs to the batch being made and to nobody else.
            unsafe {
                match streaming {
                    true => {
                        copy_streaming(row, from, bytes);
                        finish();
                    }
                    false => row.copy_from_nonoverlapping(from, bytes),
                }
            }
        });
    }

    /// A tensor field.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
    /// # use torchrs::Tensor;
    /// # #[derive(Clone)]
    /// struct Own(Tensor);
    /// impl Sample for Own {
    /// #     type Batch = Tensor;
    ///     fn write(&self, out: &mut SampleWriter) {
    ///         out.tensor(&self.0);
    ///     }
    /// #     fn batch(columns: &mut Columns) -> Self::Batch {
    /// #         columns.tensor()
    /// #     }
    /// }
    /// # fn main() -> torchrs::Result<()> {
    /// let samples = List(vec![Own(Tensor::from([1i64, 2])), Own(Tensor::from([3i64, 4]))]);
    /// let loader = DataLoader::builder(samples).batch_size(2).build()?;
    /// assert_eq!(loader.iter().next().unwrap()?.to_vec::<i64>(), [1, 2, 3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tensor(&mut self, tensor: &Tensor) {
        match tensor.dtype() {
            Dtype::C64 => self.tensor_of::<Complex<f32>>(tensor),
            Dtype::C128 => self.tensor_of::<Complex<f64>>(tensor),
            dtype => dispatch!(dtype, T => self.tensor_of::<T>(tensor)),
        }
    }

    fn tensor_of<T: Element>(&mut self, tensor: &Tensor) {
        let numel = tensor.numel();
        if tensor.is_contiguous() && numel > 0 {
            // SAFETY: contiguous, so `numel` elements of type T, the tensor's, lie behind `data_ptr`,
            // which lives as long as the tensor.
            let values =
                unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast::<T>(), numel) };
            self.elements(tensor.shape(), values);
        } else {
            let mut values = Vec::with_capacity(numel);
            tensor.for_each_element::<T>(|value| values.push(value));
            self.elements(tensor.shape(), &values);
        }
    }

    /// Says that the next `len` fields are a list, which has to be as long in all samples.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
    /// # use torchrs::Tensor;
    /// # #[derive(Clone)]
    /// struct Own(Vec<f32>);
    /// impl Sample for Own {
    /// #     type Batch = Vec<Tensor>;
    ///     fn write(&self, out: &mut SampleWriter) {
    ///         out.list(self.0.len());
    ///         self.0.iter().for_each(|x| x.write(out));
    ///     }
    /// #     fn batch(columns: &mut Columns) -> Self::Batch {
    /// #         (0..columns.list()).map(|_| columns.tensor()).collect()
    /// #     }
    /// }
    /// # fn main() -> torchrs::Result<()> {
    /// let samples = List(vec![Own(vec![1.0, 2.0]), Own(vec![3.0, 4.0])]);
    /// let loader = DataLoader::builder(samples).batch_size(2).build()?;
    /// let places = loader.iter().next().unwrap()?;
    /// assert_eq!((places.len(), places[0].to_vec::<f32>()), (2, vec![1.0, 3.0]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&mut self, len: usize) {
        self.mark(Field::List { len });
    }

    /// The name of the next field, which has to be the same in all samples.
    pub fn name(&mut self, name: &str) {
        self.mark(Field::Name(name.to_owned()));
    }

    /// A field without bytes, which has to be alike in all samples.
    fn mark(&mut self, mark: Field) {
        let field = self.next_field();
        match &mut self.pass {
            Pass::Describe(fields) => fields.push(mark),
            Pass::Store { rows, .. } => {
                let expected = rows.layout.columns.get(field).map(|c| c.field.clone());
                if expected.as_ref() != Some(&mark) {
                    self.mismatch(field, &mark, expected);
                }
            }
        }
    }

    /// The rows of a tensor, of any number; their shape has to be the same in all samples.
    ///
    /// # Panics
    /// If the tensor has no dimension.
    #[track_caller]
    pub fn rows(&mut self, tensor: &Tensor) {
        assert!(
            !tensor.shape().is_empty(),
            "SampleWriter::rows: a tensor without a dimension has no rows"
        );
        match tensor.dtype() {
            Dtype::C64 => self.rows_of::<Complex<f32>>(tensor),
            Dtype::C128 => self.rows_of::<Complex<f64>>(tensor),
            dtype => dispatch!(dtype, T => self.rows_of::<T>(tensor)),
        }
    }

    fn rows_of<T: Element>(&mut self, tensor: &Tensor) {
        let (dtype, shape) = (tensor.dtype(), Shape::from_slice(&tensor.shape()[1..]));
        self.tail(Field::Ragged { dtype, shape }, |tail| {
            tensor.for_each_element::<T>(|value| {
                // SAFETY: elements are plain numbers without padding: all of their bytes are initialised.
                let bytes = unsafe {
                    std::slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>())
                };
                tail.extend_from_slice(bytes);
            });
        });
    }

    /// A byte string; those of one batch may differ in length.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
    /// # use torchrs::Tensor;
    /// # #[derive(Clone)]
    /// struct Own(&'static str);
    /// impl Sample for Own {
    /// #     type Batch = Vec<Vec<u8>>;
    ///     fn write(&self, out: &mut SampleWriter) {
    ///         out.bytes(self.0.as_bytes());
    ///     }
    /// #     fn batch(columns: &mut Columns) -> Self::Batch {
    /// #         columns.bytes()
    /// #     }
    /// }
    /// # fn main() -> torchrs::Result<()> {
    /// let samples = List(vec![Own("ab"), Own("cde")]);
    /// let loader = DataLoader::builder(samples).batch_size(2).build()?;
    /// assert_eq!(loader.iter().next().unwrap()?, [&b"ab"[..], b"cde"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.tail(Field::Bytes, |tail| tail.extend_from_slice(bytes));
    }

    /// A field of any length, whose bytes `append` appends to those of the rows before.
    fn tail(&mut self, found: Field, append: impl FnOnce(&mut Vec<u8>)) {
        let field = self.next_field();
        match &mut self.pass {
            Pass::Describe(fields) => fields.push(found),
            Pass::Store { rows, row } => match rows.layout.columns.get(field) {
                Some(column) if column.field == found => {
                    let tail = &mut rows.tails[field];
                    append(tail);
                    let end = rows.memory.ptr.wrapping_add(column.offset + 8 * *row).cast::<u64>();
                    // SAFETY: the planned column has a word for each row of the batch.
                    unsafe { end.write(tail.len() as u64) };
                }
                other => {
                    let expected = other.map(|c| c.field.clone());
                    self.mismatch(field, &found, expected);
                }
            },
        }
    }

    /// Describes a field, or has `copy` write it: to which address, and whether past the cache.
    fn dense(&mut self, dtype: Dtype, shape: &[usize], copy: impl FnOnce(*mut u8, bool)) {
        let field = self.next_field();
        match &mut self.pass {
            Pass::Describe(fields) => {
                fields.push(Field::Dense { dtype, shape: Shape::from_slice(shape) });
            }
            Pass::Store { rows, row } => match rows.layout.columns.get(field) {
                Some(Column {
                    field: Field::Dense { dtype: d, shape: s },
                    offset,
                    row_bytes,
                    ..
                }) if *d == dtype && **s == *shape => {
                    let streaming = rows.streaming && *row_bytes >= STREAMING_ROW;
                    copy(rows.memory.ptr.wrapping_add(offset + row_bytes * *row), streaming);
                }
                other => {
                    let expected = other.map(|c| c.field.clone());
                    let found = Field::Dense { dtype, shape: Shape::from_slice(shape) };
                    self.mismatch(field, &found, expected);
                }
            },
        }
    }

    fn next_field(&mut self) -> usize {
        self.field += 1;
        self.field - 1
    }

    /// Keeps the first difference between a sample and its batch.
    fn mismatch(&mut self, field: usize, found: &Field, expected: Option<Field>) {
        // A field too many is reported by their number.
        if let (None, Some(expected)) = (&self.problem, expected) {
            self.problem = Some(format!(
                "the samples of a batch must be alike: field {field} is {found}, but {expected} in \
                 the batch's first sample"
            ));
        }
    }
}

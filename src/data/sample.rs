//! From samples to batches (`torch.utils.data.default_collate`). A [`Sample`] writes its fields
//! into a row of the batch's columns, which lie in a reusable slot of memory, and builds the batch
//! from the columns afterwards without a copy.

use std::sync::Arc;

use super::layout::{BatchLayout, Column, Field, SlotMemory};
use super::upload::to_device;
use crate::cpu::streaming::copy_streaming;
use crate::dispatch;
use crate::error::throw;
use crate::storage::{SharedMemory, Storage};
use crate::tensor::{Complex, Device, Dtype, Element, Layout, Shape, Tensor};

/// Smaller rows are not worth being written past the cache.
const STREAMING_ROW: usize = 4 << 10;

/// What a [`Dataset`](super::Dataset) returns and a [`DataLoader`](super::DataLoader) makes batches
/// of.
///
/// | sample | its batch of n |
/// | --- | --- |
/// | `Tensor` of shape `[..]` | `Tensor` of shape `[n, ..]` |
/// | a number or `bool` | `Tensor` of shape `[n]` |
/// | `Vec<T>` or `[T; k]` of numbers | `Tensor` of shape `[n, k]` |
/// | `String`, [`Blob`] | `Vec<String>`, `Vec<Blob>`, of any lengths |
/// | `Vec<Tensor>` | `Vec<Tensor>`, one for each place |
/// | a tuple | the tuple of batches |
///
/// A struct passes both methods on to its fields, in the same order:
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::data::{Columns, Sample, SampleWriter};
///
/// struct Labelled { image: Tensor, label: i64 }
/// struct LabelledBatch { images: Tensor, labels: Tensor }
///
/// impl Sample for Labelled {
///     type Batch = LabelledBatch;
///     fn write(&self, out: &mut SampleWriter) {
///         self.image.write(out);
///         self.label.write(out);
///     }
///     fn batch(columns: &mut Columns) -> LabelledBatch {
///         LabelledBatch { images: Tensor::batch(columns), labels: i64::batch(columns) }
///     }
/// }
/// ```
pub trait Sample: Sized + 'static {
    /// What a batch of these samples is.
    type Batch: Send + 'static;

    /// Hands every field to `out`, always in the same order. It is called twice for the first
    /// sample of a batch: once to learn the fields, then to take the bytes.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
    /// # use torchrs::Tensor;
    /// # #[derive(Clone)]
    /// struct Point { x: f32, y: f32 }
    /// impl Sample for Point {
    /// #     type Batch = (Tensor, Tensor);
    ///     fn write(&self, out: &mut SampleWriter) {
    ///         self.x.write(out);
    ///         self.y.write(out);
    ///     }
    /// #     fn batch(columns: &mut Columns) -> Self::Batch { (f32::batch(columns), f32::batch(columns)) }
    /// }
    /// # fn main() -> torchrs::Result<()> {
    /// let points = List(vec![Point { x: 1.0, y: 2.0 }, Point { x: 3.0, y: 4.0 }]);
    /// let (x, y) = DataLoader::builder(points).batch_size(2).build()?.iter().next().unwrap()?;
    /// assert_eq!((x.to_vec::<f32>(), y.to_vec::<f32>()), (vec![1.0, 3.0], vec![2.0, 4.0]));
    /// # Ok(())
    /// # }
    /// ```
    fn write(&self, out: &mut SampleWriter);

    /// Builds the batch from its columns, in the order of [`write`](Self::write).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
    /// # use torchrs::Tensor;
    /// # #[derive(Clone)]
    /// struct Difference(f32, f32);
    /// impl Sample for Difference {
    /// #     type Batch = Tensor;
    /// #     fn write(&self, out: &mut SampleWriter) { self.0.write(out); self.1.write(out); }
    ///     fn batch(columns: &mut Columns) -> Tensor {
    ///         f32::batch(columns) - f32::batch(columns)
    ///     }
    /// }
    /// # fn main() -> torchrs::Result<()> {
    /// let pairs = List(vec![Difference(5.0, 1.0), Difference(2.0, 3.0)]);
    /// let batch = DataLoader::builder(pairs).batch_size(2).build()?.iter().next().unwrap()?;
    /// assert_eq!(batch.to_vec::<f32>(), [4.0, -1.0]);
    /// # Ok(())
    /// # }
    /// ```
    fn batch(columns: &mut Columns) -> Self::Batch;
}

/// Receives the fields of a sample; see [`Sample::write`].
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
            if self.layout.columns[column].field == Field::Bytes {
                self.layout.place_tail(column, self.tails[column].len());
            }
        }
    }

    /// Writes the byte strings and the table that describes the batch.
    ///
    /// # Panics
    /// If the slot is too small.
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
    /// The fields of a sample.
    pub(super) fn describe(sample: &impl Sample) -> Vec<Field> {
        let mut fields = Vec::new();
        let pass = Pass::Describe(&mut fields);
        sample.write(&mut SampleWriter { pass, field: 0, problem: None });
        fields
    }

    /// Writes a sample's bytes into row `row`, or says how the sample differs from the batch.
    pub(super) fn store(sample: &impl Sample, rows: &mut Rows, row: usize) -> Result<(), String> {
        let expected = rows.layout.columns.len();
        let pass = Pass::Store { rows, row };
        let mut writer = SampleWriter { pass, field: 0, problem: None };
        sample.write(&mut writer);
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
    pub fn elements<T: Element>(&mut self, shape: &[usize], values: &[T]) {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "elements of shape {shape:?}");
        let (from, bytes) = (values.as_ptr().cast::<u8>(), size_of_val(values));
        self.dense(T::DTYPE, shape, |row, streaming| {
            // SAFETY: `dense` gives the address of a row with room for these elements, which
            // belongs to the batch being made and to nobody else.
            unsafe {
                match streaming {
                    true => copy_streaming(row, from, bytes),
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
        let field = self.next_field();
        match &mut self.pass {
            Pass::Describe(fields) => fields.push(Field::List { len }),
            Pass::Store { rows, .. } => {
                let expected = rows.layout.columns.get(field).map(|c| c.field.clone());
                if expected != Some(Field::List { len }) {
                    self.mismatch(field, &Field::List { len }, expected);
                }
            }
        }
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
        let field = self.next_field();
        match &mut self.pass {
            Pass::Describe(fields) => fields.push(Field::Bytes),
            Pass::Store { rows, row } => match rows.layout.columns.get(field) {
                Some(Column { field: Field::Bytes, offset, .. }) => {
                    let tail = &mut rows.tails[field];
                    tail.extend_from_slice(bytes);
                    let end = rows.memory.ptr.wrapping_add(offset + 8 * *row).cast::<u64>();
                    // SAFETY: the planned column has a word for each row of the batch.
                    unsafe { end.write(tail.len() as u64) };
                }
                other => {
                    let expected = other.map(|c| c.field.clone());
                    self.mismatch(field, &Field::Bytes, expected);
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

/// The columns of a finished batch, handed out one by one; see [`Sample::batch`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
/// # use torchrs::Tensor;
/// # #[derive(Clone)]
/// struct Own(f32, &'static str);
/// impl Sample for Own {
/// #     type Batch = (Tensor, Vec<Vec<u8>>);
/// #     fn write(&self, out: &mut SampleWriter) {
/// #         self.0.write(out);
/// #         out.bytes(self.1.as_bytes());
/// #     }
///     fn batch(columns: &mut Columns) -> Self::Batch {
///         (columns.tensor(), columns.bytes())
///     }
/// }
/// # fn main() -> torchrs::Result<()> {
/// let samples = List(vec![Own(1.5, "a"), Own(2.5, "b")]);
/// let loader = DataLoader::builder(samples).batch_size(2).build()?;
/// let (numbers, names) = loader.iter().next().unwrap()?;
/// assert_eq!((numbers.to_vec::<f32>(), names.concat()), (vec![1.5, 2.5], b"ab".to_vec()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Columns {
    layout: BatchLayout,
    slot: SlotMemory,
    memory: Arc<SharedMemory>,
    /// Where the slot starts in `memory`.
    start: usize,
    guard: Arc<dyn std::any::Any + Send + Sync>,
    device: Device,
    next: usize,
}

impl Columns {
    /// Columns over a slot that starts `start` bytes into `memory` and is free for others when the
    /// last clone of `guard` is dropped. Tensors are made on `device`.
    pub(super) fn new(
        layout: BatchLayout,
        memory: Arc<SharedMemory>,
        start: usize,
        guard: Arc<dyn std::any::Any + Send + Sync>,
        device: Device,
    ) -> Self {
        let slot = SlotMemory { ptr: memory.as_ptr().wrapping_add(start), len: layout.end };
        assert!(start + layout.end <= memory.len(), "a slot inside its memory");
        Columns { layout, slot, memory, start, guard, device, next: 0 }
    }

    /// How many samples the batch has.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
    /// # use torchrs::Tensor;
    /// # #[derive(Clone)]
    /// struct Own(i64);
    /// impl Sample for Own {
    /// #     type Batch = (usize, Tensor);
    /// #     fn write(&self, out: &mut SampleWriter) {
    /// #         self.0.write(out);
    /// #     }
    ///     fn batch(columns: &mut Columns) -> Self::Batch {
    ///         (columns.samples(), columns.tensor())
    ///     }
    /// }
    /// # fn main() -> torchrs::Result<()> {
    /// let samples = List(vec![Own(7), Own(8), Own(9)]);
    /// let loader = DataLoader::builder(samples).batch_size(2).build()?;
    /// assert_eq!(loader.iter().map(|batch| batch.unwrap().0).collect::<Vec<_>>(), [2, 1]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn samples(&self) -> usize {
        self.layout.samples
    }

    /// The length of the list that comes next; its columns follow.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
    /// # use torchrs::Tensor;
    /// # #[derive(Clone)]
    /// struct Own(Vec<i64>);
    /// impl Sample for Own {
    /// #     type Batch = Vec<Tensor>;
    /// #     fn write(&self, out: &mut SampleWriter) {
    /// #         out.list(self.0.len());
    /// #         self.0.iter().for_each(|x| x.write(out));
    /// #     }
    ///     fn batch(columns: &mut Columns) -> Self::Batch {
    ///         (0..columns.list()).map(|_| columns.tensor()).collect()
    ///     }
    /// }
    /// # fn main() -> torchrs::Result<()> {
    /// let samples = List(vec![Own(vec![1, 2, 3])]);
    /// let loader = DataLoader::builder(samples).batch_size(2).build()?;
    /// assert_eq!(loader.iter().next().unwrap()?.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If there is no list next.
    pub fn list(&mut self) -> usize {
        match self.next_column("a list").field {
            Field::List { len } => len,
            ref other => panic!("Sample::batch asks for a list where Sample::write wrote {other}"),
        }
    }

    /// The next column as a tensor of shape `[samples, ..]` over the slot.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
    /// # use torchrs::Tensor;
    /// # #[derive(Clone)]
    /// struct Own([f32; 2]);
    /// impl Sample for Own {
    /// #     type Batch = Tensor;
    /// #     fn write(&self, out: &mut SampleWriter) {
    /// #         self.0.write(out);
    /// #     }
    ///     fn batch(columns: &mut Columns) -> Self::Batch {
    ///         columns.tensor() * 2.0
    ///     }
    /// }
    /// # fn main() -> torchrs::Result<()> {
    /// let samples = List(vec![Own([1.0, 2.0]), Own([3.0, 4.0])]);
    /// let loader = DataLoader::builder(samples).batch_size(2).build()?;
    /// assert_eq!(loader.iter().next().unwrap()?.to_vec::<f32>(), [2.0, 4.0, 6.0, 8.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the next column is not one of tensors or numbers.
    pub fn tensor(&mut self) -> Tensor {
        let samples = self.layout.samples;
        let column = self.next_column("a tensor");
        let Field::Dense { dtype, shape } = &column.field else {
            panic!("Sample::batch asks for a tensor where Sample::write wrote {}", column.field);
        };
        let mut dims = Shape::from_slice(&[samples]);
        dims.extend_from_slice(shape);
        let (dtype, offset, bytes) = (*dtype, column.offset, column.row_bytes * samples);
        let guard = Box::new(self.guard.clone());
        let storage = Storage::shared(self.memory.clone(), self.start + offset, bytes, Some(guard));
        let tensor = Tensor::from_parts(storage, Layout::contiguous(&dims), dtype);
        to_device(tensor, self.device).unwrap_or_else(|error| throw(error))
    }

    /// The next column as byte strings.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
    /// # use torchrs::Tensor;
    /// # #[derive(Clone)]
    /// struct Own(&'static str);
    /// impl Sample for Own {
    /// #     type Batch = Vec<usize>;
    /// #     fn write(&self, out: &mut SampleWriter) {
    /// #         out.bytes(self.0.as_bytes());
    /// #     }
    ///     fn batch(columns: &mut Columns) -> Self::Batch {
    ///         columns.bytes().iter().map(Vec::len).collect()
    ///     }
    /// }
    /// # fn main() -> torchrs::Result<()> {
    /// let samples = List(vec![Own("ab"), Own("cde")]);
    /// let loader = DataLoader::builder(samples).batch_size(2).build()?;
    /// assert_eq!(loader.iter().next().unwrap()?, [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the next column is not one of byte strings.
    pub fn bytes(&mut self) -> Vec<Vec<u8>> {
        let samples = self.layout.samples;
        let column = self.next_column("byte strings");
        let Field::Bytes = column.field else {
            panic!("Sample::batch asks for byte strings where Sample::write wrote {}", column.field)
        };
        let (offset, tail, tail_bytes) = (column.offset, column.tail, column.tail_bytes);
        // SAFETY: layouts lie inside their slots (planned so, or checked by `read_table`), and
        // nobody writes a slot that this batch holds.
        let (ends, all) = unsafe {
            let ends = self.slot.ptr.add(offset).cast::<u64>();
            let tail = self.slot.ptr.add(tail);
            (
                std::slice::from_raw_parts(ends, samples),
                std::slice::from_raw_parts(tail, tail_bytes),
            )
        };
        let mut start = 0;
        let row = |&end: &u64| {
            let end = (end as usize).clamp(start, tail_bytes);
            all[std::mem::replace(&mut start, end)..end].to_vec()
        };
        ends.iter().map(row).collect()
    }

    fn next_column(&mut self, wanted: &str) -> &Column {
        let Some(column) = self.layout.columns.get(self.next) else {
            panic!("Sample::batch asks for {wanted}, but Sample::write wrote {} fields", self.next);
        };
        self.next += 1;
        column
    }
}

impl Sample for Tensor {
    type Batch = Tensor;
    fn write(&self, out: &mut SampleWriter) {
        out.tensor(self);
    }
    fn batch(columns: &mut Columns) -> Tensor {
        columns.tensor()
    }
}

impl Sample for Vec<Tensor> {
    type Batch = Vec<Tensor>;
    fn write(&self, out: &mut SampleWriter) {
        out.list(self.len());
        self.iter().for_each(|tensor| out.tensor(tensor));
    }
    fn batch(columns: &mut Columns) -> Vec<Tensor> {
        (0..columns.list()).map(|_| columns.tensor()).collect()
    }
}

macro_rules! number_samples {
    ($($t:ty)*) => {$(
        impl Sample for $t {
            type Batch = Tensor;
            fn write(&self, out: &mut SampleWriter) {
                out.elements(&[], std::slice::from_ref(self));
            }
            fn batch(columns: &mut Columns) -> Tensor {
                columns.tensor()
            }
        }
    )*};
}
number_samples!(f64 f32 half::f16 half::bf16 i64 i32 i16 i8 u8 bool);

impl<T: Element> Sample for Vec<T> {
    type Batch = Tensor;
    fn write(&self, out: &mut SampleWriter) {
        out.elements(&[self.len()], self);
    }
    fn batch(columns: &mut Columns) -> Tensor {
        columns.tensor()
    }
}

impl<T: Element, const N: usize> Sample for [T; N] {
    type Batch = Tensor;
    fn write(&self, out: &mut SampleWriter) {
        out.elements(&[N], self);
    }
    fn batch(columns: &mut Columns) -> Tensor {
        columns.tensor()
    }
}

impl Sample for String {
    type Batch = Vec<String>;
    fn write(&self, out: &mut SampleWriter) {
        out.bytes(self.as_bytes());
    }
    fn batch(columns: &mut Columns) -> Vec<String> {
        let text = |bytes| String::from_utf8(bytes).expect("written from a String");
        columns.bytes().into_iter().map(text).collect()
    }
}

/// Bytes of any length as a sample (a `Vec<u8>` is a tensor, and all of a batch have one length).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
/// # use torchrs::Tensor;
/// use torchrs::data::Blob;
/// # fn main() -> torchrs::Result<()> {
/// let files = List(vec![Blob(vec![1, 2, 3]), Blob(vec![4])]);
/// let batch = DataLoader::builder(files).batch_size(2).build()?.iter().next().unwrap()?;
/// assert_eq!(batch, [Blob(vec![1, 2, 3]), Blob(vec![4])]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Blob(pub Vec<u8>);

impl Sample for Blob {
    type Batch = Vec<Blob>;
    fn write(&self, out: &mut SampleWriter) {
        out.bytes(&self.0);
    }
    fn batch(columns: &mut Columns) -> Vec<Blob> {
        columns.bytes().into_iter().map(Blob).collect()
    }
}

macro_rules! tuple_samples {
    ($(($($name:ident $place:tt),+))*) => {$(
        impl<$($name: Sample),+> Sample for ($($name,)+) {
            type Batch = ($($name::Batch,)+);
            fn write(&self, out: &mut SampleWriter) {
                $(self.$place.write(out);)+
            }
            fn batch(columns: &mut Columns) -> Self::Batch {
                ($($name::batch(columns),)+)
            }
        }
    )*};
}
tuple_samples! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }

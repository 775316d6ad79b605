//! A finished batch, as a sample's [`batch`](super::Sample::batch) takes it apart.

use std::sync::Arc;

use super::layout::{BatchLayout, Column, Field, SlotMemory};
use super::ragged::RaggedBatch;
use super::upload::to_device;
use crate::error::throw;
use crate::storage::{SharedMemory, Storage};
use crate::tensor::{Device, Dtype, Layout, Shape, Tensor};

/// The columns of a finished batch, handed out one by one; see [`Sample::batch`](super::Sample::batch).
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
    #[track_caller]
    pub fn list(&mut self) -> usize {
        match self.next_column("a list").field {
            Field::List { len } => len,
            ref other => panic!("Sample::batch asks for a list where Sample::write wrote {other}"),
        }
    }

    /// The name that comes next, of the column behind it.
    ///
    /// # Panics
    /// If there is no name next.
    #[track_caller]
    pub fn name(&mut self) -> String {
        match &self.next_column("a name").field {
            Field::Name(name) => name.clone(),
            other => panic!("Sample::batch asks for a name where Sample::write wrote {other}"),
        }
    }

    /// The next column, of rows: all samples' rows in one tensor over the slot.
    ///
    /// # Panics
    /// If the next column is not one of rows.
    #[track_caller]
    pub fn rows(&mut self) -> RaggedBatch {
        let samples = self.layout.samples;
        let column = self.next_column("rows");
        let Field::Ragged { dtype, shape } = &column.field else {
            panic!("Sample::batch asks for rows where Sample::write wrote {}", column.field);
        };
        let (dtype, shape) = (*dtype, shape.clone());
        let (offset, tail, bytes) = (column.offset, column.tail, column.tail_bytes);
        let row_bytes = dtype.size() * shape.iter().product::<usize>();
        let mut offsets = vec![0i64];
        // Rows without elements have no bytes to be counted by.
        let rows_at =
            |end: u64| (end as usize).min(bytes).checked_div(row_bytes).unwrap_or(0) as i64;
        // SAFETY: layouts lie inside their slots, and nobody writes a slot that this batch holds.
        let ends = unsafe { std::slice::from_raw_parts(self.slot.ptr.add(offset).cast(), samples) };
        offsets.extend(ends.iter().map(|&end: &u64| rows_at(end)));
        let mut dims = Shape::from_slice(&[offsets[samples] as usize]);
        dims.extend_from_slice(&shape);
        let values = match bytes {
            0 => Tensor::zeros(&dims[..], dtype.on_host()),
            _ => self.over_slot(tail, bytes, &dims, dtype),
        };
        let offsets = Tensor::from_slice(&offsets, [samples + 1]);
        let place = |tensor| to_device(tensor, self.device).unwrap_or_else(|error| throw(error));
        RaggedBatch::new(place(values), place(offsets))
    }

    /// A tensor over bytes of the slot.
    fn over_slot(&self, offset: usize, bytes: usize, dims: &[usize], dtype: Dtype) -> Tensor {
        let guard = Box::new(self.guard.clone());
        let storage = Storage::shared(self.memory.clone(), self.start + offset, bytes, Some(guard));
        Tensor::from_parts(storage, Layout::contiguous(dims), dtype)
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
    #[track_caller]
    pub fn tensor(&mut self) -> Tensor {
        let samples = self.layout.samples;
        let column = self.next_column("a tensor");
        let Field::Dense { dtype, shape } = &column.field else {
            panic!("Sample::batch asks for a tensor where Sample::write wrote {}", column.field);
        };
        let mut dims = Shape::from_slice(&[samples]);
        dims.extend_from_slice(shape);
        let (dtype, offset, bytes) = (*dtype, column.offset, column.row_bytes * samples);
        let tensor = self.over_slot(offset, bytes, &dims, dtype);
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
    #[track_caller]
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

    /// All bytes of the last column, one of byte strings.
    pub(super) fn last_bytes(&self) -> &[u8] {
        let column = self.layout.columns.last().expect("a batch has a column");
        assert!(column.field == Field::Bytes, "the last column holds byte strings");
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.slot.ptr.add(column.tail), column.tail_bytes) }
    }

    fn next_column(&mut self, wanted: &str) -> &Column {
        let Some(column) = self.layout.columns.get(self.next) else {
            panic!("Sample::batch asks for {wanted}, but Sample::write wrote {} fields", self.next);
        };
        self.next += 1;
        column
    }
}

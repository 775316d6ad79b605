//! Graphs of operations: descriptors as cuDNN's pattern matching wants them. What lies between two operations is virtual:
//! it has a type and a shape, but no memory. Tensors of graphs of many operations have four dimensions.

use std::ffi::c_int;

use super::descriptor::{DataType, Descriptor, Fold, Handle, Kind as Type, Number, PointwiseMode};
use super::plan::Parts;
use super::table::Object;
use torchrs_error::{Error, Result};

/// f32, also as the type that is computed in.
pub(super) const F32: DataType = Number(0);
/// i32.
const I32: DataType = Number(4);
/// Truth values.
const TRUTH: DataType = Number(11);

pub(super) const ADD: PointwiseMode = Number(0);
pub(super) const MULTIPLY: PointwiseMode = Number(1);
pub(super) const DIVIDE: PointwiseMode = Number(6);
pub(super) const SUBTRACT: PointwiseMode = Number(9);
pub(super) const EXP: PointwiseMode = Number(13);
pub(super) const LOG: PointwiseMode = Number(15);
pub(super) const IDENTITY: PointwiseMode = Number(21);
const AT_LEAST: PointwiseMode = Number(303);
const INDEX: PointwiseMode = Number(501);
const SELECT: PointwiseMode = Number(601);

pub(super) const SUM: Fold = Number(0);
pub(super) const MAXIMUM: Fold = Number(3);

/// Bytes to which all that has memory is aligned.
pub const ALIGNMENT: i64 = 16;
/// Names of virtual tensors start here.
const VIRTUAL: i64 = 1000;

/// Why there is no graph.
pub(super) enum Refusal {
    /// cuDNN does not compute such.
    NotSupported,
    /// Something went wrong.
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Failed(error)
    }
}

pub(super) type Outcome<T> = std::result::Result<T, Refusal>;

/// Four sizes or strides.
type Four = [i64; 4];

/// A tensor of a graph.
#[derive(Clone, Copy)]
pub(super) struct Place {
    object: Object,
    pub(super) sizes: Four,
    strides: Four,
}

/// How memory of a tensor is seen. It begins, as do its rows, at a multiple of [`ALIGNMENT`] bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct View {
    /// Its sizes.
    pub sizes: Four,
    /// Their strides in elements.
    pub strides: Four,
}

impl View {
    /// Row by row.
    pub fn dense(sizes: Four) -> View {
        let [_, b, c, d] = sizes;
        View { sizes, strides: [b * c * d, c * d, d, 1] }
    }

    /// The last two dimensions the other way round.
    pub(super) fn turned(self) -> View {
        let turn = |[a, b, c, d]: Four| [a, b, d, c];
        View { sizes: turn(self.sizes), strides: turn(self.strides) }
    }
}

/// A graph that grows.
#[derive(Default)]
pub(super) struct Builder {
    parts: Vec<Descriptor>,
    operations: Vec<Object>,
    virtuals: i64,
}

impl Builder {
    /// Ends a description; what it describes.
    pub(super) fn keep(&mut self, descriptor: Descriptor) -> Outcome<Object> {
        let descriptor = descriptor.finish_if_supported()?.ok_or(Refusal::NotSupported)?;
        let object = descriptor.object;
        self.parts.push(descriptor);
        Ok(object)
    }

    /// A tensor's description, as far as all have it.
    pub(super) fn described(
        name: i64,
        of: DataType,
        [sizes, strides]: [&[i64]; 2],
        alignment: i64,
    ) -> Result<Descriptor> {
        let tensor = Descriptor::new(Type::Tensor)?;
        tensor.set(901, &[of])?;
        tensor.set(902, sizes)?;
        tensor.set(903, strides)?;
        tensor.set(906, &[name])?;
        tensor.set(900, &[alignment])?;
        Ok(tensor)
    }

    /// One of four dimensions.
    fn viewed(name: i64, of: DataType, view: View) -> Result<Descriptor> {
        Self::described(name, of, [&view.sizes, &view.strides], ALIGNMENT)
    }

    /// A tensor in memory.
    pub(super) fn tensor(&mut self, name: i64, of: DataType, view: View) -> Outcome<Place> {
        let object = self.keep(Self::viewed(name, of, view)?)?;
        Ok(Place { object, sizes: view.sizes, strides: view.strides })
    }

    /// A number that is given with each call.
    pub(super) fn number(&mut self, name: i64) -> Outcome<Place> {
        let view = View::dense([1; 4]);
        let tensor = Self::viewed(name, F32, view)?;
        tensor.set(908, &[true])?;
        Ok(Place { object: self.keep(tensor)?, sizes: view.sizes, strides: view.strides })
    }

    /// What lies between operations.
    fn between(&mut self, of: DataType, view: View) -> Outcome<Place> {
        self.virtuals += 1;
        let tensor = Self::viewed(VIRTUAL + self.virtuals, of, view)?;
        tensor.set(907, &[true])?;
        Ok(Place { object: self.keep(tensor)?, sizes: view.sizes, strides: view.strides })
    }

    /// An f32 between operations.
    pub(super) fn inner(&mut self, sizes: Four) -> Outcome<Place> {
        self.between(F32, View::dense(sizes))
    }

    fn operation(
        &mut self,
        kind: Type,
        operator: Option<(c_int, Object)>,
        tensors: &[(c_int, &Place)],
    ) -> Outcome<()> {
        let operation = Descriptor::new(kind)?;
        if let Some((name, operator)) = operator {
            operation.set(name, &[operator])?;
        }
        for (name, tensor) in tensors {
            operation.set(*name, &[tensor.object])?;
        }
        self.perform(operation)
    }

    /// Adds an operation to the graph.
    pub(super) fn perform(&mut self, operation: Descriptor) -> Outcome<()> {
        let operation = self.keep(operation)?;
        self.operations.push(operation);
        Ok(())
    }

    fn pointwise(
        &mut self,
        mode: PointwiseMode,
        compute: DataType,
        axis: Option<i64>,
        tensors: &[(c_int, &Place)],
    ) -> Outcome<()> {
        let operator = Descriptor::new(Type::Pointwise)?;
        operator.set(0, &[mode])?;
        operator.set(1, &[compute])?;
        if let Some(axis) = axis {
            operator.set(9, &[axis])?;
        }
        let operator = self.keep(operator)?;
        self.operation(Type::PointwiseOperation, Some((750, operator)), tensors)
    }

    /// A function of one tensor.
    pub(super) fn unary(&mut self, mode: PointwiseMode, x: &Place, y: &Place) -> Outcome<()> {
        self.pointwise(mode, F32, None, &[(751, x), (753, y)])
    }

    /// A function of two tensors, of which the second may have sizes of 1.
    pub(super) fn binary(
        &mut self,
        mode: PointwiseMode,
        x: &Place,
        b: &Place,
        y: &Place,
    ) -> Outcome<()> {
        self.pointwise(mode, F32, None, &[(751, x), (752, b), (753, y)])
    }

    /// A function of an f32 between operations and another.
    pub(super) fn then(&mut self, mode: PointwiseMode, x: &Place, b: &Place) -> Outcome<Place> {
        let y = self.inner(x.sizes)?;
        self.binary(mode, x, b, &y)?;
        Ok(y)
    }

    /// The scores at and below the diagonal, and this number above.
    pub(super) fn below_diagonal(&mut self, x: &Place, otherwise: &Place) -> Outcome<Place> {
        let view = View::dense(x.sizes);
        let (rows, columns) = (self.between(I32, view)?, self.between(I32, view)?);
        self.pointwise(INDEX, F32, Some(2), &[(751, x), (753, &rows)])?;
        self.pointwise(INDEX, F32, Some(3), &[(751, x), (753, &columns)])?;
        let seen = self.between(TRUTH, view)?;
        self.pointwise(AT_LEAST, TRUTH, None, &[(751, &rows), (752, &columns), (753, &seen)])?;
        let y = self.inner(x.sizes)?;
        let of_select = [(751, x), (752, otherwise), (758, &seen), (753, &y)];
        self.pointwise(SELECT, F32, None, &of_select)?;
        Ok(y)
    }

    /// c = a b.
    pub(super) fn matmul(&mut self, a: &Place, b: &Place, c: &Place) -> Outcome<()> {
        let operator = Descriptor::new(Type::Matmul)?;
        operator.set(1500, &[F32])?;
        let operator = self.keep(operator)?;
        let tensors = [(1520, a), (1521, b), (1522, c)];
        self.operation(Type::MatmulOperation, Some((1523, operator)), &tensors)
    }

    /// Folds the dimensions that y has fewer of.
    pub(super) fn fold(&mut self, how: Fold, x: &Place, y: &Place) -> Outcome<()> {
        let operator = Descriptor::new(Type::Reduction)?;
        operator.set(1600, &[how])?;
        operator.set(1601, &[F32])?;
        let operator = self.keep(operator)?;
        self.operation(Type::ReductionOperation, Some((1612, operator)), &[(1610, x), (1611, y)])
    }

    /// The last two dimensions the other way round, rounded to a type.
    pub(super) fn turned(&mut self, x: &Place, of: DataType) -> Outcome<Place> {
        let view = View { sizes: x.sizes, strides: x.strides }.turned();
        let y = self.between(of, view)?;
        self.operation(Type::Reshape, None, &[(2200, x), (2201, &y)])?;
        Ok(y)
    }

    /// What is rounded to a type before it is multiplied.
    pub(super) fn rounded(&mut self, sizes: Four, of: DataType) -> Outcome<Place> {
        self.between(of, View::dense(sizes))
    }

    /// The graph, after all that it consists of.
    pub(super) fn finish(mut self, handle: Option<Object>) -> Outcome<Vec<Descriptor>> {
        let graph = Descriptor::new(Type::Graph)?;
        if let Some(handle) = handle {
            graph.set(800, &[Handle(handle)])?;
        }
        graph.set(801, &self.operations)?;
        self.keep(graph)?;
        Ok(self.parts)
    }
}

/// Nothing where cuDNN does not compute such.
pub(super) fn supported(graph: Outcome<Vec<Descriptor>>) -> Result<Parts> {
    match graph {
        Ok(parts) => Ok(Some(parts)),
        Err(Refusal::NotSupported) => Ok(None),
        Err(Refusal::Failed(error)) => Err(error),
    }
}

//! cuDNN by its graph interface: convolutions, with one operation per graph, and attention, with many. What cuDNN
//! proposes for a problem is asked once and kept; workspaces come from the caching allocator, on the work's stream.

mod attention;
mod convolution;
mod descriptor;
mod kept;
mod operations;
mod plan;
mod table;

use std::ffi::c_int;

use descriptor::{DataType, Descriptor, Kind as Type, Number};
use kept::Question;
use plan::Target;
use table::table;
use torchrs_error::Result;

pub use attention::{Attention, attention, propose_attention};
pub use convolution::{Direction, Problem, Wishes, convolution, propose, uses_tensor_cores};
pub use operations::{ALIGNMENT, View};
pub use table::USE_CUDNN;

/// Types of elements. Sums are f32, of f64 f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// f32.
    F32,
    /// f64.
    F64,
    /// f16.
    F16,
    /// bf16.
    BF16,
}

impl Kind {
    fn data_type(self) -> DataType {
        Number(match self {
            Kind::F32 => 0,
            Kind::F64 => 1,
            Kind::F16 => 2,
            Kind::BF16 => 9,
        })
    }

    /// The type of sums.
    fn compute(self) -> DataType {
        Number(c_int::from(self == Kind::F64))
    }
}

/// How a convolution's tensor lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lie {
    /// Its sizes, as many as the problem has dimensions: batch and channels first.
    pub sizes: [i64; 5],
    /// Their strides in elements.
    pub strides: [i64; 5],
    /// The power of two to which its address is aligned, in bytes.
    pub alignment: i64,
}

impl Lie {
    /// A dense tensor's of this shape, with channels last or row by row. Strides of dimensions of size 1 are as if
    /// they were larger, which cuDNN goes by.
    pub fn dense(shape: &[usize], channels_last: bool, alignment: usize) -> Lie {
        let mut order = [0, 1, 2, 3, 4];
        if channels_last {
            order[1..shape.len()].rotate_left(1);
        }
        let mut lie = Lie { alignment: alignment as i64, ..Lie::default() };
        let mut step = 1;
        for &d in order[..shape.len()].iter().rev() {
            (lie.sizes[d], lie.strides[d]) = (shape[d] as i64, step);
            step *= shape[d] as i64;
        }
        lie
    }
}

/// Whether there is a cuDNN to use.
pub fn is_available() -> bool {
    table().is_ok()
}

/// What cuDNN would do on a device that need not be there.
#[derive(Clone, Copy, Debug)]
pub struct Proposal {
    /// Bytes of workspace.
    pub workspace: usize,
    /// Whether tensor cores are used.
    pub tensor_cores: bool,
    /// cuDNN's number of the engine, among those for such a graph.
    pub engine: i64,
}

impl Proposal {
    /// The plan that cuDNN proposes on a device of these properties, in the form in which cuDNN writes them
    /// (`CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`); none where it does not compute such. No GPU is needed.
    fn of(asked: &impl Question, properties: &str) -> Result<Option<Proposal>> {
        const JSON: c_int = 2702;
        let device = Descriptor::new(Type::Properties)?;
        device.set(JSON, properties.as_bytes())?;
        let device = device.finish()?;
        let found = asked.plans(&Target::Properties(&device), asked.workspace(), 1)?;
        let Some(plan) = found.first() else { return Ok(None) };
        let (workspace, tensor_cores) = (plan.workspace, plan.uses_tensor_cores());
        Ok(Some(Proposal { workspace, tensor_cores, engine: plan.engine()? }))
    }
}

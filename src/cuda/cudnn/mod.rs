//! cuDNN by its graph interface: convolutions, with one operation per graph, and attention, with many. What cuDNN
//! proposes for a problem is asked once and kept; workspaces come from the caching allocator, on the work's stream.

mod attention;
mod convolution;
mod descriptor;
mod operations;
mod plan;
mod table;

use std::ffi::c_int;

use super::memory::Block;
use super::stream::Stream;
use crate::error::Result;
use descriptor::{Address, DataType, Descriptor, Kind as Type, Number};
use plan::Plan;
use table::{handle, table};

pub use attention::{Attention, attention, dense_lie, propose_attention};
pub use convolution::{Direction, Problem, Wishes, convolution, propose};
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

/// How a tensor lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lie {
    /// Its sizes, as many as the problem has dimensions: batch and channels first.
    pub sizes: [i64; 5],
    /// Their strides in elements.
    pub strides: [i64; 5],
    /// The power of two to which its address is aligned, in bytes.
    pub alignment: i64,
}

/// Whether there is a cuDNN to use.
pub fn is_available() -> bool {
    table().is_ok()
}

/// Starts a plan's work with the addresses of the tensors of these names.
///
/// # Safety
/// The addresses are of what the plan's graph says, in memory of the stream's device that is valid until the stream
/// has done this work; those of numbers are the host's.
unsafe fn run(plan: &Plan, names: &[i64], at: &[Address], stream: Stream) -> Result<()> {
    let workspace = Block::on(plan.workspace, stream)?;
    let pack = Descriptor::new(Type::Pack)?;
    pack.set(1000, names)?;
    pack.set(1001, at)?;
    pack.set(1003, &[Address(workspace.as_ptr())])?;
    let pack = pack.finish()?;
    let (table, handle) = (table()?, handle(stream.device())?);
    // SAFETY: objects of this library; nobody else has the handle meanwhile; the caller answers for the addresses,
    // and the workspace goes back to its own stream's pool.
    unsafe {
        table.cudnnSetStream(*handle, stream.handle())?;
        table.cudnnBackendExecute(*handle, plan.descriptor.object, pack.object)
    }
}

/// What cuDNN would do on a device that need not be there.
#[derive(Clone, Copy, Debug)]
pub struct Proposal {
    /// Bytes of workspace.
    pub workspace: usize,
    /// Whether tensor cores are used.
    pub tensor_cores: bool,
}

impl Proposal {
    fn of(plan: &Plan) -> Proposal {
        Proposal { workspace: plan.workspace, tensor_cores: plan.uses_tensor_cores() }
    }
}

/// A device of these properties, in the form in which cuDNN writes them
/// (`CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`).
fn device_of(properties: &str) -> Result<Descriptor> {
    const JSON: c_int = 2702;
    let device = Descriptor::new(Type::Properties)?;
    device.set(JSON, properties.as_bytes())?;
    device.finish()
}

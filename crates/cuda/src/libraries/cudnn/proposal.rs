//! What cuDNN proposes for a device of which only the properties are known.

use std::ffi::c_int;

use super::descriptor::{Descriptor, Kind as Type};
use super::kept::Question;
use super::plan::Target;
use torchrs_error::Result;

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
    pub(super) fn of(asked: &impl Question, properties: &str) -> Result<Option<Proposal>> {
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

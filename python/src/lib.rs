//! The extension module `torchrs._torchrs`: torchrs's tensors, models and data loaders as Python objects.
//!
//! | file | what |
//! | --- | --- |
//! | `call.rs` | how a call leaves Python: without its lock, with errors as exceptions, not after a fork |
//! | `start.rs` | how worker processes of a loader start from within Python |
//! | `tensor.rs`, `index.rs` | `Tensor` |
//! | `capsule.rs` | DLPack's capsules |
//! | `functions.rs` | what makes tensors, gradients, settings |
//! | `module.rs` | models |
//! | `data.rs` | datasets and the loader |
//!
//! The package's Python files, beside this folder, make the public face of it.

use pyo3::prelude::*;

mod call;
mod capsule;
mod data;
mod functions;
mod index;
mod module;
mod start;
mod tensor;

#[pymodule]
fn _torchrs(m: &Bound<'_, PyModule>) -> PyResult<()> {
    // In a worker process this never returns.
    start::prepare(m.py())?;
    m.add_class::<tensor::PyTensor>()?;
    m.add_class::<module::PyModel>()?;
    m.add_class::<data::PyDataset>()?;
    m.add_class::<data::PyLoader>()?;
    m.add_class::<data::PyBatches>()?;
    functions::add(m)?;
    module::add(m)?;
    data::add(m)
}

//! cuDNN by its graph interface: convolutions, with one operation per graph, and attention, with many. What cuDNN
//! proposes for a problem is asked once and kept; workspaces come from the caching allocator, on the work's stream.

mod attention;
mod convolution;
mod descriptor;
mod kept;
mod lie;
mod operations;
mod plan;
mod proposal;
mod table;

pub use attention::{Attention, attention, propose_attention};
pub use convolution::{Direction, Problem, Wishes, convolution, propose, uses_tensor_cores};
pub use lie::{Kind, Lie};
pub use operations::{ALIGNMENT, View};
pub use proposal::Proposal;
pub use table::USE_CUDNN;

/// Whether there is a cuDNN to use.
pub fn is_available() -> bool {
    table::table().is_ok()
}

//! How a kernel runs: block after block on one executor; the threads of a block are fibers, of which
//! only those that wait have a stack of their own.

pub mod abi;
pub mod collective;
pub mod launch;
pub mod machine;
pub mod report;
pub mod thread;
pub mod trap;

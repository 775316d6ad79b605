//! A tensor that two processes share: the child changes it, the parent sees it. Only a handle
//! travels between them, whatever the tensor's size.
//!
//! `cargo run --release --example shared_tensor`

use torchrs::multiprocessing::{Channel, Process};
use torchrs::prelude::*;

/// The child: gets the tensor, fills its second row, says that it is done.
fn fill_second_row(tensor: Tensor, parent: Channel<String, ()>) -> Result<()> {
    println!("child {}: got\n{tensor}", std::process::id());
    tensor.select(0, 1).fill_(7.0);
    parent.send(&"done".to_owned())
}

#[torchrs::main]
fn main() -> Result<()> {
    let tensor = Tensor::zeros([2, 3], Dtype::F32);
    let (child, channel) =
        Process::builder().name("filler").spawn_connected(fill_second_row, tensor.clone())?;
    channel.recv()?;
    child.join()?;
    println!("parent {}: has\n{tensor}", std::process::id());
    assert_eq!(tensor.to_vec::<f32>(), [0.0, 0.0, 0.0, 7.0, 7.0, 7.0]);
    Ok(())
}

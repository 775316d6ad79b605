//! Tensors between processes: one memory, not copies; layouts, identity, gradients, and what is
//! left when one side is killed.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use torchrs::multiprocessing::{Channel, Process, channel, duplex, spawn};
use torchrs::{Dtype, Error, Result, Tensor, no_grad};

const LONG: Duration = Duration::from_secs(30);

/// Adds 1 to a tensor, wherever it lies, and says what it saw.
fn add_one(_: (), parent: Channel<Vec<f64>, Tensor>) -> Result<()> {
    while let Ok(tensor) = parent.recv() {
        parent.send(&tensor.to_vec::<f64>())?;
        tensor.add_(&Tensor::ones([], tensor.dtype()));
        parent.send(&tensor.to_vec::<f64>())?;
    }
    Ok(())
}

#[test]
fn both_processes_see_each_others_writes() {
    let (child, channel) = Process::builder().spawn_connected(add_one, ()).unwrap();
    let base = Tensor::from_slice(&[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0], [2, 3]);
    let column = base.select(1, 2);
    assert!(!base.is_shared());
    channel.send(&column).unwrap();
    assert!(base.is_shared() && column.is_shared());
    assert_eq!(channel.recv_timeout(LONG).unwrap(), [2.0, 5.0]);
    assert_eq!(channel.recv_timeout(LONG).unwrap(), [3.0, 6.0]);
    // The child changed its view; the rest of the storage is as it was.
    assert_eq!(base.to_vec::<f64>(), [0.0, 1.0, 3.0, 3.0, 4.0, 6.0]);
    base.fill_(7.0);
    channel.send(&base.t()).unwrap();
    assert_eq!(channel.recv_timeout(LONG).unwrap(), [7.0; 6]);
    assert_eq!(channel.recv_timeout(LONG).unwrap(), [8.0; 6]);
    drop(channel);
    child.join_timeout(LONG).unwrap();
}

#[test]
fn sharing_in_place_keeps_values_and_views() {
    let base = Tensor::arange(0.0, 6.0, 1.0, Dtype::I64);
    let view = base.narrow(0, 2, 3);
    let before = view.to_vec::<i64>();
    assert!(base.share_memory_().unwrap().ptr_eq(&base));
    assert!(view.is_shared());
    assert_eq!(view.to_vec::<i64>(), before);
    base.fill_(9.0);
    assert_eq!(view.to_vec::<i64>(), [9; 3]);
    let address = base.data_ptr();
    base.share_memory_().unwrap();
    assert_eq!(base.data_ptr(), address, "a second call moves nothing");
}

#[test]
fn every_dtype_and_odd_shapes_survive() {
    let (a, b) = duplex::<Tensor, ()>().unwrap();
    let mut tensors: Vec<Tensor> =
        Dtype::ALL.iter().map(|&dtype| Tensor::ones([2, 3], dtype)).collect();
    tensors.push(Tensor::scalar(4.5));
    tensors.push(Tensor::zeros([0, 3], Dtype::F32));
    tensors.push(Tensor::scalar(2.0).expand(&[5, 4]));
    tensors.push(Tensor::arange(0.0, 24.0, 1.0, Dtype::F32).view([2, 3, 4]).permute(&[2, 0, 1]));
    for tensor in tensors {
        a.send(&tensor).unwrap();
        let back = b.recv().unwrap();
        assert_eq!((back.dtype(), back.layout()), (tensor.dtype(), tensor.layout()));
        assert!(back.equal(&tensor));
    }
}

#[derive(Serialize, Deserialize)]
struct Model {
    embedding: Tensor,
    head: Tensor,
    bias: Tensor,
}

/// Sends a model back after a check that its tied weights are one storage here too.
fn check_ties(_: (), parent: Channel<Model, Model>) -> Result<()> {
    let model = parent.recv()?;
    if !model.embedding.storage().ptr_eq(model.head.storage()) {
        return Err(Error::Other("the tied weights came apart".into()));
    }
    if !model.bias.requires_grad() || model.head.requires_grad() {
        return Err(Error::Other("requires_grad was lost or invented".into()));
    }
    parent.send(&model)
}

#[test]
fn tied_weights_stay_tied_and_come_back_as_the_same_storage() {
    let embedding = Tensor::ones([4, 3], Dtype::F32);
    let head = embedding.t();
    let bias = Tensor::zeros([4], Dtype::F32).requires_grad_(true);
    let model = Model { embedding, head, bias };
    let (child, channel) = Process::builder().spawn_connected(check_ties, ()).unwrap();
    channel.send(&model).unwrap();
    let back = channel.recv_timeout(LONG);
    child.join_timeout(LONG).unwrap();
    let back = back.unwrap();
    assert!(back.embedding.storage().ptr_eq(model.embedding.storage()));
    assert!(back.bias.requires_grad() && back.bias.is_leaf());
    // One storage, so also one version counter: autograd notices the change through the copy.
    let version = model.embedding.version();
    back.head.fill_(2.0);
    assert!(model.embedding.version() > version);
}

#[test]
fn a_tensor_with_history_is_refused_with_the_way_out() {
    let (sender, receiver) = channel::<Tensor>().unwrap();
    let leaf = Tensor::ones([2], Dtype::F32).requires_grad_(true);
    let result = &leaf * 2.0;
    let error = sender.send(&result).unwrap_err();
    assert!(matches!(error, Error::Autograd(_)), "{error}");
    assert!(error.to_string().contains("detach()"), "{error}");
    assert!(receiver.try_recv().unwrap().is_none(), "something was sent");
    sender.send(&result.detach()).unwrap();
    assert_eq!(receiver.recv().unwrap().to_vec::<f64>(), [2.0; 2]);
}

#[test]
fn a_tensor_does_not_serialise_into_a_file() {
    let error = serde_json::to_string(&Tensor::scalar(1.0)).unwrap_err().to_string();
    assert!(error.contains("message to another process"), "{error}");
}

/// Sends a large tensor to the parent, takes one from it, and waits.
fn exchange_and_wait(_: (), parent: Channel<Tensor, Tensor>) -> Result<()> {
    parent.send(&Tensor::full([LARGE], 3.0, Dtype::F32))?;
    let theirs = parent.recv()?;
    theirs.fill_(5.0);
    parent.send(&Tensor::scalar(0.0))?;
    parent.recv().map(drop)
}

/// Elements of a tensor of 64 MiB: far more than other tests share meanwhile.
const LARGE: usize = 16 << 20;

/// Bytes of shared memory in use on this machine.
fn shared_memory_in_use() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("Shmem:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// FAULTS row 42: the child is the producer of one tensor and the consumer of another.
#[test]
fn tensors_outlive_a_killed_process_and_are_freed_at_last() {
    let (child, channel) = Process::builder().spawn_connected(exchange_and_wait, ()).unwrap();
    let theirs = channel.recv_timeout(LONG).unwrap();
    let mine = Tensor::full([LARGE], 4.0, Dtype::F32);
    channel.send(&mine).unwrap();
    channel.recv_timeout(LONG).unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait_timeout(LONG).unwrap().signal(), Some(libc::SIGKILL));

    // Every page is read and written: a mapping without memory behind it would end the process.
    for (tensor, value) in [(&theirs, 3.0), (&mine, 5.0)] {
        assert_eq!(tensor.mean().item(), value);
        tensor.fill_(value + 1.0);
        assert_eq!(tensor.mean().item(), value + 1.0);
    }
    let both = 2 * LARGE * 4;
    let before = shared_memory_in_use();
    drop((theirs, mine, channel));
    let start = Instant::now();
    while shared_memory_in_use() + both / 4 * 3 > before {
        let now = shared_memory_in_use();
        assert!(start.elapsed() < LONG, "{now} of {before} bytes in use, {both} should be free");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Stochastic gradient descent on `weight`, which other processes change at the same time.
fn descend(rank: usize, weight: Tensor) {
    for step in 0..200 {
        let x = Tensor::from_slice(&[1.0f32, ((step * 7 + rank * 3) % 5) as f32 - 2.0], [2]);
        let target = (&x * &Tensor::from_slice(&[2.0f32, -1.0], [2])).sum();
        let error = (&x * &weight).sum() + &target * -1.0;
        (&error * &error).backward();
        let gradient = weight.grad().expect("backward leaves a gradient");
        no_grad(|| weight.add_(&(&gradient * -0.02)).clone());
        weight.set_grad(None);
    }
}

#[test]
fn hogwild_two_processes_train_one_weight() {
    let weight = Tensor::zeros([2], Dtype::F32).requires_grad_(true);
    spawn(descend, weight.clone(), 2).unwrap();
    let learned = weight.to_vec::<f64>();
    assert!((learned[0] - 2.0).abs() < 0.01 && (learned[1] + 1.0).abs() < 0.01, "{learned:?}");
}

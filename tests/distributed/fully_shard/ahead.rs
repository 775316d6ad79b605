//! Parameters that are gathered before they are needed.

use std::time::Duration;

use torchrs::nn::parallel::{FullyShard, fully_shard};
use torchrs::nn::{Forward, Linear, Module};
use torchrs::profiler::{Category, Event, Profile, profile, record_function};
use torchrs::{Dtype, Tensor, catch, distributed::ProcessGroup};

use super::on;
use crate::job::Job;

const WIDTH: usize = 128;

/// Layers of one size, each a group.
fn layers(group: &ProcessGroup, count: usize) -> (Vec<Linear>, Vec<FullyShard>) {
    torchrs::manual_seed(3);
    let mut layers: Vec<Linear> = (0..count).map(|_| Linear::new(WIDTH, WIDTH)).collect();
    let handles = layers.iter_mut().map(|layer| fully_shard(layer, group, Default::default()));
    let handles = handles.collect::<torchrs::Result<_>>().unwrap();
    (layers, handles)
}

/// Its gradient needs the first layer's parameters, too.
fn ones() -> Tensor {
    Tensor::ones([2, WIDTH], Dtype::F32).requires_grad_(true)
}

/// A forward in which each layer takes a while after its op.
fn slowly(layers: &[Linear], order: &[usize]) -> Tensor {
    order.iter().fold(ones(), |x, &place| {
        let y = layers[place].forward(&x).tanh();
        let _span = record_function(format!("compute {place}"));
        std::thread::sleep(Duration::from_millis(25));
        y
    })
}

fn gathers(profile: &Profile) -> Vec<&Event> {
    let is_gather = |e: &&Event| e.name == "all_gather" && e.category == Category::Communication;
    let mut all: Vec<&Event> = profile.events().iter().filter(is_gather).collect();
    all.sort_by_key(|e| e.start_ns);
    all
}

/// How many gathers ran behind the computing of the layer in front, and were over before it.
fn hidden(profile: &Profile) -> usize {
    let computes = profile.events().iter().filter(|e| e.name.starts_with("compute"));
    let is_hidden = |(compute, gather): &(&Event, &&Event)| {
        gather.thread != compute.thread && gather.end_ns() <= compute.end_ns()
    };
    computes.zip(&gathers(profile)[1..]).filter(is_hidden).count()
}

fn overlaps(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let (layers, handles) = layers(&group, 4);
    let order = [0, 1, 2, 3];
    let step = || {
        let loss = slowly(&layers, &order).square().mean();
        loss.backward();
        loss.item()
    };
    let (first, before) = profile(step);
    let (second, after) = profile(step);
    assert_eq!((first, gathers(&before).len()), (second, 7));
    // No call more, and all that follow a layer in forward behind its computing.
    assert_eq!(gathers(&after).len(), 7);
    assert_eq!(hidden(&after), 3, "{:?}", gathers(&after));

    // Two ahead of the first, and none otherwise.
    handles[0].set_modules_to_forward_prefetch(&[&handles[1], &handles[2]]).unwrap();
    handles[1].set_modules_to_forward_prefetch(&[]).unwrap();
    handles[2].set_modules_to_forward_prefetch(&[]).unwrap();
    handles.iter().for_each(|h| h.set_modules_to_backward_prefetch(&[]).unwrap());
    let (third, asked) = profile(step);
    assert_eq!((third, gathers(&asked).len(), hidden(&asked)), (first, 7, 2));

    // Before forward begins; a barrier comes after it.
    drop(handles[3].unshard_async().unwrap());
    group.barrier().unwrap();
    let (fourth, started) = profile(step);
    assert_eq!((fourth, gathers(&started).len()), (first, 6));
    let again = handles[0].set_modules_to_forward_prefetch(&[&handles[0]]).unwrap_err();
    assert!(again.to_string().contains("this module itself"), "{again}");
}

#[test]
fn gathers_run_behind_computing() {
    on(4, overlaps, &());
}

/// All ranks leave out a layer that was gathered ahead, and take it again.
fn other_path(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let (layers, _handles) = layers(&group, 4);
    let run = |order: &[usize]| {
        let y = order.iter().fold(ones(), |x, &place| layers[place].forward(&x).tanh());
        y.square().mean().backward();
        y.detach()
    };
    let all = run(&[0, 1, 2, 3]).to_vec::<f32>();
    let fewer = run(&[0, 2, 3]).to_vec::<f32>();
    assert_ne!(all, fewer);
    for p in layers.iter().flat_map(Module::parameters) {
        torchrs::no_grad(|| p.mul_(0.5));
    }
    let halved = run(&[0, 2, 3]).to_vec::<f32>();
    assert_ne!(halved, fewer);
    assert_eq!(run(&[0, 2, 3]).to_vec::<f32>(), halved);
    // What was gathered ahead of a change, and not used, is not what is used after it.
    for p in layers.iter().flat_map(Module::parameters) {
        torchrs::no_grad(|| p.mul_(2.0));
    }
    assert_eq!(run(&[0, 1, 2, 3]).to_vec::<f32>(), all);
    assert_eq!(run(&[0, 1, 2, 3]).to_vec::<f32>(), all);
}

#[test]
fn another_path_on_all_ranks_is_followed() {
    on(2, other_path, &());
}

/// One rank takes another way than it has learned; layers are of one size.
fn differs(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let (layers, _handles) = layers(&group, 3);
    let run = |order: &[usize]| {
        let y = order.iter().fold(ones(), |x, &place| layers[place].forward(&x).tanh());
        y.sum().backward();
        group.barrier().unwrap_or_else(|error| std::panic::panic_any(error));
    };
    run(&[0, 1, 2]);
    let order = [[0, 1, 2], [1, 0, 2]][rank];
    let error = catch(|| run(&order)).unwrap_err().to_string();
    let names_both = error.contains("group 1") && error.contains("group 2");
    assert!(names_both && error.contains("rank 1"), "{error}");
}

#[test]
fn ranks_that_gather_in_another_order_are_told_of_both() {
    on(2, differs, &());
}

/// The same without anything learned.
fn differs_at_once(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let (layers, _handles) = layers(&group, 2);
    let error = catch(|| layers[rank].forward(&ones())).unwrap_err().to_string();
    assert!(error.contains("group 1") && error.contains("group 2"), "{error}");
}

#[test]
fn modules_of_one_size_are_not_taken_for_each_other() {
    on(2, differs_at_once, &());
}

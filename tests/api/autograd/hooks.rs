//! Hooks of nodes, of several tensors, of saved tensors; and which gradient `retain_grad` keeps.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use torchrs::autograd::{
    self, MultiGradMode, checkpoint, register_multi_grad_hook, saved_tensors_hooks,
};
use torchrs::{Dtype, Tensor, catch, enable_grad, no_grad};

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).requires_grad_(true)
}

fn grad(t: &Tensor) -> Vec<f64> {
    t.grad().expect("a gradient").to_vec()
}

fn message<T>(f: impl FnOnce() -> T) -> String {
    catch(f).err().expect("an error").to_string()
}

#[test]
fn node_hooks_see_and_replace_gradients_on_both_sides() {
    let (x, w) = (leaf(&[2.0]), leaf(&[5.0]));
    let y = &x * &w;
    let node = y.grad_fn().unwrap();
    let before = node.register_prehook(|outputs| {
        assert_eq!(outputs.len(), 1);
        Some(vec![outputs[0].as_ref().map(|g| g * 10.0)])
    });
    let after = node.register_hook(|inputs, outputs| {
        assert_eq!(outputs[0].as_ref().unwrap().item(), 10.0);
        Some(vec![inputs[0].as_ref().map(|g| g + 1.0), None])
    });
    autograd::backward(&[&y], &[None], autograd::GraphMode::Retain);
    assert_eq!(grad(&x), [51.0]);
    assert!(w.grad().is_none());
    before.remove();
    after.remove();
    y.backward();
    assert_eq!((grad(&x), grad(&w)), (vec![56.0], vec![2.0]));
    let z = x.exp();
    z.grad_fn().unwrap().register_hook(|_, _| Some(vec![]));
    assert!(message(|| z.backward()).contains("`exp` returned 0 gradients in place of 1"));
}

#[test]
fn hooks_of_a_leafs_accumulator_run_around_the_accumulation() {
    let x = leaf(&[2.0]);
    let y = &x * 3.0;
    let accumulator = y.grad_fn().unwrap().next_functions()[0].clone().unwrap();
    assert_eq!(accumulator.name(), "accumulate_grad");
    accumulator.register_prehook(|g| Some(vec![g[0].as_ref().map(|g| g * 2.0)]));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, t) = (seen.clone(), x.clone());
    accumulator.register_hook(move |inputs, outputs| {
        assert!(inputs.is_empty());
        log.lock().unwrap().push((outputs[0].as_ref().unwrap().item(), t.grad().unwrap().item()));
        None
    });
    y.backward();
    assert_eq!(*seen.lock().unwrap(), [(6.0, 6.0)]);
}

#[test]
fn a_graph_keeps_its_leaves_and_its_accumulators_hooks() {
    let x = leaf(&[2.0]);
    let accumulator = |y: &Tensor| y.grad_fn().unwrap().next_functions()[0].clone().unwrap();
    let (y, z) = (&x * 3.0, &x * 5.0);
    assert!(accumulator(&y).ptr_eq(&accumulator(&z)));
    let calls = Arc::new(Mutex::new(0));
    let count = |calls: &Arc<Mutex<i32>>| {
        let calls = calls.clone();
        move |_: &[Option<Tensor>], _: &[Option<Tensor>]| {
            *calls.lock().unwrap() += 1;
            None
        }
    };
    // Hooks of an accumulator are the graphs', those of a leaf its own.
    accumulator(&y).register_hook(count(&calls));
    z.backward();
    drop((y, z));
    assert_eq!((*calls.lock().unwrap(), grad(&x)), (1, vec![5.0]));
    (&x * 1.0).backward();
    assert_eq!((*calls.lock().unwrap(), grad(&x)), (1, vec![6.0]));
    // The handle may go first.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    x.register_post_accumulate_grad_hook(move |x| log.lock().unwrap().extend(grad(x)));
    let y = &x * 4.0;
    drop(x);
    y.backward();
    assert_eq!(*seen.lock().unwrap(), [10.0]);
}

#[test]
fn retain_grad_keeps_what_all_hooks_left_and_follows_in_place_changes() {
    let x = leaf(&[2.0]);
    let y = &x * 3.0;
    y.retain_grad();
    assert!(y.retains_grad() && !x.retains_grad());
    y.register_hook(|g| Some(g * 7.0));
    (&y * 1.0).backward();
    assert_eq!(grad(&y), [7.0]);
    // After an in-place op it is the gradient of the changed tensor.
    let y = &x * 3.0;
    y.retain_grad();
    y.mul_(10.0);
    (&y * 5.0).backward();
    assert_eq!(grad(&y), [5.0]);
    let base = &x * 3.0;
    let view = base.view([1, 1]);
    base.retain_grad();
    view.retain_grad();
    view.mul_(10.0);
    (&base * 5.0 + view.view([1])).backward();
    assert_eq!((grad(&base), grad(&view)), (vec![6.0], vec![1.0]));
}

#[test]
fn hooks_of_several_tensors_run_once_per_backward() {
    let (x, y, unused) = (leaf(&[1.0]), leaf(&[2.0]), leaf(&[3.0]));
    let seen: Arc<Mutex<Vec<Vec<Option<f64>>>>> = Arc::default();
    let log = |seen: &Arc<Mutex<Vec<Vec<Option<f64>>>>>| {
        let seen = seen.clone();
        move |grads: &[Option<Tensor>]| {
            let grads = grads.iter().map(|g| g.as_ref().map(Tensor::item)).collect();
            seen.lock().unwrap().push(grads);
        }
    };
    let inner = &x * 2.0;
    let tensors = [&inner, &y, &unused];
    let handle = register_multi_grad_hook(&tensors, log(&seen), MultiGradMode::All);
    let out = &inner * &y + &inner;
    for _ in 0..2 {
        autograd::backward(&[&out], &[None], autograd::GraphMode::Retain);
    }
    (&unused * 4.0).backward();
    let both = vec![Some(3.0), Some(2.0), None];
    assert_eq!(*seen.lock().unwrap(), [both.clone(), both, vec![None, None, Some(4.0)]]);
    handle.remove();
    seen.lock().unwrap().clear();
    let handle = register_multi_grad_hook(&[&inner, &y], log(&seen), MultiGradMode::Any);
    autograd::backward(&[&out], &[None], autograd::GraphMode::Retain);
    assert_eq!(seen.lock().unwrap().len(), 1);
    handle.remove();
    out.backward();
    assert_eq!(seen.lock().unwrap().len(), 1);
    assert!(
        message(|| register_multi_grad_hook(&[&x.detach()], |_| (), MultiGradMode::All))
            .contains("does not require a gradient")
    );
}

#[test]
fn a_hook_may_run_a_backward_of_its_own() {
    let x = leaf(&[3.0]);
    let y = &x * 2.0;
    y.register_hook(|g| {
        let inner = leaf(&[4.0]);
        // Backward itself, and so its hooks, run without recording.
        enable_grad(|| &inner * &inner).backward();
        Some(g * inner.grad().unwrap().item())
    });
    y.backward();
    assert_eq!(grad(&x), [16.0]);
}

/// A file that is deleted with the tensor it stands for.
struct OnDisk(PathBuf, Vec<usize>);

impl OnDisk {
    fn write(t: &Tensor) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("torchrs-saved-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        let bytes: Vec<u8> = t.to_vec::<f64>().iter().flat_map(|v| v.to_le_bytes()).collect();
        std::fs::write(&path, bytes).unwrap();
        OnDisk(path, t.shape().to_vec())
    }

    fn read(&self) -> Tensor {
        let bytes = std::fs::read(&self.0).unwrap();
        let number = |b: &[u8]| f64::from_le_bytes(b.try_into().unwrap());
        let values: Vec<f64> = bytes.chunks(8).map(number).collect();
        Tensor::from_slice(&values, &self.1[..])
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

#[test]
fn saved_tensors_can_wait_on_disk() {
    let (x, w) = (leaf(&[0.5, -1.0]), leaf(&[2.0, 3.0]));
    let f = || (&x * &w).exp().sin().sum();
    let want = autograd::grad(&[&f()], &[&x, &w], &[None], autograd::GraphMode::Free);
    let paths = Arc::new(Mutex::new(Vec::new()));
    let log = paths.clone();
    let pack = move |t: &Tensor| {
        let file = OnDisk::write(t);
        log.lock().unwrap().push(file.0.clone());
        file
    };
    let y = saved_tensors_hooks(pack, OnDisk::read, f);
    assert!(paths.lock().unwrap().len() >= 4);
    assert!(paths.lock().unwrap().iter().all(|p| p.exists()));
    let got = autograd::grad(&[&y], &[&x, &w], &[None], autograd::GraphMode::Retain);
    // Second derivatives too: what comes back has its history.
    let g =
        autograd::grad(&[&y], &[&x], &[None], autograd::GraphMode::Create).swap_remove(0).unwrap();
    let plain = autograd::grad(&[&f()], &[&x], &[None], autograd::GraphMode::Create)
        .swap_remove(0)
        .unwrap();
    let second = |g: &Tensor| {
        autograd::grad(&[&g.sum()], &[&w], &[None], autograd::GraphMode::Retain)[0]
            .as_ref()
            .unwrap()
            .to_vec::<f64>()
    };
    assert_eq!(second(&g), second(&plain));
    for (got, want) in got.iter().zip(&want) {
        assert_eq!(got.as_ref().unwrap().to_vec::<f64>(), want.as_ref().unwrap().to_vec::<f64>());
    }
    drop((y, g));
    assert!(paths.lock().unwrap().iter().all(|p| !p.exists()));
}

#[test]
fn inner_hooks_count_alone_and_hooks_end_with_a_panic() {
    let x = leaf(&[0.5]);
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let count = |i: usize| {
        let count = counts[i].clone();
        move |t: &Tensor| {
            count.fetch_add(1, Relaxed);
            t.clone()
        }
    };
    let packed = || counts.each_ref().map(|c| c.load(Relaxed));
    let y = saved_tensors_hooks(count(0), Tensor::clone, || {
        let y = saved_tensors_hooks(count(1), Tensor::clone, || x.exp());
        assert_eq!(packed(), [0, 1]);
        assert!(catch(|| saved_tensors_hooks(count(1), Tensor::clone, || panic!("no"))).is_err());
        y.exp()
    });
    assert_eq!(packed(), [1, 1]);
    // Outside nothing is packed; inside a hook neither.
    let z = y.exp();
    let strange = |t: &Tensor| t.requires_grad_(true).exp().log();
    let z = &z * saved_tensors_hooks(strange, Tensor::clone, || x.exp());
    assert_eq!(packed(), [1, 1]);
    z.backward();
    assert!(x.grad().is_some());
}

#[test]
fn misuse_of_saved_tensor_hooks_is_named() {
    let x = leaf(&[0.5, 1.0]);
    let same = |t: &Tensor| t.clone();
    let error =
        message(|| saved_tensors_hooks(|t| _ = t.mul_(2.0), |_| Tensor::scalar(1.0), || x.exp()));
    assert!(error.contains("in place"), "{error}");
    let y = saved_tensors_hooks(same, |t| t.sum(), || x.exp());
    let error = message(|| y.sum().backward());
    assert!(error.contains("`exp`") && error.contains("[2]") && error.contains("[]"), "{error}");
    // Hooks that keep the tensor itself do not hide a change of it.
    let y = &x * 2.0;
    let z = saved_tensors_hooks(same, |t: &Tensor| t.clone(), || y.exp());
    z.mul_(3.0);
    let error = message(|| z.sum().backward());
    assert!(error.contains("changed in place"), "{error}");
}

#[test]
fn a_checkpoint_inside_hooks_packs_its_input_only() {
    let x = leaf(&[0.5]);
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let pack = move |t: &Tensor| {
        counter.fetch_add(1, Relaxed);
        no_grad(|| t.to_dtype(Dtype::F32))
    };
    let unpack = |t: &Tensor| t.to_dtype(Dtype::F64);
    let y = saved_tensors_hooks(pack, unpack, || checkpoint(|x| x[0].exp().exp().exp(), &[&x]));
    assert_eq!(count.load(Relaxed), 1);
    y.backward();
    let e = 0.5f64.exp();
    let want = e * e.exp() * e.exp().exp();
    assert!((grad(&x)[0] - want).abs() < 1e-9 * want);
}

#[test]
fn a_tensor_may_be_multiplied_in_place_by_another_view_of_itself() {
    let x = leaf(&[2.0, 3.0]);
    let y = &x * 1.0;
    y.mul_(&y.detach());
    y.sum().backward();
    assert_eq!(grad(&x), [2.0, 3.0]);
}

//! The engine: accumulation, graph lifetime, hooks, in-place changes and views.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use torchrs::autograd::{self, BackwardCtx, record};
use torchrs::{Dtype, Tensor, catch, no_grad};

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).requires_grad_(true)
}

fn grad(t: &Tensor) -> Vec<f64> {
    t.grad().expect("a gradient").to_vec()
}

#[test]
fn gradients_of_a_shared_leaf_add_up_and_accumulate() {
    let x = leaf(&[2.0, 3.0]);
    (&x * &x + &x).sum().backward();
    assert_eq!(grad(&x), [5.0, 7.0]);
    (&x * 10.0).sum().backward();
    assert_eq!(grad(&x), [15.0, 17.0]);
    x.set_grad(None);
    assert!(x.grad().is_none());
}

#[test]
fn a_kept_gradient_is_not_changed_by_a_later_backward_of_another_tensor() {
    let (x, w) = (leaf(&[1.0]), leaf(&[5.0]));
    let y = &x * &w;
    y.retain_grad();
    (&y + &y).sum().backward();
    assert_eq!(grad(&y), [2.0]);
    assert_eq!(grad(&x), [10.0]);
    assert_eq!(grad(&w), [2.0]);
}

#[test]
fn a_second_backward_needs_retain_graph() {
    let x = leaf(&[2.0]);
    let y = (&x * &x).sum();
    autograd::backward(&[&y], &[None], autograd::GraphMode::Retain);
    y.backward();
    assert_eq!(grad(&x), [8.0]);
    let error = catch(|| y.backward()).unwrap_err().to_string();
    assert!(error.contains("second time") && error.contains("retain_graph"), "{error}");
}

#[test]
fn create_graph_gives_higher_derivatives() {
    let x = leaf(&[2.0]);
    let y = &x * &x * &x * &x;
    let mut d = y;
    let mut values = vec![];
    for _ in 0..4 {
        d = autograd::grad(&[&d], &[&x], &[None], autograd::GraphMode::Create)[0].clone().unwrap();
        values.push(d.item());
    }
    assert_eq!(values, [32.0, 48.0, 48.0, 24.0]);
    assert!(x.grad().is_none());
}

#[test]
fn grad_of_an_unused_input_is_none_and_inner_tensors_can_be_inputs() {
    let (x, z) = (leaf(&[3.0]), leaf(&[1.0]));
    let y = &x * &x;
    let out = (&y * &y).sum();
    let g = autograd::grad(&[&out], &[&y, &x, &z], &[None], autograd::GraphMode::Free);
    assert_eq!(g[0].as_ref().unwrap().item(), 18.0);
    assert_eq!(g[1].as_ref().unwrap().item(), 108.0);
    assert!(g[2].is_none());
}

#[test]
fn backward_into_touches_only_the_leaves_named() {
    let (x, w) = (leaf(&[3.0]), leaf(&[4.0]));
    let y = (&x * &w).sum();
    autograd::backward_into(&[&y], &[None], &[&w], autograd::GraphMode::Free);
    assert!(x.grad().is_none());
    assert_eq!(grad(&w), [3.0]);
}

/// What a backward is asked for, per input, while `run` differentiates a product of two leaves.
fn asked(run: impl FnOnce(&Tensor, &Tensor, &Tensor)) -> Vec<[bool; 2]> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (a, b, seen) = (leaf(&[2.0]), leaf(&[3.0]), asked.clone());
    let y = record("product", &[&a, &b], no_grad(|| &a * &b), |saver| {
        let (a, b) = (saver.save(&a), saver.save(&b));
        move |ctx: &BackwardCtx| {
            seen.lock().unwrap().push([ctx.needs(0), ctx.needs(1)]);
            let by = |input, other| ctx.needs(input).then(|| ctx.grad(0) * ctx.get(other));
            [by(0, &b), by(1, &a)].into_iter().collect()
        }
    });
    run(&y, &a, &b);
    let asked = asked.lock().unwrap();
    asked.clone()
}

#[test]
fn backwards_are_asked_only_for_what_is_wanted() {
    let grad = |y: &Tensor, of: &Tensor| {
        autograd::grad(&[y], &[of], &[None], autograd::GraphMode::Retain)[0]
            .as_ref()
            .unwrap()
            .item()
    };
    let by_grad = asked(|y, a, b| {
        assert_eq!(grad(y, a), 3.0);
        assert_eq!(grad(y, b), 2.0);
        y.backward();
    });
    assert_eq!(by_grad, [[true, false], [false, true], [true, true]]);
    let by_backward =
        asked(|y, _, b| autograd::backward_into(&[y], &[None], &[b], autograd::GraphMode::Free));
    assert_eq!(by_backward, [[false, true]]);
}

#[test]
fn hooks_see_and_replace_gradients() {
    let x = leaf(&[1.0, 2.0]);
    let y = &x * 3.0;
    let on_y = y.register_hook(|g| Some(g * 10.0));
    let on_x = x.register_hook(|g| Some(g + &Tensor::from([1.0f64, 1.0])));
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let post = x.register_post_accumulate_grad_hook(move |leaf| {
        assert!(leaf.grad().is_some());
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let out = y.sum();
    autograd::backward(&[&out], &[None], autograd::GraphMode::Retain);
    assert_eq!(grad(&x), [31.0, 31.0]);
    on_y.remove();
    on_x.remove();
    x.set_grad(None);
    out.backward();
    assert_eq!(grad(&x), [3.0, 3.0]);
    assert_eq!(seen.load(Ordering::Relaxed), 2);
    post.remove();
}

#[test]
fn callbacks_run_after_the_last_gradient() {
    let x = leaf(&[1.0]);
    let w = leaf(&[2.0]);
    let done = Arc::new(AtomicUsize::new(0));
    let (flag, other) = (done.clone(), w.clone());
    x.register_post_accumulate_grad_hook(move |_| {
        let (flag, other) = (flag.clone(), other.clone());
        autograd::queue_callback(move || {
            assert!(other.grad().is_some());
            flag.fetch_add(1, Ordering::Relaxed);
        });
    });
    ((&w * &w) * &x).sum().backward();
    assert_eq!(done.load(Ordering::Relaxed), 1);
    assert!(catch(|| autograd::queue_callback(|| ())).is_err());
}

#[test]
fn no_grad_records_nothing_and_detach_cuts() {
    let x = leaf(&[2.0]);
    assert!(!no_grad(|| &x * &x).requires_grad());
    let y = (&x * &x).detach();
    assert!(!y.requires_grad());
    (&x * &y).sum().backward();
    assert_eq!(grad(&x), [4.0]);
}

#[test]
fn an_in_place_change_of_a_saved_tensor_is_caught() {
    let (x, w) = (leaf(&[2.0]), leaf(&[3.0]));
    let y = &x * 2.0;
    let z = &y * &w;
    y.add_(&Tensor::from([1.0f64]));
    let error = catch(|| z.sum().backward()).unwrap_err().to_string();
    assert!(error.contains("`mul`") && error.contains("changed in place"), "{error}");
}

#[test]
fn in_place_on_leaves_is_refused_unless_under_no_grad() {
    let x = leaf(&[2.0]);
    let one = Tensor::from([1.0f64]);
    assert!(catch(|| x.add_(&one).clone()).unwrap_err().to_string().contains("leaf"));
    let view = x.view([1, 1]);
    assert!(catch(|| view.add_(&one).clone()).unwrap_err().to_string().contains("view of a leaf"));
    no_grad(|| x.add_(&one).clone());
    assert_eq!(x.item(), 3.0);
}

#[test]
fn in_place_on_a_view_rewrites_the_base() {
    // base = 2x; base[1] = 2 x1 w; out = sum(base * base)
    let (x, w) = (leaf(&[1.0, 2.0, 3.0]), leaf(&[5.0]));
    let base = &x * 2.0;
    let row = base.select(0, 1);
    let product = x.select(0, 1) * 2.0 * w.select(0, 0);
    row.copy_(&product);
    (&base * &base).sum().backward();
    // d/dx0 = 8 x0; d/dx1 = 2 (2 x1 w) 2w = 8 x1 w^2; d/dw = 2 (2 x1 w) 2 x1 = 8 x1^2 w
    assert_eq!(grad(&x), [8.0, 400.0, 24.0]);
    assert_eq!(grad(&w), [160.0]);
}

#[test]
fn views_take_their_history_from_a_base_changed_later() {
    let (x, w) = (leaf(&[1.0, 2.0]), leaf(&[3.0]));
    let base = Tensor::zeros([2], Dtype::F64);
    let (a, b) = (base.select(0, 0), base.narrow(0, 0, 2));
    assert!(!b.requires_grad());
    a.copy_(&w.select(0, 0));
    assert!(base.requires_grad() && b.requires_grad());
    (&b * &x).sum().backward();
    assert_eq!(grad(&w), [1.0]);
    assert_eq!(grad(&x), [3.0, 0.0]);
}

#[test]
fn misuse_is_named() {
    let x = leaf(&[1.0, 2.0]);
    let error = catch(|| (&x * 2.0).backward()).unwrap_err().to_string();
    assert!(error.contains("one element") && error.contains("[2]"), "{error}");
    let error = catch(|| Tensor::from([1f64]).backward()).unwrap_err().to_string();
    assert!(error.contains("does not require a gradient"), "{error}");
    let error = catch(|| Tensor::from([1i64]).requires_grad_(true)).unwrap_err().to_string();
    assert!(error.contains("i64"), "{error}");
}

#[test]
fn one_of_several_views_may_not_be_changed_in_place() {
    let x = Tensor::from([[1.0f64, 2.0], [3.0, 4.0]]).requires_grad_(true);
    let y = &x * 1.0;
    for piece in [y.unbind(0), y.split(1, 0), y.split_sizes(&[1, 1], 0), y.chunk(2, 1)] {
        for view in [piece[0].clone(), piece[0].narrow(0, 0, 1)] {
            let error = catch(|| view.mul_(2.0).numel()).unwrap_err();
            assert!(error.to_string().contains("in-place change of one of several views"));
            // Not recorded, it is allowed; twice, to undo it.
            no_grad(|| view.neg_().neg_().numel());
        }
    }
    // Views that are given one by one may be changed.
    let rows = y.tensor_split(2, 0);
    rows[0].mul_(&rows[1]);
    // y is now [x0 x1, x1]; so is rows[0], a view of it.
    (y.sum() + (&rows[0] * 10.0).sum()).backward();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [33.0, 44.0, 12.0, 23.0]);
}

/// A gradient that is a view of what nobody else has becomes the leaf's, without a copy.
#[test]
fn a_view_of_a_gradient_of_its_own_is_kept() {
    use std::sync::{Arc, Mutex};
    let seen = Arc::new(Mutex::new(0));
    let of = |f: &dyn Fn(&Tensor) -> Tensor| {
        let leaf = Tensor::from([[1.0f64, 2.0], [3.0, 4.0]]).requires_grad_(true);
        let place = seen.clone();
        let _hook = leaf.register_hook(move |g| {
            *place.lock().unwrap() = g.data_ptr() as usize;
            None
        });
        f(&leaf).sum().backward();
        let grad = leaf.grad().unwrap();
        (grad.data_ptr() as usize == *seen.lock().unwrap(), grad)
    };
    let (is_kept, grad) = of(&|x| x.view([4]).exp());
    assert!(is_kept && grad.base().is_none() && grad.shape() == [2, 2]);
    // A second backward adds to it in place, and nobody else's numbers change.
    let kept = Tensor::from([0.5f64; 4]);
    let (_, grad) = of(&|x| x.view([4]) * &kept);
    grad.add_(1.0);
    assert_eq!(kept.to_vec::<f64>(), [0.5; 4]);
}

/// A gradient may be an expanded part with as many elements as the tensor that it is a part of.
#[test]
fn an_expanded_part_is_no_gradient_of_its_own() {
    let x = Tensor::from([[1.0f64, 2.0], [3.0, 4.0]]).requires_grad_(true);
    let squares = &x * &x;
    let rows = [x.sum_dim(&[0], true), Tensor::from([[5.0f64, 6.0]])];
    let weighted = Tensor::cat(&rows, 0) * &Tensor::from([[10.0f64, 20.0], [1.0, 1.0]]);
    (weighted.sum() + squares.sum()).backward();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [12.0, 24.0, 16.0, 28.0]);
}

/// Gradients of an input of several layers are added up by the layers' own products. Hooks see each by itself.
#[test]
fn gradients_of_a_shared_input_are_added_up_once_each() {
    use std::sync::{Arc, Mutex};
    use torchrs::{Dtype, profiler};
    for dtype in [Dtype::F64, Dtype::F32, Dtype::BF16] {
        let number = |shape: &[i64], from: f64| {
            let count = shape.iter().product::<i64>();
            let numbers = Tensor::arange(0i64, count, 1i64, Dtype::I64) * 3.0 + from;
            (numbers.remainder(5.0) - 2.0).to_dtype(dtype).view(shape)
        };
        let weights: Vec<Tensor> =
            (0..3).map(|i| number(&[4, 6], f64::from(i)).requires_grad_(true)).collect();
        let sums: Vec<Tensor> =
            weights.iter().map(|w| (w.detach().sum_dim(&[0], false) * 18.0).contiguous()).collect();
        let gradient = |hooked: bool| {
            let x = number(&[2, 3, 6], 1.0).requires_grad_(true);
            let inner = &x * 1.0;
            let seen = Arc::new(Mutex::new(Vec::new()));
            let mut all = &inner * 2.0;
            for (i, weight) in weights.iter().enumerate() {
                let y = inner.linear(weight, None);
                if hooked {
                    let seen = seen.clone();
                    y.grad_fn().unwrap().register_hook(move |inputs, _| {
                        seen.lock().unwrap().push((i, inputs[0].clone().unwrap()));
                        None
                    });
                }
                all = all + y.sum_dim(&[-1], true) * 3.0;
            }
            let loss = all.sum();
            let (_, profile) = profiler::profile(|| loss.backward());
            // The profiler hears the threads of other tests too.
            let here = nix::unistd::gettid().as_raw();
            let own = |thread: usize| profile.threads()[thread].tid == here;
            let products =
                profile.events().iter().filter(|e| e.name == "mm" && own(e.thread)).count();
            let seen = seen.lock().unwrap();
            assert_eq!(seen.len(), if hooked { 3 } else { 0 });
            for (i, own) in &*seen {
                assert!(own.equal(&sums[*i].expand(&[2, 3, 6]).contiguous()), "{dtype}: {own:?}");
            }
            (x.grad().unwrap(), products)
        };
        let each = sums.iter().cloned().reduce(|a, b| a + b).unwrap();
        let want = (each + 2.0).expand(&[2, 3, 6]).contiguous();
        let ((ours, few), (theirs, many)) = (gradient(false), gradient(true));
        assert!(ours.equal(&want) && theirs.equal(&want), "{dtype}: {ours:?} {theirs:?} {want:?}");
        // A product that adds is no `mm`. Halves are multiplied in their own type on the host.
        assert!(few < many || dtype == Dtype::BF16, "{dtype}: {few} products, with hooks {many}");
    }
}

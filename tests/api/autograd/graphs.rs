//! Graphs that are deep, and graphs that several threads build and run.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use torchrs::autograd::{self, Node};
use torchrs::{Tensor, catch};

/// So deep that recursion, a frame of some dozens of bytes per op, overflows `STACK`.
const DEEP: usize = 50_000;
/// Bytes of stack: enough for one op, at any optimisation.
const STACK: usize = 512 << 10;

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).requires_grad_(true)
}

fn grad(t: &Tensor) -> Vec<f64> {
    t.grad().expect("a gradient").to_vec()
}

/// Runs `f` on a thread with a small stack.
fn with_small_stack<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(STACK).spawn(f).unwrap().join().unwrap()
}

/// `x`, multiplied by 1 so often; each op saves its input.
fn chain(x: &Tensor, one: &Tensor) -> Tensor {
    (0..DEEP).fold(x.clone(), |y, _| y * one)
}

#[test]
fn a_chain_of_a_million_ops_neither_overflows_on_backward_nor_on_drop() {
    let x = leaf(&[1.0]);
    let mut y = x.clone();
    for _ in 0..1_000_000 {
        y = y.view([1]);
    }
    let z = y.clone();
    y.backward();
    assert_eq!(grad(&x), [1.0]);
    drop((y, z));
}

#[test]
fn deep_graphs_run_and_die_on_a_small_stack() {
    with_small_stack(|| {
        let (x, one) = (leaf(&[3.0]), leaf(&[1.0]));
        chain(&x, &one).backward();
        assert_eq!((grad(&x), grad(&one)), (vec![1.0], vec![3.0 * DEEP as f64]));
        // Without a backward; and an inner node that outlives its output.
        drop(chain(&x, &one));
        let node: Node = chain(&x, &one).grad_fn().unwrap();
        drop(node);
    });
}

#[test]
fn deep_graphs_of_gradients_run_and_die_on_a_small_stack() {
    with_small_stack(|| {
        let (x, one) = (leaf(&[3.0]), leaf(&[1.0]));
        let y = (0..DEEP / 10).fold(x.clone(), |y, _| y * &one);
        let g = autograd::grad(&[&y], &[&one], &[None], autograd::GraphMode::Create)
            .swap_remove(0)
            .unwrap();
        let h = autograd::grad(&[&g], &[&x], &[None], autograd::GraphMode::Retain)
            .swap_remove(0)
            .unwrap();
        assert_eq!(h.item(), (DEEP / 10) as f64);
        // A gradient with history, kept by the leaf.
        autograd::backward(&[&y], &[None], autograd::GraphMode::Create);
        drop((y, g));
        x.set_grad(None);
        one.set_grad(None);
    });
}

#[test]
fn deep_chains_of_in_place_ops_views_and_checkpoints_die_on_a_small_stack() {
    with_small_stack(|| {
        let x = leaf(&[1.0, 2.0]);
        let y = &x * 1.0;
        for _ in 0..DEEP / 10 {
            y.select(0, 0).mul_(1.0);
        }
        y.sum().backward();
        assert_eq!(grad(&x), [1.0, 1.0]);
        drop(y);
        let y = (0..DEEP / 20).fold(x.clone(), |y, _| autograd::checkpoint(|t| t[0].sin(), &[&y]));
        drop(y);
    });
}

#[test]
fn a_graph_may_die_with_its_thread() {
    thread_local! {
        static KEPT: RefCell<Option<Tensor>> = const { RefCell::new(None) };
    }
    let x = leaf(&[1.0]);
    let weak = x.clone();
    with_small_stack(move || KEPT.set(Some(chain(&weak, &leaf(&[1.0])))));
    // Only this test's handle is left: a new chain on it works.
    (&x * 2.0).backward();
    assert_eq!(grad(&x), [2.0]);
}

#[test]
fn graphs_can_be_built_and_run_on_several_threads() {
    let x = leaf(&[1.0, 2.0]);
    std::thread::scope(|s| {
        for k in 1..=4 {
            let x = x.clone();
            s.spawn(move || {
                let g = autograd::grad(
                    &[&(&x * k as f64).sum()],
                    &[&x],
                    &[None],
                    autograd::GraphMode::Free,
                );
                assert_eq!(g[0].as_ref().unwrap().to_vec::<f64>(), [k as f64; 2]);
            });
        }
    });
}

#[test]
fn gradients_of_several_threads_add_up_in_a_shared_leaf() {
    let n = 1000;
    let x = leaf(&vec![1.0; n]);
    let hooked = Arc::new(AtomicUsize::new(0));
    let count = hooked.clone();
    x.register_hook(move |_| {
        count.fetch_add(1, Relaxed);
        None
    });
    std::thread::scope(|s| {
        for _ in 0..4 {
            let x = x.clone();
            s.spawn(move || (0..50).for_each(|_| (&x * 2.0).sum().backward()));
        }
    });
    assert_eq!(grad(&x), vec![400.0; n]);
    assert_eq!(hooked.load(Relaxed), 200);
}

#[test]
fn one_graph_may_be_run_by_several_threads_if_it_is_kept() {
    let x = leaf(&[0.5; 100]);
    let y = (x.exp() * x.sin()).sum();
    let want = autograd::grad(&[&y], &[&x], &[None], autograd::GraphMode::Retain)[0]
        .as_ref()
        .unwrap()
        .to_vec::<f64>();
    let run = || {
        let g = autograd::grad(&[&y], &[&x], &[None], autograd::GraphMode::Retain);
        assert_eq!(g[0].as_ref().unwrap().to_vec::<f64>(), want);
    };
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..20).for_each(|_| run()));
        }
    });
    // Not kept: exactly one of the threads gets it.
    let freed = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let result =
                    catch(|| autograd::grad(&[&y], &[&x], &[None], autograd::GraphMode::Free));
                freed.fetch_add(usize::from(result.is_ok()), Relaxed);
            });
        }
    });
    assert!(freed.load(Relaxed) <= 1);
}

#[test]
fn a_graph_built_on_one_thread_runs_on_another_with_its_checkpoints() {
    let x = leaf(&[0.5]);
    let y = autograd::checkpoint(|t| t[0].exp().sin(), &[&x]);
    std::thread::spawn(move || y.backward()).join().unwrap();
    let e = 0.5f64.exp();
    assert!((grad(&x)[0] - e.cos() * e).abs() < 1e-12);
}

#[test]
fn threads_add_to_one_graph_in_turns() {
    let x = leaf(&[0.5]);
    // This thread has made many nodes when a new one goes on with them, and the new one more than this when it comes back.
    let y = (0..100).fold(x.clone(), |y, _| &y * 1.0);
    let z = std::thread::scope(|s| {
        s.spawn(|| (0..300).fold(y.sin(), |z, _| &z * 1.0) + y.exp()).join().unwrap()
    });
    (&z * &y).sum().backward();
    let v = 0.5f64;
    let want = v.sin() + v.exp() + v * (v.cos() + v.exp());
    assert!((grad(&x)[0] - want).abs() < 1e-12, "{} for {want}", grad(&x)[0]);
}

#[test]
fn what_is_saved_and_no_input_has_its_history() {
    /// `2 exp(x)` for the node of `x`, of an `exp(x)` that it has not computed.
    fn twice(x: &Tensor) -> Tensor {
        let e = x.exp();
        autograd::record("twice", &[x], autograd::no_grad(|| &e * 2.0), |saver| {
            let e = saver.save(&e);
            move |ctx| [Some(ctx.grad(0) * ctx.get(&e) * 2.0)].into_iter().collect()
        })
    }
    let x = leaf(&[0.5]);
    let hooked =
        || autograd::saved_tensors_hooks(|t| t.clone(), |t: &Tensor| t.clone(), || twice(&x));
    for y in [twice(&x), hooked()] {
        let g =
            autograd::grad(&[&y], &[&x], &[None], autograd::GraphMode::Create)[0].clone().unwrap();
        let h =
            autograd::grad(&[&g], &[&x], &[None], autograd::GraphMode::Free)[0].clone().unwrap();
        let want = 2.0 * 0.5f64.exp();
        assert!((g.item() - want).abs() < 1e-12 && (h.item() - want).abs() < 1e-12);
    }
}

#[test]
fn a_saved_constant_that_backward_itself_changes_is_caught() {
    let (x, c) = (leaf(&[2.0]), Tensor::from([3f64]));
    let y = autograd::record("spoils", &[&x], autograd::no_grad(|| &x * &c), |saver| {
        let c = saver.save(&c);
        move |ctx| [Some(ctx.get(&c).mul_(&ctx.grad(0)).clone())].into_iter().collect()
    });
    // With a gradient that has history the change is an op of a graph, and still one.
    let v = leaf(&[1.0]);
    let run = || autograd::grad(&[&y], &[&x], &[Some(&v)], autograd::GraphMode::Create);
    run();
    let error = catch(run).unwrap_err().to_string();
    assert!(error.contains("`spoils`") && error.contains("changed in place"), "{error}");
}

#[test]
fn a_graph_runs_again_if_nothing_was_saved_and_only_then() {
    type Op = fn(&Tensor) -> Tensor;
    let saves_nothing: [(&str, Op); 16] = [
        ("add", |x| x + x),
        ("sub", |x| x - 1.0),
        ("neg", |x| -x),
        ("sum", |x| x.sum()),
        ("mean", |x| x.mean()),
        ("reshape", |x| x.reshape([6])),
        ("transpose", |x| x.transpose(0, 1)),
        ("expand", |x| x.unsqueeze(0).expand(&[4, 2, 3])),
        ("select", |x| x.select(0, 1)),
        ("cat", |x| Tensor::cat(&[x, x], 0)),
        ("stack", |x| Tensor::stack(&[x, x], 0)),
        ("roll", |x| x.roll(&[1], &[1])),
        ("flip", |x| x.flip(&[0])),
        ("cumsum", |x| x.cumsum(1)),
        ("tril", |x| x.tril(0)),
        ("to_dtype", |x| x.to_dtype(torchrs::Dtype::F32)),
    ];
    let saves: [(&str, Op); 16] = [
        ("exp", |x| x.exp()),
        ("mul", |x| x * x),
        ("div", |x| 1.0 / x),
        ("tanh", |x| x.tanh()),
        ("relu", |x| x.relu()),
        ("matmul", |x| x.matmul(&x.t())),
        ("softmax", |x| x.softmax(1)),
        ("layer_norm", |x| x.layer_norm(&[3], None, None, 1e-5)),
        ("prod", |x| x.prod()),
        ("amax", |x| x.amax(&[1], false)),
        ("var", |x| x.var_dim(&[1], 1, false)),
        ("logsumexp", |x| x.logsumexp(&[1], false)),
        ("cumprod", |x| x.cumprod(1)),
        ("sort", |x| x.sort(1, false).0),
        ("gather", |x| x.gather(1, &Tensor::from([[0i64], [2]]))),
        ("index_select", |x| x.index_select(0, &Tensor::from([1i64, 1]))),
    ];
    let ops = saves_nothing.into_iter().map(|op| (op, true));
    for ((name, op), again) in ops.chain(saves.into_iter().map(|op| (op, false))) {
        let x = Tensor::from([[0.3f64, 1.2, 0.7], [2.0, 0.4, 1.1]]).requires_grad_(true);
        let y = op(&x);
        let backward = || {
            catch(|| autograd::backward(&[&y], &[Some(&y.ones_like())], autograd::GraphMode::Free))
        };
        backward().unwrap();
        let once = grad(&x);
        match backward() {
            Ok(()) => {
                assert!(again, "{name}: a second backward, though something was saved");
                let twice: Vec<f64> = once.iter().map(|g| 2.0 * g).collect();
                assert_eq!(grad(&x), twice, "{name}");
            }
            Err(error) => {
                assert!(!again, "{name}: {error}");
                assert!(error.to_string().contains("a second time"), "{name}: {error}");
            }
        }
    }
}

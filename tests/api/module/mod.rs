//! `#[derive(Module)]` and what is built on it: names, ties, state dicts, modes, conversion, text.

mod hooks;
mod identity;
mod parametrizations;
mod summary;

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::sync::Arc;

use torchrs::nn::{Buffer, Forward, Module, Parameter, Sequential, StateDict, Training};
use torchrs::{Dtype, Dtype::F32, Tensor, catch};

fn parameter(value: f64) -> Parameter {
    Parameter::new(Tensor::full([2], value, F32))
}

#[derive(Module)]
#[module(extra_repr = Self::describe)]
struct Scale {
    weight: Parameter,
    power: i32,
}

impl Scale {
    fn new(value: f64) -> Self {
        Scale { weight: parameter(value), power: 2 }
    }
    fn describe(&self) -> String {
        format!("power={}", self.power)
    }
}

impl Forward for Scale {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.mul(&self.weight)
    }
}

#[derive(Module)]
struct Noisy {
    scale: Scale,
    /// Declared after a module, yet before it in PyTorch's order.
    running: Buffer,
    scratch: Buffer,
    training: Training,
    own: Parameter,
}

impl Noisy {
    fn new() -> Self {
        Noisy {
            scale: Scale::new(1.0),
            running: Buffer::new(Tensor::zeros([3], F32)),
            scratch: Buffer::non_persistent(Tensor::zeros([1], F32)),
            training: Training::default(),
            own: parameter(4.0),
        }
    }
}

#[derive(Clone, Default)]
struct Config {
    _hidden: usize,
    _name: String,
}

/// All kinds of plain fields, none of which needs an attribute.
#[derive(Module)]
#[module(name = "Everything")]
struct Nested<M: Module, T: Send + Sync> {
    first: Option<M>,
    none: Option<Scale>,
    layers: Vec<M>,
    pair: [Scale; 2],
    by_name: BTreeMap<String, Scale>,
    hashed: HashMap<&'static str, Scale>,
    boxed: Box<dyn Forward>,
    shared: Arc<Scale>,
    maybe_list: Option<Vec<Parameter>>,
    #[module(rename = "type")]
    kind: Scale,
    #[module(skip)]
    hidden: Scale,
    r#loop: Parameter,
    config: Config,
    size: usize,
    rate: f64,
    #[module(skip)]
    constant: Tensor,
    function: fn(&Tensor) -> Tensor,
    closure: Box<dyn Fn(f64) -> f64 + Send + Sync>,
    sizes: Vec<usize>,
    marker: PhantomData<T>,
    #[module(skip)]
    cache: std::sync::Mutex<Option<Tensor>>,
    names: BTreeMap<String, Box<usize>>,
    shared_sizes: Option<Arc<Vec<usize>>>,
}

fn nested() -> Nested<Scale, u8> {
    Nested {
        first: Some(Scale::new(1.0)),
        none: None,
        layers: vec![Scale::new(2.0), Scale::new(3.0)],
        pair: [Scale::new(4.0), Scale::new(5.0)],
        by_name: [("b".to_owned(), Scale::new(6.0)), ("a".to_owned(), Scale::new(7.0))].into(),
        hashed: [("z", Scale::new(8.0)), ("y", Scale::new(9.0))].into(),
        boxed: Box::new(Scale::new(10.0)),
        shared: Arc::new(Scale::new(11.0)),
        maybe_list: Some(vec![parameter(12.0), parameter(13.0)]),
        kind: Scale::new(14.0),
        hidden: Scale::new(15.0),
        r#loop: parameter(0.0),
        config: Config::default(),
        size: 1,
        rate: 0.5,
        constant: Tensor::ones([1], F32),
        function: |x| x.clone(),
        closure: Box::new(|x| x),
        sizes: vec![1],
        marker: PhantomData,
        cache: std::sync::Mutex::new(None),
        names: BTreeMap::new(),
        shared_sizes: None,
    }
}

fn names(named: Vec<(String, Tensor)>) -> Vec<String> {
    named.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn every_kind_of_field_is_found_under_its_name() {
    let net = nested();
    let expected = [
        "loop",
        "first.weight",
        "layers.0.weight",
        "layers.1.weight",
        "pair.0.weight",
        "pair.1.weight",
        "by_name.a.weight",
        "by_name.b.weight",
        "hashed.y.weight",
        "hashed.z.weight",
        "boxed.weight",
        "shared.weight",
        "maybe_list.0",
        "maybe_list.1",
        "type.weight",
    ];
    assert_eq!(names(net.named_parameters()), expected);
    assert_eq!(net.num_parameters(), 2 * expected.len());
    let _ = (&net.hidden, net.size, net.rate, &net.constant, net.function, &net.closure);
    let _ =
        (&net.names, &net.shared_sizes, &net.config, &net.sizes, net.marker, &net.cache, &net.none);
}

#[test]
fn order_is_parameters_then_buffers_then_modules() {
    let state = Noisy::new().state_dict();
    assert_eq!(state.keys().collect::<Vec<_>>(), ["own", "running", "scale.weight"]);
    let net = Noisy::new();
    assert_eq!(names(net.named_parameters()), ["own", "scale.weight"]);
    assert_eq!(names(net.named_buffers()), ["running", "scratch"]);
    let modules: Vec<String> = net.named_modules().into_iter().map(|(name, _)| name).collect();
    assert_eq!(modules, ["", "scale"]);
}

#[derive(Module)]
struct Pair(Scale, Parameter);

#[derive(Module)]
enum Either {
    One(Scale),
    Two(Box<Pair>),
}

#[derive(Module)]
struct Nothing;

#[test]
fn tuple_structs_enums_and_unit_structs_are_modules() {
    let pair = || Pair(Scale::new(1.0), parameter(2.0));
    assert_eq!(names(pair().named_parameters()), ["1", "0.weight"]);
    assert_eq!(names(Either::One(Scale::new(1.0)).named_parameters()), ["weight"]);
    let mut either = Either::Two(Box::new(pair()));
    assert_eq!(names(either.named_parameters()), ["1", "0.weight"]);
    either.to(Dtype::F64);
    assert!(either.parameters().iter().all(|p| p.dtype() == Dtype::F64));
    assert_eq!(Nothing.parameters().len(), 0);
    assert_eq!(Nothing.repr(), "Nothing()");
}

#[derive(Module)]
struct Tied {
    embedding: Scale,
    head: Scale,
}

fn tied() -> Tied {
    let embedding = Scale::new(3.0);
    let head = Scale { weight: embedding.weight.clone(), power: 1 };
    Tied { embedding, head }
}

#[test]
fn a_tied_parameter_is_one_parameter_under_two_names() {
    let mut net = tied();
    assert_eq!(names(net.named_parameters()), ["embedding.weight"]);
    let state = net.state_dict();
    assert_eq!(state.keys().collect::<Vec<_>>(), ["embedding.weight", "head.weight"]);
    assert_eq!(state["head.weight"].data_ptr(), state["embedding.weight"].data_ptr());

    net.head.forward(&net.embedding.forward(&Tensor::ones([2], F32))).sum().backward();
    assert_eq!(net.head.weight.grad().unwrap().to_vec::<f32>(), [6.0, 6.0]);

    net.to(Dtype::F64);
    assert!(net.head.weight.ptr_eq(&net.embedding.weight));
    assert!(net.head.weight.requires_grad());
    assert_eq!(net.head.weight.grad().unwrap().dtype(), Dtype::F64);
}

#[test]
fn a_state_dict_goes_round_and_shares_memory() {
    let (from, to) = (nested(), nested());
    torchrs::no_grad(|| from.parameters().iter().for_each(|p| _ = p.fill_(0.25)));
    let report = to.load_state_dict(&from.state_dict(), true).unwrap();
    assert!(report.missing_keys.is_empty() && report.unexpected_keys.is_empty());
    assert!(to.parameters().iter().all(|p| p.to_vec::<f32>() == [0.25, 0.25] && p.requires_grad()));
    let state = to.state_dict();
    assert!(!state["loop"].requires_grad());
    state["loop"].fill_(7.0);
    assert_eq!(to.r#loop.to_vec::<f32>(), [7.0, 7.0]);
}

#[test]
fn loading_converts_dtypes() {
    let net = Scale::new(1.0);
    let state: StateDict = [("weight", Tensor::from([1.5f64, 2.5]))].into_iter().collect();
    net.load_state_dict(&state, true).unwrap();
    assert_eq!(net.weight.dtype(), F32);
    assert_eq!(net.weight.to_vec::<f32>(), [1.5, 2.5]);
}

#[test]
fn a_strict_load_names_all_that_is_wrong_and_changes_nothing() {
    let net = Noisy::new();
    let state: StateDict = [
        ("own", Tensor::zeros([2], F32)),
        ("running", Tensor::zeros([4], F32)),
        ("other.weight", Tensor::zeros([2], F32)),
    ]
    .into_iter()
    .collect();
    let error = net.load_state_dict(&state, true).unwrap_err().to_string();
    for part in [
        "Noisy",
        "missing keys: `scale.weight`",
        "unexpected keys: `other.weight`",
        "`running` is [4] in the state dict and [3] in the module",
    ] {
        assert!(error.contains(part), "no `{part}` in: {error}");
    }
    assert_eq!(net.own.to_vec::<f32>(), [4.0, 4.0]);

    let error = net.load_state_dict(&state, false).unwrap_err().to_string();
    assert!(error.contains("`running`") && !error.contains("missing"), "{error}");
}

#[test]
fn a_lenient_load_reports_what_differs() {
    let net = Noisy::new();
    let state: StateDict = [("own", Tensor::zeros([2], F32)), ("extra", Tensor::zeros([1], F32))]
        .into_iter()
        .collect();
    let report = net.load_state_dict(&state, false).unwrap();
    assert_eq!(report.missing_keys, ["running", "scale.weight"]);
    assert_eq!(report.unexpected_keys, ["extra"]);
    assert_eq!(net.own.to_vec::<f32>(), [0.0, 0.0]);
}

#[test]
fn train_and_eval_reach_all_flags() {
    let net = Sequential::new().append(Wrapped(vec![Noisy::new(), Noisy::new()]));
    assert!(net.is_training());
    net.eval();
    assert!(!net.is_training());
    net.train();
    assert!(net.is_training());
    assert!(Scale::new(1.0).is_training());
}

#[derive(Module)]
struct Wrapped(Vec<Noisy>);

impl Forward for Wrapped {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.clone()
    }
}

#[test]
fn zero_grad_and_freezing() {
    let net = Scale::new(2.0);
    net.forward(&Tensor::ones([2], F32)).sum().backward();
    assert!(net.weight.grad().is_some());
    net.zero_grad();
    assert!(net.weight.grad().is_none());
    net.requires_grad_(false);
    assert!(!net.forward(&Tensor::ones([2], F32)).requires_grad());
    assert_eq!(net.parameters().len(), 1);
}

#[test]
fn conversion_takes_floating_point_tensors_only() {
    #[derive(Module)]
    struct Mixed {
        weight: Parameter,
        count: Buffer,
        mean: Buffer,
    }
    let mut net = Mixed {
        weight: parameter(1.0),
        count: Buffer::new(Tensor::from([3i64])),
        mean: Buffer::non_persistent(Tensor::zeros([1], F32)),
    };
    net.weight.requires_grad_(false);
    net.to(Dtype::BF16);
    assert_eq!(net.weight.dtype(), Dtype::BF16);
    assert_eq!(net.count.dtype(), Dtype::I64);
    assert_eq!(net.mean.dtype(), Dtype::BF16);
    assert!(!net.weight.requires_grad() && !net.mean.is_persistent());
    let error = catch(|| net.to(Dtype::I64)).unwrap_err().to_string();
    assert!(error.contains("i64"), "{error}");
    let mut both = vec![Arc::new(Scale::new(1.0))];
    both.push(both[0].clone());
    let held = both[0].clone();
    both.to(Dtype::F64);
    assert!(held.weight.ptr_eq(&both[1].weight) && held.weight.dtype() == Dtype::F64);
    let error = catch(|| both.deep_copy()).map(drop).unwrap_err().to_string();
    assert!(error.contains("Scale") && error.contains("Arc"), "{error}");
}

#[test]
fn memory_can_be_shared_with_other_processes() {
    let net = Noisy::new();
    net.share_memory().unwrap();
    assert!(net.own.storage().shared_range().is_some());
    assert!(net.scratch.storage().shared_range().is_some());
    assert_eq!(net.own.to_vec::<f32>(), [4.0, 4.0]);
}

#[test]
fn sequential_applies_its_modules_in_order() {
    let net = Sequential::new().append(Scale::new(2.0)).append_named("last", Scale::new(5.0));
    assert_eq!(net.forward(&Tensor::ones([2], F32)).to_vec::<f32>(), [10.0, 10.0]);
    assert_eq!(names(net.named_parameters()), ["0.weight", "last.weight"]);
    assert_eq!(Sequential::new().forward(&Tensor::ones([1], F32)).item(), 1.0);
    let layers: Vec<Box<dyn Forward>> =
        vec![Box::new(Scale::new(2.0)), Box::new(Sequential::new()), Box::new(Scale::new(3.0))];
    let net: Sequential = layers.into_iter().collect();
    assert_eq!(names(net.named_parameters()), ["0.weight", "2.weight"]);
    assert_eq!(net.iter().map(|m| m.name()).collect::<Vec<_>>(), ["Scale", "Sequential", "Scale"]);
    let error = catch(|| Sequential::new().append_named("a.b", Scale::new(1.0)).len());
    assert!(error.unwrap_err().to_string().contains("a.b"));
}

#[test]
fn a_module_prints_as_in_pytorch() {
    #[derive(Module)]
    struct Net {
        head: Scale,
        layers: Vec<Scale>,
        block: Sequential,
    }
    let mut layers: Vec<Scale> = (0..3).map(|_| Scale::new(1.0)).collect();
    layers.push(Scale { weight: parameter(1.0), power: 9 });
    let block = Sequential::new().append(Scale::new(1.0)).append(Scale::new(1.0));
    let net = Net { head: Scale::new(1.0), layers, block };
    let expected = "Net(
  (head): Scale(power=2)
  (layers): ModuleList(
    (0-2): 3 x Scale(power=2)
    (3): Scale(power=9)
  )
  (block): Sequential(
    (0): Scale(power=2)
    (1): Scale(power=2)
  )
)";
    assert_eq!(net.repr(), expected);
}

#[test]
fn modules_are_found_and_applied_to() {
    let net = Noisy::new();
    assert_eq!(names(net.own_parameters()), ["own"]);
    assert_eq!(net.get_submodule("scale").unwrap().name(), "Scale");
    assert!(net.get_submodule("").is_some() && net.get_submodule("other").is_none());
    let children: Vec<String> = net.named_children().into_iter().map(|(name, _)| name).collect();
    assert_eq!(children, ["scale"]);
    let mut seen = Vec::new();
    net.apply(&mut |module| seen.push(module.name().to_owned()));
    assert_eq!(seen, ["Scale", "Noisy"]);
    assert_eq!((net.parameters().len(), net.buffers().len()), (2, 2));
}

#[test]
fn conversions_have_names() {
    let mut net = tied();
    let dtypes = |net: &Tied| {
        let all = [net.embedding.weight.dtype(), net.head.weight.dtype()];
        assert_eq!(all[0], all[1]);
        all[0]
    };
    net.double();
    assert_eq!(dtypes(&net), Dtype::F64);
    net.half();
    assert_eq!(dtypes(&net), Dtype::F16);
    net.bfloat16();
    assert_eq!(dtypes(&net), Dtype::BF16);
    net.float();
    assert_eq!(dtypes(&net), F32);
    assert_eq!(net.parameters().len(), 1, "still tied");
}

#[derive(Module, Clone)]
struct Copied {
    first: Parameter,
    again: Parameter,
    maybe: Option<Parameter>,
    running: Buffer,
    training: Training,
    parts: Vec<torchrs::nn::Linear>,
}

#[test]
fn a_clone_is_tied_and_a_deep_copy_is_not() {
    let first = parameter(1.0);
    let net = Copied {
        again: first.clone(),
        first,
        maybe: Some(parameter(2.0)),
        running: Buffer::non_persistent(Tensor::zeros([1], F32)),
        training: Training::default(),
        parts: vec![torchrs::nn::Linear::new(2, 2)],
    };
    net.maybe.as_ref().unwrap().requires_grad_(false);
    net.eval();
    let (shallow, deep) = (net.clone(), net.deep_copy());
    assert!(
        shallow.first.ptr_eq(&net.first) && shallow.parts[0].weight.ptr_eq(&net.parts[0].weight)
    );
    assert!(deep.first.ptr_eq(&deep.again) && !deep.first.ptr_eq(&net.first));
    assert!(deep.first.requires_grad() && !deep.maybe.as_ref().unwrap().requires_grad());
    assert!(!deep.is_training() && !deep.running.is_persistent());
    torchrs::no_grad(|| {
        net.parameters().iter().chain(&net.buffers()).for_each(|t| _ = t.fill_(9.0));
    });
    assert_eq!(shallow.running.item(), 9.0);
    assert_eq!(deep.running.item(), 0.0);
    assert_eq!(deep.first.to_vec::<f32>(), [1.0, 1.0]);
    assert!(deep.parts[0].weight.to_vec::<f32>().iter().all(|&v| v != 9.0));
}

#[derive(Module)]
#[module(name = Self::shown)]
struct Named {
    deep: bool,
}

impl Named {
    fn shown(&self) -> &str {
        if self.deep { "Deep" } else { "Shallow" }
    }
}

#[test]
fn a_name_may_depend_on_the_module() {
    assert_eq!(Named { deep: true }.repr(), "Deep()");
    assert_eq!(Named { deep: false }.repr(), "Shallow()");
}

#[test]
fn modules_can_cross_threads() {
    fn send_and_sync<T: Send + Sync>(_: &T) {}
    let net = nested();
    send_and_sync(&net);
    send_and_sync::<Box<dyn Module>>(&(Box::new(net) as Box<dyn Module>));
}

//! Memory and values for modules that were built on the meta device.

use std::collections::{BTreeMap, HashSet};

use super::Module;
use super::walk::{Entry, move_all, walk};
use crate::error::{Error, Result, throw};
use crate::ops::random::{GeneratorState, default_generator, fork_rng_at};
use crate::storage::Device;
use crate::tensor::Tensor;
use crate::tensor::initial::{Initial, Unknown};
use std::sync::Arc;

/// [`Module::to_empty`].
#[track_caller]
pub(super) fn to_empty<M: Module + ?Sized>(module: &mut M, device: Device) -> Result<()> {
    device.check()?;
    if device.is_meta() {
        let what = "is meta, which has no memory; `to_device` takes a module there";
        return Err(Error::argument("Module::to_empty", "device", what));
    }
    let mut groups = BTreeMap::new();
    walk(module, "", &mut |_, entry| {
        if let Entry::Parameter(parameter) = entry
            && parameter.device().is_meta()
            && let Some(group) = parameter.together()
        {
            groups.insert(group.number(), group);
        }
    });
    for group in groups.values() {
        group.to_empty(device)?;
    }
    walk(module, "", &mut |_, entry| {
        if let Entry::Parameter(parameter) = entry
            && parameter.device().is_meta()
        {
            // It has no values, and nor has its gradient.
            parameter.tensor().set_grad(None);
        }
    });
    let moves = |old: &Tensor| old.device() != device;
    move_all("Module::to_empty", module, &moves, &|old| match old.device() {
        Device::Meta => Tensor::empty(old.shape(), (old.dtype(), device)),
        _ => old.to_device(device),
    });
    Ok(())
}

/// A tensor that is to get values, and how.
struct Target {
    /// The whole, where it is sharded.
    tensor: Tensor,
    initial: Arc<Initial>,
}

fn targets<M: Module + ?Sized>(module: &M) -> Result<Vec<Target>> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut wrong = None;
    walk(module, "", &mut |name, entry| {
        let (tensor, is_parameter) = match entry {
            Entry::Parameter(parameter) => (parameter.tensor(), true),
            Entry::Buffer(buffer) => (buffer.tensor(), false),
            Entry::Module(_) | Entry::Training(_) => return,
        };
        if !seen.insert(tensor.identity()) || wrong.is_some() {
            return;
        }
        let own = tensor.local();
        if own.device().is_meta() {
            wrong = Some(format!(
                "`{name}` is on meta; give the module memory with `to_empty(device)` first"
            ));
            return;
        }
        match own.initial() {
            Ok(initial) => found.push(Target { tensor: tensor.clone(), initial }),
            // Given, not made: it keeps its values.
            Err(Unknown::NotFromMeta) if !is_parameter => {}
            Err(unknown) => wrong = Some(complaint(&name, unknown)),
        }
    });
    match wrong {
        Some(what) => Err(Error::argument("Module::reset_parameters", "self", what)),
        None => Ok(found),
    }
}

fn complaint(name: &str, unknown: Unknown) -> String {
    let why = match unknown {
        Unknown::NotFromMeta => "the module was not built in `Device::Meta.scope(..)`",
        Unknown::Computed => "ops computed them, or nothing did",
        Unknown::Changed => "an op changed them of which no note is taken",
        Unknown::Part => "it was a part of a larger tensor",
    };
    format!(
        "the initial values of `{name}` are not known: {why}; known are those that are set on the meta device by `nn::init`, \
         `init::by` among it, or made by `zeros`, `ones`, `full`, `rand` and `randn`"
    )
}

/// [`Module::reset_parameters`].
#[track_caller]
pub(super) fn reset_parameters<M: Module + ?Sized>(module: &M) -> Result<()> {
    let targets = targets(module)?;
    let own = default_generator().get_state();
    let start = agreed(own, &targets)?;
    // What was built first has the first draws.
    let mut spans: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for target in &targets {
        if let (number, Some((least, next))) = target.initial.draws() {
            let span = spans.entry(number).or_insert((least, next));
            *span = (span.0.min(least), span.1.max(next));
        }
    }
    let mut total = 0;
    let mut places = BTreeMap::new();
    for (number, (least, next)) in spans {
        places.insert(number, (least, total));
        total += next - least;
    }
    for Target { tensor, initial, .. } in &targets {
        let (least, before) = places.get(&initial.draws().0).copied().unwrap_or_default();
        let at = |draw: u64, give: &mut dyn FnMut()| {
            let offset = start.offset + before + (draw - least);
            fork_rng_at(GeneratorState { offset, ..start }, give);
        };
        match (tensor.shard(), tensor.together()) {
            (Some(shard), Some(group)) => {
                // One whole parameter at a time.
                let whole = Tensor::empty(tensor.shape(), (shard.dtype(), shard.device()));
                initial.give(&whole, &at);
                group.keep_part(tensor, &whole);
            }
            _ => initial.give(tensor, &at),
        }
        tensor.storage().bump_version();
    }
    default_generator().set_state(GeneratorState { offset: own.offset + total, ..own });
    Ok(())
}

/// Where draws begin: of sharded parameters all ranks have parts of the same values, those of the first rank.
fn agreed(own: GeneratorState, targets: &[Target]) -> Result<GeneratorState> {
    let Some(group) = targets.iter().find_map(|target| target.tensor.together()) else {
        return Ok(own);
    };
    let bytes = [own.seed.to_le_bytes(), own.offset.to_le_bytes()].concat();
    let first = group.of_first(&bytes)?;
    match first.as_chunks::<8>() {
        ([seed, offset], []) => Ok(GeneratorState {
            seed: u64::from_le_bytes(*seed),
            offset: u64::from_le_bytes(*offset),
        }),
        _ => throw(Error::Other("the first rank sent no generator's state".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;
    use crate::nn::{self, Buffer, Module, Parameter, init};
    use crate::ops::random::{Generator, manual_seed};
    use crate::tensor::Dtype;

    /// The tensors of a module by name, and a draw made after it.
    fn values<M: Module>(module: &M) -> Vec<(String, Tensor)> {
        let mut all: Vec<_> =
            module.named_parameters().into_iter().chain(module.named_buffers()).collect();
        all.push(("afterwards".to_owned(), Tensor::randn([3], Dtype::F32)));
        all
    }

    /// Builds a module directly, and on the meta device with a seed set before or after.
    fn same_both_ways<M: Module>(what: &str, build: impl Fn() -> M) {
        manual_seed(11);
        let direct = values(&build());
        for seed_first in [true, false] {
            manual_seed(if seed_first { 11 } else { 5 });
            let mut module = Device::Meta.scope(&build);
            assert!(module.parameters().iter().all(|p| p.device().is_meta()), "{what}");
            module.to_empty(Device::Cpu);
            if !seed_first {
                manual_seed(11);
            }
            module.reset_parameters();
            let late = values(&module);
            assert_eq!(direct.len(), late.len(), "{what}");
            for ((name, direct), (other, late)) in direct.iter().zip(&late) {
                assert_eq!(name, other, "{what}");
                assert_eq!(direct.dtype(), late.dtype(), "{what}: {name}");
                assert!(direct.equal(late), "{what}: {name} is {late}, not {direct}");
            }
        }
    }

    #[derive(nn::Module)]
    struct Own {
        weights: Vec<Parameter>,
        table: Buffer,
        steps: Buffer,
        given: Buffer,
    }

    fn own() -> Own {
        let weight = |set: &dyn Fn(&Tensor)| {
            let weight = Tensor::empty([6, 4], Dtype::F32);
            set(&weight);
            Parameter::new(weight)
        };
        let filters = Tensor::empty([4, 2, 3], Dtype::F32);
        init::dirac_(&filters, 2);
        let table = Tensor::empty([5], Dtype::F64);
        init::by(&table, |t| {
            _ = t.copy_(&(Tensor::arange(0, 5, 1, (Dtype::F64, t.device())) * 0.5).exp())
        });
        let narrow = init::TruncNormalOptions { low: -0.3, high: 0.2, ..Default::default() };
        let weights = vec![
            weight(&|w| init::trunc_normal_(w, narrow)),
            weight(&|w| init::orthogonal_(w, 2.0)),
            weight(&|w| init::sparse_(w, 0.3, 1.0)),
            weight(&|w| init::eye_(w)),
            weight(&|w| init::xavier_normal_(w, 1.0)),
            weight(&|w| {
                init::uniform_(w, 0.0, 1.0);
                init::zeros_(&w.narrow(0, 1, 2));
            }),
            weight(&|w| _ = Generator::new(3).normal_(w, 0.0, 1.0)),
            Parameter::new(Tensor::randn([3], Dtype::F32)),
            Parameter::new(Tensor::rand([3], Dtype::F64)),
            Parameter::new(Tensor::full([2, 2], 0.25, Dtype::F32)),
            Parameter::new(filters),
            Parameter::new(Tensor::linspace(0.0, 1.0, 5, Dtype::F32)),
        ];
        let steps = Buffer::new(Tensor::zeros([], Dtype::I64));
        Own {
            weights,
            table: Buffer::new(table),
            steps,
            given: Buffer::new(Tensor::from([1f32, 2.0])),
        }
    }

    #[test]
    fn a_module_of_the_meta_device_gets_the_values_of_one_that_was_built_directly() {
        use crate::models::{GPT2Config, GPT2LMHeadModel};
        same_both_ways("own", own);
        same_both_ways("layers", || {
            nn::Sequential::new()
                .append(nn::Embedding::new(7, 5).padding_idx(2))
                .append(nn::Linear::new(5, 3))
                .append(nn::Conv2d::new(3, 4, 3))
                .append(nn::ConvTranspose1d::new(3, 4, 3, Default::default()))
                .append(nn::BatchNorm2d::new(4))
                .append(nn::LayerNorm::new([4]))
                .append(nn::GroupNorm::new(2, 4))
                .append(nn::PReLU::new(3, 0.25))
        });
        same_both_ways("lstm", || {
            nn::LSTM::new(3, 4, nn::RNNOptions { num_layers: 2, ..Default::default() })
        });
        same_both_ways("attention", || nn::MultiheadAttention::new(8, 2, Default::default()));
        same_both_ways("encoder", || nn::TransformerEncoderLayer::new(8, 2, Default::default()));
        same_both_ways("resnet", || crate::models::resnet18(10));
        same_both_ways("mobilenet", || crate::models::mobilenet_v2(10));
        let config = GPT2Config {
            n_layer: 2,
            n_embd: 12,
            n_head: 2,
            vocab_size: 17,
            n_positions: 8,
            ..GPT2Config::gpt2()
        };
        same_both_ways("gpt2", || GPT2LMHeadModel::new(config));
    }

    #[test]
    fn conversions_on_the_meta_device_are_made_later() {
        crate::fork_rng(|| {
            let build = || nn::Linear::new(3, 4);
            let mut module = Device::Meta.scope(build);
            module.to(Dtype::BF16);
            module.to_empty(Device::Cpu);
            manual_seed(3);
            module.reset_parameters();
            manual_seed(3);
            let mut direct = build();
            direct.to(Dtype::BF16);
            assert!(direct.weight.equal(&module.weight));
            // Twice gives other numbers, of a module that was moved meanwhile too.
            let before = module.weight.detach().clone_contiguous();
            module.to(Dtype::F32);
            module.reset_parameters();
            assert!(!before.to_dtype(Dtype::F32).equal(&module.weight));
        });
    }

    #[test]
    fn draws_on_the_host_have_their_places_in_a_scope() {
        crate::fork_rng(|| {
            #[derive(nn::Module)]
            struct Mixed {
                first: nn::Linear,
                order: Buffer,
                noise: Buffer,
                last: nn::Linear,
            }
            let build = || Mixed {
                first: nn::Linear::new(2, 3),
                order: Buffer::new(Tensor::randperm(20)),
                noise: Buffer::new(Tensor::randn([4], (Dtype::F32, Device::Cpu))),
                last: nn::Linear::new(3, 2),
            };
            manual_seed(11);
            let direct = values(&build());
            manual_seed(11);
            let mut late = Device::Meta.scope(build);
            late.to_empty(Device::Cpu);
            late.reset_parameters();
            for ((name, direct), (_, late)) in direct.iter().zip(values(&late)) {
                assert!(direct.equal(&late), "{name} is {late}, not {direct}");
            }
        });
    }

    #[test]
    fn parts_of_several_scopes_have_their_draws_one_after_the_other() {
        crate::fork_rng(|| {
            let build = || nn::Linear::new(2, 3);
            let [first, second] = [(); 2].map(|()| Device::Meta.scope(build));
            // In the order in which they were built.
            let mut both = nn::Sequential::new().append(second).append(first);
            both.to_empty(Device::Cpu);
            manual_seed(1);
            both.reset_parameters();
            manual_seed(1);
            let [first, second] = [(); 2].map(|()| build());
            let got = both.parameters();
            assert!(got[2].equal(&first.weight) && got[0].equal(&second.weight));
        });
    }

    #[test]
    fn unknown_values_are_refused_with_the_parameters_name() {
        let refused = |module: &dyn Module, what: &str| {
            let error = catch(|| reset_parameters(module).unwrap_or_else(|e| throw(e)));
            let error = error.unwrap_err().to_string();
            assert!(what.split('&').all(|part| error.contains(part)), "{error}");
        };
        refused(&nn::Linear::new(2, 3), "`weight`&not built in");
        let mut module = Device::Meta.scope(|| {
            let module = nn::Linear::new(2, 3);
            crate::autograd::no_grad(|| _ = module.bias.as_ref().unwrap().mul_(2.0));
            module
        });
        refused(&module, "`weight`&to_empty");
        assert!(catch(|| module.clone().to_empty(Device::Meta)).is_err());
        module.to_empty(Device::Cpu);
        refused(&module, "`bias`&changed");
        #[derive(nn::Module)]
        struct Scaled {
            weight: Parameter,
            table: Buffer,
        }
        let scaled = |of_parameter: bool| {
            let mut scaled = Device::Meta.scope(|| {
                let [computed, known] =
                    [Tensor::randn([2], Dtype::F32) * 0.1, Tensor::zeros([2], Dtype::F32)];
                let (weight, table) =
                    if of_parameter { (computed, known) } else { (known, computed) };
                Scaled { weight: Parameter::new(weight), table: Buffer::new(table) }
            });
            scaled.to_empty(Device::Cpu);
            scaled
        };
        refused(&scaled(true), "`weight`&ops computed");
        refused(&scaled(false), "`table`&ops computed");
    }

    #[test]
    fn a_meta_module_computes_shapes_and_takes_optimizer_steps() {
        crate::fork_rng(|| {
            use crate::nn::Forward;
            use crate::optim::{AdamW, Optimizer};
            let net = Device::Meta.scope(|| crate::models::resnet18(10));
            let x = Tensor::empty([2, 3, 64, 64], (Dtype::F32, Device::Meta));
            let loss = net.forward(&x).square().mean();
            loss.backward();
            let grads = net.parameters().iter().filter_map(Tensor::grad).count();
            assert_eq!((loss.shape(), grads), (&[][..], net.parameters().len()));
            AdamW::new(net.parameters(), Default::default()).step();
            // What was done meanwhile changes no initial value, running statistics among them.
            let mut net = net;
            net.to_empty(Device::Cpu);
            assert!(net.parameters().iter().all(|p| p.grad().is_none()));
            manual_seed(2);
            net.reset_parameters();
            manual_seed(2);
            let direct = crate::models::resnet18(10);
            for ((name, late), (_, direct)) in values(&net).iter().zip(values(&direct)) {
                assert!(name == "afterwards" || late.equal(&direct), "{name}");
            }
        });
    }
}

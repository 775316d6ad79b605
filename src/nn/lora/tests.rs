//! Adapters: what they compute, train and save.

use super::*;
use crate::error::catch;
use crate::nn::{ReLU, Sequential};
use crate::tensor::Dtype;

fn model() -> Sequential {
    Sequential::new().append(Linear::new(4, 6)).append(ReLU).append(Linear::new(6, 2))
}

fn options(targets: &[&str]) -> LoraOptions {
    let target_modules = targets.iter().map(|target| (*target).to_owned()).collect();
    LoraOptions { r: 2, alpha: 3.0, target_modules, ..Default::default() }
}

/// An adapted model whose B is not 0.
fn trained() -> (Sequential, Tensor) {
    let model = model();
    add_adapters(&model, &options(&["0", "2"]));
    for (_, _, adapter) in adapted(&model) {
        no_grad(|| {
            _ = adapter
                .lora_b
                .weight
                .copy_(&Tensor::randn(adapter.lora_b.weight.shape(), Dtype::F32))
        });
    }
    (model, Tensor::randn([5, 4], Dtype::F32))
}

fn near(a: &Tensor, b: &Tensor) -> bool {
    (a - b).abs().max().item() < 1e-5
}

#[test]
fn only_adapters_are_trained_and_they_change_the_output_as_the_formula_says() {
    let (model, x) = trained();
    let (_, layer, adapter) = adapted(&model).remove(0);
    let matrices = [adapter.lora_a.weight.tensor(), adapter.lora_b.weight.tensor()];
    let want =
        lora_linear(&x, &layer.weight, matrices, 3.0) + layer.bias.as_deref().expect("has one");
    assert!(near(&layer.forward(&x), &want));
    model.forward(&x).sum().backward();
    for (name, parameter) in model.named_parameters() {
        assert_eq!(parameter.grad().is_some(), name.contains("lora_"), "{name}");
    }
}

#[test]
fn merging_keeps_the_output_and_unmerging_the_weight() {
    let (mut model, x) = trained();
    let before = model.forward(&x);
    let weight = adapted(&model)[0].1.weight.detach().clone_contiguous();
    merge(&model);
    assert!(near(&model.forward(&x), &before));
    assert!(!near(&adapted(&model)[0].1.weight, &weight));
    assert!(!model.forward(&x).requires_grad(), "a merged adapter is not trained");
    assert!(catch(|| merge(&model)).unwrap_err().to_string().contains("merged already"));
    unmerge(&model);
    assert!(near(&adapted(&model)[0].1.weight, &weight));
    assert!(near(&model.forward(&x), &before));
    assert!(model.forward(&x).requires_grad());
    merge(&model);
    remove_adapters(&mut model);
    assert_eq!(model.named_parameters().len(), 4);
    assert!(near(&model.forward(&x), &before));
}

#[test]
fn adapters_alone_are_saved_and_loaded() {
    let (first, x) = trained();
    let saved = state_dict(&first);
    assert_eq!(saved.len(), 4);
    let (second, _) = trained();
    second.load_state_dict(&first.state_dict(), true).expect("the same model");
    for (_, _, adapter) in adapted(&second) {
        no_grad(|| _ = adapter.lora_b.weight.fill_(0.0));
    }
    assert!(!near(&second.forward(&x), &first.forward(&x)));
    load_state_dict(&second, &saved).expect("fits");
    assert!(near(&second.forward(&x), &first.forward(&x)));
    let other = model();
    add_adapters(&other, &options(&["0"]));
    let error = load_state_dict(&other, &saved).unwrap_err().to_string();
    assert!(error.contains("2.lora_A.weight"), "{error}");
}

#[test]
fn the_cross_entropy_of_a_layer_has_its_adapter() {
    let (model, _) = trained();
    let (_, layer, _) = adapted(&model).remove(1);
    let (x, target) = (Tensor::randn([3, 6], Dtype::F32), Tensor::from([0i64, 1, 0]));
    let want = layer.forward(&x).cross_entropy(&target);
    assert!(near(&layer.cross_entropy(&x, &target, Default::default()), &want));
}

#[test]
fn dropout_is_in_training_alone() {
    let model = model();
    add_adapters(&model, &LoraOptions { dropout: 0.5, ..options(&["0"]) });
    for (_, _, adapter) in adapted(&model) {
        no_grad(|| _ = adapter.lora_b.weight.fill_(1.0));
    }
    let x = Tensor::randn([64, 4], Dtype::F32);
    assert!(!near(&model.forward(&x), &model.forward(&x)));
    model.eval();
    assert!(near(&model.forward(&x), &model.forward(&x)));
}

#[test]
fn what_cannot_be_is_told() {
    let error = |f: &dyn Fn()| catch(f).unwrap_err().to_string();
    let model = model();
    let text = error(&|| _ = add_adapters(&model, &options(&["q_proj"])));
    assert!(text.contains("q_proj") && text.contains("\"0\""), "{text}");
    let text = error(&|| _ = add_adapters(&model, &options(&[])));
    assert!(text.contains("target_modules"), "{text}");
    let none = LoraOptions { r: 0, ..options(&["0"]) };
    assert!(error(&|| _ = add_adapters(&model, &none)).contains("`r`"));
    assert!(error(&|| merge(&model)).contains("no adapters"));
    // Nothing was frozen by the calls that failed.
    assert!(model.parameters().iter().all(|p| p.requires_grad()));
    add_adapters(&model, &options(&["0"]));
    let text = error(&|| _ = add_adapters(&model, &options(&["0"])));
    assert!(text.contains("already"), "{text}");
    merge(&model);
    let text = error(&|| _ = add_adapters(&model, &options(&["2"])));
    assert!(text.contains("`unmerge`") && adapted(&model).len() == 1, "{text}");
    let tied = Linear::from_parameters(Parameter::new(Tensor::randn([4, 4], Dtype::F32)), None);
    let pair = Sequential::new().append(tied.clone()).append(tied);
    add_adapters(&pair, &options(&["0"]));
    assert!(error(&|| merge(&pair)).contains("another module's"));
}

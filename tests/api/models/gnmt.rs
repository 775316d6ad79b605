//! GNMT: numbers, translation, lengths in any order.

use torchrs::models::*;
use torchrs::nn::Module;
use torchrs::{Dtype::F32, Dtype::F64, Tensor, catch, no_grad};

use super::formula::{fill, recorded, same_as_recorded, tokens};

const LENGTHS: [usize; 3] = [5, 3, 2];

fn options(apart: bool) -> GNMTOptions {
    GNMTOptions {
        hidden_size: 8,
        dropout: 0.0,
        batch_first: apart,
        share_embedding: !apart,
        ..GNMTOptions::new(13)
    }
}

fn sentences(apart: bool) -> (Tensor, Tensor) {
    let (source, target) = (tokens("source", &[3, 5], 13), tokens("target", &[3, 4], 13));
    if apart { (source, target) } else { (source.t(), target.t()) }
}

#[test]
fn it_computes_and_translates_as_the_original() {
    let case = recorded("gnmt");
    for (name, apart) in [("shared", false), ("apart", true)] {
        let (source, target) = sentences(apart);
        for dtype in [F64, F32] {
            let model = fill(GNMT::new(options(apart)), dtype);
            let logits = model.forward(&source, &LENGTHS, &target);
            same_as_recorded(&format!("{name} in {dtype}"), &model, &logits, &[], &case[name]);

            model.eval();
            let translation = || serde_json::json!(model.translate(&source, &LENGTHS, 9));
            assert_eq!(translation(), case[name]["translation"], "{name} in {dtype}");
            // Without the token that ends sentences.
            let bias = model.decoder.classifier.classifier.bias.as_ref().expect("it has one");
            no_grad(|| _ = bias.select(0, 3).fill_(-10.0));
            assert_eq!(translation(), case[name]["endless"], "{name} in {dtype}");
        }
    }
}

#[test]
fn sentences_come_in_any_order() {
    let model = fill(GNMT::new(options(true)), F64);
    let (source, target) = sentences(true);
    let logits = model.forward(&source, &LENGTHS, &target);
    let turned = model.forward(&source.flip(&[0]), &[2, 3, 5], &target.flip(&[0]));
    let error = (turned.flip(&[0]) - logits).abs().amax(&[], false).item();
    assert!(error < 1e-12, "{error}");
    // The longest sentence has 3 words now; what is behind it does not matter.
    let (short, other) = (source.narrow(0, 1, 2), target.narrow(0, 1, 2));
    let cut = model.forward(&short.narrow(1, 0, 3), &LENGTHS[1..], &other);
    let whole = model.forward(&short, &LENGTHS[1..], &other);
    assert!((cut - whole).abs().amax(&[], false).item() < 1e-12);
}

#[test]
fn dropout_acts_in_training_only_and_the_padding_is_not_trained() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(0);
        let model = GNMT::new(GNMTOptions { dropout: 0.5, ..options(false) });
        let (source, target) = sentences(false);
        let forward = || model.forward(&source, &LENGTHS, &target);
        assert!(!forward().equal(&forward()));
        model.eval();
        assert!(forward().equal(&forward()));
        let zeros = Tensor::zeros([5, 3], torchrs::Dtype::I64);
        model.forward(&zeros, &LENGTHS, &zeros).sum().backward();
        let grad = model.encoder.embedder.weight.grad().expect("it was used");
        assert_eq!(grad.abs().sum().item(), 0.0);
        assert_eq!(model.encoder.rnn_layers[1].state_dict()["bias_hh_l0"].abs().sum().item(), 0.0);
    })
}

#[test]
fn impossible_sizes_are_refused() {
    let error = catch(|| GNMT::new(GNMTOptions { num_layers: 1, ..options(true) }).is_training());
    assert!(error.unwrap_err().to_string().contains("at least 2"));
    let error = catch(|| GNMT::new(GNMTOptions::new(3)).is_training());
    assert!(error.unwrap_err().to_string().contains("vocab_size"));
}

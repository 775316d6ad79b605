//! NeuMF: numbers, initial values.

use torchrs::models::*;
use torchrs::nn::Module;
use torchrs::{Dtype::F32, Dtype::F64, Tensor, catch};

use super::formula::{fill, recorded, same_as_recorded, same_output, tokens};

#[test]
fn it_computes_as_the_original() {
    let case = recorded("neumf");
    let (user, item) = (tokens("user", &[6], 11), tokens("item", &[6], 13));
    for dtype in [F64, F32] {
        let options = NeuMFOptions { mf_dim: 4, mlp_layer_sizes: vec![8, 8, 6], dropout: 0.0 };
        let model = fill(NeuMF::new(11, 13, options), dtype);
        let logits = model.forward(&user, &item, false);
        same_as_recorded(&format!("NeuMF in {dtype}"), &model, &logits, &[], &case);
        same_output("sigmoid", &model.forward(&user, &item, true), &case["probabilities"]);
    }
}

#[test]
fn initial_values_are_the_originals_and_misuse_is_refused() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(0);
        let model = NeuMF::new(300, 200, NeuMFOptions::default());
        let state = model.state_dict();
        let near = |name: &str, want: f64| {
            let got = state[name].std_dim(&[], 0, false).item();
            assert!((got / want - 1.0).abs() < 0.15, "{name}: {got}, not {want}");
        };
        near("mf_user_embed.weight", 0.01);
        near("mlp_item_embed.weight", 0.01);
        near("mlp.1.weight", (2.0f64 / (256.0 + 128.0)).sqrt());
        near("final.weight", (1.0f64 / 128.0).sqrt());

        let (user, item) = (Tensor::from([1i64, 2]), Tensor::from([1i64]));
        let error = catch(|| model.forward(&user, &item, false)).unwrap_err().to_string();
        assert!(error.contains("user") && error.contains("[2]"), "{error}");
        let odd = NeuMFOptions { mlp_layer_sizes: vec![7, 4], ..Default::default() };
        let error = catch(|| NeuMF::new(2, 2, odd).is_training()).unwrap_err().to_string();
        assert!(error.contains("mlp_layer_sizes"), "{error}");
    })
}

//! Names, shapes and numbers of parameters of the full sizes.

use serde_json::Value;
use torchrs::models::*;
use torchrs::nn::{Module, init};

fn make(name: &str) -> Box<dyn Module> {
    macro_rules! images {
        ($($name:ident)*) => {
            match name {
                $(stringify!($name) => return Box::new($name(1000)),)*
                _ => {}
            }
        };
    }
    images! {
        alexnet mobilenet_v2 vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn
        resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x8d
        resnext101_64x4d wide_resnet50_2 wide_resnet101_2
    }
    match name {
        "gpt2" => Box::new(GPT2LMHeadModel::new(GPT2Config::gpt2())),
        "gpt2_medium" => Box::new(GPT2LMHeadModel::new(GPT2Config::gpt2_medium())),
        "gpt2_large" => Box::new(GPT2LMHeadModel::new(GPT2Config::gpt2_large())),
        "gpt2_xl" => Box::new(GPT2LMHeadModel::new(GPT2Config::gpt2_xl())),
        "gnmt" => Box::new(GNMT::new(GNMTOptions::new(32320))),
        "neumf" => Box::new(NeuMF::new(138_493, 26_744, NeuMFOptions::default())),
        _ => panic!("no model {name}"),
    }
}

#[test]
fn full_sizes_have_the_originals_names_and_shapes() {
    let all: Value = serde_json::from_str(include_str!("shapes.json")).expect("JSON");
    let all = all.as_object().expect("a table");
    assert_eq!(all.len(), 26);
    for (name, want) in all {
        let model = init::skip_init(|| make(name));
        assert_eq!(Some(model.num_parameters() as u64), want["parameters"].as_u64(), "{name}");
        let state = model.state_dict();
        let got: Vec<Value> = state
            .iter()
            .map(|(name, tensor)| {
                let sizes = tensor.shape().iter().map(|&n| Value::from(n));
                std::iter::once(Value::from(name)).chain(sizes).collect()
            })
            .collect();
        let want = want["state"].as_array().expect("a list");
        let differs = got.iter().zip(want).find(|(g, w)| g != w);
        assert!(differs.is_none(), "{name}: {differs:?}");
        assert_eq!(got.len(), want.len(), "{name}");
    }
}

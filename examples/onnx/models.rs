//! Whole models, as small as their sizes allow.

use std::path::Path;

use torchrs::models::{
    self, BertConfig, BertForMaskedLM, BertForSequenceClassification, BertInputs, BertModel,
    BertOnnxInputs, GNMT, GNMTOptions, GPT2Config, GPT2LMHeadModel, GPT2Model, LlamaConfig,
    LlamaForCausalLM, LlamaModel, NeuMF, NeuMFOptions, VGG, VGGOptions, ViTConfig,
    ViTForImageClassification, ViTModel,
};
use torchrs::nn::{Forward, Module};
use torchrs::onnx::{Graph, Value};
use torchrs::{Dtype, Result, Tensor, no_grad};

use super::{draw, many, one};

pub fn write(folder: &Path) -> Result<()> {
    images(folder)?;
    decoders(folder)?;
    bert(folder)?;
    gnmt(folder)?;
    let sizes = NeuMFOptions { mf_dim: 4, mlp_layer_sizes: vec![64, 48], dropout: 0.5 };
    let model = NeuMF::new(50, 50, sizes);
    let inputs = [("user", Dtype::I64, "batch"), ("item", Dtype::I64, "batch")];
    let cases = [7, 1].map(|batch| vec![draw(Dtype::I64, &[batch]), draw(Dtype::I64, &[batch])]);
    let build = |graph: &mut Graph, x: &[Value]| Ok(vec![model.onnx(graph, &x[0], &x[1], true)?]);
    many(folder, "neumf", &model, &inputs, build, &cases, |x| {
        vec![model.forward(&x[0], &x[1], true)]
    })
}

fn images(folder: &Path) -> Result<()> {
    let f32 = Dtype::F32;
    let small: [&[usize]; 2] = [&[2, 3, 64, 64], &[1, 3, 64, 64]];
    let image = "batch 3 64 64";
    one(folder, "resnet18", &models::resnet18(10), f32, image, &small)?;
    one(folder, "resnet50", &models::resnet50(10), f32, image, &small)?;
    one(folder, "mobilenet_v2", &models::mobilenet_v2(10), f32, image, &small)?;
    // Nothing in a ResNet asks for a size.
    let odd: [&[usize]; 2] = [&[2, 3, 61, 75], &[3, 3, 50, 33]];
    one(folder, "resnet18_any", &models::resnet18(10), f32, "batch 3 height width", &odd)?;
    let large: [&[usize]; 2] = [&[1, 3, 224, 224], &[2, 3, 224, 224]];
    let options = VGGOptions { hidden: 64, num_classes: 10, ..VGGOptions::new([1, 1, 1, 1, 1]) };
    one(folder, "vgg", &VGG::new(options), f32, "batch 3 224 224", &large)?;
    one(folder, "alexnet", &models::alexnet(10), f32, "batch 3 224 224", &large)?;

    let config = ViTConfig {
        hidden_size: 24,
        intermediate_size: 40,
        num_attention_heads: 3,
        num_hidden_layers: 2,
        image_size: [35, 21],
        patch_size: [7, 7],
        initializer_range: 0.3,
        ..Default::default()
    };
    let shapes: [&[usize]; 2] = [&[3, 3, 35, 21], &[1, 3, 35, 21]];
    let images = "batch 3 35 21";
    let model = ViTForImageClassification::new(config.clone().with_num_labels(5));
    one(folder, "vit_classifier", &model, f32, images, &shapes)?;
    let model = ViTModel::new(config);
    let build = |graph: &mut Graph, x: &[Value]| {
        let features = model.onnx(graph, &x[0])?;
        let pooled = model.pooled_onnx(graph, &features)?;
        Ok(vec![features, pooled])
    };
    let cases = shapes.map(|shape| vec![draw(f32, shape)]);
    many(folder, "vit", &model, &[("pixel_values", f32, images)], build, &cases, |x| {
        let features = model.forward(&x[0]);
        let pooled = model.pooled(&features);
        vec![features, pooled]
    })
}

fn decoders(folder: &Path) -> Result<()> {
    let config = GPT2Config {
        n_layer: 2,
        n_embd: 32,
        n_head: 4,
        vocab_size: 50,
        n_positions: 24,
        ..GPT2Config::gpt2()
    };
    let (tokens, shapes): (_, [&[usize]; 3]) = ("batch length", [&[3, 11], &[1, 24], &[2, 1]]);
    one(folder, "gpt2", &GPT2LMHeadModel::new(config), Dtype::I64, tokens, &shapes)?;
    one(folder, "gpt2_base", &GPT2Model::new(config), Dtype::I64, tokens, &shapes)?;
    let config = LlamaConfig {
        vocab_size: 50,
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        max_position_embeddings: 24,
        ..Default::default()
    };
    one(folder, "llama", &LlamaForCausalLM::new(config.clone()), Dtype::I64, tokens, &shapes)?;
    one(folder, "llama_base", &LlamaModel::new(config), Dtype::I64, tokens, &shapes)
}

fn bert(folder: &Path) -> Result<()> {
    let config = BertConfig {
        vocab_size: 50,
        hidden_size: 24,
        intermediate_size: 40,
        num_hidden_layers: 2,
        num_attention_heads: 3,
        max_position_embeddings: 20,
        initializer_range: 0.3,
        ..Default::default()
    };
    let (tokens, shapes): (_, [&[usize]; 3]) = ("batch length", [&[3, 11], &[1, 20], &[2, 1]]);
    one(folder, "bert_tokens_alone", &BertModel::new(config.clone()), Dtype::I64, tokens, &shapes)?;

    let inputs = ["input_ids", "attention_mask", "token_type_ids"];
    let inputs = inputs.map(|name| (name, Dtype::I64, tokens));
    let cases = shapes.map(|shape| {
        let mask = Tensor::rand(shape, Dtype::F32).gt(0.3).to_dtype(Dtype::I64);
        // One sentence is padding alone.
        no_grad(|| _ = mask.narrow(0, 0, 1).fill_(i64::from(shape[0] == 1)));
        vec![draw(Dtype::I64, shape), mask, Tensor::randint(0, 2, shape, Dtype::I64)]
    });
    fn of(x: &[Tensor]) -> BertInputs<'_> {
        let (attention_mask, token_type_ids) = (Some(&x[1]), Some(&x[2]));
        BertInputs { attention_mask, token_type_ids, ..Default::default() }
    }
    fn values(x: &[Value]) -> BertOnnxInputs<'_> {
        let (attention_mask, token_type_ids) = (Some(&x[1]), Some(&x[2]));
        BertOnnxInputs { attention_mask, token_type_ids, ..Default::default() }
    }
    let model = BertModel::new(config.clone());
    let build = |graph: &mut Graph, x: &[Value]| {
        let features = model.onnx_with(graph, &x[0], values(x))?;
        let pooled = model.pooled_onnx(graph, &features)?;
        Ok(vec![features, pooled])
    };
    many(folder, "bert", &model, &inputs, build, &cases, |x| {
        let features = model.forward_with(&x[0], of(x));
        let pooled = model.pooled(&features);
        vec![features, pooled]
    })?;
    let model = BertForMaskedLM::new(config.clone());
    let build =
        |graph: &mut Graph, x: &[Value]| Ok(vec![model.onnx_with(graph, &x[0], values(x))?]);
    let forward = |x: &[Tensor]| vec![model.forward_with(&x[0], of(x))];
    many(folder, "bert_masked", &model, &inputs, build, &cases, forward)?;
    let model = BertForSequenceClassification::new(config.with_num_labels(3));
    let build =
        |graph: &mut Graph, x: &[Value]| Ok(vec![model.onnx_with(graph, &x[0], values(x))?]);
    let forward = |x: &[Tensor]| vec![model.forward_with(&x[0], of(x))];
    many(folder, "bert_classifier", &model, &inputs, build, &cases, forward)
}

fn gnmt(folder: &Path) -> Result<()> {
    for batch_first in [false, true] {
        let sizes = GNMTOptions { hidden_size: 12, num_layers: 4, ..GNMTOptions::new(50) };
        let model = GNMT::new(GNMTOptions { batch_first, ..sizes });
        let name = if batch_first { "gnmt_batch_first" } else { "gnmt" };
        // Larger than new ones, among which attention is nearly even.
        no_grad(|| model.parameters().iter().for_each(|p| _ = p.mul_(6.0)));
        let lengths: [&[usize]; 2] = [&[7, 3, 1, 5], &[2]];
        let of = |time: usize, batch: usize| match batch_first {
            true => draw(Dtype::I64, &[batch, time]),
            false => draw(Dtype::I64, &[time, batch]),
        };
        let cases = lengths.map(|lengths| {
            let numbers: Vec<i64> = lengths.iter().map(|&n| n as i64).collect();
            let (batch, longest) = (lengths.len(), *lengths.iter().max().expect("one"));
            vec![of(longest, batch), Tensor::from_slice(&numbers, [batch]), of(longest + 2, batch)]
        });
        let [source, target] = match batch_first {
            true => ["batch source", "batch target"],
            false => ["source batch", "target batch"],
        };
        let inputs = [
            ("source", Dtype::I64, source),
            ("lengths", Dtype::I64, "batch"),
            ("target", Dtype::I64, target),
        ];
        let lengths_of = |x: &[Tensor]| -> Vec<usize> {
            x[1].to_vec::<i64>().into_iter().map(|n| n as usize).collect()
        };
        let build =
            |graph: &mut Graph, x: &[Value]| Ok(vec![model.onnx(graph, &x[0], &x[1], &x[2])?]);
        many(folder, name, &model, &inputs, build, &cases, |x| {
            vec![model.forward(&x[0], &lengths_of(x), &x[2])]
        })?;
        // Decoding that goes on from a state, as a translation does.
        let name = format!("{name}_step");
        let state = "1 batch 12";
        let context = if batch_first { "batch source 12" } else { "source batch 12" };
        let names: Vec<String> = (0..4).flat_map(|i| [format!("h{i}"), format!("c{i}")]).collect();
        let mut inputs = vec![
            ("words", Dtype::I64, target),
            ("context", Dtype::F32, context),
            ("lengths", Dtype::I64, "batch"),
        ];
        inputs.extend(names.iter().map(|name| (name.as_str(), Dtype::F32, state)));
        let case = |lengths: &[i64], time: usize| {
            let (batch, longest) = (lengths.len(), *lengths.iter().max().expect("one") as usize);
            let shape = if batch_first { [batch, longest, 12] } else { [longest, batch, 12] };
            let mut all = vec![
                of(time, batch),
                draw(Dtype::F32, &shape),
                Tensor::from_slice(lengths, [batch]),
            ];
            all.extend((0..8).map(|_| draw(Dtype::F32, &[1, batch, 12])));
            all
        };
        let cases = [case(&[4, 6, 1], 1), case(&[3], 5)];
        let build = |graph: &mut Graph, x: &[Value]| {
            let state: Vec<_> = x[3..].chunks(2).map(|s| (s[0].clone(), s[1].clone())).collect();
            let decoded = model.decoder.onnx(graph, &x[0], &x[1], &x[2], Some(&state))?;
            let mut all = vec![decoded.logits, decoded.scores];
            all.extend(decoded.state.into_iter().flat_map(|(h, c)| [h, c]));
            Ok(all)
        };
        many(folder, &name, &model, &inputs, build, &cases, |x| {
            let lengths: Vec<usize> =
                x[2].to_vec::<i64>().into_iter().map(|n| n as usize).collect();
            let state: Vec<_> = x[3..].chunks(2).map(|s| (s[0].clone(), s[1].clone())).collect();
            let decoded = model.decoder.forward(&x[0], &x[1], &lengths, Some(&state));
            let mut all = vec![decoded.logits, decoded.scores];
            all.extend(decoded.state.into_iter().flat_map(|(h, c)| [h, c]));
            all
        })?;
    }
    Ok(())
}

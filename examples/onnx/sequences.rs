//! Recurrent layers and transformers, which have several inputs and outputs.

use std::path::Path;

use torchrs::nn::*;
use torchrs::onnx::{Graph, Value};
use torchrs::{Dtype, Result, Tensor};

use super::{draw, many};

const F32: Dtype = Dtype::F32;

pub fn write(folder: &Path) -> Result<()> {
    recurrent(folder)?;
    attention(folder)?;
    transformers(folder)
}

fn recurrent(folder: &Path) -> Result<()> {
    let plain = RNNOptions::default();
    let deep = RNNOptions { num_layers: 2, bidirectional: true, batch_first: true, ..plain };
    let bare = RNNOptions { num_layers: 2, bias: false, ..plain };
    for (kind, options) in [("plain", plain), ("deep", deep), ("bare", bare)] {
        let directions = if options.bidirectional { 2 } else { 1 };
        let rows = options.num_layers * directions;
        let shape = if options.batch_first { "batch time 5" } else { "time batch 5" };
        let state = format!("{rows} batch 7");
        let of = |time: usize, batch: usize| match options.batch_first {
            true => draw(F32, &[batch, time, 5]),
            false => draw(F32, &[time, batch, 5]),
        };
        let case = |time: usize, batch: usize, states: usize| {
            let mut all = vec![of(time, batch)];
            all.extend((0..states).map(|_| draw(F32, &[rows, batch, 7])));
            all
        };

        let lstm = LSTM::new(5, 7, options);
        let outputs = |(out, (h, c))| vec![out, h, c];
        many(
            folder,
            &format!("lstm_{kind}"),
            &lstm,
            &[("x", F32, shape), ("h", F32, &state), ("c", F32, &state)],
            |graph, x| {
                let (out, (h, c)) = lstm.onnx(graph, &x[0], None, Some((&x[1], &x[2])))?;
                Ok(vec![out, h, c])
            },
            &[case(6, 3, 2), case(1, 1, 2)],
            |x| outputs(lstm.forward(&x[0], Some((&x[1], &x[2])))),
        )?;
        let lengths: [&[i64]; 2] = [&[6, 2, 5], &[4]];
        let cases = lengths.map(|lengths| {
            let longest = *lengths.iter().max().expect("one") as usize;
            vec![of(longest, lengths.len()), Tensor::from_slice(lengths, [lengths.len()])]
        });
        let padded =
            PadPackedSequenceOptions { batch_first: options.batch_first, ..Default::default() };
        let packed = |x: &[Tensor]| {
            let lengths: Vec<usize> =
                x[1].to_vec::<i64>().into_iter().map(|n| n as usize).collect();
            let unsorted = PackPaddedSequenceOptions {
                batch_first: options.batch_first,
                enforce_sorted: false,
            };
            pack_padded_sequence(&x[0], &lengths, unsorted)
        };
        let inputs = [("x", F32, shape), ("lengths", Dtype::I64, "batch")];
        many(
            folder,
            &format!("lstm_{kind}_lengths"),
            &lstm,
            &inputs,
            |graph, x| {
                let (out, (h, c)) = lstm.onnx(graph, &x[0], Some(&x[1]), None)?;
                Ok(vec![out, h, c])
            },
            &cases,
            |x| {
                let (out, (h, c)) = lstm.forward_packed(&packed(x), None);
                vec![pad_packed_sequence(&out, padded).0, h, c]
            },
        )?;
        let gru = GRU::new(5, 7, options);
        many(
            folder,
            &format!("gru_{kind}_lengths"),
            &gru,
            &inputs,
            |graph, x| {
                let (out, h) = gru.onnx(graph, &x[0], Some(&x[1]), None)?;
                Ok(vec![out, h])
            },
            &cases,
            |x| {
                let (out, h) = gru.forward_packed(&packed(x), None);
                vec![pad_packed_sequence(&out, padded).0, h]
            },
        )?;
        let relu = RNNNonlinearity::Relu;
        let [tanh, relu] = [RNN::new(5, 7, options), RNN::with_nonlinearity(5, 7, relu, options)];
        for (name, rnn) in [("rnn", tanh), ("rnn_relu", relu)] {
            many(
                folder,
                &format!("{name}_{kind}"),
                &rnn,
                &[("x", F32, shape), ("h", F32, &state)],
                |graph, x| {
                    let (out, h) = rnn.onnx(graph, &x[0], None, Some(&x[1]))?;
                    Ok(vec![out, h])
                },
                &[case(6, 3, 1), case(1, 1, 1)],
                |x| {
                    let (out, h) = rnn.forward(&x[0], Some(&x[1]));
                    vec![out, h]
                },
            )?;
        }
    }
    let lstm = LSTM::new(5, 7, RNNOptions { bidirectional: true, ..plain });
    many(
        folder,
        "lstm_single",
        &lstm,
        &[("x", F32, "time 5"), ("h", F32, "2 7"), ("c", F32, "2 7")],
        |graph, x| {
            let (out, (h, c)) = lstm.onnx(graph, &x[0], None, Some((&x[1], &x[2])))?;
            Ok(vec![out, h, c])
        },
        &[4, 1].map(|time| vec![draw(F32, &[time, 5]), draw(F32, &[2, 7]), draw(F32, &[2, 7])]),
        |x| {
            let (out, (h, c)) = lstm.forward(&x[0], Some((&x[1], &x[2])));
            vec![out, h, c]
        },
    )
}

fn attention(folder: &Path) -> Result<()> {
    let plain = MultiheadAttentionOptions::default();
    let all = MultiheadAttentionOptions {
        add_bias_kv: true,
        add_zero_attn: true,
        batch_first: true,
        ..plain
    };
    let other = MultiheadAttentionOptions { kdim: Some(5), vdim: Some(9), bias: false, ..plain };
    for (name, options) in [("plain", plain), ("all", all), ("other", other)] {
        let attention = MultiheadAttention::new(12, 3, options);
        no_grad_fill(&attention);
        let [k, v] = [options.kdim, options.vdim].map(|dim| dim.unwrap_or(12));
        let of = |length: usize, batch: usize, width: usize| match options.batch_first {
            true => draw(F32, &[batch, length, width]),
            false => draw(F32, &[length, batch, width]),
        };
        let text = |length: &str, width: usize| match options.batch_first {
            true => format!("batch {length} {width}"),
            false => format!("{length} batch {width}"),
        };
        let shapes = [text("queries", 12), text("keys", k), text("keys", v)];
        let inputs = [
            ("query", F32, shapes[0].as_str()),
            ("key", F32, shapes[1].as_str()),
            ("value", F32, shapes[2].as_str()),
            ("padding", Dtype::Bool, "batch keys"),
            ("mask", F32, "queries keys"),
        ];
        let case = |queries: usize, keys: usize, batch: usize| {
            // The first sentence is padding alone.
            let rows = Tensor::range(batch).unsqueeze(1).eq(0);
            let padding = draw(Dtype::Bool, &[batch, keys]).logical_or(&rows);
            vec![
                of(queries, batch, 12),
                of(keys, batch, k),
                of(keys, batch, v),
                padding,
                draw(F32, &[queries, keys]),
            ]
        };
        let cases = [case(4, 7, 3), case(1, 2, 2)];
        let build = |graph: &mut Graph, x: &[Value]| {
            let qkv = [&x[0], &x[1], &x[2]];
            Ok(vec![attention.onnx(graph, qkv, Some(&x[3]), Some(&x[4]))?])
        };
        many(folder, &format!("attention_{name}"), &attention, &inputs, build, &cases, |x| {
            let weights = AttentionWeights::None;
            vec![attention.forward(&x[0], &x[1], &x[2], Some(&x[3]), Some(&x[4]), weights).0]
        })?;
        let cases: Vec<Vec<Tensor>> = cases.iter().map(|case| case[..3].to_vec()).collect();
        let build = |graph: &mut Graph, x: &[Value]| {
            Ok(vec![attention.onnx(graph, [&x[0], &x[1], &x[2]], None, None)?])
        };
        let name = format!("attention_{name}_open");
        many(folder, &name, &attention, &inputs[..3], build, &cases, |x| {
            vec![attention.forward(&x[0], &x[1], &x[2], None, None, AttentionWeights::None).0]
        })?;
    }
    Ok(())
}

/// Biases that are not 0.
fn no_grad_fill(module: &impl Module) {
    for (name, parameter) in module.named_parameters() {
        if name.contains("bias") {
            init::uniform_(&parameter, -0.5, 0.5);
        }
    }
}

fn transformers(folder: &Path) -> Result<()> {
    let small = TransformerOptions { dim_feedforward: 20, ..Default::default() };
    let kinds = [
        ("post", small),
        ("pre", TransformerOptions { norm_first: true, batch_first: true, ..small }),
        (
            "gelu",
            TransformerOptions { activation: TransformerActivation::Gelu, bias: false, ..small },
        ),
    ];
    for (name, options) in kinds {
        let layers = (0..2).map(|_| TransformerEncoderLayer::new(12, 3, options)).collect();
        let encoder = TransformerEncoder::new(layers, Some(LayerNorm::new(12)));
        no_grad_fill(&encoder);
        let of = |length: usize, batch: usize| match options.batch_first {
            true => draw(F32, &[batch, length, 12]),
            false => draw(F32, &[length, batch, 12]),
        };
        let text = |length: &str| match options.batch_first {
            true => format!("batch {length} 12"),
            false => format!("{length} batch 12"),
        };
        let [source, target] = [text("source"), text("target")];
        let inputs = [
            ("source", F32, source.as_str()),
            ("mask", F32, "source source"),
            ("padding", Dtype::Bool, "batch source"),
        ];
        let cases = [(5, 3), (1, 1)].map(|(length, batch)| {
            let padding = draw(Dtype::Bool, &[batch, length]);
            vec![of(length, batch), generate_square_subsequent_mask(length), padding]
        });
        let build = |graph: &mut Graph, x: &[Value]| {
            Ok(vec![encoder.onnx(graph, &x[0], Some(&x[1]), Some(&x[2]))?])
        };
        many(folder, &format!("encoder_{name}"), &encoder, &inputs, build, &cases, |x| {
            vec![encoder.forward(&x[0], Some(&x[1]), Some(&x[2]))]
        })?;
        let model = Transformer::new(12, 3, 2, 2, options);
        no_grad_fill(&model);
        let inputs = [
            ("source", F32, source.as_str()),
            ("target", F32, target.as_str()),
            ("mask", F32, "target target"),
            ("padding", Dtype::Bool, "batch source"),
        ];
        let cases = [(5, 4, 3), (1, 2, 1)].map(|(source, target, batch)| {
            let padding = draw(Dtype::Bool, &[batch, source]);
            let mask = generate_square_subsequent_mask(target);
            vec![of(source, batch), of(target, batch), mask, padding]
        });
        let build = |graph: &mut Graph, x: &[Value]| {
            let memory = model.encoder.onnx(graph, &x[0], None, Some(&x[3]))?;
            let masks = (Some(&x[2]), None);
            Ok(vec![model.decoder.onnx(graph, &x[1], &memory, masks, (None, Some(&x[3])))?])
        };
        many(folder, &format!("transformer_{name}"), &model, &inputs, build, &cases, |x| {
            let memory = model.encoder.forward(&x[0], None, Some(&x[3]));
            vec![model.decoder.forward(&x[1], &memory, (Some(&x[2]), None), (None, Some(&x[3])))]
        })?;
    }
    Ok(())
}

//! `nn::summary`: the rows, the shapes, the totals of torchinfo 1.8, and a model that stays as it was.

use torchrs::Dtype::{F32, I64};
use torchrs::nn::{
    self, BatchNorm1d, Dropout, Embedding, Forward, Hooked, LSTM, Linear, Module, ReLU, Sequential,
    summary, summary_with,
};
use torchrs::{Tensor, default_generator, models};

#[test]
fn resnet18_as_torchinfo_prints_it() {
    let summary = summary(&models::resnet18(1000), [1, 3, 224, 224]);
    assert_eq!((summary.total_params, summary.trainable_params), (11_689_512, 11_689_512));
    let text = summary.to_string();
    for line in [
        "Total mult-adds (G): 1.81",
        "Input size (MB): 0.60",
        "Forward/backward pass size (MB): 39.75",
        "Params size (MB): 46.76",
        "Estimated Total Size (MB): 87.11",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in {text}");
    }
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "├─Conv2d (conv1): 1-1 [1, 3, 224, 224] [1, 64, 112, 112] 9,408 118,013,952",
        "├─BatchNorm2d (bn1): 1-2 [1, 64, 112, 112] [1, 64, 112, 112] 128 --",
        "├─Sequential (layer1): 1-5 [1, 64, 56, 56] [1, 64, 56, 56] -- --",
        "│ └─BasicBlock (1): 2-2 [1, 64, 56, 56] [1, 64, 56, 56] -- --",
        "│ │ └─Conv2d (conv2): 3-7 [1, 64, 56, 56] [1, 64, 56, 56] 36,864 115,605,504",
        "├─AdaptiveAvgPool2d (avgpool): 1-9 [1, 512, 7, 7] [1, 512, 1, 1] -- --",
        "├─Linear (fc): 1-10 [1, 512] [1, 1000] 513,000 512,000",
    ] {
        assert!(text.lines().any(|other| squeezed(other) == line), "{line} is not in {text}");
    }
    let short = summary.depth(1).to_string();
    let line = "├─Sequential (layer1): 1-5 [1, 64, 56, 56] [1, 64, 56, 56] 147,968 462,422,016";
    assert!(short.lines().any(|other| squeezed(other) == line), "{short}");
}

#[derive(Module)]
struct Plain {
    body: Sequential,
    spare: Linear,
}

impl Forward for Plain {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.body.forward(&(x * 2.0))
    }
}

#[derive(Module)]
struct Net {
    plain: Plain,
    layers: Vec<Linear>,
    tied: Linear,
}

impl Forward for Net {
    #[nn::forward]
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut y = self.plain.forward(x);
        for layer in &self.layers {
            y = layer.forward(&y);
            if y.size(0) > 100 {
                return y;
            }
        }
        self.tied.forward(&y)
    }
}

fn net() -> Net {
    let body = Sequential::new()
        .append(Linear::new(8, 4))
        .append(ReLU)
        .append(BatchNorm1d::new(4))
        .append(Dropout::new(0.5));
    let tied = Linear::new(4, 4);
    tied.bias.as_ref().unwrap().requires_grad_(false);
    Net {
        plain: Plain { body, spare: Linear::new(2, 3) },
        layers: vec![tied.clone(), Linear::new(4, 4)],
        tied,
    }
}

#[test]
fn modules_of_ones_own_have_rows_with_their_fields_names() {
    let summary = summary(&net(), [5, 8]);
    let rows: Vec<String> = summary
        .rows
        .iter()
        .map(|row| {
            format!("{} {} {} {} {}", row.path, row.kind, row.input(), row.output(), row.params)
        })
        .collect();
    assert_eq!(
        rows,
        [
            " Net [5, 8] [5, 4] 0",
            "plain Plain ~[5, 8] ~[5, 4] 0",
            "plain.body Sequential [5, 8] [5, 4] 0",
            "plain.body.0 Linear [5, 8] [5, 4] 36",
            "plain.body.1 ReLU [5, 4] [5, 4] 0",
            "plain.body.2 BatchNorm1d [5, 4] [5, 4] 8",
            "plain.body.3 Dropout [5, 4] [5, 4] 0",
            "plain.spare Linear -- -- 9",
            "layers ModuleList -- -- 0",
            "layers.0 Linear [5, 4] [5, 4] 20",
            "layers.1 Linear [5, 4] [5, 4] 20",
            "tied Linear [5, 4] [5, 4] 0",
        ]
    );
    assert_eq!((summary.total_params, summary.trainable_params), (93, 89));
    assert_eq!(summary.total_mult_adds(), 5 * (8 * 4 + 3 * 16));
    assert_eq!(summary.rows[1].flops, 2 * 5 * 8 * 4);
    assert!(summary.rows[11].recursive);
    let text = summary.to_string();
    assert!(text.contains("Non-trainable params: 4"), "{text}");
    assert!(text.contains("lacks #[nn::forward]"), "{text}");
}

#[test]
fn the_model_stays_as_it_was() {
    torchrs::fork_rng(|| {
        let net = net();
        net.tied.eval();
        let norm = |net: &Net| {
            net.named_buffers().iter().map(|(_, b)| b.to_vec::<f64>()).collect::<Vec<_>>()
        };
        net.forward(&Tensor::rand([5, 8], F32)).sum().backward();
        let before = (norm(&net), default_generator().get_state(), net.is_training());
        let grads = |net: &Net| {
            net.parameters().iter().map(|p| p.grad().map(|g| g.to_vec::<f32>())).collect::<Vec<_>>()
        };
        let had = grads(&net);
        let text = summary_with(&net, |net| {
            net.train();
            net.forward(&Tensor::rand([5, 8], F32))
        });
        assert_eq!(text.rows[0].output(), "[5, 4]");
        assert_eq!((norm(&net), default_generator().get_state(), net.is_training()), before);
        assert_eq!(grads(&net), had);
        // Also after a failure.
        assert!(torchrs::catch(|| summary(&net, [5, 9])).is_err());
        assert_eq!((norm(&net), default_generator().get_state(), net.is_training()), before);
        assert_eq!(summary(&net, [5, 8]).rows.len(), 12);
    });
}

#[test]
fn several_inputs_and_outputs_are_shown() {
    #[derive(Module)]
    struct Tagger {
        embedding: Embedding,
        lstm: LSTM,
    }
    impl Tagger {
        #[nn::forward]
        fn forward(&self, words: &Tensor, scale: f64) -> (Tensor, Tensor) {
            let (y, (h, _)) = self.lstm.forward(&(self.embedding.forward(words) * scale), None);
            (y, h)
        }
    }
    let tagger =
        Tagger { embedding: Embedding::new(10, 6), lstm: LSTM::new(6, 3, Default::default()) };
    let summary = summary_with(&tagger, |m| m.forward(&Tensor::zeros([7, 2], I64), 2.0));
    let rows: Vec<String> = summary
        .rows
        .iter()
        .map(|row| format!("{} {} -> {}", row.kind, row.input(), row.output()))
        .collect();
    assert_eq!(
        rows,
        [
            "Tagger [7, 2] -> [7, 2, 3], [1, 2, 3]",
            "Embedding [7, 2] -> [7, 2, 6]",
            "LSTM [7, 2, 6] -> [7, 2, 3], [1, 2, 3], [1, 2, 3]",
        ]
    );
    assert_eq!(summary.input_bytes, 7 * 2 * 8);
}

#[test]
fn an_error_inside_a_forward_names_the_users_module() {
    #[derive(Module)]
    struct Head {
        weight: nn::Parameter,
    }
    impl Forward for Head {
        #[nn::forward]
        fn forward(&self, x: &Tensor) -> Tensor {
            x.matmul(&self.weight)
        }
    }
    let head = Head { weight: nn::Parameter::new(Tensor::ones([3, 2], F32)) };
    let error = torchrs::catch(|| head.forward(&Tensor::ones([5, 9], F32))).unwrap_err();
    assert!(error.to_string().contains("in Head("), "{error}");
}

#[test]
fn modules_behind_hooks_and_enums_have_their_rows() {
    #[derive(Module)]
    enum Head {
        Small(Linear),
    }
    #[derive(Module)]
    struct Net {
        body: Hooked<Linear>,
        head: Head,
    }
    impl Forward for Net {
        fn forward(&self, x: &Tensor) -> Tensor {
            let Head::Small(head) = &self.head;
            head.forward(&self.body.forward(x))
        }
    }
    let net = Net { body: Hooked::new(Linear::new(8, 4)), head: Head::Small(Linear::new(4, 2)) };
    let summary = summary(&net, [3, 8]);
    let rows: Vec<String> = summary
        .rows
        .iter()
        .map(|row| format!("{} {} {}", row.path, row.output(), row.params))
        .collect();
    assert_eq!(rows, [" [3, 2] 0", "body [3, 4] 36", "head [3, 2] 10"]);
}

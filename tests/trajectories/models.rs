//! The four models, with PyTorch's names.

use torchrs::Tensor;
use torchrs::distributed::DeviceMesh;
use torchrs::models::{ActivationCheckpointing, LlamaConfig, LlamaForCausalLM};
use torchrs::nn::parallel::fully_shard;
use torchrs::nn::{
    BatchNorm2d, Conv2d, Embedding, Forward, LayerNorm, Linear, Module, functional as F,
};
use torchrs::ops::{AttentionOptions, Pool2dOptions};

/// Scores of classes.
pub trait Model: Module {
    fn logits(&self, x: &Tensor) -> Tensor;
    /// Of a model that has it.
    fn set_activation_checkpointing(&mut self, _: ActivationCheckpointing) {}
    /// Cuts the parameters: of each block, where there are blocks, and of the rest.
    fn shard(&mut self, mesh: &DeviceMesh) {
        fully_shard(self, mesh, Default::default()).map(drop).expect("it can be sharded");
    }
}

/// Those that are sharded, too.
pub const SHARDED: [&str; 3] = ["mlp", "tiny_gpt", "tiny_llama"];

pub const NAMES: [&str; 4] = ["mlp", "lenet_bn", "tiny_gpt", "tiny_llama"];

pub fn make(name: &str) -> Box<dyn Model> {
    match name {
        "mlp" => Box::new(Mlp {
            fc1: Linear::new(10, 32),
            fc2: Linear::new(32, 24),
            fc3: Linear::new(24, 4),
        }),
        "lenet_bn" => Box::new(LeNet {
            conv1: Conv2d::new(1, 6, 5).padding(2).no_bias(),
            bn1: BatchNorm2d::new(6),
            conv2: Conv2d::new(6, 12, 3).no_bias(),
            bn2: BatchNorm2d::new(12),
            fc1: Linear::new(48, 32),
            fc2: Linear::new(32, 10),
        }),
        "tiny_gpt" => Box::new(TinyGpt {
            wte: Embedding::new(40, 24),
            wpe: Embedding::new(12, 24),
            h: vec![Block::new(), Block::new()],
            ln_f: LayerNorm::new(24),
        }),
        "tiny_llama" => Box::new(LlamaForCausalLM::new(tiny_llama())),
        other => panic!("no model {other}"),
    }
}

#[derive(Module)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Model for Mlp {
    fn logits(&self, x: &Tensor) -> Tensor {
        self.fc3.forward(&self.fc2.forward(&self.fc1.forward(x).relu()).gelu())
    }
}

#[derive(Module)]
struct LeNet {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    fc1: Linear,
    fc2: Linear,
}

impl Model for LeNet {
    fn logits(&self, x: &Tensor) -> Tensor {
        let halves = Pool2dOptions::new([2, 2]);
        let x = self.bn1.forward(&self.conv1.forward(x)).relu().max_pool2d(halves);
        let x = self.bn2.forward(&self.conv2.forward(&x)).relu().avg_pool2d(halves);
        self.fc2.forward(&self.fc1.forward(&x.flatten(1, -1)).relu())
    }
}

#[derive(Module)]
struct Block {
    ln_1: LayerNorm,
    attn_qkv: Linear,
    attn_proj: Linear,
    ln_2: LayerNorm,
    mlp_fc: Linear,
    mlp_proj: Linear,
}

impl Block {
    fn new() -> Self {
        Block {
            ln_1: LayerNorm::new(24),
            attn_qkv: Linear::no_bias(24, 72),
            attn_proj: Linear::new(24, 24),
            ln_2: LayerNorm::new(24),
            mlp_fc: Linear::new(24, 96),
            mlp_proj: Linear::new(96, 24),
        }
    }
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        let qkv = self.attn_qkv.forward(&self.ln_1.forward(x));
        let heads: Vec<Tensor> =
            qkv.split(24, -1).iter().map(|t| t.unflatten(-1, &[4, 6]).transpose(1, 2)).collect();
        let causal = AttentionOptions { is_causal: true, ..Default::default() };
        let y = F::scaled_dot_product_attention(&heads[0], &heads[1], &heads[2], causal);
        let x = x + self.attn_proj.forward(&y.transpose(1, 2).flatten(-2, -1));
        let hidden = self.mlp_fc.forward(&self.ln_2.forward(&x)).gelu_tanh();
        &x + self.mlp_proj.forward(&hidden)
    }
}

/// Its head is its first table: one parameter.
#[derive(Module)]
struct TinyGpt {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
}

impl Model for TinyGpt {
    fn logits(&self, tokens: &Tensor) -> Tensor {
        let x = self.wte.forward(tokens) + &*self.wpe.weight;
        let x = self.h.iter().fold(x, |x, block| block.forward(&x));
        F::linear(&self.ln_f.forward(&x), &self.wte.weight, None)
    }

    fn shard(&mut self, mesh: &DeviceMesh) {
        shard_each(&mut self.h, mesh);
        fully_shard(self, mesh, Default::default()).map(drop).expect("it can be sharded");
    }
}

/// `config` in its `runs.json`.
pub fn tiny_llama() -> LlamaConfig {
    LlamaConfig {
        vocab_size: 40,
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        head_dim: Some(4),
        rms_norm_eps: 1e-5,
        ..Default::default()
    }
}

impl Model for LlamaForCausalLM {
    fn logits(&self, tokens: &Tensor) -> Tensor {
        self.forward(tokens)
    }

    fn set_activation_checkpointing(&mut self, how: ActivationCheckpointing) {
        self.model.set_activation_checkpointing(how);
    }

    fn shard(&mut self, mesh: &DeviceMesh) {
        shard_each(&mut self.model.layers, mesh);
        fully_shard(self, mesh, Default::default()).map(drop).expect("it can be sharded");
    }
}

fn shard_each<M: Module>(blocks: &mut [M], mesh: &DeviceMesh) {
    for block in blocks {
        fully_shard(block, mesh, Default::default()).map(drop).expect("it can be sharded");
    }
}

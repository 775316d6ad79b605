//! Counts of operations, equal to those of `torch.utils.flop_counter.FlopCounterMode` (PyTorch 2.5.1).

use torchrs::Dtype::F32;
use torchrs::nn::{self, Forward, LayerNorm, Linear, Module};
use torchrs::profiler::FlopCounter;
use torchrs::{Tensor, models, ops};

#[test]
fn resnet18_forward_and_backward() {
    let model = models::resnet18(1000);
    let x = Tensor::ones([1, 3, 224, 224], F32);
    let counter = FlopCounter::new();
    let y = model.forward(&x);
    assert_eq!(counter.total_flops(), 3_628_146_688);
    y.sum().backward();
    assert_eq!(counter.total_flops(), 10_648_412_160);
    let counts = counter.flop_counts();
    let sum = |module: &str| counts[module].values().sum::<u64>();
    // The image needs no gradient.
    assert_eq!(sum("ResNet.conv1"), 2 * 236_027_904);
    assert_eq!(sum("ResNet.layer1"), 924_844_032 + 1_849_688_064);
    assert_eq!((counts["ResNet.fc"]["linear"], counts["ResNet.fc"]["mm"]), (1_024_000, 2_048_000));
    assert_eq!(sum("ResNet"), counter.total_flops());
    let table = counter.table(1);
    assert!(table.contains(" - conv2d") && table.contains("  ResNet.layer4"), "{table}");
    assert!(!table.contains("ResNet.layer4.0"), "{table}");
}

#[derive(Module)]
struct Block {
    heads: i64,
    ln_1: LayerNorm,
    c_attn: Linear,
    c_proj: Linear,
    ln_2: LayerNorm,
    fc: Linear,
    proj: Linear,
}

impl Forward for Block {
    #[nn::forward]
    fn forward(&self, x: &Tensor) -> Tensor {
        let &[batch, tokens, width] = x.shape() else { panic!("three dimensions") };
        let qkv = self.c_attn.forward(&self.ln_1.forward(x));
        let head = |i: usize| {
            let part = qkv.narrow(2, i * width, width);
            part.unflatten(-1, &[self.heads, -1]).transpose(1, 2)
        };
        let y = head(0).scaled_dot_product_attention(&head(1), &head(2), None, false, None);
        let y = y.transpose(1, 2).reshape([batch as i64, tokens as i64, width as i64]);
        let x = x + self.c_proj.forward(&y);
        &x + self.proj.forward(&self.fc.forward(&self.ln_2.forward(&x)).gelu())
    }
}

#[test]
fn a_gpt2_block_forward_and_backward() {
    let d = 64;
    let block = Block {
        heads: 4,
        ln_1: LayerNorm::new([d]),
        c_attn: Linear::new(d, 3 * d),
        c_proj: Linear::new(d, d),
        ln_2: LayerNorm::new([d]),
        fc: Linear::new(d, 4 * d),
        proj: Linear::new(4 * d, d),
    };
    let x = Tensor::ones([2, 16, d], F32).requires_grad_(true);
    let counter = FlopCounter::new();
    let y = block.forward(&x);
    assert_eq!(counter.total_flops(), 3_276_800);
    y.sum().backward();
    let counts = counter.flop_counts();
    assert_eq!((counts["Block"]["linear"], counts["Block"]["mm"]), (3_145_728, 6_291_456));
    // `sdpa_flop_count` and `sdpa_backward_flop_count`, of attention that recomputes its weights.
    assert_eq!(counts["Block"]["scaled_dot_product_attention"], 131_072);
    assert_eq!(counts["Block"]["scaled_dot_product_attention_backward"], 327_680);
    assert_eq!(counts["Block.fc"]["mm"], 2 * counts["Block.fc"]["linear"]);
}

#[test]
fn transposed_and_grouped_convolutions() {
    let x = Tensor::ones([2, 4, 5, 7], F32).requires_grad_(true);
    let count = |module: &dyn Forward| {
        let counter = FlopCounter::new();
        let y = module.forward(&x);
        let forward = counter.total_flops();
        y.sum().backward();
        [forward, counter.total_flops()]
    };
    let options = ops::ConvTransposeOptions { stride: [2, 2], ..Default::default() };
    let up = nn::ConvTranspose2d::new(4, 6, 3, options);
    assert_eq!(count(&up), [30_240, 90_720]);
    // PyTorch's backward counts the filters' gradient of a grouped convolution as often as there are groups.
    let grouped = nn::Conv2d::new(4, 6, 3).groups(2);
    assert_eq!(count(&grouped), [6_480, 3 * 6_480]);
}

#[test]
fn counters_nest_and_end() {
    let product = || Tensor::ones([2, 3], F32).matmul(&Tensor::ones([3, 4], F32));
    let outer = FlopCounter::new();
    product();
    {
        let inner = FlopCounter::new();
        product();
        assert_eq!(inner.total_flops(), 48);
    }
    product();
    assert_eq!(outer.total_flops(), 3 * 48);
    std::thread::spawn(move || _ = product()).join().unwrap();
    assert_eq!(outer.total_flops(), 3 * 48);
}

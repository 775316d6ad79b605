//! cuDNN takes what it is told of convolutions and of attention, and has plans for them on an H200: asked of the real library, which
//! needs no GPU for this. `tools/checks/check-cudnn` fetches it and runs this; by itself it does nothing.

use torchrs::cuda::cudnn::{
    Attention, Direction, Kind, Lie, Problem, View, Wishes, propose, propose_attention,
};

/// The file with the device's properties, set by `tools/checks/check-cudnn`.
const PROPERTIES: &str = "TORCHRS_CUDNN_PROPERTIES";

/// A convolution, of three dimensions in space or of the last two.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    dims: usize,
    batch: usize,
    channels: usize,
    outputs: usize,
    size: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: usize,
    groups: usize,
}

/// Of squares: batch, channels, outputs, size, kernel, stride, padding, groups.
const fn plane(name: &'static str, numbers: [usize; 8]) -> Case {
    let [batch, channels, outputs, size, kernel, stride, padding, groups] = numbers;
    Case {
        name,
        dims: 4,
        batch,
        channels,
        outputs,
        size: [1, size, size],
        kernel: [1, kernel, kernel],
        stride: [1, stride, stride],
        padding: [0, padding, padding],
        dilation: 1,
        groups,
    }
}

/// Of cubes, likewise.
const fn volume(name: &'static str, numbers: [usize; 8]) -> Case {
    let [_, _, _, size, kernel, stride, padding, _] = numbers;
    let flat = plane(name, numbers);
    let (size, kernel, stride) = ([size; 3], [kernel; 3], [stride; 3]);
    Case { dims: 5, size, kernel, stride, padding: [padding; 3], ..flat }
}

const CASES: [Case; 30] = [
    plane("ResNet's stem", [32, 3, 64, 224, 7, 2, 3, 1]),
    plane("ResNet 3x3", [32, 64, 64, 56, 3, 1, 1, 1]),
    plane("ResNet 3x3, stride 2", [32, 128, 128, 56, 3, 2, 1, 1]),
    plane("ResNet 1x1", [32, 256, 64, 56, 1, 1, 0, 1]),
    plane("ResNet 1x1, stride 2", [32, 256, 512, 56, 1, 2, 0, 1]),
    plane("ResNet's last 1x1", [32, 512, 2048, 7, 1, 1, 0, 1]),
    plane("AlexNet's first", [32, 3, 64, 224, 11, 4, 2, 1]),
    plane("AlexNet's first with a fourth channel", [32, 4, 64, 224, 11, 4, 2, 1]),
    plane("AlexNet's second", [32, 64, 192, 27, 5, 1, 2, 1]),
    plane("VGG's 1st", [32, 3, 64, 224, 3, 1, 1, 1]),
    plane("VGG's 2nd", [32, 64, 64, 224, 3, 1, 1, 1]),
    plane("VGG's 3rd", [32, 64, 128, 112, 3, 1, 1, 1]),
    plane("VGG's 4th", [32, 128, 128, 112, 3, 1, 1, 1]),
    plane("VGG's 5th", [32, 128, 256, 56, 3, 1, 1, 1]),
    plane("VGG's 6th", [32, 256, 256, 56, 3, 1, 1, 1]),
    plane("VGG's 9th", [32, 256, 512, 28, 3, 1, 1, 1]),
    plane("VGG's 10th", [32, 512, 512, 28, 3, 1, 1, 1]),
    plane("VGG's 13th", [32, 512, 512, 14, 3, 1, 1, 1]),
    plane("groups of ResNeXt", [32, 128, 128, 56, 3, 1, 1, 32]),
    plane("LeNet's first", [64, 1, 6, 28, 5, 1, 2, 1]),
    plane("LeNet's second", [64, 6, 16, 14, 5, 1, 0, 1]),
    plane("ViT's patches", [32, 3, 768, 224, 16, 16, 0, 1]),
    plane("a transposed one of U-Net", [8, 64, 128, 64, 2, 2, 0, 1]),
    plane("a transposed one of DCGAN", [32, 64, 128, 32, 4, 2, 1, 1]),
    Case { dilation: 2, ..plane("dilation 2", [8, 64, 64, 56, 3, 1, 2, 1]) },
    Case { dilation: 4, ..plane("dilation 4, groups", [8, 64, 64, 56, 3, 1, 4, 2]) },
    plane(DEPTHWISE, [32, 96, 96, 56, 3, 1, 1, 96]),
    plane(DEPTHWISE, [32, 144, 144, 56, 3, 2, 1, 144]),
    volume("3x3x3", [4, 32, 64, 16, 3, 1, 1, 1]),
    volume("3x3x3 of 3 channels, stride 2", [4, 3, 64, 32, 3, 2, 1, 1]),
];
/// One channel per group: asked of halves, other types have kernels of our own.
const DEPTHWISE: &str = "depthwise";
/// What has none for halves: it is asked for with a fourth channel.
const WITHOUT_CORES: (&str, Direction) = ("AlexNet's first", Direction::Forward);

fn problem(case: &Case, kind: Kind, last: bool, direction: Direction) -> Problem {
    let Case { dims, batch, channels, outputs, size, kernel, stride, padding, groups, .. } = *case;
    let mut out = [1; 3];
    for d in 0..3 {
        out[d] = (size[d] + 2 * padding[d] - case.dilation * (kernel[d] - 1) - 1) / stride[d] + 1;
    }
    let tensor = |outer: [usize; 2], inner: [usize; 3]| {
        Lie::dense(&[&outer, &inner[5 - dims..]].concat(), last, 16)
    };
    let (x, w) = (tensor([batch, channels], size), tensor([outputs, channels / groups], kernel));
    let lies = [x, w, tensor([batch, outputs], out)];
    Problem::new(direction, kind, dims, lies, [padding, stride, [case.dilation; 3]])
}

/// The device's properties, if there is a library to ask.
fn properties() -> Option<String> {
    let Some(path) = std::env::var_os(PROPERTIES) else {
        println!("skipped: tools/checks/check-cudnn runs this, with NVIDIA's library");
        return None;
    };
    Some(std::fs::read_to_string(path).unwrap())
}

#[test]
fn convolutions_have_plans() {
    let Some(properties) = properties() else { return };
    let exact = Wishes { tf32: false, deterministic: false, workspace: 1 << 30 };
    let (tf32, same) = (Wishes { tf32: true, ..exact }, Wishes { deterministic: true, ..exact });
    let mut wrong = Vec::new();
    let directions = [Direction::Forward, Direction::Data, Direction::Filters];
    let kinds = [
        (Kind::F64, exact, false),
        (Kind::F32, exact, false),
        (Kind::F32, exact, true),
        (Kind::F32, tf32, true),
        (Kind::F16, exact, true),
        (Kind::BF16, exact, true),
        (Kind::F32, same, false),
        (Kind::BF16, same, true),
    ];
    for case in CASES {
        for (kind, wishes, last) in kinds {
            let halves = matches!(kind, Kind::F16 | Kind::BF16);
            if case.name == DEPTHWISE && !halves {
                continue;
            }
            for direction in directions {
                let without_cores =
                    case.name == DEPTHWISE || (case.name, direction) == WITHOUT_CORES;
                let what = format!(
                    "{}, {kind:?}{}, {direction:?}",
                    case.name,
                    if last { " channels last" } else { "" }
                );
                let found = propose(&problem(&case, kind, last, direction), &wishes, &properties);
                println!("{what}, {wishes:?}: {found:?}");
                match found {
                    Ok(Some(plan)) if plan.tensor_cores && kind == Kind::F32 && !wishes.tf32 => {
                        wrong.push(format!("{what}: f32 is rounded"));
                    }
                    Ok(Some(plan)) if !plan.tensor_cores && halves && !without_cores => {
                        wrong.push(format!("{what}: no tensor cores"));
                    }
                    Ok(Some(_)) => {}
                    other => wrong.push(format!("{what}: {other:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Batch, heads of queries and of keys, lengths of queries and keys, features of keys and of values.
const ATTENTION: [(&str, [i64; 7]); 8] = [
    ("GPT-2", [8, 12, 12, 1024, 1024, 64, 64]),
    ("Llama", [1, 32, 32, 4096, 4096, 128, 128]),
    ("Llama with shared heads", [1, 32, 8, 2048, 2048, 128, 128]),
    ("ViT", [64, 12, 12, 197, 197, 64, 64]),
    ("cross attention", [2, 8, 8, 100, 333, 64, 64]),
    ("one query", [4, 8, 8, 1, 500, 64, 64]),
    ("80 features", [2, 16, 16, 257, 257, 80, 80]),
    ("values of other features", [2, 4, 4, 128, 64, 40, 96]),
];

/// Dense in the order of the dimensions, or with the lengths before the heads.
fn view(sizes: [i64; 4], heads_after_length: bool) -> View {
    let [_, h, s, d] = sizes;
    match heads_after_length {
        true => View { sizes, strides: [s * h * d, d, h * d, 1] },
        false => View::dense(sizes),
    }
}

/// For an Ampere device with the properties of an H200 otherwise.
fn ampere(properties: &str) -> String {
    properties.replace("\"deviceVer\": 900", "\"deviceVer\": 800").replace("132", "108")
}

#[test]
fn attention_has_plans() {
    let Some(hopper) = properties() else { return };
    let ampere = ampere(&hopper);
    let mut wrong = Vec::new();
    for (name, [batch, heads, of_keys, queries, keys, depth, width]) in ATTENTION {
        // The same sums at each call are asked of one case only, since each takes its time.
        for bits in (0..8).filter(|bits| bits & 4 == 0 || name == "GPT-2") {
            let [backward, causal, deterministic] = [1, 2, 4].map(|bit| bits & bit != 0);
            let two = |sizes| [view(sizes, !causal); 2];
            let problem = Attention {
                kind: if backward { Kind::BF16 } else { Kind::F16 },
                backward,
                causal,
                deterministic,
                q: two([batch, heads, queries, depth]),
                k: two([batch, of_keys, keys, depth]),
                v: two([batch, of_keys, keys, width]),
                y: two([batch, heads, queries, width]),
            };
            for (device, properties) in [("H200", &hopper), ("A100", &ampere)] {
                let found = propose_attention(&problem, properties);
                let what = format!(
                    "{name}, {device}, backward: {backward}, causal: {causal}, deterministic: {deterministic}"
                );
                println!("{what}: {found:?}");
                if !matches!(found, Ok(Some(_))) {
                    wrong.push(format!("{what}: {found:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

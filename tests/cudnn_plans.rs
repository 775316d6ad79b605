//! cuDNN takes what it is told of convolutions and of attention, and has plans for them on an H200: asked of the real library, which
//! needs no GPU for this. `scripts/check-cudnn` fetches it and runs this; by itself it does nothing.

use torchrs::cuda::cudnn::{
    Attention, Direction, Kind, Lie, Problem, Wishes, dense_lie, propose, propose_attention,
};

/// The file with the device's properties, set by `scripts/check-cudnn`.
const PROPERTIES: &str = "TORCHRS_CUDNN_PROPERTIES";

/// Channels last, or row by row.
fn lie<const N: usize>(sizes: [i64; N], last: bool) -> Lie {
    let mut lie = Lie { alignment: 16, ..Lie::default() };
    lie.sizes[..N].copy_from_slice(&sizes);
    let mut order: Vec<usize> = (0..N).collect();
    if last {
        order.remove(1);
        order.push(1);
    }
    let mut step = 1;
    for d in order.into_iter().rev() {
        lie.strides[d] = step;
        step *= sizes[d];
    }
    lie
}

/// Batch, channels, outputs, size, kernel, stride, padding, groups.
type Case = [i64; 8];

const CASES: [(&str, Case); 7] = [
    ("ResNet's stem", [32, 3, 64, 224, 7, 2, 3, 1]),
    ("ResNet 3x3", [32, 64, 64, 56, 3, 1, 1, 1]),
    ("ResNet 3x3, stride 2", [32, 128, 128, 56, 3, 2, 1, 1]),
    ("ResNet 1x1", [32, 256, 64, 56, 1, 1, 0, 1]),
    ("AlexNet's second", [32, 64, 192, 27, 5, 1, 2, 1]),
    ("groups of ResNeXt", [32, 128, 128, 56, 3, 1, 1, 32]),
    ("LeNet's second", [64, 6, 16, 14, 5, 1, 0, 1]),
];

fn problem(case: &Case, kind: Kind, last: bool, direction: Direction) -> Problem {
    let &[batch, channels, outputs, size, kernel, stride, padding, groups] = case;
    let out = (size + 2 * padding - kernel) / stride + 1;
    Problem {
        direction,
        kind,
        dims: 4,
        x: lie([batch, channels, size, size], last),
        w: lie([outputs, channels / groups, kernel, kernel], last),
        y: lie([batch, outputs, out, out], last),
        padding: [padding; 3],
        stride: [stride; 3],
        dilation: [1; 3],
    }
}

/// The device's properties, if there is a library to ask.
fn properties() -> Option<String> {
    let Some(path) = std::env::var_os(PROPERTIES) else {
        println!("skipped: scripts/check-cudnn runs this, with NVIDIA's library");
        return None;
    };
    Some(std::fs::read_to_string(path).unwrap())
}

#[test]
fn convolutions_have_plans() {
    let Some(properties) = properties() else { return };
    let exact = Wishes { tf32: false, deterministic: false, workspace: 1 << 30 };
    let mut wrong = Vec::new();
    let directions = [Direction::Forward, Direction::Data, Direction::Filters];
    let kinds = [
        (Kind::F32, exact, false),
        (Kind::F32, Wishes { tf32: true, ..exact }, true),
        (Kind::F16, exact, true),
        (Kind::BF16, exact, true),
        (Kind::F32, Wishes { deterministic: true, ..exact }, false),
    ];
    for (name, case) in CASES {
        for (kind, wishes, last) in kinds {
            for direction in directions {
                let found = propose(&problem(&case, kind, last, direction), &wishes, &properties);
                println!("{name}, {kind:?}, {direction:?}, {wishes:?}: {found:?}");
                match found {
                    Ok(Some(plan)) if plan.tensor_cores && kind == Kind::F32 && !wishes.tf32 => {
                        wrong.push(format!("{name}, {direction:?}: f32 is rounded"));
                    }
                    Ok(Some(_)) => {}
                    other => wrong.push(format!("{name}, {kind:?}, {direction:?}: {other:?}")),
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
            let two = |sizes| [dense_lie(sizes, !causal); 2];
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

//! cuDNN takes what it is told of convolutions, and has plans for them on an H200: asked of the real library, which
//! needs no GPU for this. `scripts/check-cudnn` fetches it and runs this; by itself it does nothing.

use torchrs::cuda::cudnn::{Direction, Kind, Lie, Problem, Wishes, propose};

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

#[test]
fn convolutions_have_plans() {
    let Some(path) = std::env::var_os(PROPERTIES) else {
        println!("skipped: scripts/check-cudnn runs this, with NVIDIA's library");
        return;
    };
    let properties = std::fs::read_to_string(path).unwrap();
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

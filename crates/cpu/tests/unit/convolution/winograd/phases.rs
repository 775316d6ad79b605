//! Which operands belong to which product at stride 2.

use torchrs_cpu::convolution::winograd::Scheme;
use torchrs_cpu::convolution::winograd::phases::{N, OPERANDS, Phases, operand, phases};

/// Operands lie behind one another: product by product, phase by phase.
#[test]
fn operands_are_counted() {
    let mut next = 0;
    for p in 0..N * N {
        let operands = Phases::operands(p);
        assert_eq!(operands.start, next);
        next = operands.end;
        let (i, j) = (p / N, p % N);
        let all = (0..phases(i)).flat_map(|r| (0..phases(j)).map(move |c| (r, c)));
        assert!(all.map(|(r, c)| operand((i, r), (j, c))).eq(operands));
    }
    assert_eq!(next, OPERANDS);
}

//! Every step of a sum is taken once, whatever the order and the pieces.

use torchrs_cpu::convolution::direct::Sizes;
use torchrs_cpu::convolution::direct::steps::{Piece, Seen, Steps};
use torchrs_cpu::convolution::field::{Field, Window};

/// Fields of filters of `side` x `side` with a border of `padding`, of a plane and of stacks of three.
fn fields(side: usize, padding: usize) -> [Field; 2] {
    let tap = |t: usize| [t / side, t % side].map(|t| t as isize - padding as isize);
    let grid = [6 + 2 * padding - side + 1; 2];
    let taps = (0..side * side).map(tap).collect();
    let field = Field::copied(&Window { source: [6, 6], grid, step: [1, 1], taps });
    [field.clone(), field.stacked(4, &[0, 1, 2], 1)]
}

fn sizes(inputs: usize) -> Sizes {
    Sizes { batch: 1, groups: 1, inputs, outputs: 1, grid: [6, 6] }
}

#[test]
fn every_step_that_is_seen_is_taken_once_in_pieces() {
    for (side, padding) in [(1, 0), (3, 0), (3, 1), (5, 4)] {
        for field in fields(side, padding) {
            for (channels, together, deepest) in
                [(1, 9, 20), (7, 1 << 20, 10), (7, 40, 40), (5, 60, 1000), (8, 1, 1)]
            {
                let steps = Steps::new(&field, sizes(channels), together, deepest);
                let all = channels * field.taps.len();
                let plain = padding == 0 && field.depths == 1;
                assert_eq!(steps.is_plain(), plain || side == 1 && field.depths == 1);
                let displaced = steps.displacements(&field, channels);
                assert_eq!(displaced.len(), all);
                let mut places: Vec<usize> = steps.places().collect();
                for (step, place) in places.iter().enumerate() {
                    let (c, t) = (place / field.taps.len(), place % field.taps.len());
                    assert_eq!(displaced[step], c * field.channel + field.taps[t]);
                }
                let pieces = steps.pieces();
                let short = |piece: &Piece| (1..=deepest).contains(&piece.steps.len());
                assert!(pieces.iter().all(short));
                assert!(pieces.iter().flat_map(|piece| piece.steps.clone()).eq(0..all));
                for depths in [0..field.depths, 0..1, field.depths - 1..field.depths] {
                    for lines in &field.sees {
                        let seen = Seen::new(&depths, lines);
                        let taken = pieces.iter().flat_map(|piece| steps.seen(piece, seen));
                        let taken: Vec<usize> = taken.flatten().collect();
                        assert_eq!(taken[0], steps.first(seen));
                        let wanted = |step: &usize| {
                            let line = places[*step] % field.taps.len() / side;
                            let (depth, line) = (line / field.lines, line % field.lines);
                            steps.is_plain() || depths.contains(&depth) && lines.contains(&line)
                        };
                        assert!(taken.into_iter().eq((0..all).filter(wanted)));
                    }
                }
                places.sort_unstable();
                assert!(places.into_iter().eq(0..all));
            }
        }
    }
}

#[test]
fn rows_at_the_border_see_fewer_lines() {
    let [field, stack] = fields(3, 1);
    assert_eq!((field.lines, stack.lines, stack.depths), (3, 3, 3));
    assert_eq!(field.sees, [1..3, 0..3, 0..3, 0..3, 0..3, 0..2]);
    let steps = Steps::new(&field, sizes(4), usize::MAX, 100);
    let pieces = steps.pieces();
    let seen = |lines| steps.seen(&pieces[0], Seen::new(&(0..1), &lines)).next();
    assert_eq!((pieces.len(), seen(1..3), seen(0..2)), (1, Some(12..36), Some(0..24)));
}

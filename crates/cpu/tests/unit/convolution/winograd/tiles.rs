//! Which tile is in which lane.

use torchrs_cpu::convolution::winograd::OUT;
use torchrs_cpu::convolution::winograd::tiles::{LINE, Lanes, is_short};

#[test]
fn every_tile_has_a_lane_and_a_place_of_its_own_and_products_have_the_tiles_that_take_part() {
    for (grid, first, count) in [
        ([14, 14], 0, 128),
        ([14, 14], 6, 51),
        ([13, 300], 70, 400),
        ([2, 7], 1, 9),
        ([8, 8], 0, 4),
    ] {
        for shortens in [false, true] {
            let lanes = Lanes::new(grid, shortens, first, count);
            let tiles = grid.map(|n: usize| n.div_ceil(OUT));
            let is_cut = |d: usize, at: usize| shortens && is_short(grid[d]) && at + 1 == tiles[d];
            let mut seen = vec![None; count];
            for batch in &lanes.batches {
                let mut next = [0; 2];
                for run in &batch.runs {
                    assert_eq!(batch.is_short, is_cut(0, run.row));
                    for t in 0..run.len {
                        let narrow = is_cut(1, run.column + t);
                        let list = &batch.tiles[narrow as usize];
                        let place = &mut next[narrow as usize];
                        assert_eq!(list.places[*place], run.start + OUT * t);
                        assert!(run.start + OUT * t + 2 * OUT <= LINE);
                        let tile = (run.image, run.row, run.column + t);
                        assert!(seen[list.lane + *place].replace(tile).is_none());
                        *place += 1;
                    }
                }
                assert_eq!(next, [batch.tiles[0].len, batch.tiles[1].len]);
            }
            let tile = |i: usize| (i / tiles[1] / tiles[0], i / tiles[1] % tiles[0], i % tiles[1]);
            let mut all: Vec<_> = seen.iter().map(|tile| tile.expect("a tile")).collect();
            for only in [[false, false], [true, false], [false, true], [true, true]] {
                let range = lanes.range(only);
                for (lane, &(_, row, column)) in all.iter().enumerate() {
                    let out = only[0] && is_cut(0, row) || only[1] && is_cut(1, column);
                    assert_eq!(range.contains(&lane), !out, "{grid:?} {only:?} {lane}");
                }
            }
            all.sort_unstable();
            assert!(all.into_iter().eq((first..first + count).map(tile)));
        }
    }
}

//! Zones cover the grid, and leave out what lies outside.

use torchrs_cpu::convolution::direct::zones::{Zone, zones};
use torchrs_cpu::convolution::field::Window;

/// A filter of 3x3 with a border of one.
fn window(grid: [usize; 2]) -> Window {
    let taps = (0..9).map(|t| [t / 3 - 1, t % 3 - 1]).collect();
    Window { source: grid, grid, step: [1, 1], taps }
}

fn products(zones: &[Zone]) -> usize {
    zones.iter().map(|zone| zone.grid[0] * zone.grid[1] * zone.taps.len()).sum()
}

#[test]
fn every_point_is_in_one_zone_with_all_taps_that_it_sees() {
    for grid in [[1, 1], [1, 7], [2, 5], [14, 14]] {
        let window = window(grid);
        for dear in [0.0, 20.0, 1e6] {
            // The more a zone costs, the fewer there are.
            let zones = zones(&window, |zone| {
                (zone.grid[0] * zone.grid[1] * zone.taps.len()) as f64 + dear
            });
            let mut seen = vec![0; grid[0] * grid[1]];
            for zone in &zones {
                for i in zone.origin[0]..zone.origin[0] + zone.grid[0] {
                    for j in zone.origin[1]..zone.origin[1] + zone.grid[1] {
                        seen[i * grid[1] + j] += 1;
                        for (t, tap) in window.taps.iter().enumerate() {
                            let at = [i as isize + tap[0], j as isize + tap[1]];
                            let inside = (0..2).all(|d| (0..grid[d] as isize).contains(&at[d]));
                            assert!(!inside || zone.taps.contains(&t), "{grid:?} {zone:?}");
                        }
                    }
                }
            }
            assert!(seen.iter().all(|n| *n == 1), "{grid:?} {zones:?}");
        }
    }
}

#[test]
fn what_lies_outside_is_not_multiplied() {
    let window = window([14, 14]);
    let plain = |zone: &Zone| (zone.grid[0] * zone.grid[1] * zone.taps.len()) as f64;
    let best = zones(&window, plain);
    assert_eq!((best.len(), products(&best)), (5, 12 * 12 * 9 + 2 * 14 * 6 + 2 * 12 * 6));
    assert_eq!(zones(&window, |zone| plain(zone) + 1e6).len(), 1);
    // Taps that no point sees.
    let narrow = self::window([14, 1]);
    assert_eq!(products(&zones(&narrow, |zone| plain(zone) + 1e6)), 14 * 3);
}

//! Where a correlation's tiles read the points, and which way takes least time.

use std::ops::Range;

use super::{DEPTH, Sizes};
use crate::convolution::field::Field;
use crate::products::micro::{SIDE, Tile, heights};

/// Where tiles read the points.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// In packed panels that go on from row to row and image to image.
    Packed,
    /// In the field, where nothing is copied, but lanes that are no points are lost.
    Lines(Lines),
    /// In the field, one by one: they are the rows of a tile, whose columns are filters.
    Points,
}

/// Straight lines of the field that tiles follow.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// Lines of an image.
    pub count: usize,
    /// Places of a line: points of a grid row, or all those of an image with the gaps between its rows.
    pub len: usize,
    /// Distance in the field between grid rows.
    pub pitch: usize,
    /// Panels of a line, each but the last of a tile's columns.
    pub panels: usize,
}

impl Lines {
    /// The last panel of a line may be a tile's widest, if that saves one.
    fn new<T>([count, len]: [usize; 2], pitch: usize, tile: Tile<T>) -> Lines {
        let more = tile.widest - tile.columns;
        let panels = len.saturating_sub(more).div_ceil(tile.columns).max(1);
        Lines { count, len, pitch, panels }
    }

    /// What a panel reads of a source plane that no panel before it did: the first place, counted from the
    /// plane's, and how many there are. `far` is the farthest tap.
    pub fn news(
        &self,
        (line, panel): (usize, usize),
        far: usize,
        columns: usize,
    ) -> (usize, usize) {
        if self.count == 1 {
            return (panel * columns + far, columns);
        }
        let each = self.pitch.div_ceil(self.panels);
        (line * self.pitch + panel * each + far + self.len - self.pitch, each)
    }

    /// Places of a line's panel.
    pub fn panel(&self, panel: usize, columns: usize) -> Range<usize> {
        let last = panel + 1 == self.panels;
        panel * columns..if last { self.len } else { (panel + 1) * columns }
    }
}

/// How long a column of tiles takes that are `wide` registers wide, in multiply-adds of a register for each
/// step of its sums: two of those or two loads are done at a time, and a tile of few waits for its own sums.
fn column(rows: usize, most: usize, wide: usize, loads: usize) -> f64 {
    let tile = |rows: usize| (rows * wide).max(rows + loads).max(8);
    heights(rows, most).map(tile).sum::<usize>() as f64
}

impl Way {
    /// The way that takes least time.
    pub fn of<T: Copy>(sizes: Sizes, field: &Field, tile: Tile<T>) -> Way {
        let ([height, width], pitch) = (sizes.grid, field.grid_row);
        let k = (sizes.inputs * field.taps.len()).min(DEPTH) as f64;
        let lanes = tile.columns / SIDE;
        // Points in the field lie across the caches' lines: each register of them is two loads.
        let filters = |wide: usize| column(sizes.outputs, tile.rows, wide, 2 * wide + 1);
        let points = |wide: usize| column(width, tile.tallest, wide, wide + 1);
        let panels = |len: usize, column: &dyn Fn(usize) -> f64| {
            let last = len % tile.columns;
            let last = if last == 0 { 0.0 } else { column(last.div_ceil(lanes)) };
            (len / tile.columns) as f64 * column(SIDE) + last
        };
        // Measured: packing takes as long as 50 of them for each row of a panel, and to bring a tile's points to
        // their places as long as 20 steps of its sum, from the runs of a line with gaps 40.
        let pieces = |steps: f64| 1.0 + steps / k;
        let images = sizes.batch as f64;
        let line = |count: usize, len: usize, pieces: f64| {
            let lines = Lines::new([count, len], pitch, tile);
            let last = lines.panel(lines.panels - 1, tile.columns).len().div_ceil(lanes);
            let line = (lines.panels - 1) as f64 * filters(SIDE) + filters(last);
            (Way::Lines(lines), images * count as f64 * line * pieces)
        };
        // Rows that are taken one by one leave out what they do not see.
        let seen: usize = field.sees.iter().map(|seen| seen.len()).sum();
        let seen = seen as f64 / (field.lines * field.sees.len()) as f64;
        let packed = (sizes.batch * sizes.points()).div_ceil(tile.columns) as f64;
        let points = panels(sizes.outputs, &points) * pieces(20.0);
        let ways = [
            (Way::Packed, packed * (filters(SIDE) + 50.0)),
            (Way::Points, images * height as f64 * points * seen),
            line(height, width, seen),
            line(1, (height - 1) * pitch + width, pieces(40.0)),
        ];
        // The rows of many source planes would push each other out of the first-level cache.
        let near = sizes.inputs.min(DEPTH.div_ceil(field.taps.len())) <= 64;
        let ways = ways.iter().take(if near { 4 } else { 2 });
        ways.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(Way::Packed, |best| best.0)
    }

    /// How many tiles wide a group's points are; grid rows for [`Way::Points`].
    pub fn panels<T>(self, sizes: Sizes, tile: Tile<T>) -> usize {
        match self {
            Way::Packed => (sizes.batch * sizes.points()).div_ceil(tile.columns),
            Way::Points => sizes.batch * sizes.grid[0],
            Way::Lines(lines) => sizes.batch * lines.count * lines.panels,
        }
    }
}

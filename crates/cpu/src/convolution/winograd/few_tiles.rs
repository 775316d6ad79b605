//! The way of a few tiles with many channels, as at the end of a network: the transformed filters would be
//! four times what the filters are, written to memory and read again, so that here they are transformed in
//! blocks, each used for all tiles while it is in the second-level cache.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::correlation::{Block, DEPTH, Stride, Winograd, apart, tile};
use super::dense::{Dense, PRODUCTS};
use super::filters::{Filters, Pack, pack_filters};
use super::lanes::L;
use super::scheme::Scheme;
use super::spread::Collect;
use super::tiles::Lanes;
use crate::arch::vectorize::vectorize;
use crate::convolution::direct::{Sizes, Target};
use crate::products::micro::Product;
use crate::threads::parallel_for;
use crate::threads::parts::{Shared, with_scratch};

/// Most tiles, whose operands are read once for each block of filters.
const MOST: usize = 200;
/// Panels of result channels whose filters are transformed together.
const PANELS: usize = 2;

impl Winograd {
    /// Whether there are so few tiles that filters are transformed in blocks; at stride 1 only.
    pub(super) fn is_few(&self) -> bool {
        self.stride == Stride::One && self.total() <= MOST
    }

    /// Distance between channels in the operands.
    fn lanes(&self) -> usize {
        self.total().next_multiple_of(tile().columns) + 2 * L
    }

    /// Elements of all transformed tiles.
    pub(super) fn tiles_len(&self) -> usize {
        let Sizes { groups, inputs, .. } = self.sizes;
        groups * PRODUCTS * apart(inputs * self.lanes()) + 2 * L
    }

    /// [`Winograd::correlate`], with room for the transformed tiles. The target has been checked.
    pub(super) fn correlate_few(
        &self,
        source: &[f32],
        filters: Filters,
        bias: Option<&[f32]>,
        target: Target,
        tiles: &mut [f32],
        out: *mut f32,
    ) -> bool {
        let Sizes { groups, inputs, outputs, grid, .. } = self.sizes;
        let (tile, count, stride) = (tile(), self.total(), self.lanes());
        let right = apart(inputs * stride);
        assert_eq!(tiles.len(), self.tiles_len());
        let lanes = &Lanes::new(grid, Dense::SHORTENS, 0, count);
        let block = |group: usize| Block { all: self, lanes, stride, group };
        let shared = Shared::new(tiles.as_mut_ptr());
        parallel_for(groups * inputs, 4000 / count + 1, |range| {
            for item in range {
                let (g, c) = (item / inputs, item % inputs);
                // SAFETY: channels write numbers of their own; what goes past the end of a channel's lanes
                // stays in the slack before the next one's.
                let to = unsafe { shared.get().add(g * PRODUCTS * right + c * stride) };
                let place = (groups * inputs, item);
                let block = block(g);
                // SAFETY: the *Cut invariant*: `to` is this channel's, with slack behind its lanes,
                // as said above.
                unsafe {
                    Dense::spread(block.cut(source, self.source, self.origin, place, to, right))
                };
            }
        });
        let (tiles, out) = (&*tiles, Shared::new(out));
        let panels = outputs.div_ceil(tile.rows);
        let blocks = panels.div_ceil(PANELS);
        let depth = inputs.div_ceil(inputs.div_ceil(DEPTH));
        let (operand, left) = (apart(tile.rows * depth), apart(PANELS * tile.rows * stride));
        let rows: Vec<usize> = (0..depth).map(|c| c * stride).collect();
        let finite = AtomicBool::new(true);
        parallel_for(groups * blocks, 1, |range| {
            let len = PRODUCTS * (PANELS * operand + left);
            with_scratch(len, |scratch: &mut [f32]| {
                let (transformed, products) = scratch.split_at_mut(PRODUCTS * PANELS * operand);
                for item in range {
                    let (g, first) = (item / blocks, item % blocks * PANELS);
                    let last = (first + PANELS).min(panels);
                    let tiles = &tiles[g * PRODUCTS * right..];
                    for c0 in (0..inputs).step_by(depth) {
                        let deep = depth.min(inputs - c0);
                        for panel in first..last {
                            pack_filters(Pack {
                                filters,
                                start: g * filters.group + c0 * filters.input,
                                first: panel * tile.rows,
                                outputs,
                                inputs: deep,
                                rows: tile.rows,
                                panel: 0,
                                out: transformed[(panel - first) * PRODUCTS * operand..]
                                    .as_mut_ptr(),
                                stride: operand,
                            });
                        }
                        for p in 0..PRODUCTS {
                            let takes = Dense::takes(p, lanes);
                            for t in takes.clone().step_by(tile.columns) {
                                for panel in first..last {
                                    let (here, o) = (panel - first, panel * tile.rows);
                                    let a = &transformed[(here * PRODUCTS + p) * operand..];
                                    let c =
                                        &mut products[p * left + here * tile.rows * stride + t..];
                                    let product = Product {
                                        k: deep,
                                        a: a.as_ptr(),
                                        a_column: tile.rows,
                                        b: tiles[p * right + c0 * stride + t..].as_ptr(),
                                        rows: rows.as_ptr(),
                                        c: c.as_mut_ptr(),
                                        c_row: stride,
                                        m: tile.rows.min(outputs - o),
                                        n: tile
                                            .columns
                                            .min((takes.end - t).next_multiple_of(2 * L)),
                                        add: c0 > 0,
                                        ..Product::default()
                                    };
                                    // SAFETY: `deep` columns and rows are there; the last tiles of rows
                                    // go into the slack between channels.
                                    unsafe { (tile.run)(product) };
                                }
                            }
                        }
                    }
                    for o in first * tile.rows..(last * tile.rows).min(outputs) {
                        let channel = g * outputs + o;
                        let all = vectorize(Collect::<Dense> {
                            products: &products[(o - first * tile.rows) * stride..],
                            stride: left,
                            lanes,
                            size: grid,
                            bias: bias.map_or(0.0, |b| b[channel]),
                            // SAFETY: a channel of the target, which nobody else writes.
                            out: unsafe { out.get().add(channel * target.channel) },
                            image: target.image,
                            row: target.row,
                            scheme: PhantomData,
                        });
                        if !all {
                            finite.store(false, Relaxed);
                        }
                    }
                }
            });
        });
        finite.into_inner()
    }
}

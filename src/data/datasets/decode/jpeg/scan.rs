//! The compressed data: units from left to right and from above, each with some blocks of each component.

use super::bits::{Reader, Table};
use super::blocks::Component;
use super::headers::Frame;

/// Reads what `components` need of the scan. `None`: the data are damaged, or end too early.
pub(super) fn decode(frame: &Frame, components: &mut [Component]) -> Option<()> {
    let (unit_width, unit_height) = frame.unit();
    let units = frame.width.div_ceil(unit_width);
    let rows = frame.height.div_ceil(unit_height);
    let (wanted_rows, wanted) = (components[0].unit_rows.clone(), components[0].units.clone());
    let mut parts =
        Parts { rest: frame.data, data: Vec::with_capacity(frame.data.len() + 8), ended: false };
    let all = frame.components.iter().map(|c| {
        Some(([frame.dc[c.dc].as_deref()?, frame.ac[c.ac].as_deref()?], c.across, c.down))
    });
    let tables: Vec<([&Table; 2], usize, usize)> = all.collect::<Option<_>>()?;
    let interval = if frame.restart == 0 { units * rows } else { frame.restart };
    let last = (wanted_rows.end - 1) * units + wanted.end;
    let mut at = 0;
    while at < last {
        let data = parts.next()?;
        let mut reader = Reader::new(data);
        let mut dc = [0i32; 3];
        for number in at..(at + interval).min(last) {
            let (row, column) = (number / units, number % units);
            let is_wanted = wanted_rows.contains(&row) && wanted.contains(&column);
            for (c, &(tables, across, down)) in tables.iter().enumerate() {
                for y in 0..down {
                    for x in 0..across {
                        if is_wanted {
                            let (group, lane) =
                                components[c].block(y, (column - wanted.start) * across + x);
                            reader.block(tables, &mut dc[c], group, lane)?;
                        } else {
                            reader.pass_block(tables, &mut dc[c])?;
                        }
                    }
                }
            }
            if is_wanted && column + 1 == wanted.end {
                components.iter_mut().for_each(|component| component.transform(row));
            }
        }
        if reader.overran() {
            return None;
        }
        at += interval;
    }
    Some(())
}

/// The parts of the data between restart markers.
struct Parts<'a> {
    rest: &'a [u8],
    data: Vec<u8>,
    ended: bool,
}

impl Parts<'_> {
    /// The next one without stuffed bytes, and zeros behind it. `None`: there is none.
    fn next(&mut self) -> Option<&[u8]> {
        if self.ended {
            return None;
        }
        self.data.clear();
        loop {
            let at = first_marker(self.rest)?;
            self.data.extend_from_slice(&self.rest[..at]);
            let next = *self.rest.get(at + 1)?;
            match next {
                0 => {
                    self.data.push(0xff);
                    self.rest = &self.rest[at + 2..];
                }
                0xff => self.rest = &self.rest[at + 1..],
                _ => {
                    self.ended = !(0xd0..=0xd7).contains(&next);
                    self.rest = &self.rest[at + 2..];
                    break;
                }
            }
        }
        self.data.extend([0; 8]);
        Some(&self.data)
    }
}

/// Where the first byte 0xff is.
fn first_marker(bytes: &[u8]) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<32>();
    let whole =
        words.iter().take_while(|word| !word.iter().fold(false, |any, byte| any | (*byte == 0xff)));
    let start = 32 * whole.count();
    Some(start + bytes[start..].iter().position(|byte| *byte == 0xff)?)
}

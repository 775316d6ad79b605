//! Windows bitmaps: with a palette (1, 4 or 8 bits a pixel, 4 and 8 also run-length coded) or colours
//! (16, 24 or 32 bits).

use super::pixels::{Rgb, area, cut_short};

const RLE8: u32 = 1;
const RLE4: u32 = 2;
const BITFIELDS: u32 = 3;
/// Lengths of what comes before the header and of the old, short header.
const FILE_HEADER: usize = 14;
const CORE_HEADER: usize = 12;

pub(super) fn decode(bytes: &[u8]) -> Result<Rgb, String> {
    let short = |at| Ok::<_, String>(u16::from_le_bytes(field(bytes, at)?));
    let long = |at| Ok::<_, String>(u32::from_le_bytes(field(bytes, at)?));
    let header = long(14)? as usize;
    let (width, height, top_down, bits, compression, colours) = match header {
        CORE_HEADER => (short(18)? as usize, short(20)? as usize, false, short(24)?, 0, 0),
        40..=124 => {
            // A negative height: the first row is the upper one.
            let height = long(22)? as i32;
            let size = height.unsigned_abs() as usize;
            (long(18)? as usize, size, height < 0, short(28)?, long(30)?, long(46)?)
        }
        _ => return Err(format!("its header of {header} bytes is not known")),
    };
    // Indices of runs, then three samples.
    area(width, height, 4)?;
    let raster = bytes.get(long(10)? as usize..).ok_or_else(cut_short)?;
    let row_bytes = (width * usize::from(bits)).div_ceil(8);
    // Checked before anything is allocated. Whether the last row is filled up does not matter.
    let rows = |raster| rows(raster, row_bytes, height);
    let palette =
        || palette(bytes, header, if colours == 0 { 1 << bits } else { colours as usize });
    let mut pixels = Vec::new();
    match (bits, compression) {
        (1 | 4 | 8, 0) => {
            let (rows, palette) = (rows(raster)?, palette());
            let bits = usize::from(bits);
            let index = |row: &[u8], x| row[x * bits / 8] >> (8 - bits - x * bits % 8) & mask(bits);
            pixels.reserve_exact(3 * width * height);
            for row in rows {
                pixels.extend((0..width).flat_map(|x| palette[usize::from(index(row, x))]));
            }
        }
        (4, RLE4) | (8, RLE8) => {
            let (indices, palette) = (runs(raster, bits == 4, width, height)?, palette());
            pixels.extend(indices.iter().flat_map(|&index| palette[usize::from(index)]));
        }
        (16 | 24 | 32, 0 | BITFIELDS) => {
            let rows = rows(raster)?;
            let usual = if bits == 16 { [0x7c00, 0x3e0, 0x1f] } else { [0xff0000, 0xff00, 0xff] };
            let masks = match compression {
                BITFIELDS => [long(54)?, long(58)?, long(62)?],
                _ => usual,
            };
            let size = usize::from(bits) / 8;
            pixels.reserve_exact(3 * width * height);
            for row in rows {
                let row = row.chunks_exact(size);
                match bits > 16 && masks == usual {
                    true => pixels.extend(row.flat_map(|p| [p[2], p[1], p[0]])),
                    false => pixels.extend(row.flat_map(|p| masks.map(|mask| part(p, mask)))),
                }
            }
        }
        _ => return Err(format!("compression {compression} of {bits} bits is not supported")),
    }
    // From the lowest row to the highest.
    if !top_down {
        let mut halves = pixels.chunks_exact_mut(3 * width);
        while let (Some(upper), Some(lower)) = (halves.next(), halves.next_back()) {
            upper.swap_with_slice(lower);
        }
    }
    Ok(Rgb { width, height, pixels })
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], String> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(cut_short)
}

/// The rows of `row_bytes` bytes, each of which is filled up to a multiple of four.
fn rows(
    raster: &[u8],
    row_bytes: usize,
    height: usize,
) -> Result<impl Iterator<Item = &[u8]>, String> {
    let stride = row_bytes.next_multiple_of(4);
    match raster.len() < stride * (height - 1) + row_bytes {
        true => Err(cut_short()),
        false => Ok(raster.chunks(stride).take(height).map(move |row| &row[..row_bytes])),
    }
}

fn mask(bits: usize) -> u8 {
    u8::MAX >> (8 - bits)
}

/// Colours that the file does not have are black.
fn palette(bytes: &[u8], header: usize, colours: usize) -> [[u8; 3]; 256] {
    let entry_bytes = if header == CORE_HEADER { 3 } else { 4 };
    let entries = bytes.get(FILE_HEADER + header..).unwrap_or_default().chunks_exact(entry_bytes);
    let mut palette = [[0; 3]; 256];
    for (colour, entry) in palette.iter_mut().zip(entries.take(colours)) {
        *colour = [entry[2], entry[1], entry[0]];
    }
    palette
}

/// The part of a pixel under the mask, scaled to 255.
fn part(pixel: &[u8], mask: u32) -> u8 {
    let value = pixel.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
    match mask.trailing_zeros() {
        32 => 0,
        shift => (u64::from((value & mask) >> shift) * 255 / u64::from(mask >> shift)) as u8,
    }
}

/// Run-length coded indices. What lies beyond a row's end is dropped, what is left out is 0.
fn runs(
    mut raster: &[u8],
    half_bytes: bool,
    width: usize,
    height: usize,
) -> Result<Vec<u8>, String> {
    // Four bytes skip 255 rows: nothing is allocated for a header that promises more.
    if height / 64 > raster.len() {
        return Err(cut_short());
    }
    let mut take = |count: usize| {
        let (taken, rest) = raster.split_at_checked(count).ok_or_else(cut_short)?;
        raster = rest;
        Ok::<_, String>(taken)
    };
    let mut indices = vec![0; width * height];
    let (mut x, mut y) = (0, 0);
    while y < height {
        let pair = take(2)?;
        let (count, data, repeated) = match *pair {
            [0, 0] => {
                (x, y) = (0, y + 1);
                continue;
            }
            [0, 1] if y + 1 == height => break,
            // The image's end, before its last row.
            [0, 1] => return Err(cut_short()),
            [0, 2] => {
                let step = take(2)?;
                (x, y) = (x + usize::from(step[0]), y + usize::from(step[1]));
                continue;
            }
            [0, count] => {
                let length = if half_bytes { count.div_ceil(2) } else { count };
                // Filled up to an even length.
                let data = take(usize::from(length).next_multiple_of(2))?;
                (usize::from(count), data, false)
            }
            _ => (usize::from(pair[0]), &pair[1..], true),
        };
        let row = &mut indices[y * width..][..width];
        for (i, index) in row.iter_mut().skip(x).take(count).enumerate() {
            *index = match (half_bytes, repeated) {
                (false, true) => data[0],
                (false, false) => data[i],
                (true, _) => data[if repeated { 0 } else { i / 2 }] >> (4 * (1 - i % 2)) & 15,
            };
        }
        x += count;
    }
    Ok(indices)
}

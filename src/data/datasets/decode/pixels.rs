//! What decoders of all formats share: the pixels that they give, and what is refused before memory is taken.

use crate::data::transforms::Region;

/// PIL's own limit, beyond which it takes a file for a decompression bomb.
pub(super) const MAX_PIXELS: usize = (1 << 30) / 4 / 3 * 2;

/// Rows from the top, pixels from the left, bytes in the order red, green, blue.
#[derive(Debug)]
pub(in super::super) struct Rgb {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<u8>,
}

impl Rgb {
    /// From red, green and blue one after the other.
    pub fn of_planes(width: usize, height: usize, planes: &[u8]) -> Self {
        let (red, rest) = planes.split_at(width * height);
        let (green, blue) = rest.split_at(width * height);
        let pixels = red.iter().zip(green).zip(blue).flat_map(|((r, g), b)| [*r, *g, *b]);
        Rgb { width, height, pixels: pixels.collect() }
    }

    /// Red, green and blue of a region within, one after the other.
    pub fn planes(&self, region: Region) -> Vec<u8> {
        let mut planes = vec![0; 3 * region.height * region.width];
        let rows = self.pixels.chunks_exact(3 * self.width).skip(region.top).take(region.height);
        let (red, rest) = planes.split_at_mut(region.height * region.width);
        let (green, blue) = rest.split_at_mut(region.height * region.width);
        let out = red.chunks_exact_mut(region.width).zip(green.chunks_exact_mut(region.width));
        for ((row, (red, green)), blue) in rows.zip(out).zip(blue.chunks_exact_mut(region.width)) {
            let pixels = row[3 * region.left..].chunks_exact(3);
            for (((pixel, r), g), b) in pixels.zip(red).zip(green).zip(blue) {
                (*r, *g, *b) = (pixel[0], pixel[1], pixel[2]);
            }
        }
        planes
    }
}

/// Number of pixels, where there is memory for `each` bytes of them. Called before anything of that size
/// is allocated.
pub(super) fn area(width: usize, height: usize, each: usize) -> Result<usize, String> {
    let pixels = match width.checked_mul(height) {
        Some(0) => return Err(format!("{width} x {height} is an image without pixels")),
        Some(pixels) if pixels <= MAX_PIXELS => pixels,
        _ => return Err(format!("{width} x {height} is more than {MAX_PIXELS} pixels")),
    };
    // Decoders ask for their memory piece by piece, and cannot be told that there is none.
    let mut room = Vec::<u8>::new();
    let there = room.try_reserve_exact(pixels * each);
    // Else the compiler may leave both out.
    std::hint::black_box(&mut room);
    match there {
        Ok(()) => Ok(pixels),
        Err(_) => Err(format!(
            "{width} x {height} pixels need {} bytes of memory, which are not there",
            pixels * each
        )),
    }
}

/// From `channels` bytes a pixel: grey, grey and alpha, RGB, or RGB and alpha.
pub(super) fn to_rgb(samples: Vec<u8>, channels: usize) -> Vec<u8> {
    match channels {
        1 | 2 => samples.chunks_exact(channels).flat_map(|pixel| [pixel[0]; 3]).collect(),
        3 => samples,
        _ => samples.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
    }
}

pub(super) fn cut_short() -> String {
    "it ends too early".to_owned()
}

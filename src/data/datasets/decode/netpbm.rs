//! The formats of Netpbm: bitmaps, grey and colour images as text (P1 to P3) or bytes (P4 to P6),
//! and PAM (P7).

use super::pixels::{Rgb, area, cut_short, to_rgb};

/// What follows the two bytes that name the kind.
pub(super) fn decode(kind: u8, rest: &[u8]) -> Result<Rgb, String> {
    let mut reader = Reader(rest);
    let (mut width, mut height, mut channels, mut max) = (0, 0, 1, 1);
    if kind == b'7' {
        loop {
            match reader.word()? {
                b"WIDTH" => width = reader.number()?,
                b"HEIGHT" => height = reader.number()?,
                b"DEPTH" => channels = reader.number()?,
                b"MAXVAL" => max = reader.number()?,
                // The depth says enough.
                b"TUPLTYPE" => _ = reader.word()?,
                b"ENDHDR" => break,
                word => return Err(format!("`{}` in its header", word.escape_ascii())),
            }
        }
    } else {
        (width, height) = (reader.number()?, reader.number()?);
        if matches!(kind, b'3' | b'6') {
            channels = 3;
        }
        if !matches!(kind, b'1' | b'4') {
            max = reader.number()?;
        }
    }
    if !(1..=4).contains(&channels) {
        return Err(format!("{channels} channels, must be 1 to 4"));
    }
    if !(1..=65535).contains(&max) {
        return Err(format!("its greatest value is {max}, must be 1 to 65535"));
    }
    let count = area(width, height, channels + 3)? * channels;
    let samples = match kind {
        b'1'..=b'3' => reader.text(kind == b'1', count, max)?,
        b'4' => reader.bits(width, height)?,
        _ => reader.binary(count, max)?,
    };
    Ok(Rgb { width, height, pixels: to_rgb(samples, channels) })
}

/// Of a sample from 0 to `max`, the nearest of 256 levels.
fn level(sample: usize, max: usize) -> u8 {
    ((sample.min(max) * 255 + max / 2) / max) as u8
}

/// What is still to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Up to the next white space, after white space and comments.
    fn word(&mut self) -> Result<&'a [u8], String> {
        loop {
            self.0 = self.0.trim_ascii_start();
            if !self.0.starts_with(b"#") {
                break;
            }
            let end = self.0.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            self.0 = &self.0[end.ok_or_else(cut_short)?..];
        }
        let end = self.0.iter().position(u8::is_ascii_whitespace).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        match word {
            [] => Err(cut_short()),
            word => Ok(word),
        }
    }

    fn number(&mut self) -> Result<usize, String> {
        let word = self.word()?;
        let number = str::from_utf8(word).ok().and_then(|word| word.parse().ok());
        number.ok_or_else(|| format!("`{}` is not a number", word.escape_ascii()))
    }

    /// The `length` bytes after the one white space that ends the header.
    fn raster(&self, length: usize) -> Result<&'a [u8], String> {
        self.0.get(1..=length).ok_or_else(cut_short)
    }

    fn text(&mut self, bits: bool, count: usize, max: usize) -> Result<Vec<u8>, String> {
        // Every sample takes a byte: nothing is allocated for a header that promises too much.
        if self.0.len() < count {
            return Err(cut_short());
        }
        let mut samples = Vec::with_capacity(count);
        while samples.len() < count {
            if !bits {
                samples.push(level(self.number()?, max));
                continue;
            }
            // Bits may stand side by side. 1 is black.
            for bit in self.word()?.iter().take(count - samples.len()) {
                match bit {
                    b'0' => samples.push(255),
                    b'1' => samples.push(0),
                    other => return Err(format!("`{}` is not a bit", other.escape_ascii())),
                }
            }
        }
        Ok(samples)
    }

    /// Rows of bits, each filled up to a byte. 1 is black.
    fn bits(&self, width: usize, height: usize) -> Result<Vec<u8>, String> {
        let rows = self.raster(width.div_ceil(8) * height)?.chunks_exact(width.div_ceil(8));
        let levels = |row: &'a [u8]| {
            (0..width).map(|x| if row[x / 8] >> (7 - x % 8) & 1 == 1 { 0 } else { 255 })
        };
        Ok(rows.flat_map(levels).collect())
    }

    fn binary(&self, count: usize, max: usize) -> Result<Vec<u8>, String> {
        match max {
            255 => Ok(self.raster(count)?.to_vec()),
            ..255 => {
                let raster = self.raster(count)?;
                Ok(raster.iter().map(|&sample| level(usize::from(sample), max)).collect())
            }
            _ => {
                let sample = |pair: &[u8]| usize::from(pair[0]) << 8 | usize::from(pair[1]);
                let raster = self.raster(2 * count)?.chunks_exact(2);
                Ok(raster.map(|pair| level(sample(pair), max)).collect())
            }
        }
    }
}

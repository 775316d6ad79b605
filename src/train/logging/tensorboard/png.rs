//! An image as PNG: one chunk of compressed rows, none of them filtered.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

pub(super) struct Png {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    pub(super) bytes: Vec<u8>,
}

/// PNG's name of the colours of so many channels.
fn colour_type(channels: usize) -> Option<u8> {
    match channels {
        1 => Some(0),
        3 => Some(2),
        4 => Some(6),
        _ => None,
    }
}

/// Of `[channels, height, width]`.
pub(super) fn encode(call: &str, image: &Tensor) -> Result<Png> {
    let wrong = |what: String| Err(Error::argument(call, "image", what));
    let &[channels, height, width] = image.shape() else {
        return wrong(format!(
            "its shape is {:?}; must be [channels, height, width]",
            image.shape()
        ));
    };
    let Some(colour) = colour_type(channels).filter(|_| height > 0 && width > 0) else {
        return wrong(format!(
            "its shape is {:?}; must be [channels, height, width] with 1 channel (grey), 3 or 4",
            image.shape()
        ));
    };
    let pixels = image.detach().permute(&[1, 2, 0]);
    let pixels: Vec<u8> = match image.dtype() {
        Dtype::U8 => pixels.to_vec(),
        dtype if dtype.is_floating_point() => {
            let values = pixels.to_vec::<f32>();
            if let Some(value) = values.iter().find(|v| !(-1e-3..=1.001).contains(*v)) {
                return wrong(format!(
                    "it has the value {value}; numbers of an image are from 0 to 1 (undo a normalisation first), or uint8"
                ));
            }
            values.iter().map(|v| (v * 255.0).round().clamp(0.0, 255.0) as u8).collect()
        }
        dtype => return wrong(format!("it is {dtype}; must be uint8, or numbers from 0 to 1")),
    };
    let mut rows = ZlibEncoder::new(Vec::new(), Compression::fast());
    let written = pixels.chunks(width * channels).try_for_each(|row| {
        rows.write_all(&[0])?;
        rows.write_all(row)
    });
    let rows =
        written.and_then(|()| rows.finish()).map_err(|e| Error::os("compress an image", e))?;
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let sizes = [(width as u32).to_be_bytes(), (height as u32).to_be_bytes()].concat();
    chunk(&mut bytes, b"IHDR", &[&sizes[..], &[8, colour, 0, 0, 0]].concat());
    chunk(&mut bytes, b"IDAT", &rows);
    chunk(&mut bytes, b"IEND", &[]);
    Ok(Png { height, width, channels, bytes })
}

fn chunk(file: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let mut crc = flate2::Crc::new();
    crc.update(name);
    crc.update(data);
    file.extend(name);
    file.extend(data);
    file.extend(crc.sum().to_be_bytes());
}

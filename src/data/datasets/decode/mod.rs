//! Image files as pixels, as `PIL.Image.open(file).convert("RGB")` gives them: transparency and
//! colour profiles are dropped. Samples of 16 bits lose their lower half, those of grey images too
//! (there PIL clips at 255, so that nearly everything is white).

use std::fs;
use std::io::Cursor;
use std::path::Path;

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::data::transforms::Region;
use crate::error::{Context, Error, Result};

mod bmp;
mod jpeg;
mod netpbm;
mod pixels;

use self::jpeg::Jpeg;
pub(super) use pixels::Rgb;
use pixels::{area, cut_short, to_rgb};

/// An image file's bytes: its size is known, its pixels are not decoded before they are asked for, if that can be.
pub(super) enum Picture<'a> {
    /// Regions of it can be read.
    Jpeg(&'a [u8], Jpeg<'a>),
    Decoded(Rgb),
}

impl<'a> Picture<'a> {
    /// Its first bytes tell the format: endings of file names are often wrong.
    ///
    /// # Errors
    /// What is wrong with the bytes: no image, damaged, cut short, too many pixels.
    pub fn new(bytes: &'a [u8]) -> Result<Self, String> {
        if let Some(jpeg) = Jpeg::new(bytes) {
            let (height, width) = jpeg.size();
            area(width, height, 8)?;
            if jpeg.has_parts() && !jpeg_has_end(bytes) {
                return Err(cut_short());
            }
            return Ok(Picture::Jpeg(bytes, jpeg));
        }
        Ok(Picture::Decoded(match bytes {
            [0x89, b'P', b'N', b'G', ..] => png(bytes),
            [0xff, 0xd8, 0xff, ..] => general_jpeg(bytes),
            [b'B', b'M', ..] => bmp::decode(bytes),
            [b'P', kind @ b'1'..=b'7', rest @ ..] => netpbm::decode(*kind, rest),
            _ => Err("it is not a PNG, JPEG, BMP or PNM file".to_owned()),
        }?))
    }

    /// Height and width.
    pub fn size(&self) -> (usize, usize) {
        match self {
            Picture::Jpeg(_, jpeg) => jpeg.size(),
            Picture::Decoded(image) => (image.height, image.width),
        }
    }

    /// Red, green and blue of a region that lies within the image, one after the other.
    ///
    /// # Errors
    /// Compressed data that are damaged beyond use.
    pub fn planes(&self, region: Region) -> Result<Vec<u8>, String> {
        match self {
            Picture::Jpeg(bytes, jpeg) => match jpeg.planes(region) {
                Some(planes) => Ok(planes),
                // It takes what can be had of damaged data.
                None => Ok(general_jpeg(bytes)?.planes(region)),
            },
            Picture::Decoded(image) => Ok(image.planes(region)),
        }
    }

    /// All pixels.
    ///
    /// # Errors
    /// As [`planes`](Self::planes).
    pub fn decoded(self) -> Result<Rgb, String> {
        match self {
            Picture::Decoded(image) => Ok(image),
            Picture::Jpeg(bytes, jpeg) => {
                let (height, width) = jpeg.size();
                match jpeg.planes(Region::whole((height, width))) {
                    Some(planes) => Ok(Rgb::of_planes(width, height, &planes)),
                    None => general_jpeg(bytes),
                }
            }
        }
    }
}

/// The bytes of a file, through `f`. Its errors get the file's name.
///
/// # Errors
/// [`Error::Os`] when the file cannot be read, [`Error::File`] when `f` says what is wrong with it.
pub(super) fn of_file<T>(path: &Path, f: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T> {
    let bytes = fs::read(path).context(|| format!("read image {}", path.display()))?;
    f(&bytes).map_err(|why| Error::file(path, format!("cannot be decoded: {why}")))
}

fn png(bytes: &[u8]) -> Result<Rgb, String> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    // To 8 bits, without a palette.
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(|e| e.to_string())?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    // Up to four samples, then three.
    area(width, height, 8)?;
    let channels = reader.output_color_type().0.samples();
    let mut samples = vec![0; width * height * channels];
    reader.next_frame(&mut samples).map_err(|e| e.to_string())?;
    Ok(Rgb { width, height, pixels: to_rgb(samples, channels) })
}

fn general_jpeg(bytes: &[u8]) -> Result<Rgb, String> {
    // The decoder would make what is missing grey. Faults in the compressed data that leave the
    // image's end in place are passed over, as in PIL: many files on the web have them.
    if !jpeg_has_end(bytes) {
        return Err(cut_short());
    }
    let side = usize::from(u16::MAX);
    let options = DecoderOptions::default().set_max_width(side).set_max_height(side);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|e| e.to_string())?;
    let (width, height) = decoder.dimensions().unwrap_or_default();
    // Progressive ones are held as coefficients of two bytes, of up to four channels.
    let length = 3 * area(width, height, 16)?;
    let pixels = decoder.decode().map_err(|e| e.to_string())?;
    match pixels.len() == length {
        true => Ok(Rgb { width, height, pixels }),
        false => Err("it is neither grey nor RGB nor CMYK".to_owned()),
    }
}

/// Whether the marker that ends the image is there; one inside a segment, as of a preview, does not
/// count.
fn jpeg_has_end(bytes: &[u8]) -> bool {
    let mut rest = &bytes[2..];
    while let Some(at) = rest.iter().position(|&byte| byte == 0xff) {
        rest = &rest[at + 1..];
        match rest {
            [0xd9, ..] => return true,
            // An escaped byte of the compressed data, or a marker that stands alone.
            [0x00 | 0x01 | 0xd0..=0xd8 | 0xff, ..] => {}
            [_, high, low, ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                rest = rest.get(1 + length..).unwrap_or_default();
            }
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Rgb, String> {
        Picture::new(bytes)?.decoded()
    }

    use std::path::PathBuf;

    /// What tools/golden/image_files.py wrote: PIL's images, and its pixels.
    fn fixtures() -> Vec<(PathBuf, Vec<u8>, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/images");
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort_unstable();
        paths.retain(|path| path.extension().unwrap() != "rgb");
        let read = |path: PathBuf| {
            let expected = fs::read(path.with_extension("rgb")).unwrap();
            let bytes = fs::read(&path).unwrap();
            (path, bytes, expected)
        };
        paths.into_iter().map(read).collect()
    }

    fn netpbm_files() -> Vec<(&'static [u8], Rgb)> {
        let grey = |width, height, values: &[u8]| {
            let pixels = values.iter().flat_map(|&value| [value; 3]).collect();
            Rgb { width, height, pixels }
        };
        let colour = |pixels: [u8; 6]| Rgb { width: 2, height: 1, pixels: pixels.into() };
        vec![
            (b"P1 # bits\n3 2 010 1\n0 1", grey(3, 2, &[255, 0, 255, 0, 255, 0])),
            (b"P2 2 2 4 0 1\n# row\n2 4", grey(2, 2, &[0, 64, 128, 255])),
            (b"P3 2 1 255 1 2 3 4 5 6\n", colour([1, 2, 3, 4, 5, 6])),
            (b"P4 9 2\n\x55\x00\xff\x80", grey(9, 2, &[255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
            // White space and `#` are samples, too.
            (b"P5\n#1\n2 2 #2\n255\n\x20\x0a#\xff", grey(2, 2, &[32, 10, 35, 255])),
            (b"P5 2 1 65535\n\x7f\xff\xff\xff", grey(2, 1, &[127, 255])),
            (b"P6 2 1 255\n123456", colour([49, 50, 51, 52, 53, 54])),
            (b"P6 2 1 51 \x00\x01\x33\x02\x03\xff", colour([0, 5, 255, 10, 15, 255])),
            (
                b"P7\nWIDTH 2\nHEIGHT 1\n# \nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n12345678",
                colour([49, 50, 51, 53, 54, 55]),
            ),
            (b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 2\nMAXVAL 255\nENDHDR\n1234", grey(2, 1, &[49, 51])),
        ]
    }

    #[test]
    fn pixels_are_those_of_pil() {
        for (path, bytes, expected) in fixtures() {
            let (image, expected) = (decode(&bytes).unwrap(), &expected[..21 * 17 * 3]);
            assert_eq!((image.width, image.height, image.pixels.len()), (21, 17, expected.len()));
            let differences = image.pixels.iter().zip(expected).map(|(a, b)| a.abs_diff(*b));
            let (sum, most) =
                differences.fold((0.0, 0), |(sum, most), d| (sum + f64::from(d), most.max(d)));
            let mean = sum / expected.len() as f64;
            println!("{}: at most {most}, on average {mean:.3}", path.display());
            // Baseline files are read as libjpeg does it; the general decoder rounds differently, most where colours
            // are stored more coarsely.
            let general =
                ["progressive.jpg", "cmyk.jpg", "ycck.jpg"].map(|name| path.ends_with(name));
            let allowed = if general.contains(&true) { (3, 0.5) } else { (0, 0.0) };
            assert!(most <= allowed.0 && mean <= allowed.1, "{}: {most} {mean}", path.display());
        }
    }

    #[test]
    fn every_kind_of_png_has_its_pixels() {
        use png::{BitDepth::*, ColorType::*};
        let cases: [(_, _, &[u8], [u8; 6]); 7] = [
            (Grayscale, One, &[0b0100_0000], [0, 0, 0, 255, 255, 255]),
            (Grayscale, Eight, &[7, 9], [7, 7, 7, 9, 9, 9]),
            (Grayscale, Sixteen, &[7, 255, 255, 0], [7, 7, 7, 255, 255, 255]),
            (GrayscaleAlpha, Eight, &[7, 0, 9, 255], [7, 7, 7, 9, 9, 9]),
            (Rgb, Sixteen, &[1, 9, 2, 9, 3, 9, 4, 9, 5, 9, 6, 9], [1, 2, 3, 4, 5, 6]),
            (Rgba, Eight, &[1, 2, 3, 0, 4, 5, 6, 9], [1, 2, 3, 4, 5, 6]),
            (Indexed, Four, &[0x20], [3, 3, 4, 1, 1, 2]),
        ];
        for (colour, depth, data, expected) in cases {
            let mut bytes = Vec::new();
            let mut encoder = png::Encoder::new(&mut bytes, 2, 1);
            encoder.set_color(colour);
            encoder.set_depth(depth);
            encoder.set_palette(&[1, 1, 2, 2, 2, 3, 3, 3, 4][..]);
            encoder.write_header().unwrap().write_image_data(data).unwrap();
            assert_eq!(decode(&bytes).unwrap().pixels, expected, "{colour:?} {depth:?}");
        }
    }

    #[test]
    fn every_kind_of_netpbm_has_its_pixels() {
        for (bytes, expected) in netpbm_files() {
            let image = decode(bytes).unwrap();
            assert_eq!((image.width, image.height), (expected.width, expected.height));
            assert_eq!(image.pixels, expected.pixels, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let fails = |bytes: &[u8], expected: &str| {
            let error = decode(bytes).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        fails(b"GIF89a", "not a PNG, JPEG, BMP or PNM file");
        fails(b"", "not a PNG");
        fails(b"P6 20000 20000 255\n", "20000 x 20000 is more than 178956970 pixels");
        fails(b"P6 0 5 255\n", "0 x 5 is an image without pixels");
        fails(b"P5 9 9 0\n", "greatest value is 0");
        fails(b"P5 9 -9 1\n", "`-9` is not a number");
        fails(b"P1 2 1\n02", "`2` is not a bit");
        fails(b"P7 WIDE 1", "`WIDE` in its header");
        fails(b"P5 9 9 255\nabc", "ends too early");
        fails(b"P2 13000 13000 255\n1", "ends too early");
    }

    #[test]
    fn damaged_files_are_errors_and_not_panics() {
        let images = fixtures().into_iter().map(|(_, bytes, _)| bytes);
        let netpbm = netpbm_files().into_iter().map(|(bytes, _)| bytes.to_vec());
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for mut bytes in images.chain(netpbm) {
            // What a PNG's end says besides is not needed, nor what fills up a bitmap's last row.
            let whole = bytes.len() - if bytes.starts_with(b"\x89PNG") { 20 } else { 4 };
            for length in 0..bytes.len() {
                let result = decode(&bytes[..length]);
                assert!(result.is_err() || length > whole, "{length} bytes of {}", bytes.len());
            }
            for _ in 0..300 {
                let (at, value) = (random(bytes.len()), random(256) as u8);
                let right = std::mem::replace(&mut bytes[at], value);
                _ = decode(&bytes);
                bytes[at] = right;
            }
        }
    }
}

//! Baseline JPEG files, whole or a region of them, to the bit as libjpeg does it: what PIL and torchvision give.
//!
//! A region costs what it holds: blocks outside it are read past, without a transform. Files of other kinds (progressive,
//! CMYK, rare samplings) and damaged ones are left to a general decoder.
//!
//! The format is that of ITU-T T.81 (1992). What it leaves open is as libjpeg has it: the integer transform, chroma between
//! samples ("fancy upsampling"), the constants of colour conversion.

mod bits;
mod blocks;
mod colour;
mod headers;
mod scan;

use self::blocks::Component;
use self::headers::Frame;
use crate::data::transforms::Region;

/// A file that can be read by regions.
#[derive(Debug)]
pub(in super::super) struct Jpeg<'a> {
    frame: Box<Frame<'a>>,
}

impl<'a> Jpeg<'a> {
    /// `None`: not a file for this decoder.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        Some(Jpeg { frame: Box::new(Frame::read(bytes)?) })
    }

    /// Height and width.
    pub fn size(&self) -> (usize, usize) {
        (self.frame.height, self.frame.width)
    }

    /// Whether the data are in parts, of which the last ones may be missing without a trace in a region above them.
    pub fn has_parts(&self) -> bool {
        self.frame.restart > 0
    }

    /// The planes red, green and blue of a region that lies within the image. `None`: the file is damaged.
    pub fn planes(&self, region: Region) -> Option<Vec<u8>> {
        let frame = &self.frame;
        let mut components: Vec<Component> =
            (0..frame.components.len()).map(|i| Component::new(frame, i, region)).collect();
        scan::decode(frame, &mut components)?;
        Some(colour::planes(frame, &components, region))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Files and their pixels by PIL; see tools/golden/jpeg_files.py.
    fn fixtures() -> Vec<(PathBuf, Vec<u8>, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jpeg");
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let paths = paths.filter(|path| path.extension().unwrap() == "jpg");
        let read = |path: PathBuf| {
            let expected = fs::read(path.with_extension("rgb")).unwrap();
            (path.clone(), fs::read(path).unwrap(), expected)
        };
        paths.map(read).collect()
    }

    #[test]
    fn regions_are_those_of_pil_to_the_bit() {
        let mut read = 0;
        for (path, bytes, expected) in fixtures() {
            let Some(jpeg) = Jpeg::new(&bytes) else {
                // Chroma two pixels wide is another filter.
                assert!(path.ends_with("thin_420.jpg"), "{}", path.display());
                continue;
            };
            read += 1;
            let (height, width) = jpeg.size();
            let mut regions = vec![Region::whole((height, width))];
            for step in 0..12 {
                let (top, left) = (step * 5 % height, step * 29 % width);
                let (height, width) =
                    (1 + step * 11 % (height - top), 1 + step * 67 % (width - left));
                regions.push(Region { top, left, height, width });
            }
            for region in regions {
                let planes = jpeg.planes(region).unwrap();
                for (at, value) in planes.iter().enumerate() {
                    let (channel, rest) =
                        (at / (region.height * region.width), at % (region.height * region.width));
                    let (y, x) =
                        (region.top + rest / region.width, region.left + rest % region.width);
                    let expected = expected[(y * width + x) * 3 + channel];
                    assert_eq!(*value, expected, "{} {region:?} {channel} {y} {x}", path.display());
                }
            }
        }
        assert_eq!(read, 6);
    }

    #[test]
    fn damaged_files_are_no_panic() {
        let mut refused = 0;
        for (_, bytes, _) in fixtures() {
            for step in 0..400usize {
                let mut bytes = bytes.clone();
                let at = step * 7919 % bytes.len();
                match step % 3 {
                    0 => bytes[at] ^= 1 << (step % 8),
                    1 => bytes[at] = [0, 0xff, 0xd9, 0xda][step / 3 % 4],
                    _ => bytes.truncate(at),
                }
                let Some(jpeg) = Jpeg::new(&bytes) else { continue };
                let (height, width) = jpeg.size();
                if height * width < 1 << 20 {
                    let region = Region { top: height / 2, left: width / 2, height: 1, width: 1 };
                    refused += usize::from(jpeg.planes(region).is_none());
                }
            }
        }
        assert!(refused > 100, "{refused}");
    }
}

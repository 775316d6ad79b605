//! What stands before the compressed data.

use super::bits::Table;

/// The place in a block, row by row, of each number in the order of the file.
pub(super) const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// A component as the file describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Description {
    id: u8,
    /// Its blocks in a unit of the scan, along a row and a column: 1 or 2.
    pub across: usize,
    pub down: usize,
    quantization: usize,
    pub dc: usize,
    pub ac: usize,
}

/// A file's headers, and its data.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub width: usize,
    pub height: usize,
    /// Y, or Y, Cb and Cr.
    pub components: Vec<Description>,
    /// Row by row.
    quantization: [Option<[i16; 64]>; 4],
    pub dc: [Option<Box<Table>>; 4],
    pub ac: [Option<Box<Table>>; 4],
    /// Units between restart markers; 0: there are none.
    pub restart: usize,
    /// From the scan's first byte on.
    pub data: &'a [u8],
}

impl<'a> Frame<'a> {
    /// `None`: not a baseline file of one scan, grey or YCbCr.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut frame = Frame {
            width: 0,
            height: 0,
            components: Vec::new(),
            quantization: [None; 4],
            dc: [const { None }; 4],
            ac: [const { None }; 4],
            restart: 0,
            data: &[],
        };
        let mut adobe = None;
        let mut jfif = false;
        let mut rest = bytes.strip_prefix(&[0xff, 0xd8])?;
        loop {
            // Fill bytes may stand before a marker.
            let [0xff, marker, ..] = *rest else { return None };
            if marker == 0xff {
                rest = &rest[1..];
                continue;
            }
            let length = usize::from(u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]));
            let segment = rest.get(4..2 + length)?;
            rest = &rest[2 + length..];
            match marker {
                0xe0 => jfif |= segment.starts_with(b"JFIF\0"),
                0xee if segment.starts_with(b"Adobe") => adobe = Some(*segment.get(11)?),
                0xdb => frame.quantization(segment)?,
                0xc4 => frame.huffman(segment)?,
                0xdd => {
                    frame.restart =
                        usize::from(u16::from_be_bytes([*segment.first()?, *segment.get(1)?]))
                }
                0xc0 | 0xc1 if frame.components.is_empty() => frame.start(segment)?,
                // A comment, or of a program.
                0xfe | 0xe1..=0xef => {}
                0xda => {
                    frame.scan(segment)?;
                    frame.data = rest;
                    break;
                }
                _ => return None,
            }
        }
        let ids: Vec<u8> = frame.components.iter().map(|c| c.id).collect();
        // As libjpeg guesses the colours.
        let is_ycc = match (jfif, adobe) {
            (true, _) | (false, Some(1)) => true,
            (false, Some(_)) => false,
            (false, None) => ids != *b"RGB",
        };
        let whole = frame.components.iter().all(|c| {
            frame.quantization[c.quantization].is_some()
                && frame.dc[c.dc].is_some()
                && frame.ac[c.ac].is_some()
        });
        (whole && (is_ycc || ids.len() == 1)).then_some(frame)
    }

    fn quantization(&mut self, mut segment: &[u8]) -> Option<()> {
        while let [kind, rest @ ..] = segment {
            let (bytes, table) = (1 + usize::from(kind >> 4), usize::from(kind & 15));
            let values = rest.get(..64 * bytes)?;
            let mut of_rows = [0; 64];
            for (value, place) in values.chunks_exact(bytes).zip(ZIGZAG) {
                let value = value.iter().fold(0u16, |sum, byte| sum << 8 | u16::from(*byte));
                of_rows[usize::from(place)] = i16::try_from(value).ok()?;
            }
            *self.quantization.get_mut(table)? = Some(of_rows);
            segment = &rest[64 * bytes..];
        }
        Some(())
    }

    fn huffman(&mut self, mut segment: &[u8]) -> Option<()> {
        while let [kind, rest @ ..] = segment {
            let counts: &[u8; 16] = rest.first_chunk()?;
            let total: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let symbols = rest.get(16..16 + total)?;
            let (tables, is_ac) = match kind >> 4 {
                0 => (&mut self.dc, false),
                1 => (&mut self.ac, true),
                _ => return None,
            };
            *tables.get_mut(usize::from(kind & 15))? = Some(Table::new(counts, symbols, is_ac)?);
            segment = &rest[16 + total..];
        }
        Some(())
    }

    fn start(&mut self, segment: &[u8]) -> Option<()> {
        let [8, h0, h1, w0, w1, count @ (1 | 3), components @ ..] = segment else { return None };
        (self.height, self.width) =
            (u16::from_be_bytes([*h0, *h1]).into(), u16::from_be_bytes([*w0, *w1]).into());
        if self.width == 0 || self.height == 0 || components.len() != 3 * usize::from(*count) {
            return None;
        }
        for component in components.chunks_exact(3) {
            let (across, down) = (usize::from(component[1] >> 4), usize::from(component[1] & 15));
            let quantization = usize::from(component[2]);
            self.quantization.get(quantization)?;
            self.components.push(Description {
                id: component[0],
                across,
                down,
                quantization,
                dc: 0,
                ac: 0,
            });
        }
        match &mut self.components[..] {
            // A scan of one component is in its own blocks, whatever its sampling says.
            [grey] => (grey.across, grey.down) = (1, 1),
            [y, cb, cr] => {
                let luma = matches!((y.across, y.down), (1, 1) | (2, 1) | (2, 2));
                let chroma = [cb, cr].iter().all(|c| (c.across, c.down) == (1, 1));
                // libjpeg does not smooth chroma as narrow as this.
                if !luma || !chroma || y.across == 2 && self.width <= 4 {
                    return None;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn scan(&mut self, segment: &[u8]) -> Option<()> {
        let [count, rest @ ..] = segment else { return None };
        if self.components.is_empty() || usize::from(*count) != self.components.len() {
            return None;
        }
        let (tables, end) = rest.split_at_checked(2 * usize::from(*count))?;
        for (component, table) in self.components.iter_mut().zip(tables.chunks_exact(2)) {
            if component.id != table[0] {
                return None;
            }
            (component.dc, component.ac) = (usize::from(table[1] >> 4), usize::from(table[1] & 15));
            if component.dc > 3 || component.ac > 3 {
                return None;
            }
        }
        (end == [0, 63, 0]).then_some(())
    }

    /// Pixels of a unit of the scan.
    pub fn unit(&self) -> (usize, usize) {
        (8 * self.components[0].across, 8 * self.components[0].down)
    }

    /// Of a component, row by row.
    pub fn quantization_of(&self, component: usize) -> &[i16; 64] {
        self.quantization[self.components[component].quantization]
            .as_ref()
            .expect("`read` has looked")
    }
}

//! Codes and numbers of the compressed data.

use super::blocks::Group;
use super::headers::ZIGZAG;

/// Bits that a table is looked up by.
const LOOKUP: u32 = 11;

/// A Huffman code.
///
/// An entry for the next bits: in the lowest five how many of them a code and its number take, in four the size of the
/// number, in seven the zeros before it. 0: the code is longer than the lookup.
#[derive(Debug)]
pub(super) struct Table {
    entries: [u16; 1 << LOOKUP],
    /// Of each length above the lookup's: the end of its codes, left-aligned in 16 bits, and where its symbols begin.
    ends: [u32; 17],
    offsets: [i32; 17],
    symbols: Vec<u8>,
    is_ac: bool,
}

impl Table {
    /// `counts`: codes of each length from 1 to 16 bits. `None`: that is no code.
    pub fn new(counts: &[u8; 16], symbols: &[u8], is_ac: bool) -> Option<Box<Self>> {
        let mut entries = [0; 1 << LOOKUP];
        let (mut ends, mut offsets) = ([0; 17], [0; 17]);
        let (mut code, mut next) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = usize::from(counts[length as usize - 1]);
            offsets[length as usize] = next as i32 - code as i32;
            for &symbol in &symbols[next..next + count] {
                let entry = entry(symbol, length, is_ac)?;
                if length <= LOOKUP {
                    let free = LOOKUP - length;
                    let first = (code << free) as usize;
                    entries.get_mut(first..first + (1 << free))?.fill(entry as u16);
                }
                code += 1;
            }
            next += count;
            if code > 1 << length {
                return None;
            }
            ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Some(Box::new(Table { entries, ends, offsets, symbols: symbols.to_vec(), is_ac }))
    }

    /// The entry of a code that is longer than the lookup.
    #[cold]
    #[inline(never)]
    fn longer(&self, buffer: u64) -> Option<u32> {
        let next = (buffer >> 48) as u32;
        let length = (LOOKUP as usize + 1..=16).find(|&length| next < self.ends[length])?;
        let symbol = (next >> (16 - length)) as i32 + self.offsets[length];
        entry(*self.symbols.get(symbol as usize)?, length as u32, self.is_ac)
    }
}

/// `None`: baseline files have no such symbol.
fn entry(symbol: u8, length: u32, is_ac: bool) -> Option<u32> {
    let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
    let run = match is_ac {
        false if symbol <= 11 => 0,
        true if symbol == 0 => END,
        // Sixteen zeros; or some, and a number.
        true if symbol == 0xf0 || (1..=10).contains(&size) => run,
        _ => return None,
    };
    Some((length + size) | size << 5 | run << 9)
}

/// The run that ends a block.
const END: u32 = 127;

/// Reads a part of the data between markers, whose stuffed bytes are gone, with eight bytes of 0 at its end.
pub(super) struct Reader<'a> {
    data: &'a [u8],
    bits: Bits,
}

/// A place in the data. A value, so that it stays in registers.
#[derive(Clone, Copy)]
struct Bits {
    at: usize,
    /// The next bits, from the highest; below them, zeros or bits that `at` will bring again.
    buffer: u64,
    count: u32,
}

impl Bits {
    /// At least 56 bits are there after it.
    #[inline(always)]
    fn refill(&mut self, data: &[u8]) {
        // Beyond the end: zeros, and `overran` tells.
        let at = self.at.min(data.len() - 8);
        let bytes = u64::from_be_bytes(*data[at..].first_chunk().expect("eight bytes are there"));
        self.buffer |= bytes >> self.count;
        self.at += (63 - self.count as usize) >> 3;
        self.count |= 56;
    }

    /// The run and the number that come next, of at least 28 bits that are there. `None`: no code begins so.
    #[inline(always)]
    fn next(&mut self, table: &Table) -> Option<(u32, i32)> {
        let mut entry = u32::from(table.entries[(self.buffer >> (64 - LOOKUP)) as usize]);
        if entry == 0 {
            entry = table.longer(self.buffer)?;
        }
        let (total, size) = (entry & 31, entry >> 5 & 15);
        let number = self.buffer << ((total - size) & 63);
        self.buffer <<= total;
        self.count -= total;
        // Without a branch: a number whose highest bit is 0 is negative.
        let bits = (number >> 1 >> (63 - size)) as i32;
        let is_negative = !((number as i64 >> 63) as i32);
        Some((entry >> 9, bits - (is_negative & ((1 << size) - 1))))
    }
}

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Reader { data, bits: Bits { at: 0, buffer: 0, count: 0 } }
    }

    /// Whether more was read than there is.
    pub fn overran(&self) -> bool {
        self.bits.at - self.bits.count as usize / 8 > self.data.len() - 8
    }

    /// Reads a block: `dc` is its first number, and the one of the block before it. `None`: it is damaged.
    #[inline(never)]
    pub fn block(
        &mut self,
        tables: [&Table; 2],
        dc: &mut i32,
        group: &mut Group,
        lane: usize,
    ) -> Option<()> {
        let (mut bits, data, ac) = (self.bits, self.data, tables[1]);
        bits.refill(data);
        *dc = dc.wrapping_add(bits.next(tables[0])?.1);
        // Damaged files leave the range of 16 bits.
        group[0][lane] = *dc as i16;
        let mut k = 1;
        'block: while k < 64 {
            bits.refill(data);
            for _ in 0..2 {
                let (run, value) = bits.next(ac)?;
                k += run as usize;
                if k >= 64 {
                    break 'block;
                }
                group[usize::from(ZIGZAG[k])][lane] = value as i16;
                k += 1;
                if k == 64 {
                    break 'block;
                }
            }
        }
        self.bits = bits;
        is_end(k)
    }

    /// The same for a block that is not needed but for the next one.
    #[inline(never)]
    pub fn pass_block(&mut self, tables: [&Table; 2], dc: &mut i32) -> Option<()> {
        let (mut bits, data, ac) = (self.bits, self.data, tables[1]);
        bits.refill(data);
        *dc = dc.wrapping_add(bits.next(tables[0])?.1);
        let mut k = 1;
        while k < 64 {
            bits.refill(data);
            k += bits.next(ac)?.0 as usize + 1;
            if k >= 64 {
                break;
            }
            k += bits.next(ac)?.0 as usize + 1;
        }
        self.bits = bits;
        is_end(k)
    }
}

/// Whether a block ended here, rather than a run that leads out of it.
fn is_end(k: usize) -> Option<()> {
    (k == 64 || k > END as usize).then_some(())
}

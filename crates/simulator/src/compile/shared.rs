//! How much shared memory each kernel declares. The compiler knows: the linker leaves its relocations in
//! the shared object, which say what each function uses and calls. What a kernel reaches counts once.

use std::collections::{HashMap, HashSet};

/// Bytes that a kernel may declare; only dynamic shared memory may be more.
pub const MOST: u64 = crate::device::SHARED_MEMORY as u64;

const SYMBOLS: u32 = 2;
const RELOCATIONS: u32 = 4;
const FUNCTION: u8 = 2;
const THREAD_LOCAL: u8 = 6;
const X86_64: u16 = 62;

/// A symbol of the object.
struct Symbol<'a> {
    name: &'a str,
    kind: u8,
    value: u64,
    size: u64,
}

/// What a function uses: places in code, and numbers of shared arrays.
#[derive(Default)]
struct Uses {
    functions: Vec<usize>,
    arrays: Vec<usize>,
}

/// Bytes of shared memory that functions of an object reach, for those of these names that are in it.
pub fn declared(object: &[u8], names: &[&str]) -> Option<HashMap<String, u64>> {
    let sections = sections(object)?;
    let table = sections.iter().find(|section| section.kind == SYMBOLS)?;
    let texts = sections.get(table.link as usize)?.bytes;
    let symbols: Vec<Symbol<'_>> =
        table.bytes.chunks_exact(24).map(|entry| symbol(entry, texts)).collect::<Option<_>>()?;
    let mut functions: Vec<usize> = (0..symbols.len())
        .filter(|i| symbols[*i].kind == FUNCTION && symbols[*i].size > 0)
        .collect();
    functions.sort_unstable_by_key(|i| symbols[*i].value);
    let at = |address: u64| {
        let after = functions.partition_point(|i| symbols[*i].value <= address);
        let found = after.checked_sub(1)?;
        let symbol = &symbols[functions[found]];
        // Names of one place: the first stands for all of them.
        let first = functions.partition_point(|i| symbols[*i].value < symbol.value);
        (address < symbol.value + symbol.size).then_some(first)
    };
    let machine = u16::from_le_bytes(object.get(18..20)?.try_into().ok()?);
    let mut uses: HashMap<usize, Uses> = HashMap::new();
    for section in sections.iter().filter(|section| section.kind == RELOCATIONS) {
        // Those that the loader reads have symbols of their own.
        if !std::ptr::eq(sections.get(section.link as usize)?, table) {
            continue;
        }
        for entry in section.bytes.chunks_exact(24) {
            let (place, info, addend) = (word(entry, 0)?, word(entry, 8)?, word(entry, 16)?);
            let Some(from) = at(place) else { continue };
            let number = (info >> 32) as usize;
            let symbol = symbols.get(number)?;
            let uses = uses.entry(from).or_default();
            if symbol.kind == THREAD_LOCAL {
                if !STATE.contains(&symbol.name) {
                    uses.arrays.push(number);
                }
                continue;
            }
            // A distance is from the end of its four bytes.
            let four = if machine == X86_64 && matches!(info as u32, 2 | 4) { 4 } else { 0 };
            uses.functions.extend(at(symbol.value.wrapping_add(addend).wrapping_add(four)));
        }
    }
    let named = functions.iter().filter(|i| names.contains(&symbols[**i].name));
    Some(
        named
            .filter_map(|i| Some((symbols[*i].name.to_string(), at(symbols[*i].value)?)))
            .map(|(name, first)| (name, reached(first, &uses, &symbols)))
            .collect(),
    )
}

/// The simulator's own variables of each thread.
const STATE: [&str; 2] = ["_ZL5__sim", "_ZL13__sim_copying"];

/// Bytes of the arrays that a function and those it calls use.
fn reached(first: usize, uses: &HashMap<usize, Uses>, symbols: &[Symbol<'_>]) -> u64 {
    let (mut seen, mut open, mut arrays) = (HashSet::from([first]), vec![first], HashSet::new());
    while let Some(function) = open.pop() {
        let Some(uses) = uses.get(&function) else { continue };
        arrays.extend(uses.arrays.iter().copied());
        open.extend(uses.functions.iter().copied().filter(|next| seen.insert(*next)));
    }
    arrays.into_iter().map(|array| symbols[array].size).sum()
}

/// A part of the object.
struct Section<'a> {
    kind: u32,
    /// The number of the section that this one refers to.
    link: u32,
    bytes: &'a [u8],
}

/// All parts of an object of 64 bits, which lie in its file one after the other.
fn sections(object: &[u8]) -> Option<Vec<Section<'_>>> {
    let start = word(object, 40)? as usize;
    let count = u16::from_le_bytes(object.get(60..62)?.try_into().ok()?);
    let headers = object.get(start..start + 64 * count as usize)?;
    headers.chunks_exact(64).map(|header| section(header, object)).collect()
}

fn section<'a>(header: &[u8], object: &'a [u8]) -> Option<Section<'a>> {
    const NO_BYTES: u32 = 8;
    let half = |at: usize| Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?));
    let (kind, link) = (half(4)?, half(40)?);
    let (offset, size) = (word(header, 24)? as usize, word(header, 32)? as usize);
    let bytes =
        if kind == NO_BYTES { &[] } else { object.get(offset..offset.checked_add(size)?)? };
    Some(Section { kind, link, bytes })
}

fn symbol<'a>(entry: &[u8], texts: &'a [u8]) -> Option<Symbol<'a>> {
    let name = u32::from_le_bytes(entry.get(..4)?.try_into().ok()?) as usize;
    let text = texts.get(name..)?.split(|byte| *byte == 0).next()?;
    Some(Symbol {
        name: std::str::from_utf8(text).ok()?,
        kind: entry[4] & 15,
        value: word(entry, 8)?,
        size: word(entry, 16)?,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

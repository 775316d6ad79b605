//! What goes before the data of a message, and what a place sends as its last words: 256 bytes each.

/// The longest fingerprint of a call, in bytes.
pub const MAX_FINGERPRINT: usize = 96;
/// The length of a header, and of last words.
pub(crate) const HEADER: usize = 256;
const MAGIC: [u8; 4] = *b"TLK1";
const TEXT: usize = 128;

const DATA: u8 = 0;
const LEFT: u8 = 1;
const FAILED: u8 = 2;
const DIFFERS: u8 = 3;
const WAITING: u8 = 4;
const NOTE: u8 = 5;

/// What identifies a message: both sides must have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// The number of the call.
    pub number: u64,
    /// Which exchange of the call.
    pub step: u16,
    /// Of the whole message's data, over all streams.
    pub length: u64,
    pub fingerprint: Vec<u8>,
}

/// Why a place sends no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// All is well; it was told to.
    Left,
    /// A call failed.
    Failed { culprit: u32, text: String },
    /// A call of its own and one of `culprit` were not the same.
    Differs { own: Vec<u8>, number: u64, culprit: u32, theirs: Vec<u8> },
}

/// Either, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    Data(Header),
    /// Between messages: which collective a place waits in.
    Waiting(Header),
    /// What a place calls elsewhere. Not [`Waiting`](Word::Waiting), which may come late, after the collective is done.
    Note(Header),
    Farewell(Farewell),
}

impl Word {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC);
        match self {
            Word::Data(header) | Word::Waiting(header) | Word::Note(header) => {
                bytes[4] = match self {
                    Word::Data(_) => DATA,
                    Word::Waiting(_) => WAITING,
                    _ => NOTE,
                };
                bytes[6..8].copy_from_slice(&header.step.to_le_bytes());
                bytes[8..16].copy_from_slice(&header.number.to_le_bytes());
                bytes[16..24].copy_from_slice(&header.length.to_le_bytes());
                bytes[5] = put(&mut bytes[32..128], &header.fingerprint);
            }
            Word::Farewell(Farewell::Left) => bytes[4] = LEFT,
            Word::Farewell(Farewell::Failed { culprit, text }) => {
                bytes[4] = FAILED;
                bytes[24..28].copy_from_slice(&culprit.to_le_bytes());
                bytes[28] = put(&mut bytes[128..], cut(text).as_bytes());
            }
            Word::Farewell(Farewell::Differs { own, number, culprit, theirs }) => {
                bytes[4] = DIFFERS;
                bytes[8..16].copy_from_slice(&number.to_le_bytes());
                bytes[24..28].copy_from_slice(&culprit.to_le_bytes());
                bytes[5] = put(&mut bytes[32..128], own);
                bytes[28] = put(&mut bytes[128..224], theirs);
            }
        }
        bytes
    }

    /// `None`: not the words of a place.
    pub fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let culprit = u32::from_le_bytes(bytes[24..28].try_into().expect("4 bytes"));
        let first = || Some(bytes[32..128].get(..usize::from(bytes[5]))?.to_vec());
        let second = |end: usize| Some(bytes[128..end].get(..usize::from(bytes[28]))?.to_vec());
        if bytes[..4] != MAGIC {
            return None;
        }
        Some(match bytes[4] {
            kind @ (DATA | WAITING | NOTE) => {
                let step = u16::from_le_bytes(bytes[6..8].try_into().expect("2 bytes"));
                let (number, length) = (number(8), number(16));
                let header = Header { number, step, length, fingerprint: first()? };
                match kind {
                    DATA => Word::Data(header),
                    WAITING => Word::Waiting(header),
                    _ => Word::Note(header),
                }
            }
            LEFT => Word::Farewell(Farewell::Left),
            FAILED => {
                let text = String::from_utf8_lossy(&second(HEADER)?).into_owned();
                Word::Farewell(Farewell::Failed { culprit, text })
            }
            DIFFERS => Word::Farewell(Farewell::Differs {
                own: first()?,
                number: number(8),
                culprit,
                theirs: second(224)?,
            }),
            _ => return None,
        })
    }
}

fn put(room: &mut [u8], bytes: &[u8]) -> u8 {
    room[..bytes.len()].copy_from_slice(bytes);
    bytes.len() as u8
}

/// As much of a text as there is room for.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_survive_the_way() {
        let fingerprint = vec![7; MAX_FINGERPRINT];
        let words = [
            Word::Data(Header {
                number: 1 << 60,
                step: 9,
                length: 5,
                fingerprint: fingerprint.clone(),
            }),
            Word::Waiting(Header { number: 2, step: 0, length: 0, fingerprint: vec![1] }),
            Word::Note(Header { number: 3, step: 0, length: 0, fingerprint: vec![2] }),
            Word::Farewell(Farewell::Left),
            Word::Farewell(Farewell::Failed { culprit: 3, text: "timed out".into() }),
            Word::Farewell(Farewell::Differs {
                own: vec![],
                number: 4,
                culprit: 1 << 20,
                theirs: fingerprint,
            }),
        ];
        for word in words {
            assert_eq!(Word::decode(&word.encode()), Some(word));
        }
        let long = Word::Farewell(Farewell::Failed { culprit: 0, text: "é".repeat(100) });
        let Some(Word::Farewell(Farewell::Failed { text, .. })) = Word::decode(&long.encode())
        else {
            panic!("last words")
        };
        assert_eq!(text, "é".repeat(64));
    }

    proptest! {
        #[test]
        fn garbage_is_no_word_or_a_harmless_one(
            mut bytes in prop::array::uniform32(any::<u8>()), tail: u8, magic: bool
        ) {
            if magic {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4] %= 7;
            }
            let mut word = [tail; HEADER];
            word[..32].copy_from_slice(&bytes);
            if let Some(word) = Word::decode(&word) {
                prop_assert!(magic);
                word.encode();
            }
        }
    }
}

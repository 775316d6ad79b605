//! Messages of protocol buffers, written field by field: those of TensorBoard and of ONNX.

/// A message that grows.
#[derive(Default)]
pub(crate) struct Message(Vec<u8>);

/// How a field's value is written.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

impl Message {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u64, form: u64) {
        self.varint(field << 3 | form);
    }

    pub(crate) fn int(mut self, field: u64, value: u64) -> Self {
        self.key(field, VARINT);
        self.varint(value);
        self
    }

    pub(crate) fn double(mut self, field: u64, value: f64) -> Self {
        self.key(field, FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn float(mut self, field: u64, value: f32) -> Self {
        self.key(field, FIXED32);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, field: u64, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.key(field, BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    pub(crate) fn message(self, field: u64, message: Message) -> Self {
        self.bytes(field, message.0)
    }

    pub(crate) fn string(self, field: u64, value: &str) -> Self {
        self.bytes(field, value)
    }

    /// A list of numbers in one field.
    pub(crate) fn doubles(self, field: u64, values: &[f64]) -> Self {
        self.bytes(field, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

//! TensorBoard's event files, read back by a reader of this file's own: frames, checksums and fields are as
//! TensorFlow's `event.proto` and `summary.proto` have them. `tools/checks/check-tensorboard` asks the real one.

use std::fs;
use std::path::{Path, PathBuf};

use torchrs::train::{Csv, JsonLines, Logger, TensorBoard};
use torchrs::{Dtype, Tensor};

/// A field's value.
#[derive(Debug, Clone, PartialEq)]
enum Field {
    Int(u64),
    Double(f64),
    Float(f32),
    Bytes(Vec<u8>),
}

/// A message: the fields in their order.
#[derive(Debug, Clone)]
struct Message(Vec<(u64, Field)>);

impl Message {
    fn parse(mut bytes: &[u8]) -> Self {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7F) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        }
        fn take<'a>(bytes: &mut &'a [u8], n: usize) -> &'a [u8] {
            let (taken, rest) = bytes.split_at(n);
            *bytes = rest;
            taken
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => Field::Int(varint(&mut bytes)),
                1 => Field::Double(f64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    Field::Bytes(take(&mut bytes, length).to_vec())
                }
                5 => Field::Float(f32::from_le_bytes(take(&mut bytes, 4).try_into().unwrap())),
                form => panic!("form {form}"),
            };
            fields.push((key >> 3, value));
        }
        Message(fields)
    }

    fn all(&self, field: u64) -> impl Iterator<Item = &Field> {
        self.0.iter().filter(move |(of, _)| *of == field).map(|(_, value)| value)
    }

    fn get(&self, field: u64) -> Option<&Field> {
        assert!(self.all(field).count() < 2, "field {field} twice in {self:?}");
        self.all(field).next()
    }

    #[track_caller]
    fn bytes(&self, field: u64) -> &[u8] {
        match self.get(field) {
            Some(Field::Bytes(bytes)) => bytes,
            other => panic!("field {field}: {other:?}"),
        }
    }

    #[track_caller]
    fn text(&self, field: u64) -> &str {
        std::str::from_utf8(self.bytes(field)).unwrap()
    }

    #[track_caller]
    fn message(&self, field: u64) -> Message {
        Message::parse(self.bytes(field))
    }

    #[track_caller]
    fn double(&self, field: u64) -> f64 {
        match self.get(field) {
            Some(Field::Double(value)) => *value,
            other => panic!("field {field}: {other:?}"),
        }
    }

    #[track_caller]
    fn doubles(&self, field: u64) -> Vec<f64> {
        self.bytes(field).chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

/// CRC-32C, bit by bit.
fn crc32c(data: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    !crc
}

fn masked(data: &[u8]) -> u32 {
    let crc = crc32c(data);
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// The events of a file, whose checksums are right.
fn events(path: &Path) -> Vec<Message> {
    let file = fs::read(path).unwrap();
    let (mut rest, mut events) = (&file[..], Vec::new());
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        assert_eq!(number(&rest[8..12]), masked(&rest[..8]));
        let data = &rest[12..12 + length];
        assert_eq!(number(&rest[12 + length..16 + length]), masked(data));
        events.push(Message::parse(data));
        rest = &rest[16 + length..];
    }
    events
}

/// The values of an event's summary.
fn values(event: &Message) -> Vec<Message> {
    let summary = event.message(5);
    let parse = |value: &Field| match value {
        Field::Bytes(bytes) => Message::parse(bytes),
        other => panic!("{other:?}"),
    };
    summary.all(1).map(parse).collect()
}

/// Every kind once or more. With TORCHRS_TEST_TENSORBOARD the files stay in that folder, for the real reader.
#[test]
fn events_are_read_back() {
    let temporary = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("TORCHRS_TEST_TENSORBOARD").map(PathBuf::from);
    let folder = kept.as_deref().unwrap_or(temporary.path()).join("run");
    let mut board = TensorBoard::open(&folder, None).unwrap();
    let hparams = [("lr", 0.125.into()), ("optimizer", "adamw".into()), ("ema", true.into())];
    assert!(board.hparams(&hparams, &["val/accuracy"]).unwrap());
    for step in 0..10u64 {
        let loss = 1.0 / (step + 1) as f64;
        board.scalars(step, &[("train/loss", loss), ("lr", 0.125)]).unwrap();
    }
    board.scalars(9, &[("val/accuracy", 0.75)]).unwrap();
    let weights = Tensor::from([-0.5f32, 0.0, 0.0, 0.25, 3.0, 3.1]);
    assert!(board.histogram(9, "weights", &weights).unwrap());
    let image: Vec<f32> = (0..3 * 4 * 5).map(|i| i as f32 / 59.0).collect();
    assert!(board.image(9, "image", &Tensor::from_slice(&image, [3, 4, 5])).unwrap());
    let grey = Tensor::from_slice(&[0u8, 64, 128, 255], [1, 2, 2]);
    assert!(board.image(9, "grey", &grey).unwrap());
    assert!(board.text(9, "note", "it *learns*").unwrap());

    let all = events(board.path());
    assert_eq!(all[0].text(3), "brain.Event:2");
    assert!(all.iter().all(|event| event.double(1) > 1e9), "times");
    let step = |event: &Message| match event.get(2) {
        Some(Field::Int(step)) => *step,
        other => panic!("{other:?}"),
    };
    let scalars = &all[2..12];
    for (i, event) in scalars.iter().enumerate() {
        let values = values(event);
        assert_eq!(
            (step(event), values[0].text(1), values[1].text(1)),
            (i as u64, "train/loss", "lr")
        );
        assert_eq!(values[0].get(2), Some(&Field::Float((1.0 / (i + 1) as f64) as f32)));
        assert_eq!(values[1].get(2), Some(&Field::Float(0.125)));
    }

    let histogram = values(&all[13])[0].message(5);
    assert_eq!([1, 2, 3].map(|field| histogram.double(field)), [-0.5, f64::from(3.1f32), 6.0]);
    assert!((histogram.double(4) - 5.85).abs() < 1e-6);
    let (limits, counts) = (histogram.doubles(6), histogram.doubles(7));
    assert_eq!(limits.len(), counts.len());
    assert!(limits.windows(2).all(|pair| pair[0] < pair[1]) && counts[0] == 0.0);
    for (i, count) in counts.iter().enumerate().skip(1) {
        let inside = |v: &&f64| (limits[i - 1]..limits[i]).contains(*v);
        assert_eq!(*count, weights.to_vec::<f64>().iter().filter(inside).count() as f64, "{i}");
    }
    assert_eq!(counts.iter().sum::<f64>(), 6.0);

    for (event, sizes, pixels) in
        [(&all[14], [4, 5, 3], None), (&all[15], [2, 2, 1], Some(vec![0u8, 64, 128, 255]))]
    {
        let image = values(event)[0].message(4);
        for (field, size) in (1..).zip(sizes) {
            assert_eq!(image.get(field), Some(&Field::Int(size)));
        }
        let decoder = png::Decoder::new(std::io::Cursor::new(image.bytes(4)));
        let mut reader = decoder.read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut bytes).unwrap();
        let want: Vec<u8> = pixels.unwrap_or_else(|| {
            let at = |y: usize, x: usize, c: usize| c * 20 + y * 5 + x;
            let places =
                (0..4).flat_map(|y| (0..5).flat_map(move |x| (0..3).map(move |c| (y, x, c))));
            places.map(|(y, x, c)| (at(y, x, c) as f32 / 59.0 * 255.0).round() as u8).collect()
        });
        assert_eq!(bytes, want);
    }

    let text = &values(&all[16])[0];
    assert_eq!(text.text(1), "note/text_summary");
    assert_eq!(text.message(9).message(1).text(1), "text");
    assert_eq!(text.message(8).text(8), "it *learns*");

    let hparams = values(&all[1]);
    let data = |value: &Message| value.message(9).message(1).message(2);
    assert_eq!(hparams[0].text(1), "_hparams_/experiment");
    assert_eq!(data(&hparams[0]).message(2).all(4).count(), 3);
    assert_eq!(hparams[1].text(1), "_hparams_/session_start_info");
    assert_eq!(data(&hparams[1]).message(3).all(1).count(), 3);

    // A run that goes on says from where: TensorBoard forgets what a killed one has after that.
    let folder = folder.with_file_name("goes-on");
    let mut board = TensorBoard::open(&folder, None).unwrap();
    (1..10).for_each(|step| board.scalars(step, &[("train/loss", 1.0)]).unwrap());
    let mut board = TensorBoard::open(&folder, Some(6)).unwrap();
    board.scalars(7, &[("train/loss", 0.5)]).unwrap();
    let all = events(board.path());
    assert_eq!((step(&all[1]), all[1].message(7).get(1)), (7, Some(&Field::Int(1))));
}

#[test]
fn what_tensorboard_would_show_wrongly_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut board = TensorBoard::open(folder.path(), None).unwrap();
    let before = fs::read(board.path()).unwrap();
    let has = |error: torchrs::Error, part: &str| {
        assert!(error.to_string().contains(part), "{error}");
    };
    let nan = Tensor::from([1f32, f32::NAN]);
    has(board.histogram(1, "x", &nan).unwrap_err(), "1 of 2 elements are not finite");
    has(board.image(1, "x", &Tensor::zeros([2, 4, 4], Dtype::F32)).unwrap_err(), "1 channel");
    has(board.image(1, "x", &Tensor::zeros([4, 4], Dtype::F32)).unwrap_err(), "[4, 4]");
    has(board.image(1, "x", &Tensor::full([1, 2, 2], 2.0, Dtype::F32)).unwrap_err(), "the value 2");
    has(board.image(1, "x", &Tensor::zeros([1, 2, 2], Dtype::I64)).unwrap_err(), "uint8");
    has(board.scalars(1, &[("a", 1.0), ("a", 2.0)]).unwrap_err(), "`a` is there twice");
    assert!(fs::read(board.path()).unwrap() == before, "nothing was written");
}

#[test]
fn files_of_a_run_that_goes_on_have_each_step_once() {
    let folder = tempfile::tempdir().unwrap();
    let (lines, table) = (folder.path().join("a/metrics.jsonl"), folder.path().join("metrics.csv"));
    let log = |from: Option<u64>, steps: &[u64]| {
        let mut loggers: [Box<dyn Logger>; 2] = [
            Box::new(JsonLines::open(&lines, from).unwrap()),
            Box::new(Csv::open(&table, from).unwrap()),
        ];
        for logger in &mut loggers {
            steps.iter().for_each(|&step| logger.scalars(step, &[("loss", 0.5)]).unwrap());
        }
    };
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    log(None, &[1, 2, 3]);
    // Cut off by a kill.
    for (path, cut) in [(&lines, "{\"step\":4,\"lo"), (&table, "4,0.")] {
        fs::write(path, read(path) + cut).unwrap();
    }
    log(Some(2), &[3, 4]);
    let want: String = (1..5).map(|step| format!("{{\"step\":{step},\"loss\":0.5}}\n")).collect();
    assert_eq!(read(&lines), want);
    assert_eq!(read(&table), "step,loss\n1,0.5\n2,0.5\n3,0.5\n4,0.5\n");
    // A run that begins anew.
    log(None, &[1]);
    assert_eq!(read(&lines), "{\"step\":1,\"loss\":0.5}\n");
    assert_eq!(read(&table), "step,loss\n1,0.5\n");
    let mut file = JsonLines::open(&lines, Some(1)).unwrap();
    file.scalars(2, &[("a", f64::INFINITY), ("b", f64::NAN)]).unwrap();
    assert!(read(&lines).ends_with("{\"step\":2,\"a\":\"Infinity\",\"b\":\"NaN\"}\n"));
    fs::write(&table, "a,b\n").unwrap();
    assert!(Csv::open(&table, Some(1)).unwrap_err().to_string().contains("no table of steps"));
    assert!(Csv::open(&table, None).unwrap().scalars(1, &[("a,b", 1.0)]).is_err());
}

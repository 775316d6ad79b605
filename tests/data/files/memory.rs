//! Small files that unpack to more than memory holds, in a process with a limit: an error, no abort.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use flate2::{Compress, Compression, FlushCompress};
use torchrs::checkpoint::{load_file, load_file_mapped, load_npy, load_npz, load_pt};
use torchrs::data::Dataset;
use torchrs::data::datasets::{ImageFolder, idx::Idx};
use torchrs::{Error, Result, catch};

use super::child;

const FOLDER: &str = "TORCHRS_TEST_BOMBS";
/// What the files unpack to, and what the process may take beyond what it has.
const SIZE: usize = 2 << 30;
const LIMIT: u64 = 500 << 20;

/// A deflated stream of `head`, and `value` up to `length` bytes in all.
fn deflated(head: &[u8], value: u8, length: usize) -> Vec<u8> {
    const PIECE: usize = 16 << 20;
    let mut deflate = Compress::new(Compression::fast(), false);
    let mut packed = |bytes: &[u8], flush| {
        let mut out = Vec::with_capacity(bytes.len() / 100 + 1000);
        let before = deflate.total_in();
        deflate.compress_vec(bytes, &mut out, flush).unwrap();
        assert_eq!(deflate.total_in() - before, bytes.len() as u64);
        out
    };
    // A piece that refers to nothing before it can be repeated.
    let mut stream = packed(head, FlushCompress::Full);
    let piece = packed(&vec![value; PIECE], FlushCompress::Full);
    let rest = length - head.len();
    (0..rest / PIECE).for_each(|_| stream.extend(&piece));
    stream.extend(packed(&vec![value; rest % PIECE], FlushCompress::Finish));
    stream
}

/// A zip archive of deflated entries: name, stream, length unpacked. Without checksums.
fn zip(entries: &[(&str, Vec<u8>, usize)]) -> Vec<u8> {
    let (mut file, mut table) = (Vec::new(), Vec::new());
    for (name, stream, length) in entries {
        let at = file.len() as u32;
        let mut head = [20u16, 0, 8, 0, 0].map(u16::to_le_bytes).concat();
        head.extend(0u32.to_le_bytes());
        head.extend((stream.len() as u32).to_le_bytes());
        head.extend((*length as u32).to_le_bytes());
        head.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        file.extend(b"PK\x03\x04");
        file.extend(&head);
        file.extend(name.bytes());
        file.extend(stream);
        table.extend(b"PK\x01\x02\x14\x00");
        table.extend(&head);
        table.extend([0; 10]);
        table.extend(at.to_le_bytes());
        table.extend(name.bytes());
    }
    let (start, count) = (file.len() as u32, entries.len() as u16);
    file.extend(&table);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([count, count].map(u16::to_le_bytes).concat());
    file.extend((table.len() as u32).to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend([0, 0]);
    file
}

/// A file of `head` and then zeros, which take no place on a disk.
fn sparse(path: &Path, head: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(head).unwrap();
    file.set_len(SIZE as u64).unwrap();
}

fn array_head() -> Vec<u8> {
    let bytes = SIZE - 128;
    let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({bytes},), }}");
    let text = format!("{text:<117}\n");
    [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
}

/// The pickle of a tensor of `SIZE` bytes.
fn pickle() -> Vec<u8> {
    let mut pickle = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nByteStorage\nX\x01\0\0\x000X\x03\0\0\0cpu".to_vec();
    let mut size = vec![0x8A, 8];
    size.extend((SIZE as u64).to_le_bytes());
    pickle.extend(&size);
    pickle.extend(b"tQK\0(");
    pickle.extend(&size);
    pickle.extend(b"t(K\x01t\x89}tR.");
    pickle
}

fn bombs(folder: &Path) {
    let put = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    let (head, pickle) = (array_head(), pickle());
    put("x.npz", &zip(&[("x.npy", deflated(&head, 0, SIZE), SIZE)]));
    let small = deflated(&pickle, b'.', pickle.len());
    put(
        "x.pt",
        &zip(&[("a/data.pkl", small, pickle.len()), ("a/data/0", deflated(b"", 0, SIZE), SIZE)]),
    );
    // Two hundred million values.
    let values = deflated(b"\x80\x02(", b'N', 200 << 20);
    put("values.pt", &zip(&[("a/data.pkl", values, 200 << 20)]));
    // And as many empty lists, which would be tensors or objects in another file.
    let lists = deflated(b"\x80\x02(", b']', 100 << 20);
    put("lists.pt", &zip(&[("a/data.pkl", lists, 100 << 20)]));
    sparse(&folder.join("x.npy"), &head);
    sparse(&folder.join("legacy.pt"), &fs::read(super::fixture("legacy.pt")).unwrap());
    let header = |end: usize| {
        let text = format!(r#"{{"x":{{"dtype":"U8","shape":[{end}],"data_offsets":[0,{end}]}}}}"#);
        format!("{text:<120}")
    };
    let text = header(SIZE - 128);
    sparse(&folder.join("x.safetensors"), &[&120u64.to_le_bytes()[..], text.as_bytes()].concat());
    let mut gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    let shape = [&[0, 0, 8, 1][..], &(SIZE as u32).to_be_bytes()].concat();
    gzip.extend(deflated(&shape, 0, SIZE + shape.len()));
    gzip.extend([0; 8]);
    put("x-idx1-ubyte.gz", &gzip);
    // A run-length coded bitmap of 13000 x 13000.
    fs::create_dir_all(folder.join("images/a")).unwrap();
    let mut bitmap = vec![0; 1100];
    bitmap[..2].copy_from_slice(b"BM");
    bitmap[10] = 54;
    bitmap[14] = 40;
    bitmap[18..22].copy_from_slice(&13000u32.to_le_bytes());
    bitmap[22..26].copy_from_slice(&13000u32.to_le_bytes());
    (bitmap[26], bitmap[28], bitmap[30]) = (1, 8, 1);
    put("images/a/x.bmp", &bitmap);
}

/// Not a test by itself: the limit holds for a whole process.
#[test]
#[ignore = "run as a child process"]
fn limited_child() {
    use nix::sys::resource::{Resource, setrlimit};
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = Path::new(&folder);
    let pages: u64 =
        fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let limit = pages * 4096 + LIMIT;
    setrlimit(Resource::RLIMIT_AS, limit, limit).unwrap();
    let read = |name: &str, load: &dyn Fn(&Path) -> Result<()>| {
        let path = folder.join(name);
        let outcome = catch(std::panic::AssertUnwindSafe(|| load(&path)));
        let error = outcome.expect("an error is given back, not thrown").expect_err(name);
        println!("{name}: {error}");
        let text = error.to_string();
        assert!(text.to_lowercase().contains("memory"), "{name}: {error}");
        assert!(
            matches!(error, Error::OutOfMemory(_) | Error::File { .. } | Error::Os { .. }),
            "{name}: {error:?}"
        );
    };
    read("x.npz", &|path| load_npz(path).map(drop));
    read("x.npy", &|path| load_npy(path).map(drop));
    read("x.pt", &|path| load_pt(path).map(drop));
    read("values.pt", &|path| load_pt(path).map(drop));
    read("lists.pt", &|path| load_pt(path).map(drop));
    read("legacy.pt", &|path| load_pt(path).map(drop));
    read("x.safetensors", &|path| load_file(path).map(drop));
    read("x.safetensors", &|path| load_file_mapped(path).map(drop));
    read("x-idx1-ubyte.gz", &|path| Idx::read(path).map(drop));
    read("images", &|path| ImageFolder::new(path, 8)?.get(0).map(drop));
}

#[test]
fn a_file_that_unpacks_to_more_than_memory_holds_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    bombs(dir.path());
    let packed = fs::metadata(dir.path().join("x.npz")).unwrap().len();
    assert!(packed < 16 << 20, "{packed} bytes");
    let output = child("files::memory::limited_child").env(FOLDER, dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{:?} {text}", output.status);
}

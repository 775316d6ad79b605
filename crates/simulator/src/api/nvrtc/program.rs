//! A program: its source, and after its compilation the log and the image.

use super::Outcome;
use crate::compile::{self, Header, options};
use crate::registry::{Handle, Registry};
use parking_lot::Mutex;
use std::ffi::{CStr, c_char};
use std::sync::Arc;

/// A program.
#[derive(Debug)]
struct Program {
    name: String,
    source: String,
    headers: Vec<Header>,
    result: Mutex<Compiled>,
}

/// What a compilation left.
#[derive(Debug, Default)]
struct Compiled {
    image: Option<Vec<u8>>,
    log: String,
    /// Whether the image counts as intermediate code, which is the driver's to compile.
    intermediate: bool,
}

static PROGRAMS: Registry<Program> = Registry::new();

/// The text of a C string; null gives `other`.
fn text(pointer: *const c_char, other: &str) -> String {
    if pointer.is_null() {
        return other.to_string();
    }
    // SAFETY: the caller gives a C string or null.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// The texts of an array of C strings.
fn texts(pointers: *const *const c_char, count: i32) -> Vec<String> {
    if pointers.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller gives an array of that many.
    (0..count.max(0) as usize).map(|i| text(unsafe { *pointers.add(i) }, "")).collect()
}

/// The frame of a function about a program.
fn with(handle: Handle, body: impl FnOnce(&Arc<Program>) -> Outcome) -> Outcome {
    match PROGRAMS.get(handle) {
        Ok(program) => body(&program),
        Err(_) => Outcome::INVALID_PROGRAM,
    }
}

/// Makes a program of a source and the headers that it includes.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcCreateProgram(
    place: *mut Handle,
    source: *const c_char,
    name: *const c_char,
    count: i32,
    headers: *const *const c_char,
    include_names: *const *const c_char,
) -> Outcome {
    if place.is_null()
        || source.is_null()
        || count < 0
        || (count > 0 && (headers.is_null() || include_names.is_null()))
    {
        return Outcome::INVALID_INPUT;
    }
    let headers = texts(headers, count).into_iter().zip(texts(include_names, count));
    let headers = headers.map(|(text, name)| Header { name, text }).collect();
    let program = Program {
        name: text(name, "default_program"),
        source: text(source, ""),
        headers,
        result: Mutex::default(),
    };
    // SAFETY: not null, and by the API's contract a place for a handle.
    unsafe { place.write(PROGRAMS.insert(program)) };
    Outcome::SUCCESS
}

/// Destroys a program and clears its handle.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcDestroyProgram(place: *mut Handle) -> Outcome {
    if place.is_null() {
        return Outcome::INVALID_PROGRAM;
    }
    // SAFETY: the caller gives its program's handle.
    let handle = unsafe { place.replace(std::ptr::null_mut()) };
    PROGRAMS.remove(handle).map_or(Outcome::INVALID_PROGRAM, |_| Outcome::SUCCESS)
}

/// Compiles a program.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcCompileProgram(
    handle: Handle,
    count: i32,
    list: *const *const c_char,
) -> Outcome {
    with(handle, |program| {
        let list = texts(list, count);
        let options = match options::read(list.iter().map(String::as_str)) {
            Ok(options) => options,
            Err(reason) => {
                *program.result.lock() =
                    Compiled { log: format!("nvrtc: error: {reason}\n"), ..Compiled::default() };
                return Outcome::INVALID_OPTION;
            }
        };
        let (image, log) =
            compile::compile(&program.source, &program.name, &program.headers, &options);
        let outcome = if image.is_some() { Outcome::SUCCESS } else { Outcome::COMPILATION };
        let intermediate = options.intermediate;
        *program.result.lock() = Compiled { image, log, intermediate };
        outcome
    })
}

/// Writes a number where the caller wants it.
fn put(place: *mut usize, number: usize) -> Outcome {
    if place.is_null() {
        return Outcome::INVALID_INPUT;
    }
    // SAFETY: not null, and by the API's contract a place for a number.
    unsafe { place.write(number) };
    Outcome::SUCCESS
}

/// Writes bytes where the caller has room for them.
fn put_bytes(place: *mut c_char, bytes: &[u8]) -> Outcome {
    if place.is_null() {
        return Outcome::INVALID_INPUT;
    }
    // SAFETY: the caller asked for the size before.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), bytes.len()) };
    Outcome::SUCCESS
}

/// The size of the image; zero for code of a virtual architecture, as NVRTC has it.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetCUBINSize(handle: Handle, size: *mut usize) -> Outcome {
    with(handle, |program| match &*program.result.lock() {
        Compiled { image: Some(_), intermediate: true, .. } => put(size, 0),
        Compiled { image: Some(image), .. } => put(size, image.len()),
        _ => Outcome::INVALID_PROGRAM,
    })
}

/// The image of an architecture that devices have.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetCUBIN(handle: Handle, place: *mut c_char) -> Outcome {
    with(handle, |program| match &*program.result.lock() {
        Compiled { image: Some(image), intermediate: false, .. } => put_bytes(place, image),
        _ => Outcome::INVALID_PROGRAM,
    })
}

/// The size of the intermediate code.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetPTXSize(handle: Handle, size: *mut usize) -> Outcome {
    with(handle, |program| match &*program.result.lock() {
        Compiled { image: Some(image), intermediate: true, .. } => put(size, image.len()),
        _ => Outcome::INVALID_PROGRAM,
    })
}

/// The intermediate code, which is the same image.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetPTX(handle: Handle, place: *mut c_char) -> Outcome {
    with(handle, |program| match &*program.result.lock() {
        Compiled { image: Some(image), intermediate: true, .. } => put_bytes(place, image),
        _ => Outcome::INVALID_PROGRAM,
    })
}

/// The size of the log with its final zero.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetProgramLogSize(handle: Handle, size: *mut usize) -> Outcome {
    with(handle, |program| put(size, program.result.lock().log.len() + 1))
}

/// The log.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetProgramLog(handle: Handle, place: *mut c_char) -> Outcome {
    with(handle, |program| put_bytes(place, format!("{}\0", program.result.lock().log).as_bytes()))
}

//! NVRTC, the compiler of kernels: its functions, and compiling a source to code for an
//! architecture. It needs no GPU.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr::null;
use std::sync::OnceLock;

use crate::loading::dynamic::function_table;
use crate::loading::library::{self, Kind};
use crate::loading::version;
use torchrs_error::{Error, Result};

/// A return code of NVRTC. Any number is legal.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct NvrtcCode(c_int);

impl NvrtcCode {
    const SUCCESS: NvrtcCode = NvrtcCode(0);
    const INVALID_OPTION: NvrtcCode = NvrtcCode(5);
    const COMPILATION: NvrtcCode = NvrtcCode(6);
}

/// How the option begins that asks for intermediate code.
pub(crate) const VIRTUAL: &str = "--gpu-architecture=compute_";

/// A program of NVRTC.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct ProgramHandle(usize);

function_table! {
    /// NVRTC's functions that torchrs calls.
    Nvrtc returns NvrtcCode;

    /// The compiler's version.
    fn nvrtcVersion(major: *mut c_int, minor: *mut c_int);
    /// Makes a program of a source text.
    fn nvrtcCreateProgram(
        program: *mut ProgramHandle, source: *const c_char, name: *const c_char, headers: c_int,
        header_texts: *const *const c_char, header_names: *const *const c_char,
    );
    /// Compiles it.
    fn nvrtcCompileProgram(program: ProgramHandle, count: c_int, options: *const *const c_char);
    /// How long the code is.
    fn nvrtcGetCUBINSize(program: ProgramHandle, bytes: *mut usize);
    /// The code.
    fn nvrtcGetCUBIN(program: ProgramHandle, code: *mut c_char);
    /// How long the intermediate code is.
    fn nvrtcGetPTXSize(program: ProgramHandle, bytes: *mut usize);
    /// The intermediate code.
    fn nvrtcGetPTX(program: ProgramHandle, code: *mut c_char);
    /// How many architectures the compiler knows.
    fn nvrtcGetNumSupportedArchs(count: *mut c_int);
    /// They, in order: 90 is compute capability 9.0.
    fn nvrtcGetSupportedArchs(architectures: *mut c_int);
    /// How long the log is, with its final zero.
    fn nvrtcGetProgramLogSize(program: ProgramHandle, bytes: *mut usize);
    /// What the compiler says of the source.
    fn nvrtcGetProgramLog(program: ProgramHandle, log: *mut c_char);
    /// Ends a program.
    fn nvrtcDestroyProgram(program: *mut ProgramHandle);
    others {
        /// A code's text.
        fn nvrtcGetErrorString(code: NvrtcCode) -> *const c_char;
    }
}

/// The loaded compiler.
pub(crate) struct Compiler {
    table: Nvrtc,
    version: (u32, u32),
}

impl Nvrtc {
    fn check(&self, call: &str, code: NvrtcCode) -> Result<()> {
        if code == NvrtcCode::SUCCESS {
            return Ok(());
        }
        let text = compiler().map_or_else(|_| String::new(), |c| c.text(code));
        Err(Error::Device(format!("{call}: {text} ({})", code.0)))
    }
}

/// The compiler, loaded at the first call.
///
/// # Errors
/// [`Error::Device`] where there is none; it names the package to install.
pub(crate) fn compiler() -> Result<&'static Compiler> {
    static COMPILER: OnceLock<Result<Compiler>> = OnceLock::new();
    COMPILER.get_or_init(load).as_ref().map_err(Error::clone)
}

fn load() -> Result<Compiler> {
    let library = library::open(Kind::Nvrtc)?;
    let lacks = |symbol: &str| {
        let (path, version) = (library.path().display(), version::of(Kind::Nvrtc, library));
        Error::Device(format!("{path} ({} {version}) has no `{symbol}`", Kind::Nvrtc))
    };
    let table = Nvrtc::load(library).map_err(lacks)?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two numbers.
    if unsafe { (table.nvrtcVersion)(&mut major, &mut minor) } != NvrtcCode::SUCCESS {
        return Err(Error::Device(format!("{} does not tell its version", Kind::Nvrtc)));
    }
    Ok(Compiler { table, version: (major as u32, minor as u32) })
}

/// What a compilation gave: code, or the compiler's refusal of the source or of an option.
pub(crate) enum Outcome {
    /// Code for the device, and the log, in which options may have asked for figures.
    Code(Vec<u8>, String),
    /// The compiler's log.
    Refused { log: String, option: bool },
}

impl Compiler {
    /// Major and minor version.
    pub(crate) fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The newest architecture that it knows, no later than a GPU's capability.
    pub(crate) fn newest_architecture(&self, (major, minor): (u32, u32)) -> Option<(u32, u32)> {
        let mut count = 0;
        // SAFETY: writes one number.
        unsafe { self.table.nvrtcGetNumSupportedArchs(&mut count) }.ok()?;
        let mut all = vec![0; count.max(0) as usize];
        // SAFETY: room for as many numbers as the compiler said.
        unsafe { self.table.nvrtcGetSupportedArchs(all.as_mut_ptr()) }.ok()?;
        let most = (major * 10 + minor) as c_int;
        let newest = all.into_iter().filter(|&one| one <= most).max()? as u32;
        Some((newest / 10, newest % 10))
    }

    /// Where it was loaded from.
    pub(crate) fn path(&self) -> &'static Path {
        library::open(Kind::Nvrtc).map_or(Path::new(""), |library| library.path())
    }

    /// A code's text.
    fn text(&self, code: NvrtcCode) -> String {
        // SAFETY: gives a C string that lives as long as the library, for any number.
        let text = unsafe { (self.table.nvrtcGetErrorString)(code) };
        if text.is_null() {
            return "NVRTC error".to_owned();
        }
        // SAFETY: not null, so a C string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Compiles a source. `name` is what messages call it.
    pub(crate) fn compile(&self, name: &str, source: &str, options: &[String]) -> Result<Outcome> {
        let text = |what: &str, s: &str| {
            CString::new(s).map_err(|_| Error::Device(format!("{name}: {what} has a zero byte")))
        };
        let (c_source, c_name) = (text("the source", source)?, text("the name", name)?);
        let options = options.iter().map(|o| text("an option", o)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<_> = options.iter().map(|o| o.as_ptr()).collect();

        let mut handle = ProgramHandle(0);
        // SAFETY: C strings that outlive the call, which copies them; no headers.
        unsafe {
            self.table.nvrtcCreateProgram(
                &mut handle,
                c_source.as_ptr(),
                c_name.as_ptr(),
                0,
                null(),
                null(),
            )
        }?;
        let program = Program { compiler: self, handle };
        let count = pointers.len() as c_int;
        // SAFETY: a program, and as many C strings as `count` says.
        let code = unsafe { (self.table.nvrtcCompileProgram)(handle, count, pointers.as_ptr()) };
        match code {
            NvrtcCode::SUCCESS => {
                // Code for a virtual architecture is the driver's to compile.
                let is_virtual =
                    |option: &CString| option.as_bytes().starts_with(VIRTUAL.as_bytes());
                let code = match options.iter().any(is_virtual) {
                    true => program.intermediate(),
                    false => program.code(),
                };
                Ok(Outcome::Code(code?, program.log()))
            }
            NvrtcCode::COMPILATION | NvrtcCode::INVALID_OPTION => {
                let option = code == NvrtcCode::INVALID_OPTION;
                Ok(Outcome::Refused { log: program.log(), option })
            }
            _ => {
                let (text, log) = (self.text(code), program.log());
                Err(Error::Device(format!("compiling {name}: {text} ({}); {log}", code.0)))
            }
        }
    }
}

/// A program of the compiler, destroyed at the end.
struct Program<'a> {
    compiler: &'a Compiler,
    handle: ProgramHandle,
}

impl Program<'_> {
    /// Text that ends with a zero, by which the driver knows its length.
    fn intermediate(&self) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: a compiled program; writes one number.
        unsafe { self.compiler.table.nvrtcGetPTXSize(self.handle, &mut bytes) }?;
        let mut code = vec![0u8; bytes];
        // SAFETY: room for as many bytes as the compiler said.
        unsafe { self.compiler.table.nvrtcGetPTX(self.handle, code.as_mut_ptr().cast()) }?;
        Ok(code)
    }

    fn code(&self) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: a compiled program; writes one number.
        unsafe { self.compiler.table.nvrtcGetCUBINSize(self.handle, &mut bytes) }?;
        let mut code = vec![0u8; bytes];
        // SAFETY: room for as many bytes as the compiler said.
        unsafe { self.compiler.table.nvrtcGetCUBIN(self.handle, code.as_mut_ptr().cast()) }?;
        Ok(code)
    }

    fn log(&self) -> String {
        let table = &self.compiler.table;
        let mut bytes = 0;
        // SAFETY: a program; writes one number.
        if unsafe { table.nvrtcGetProgramLogSize(self.handle, &mut bytes) }.is_err() {
            return String::new();
        }
        let mut log = vec![0u8; bytes];
        // SAFETY: room for as many bytes as the compiler said.
        if unsafe { table.nvrtcGetProgramLog(self.handle, log.as_mut_ptr().cast()) }.is_err() {
            return String::new();
        }
        let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
        String::from_utf8_lossy(&log[..end]).trim_end().to_owned()
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        let mut handle = ProgramHandle(self.handle.0);
        // SAFETY: a program that nobody uses any more. A failure would leave some memory behind.
        let _ = unsafe { (self.compiler.table.nvrtcDestroyProgram)(&raw mut handle) };
    }
}

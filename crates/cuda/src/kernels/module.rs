//! Kernels: a program is compiled by NVRTC for the device's architecture at its first use, kept on
//! disk, loaded once per device, and never unloaded.
//!
//! A [`Program`] is a source text behind a prelude; a [`Kernel`] is one of its entry points. Both are
//! usually statics:
//!
//! ```
//! use torchrs::cuda::{self, Kernel, Program};
//! static PROGRAM: Program = Program::new("twice", "", r#"
//!     extern "C" __global__ void twice(float* x, long long n) {
//!         long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
//!         if (i < n) x[i] *= 2;
//!     }"#);
//! static TWICE: Kernel = Kernel::new(&PROGRAM, "twice");
//! if cuda::is_available() {
//!     assert!(TWICE.on(0)?.threads_per_block() >= 1);
//! }
//! # Ok::<(), torchrs::Error>(())
//! ```

use std::ffi::{CString, c_int};
use std::sync::atomic::Ordering::Relaxed as Unordered;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::device::{self, MAX_DEVICES};
use crate::driver::Relaxed;
use crate::driver::code::within;
use crate::driver::{FunctionHandle, ModuleHandle, driver};
use crate::kernels::ahead::usage;
use crate::kernels::compile::code::{self, compile_now};
use crate::kernels::compile::figures::LOADED;
use crate::kernels::compile::fingerprint::Fingerprint;
use crate::kernels::compile::needs::{self, Needs};
use crate::kernels::compile::nvrtc::compiler;
use crate::kernels::parts::{self, Parts};
use crate::memo::once::TryOnce;
use torchrs_error::{Error, Result};

/// The text of a program.
enum Text {
    Fixed(&'static str),
    /// Made at the first use, as from a table of operations.
    Made(fn() -> String),
    /// Made before.
    Owned(String),
}

/// CUDA C that is compiled as one piece.
pub struct Program {
    name: &'static str,
    prelude: &'static str,
    text: Text,
    options: &'static [&'static str],
    /// How it can be made again, where its title does not say it.
    recipe: Option<String>,
    source: OnceLock<Source>,
    parts: OnceLock<Parts>,
    loaded: [TryOnce<Module>; MAX_DEVICES],
}

/// A program's whole text and its fingerprint.
struct Source {
    text: String,
    fingerprint: Fingerprint,
}

impl Program {
    /// A program of a source text, before which the prelude is put.
    pub const fn new(name: &'static str, prelude: &'static str, source: &'static str) -> Program {
        Program::of(name, prelude, Text::Fixed(source))
    }

    /// A program whose source text is made at its first use.
    pub const fn generated(
        name: &'static str,
        prelude: &'static str,
        source: fn() -> String,
    ) -> Program {
        Program::of(name, prelude, Text::Made(source))
    }

    /// A program whose source text is known only now.
    pub const fn owned(name: &'static str, prelude: &'static str, source: String) -> Program {
        Program::of(name, prelude, Text::Owned(source))
    }

    const fn of(name: &'static str, prelude: &'static str, text: Text) -> Program {
        let loaded = [const { TryOnce::new() }; MAX_DEVICES];
        let source = OnceLock::new();
        let parts = OnceLock::new();
        Program { name, prelude, text, options: &[], recipe: None, source, parts, loaded }
    }

    /// With options for the compiler.
    pub const fn options(mut self, options: &'static [&'static str]) -> Program {
        self.options = options;
        self
    }

    /// With a line by which it can be made again in another process.
    pub(crate) fn made_by(mut self, recipe: String) -> Program {
        self.recipe = Some(recipe);
        self
    }

    /// The line by which lists of programs name it: how it can be made again, or its title.
    pub fn recipe(&self) -> String {
        self.recipe.clone().unwrap_or_else(|| self.title())
    }

    pub(crate) fn own_options(&self) -> &'static [&'static str] {
        self.options
    }

    /// Of its name and text.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.source().fingerprint
    }

    /// What messages call it.
    #[inline]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What is compiled: the prelude and the source text.
    pub fn text(&self) -> &str {
        &self.source().text
    }

    /// Its name and the compiler's options.
    pub fn title(&self) -> String {
        let options =
            self.options.iter().map(|option| option.trim_start_matches("--define-macro="));
        std::iter::once(self.name).chain(options).collect::<Vec<_>>().join(" ")
    }

    fn source(&self) -> &Source {
        self.source.get_or_init(|| {
            let body = match &self.text {
                Text::Fixed(text) => (*text).to_owned(),
                Text::Made(make) => make(),
                Text::Owned(text) => text.clone(),
            };
            // Lines in messages are those of the source.
            let text = format!("{}\n#line 1 \"{}.cu\"\n{body}", self.prelude, self.name);
            let fingerprint = Fingerprint::new().with(self.name).with(&text);
            Source { text, fingerprint }
        })
    }

    /// What is compiled for an entry point: the part of the program that has it, or the whole of one without parts.
    pub(crate) fn part_with(&self, entry: &str) -> &Program {
        let parts = self.parts.get_or_init(|| Parts::of(self.text()));
        match parts.part_with(entry) {
            Some(part) => parts.program(part, || self.only(part)),
            None => self,
        }
    }

    /// A part by its name; none where the program has no such part.
    pub(crate) fn part(&self, name: &str) -> Option<&Program> {
        let parts = self.parts.get_or_init(|| Parts::of(self.text()));
        let name = parts.named(name)?;
        Some(parts.program(name, || self.only(name)))
    }

    fn only(&self, part: &str) -> Program {
        let more = ["--define-macro=PARTED=1".to_owned(), format!("--define-macro=PART_{part}=1")];
        // Lives as long as the process, as the options of statics do.
        let more = more.into_iter().map(|option| &*option.leak());
        let options = self.options.iter().copied().chain(more).collect::<Vec<_>>().leak();
        let text = match &self.text {
            Text::Fixed(text) => Text::Fixed(text),
            Text::Made(make) => Text::Made(*make),
            Text::Owned(text) => Text::Owned(text.clone()),
        };
        let recipe = parts::recipe(&self.recipe(), part);
        Program::of(self.name, self.prelude, text).options(options).made_by(recipe)
    }

    /// Compiles the program for an architecture, as (9, 0), or takes it from the cache. It needs
    /// NVRTC, but no GPU.
    ///
    /// # Errors
    /// [`Error::Device`] with the compiler's log, or where there is no compiler.
    pub fn compile(&self, capability: (u32, u32)) -> Result<Arc<[u8]>> {
        code::code(self, capability, code::disk()?).map(|code| code.bytes.clone())
    }

    /// What each of its kernels needs of a multiprocessor on an architecture. It needs NVRTC, but no GPU.
    ///
    /// # Errors
    /// As [`Program::compile`].
    pub fn needs(&self, capability: (u32, u32)) -> Result<Vec<Needs>> {
        let (_, log) = compile_now(self, compiler()?, capability, &["--ptxas-options=-v"])?;
        Ok(needs::read(&log))
    }

    /// Compiles and loads it for a device now, rather than at the first launch.
    ///
    /// # Errors
    /// As [`Program::compile`]; and where the driver refuses the code.
    pub fn load(&self, device: usize) -> Result<()> {
        self.module(device).map(|_| ())
    }

    fn module(&self, device: usize) -> Result<&Module> {
        let capability = device::properties(device)?.capability;
        self.loaded[device].get_or_try(|| {
            let code = code::code(self, capability, code::disk()?)?;
            let module = match load(self.name, device, &code.bytes) {
                // Code of a pack may be of a compiler that the driver is too old for.
                Err(refusal) if code.from_pack => {
                    let own = code::own_code(self, capability).map_err(|_| refusal)?;
                    load(self.name, device, &own)?
                }
                outcome => outcome?,
            };
            LOADED.fetch_add(1, Unordered);
            usage::note(self);
            Ok(module)
        })
    }
}

/// Code that is loaded on a device.
struct Module {
    handle: ModuleHandle,
}

fn load(name: &str, device: usize, code: &[u8]) -> Result<Module> {
    device::bind(device)?;
    // Loading may reserve memory, which a capture forbids otherwise.
    let _relaxed = Relaxed::new()?;
    let mut handle = ModuleHandle::default();
    // SAFETY: an image of the compiler, which knows its own length; the driver copies it.
    let outcome = unsafe { driver()?.cuModuleLoadData(&mut handle, code.as_ptr().cast()) };
    match outcome {
        Ok(()) => Ok(Module { handle }),
        Err(error) => Err(within(&format!("loading {name}.cu"), error)),
    }
}

/// An entry point of a program, found at its first use on each device.
pub struct Kernel {
    program: &'static Program,
    name: &'static str,
    functions: [TryOnce<Box<Function>>; MAX_DEVICES],
}

impl Kernel {
    /// The entry point of a name.
    pub const fn new(program: &'static Program, name: &'static str) -> Kernel {
        Kernel { program, name, functions: [const { TryOnce::new() }; MAX_DEVICES] }
    }

    /// The program that it belongs to.
    #[inline]
    pub fn program(&self) -> &'static Program {
        self.program
    }

    /// The function on a device where it has been used before.
    #[inline]
    pub fn ready_on(&self, device: usize) -> Option<&Function> {
        self.functions.get(device).and_then(TryOnce::get).map(|function| &**function)
    }

    /// The function on a device.
    ///
    /// # Errors
    /// As [`Program::load`]; [`Error::Device`] where the program has no such entry point.
    #[inline]
    pub fn on(&self, device: usize) -> Result<&Function> {
        if let Some(function) = self.ready_on(device) {
            return Ok(function);
        }
        device::number(device)?;
        let find = || Function::find(self.program, self.name, device).map(Box::new);
        self.functions[device].get_or_try(find).map(|function| &**function)
    }
}

/// An entry point, loaded on a device.
#[derive(Debug)]
pub struct Function {
    name: String,
    device: usize,
    handle: FunctionHandle,
    threads_per_block: u32,
    registers: u32,
    static_shared: usize,
    local_bytes: usize,
    /// The most dynamic shared memory that the driver has been told of.
    allowed_shared: Mutex<usize>,
}

impl Function {
    /// Looks for an entry point by its name.
    ///
    /// # Errors
    /// As [`Kernel::on`].
    pub fn find(program: &Program, name: &str, device: usize) -> Result<Function> {
        let module = program.part_with(name).module(device)?;
        device::bind(device)?;
        // The driver may load the code only now.
        let _relaxed = Relaxed::new()?;
        let driver = driver()?;
        let c_name = CString::new(name)
            .map_err(|_| Error::argument("Function::find", "name", "has a zero byte"))?;
        let mut handle = FunctionHandle::default();
        // SAFETY: a module that is never unloaded; a C string; writes one handle.
        unsafe { driver.cuModuleGetFunction(&mut handle, module.handle, c_name.as_ptr()) }
            .map_err(|error| {
                within(&format!("looking for the kernel `{name}` of {}.cu", program.name), error)
            })?;
        let figure = |attribute: c_int| {
            let mut value = 0;
            // SAFETY: a function of a loaded module; writes one number.
            unsafe { driver.cuFuncGetAttribute(&mut value, attribute, handle) }?;
            Ok::<_, Error>(value)
        };
        let static_shared = figure(1)? as usize;
        Ok(Function {
            name: name.to_owned(),
            device,
            handle,
            threads_per_block: figure(0)? as u32,
            static_shared,
            local_bytes: figure(3)? as usize,
            registers: figure(4)? as u32,
            allowed_shared: Mutex::new((48 << 10) - static_shared.min(48 << 10)),
        })
    }

    /// Its name.
    #[inline]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's index.
    #[inline]
    pub fn device(&self) -> usize {
        self.device
    }

    /// The most threads of a block, given the registers that it needs.
    #[inline]
    pub fn threads_per_block(&self) -> u32 {
        self.threads_per_block
    }

    /// Registers of a thread.
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Shared memory that it declares.
    pub fn static_shared(&self) -> usize {
        self.static_shared
    }

    /// Memory of a thread for what did not fit into registers.
    pub fn local_bytes(&self) -> usize {
        self.local_bytes
    }

    #[inline]
    pub(crate) fn handle(&self) -> FunctionHandle {
        self.handle
    }

    /// How many of its blocks run on a multiprocessor at a time.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses.
    pub fn blocks_per_multiprocessor(&self, threads: u32, shared: usize) -> Result<u32> {
        device::bind(self.device)?;
        let mut blocks = 0;
        // SAFETY: a function of a loaded module; writes one number.
        unsafe {
            driver()?.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.handle,
                threads as c_int,
                shared,
            )
        }?;
        Ok(blocks as u32)
    }

    /// Lets launches have so much dynamic shared memory; up to 48 KiB with what the kernel declares need
    /// no leave.
    #[inline]
    pub(crate) fn allow_shared(&self, bytes: usize) -> Result<()> {
        if bytes + self.static_shared <= 48 << 10 { Ok(()) } else { self.allow_more_shared(bytes) }
    }

    fn allow_more_shared(&self, bytes: usize) -> Result<()> {
        const MAX_DYNAMIC_SHARED_SIZE: c_int = 8;
        let mut allowed = self.allowed_shared.lock();
        if bytes > *allowed {
            device::bind(self.device)?;
            // SAFETY: a function of a loaded module.
            unsafe {
                driver()?.cuFuncSetAttribute(self.handle, MAX_DYNAMIC_SHARED_SIZE, bytes as c_int)
            }?;
            *allowed = bytes;
        }
        Ok(())
    }
}

/// A [`Program`] of a name and files of `kernels/`.
#[doc(hidden)]
#[macro_export]
macro_rules! program {
    ($name:literal: $($file:literal),+) => {
        $crate::kernels::module::Program::new(
            $name,
            $crate::kernel_text!("prelude.cuh"),
            $crate::kernel_text!($($file),+),
        )
    };
}

/// Statics that hold a program's kernels of one name for each type: `PREFIX_f64` and so on for `floats`, then
/// the integers for `numbers`, and for `units` one for each number of bytes that are moved at once.
#[doc(hidden)]
#[macro_export]
macro_rules! kernels_by {
    (floats of $program:ident: $($name:ident $prefix:literal;)+) => {$(
        static $name: [$crate::kernels::module::Kernel; 4] = $crate::kernels_by!(
            $program $prefix: "_f64" "_f32" "_f16" "_bf16"
        );
    )+};
    (numbers of $program:ident: $($name:ident $prefix:literal;)+) => {$(
        static $name: [$crate::kernels::module::Kernel; 9] = $crate::kernels_by!(
            $program $prefix: "_f64" "_f32" "_f16" "_bf16" "_i64" "_i32" "_i16" "_i8" "_u8"
        );
    )+};
    (units of $program:ident: $($name:ident $prefix:literal;)+) => {$(
        static $name: [$crate::kernels::module::Kernel; 5] = $crate::kernels_by!(
            $program $prefix: "_1" "_2" "_4" "_8" "_16"
        );
    )+};
    ($program:ident $prefix:literal: $($suffix:literal)+) => {
        [$($crate::kernels::module::Kernel::new(&$program, concat!($prefix, $suffix))),+]
    };
}

#[cfg(test)]
#[path = "module_tests.rs"]
mod tests;

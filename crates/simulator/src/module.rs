//! Modules: shared objects of compiled kernels, and the functions in them.

use crate::code::{Code, Result};
use crate::compile::shared;
use crate::device::{MAX_THREADS, SHARED_MEMORY};
use crate::kernel::abi;
use crate::registry::{Handle, Registry};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// All modules that are loaded.
pub static MODULES: Registry<Module> = Registry::new();
/// All functions that were asked for.
pub static FUNCTIONS: Registry<Function> = Registry::new();

/// What an image begins with, before the length of the shared object and the object itself.
pub const MAGIC: [u8; 8] = *b"TRSSIMG\x01";

/// A loaded module.
#[derive(Debug)]
pub struct Module {
    /// The device in whose context it was loaded.
    pub device: usize,
    library: *mut c_void,
    table: *const abi::Module,
    /// Bytes of shared memory that each kernel declares.
    declared: HashMap<String, u64>,
    /// Names and handles of the functions that were asked for.
    handles: Mutex<HashMap<usize, usize>>,
}

// SAFETY: the library's tables are constants; its code runs on any thread.
unsafe impl Send for Module {}
// SAFETY: the library's tables are constants; its code runs on any thread.
unsafe impl Sync for Module {}

/// A kernel of a module.
#[derive(Debug)]
pub struct Function {
    /// The module.
    pub module: Arc<Module>,
    /// The kernel's number in it.
    pub kernel: usize,
    /// Bytes of shared memory that it declares.
    pub declared_shared: i32,
    /// Most bytes of dynamic shared memory, which the program may raise; both together have a limit.
    pub max_shared: AtomicI32,
    /// The preferred part of shared memory, which is only remembered.
    pub carveout: AtomicI32,
}

/// An image of a shared object.
pub fn image(object: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &(object.len() as u64).to_le_bytes(), object].concat()
}

impl Module {
    /// Loads an image.
    ///
    /// # Safety
    /// `image` points to what [`image`] made, or to at least eight readable bytes of something else.
    pub unsafe fn load(device: usize, image: *const u8) -> Result<Module> {
        // SAFETY: as promised.
        let object = unsafe {
            if std::slice::from_raw_parts(image, MAGIC.len()) != MAGIC {
                return Err(Code::INVALID_IMAGE);
            }
            let length = image.add(MAGIC.len()).cast::<[u8; 8]>().read();
            std::slice::from_raw_parts(image.add(16), u64::from_le_bytes(length) as usize)
        };
        let library = open(object)?;
        // SAFETY: the library was just opened.
        let table = unsafe { libc::dlsym(library, abi::SYMBOL.as_ptr()) }.cast::<abi::Module>();
        let mut module =
            Module { device, library, table, declared: HashMap::new(), handles: Mutex::default() };
        // SAFETY: the symbol, if it is there, is such a table; its first word says which version.
        if table.is_null() || unsafe { (*table).version } != abi::VERSION {
            eprintln!(
                "simulated GPU {device}: a module was compiled by another version of the simulated GPU"
            );
            return Err(Code::NO_BINARY_FOR_GPU);
        }
        let names: Vec<&str> = (0..module.kernels().len()).map(|n| module.name(n)).collect();
        module.declared = shared::declared(object, &names).ok_or(Code::INVALID_IMAGE)?;
        Ok(module)
    }

    /// Its table.
    pub fn table(&self) -> &abi::Module {
        // SAFETY: the library is open as long as this is, and the version is the right one.
        unsafe { &*self.table }
    }

    /// A kernel by its number.
    pub fn kernel(&self, number: usize) -> &abi::Kernel {
        &self.kernels()[number]
    }

    /// Its kernels.
    fn kernels(&self) -> &[abi::Kernel] {
        let table = self.table();
        if table.count == 0 {
            return &[];
        }
        // SAFETY: the table says so.
        unsafe { std::slice::from_raw_parts(table.kernels, table.count as usize) }
    }

    /// A kernel's name.
    pub fn name(&self, number: usize) -> &str {
        // SAFETY: the name is a constant string of the library.
        unsafe { CStr::from_ptr(self.kernel(number).name) }.to_str().unwrap_or("?")
    }

    /// The kernel of a name; the same handle each time.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Handle> {
        let number =
            (0..self.kernels().len()).find(|n| self.name(*n) == name).ok_or(Code::NOT_FOUND)?;
        let handle = *self.handles.lock().entry(number).or_insert_with(|| {
            let declared = self.declared.get(name).map_or(0, |bytes| *bytes as i32);
            FUNCTIONS.insert(Function {
                module: self.clone(),
                kernel: number,
                declared_shared: declared,
                max_shared: AtomicI32::new(SHARED_MEMORY as i32 - declared),
                carveout: AtomicI32::new(-1),
            }) as usize
        });
        Ok(handle as Handle)
    }

    /// Forgets its functions, whose handles are not valid any more.
    pub fn forget_functions(&self) {
        for (_, handle) in self.handles.lock().drain() {
            let _ = FUNCTIONS.remove(handle as Handle);
        }
    }
}

impl Function {
    /// The kernel.
    pub fn kernel(&self) -> &abi::Kernel {
        self.module.kernel(self.kernel)
    }

    /// Most threads of a block.
    pub fn max_threads(&self) -> u32 {
        match self.kernel().max_threads {
            0 => MAX_THREADS,
            max => max.min(MAX_THREADS),
        }
    }

    /// Bytes of each argument.
    pub fn sizes(&self) -> &[u32] {
        // SAFETY: the table's kernel says so; the array has an element more.
        unsafe { std::slice::from_raw_parts(self.kernel().sizes, self.kernel().arguments as usize) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: opened once, and nothing in flight uses it, as that would hold this.
        unsafe { libc::dlclose(self.library) };
    }
}

/// Opens a shared object from memory.
fn open(object: &[u8]) -> Result<*mut c_void> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"simulated-gpu-module".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Code::OPERATING_SYSTEM);
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(object).map_err(|_| Code::OUT_OF_MEMORY)?;
    let path = CString::new(path(file.as_raw_fd())).map_err(|_| Code::UNKNOWN)?;
    // SAFETY: the path is a C string; what runs at the opening is nothing but the compiler's own.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: after a failure there is a text, or null.
        let text = unsafe { libc::dlerror() };
        if !text.is_null() {
            // SAFETY: checked above.
            eprintln!("simulated GPU: {}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
        }
        return Err(Code::INVALID_IMAGE);
    }
    Ok(library)
}

/// A path to a descriptor that is spelled as no other before: the loader takes equal paths for the same
/// library, though the descriptor's number was used again.
fn path(fd: i32) -> String {
    static SERIAL: AtomicU64 = AtomicU64::new(1);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let digits =
        (0..64 - serial.leading_zeros()).map(|bit| if serial >> bit & 1 == 1 { "./" } else { "/" });
    format!("/proc/self/fd/{}{fd}", digits.collect::<String>())
}

//! Programs that are written once for all element types, and compiled for each at its first use.

use crate::kernel_text;
use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::RwLock;

use crate::kernels::module::{Kernel, Program};
use torchrs_loops::Format;

/// A program's text for any element type: in it `T` is an element, `C` the type that is computed in, and
/// `VARIANT` a word of the caller's, so that one text can stand for many operations.
pub struct Family {
    name: &'static str,
    text: &'static str,
    cases: &'static [Cases],
}

/// Formats, and variants that are used with each of them.
pub type Cases = (&'static [Format], &'static [&'static str]);

/// Formats of the numbers that are computed with as they are.
pub const REALS: &[Format] = &[Format::F64, Format::F32];
/// All floating-point formats.
pub const FLOATS: &[Format] = &[Format::F64, Format::F32, Format::F16, Format::BF16];
/// All formats; truth values have the programs of bytes.
pub const NUMBERS: &[Format] = &[
    Format::F64,
    Format::F32,
    Format::F16,
    Format::BF16,
    Format::I64,
    Format::I32,
    Format::I16,
    Format::I8,
    Format::U8,
];

/// Which program of a family: by the family's address.
type ProgramKey = (usize, Format, &'static str);
static PROGRAMS: LazyLock<RwLock<HashMap<ProgramKey, &'static Program>>> =
    LazyLock::new(RwLock::default);
static KERNELS: LazyLock<RwLock<HashMap<(ProgramKey, &'static str), &'static Kernel>>> =
    LazyLock::new(RwLock::default);

impl Family {
    /// A family of this text.
    pub const fn new(name: &'static str, text: &'static str) -> Family {
        Family { name, text, cases: &[] }
    }

    /// With all programs that there are, so that they can be checked before they are used.
    pub const fn with(mut self, cases: &'static [Cases]) -> Family {
        self.cases = cases;
        self
    }

    /// Those programs, with a name for each.
    pub fn programs(&'static self) -> Vec<(String, &'static Program)> {
        let all = self.cases.iter().flat_map(|&(formats, variants)| {
            formats.iter().flat_map(move |&format| variants.iter().map(move |&v| (format, v)))
        });
        let named =
            |(format, variant)| (self.title(format, variant), self.program(format, variant));
        all.map(named).collect()
    }

    fn title(&self, format: Format, variant: &str) -> String {
        format!("{} {format:?} {variant}", self.name)
    }

    fn has(&self, format: Format, variant: &str) -> bool {
        let element = |format| types(format).0;
        self.cases.iter().any(|(formats, variants)| {
            variants.contains(&variant) && formats.iter().any(|&f| element(f) == element(format))
        })
    }

    /// An entry point of the program for elements of a format.
    pub fn kernel(
        &'static self,
        format: Format,
        variant: &'static str,
        entry: &'static str,
    ) -> &'static Kernel {
        let key = (std::ptr::from_ref(self) as usize, format, variant);
        if let Some(kernel) = KERNELS.read().get(&(key, entry)) {
            return kernel;
        }
        let program = self.program(format, variant);
        KERNELS.write().entry((key, entry)).or_insert_with(|| {
            // Lives as long as the process, as a static would.
            Box::leak(Box::new(Kernel::new(program, entry)))
        })
    }

    /// The program for elements of a format.
    pub fn program(&'static self, format: Format, variant: &'static str) -> &'static Program {
        let known = self.has(format, variant);
        assert!(known, "{} {format:?} {variant} is not among the family's programs", self.name);
        let key = (std::ptr::from_ref(self) as usize, format, variant);
        PROGRAMS.write().entry(key).or_insert_with(|| {
            let text = self.text(format, variant);
            let program = Program::owned(self.name, kernel_text!("prelude.cuh"), text);
            Box::leak(Box::new(program.made_by(self.title(format, variant))))
        })
    }

    fn text(&self, format: Format, variant: &str) -> String {
        let (element, computed) = types(format);
        let text = self.text;
        format!(
            "typedef {element} T;\ntypedef {computed} C;\n#define VARIANT {variant}\n#define VARIANT_{variant} 1\n{text}"
        )
    }
}

/// An element's type in CUDA C, and the type that is computed in.
fn types(format: Format) -> (&'static str, &'static str) {
    match format {
        Format::F64 => ("double", "double"),
        Format::F32 => ("float", "float"),
        Format::F16 => ("f16", "float"),
        Format::BF16 => ("bf16", "float"),
        Format::I64 | Format::Wide => ("i64", "i64"),
        Format::I32 => ("i32", "i64"),
        Format::I16 => ("i16", "i64"),
        Format::I8 => ("i8", "i64"),
        Format::U8 | Format::Bool | Format::Bit => ("u8", "i64"),
    }
}

/// A [`Family`] of a name and files of `kernels/`.
#[doc(hidden)]
#[macro_export]
macro_rules! family {
    ($name:literal: $($file:literal),+) => {
        $crate::kernels::family::Family::new($name, $crate::kernel_text!($($file),+))
    };
}

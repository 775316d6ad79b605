//! Programs of a formula for operands of certain types that lie in certain ways (`kernels/packed.cuh`): conversions,
//! comparisons, masks, narrow integers, operands that repeat. Made at the first use of each combination, and for
//! large tensors only: small ones take no longer in the kernel for everything.

use std::collections::HashMap;
use std::fmt::Write;

use parking_lot::RwLock;

use super::{recipe, translate};
use crate::kernel_text;
use crate::kernels::family::NUMBERS;
use crate::kernels::module::{Kernel, Program};
use crate::memo::quick_hash::QuickHash;
use torchrs_loops::{Compute, Format, Operand, Plan, Text};

/// Elements from which on a combination has a program.
const LARGE: usize = 1 << 15;
/// Operands of a program: the registers of more of them would not suffice.
const MOST: usize = 6;
/// Bytes of an instruction.
const WIDEST: usize = 16;

/// How neighbouring elements of a tensor are reached: as in `kernels/packed.cuh`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    Whole,
    Each,
    Same,
}

const WAYS: [Way; 3] = [Way::Whole, Way::Each, Way::Same];

fn name(way: Way) -> &'static str {
    match way {
        Way::Whole => "WHOLE",
        Way::Each => "EACH",
        Way::Same => "SAME",
    }
}

/// What operands may be of beside numbers.
const TRUTHS: [Format; 2] = [Format::Bool, Format::Bit];

/// What a program is made for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Form {
    elements: u8,
    flat: bool,
    crosses: bool,
    outputs: u8,
    /// `None` for numbers, and beyond the last.
    operands: [Option<(Format, Way)>; MOST],
    count: u8,
}

/// Of a formula and compute type: its kernels for operands of certain types that lie in certain ways.
pub(super) type Known = RwLock<HashMap<Form, &'static Kernel, QuickHash>>;

/// The program of a formula for tensors of these formats, the outputs first, of which all but the last lie densely
/// and that one repeats in runs of odd length: what needs most registers. `None` without formats.
pub fn source_for(
    text: &Text,
    compute: Compute,
    outputs: usize,
    formats: &[Format],
) -> Option<Program> {
    let mut form = Form::new(outputs, formats.len());
    let widest = formats.iter().map(|format| format.size()).max()?;
    (form.elements, form.crosses) = (most_elements(widest) as u8, true);
    for (k, &format) in formats.iter().enumerate() {
        let repeats = k >= outputs && k + 1 == formats.len();
        form.operands[k] = Some((format, if repeats { Way::Each } else { Way::Whole }));
    }
    Some(form.program(text, compute))
}

/// Neighbours that a thread has at most, so that it moves sixteen bytes at once of the widest type.
fn most_elements(widest: usize) -> usize {
    (WIDEST / widest).clamp(4, 8)
}

impl Form {
    fn new(outputs: usize, count: usize) -> Form {
        let (outputs, count) = (outputs as u8, count as u8);
        Form { elements: 1, flat: false, crosses: false, outputs, operands: [None; MOST], count }
    }

    /// The form for these operands: the widest one in which all that lies densely is reached whole, else the widest
    /// one; `None` where the kernel for everything is to run.
    pub(super) fn of(
        count: usize,
        outputs: usize,
        plan: &Plan,
        operands: &[Operand<'_>],
    ) -> Option<Form> {
        if count < LARGE || operands.len() > MOST {
            return None;
        }
        let sizes = operands.iter().filter_map(|operand| match operand {
            Operand::Memory { format, .. } => Some(format.size()),
            Operand::Constant(_) => None,
        });
        let most = most_elements(sizes.max()?);
        let forms = [8, 4, 2]
            .into_iter()
            .filter(|&n| n <= most && n <= plan.inner())
            .map(|n| Form::with(n, outputs, plan, operands));
        let mut first = None;
        for (form, all_whole) in forms {
            if all_whole {
                return Some(form);
            }
            first.get_or_insert(form);
        }
        first
    }

    /// The form for so many elements, and whether all operands whose neighbours lie side by side are reached whole.
    fn with(n: usize, outputs: usize, plan: &Plan, operands: &[Operand<'_>]) -> (Form, bool) {
        let mut form = Form::new(outputs, operands.len());
        form.elements = n as u8;
        form.flat = plan.dims.len() == 1;
        form.crosses = !form.flat && !plan.inner().is_multiple_of(n);
        let mut all_whole = true;
        for (k, operand) in operands.iter().enumerate() {
            let Operand::Memory { ptr, format, .. } = *operand else { continue };
            let (size, stride) = (format.size(), plan.inner_stride(k));
            let step = (n * size).min(WIDEST);
            let reaches = |d| plan.stride(d, k).unsigned_abs().is_multiple_of(step);
            let in_line = if form.crosses {
                plan.is_linear(k)
            } else {
                (0..plan.dims.len() - 1).all(reaches)
            };
            let dense = stride == size as isize;
            let way = if dense && in_line && (ptr as usize).is_multiple_of(step) {
                Way::Whole
            } else if stride == 0 && (!form.crosses || plan.is_linear(k)) {
                Way::Same
            } else {
                // What repeats from row to row is in the cache.
                all_whole &= !dense || (form.crosses && !plan.is_linear(k));
                Way::Each
            };
            form.operands[k] = Some((format, way));
        }
        (form, all_whole)
    }

    /// The formula's kernel, and how many elements each of its threads has at a time.
    pub(super) fn kernel(
        self,
        known: &Known,
        text: &Text,
        compute: Compute,
    ) -> (&'static Kernel, usize) {
        let found = known.read().get(&self).copied();
        let kernel = found.unwrap_or_else(|| {
            known.write().entry(self).or_insert_with(|| {
                let program = Box::leak(Box::new(self.program(text, compute)));
                Box::leak(Box::new(Kernel::new(program, "packed")))
            })
        });
        (kernel, usize::from(self.elements))
    }

    pub(super) fn program(&self, text: &Text, compute: Compute) -> Program {
        let source = format!(
            "{}{}{}{}",
            translate::function(text, compute),
            self.definitions(),
            kernel_text!("walk.cuh"),
            kernel_text!("packed.cuh")
        );
        translate::compiled(source).made_by(recipe::line(text, compute, &self.written()))
    }

    /// As text: how many elements, whether flat, whether crossing, how many outputs; then the operands.
    fn written(&self) -> String {
        let mut out = format!(
            "{} {} {} {}",
            self.elements, self.flat as u8, self.crosses as u8, self.outputs
        );
        for operand in &self.operands[..usize::from(self.count)] {
            out += &match operand {
                None => " number".to_owned(),
                Some((format, way)) => format!(" {format:?}:{}", name(*way)),
            };
        }
        out
    }

    /// A form from its text.
    pub(super) fn read(text: &str) -> Option<Form> {
        let words: Vec<&str> = text.split(' ').collect();
        let (figures, operands) = words.split_at_checked(4)?;
        let figures: Vec<u8> = figures.iter().filter_map(|word| word.parse().ok()).collect();
        let [elements @ (1 | 2 | 4 | 8), flat @ 0..=1, crosses @ 0..=1, outputs] = figures[..]
        else {
            return None;
        };
        if operands.len() > MOST || usize::from(outputs) > operands.len() {
            return None;
        }
        let mut form = Form::new(outputs.into(), operands.len());
        (form.elements, form.flat, form.crosses) = (elements, flat == 1, crosses == 1);
        for (place, word) in form.operands.iter_mut().zip(operands) {
            if *word != "number" {
                let (format, way) = word.split_once(':')?;
                let mut formats = NUMBERS.iter().chain(&TRUTHS);
                let format = *formats.find(|one| format!("{one:?}") == format)?;
                *place = Some((format, *WAYS.iter().find(|one| name(**one) == way)?));
            }
        }
        Some(form)
    }

    fn definitions(&self) -> String {
        let (mut sides, mut numbers) = ([String::new(), String::new()], String::new());
        for (k, operand) in self.operands[..usize::from(self.count)].iter().enumerate() {
            let outputs = usize::from(self.outputs);
            let written = match *operand {
                None => write!(numbers, " DO({})", k - outputs),
                Some((format, way)) => {
                    let side = &mut sides[usize::from(k >= outputs)];
                    write!(side, " DO({k}, {}, {})", element(format), name(way))
                }
            };
            written.expect("a string takes all text");
        }
        let [outputs, inputs] = sides;
        format!(
            "#define ELEMENTS {}\n#define FLAT {}\n#define CROSSES {}\n#define OF_OUTPUTS(DO){outputs}\n\
             #define OF_INPUTS(DO){inputs}\n#define OF_NUMBERS(DO){numbers}\n",
            self.elements, self.flat as u32, self.crosses as u32
        )
    }
}

/// An element's type in CUDA C.
fn element(format: Format) -> &'static str {
    match format {
        Format::F64 => "double",
        Format::F32 => "float",
        Format::F16 => "f16",
        Format::BF16 => "bf16",
        Format::I64 | Format::Wide => "i64",
        Format::I32 => "i32",
        Format::I16 => "i16",
        Format::I8 => "i8",
        Format::U8 => "u8",
        Format::Bool => "truth",
        Format::Bit => "bit",
    }
}

//! Kernels compile for the GPUs that are supported, with NVRTC and without a GPU, and keep their numbers
//! in registers. `tools/checks/check-kernels` installs the compiler and runs this; by itself it does nothing.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use torchrs::cuda::pointwise::{self as on_gpu, Format, source_for};
use torchrs::cuda::{Needs, Program, library};
use torchrs::ops::catalogue;
use torchrs::ops::pointwise::{self, Compute, Kernel, Kind, Row};

const ARCHITECTURES: [(u32, u32); 3] = [(8, 0), (9, 0), (10, 0)];

/// Set by `tools/checks/check-kernels`: 1 for those that have changed, `all`, or a part of the names of those to be compiled.
const REQUIRED: &str = "TORCHRS_CHECK_KERNELS";

/// True when the script runs this, which has seen to a compiler: it takes minutes.
fn is_asked_for() -> bool {
    if std::env::var_os(REQUIRED).is_none() {
        println!("skipped: tools/checks/check-kernels runs this, with NVIDIA's compiler");
        return false;
    }
    assert!(!library::is_simulated(), "the simulated GPU's compiler is the host's");
    let probe = Program::owned("probe", "", String::new()).compile((9, 0));
    probe.unwrap_or_else(|error| panic!("{error}"));
    true
}

/// Functions that keep some of each thread's memory, of at most this size: the first ones an array for numbers
/// so large that many digits of pi decide, which others never touch; the last ones, so long that they are called
/// instead of copied to where they are used, what their callers put aside.
const WITH_MEMORY: [&str; 8] = [
    "t_sin(",
    "t_cos(",
    "t_tan(",
    "t_sinc_slope(",
    "t_digamma(",
    "t_erfinv(",
    "t_ndtri(",
    "t_erfcx(",
];
const THEIR_MEMORY: u32 = 48;

fn may_have_memory(text: &str, needs: &Needs) -> bool {
    needs.stack <= THEIR_MEMORY && WITH_MEMORY.iter().any(|call| text.contains(call))
}

/// For which of the architectures a program is compiled.
#[derive(Clone, Copy, PartialEq)]
enum For {
    Each,
    /// One or the other, two by two: a row's programs are for f32 and f64 in turns. Their text is the same for all
    /// architectures, and their few numbers are far from filling the registers of any.
    OneOfThem,
}

/// Programs are checked in so many parts, by their names: a part that has not changed since it was last checked is left
/// out, unless all are asked for.
const PARTS: u64 = 64;

/// What has been checked, a line for each part: the test, the part's number, a digest of its programs.
const CHECKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/kernels_checked.txt");

/// Set to have [`CHECKED`] written.
const WRITE: &str = "TORCHRS_TEST_WRITE_KERNELS";

/// FNV-1a, which stays the same from version to version.
fn digest(text: &str, start: u64) -> u64 {
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

/// The parts of a test, each with its digest.
fn parts<P: Borrow<Program>>(programs: &[(String, P)]) -> BTreeMap<u64, u64> {
    let mut parts = BTreeMap::new();
    for (name, program) in programs {
        let text = format!("{name}\n{:?}\n{}", ARCHITECTURES, program.borrow().text());
        let sum: &mut u64 = parts.entry(digest(name, START) % PARTS).or_default();
        *sum = sum.wrapping_add(digest(&text, START));
    }
    parts
}

/// The lines of [`CHECKED`] that are not of `test`, and those of it that the programs have now.
fn lines(test: &str, parts: &BTreeMap<u64, u64>) -> (Vec<String>, Vec<String>) {
    let all = fs::read_to_string(CHECKED).unwrap_or_default();
    let of_others = all.lines().filter(|line| line.split(' ').next() != Some(test));
    let own = parts.iter().map(|(part, digest)| format!("{test} {part} {digest:016x}"));
    (of_others.map(str::to_owned).collect(), own.collect())
}

/// Compiles programs on all cores; what is wrong with them.
fn complaints<P: Borrow<Program> + Sync>(
    test: &str,
    mut programs: Vec<(String, P)>,
    of: For,
) -> Vec<String> {
    let asked = std::env::var(REQUIRED).unwrap_or_default();
    let (parts, all) = (parts(&programs), programs.len());
    match asked.as_str() {
        "all" => {}
        "1" => {
            let checked = fs::read_to_string(CHECKED).unwrap_or_default();
            let checked: BTreeSet<&str> = checked.lines().collect();
            let is_new = |name: &str| {
                let part = digest(name, START) % PARTS;
                !checked.contains(format!("{test} {part} {:016x}", parts[&part]).as_str())
            };
            programs.retain(|(name, _)| is_new(name));
        }
        text => programs.retain(|(name, _)| name.contains(text)),
    }
    let (next, complaints, start) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    let (kernels, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                loop {
                    let turn = next.fetch_add(1, Relaxed);
                    let Some((name, program)) = programs.get(turn) else { break };
                    let one = digest(name, START) as usize / 64 % ARCHITECTURES.len();
                    let architectures = match of {
                        For::Each => &ARCHITECTURES[..],
                        For::OneOfThem => std::slice::from_ref(&ARCHITECTURES[one]),
                    };
                    for &architecture in architectures {
                        let complain = |text: String| {
                            complaints
                                .lock()
                                .unwrap()
                                .push(format!("{name} {architecture:?}: {text}"));
                        };
                        match program.borrow().needs(architecture) {
                            Err(error) => complain(error.to_string()),
                            Ok(all) => {
                                assert!(!all.is_empty(), "{name}: no kernel in it");
                                kernels.fetch_add(all.len(), Relaxed);
                                for needs in all {
                                    most.fetch_max(needs.registers as usize, Relaxed);
                                    if needs.spilled > 0 {
                                        complain(format!("spills: {needs:?}"));
                                    } else if needs.stack > 0
                                        && !may_have_memory(program.borrow().text(), &needs)
                                    {
                                        complain(format!("has memory of its own: {needs:?}"));
                                    }
                                }
                            }
                        }
                    }
                }
            });
        }
    });
    println!(
        "{} programs, of {all}, for {} of {} architectures: {} kernels, at most {} registers, in {:.1} s",
        programs.len(),
        if of == For::Each { "each" } else { "one" },
        ARCHITECTURES.len(),
        kernels.into_inner(),
        most.into_inner(),
        start.elapsed().as_secs_f64()
    );
    let complaints = complaints.into_inner().unwrap();
    let is_complete = asked == "1" || asked == "all";
    if complaints.is_empty() && is_complete && std::env::var_os(WRITE).is_some() {
        static ONE_BY_ONE: Mutex<()> = Mutex::new(());
        let _turn = ONE_BY_ONE.lock().unwrap();
        let (mut others, own) = lines(test, &parts);
        others.extend(own);
        others.sort();
        fs::write(CHECKED, others.join("\n") + "\n").unwrap();
    }
    complaints
}

#[test]
fn programs_of_ops() {
    if !is_asked_for() {
        return;
    }
    let wrong = complaints("programs_of_ops", catalogue::programs(), For::Each);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A file that is in no program of the catalogue has to be one by itself.
#[test]
fn files_of_kernels() {
    if !is_asked_for() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let prelude: &'static str = fs::read_to_string(folder.join("prelude.cuh")).unwrap().leak();
    let known = catalogue::programs();
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let others =
        files.filter(|path| path.extension().is_some_and(|e| e == "cu")).filter_map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let name: &'static str = path.file_stem().unwrap().to_str().unwrap().to_owned().leak();
            let is_known = known.iter().any(|(_, program)| program.text().contains(text.as_str()));
            (!is_known).then(|| (name.to_owned(), Program::owned(name, prelude, text)))
        });
    let wrong = complaints("files_of_kernels", others.collect::<Vec<_>>(), For::Each);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The program of a formula for a compute type.
fn source(kernel: &Kernel, compute: Compute) -> Program {
    on_gpu::source(kernel.text().expect("a row's text"), compute)
}

/// The kernels of a row, and the types in which they compute.
fn programs_of(row: &Row) -> Vec<(String, Program)> {
    let floats = [Compute::F32, Compute::F64].as_slice();
    let computes = match row.kind {
        Kind::Float | Kind::Update => floats,
        Kind::Arith | Kind::Numeric | Kind::Difference | Kind::Compare => {
            &[Compute::F32, Compute::F64, Compute::I64]
        }
        Kind::Bitwise => &[Compute::I64],
    };
    let forward = computes.iter().map(|c| (format!("{} {c:?}", row.name), source(&row.kernel, *c)));
    let backward = row.gradients.iter().flat_map(|gradient| {
        let name = format!("{} by {}", row.name, row.inputs[gradient.input].name);
        floats.iter().map(move |c| (format!("{name} {c:?}"), source(&gradient.kernel, *c)))
    });
    forward.chain(backward).collect()
}

/// Rows of which programs for several types, or narrow ones, are checked: there are as many as combinations of types.
const SAMPLED: [&str; 14] = [
    "add",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "pow",
    "gt",
    "eq",
    "where_",
    "masked_fill",
    "logical_and",
    "bitwise_and",
    "gelu",
    "erfinv",
];

/// A program of a row for narrow operands, one of which repeats in runs of odd length.
fn narrow_program_of(row: &Row) -> (String, Program) {
    let (compute, result, format) = match row.kind {
        Kind::Float => (Compute::F32, Format::BF16, Format::BF16),
        Kind::Compare => (Compute::F32, Format::Bool, Format::F16),
        Kind::Bitwise => (Compute::I64, Format::Bit, Format::Bit),
        _ => (Compute::I64, Format::U8, Format::U8),
    };
    let inputs = row.inputs.iter().map(|input| if input.mask { Format::Bool } else { format });
    let formats: Vec<Format> = std::iter::once(result).chain(inputs).collect();
    let program = source_for(row.kernel.text().expect("a row's text"), compute, 1, &formats)
        .expect("formats");
    (format!("{} for {format:?}", row.name), program)
}

#[test]
fn rows_for_several_types() {
    if !is_asked_for() {
        return;
    }
    let rows = pointwise::tables().filter(|row| SAMPLED.contains(&row.name));
    let programs: Vec<_> = rows.map(narrow_program_of).collect();
    assert_eq!(programs.len(), SAMPLED.len());
    let wrong = complaints("rows_for_several_types", programs, For::OneOfThem);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rows_of_the_tables() {
    if !is_asked_for() {
        return;
    }
    let rows = pointwise::tables().chain(pointwise::updates());
    let wrong =
        complaints("rows_of_the_tables", rows.flat_map(programs_of).collect(), For::OneOfThem);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes the machine code of all programs of ops for one architecture, for `tools/read-kernels`: a file for each, and a
/// list of names and files.
#[test]
fn code_of_programs() {
    let Some(folder) = std::env::var_os("TORCHRS_KERNEL_CODE") else {
        return println!("skipped: tools/read-kernels runs this, with NVIDIA's compiler");
    };
    let folder = Path::new(&folder);
    let programs = catalogue::programs();
    let (next, list) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some((name, program)) = programs.get(next.fetch_add(1, Relaxed)) {
                    let code = program.compile((9, 0)).unwrap_or_else(|error| panic!("{error}"));
                    let file =
                        format!("{:016x}.cubin", digest(program.text(), digest(name, START)));
                    fs::write(folder.join(&file), &code).unwrap();
                    list.lock().unwrap().push(format!("{file} {name}"));
                }
            });
        }
    });
    let mut list = list.into_inner().unwrap();
    list.sort();
    fs::write(folder.join("list"), list.join("\n")).unwrap();
}

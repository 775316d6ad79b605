//! What the assembler says of kernels (`ptxas -v`).

/// What a kernel needs of a multiprocessor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The kernel's name.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's numbers that did not fit into registers, written to memory.
    pub spilled: u32,
    /// Bytes of a thread's own memory: what is spilled, and arrays with indices that are not constants.
    pub stack: u32,
    /// Bytes of shared memory that it declares.
    pub shared: u32,
}

/// Reads the assembler's log.
pub(crate) fn read(log: &str) -> Vec<Needs> {
    let mut all: Vec<Needs> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            all.push(Needs { kernel, ..Needs::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        let before = |unit: &str| {
            let (head, _) = line.split_once(unit)?;
            head.rsplit([' ', ',', '\t']).find(|word| !word.is_empty())?.parse().ok()
        };
        if let Some(bytes) = before(" bytes stack frame") {
            last.stack = bytes;
            last.spilled = before(" bytes spill stores").unwrap_or(0);
        }
        if let Some(registers) = before(" registers") {
            last.registers = registers;
            last.shared = before(" bytes smem").unwrap_or(0);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_two_kernels() {
        let log = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
";
        let needs = |kernel: &str, registers, spilled, stack, shared| Needs {
            kernel: kernel.to_owned(),
            registers,
            spilled,
            stack,
            shared,
        };
        assert_eq!(read(log), [needs("first", 40, 0, 0, 1024), needs("second", 255, 16, 24, 0)]);
    }
}

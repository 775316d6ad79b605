//! From CUDA C++ to a shared object: the preprocessor of the host's compiler with our headers, a rewrite
//! of what C++ has no word for ([`scan`]), and the compiler proper.

pub mod compiler;
pub mod options;
pub mod scan;
pub mod shared;

use options::Options;

/// A header that the program brings, by the name under which it is included.
#[derive(Debug, Clone)]
pub struct Header {
    /// The name.
    pub name: String,
    /// The text.
    pub text: String,
}

/// What our headers say, in their order.
const HEADERS: &[&str] = &[
    include_str!("../cuda/vector.h"),
    include_str!("../cuda/kernel.h"),
    include_str!("../cuda/math.h"),
    include_str!("../cuda/intrinsics.h"),
    include_str!("../cuda/atomic.h"),
    include_str!("../cuda/warp.h"),
    include_str!("../cuda/copies.h"),
];

/// Compiles a source; an image for `cuModuleLoadData`, or the compiler's complaint, and what it said
/// beside.
pub fn compile(
    source: &str,
    name: &str,
    headers: &[Header],
    options: &Options,
) -> (Option<Vec<u8>>, String) {
    let text = whole_text(source, name, options);
    let result = compiler::Workshop::open(headers).and_then(|workshop| {
        let (text, _) = workshop.preprocess(&text, options)?;
        let (text, kernels) = scan::rewrite(&text);
        let (object, log) = workshop.compile(&text, options)?;
        check_shared(&object, &kernels)?;
        Ok((object, log))
    });
    match result {
        Ok((object, log)) => (Some(crate::module::image(&object)), log),
        Err(log) => (None, log),
    }
}

/// Refuses kernels that declare more shared memory than there can be, as CUDA's assembler does.
fn check_shared(object: &[u8], kernels: &[String]) -> Result<(), String> {
    let names: Vec<&str> = kernels.iter().map(String::as_str).collect();
    let declared = shared::declared(object, &names)
        .ok_or("the compiler's object cannot be read for the shared memory of its kernels\n")?;
    let too_much = declared.iter().find(|(_, bytes)| **bytes > shared::MOST);
    match too_much {
        Some((name, bytes)) => Err(format!(
            "ptxas error   : Entry function '{name}' uses too much shared data ({bytes:#x} bytes, {:#x} max)\n",
            shared::MOST
        )),
        None => Ok(()),
    }
}

/// Our headers, the options' definitions and the source.
fn whole_text(source: &str, name: &str, options: &Options) -> String {
    let mut text = String::new();
    for header in HEADERS {
        text.push_str(header);
        text.push('\n');
    }
    text.push_str(&options.definitions);
    text.push_str(&format!("#line 1 \"{}\"\n", name.replace(['"', '\\', '\n'], "_")));
    text.push_str(source);
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_refused() {
        assert!(check_shared(b"not an object", &[]).unwrap_err().contains("cannot be read"));
    }
}

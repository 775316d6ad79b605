//! The book's pages, whose examples are compiled and run by `cargo test --doc`. A test finds pages that are missing here.

macro_rules! pages {
    ($($name:ident $path:literal;)*) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../docs/", $path))]
            struct $name;
        )*

        #[cfg(test)]
        const PAGES: &[&str] = &[$($path),*];
    };
}

pages! {
    FirstProgram "start/first-program.md";
    Tensors "guide/tensors.md";
    Autograd "guide/autograd.md";
    Modules "guide/modules.md";
    Distributions "guide/distributions.md";
    LanguageModels "guide/language-models.md";
    Data "guide/data.md";
    DataStreams "guide/data-streams.md";
    DataTransforms "guide/data-transforms.md";
    Files "guide/files.md";
    Python "guide/python.md";
    Onnx "guide/onnx.md";
    Training "guide/training.md";
    MixedPrecision "guide/mixed-precision.md";
    Profiling "guide/profiling.md";
    Errors "guide/errors.md";
    DataParallel "distributed/ddp.md";
    Sharding "distributed/sharding.md";
    Checkpoints "distributed/checkpoints.md";
    CheckpointFormats "distributed/checkpoint-formats.md";
    Loops "distributed/loops.md";
    Elasticity "distributed/elasticity.md";
    SharedTensors "distributed/shared.md";
    KernelsOfGpus "gpus/kernels.md";
    RunOnGpus "gpus/run.md";
    Graphs "gpus/streams.md";
    FromPyTorch "from-pytorch.md";
    Llama "recipes/llama.md";
    HuggingFace "recipes/hugging-face.md";
}

/// The program on the first page of the repository.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::PAGES;

    /// Pages with excerpts of the library's own sources, which no program of a user could hold.
    const EXCERPTS: &[&str] = &["adding-an-op.md"];

    fn markdown(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                markdown(&path, found);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }

    /// Whether a page has an example that the compiler can judge. Excerpts are marked as `rust,ignore`.
    fn has_example(page: &str) -> bool {
        page.lines().any(|line| line.starts_with("```rust") && !line.contains("ignore"))
    }

    #[test]
    fn every_page_with_an_example_is_compiled() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let mut all = Vec::new();
        markdown(&docs, &mut all);
        let name = |path: &Path| path.strip_prefix(&docs).unwrap().to_string_lossy().into_owned();
        let with = all.iter().filter(|path| has_example(&fs::read_to_string(path).unwrap()));
        let with: Vec<String> = with.map(|path| name(path)).collect();
        let is_listed = |page: &str| PAGES.contains(&page) || EXCERPTS.contains(&page);
        let missing: Vec<_> = with.iter().filter(|page| !is_listed(page)).collect();
        assert!(missing.is_empty(), "add {missing:?} to the list of pages");
        let stale: Vec<_> = PAGES.iter().filter(|page| !with.iter().any(|p| p == *page)).collect();
        assert!(stale.is_empty(), "no example in {stale:?}");
        assert!(with.len() > 10, "{with:?}");
    }
}

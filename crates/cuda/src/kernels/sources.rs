//! The files of `kernels/` at the top of the repository, which are in the program.

/// The files' names and texts.
macro_rules! files {
    ($($file:literal)+) => {
        &[$(($file, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $file)))),+]
    };
}

/// All files, by name.
const FILES: &[(&str, &str)] = files! {
    "attention.cu" "batch_norm.cu" "batch_norm_columns.cuh" "batch_norm_entries.cuh"
    "before.cuh" "bessel.cuh" "casts.cu" "cat.cu" "complex.cu" "conv.cu" "cross_entropy.cu" "ctc_loss.cu"
    "embedding_bag.cu" "fft.cu" "fill.cu" "first.cu" "flash.cu" "flash_tile.cuh" "fold.cuh" "fold_entries.cuh"
    "formula.cuh" "gradients.cu" "grid_sample.cu" "incomplete_gamma.cuh" "indexing.cu" "keys.cuh" "layer_norm.cu"
    "layer_norm_both.cu" "lengths.cu" "limits.cu" "linalg.cuh" "linalg_factors.cu"
    "linalg_jacobi.cu" "linalg_qr.cu" "masks.cu"
    "matmul.cu" "nll.cu" "order.cuh" "packed.cuh" "philox.cuh" "pieces.cuh" "pointwise.cuh" "polynomials.cuh" "pooling.cu"
    "prelude.cuh" "quotient.cuh" "random.cu" "rank.cu" "reduce.cu" "refusal.cuh" "resample.cu"
    "rnn.cu" "rotary.cu" "rows.cuh" "rows_entries.cuh" "scan.cu" "search.cu" "select.cu"
    "softmax.cu" "sort.cu" "special.cuh" "tile.cuh" "triangular.cu" "walk.cuh" "warp.cuh"
};

/// The text of a file of `kernels/`. A name that is not in the list ends the compilation that asks for it.
pub const fn text(file: &str) -> &'static str {
    let mut k = 0;
    while k < FILES.len() {
        if is_same(FILES[k].0.as_bytes(), file.as_bytes()) {
            return FILES[k].1;
        }
        k += 1;
    }
    panic!("no such file in the list of crates/cuda/src/kernels/sources.rs")
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut k = 0;
    while k < a.len() && k < b.len() && a[k] == b[k] {
        k += 1;
    }
    k == a.len() && k == b.len()
}

/// The length of texts one after the other.
pub const fn length(texts: &[&str]) -> usize {
    let (mut k, mut sum) = (0, 0);
    while k < texts.len() {
        sum += texts[k].len();
        k += 1;
    }
    sum
}

/// Texts one after the other, of that length.
pub const fn joined<const LENGTH: usize>(texts: &[&str]) -> [u8; LENGTH] {
    let mut all = [0; LENGTH];
    let mut rest: &mut [u8] = &mut all;
    let mut k = 0;
    while k < texts.len() {
        let (own, after) = rest.split_at_mut(texts[k].len());
        own.copy_from_slice(texts[k].as_bytes());
        (k, rest) = (k + 1, after);
    }
    all
}

/// The text of files of `kernels/`, one after the other, as one `&'static str`.
#[doc(hidden)]
#[macro_export]
macro_rules! kernel_text {
    ($file:literal $(,)?) => { const { $crate::kernels::sources::text($file) } };
    ($($file:literal),+ $(,)?) => {
        const {
            const TEXTS: &[&str] = &[$($crate::kernels::sources::text($file)),+];
            const ALL: [u8; $crate::kernels::sources::length(TEXTS)] =
                $crate::kernels::sources::joined(TEXTS);
            match ::std::str::from_utf8(&ALL) {
                Ok(text) => text,
                Err(_) => panic!("texts one after the other are a text"),
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    #[test]
    fn all_files_are_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
        let names: BTreeSet<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let listed: Vec<&str> = FILES.iter().map(|file| file.0).collect();
        assert_eq!(listed, names.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn files_come_one_after_the_other() {
        let all = kernel_text!("prelude.cuh", "fill.cu", "walk.cuh");
        let apart = [text("prelude.cuh"), text("fill.cu"), text("walk.cuh")];
        assert_eq!(all, apart.concat());
    }
}

//! The files of `kernels/` in the program, and the statics that ops make of them.

/// The text of files of `kernels/`, one after the other.
macro_rules! kernel_text {
    ($($file:literal),+ $(,)?) => {
        concat!($(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $file))),+)
    };
}

/// A [`Program`](crate::cuda::Program) of a name and files.
macro_rules! program {
    ($name:literal: $($file:literal),+) => {
        $crate::cuda::Program::new(
            $name,
            $crate::cuda::sources::kernel_text!("prelude.cuh"),
            $crate::cuda::sources::kernel_text!($($file),+),
        )
    };
}

/// A [`Family`](crate::cuda::kernels::family::Family) of a name and files.
macro_rules! family {
    ($name:literal: $($file:literal),+) => {
        $crate::cuda::family::Family::new(
            $name,
            $crate::cuda::sources::kernel_text!($($file),+),
        )
    };
}

/// Statics that hold a program's kernels of one name for each type: `PREFIX_f64` and so on for `floats`, then
/// the integers for `numbers`, and for `units` one for each number of bytes that are moved at once.
macro_rules! kernels_by {
    (floats of $program:ident: $($name:ident $prefix:literal;)+) => {$(
        static $name: [$crate::cuda::Kernel; 4] = $crate::cuda::sources::kernels_by!(
            $program $prefix: "_f64" "_f32" "_f16" "_bf16"
        );
    )+};
    (numbers of $program:ident: $($name:ident $prefix:literal;)+) => {$(
        static $name: [$crate::cuda::Kernel; 9] = $crate::cuda::sources::kernels_by!(
            $program $prefix: "_f64" "_f32" "_f16" "_bf16" "_i64" "_i32" "_i16" "_i8" "_u8"
        );
    )+};
    (units of $program:ident: $($name:ident $prefix:literal;)+) => {$(
        static $name: [$crate::cuda::Kernel; 5] = $crate::cuda::sources::kernels_by!(
            $program $prefix: "_1" "_2" "_4" "_8" "_16"
        );
    )+};
    ($program:ident $prefix:literal: $($suffix:literal)+) => {
        [$($crate::cuda::Kernel::new(&$program, concat!($prefix, $suffix))),+]
    };
}

pub(crate) use {family, kernel_text, kernels_by, program};

//! Loops over operands of any strides, tile by tile.

use torchrs_cpu::arch::isa::{Isa, available};
use torchrs_cpu::elementwise::kernel::{Formula, Kernel};
use torchrs_cpu::elementwise::tile::execute;
use torchrs_cpu::numbers::lane::Number;
use torchrs_loops::{Compute, Constant, Format, Operand};

/// `2 x + y - p`, and `x - y`.
struct Sample;
impl<S: Number> Formula<S, 2, 1, 2> for Sample {
    #[inline(always)]
    fn eval([x, y]: [S; 2], [p]: [S; 1]) -> [S; 2] {
        [x + x + y - p, x - y]
    }
}
static SAMPLE: Kernel = Kernel::number::<Sample, 2, 1, 2>();

fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d] as isize;
    }
    strides
}

/// Positions of all elements in row-major order.
fn positions(shape: &[usize], strides: &[isize]) -> Vec<usize> {
    let mut out = vec![0isize];
    for (&n, &s) in shape.iter().zip(strides) {
        out = out.iter().flat_map(|&p| (0..n as isize).map(move |i| p + i * s)).collect();
    }
    out.into_iter().map(|p| p as usize).collect()
}

/// Runs the kernel on f32 `x` with the given strides and i16 `y`, into f32 with strides `out`
/// and into a dense i64; checks every element and that nothing else was written.
fn check(shape: &[usize], out: &[isize], x: &[isize], y: &[isize]) {
    let n: usize = shape.iter().product();
    let places = [positions(shape, out), positions(shape, x), positions(shape, y)];
    let len = |k: usize| places[k].iter().max().map_or(1, |m| m + 1);
    let mut a = vec![-777f32; len(0)];
    let mut b = vec![-1i64; n];
    let mut xs: Vec<f32> = (0..len(1)).map(|i| i as f32 % 1000.0).collect();
    let mut ys: Vec<i16> = (0..len(2)).map(|i| (i % 501) as i16 - 250).collect();
    let dense = row_major(shape);
    let memory = |ptr: *mut u8, format, strides| Operand::Memory { ptr, format, shape, strides };
    let operands = [
        memory(a.as_mut_ptr().cast(), Format::F32, out),
        memory(b.as_mut_ptr().cast(), Format::I64, &dense),
        memory(xs.as_mut_ptr().cast(), Format::F32, x),
        memory(ys.as_mut_ptr().cast(), Format::I16, y),
    ];
    // SAFETY: the vectors have all elements that the strides name.
    unsafe { execute(&SAMPLE, Compute::F32, &[Constant::F(0.5)], shape, 2, &operands) };
    let mut written = vec![false; a.len()];
    for i in 0..n {
        let (x, y) = (xs[places[1][i]], ys[places[2][i]] as f32);
        assert_eq!(
            a[places[0][i]],
            2.0 * x + y - 0.5,
            "element {i} of {shape:?}, strides {x:?} {y:?}"
        );
        assert_eq!(b[i], (x - y) as i64, "element {i} of {shape:?}");
        written[places[0][i]] = true;
    }
    assert!(a.iter().zip(&written).all(|(v, w)| *w || *v == -777.0), "a gap was written");
}

#[test]
fn dense_strided_and_broadcast_operands() {
    for shape in [
        &[][..],
        &[1],
        &[5],
        &[3000],
        &[3, 4],
        &[700, 3],
        &[3, 700],
        &[2, 3, 500],
        &[40, 7, 9],
        &[300, 300],
        &[2, 40_000],
    ] {
        let dense = row_major(shape);
        let twice: Vec<isize> = dense.iter().map(|s| 2 * s).collect();
        let zero = vec![0; shape.len()];
        let mut reversed_shape = shape.to_vec();
        reversed_shape.reverse();
        let mut transposed = row_major(&reversed_shape);
        transposed.reverse();
        let mut row = dense.clone();
        row[..shape.len().saturating_sub(1)].fill(0);
        let mut column = dense.clone();
        if let Some(last) = column.last_mut() {
            *last = 0;
        }
        for out in [&dense, &twice, &transposed] {
            for (x, y) in [
                (&dense, &dense),
                (&dense, &row),
                (&column, &dense),
                (&row, &column),
                (&transposed, &twice),
                (&zero, &transposed),
            ] {
                check(shape, out, x, y);
            }
        }
    }
}

#[test]
fn nothing_happens_for_no_elements() {
    check(&[0], &[1], &[1], &[1]);
    check(&[3, 0, 2], &[0, 2, 1], &[0, 2, 1], &[0, 0, 0]);
}

#[test]
fn an_output_may_be_an_input() {
    for (shape, strides) in
        [(&[5000][..], &[1isize][..]), (&[50, 100], &[1, 50]), (&[400, 3], &[6, 2])]
    {
        let places = positions(shape, strides);
        let mut x: Vec<f64> = (0..places.iter().max().unwrap() + 1).map(|i| i as f64).collect();
        let mut y = x.clone();
        let at = |v: &mut Vec<f64>| Operand::Memory {
            ptr: v.as_mut_ptr().cast(),
            format: Format::F64,
            shape,
            strides,
        };
        let (px, py) = (at(&mut x), at(&mut y));
        // SAFETY: as above; both outputs are inputs.
        unsafe { execute(&SAMPLE, Compute::F64, &[Constant::I(1)], shape, 2, &[px, py, px, py]) };
        for p in places {
            assert_eq!((x[p], y[p]), (3.0 * p as f64 - 1.0, 0.0), "{shape:?} at {p}");
        }
    }
}

#[test]
fn all_instruction_sets_agree() {
    let n = 1000;
    let x: Vec<f64> = (0..n).map(|i| i as f64).collect();
    for isa in Isa::ALL.into_iter().filter(|&i| i <= available()) {
        let (mut a, mut b) = (vec![0f64; n], vec![0f64; n]);
        let pointers = [
            a.as_mut_ptr().cast(),
            b.as_mut_ptr().cast(),
            x.as_ptr().cast_mut().cast(),
            x.as_ptr().cast_mut().cast(),
        ];
        // SAFETY: four arrays of n values, one parameter, an instruction set that is there.
        unsafe { SAMPLE.tile(Compute::F64, isa)(pointers.as_ptr(), (&raw const x[7]).cast(), n) };
        assert!((0..n).all(|i| a[i] == 3.0 * i as f64 - 7.0 && b[i] == 0.0), "{isa:?}");
    }
}

//! Ops of group `linalg`.

use torchrs::linalg::{
    self, LstsqDriver, LstsqOptions, LuSolveOptions, NormOrder, QrMode, RankOptions,
    TriangularOptions, Uplo,
};

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop};

/// A flag that is only ever named.
fn flag(c: &Call, name: &str, default: bool) -> Outcome<bool> {
    c.flag(usize::MAX, name, default)
}

fn rank_options(c: &Call) -> Outcome<RankOptions<'_>> {
    // The older form has a relative tolerance second, the newer only named ones.
    let old = ["rcond", "tol"].into_iter().find(|name| c.given(1, name)).unwrap_or("rtol");
    let rtol = match c.given_operand(1, old)? {
        None => c.given_operand(usize::MAX, "rtol")?,
        rtol => rtol,
    };
    Ok(RankOptions {
        atol: c.given_operand(usize::MAX, "atol")?,
        rtol,
        hermitian: c.flag(2, "hermitian", false)?,
    })
}

fn uplo(c: &Call) -> Outcome<Uplo> {
    match &*c.text(1, "UPLO", "L")? {
        "L" => Ok(Uplo::L),
        "U" => Ok(Uplo::U),
        other => Err(Stop::Unwritable(format!("UPLO {other}"))),
    }
}

pub fn fill(t: &mut Table) {
    inverses(t);
    factors(t);
    values(t);
    t.op("linalg.diagonal", |c| {
        let (dim1, dim2) = (c.int(2, "dim1", -2)?, c.int(3, "dim2", -1)?);
        Ok(linalg::diagonal(c.tensor(0, "A")?, c.int(1, "offset", 0)?, dim1, dim2))
    });
    for name in ["linalg.matrix_exp", "matrix_exp"] {
        t.op(name, |c| Ok(c.tensor(0, "A")?.matrix_exp()));
    }
    t.op("linalg.vecdot", |c| {
        Ok(linalg::vecdot(c.tensor(0, "x")?, c.tensor(1, "y")?, c.int(2, "dim", -1)?))
    });
}

/// Inverses and solutions.
fn inverses(t: &mut Table) {
    for name in ["linalg.inv", "inverse"] {
        t.op(name, |c| Ok(c.tensor(0, "A")?.inverse()));
    }
    t.many("linalg.inv_ex", |c| {
        let (inverse, info) = linalg::inv_ex(c.tensor(0, "A")?);
        Ok(vec![inverse, info])
    });
    t.op("linalg.solve", |c| {
        let (a, b) = (c.tensor(0, "A")?, c.tensor(1, "B")?);
        Ok(if flag(c, "left", true)? { linalg::solve(a, b) } else { linalg::solve_right(a, b) })
    });
    t.op("linalg.solve_triangular", |c| {
        let options = TriangularOptions {
            upper: flag(c, "upper", false)?,
            left: flag(c, "left", true)?,
            unitriangular: flag(c, "unitriangular", false)?,
        };
        Ok(linalg::solve_triangular(c.tensor(0, "A")?, c.tensor(1, "B")?, options))
    });
    t.op("linalg.lu_solve", |c| {
        let (lu, pivots, b) = (c.tensor(0, "LU")?, c.tensor(1, "pivots")?, c.tensor(2, "B")?);
        let options =
            LuSolveOptions { left: flag(c, "left", true)?, adjoint: flag(c, "adjoint", false)? };
        Ok(linalg::lu_solve(lu, pivots, b, options))
    });
    t.op("cholesky_solve", |c| {
        let (b, factor) = (c.tensor(0, "B")?, c.tensor(1, "L")?);
        Ok(b.cholesky_solve(factor, c.flag(2, "upper", false)?))
    });
    t.op("cholesky_inverse", |c| {
        Ok(c.tensor(0, "L")?.cholesky_inverse(c.flag(1, "upper", false)?))
    });
    t.op("linalg.pinv", |c| Ok(linalg::pinv(c.tensor(0, "A")?, rank_options(c)?)));
    t.op("pinverse", |c| Ok(c.tensor(0, "input")?.pinverse(c.float(1, "rcond", 1e-15)?)));
    t.op("linalg.tensorinv", |c| Ok(linalg::tensorinv(c.tensor(0, "A")?, c.count(1, "ind", 2)?)));
    t.op("linalg.tensorsolve", |c| {
        let dims = c.maybe_ints(2, "dims")?.unwrap_or_default();
        Ok(linalg::tensorsolve(c.tensor(0, "A")?, c.tensor(1, "B")?, &dims))
    });
    t.many("linalg.lstsq", |c| {
        let driver = match &*c.text(3, "driver", "gelsy")? {
            "gels" => LstsqDriver::Gels,
            "gelsy" => LstsqDriver::Gelsy,
            "gelsd" => LstsqDriver::Gelsd,
            "gelss" => LstsqDriver::Gelss,
            other => return Err(Stop::Unwritable(format!("driver {other}"))),
        };
        let options = LstsqOptions { rcond: c.maybe_float(2, "rcond")?, driver };
        let found = linalg::lstsq(c.tensor(0, "A")?, c.tensor(1, "B")?, options);
        Ok(vec![found.solution, found.residuals, found.rank, found.singular_values])
    });
}

/// Factorisations.
fn factors(t: &mut Table) {
    for name in ["linalg.cholesky", "cholesky"] {
        t.op(name, |c| Ok(c.tensor(0, "A")?.cholesky(flag(c, "upper", false)?)));
    }
    t.many("linalg.cholesky_ex", |c| {
        let (l, info) = linalg::cholesky_ex(c.tensor(0, "A")?, flag(c, "upper", false)?);
        Ok(vec![l, info])
    });
    t.many("linalg.qr", |c| {
        let mode = match &*c.text(1, "mode", "reduced")? {
            "reduced" => QrMode::Reduced,
            "complete" => QrMode::Complete,
            "r" => QrMode::R,
            other => return Err(Stop::Unwritable(format!("mode {other}"))),
        };
        let (q, r) = linalg::qr(c.tensor(0, "A")?, mode);
        Ok(vec![q, r])
    });
    t.many("linalg.svd", |c| {
        let (u, s, vt) = linalg::svd(c.tensor(0, "A")?, c.flag(1, "full_matrices", true)?);
        Ok(vec![u, s, vt])
    });
    t.many("linalg.eigh", |c| {
        let (w, v) = linalg::eigh(c.tensor(0, "A")?, uplo(c)?);
        Ok(vec![w, v])
    });
    t.many("linalg.lu_factor", |c| {
        pivoted(c)?;
        let (lu, pivots) = linalg::lu_factor(c.tensor(0, "A")?);
        Ok(vec![lu, pivots])
    });
    t.many("linalg.lu_factor_ex", |c| {
        pivoted(c)?;
        let (lu, pivots, info) = linalg::lu_factor_ex(c.tensor(0, "A")?);
        Ok(vec![lu, pivots, info])
    });
    t.many("linalg.lu", |c| {
        pivoted(c)?;
        let (p, l, u) = linalg::lu(c.tensor(0, "A")?);
        Ok(vec![p, l, u])
    });
}

/// Elimination always exchanges rows, on PyTorch's CPU too.
fn pivoted(c: &Call) -> Outcome<()> {
    match flag(c, "pivot", true)? {
        true => Ok(()),
        false => Err(Stop::Unwritable("pivot=False".into())),
    }
}

/// Numbers that tell of a matrix.
fn values(t: &mut Table) {
    for name in ["linalg.det", "det"] {
        t.op(name, |c| Ok(c.tensor(0, "A")?.det()));
    }
    t.op("logdet", |c| Ok(c.tensor(0, "input")?.logdet()));
    for name in ["linalg.slogdet", "slogdet"] {
        t.many(name, |c| {
            let (sign, logarithm) = c.tensor(0, "A")?.slogdet();
            Ok(vec![sign, logarithm])
        });
    }
    t.op("linalg.svdvals", |c| Ok(linalg::svdvals(c.tensor(0, "A")?)));
    t.op("linalg.eigvalsh", |c| Ok(linalg::eigvalsh(c.tensor(0, "A")?, uplo(c)?)));
    t.op("linalg.matrix_rank", |c| Ok(linalg::matrix_rank(c.tensor(0, "A")?, rank_options(c)?)));
    t.op("linalg.cond", |c| {
        let ord = match c.get(1, "p") {
            Arg::None => NormOrder::P(2.0),
            Arg::Str(name) if name == "fro" => NormOrder::Fro,
            Arg::Str(name) if name == "nuc" => NormOrder::Nuc,
            _ => NormOrder::P(c.float(1, "p", 2.0)?),
        };
        Ok(linalg::cond(c.tensor(0, "A")?, ord))
    });
}

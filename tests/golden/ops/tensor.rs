//! Ops that only programs use, or that are no functions of `torch`.

use super::Table;

pub fn fill(t: &mut Table) {
    t.op("detach", |c| Ok(c.tensor(0, "input")?.detach()));
    t.op("requires_grad_", |c| {
        Ok(c.tensor(0, "input")?.requires_grad_(c.flag(1, "requires_grad", true)?))
    });
}

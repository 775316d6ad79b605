//! Ops that only programs use, or that are no functions of `torch`.

use super::Table;

pub fn fill(t: &mut Table) {
    t.op("detach", |c| Ok(c.tensor(0, "input")?.detach()));
    t.op("zero_", |c| {
        let x = c.tensor(0, "input")?;
        x.fill_(0.0);
        Ok(x.clone())
    });
    t.op("fill_", |c| {
        let (x, value) = (c.tensor(0, "input")?, c.float(1, "value", 0.0)?);
        x.fill_(value);
        Ok(x.clone())
    });
    t.op("copy_", |c| {
        let x = c.tensor(0, "input")?;
        x.copy_(c.tensor(1, "src")?);
        Ok(x.clone())
    });
    t.op("requires_grad_", |c| {
        Ok(c.tensor(0, "input")?.requires_grad_(c.flag(1, "requires_grad", true)?))
    });
}

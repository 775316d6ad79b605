//! Ops of group `binary`, and of `promotion`, which has the same.

use super::Table;

/// `x.op(other)`, and `x.op_(other)` for those behind the semicolon.
macro_rules! methods {
    ($t:ident: $($name:ident)*; $($inplace:ident)*) => {
        $($t.op(stringify!($name), |c| {
            Ok(c.tensor(0, "input")?.$name(c.operand(1, "other")?))
        });)*
        $($t.op(stringify!($inplace), |c| {
            Ok(c.tensor(0, "input")?.$inplace(c.operand(1, "other")?).clone())
        });)*
    };
}

pub fn fill(t: &mut Table) {
    methods! { t:
        mul eq ne lt le gt ge maximum minimum remainder floor_divide logical_and logical_or
        logical_xor bitwise_and bitwise_or bitwise_xor;
        mul_ eq_ ne_ lt_ le_ gt_ ge_ remainder_ floor_divide_ logical_and_ logical_or_
        logical_xor_ bitwise_and_ bitwise_or_ bitwise_xor_
    }
}

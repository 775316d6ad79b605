//! Rows: comparisons, logic and bits.
#![allow(clippy::eq_op, reason = "`x - x` is NaN for what is not finite, `x != x` is true for NaN")]

crate::pointwise! {
    table rows for Tensor;

    /// Equal (`torch.eq`).
    pub compare eq / eq_ (x, other) = eq(x, other);
    /// Not equal (`torch.ne`); true for NaN.
    pub compare ne / ne_ (x, other) = ne(x, other);
    /// Less (`torch.lt`).
    pub compare lt / lt_ (x, other) = lt(x, other);
    /// Less or equal (`torch.le`).
    pub compare le / le_ (x, other) = le(x, other);
    /// Greater (`torch.gt`).
    pub compare gt / gt_ (x, other) = gt(x, other);
    /// Greater or equal (`torch.ge`).
    pub compare ge / ge_ (x, other) = ge(x, other);

    /// Both are not zero (`torch.logical_and`).
    pub compare logical_and / logical_and_ (x, other) = ne(x, 0.0) & ne(other, 0.0);
    /// One is not zero (`torch.logical_or`).
    pub compare logical_or / logical_or_ (x, other) = ne(x, 0.0) | ne(other, 0.0);
    /// Exactly one is not zero (`torch.logical_xor`).
    pub compare logical_xor / logical_xor_ (x, other) = ne(x, 0.0) ^ ne(other, 0.0);
    /// Is zero (`torch.logical_not`).
    pub compare logical_not / logical_not_ (x) = eq(x, 0.0);

    /// Is not a number (`torch.isnan`).
    pub compare isnan(x) = ne(x, x);
    /// Is plus or minus infinity (`torch.isinf`).
    pub compare isinf(x) = eq(abs(x), INFINITY);
    /// Is neither infinite nor NaN (`torch.isfinite`).
    pub compare isfinite(x) = eq(x - x, 0.0);

    /// Bits set in both (`torch.bitwise_and`).
    pub bitwise bitwise_and / bitwise_and_ (x, other) = x & other;
    /// Bits set in one (`torch.bitwise_or`).
    pub bitwise bitwise_or / bitwise_or_ (x, other) = x | other;
    /// Bits set in exactly one (`torch.bitwise_xor`).
    pub bitwise bitwise_xor / bitwise_xor_ (x, other) = x ^ other;
    /// All bits flipped (`torch.bitwise_not`); of bool, "not".
    pub bitwise bitwise_not / bitwise_not_ (x) = !x;
}

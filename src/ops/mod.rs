//! Every operation, defined once: pointwise rows in tables, everything else one file each.

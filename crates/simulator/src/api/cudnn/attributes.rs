//! The attributes that descriptors have here: their numbers, types, and how many values.

use super::{Outcome, Status, refuse};

/// `cudnnBackendDescriptorType_t`, as far as there are such here.
pub mod kind {
    /// What a pointwise operation does.
    pub const POINTWISE: i32 = 0;
    /// A convolution's window.
    pub const CONVOLUTION: i32 = 1;
    /// An engine.
    pub const ENGINE: i32 = 2;
    /// An engine with its settings.
    pub const ENGINE_CONFIG: i32 = 3;
    /// The choice of engines.
    pub const HEURISTICS: i32 = 4;
    /// An execution plan.
    pub const PLAN: i32 = 5;
    /// y of x and w.
    pub const FORWARD: i32 = 10;
    /// dw of x and dy.
    pub const FILTERS: i32 = 11;
    /// dx of w and dy.
    pub const DATA: i32 = 12;
    /// A pointwise operation.
    pub const OF_POINTWISE: i32 = 13;
    /// A graph of operations.
    pub const GRAPH: i32 = 15;
    /// The addresses of an execution.
    pub const PACK: i32 = 16;
    /// A tensor.
    pub const TENSOR: i32 = 17;
    /// What a product of matrices does.
    pub const MATMUL: i32 = 18;
    /// A product of matrices.
    pub const OF_MATMUL: i32 = 19;
    /// What a reduction does.
    pub const REDUCTION: i32 = 21;
    /// A reduction.
    pub const OF_REDUCTION: i32 = 22;
    /// Another view of a tensor.
    pub const RESHAPE: i32 = 31;
}

/// `cudnnBackendAttributeType_t`.
pub mod of {
    /// A handle.
    pub const HANDLE: i32 = 0;
    /// `cudnnDataType_t`.
    pub const DATA_TYPE: i32 = 1;
    /// A truth value.
    pub const BOOLEAN: i32 = 2;
    /// 64 bits.
    pub const INT64: i32 = 3;
    /// f32.
    pub const FLOAT: i32 = 4;
    /// f64.
    pub const DOUBLE: i32 = 5;
    /// An address.
    pub const ADDRESS: i32 = 6;
    /// Convolution or correlation.
    pub const MODE: i32 = 7;
    /// Which heuristics.
    pub const HEURISTIC_MODE: i32 = 8;
    /// What an engine's numbers are like.
    pub const NOTE: i32 = 11;
    /// Which pointwise operation.
    pub const POINTWISE_MODE: i32 = 14;
    /// A descriptor.
    pub const DESCRIPTOR: i32 = 15;
    /// Which reduction.
    pub const FOLD: i32 = 18;

    /// Bytes of a value.
    pub fn bytes(kind: i32) -> usize {
        match kind {
            BOOLEAN => 1,
            DATA_TYPE | FLOAT | MODE | HEURISTIC_MODE | NOTE | POINTWISE_MODE | FOLD => 4,
            _ => 8,
        }
    }
}

/// A rule: the descriptors' kind, the attribute, its types, the most values, and whether it must be set.
type Rule = (i32, i32, &'static [i32], usize, bool);

const SCALE: &[i32] = &[of::FLOAT, of::DOUBLE];
/// The most operations of a graph.
const OPERATIONS: usize = 64;
const RULES: &[Rule] = &[
    (kind::POINTWISE, 0, &[of::POINTWISE_MODE], 1, true),
    (kind::POINTWISE, 1, &[of::DATA_TYPE], 1, true),
    (kind::POINTWISE, 9, &[of::INT64], 1, false),
    (kind::CONVOLUTION, 100, &[of::DATA_TYPE], 1, true),
    (kind::CONVOLUTION, 101, &[of::MODE], 1, true),
    (kind::CONVOLUTION, 102, &[of::INT64], 3, true),
    (kind::CONVOLUTION, 103, &[of::INT64], 3, true),
    (kind::CONVOLUTION, 104, &[of::INT64], 3, true),
    (kind::CONVOLUTION, 105, &[of::INT64], 3, true),
    (kind::CONVOLUTION, 106, &[of::INT64], 1, true),
    (kind::HEURISTICS, 200, &[of::HEURISTIC_MODE], 1, true),
    (kind::HEURISTICS, 201, &[of::DESCRIPTOR], 1, true),
    (kind::PLAN, 400, &[of::HANDLE], 1, true),
    (kind::PLAN, 401, &[of::DESCRIPTOR], 1, true),
    (kind::FORWARD, 700, SCALE, 1, true),
    (kind::FORWARD, 701, SCALE, 1, true),
    (kind::FORWARD, 702, &[of::DESCRIPTOR], 1, true),
    (kind::FORWARD, 703, &[of::DESCRIPTOR], 1, true),
    (kind::FORWARD, 704, &[of::DESCRIPTOR], 1, true),
    (kind::FORWARD, 705, &[of::DESCRIPTOR], 1, true),
    (kind::DATA, 706, SCALE, 1, true),
    (kind::DATA, 707, SCALE, 1, true),
    (kind::DATA, 708, &[of::DESCRIPTOR], 1, true),
    (kind::DATA, 709, &[of::DESCRIPTOR], 1, true),
    (kind::DATA, 710, &[of::DESCRIPTOR], 1, true),
    (kind::DATA, 711, &[of::DESCRIPTOR], 1, true),
    (kind::FILTERS, 712, SCALE, 1, true),
    (kind::FILTERS, 713, SCALE, 1, true),
    (kind::FILTERS, 714, &[of::DESCRIPTOR], 1, true),
    (kind::FILTERS, 715, &[of::DESCRIPTOR], 1, true),
    (kind::FILTERS, 716, &[of::DESCRIPTOR], 1, true),
    (kind::FILTERS, 717, &[of::DESCRIPTOR], 1, true),
    (kind::GRAPH, 800, &[of::HANDLE], 1, true),
    (kind::OF_POINTWISE, 750, &[of::DESCRIPTOR], 1, true),
    (kind::OF_POINTWISE, 751, &[of::DESCRIPTOR], 1, true),
    (kind::OF_POINTWISE, 752, &[of::DESCRIPTOR], 1, false),
    (kind::OF_POINTWISE, 753, &[of::DESCRIPTOR], 1, true),
    (kind::OF_POINTWISE, 758, &[of::DESCRIPTOR], 1, false),
    (kind::GRAPH, 801, &[of::DESCRIPTOR], OPERATIONS, true),
    (kind::TENSOR, 900, &[of::INT64], 1, true),
    (kind::TENSOR, 901, &[of::DATA_TYPE], 1, true),
    (kind::TENSOR, 902, &[of::INT64], 5, true),
    (kind::TENSOR, 903, &[of::INT64], 5, true),
    (kind::TENSOR, 906, &[of::INT64], 1, true),
    (kind::TENSOR, 907, &[of::BOOLEAN], 1, false),
    (kind::TENSOR, 908, &[of::BOOLEAN], 1, false),
    (kind::PACK, 1000, &[of::INT64], OPERATIONS, true),
    (kind::PACK, 1001, &[of::ADDRESS], OPERATIONS, true),
    (kind::PACK, 1003, &[of::ADDRESS], 1, false),
    (kind::MATMUL, 1500, &[of::DATA_TYPE], 1, true),
    (kind::OF_MATMUL, 1520, &[of::DESCRIPTOR], 1, true),
    (kind::OF_MATMUL, 1521, &[of::DESCRIPTOR], 1, true),
    (kind::OF_MATMUL, 1522, &[of::DESCRIPTOR], 1, true),
    (kind::OF_MATMUL, 1523, &[of::DESCRIPTOR], 1, true),
    (kind::REDUCTION, 1600, &[of::FOLD], 1, true),
    (kind::REDUCTION, 1601, &[of::DATA_TYPE], 1, true),
    (kind::OF_REDUCTION, 1610, &[of::DESCRIPTOR], 1, true),
    (kind::OF_REDUCTION, 1611, &[of::DESCRIPTOR], 1, true),
    (kind::OF_REDUCTION, 1612, &[of::DESCRIPTOR], 1, true),
    (kind::RESHAPE, 2200, &[of::DESCRIPTOR], 1, true),
    (kind::RESHAPE, 2201, &[of::DESCRIPTOR], 1, true),
];

/// Whether a descriptor of a kind takes so many values of a type as an attribute.
pub fn check(kind: i32, name: i32, of: i32, count: i64) -> Outcome {
    let Some(rule) = RULES.iter().find(|rule| (rule.0, rule.1) == (kind, name)) else {
        return refuse(
            Status::BAD_PARAM,
            format!("descriptors of kind {kind} have no attribute {name}"),
        );
    };
    if !rule.2.contains(&of) {
        return refuse(Status::ATTRIBUTE_TYPE, format!("attribute {name} is not of type {of}"));
    }
    if count < 1 || count as usize > rule.3 {
        return refuse(Status::BAD_PARAM, format!("attribute {name} takes no {count} values"));
    }
    Ok(())
}

/// The attributes that a descriptor of a kind must have.
pub fn required(kind: i32) -> impl Iterator<Item = i32> {
    RULES.iter().filter(move |rule| rule.0 == kind && rule.4).map(|rule| rule.1)
}

/// Whether there are descriptors of a kind here.
pub fn is_known(kind: i32) -> bool {
    [kind::ENGINE, kind::ENGINE_CONFIG].contains(&kind) || RULES.iter().any(|rule| rule.0 == kind)
}

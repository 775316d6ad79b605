//! Numbers that torchrs has of NVIDIA's headers: in which file of `crates/cuda/src` and in what text they stand, and how NVIDIA
//! calls them.

/// Where numbers stand, and what they are.
pub type Row = (&'static str, &'static str, &'static [(i64, &'static str)]);

pub const ROWS: &[Row] = &[
    ("work/event.rs", "const BLOCKING: c_uint = 1;", &[(1, "CU_EVENT_BLOCKING_SYNC")]),
    ("work/event.rs", "const NO_TIMING: c_uint = 2;", &[(2, "CU_EVENT_DISABLE_TIMING")]),
    ("work/event.rs", "const INTERPROCESS: c_uint = 4;", &[(4, "CU_EVENT_INTERPROCESS")]),
    ("work/stream.rs", "const NON_BLOCKING: c_uint = 1;", &[(1, "CU_STREAM_NON_BLOCKING")]),
    (
        "memory/pinned.rs",
        "const PORTABLE: c_uint = 1;",
        &[(1, "CU_MEMHOSTALLOC_PORTABLE"), (1, "CU_MEMHOSTREGISTER_PORTABLE")],
    ),
    (
        "memory/ipc.rs",
        "const LAZY_ENABLE_PEER_ACCESS: u32 = 1;",
        &[(1, "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS")],
    ),
    (
        "driver/relaxed.rs",
        "Global,|ThreadLocal,|Relaxed,",
        &[
            (0, "CU_STREAM_CAPTURE_MODE_GLOBAL"),
            (1, "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL"),
            (2, "CU_STREAM_CAPTURE_MODE_RELAXED"),
        ],
    ),
    ("memory/copy.rs", "const MEMORY_TYPE: c_int = 2;", &[(2, "CU_POINTER_ATTRIBUTE_MEMORY_TYPE")]),
    ("memory/copy.rs", "const DEVICE_MEMORY: c_int = 2;", &[(2, "CU_MEMORYTYPE_DEVICE")]),
    (
        "memory/copy.rs",
        "const DEVICE_ORDINAL: c_int = 9;",
        &[(9, "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL")],
    ),
    ("memory/copy.rs", "const INVALID_VALUE: Code = Code(1);", &[(1, "CUDA_ERROR_INVALID_VALUE")]),
    (
        "device/devices.rs",
        "capability: (figure(75)?, figure(76)?)",
        &[
            (75, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR"),
            (76, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR"),
        ],
    ),
    (
        "device/devices.rs",
        "multiprocessors: figure(16)?",
        &[(16, "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT")],
    ),
    (
        "device/devices.rs",
        "threads_per_multiprocessor: figure(39)?",
        &[(39, "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR")],
    ),
    (
        "device/devices.rs",
        "threads_per_block: figure(1)?",
        &[(1, "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK")],
    ),
    ("device/devices.rs", "warp_size: figure(10)?", &[(10, "CU_DEVICE_ATTRIBUTE_WARP_SIZE")]),
    (
        "device/devices.rs",
        "shared_memory_per_block: figure(8)?",
        &[(8, "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK")],
    ),
    (
        "device/devices.rs",
        "shared_memory_per_block_optin: figure(97)?",
        &[(97, "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")],
    ),
    ("device/devices.rs", "l2_cache: figure(38)?", &[(38, "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE")]),
    (
        "kernels/module.rs",
        "threads_per_block: figure(0)?",
        &[(0, "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK")],
    ),
    (
        "kernels/module.rs",
        "static_shared = figure(1)?",
        &[(1, "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES")],
    ),
    ("kernels/module.rs", "local_bytes: figure(3)?", &[(3, "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES")]),
    ("kernels/module.rs", "registers: figure(4)?", &[(4, "CU_FUNC_ATTRIBUTE_NUM_REGS")]),
    (
        "kernels/module.rs",
        "const MAX_DYNAMIC_SHARED_SIZE: c_int = 8;",
        &[(8, "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES")],
    ),
    ("driver/code.rs", "SUCCESS: Code = Code(0);", &[(0, "CUDA_SUCCESS")]),
    ("driver/code.rs", "OUT_OF_MEMORY: Code = Code(2);", &[(2, "CUDA_ERROR_OUT_OF_MEMORY")]),
    ("driver/code.rs", "NO_DEVICE: Code = Code(100);", &[(100, "CUDA_ERROR_NO_DEVICE")]),
    ("driver/code.rs", "NOT_READY: Code = Code(600);", &[(600, "CUDA_ERROR_NOT_READY")]),
    (
        "driver/code.rs",
        "PEER_ACCESS_ALREADY_ENABLED: Code = Code(704);",
        &[(704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED")],
    ),
    (
        "driver/code.rs",
        "(4, Hint(|34,|(46, Hint(|100,|(101, Hint(|201,|(209, Hint(|(218, Hint(|222,|(300, Hint(|803,|(900, Hint(|901,",
        &[
            (4, "CUDA_ERROR_DEINITIALIZED"),
            (34, "CUDA_ERROR_STUB_LIBRARY"),
            (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
            (101, "CUDA_ERROR_INVALID_DEVICE"),
            (201, "CUDA_ERROR_INVALID_CONTEXT"),
            (209, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
            (218, "CUDA_ERROR_INVALID_PTX"),
            (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
            (300, "CUDA_ERROR_INVALID_SOURCE"),
            (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
            (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
            (901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
        ],
    ),
    (
        "driver/code.rs",
        "(214, Sticky)|(226, Sticky)|(700, Sticky)|(702, Sticky)|(709, Sticky)|(710, Sticky)|(714, Sticky)|\
         (715, Sticky)|(716, Sticky)|(717, Sticky)|(718, Sticky)|(719, Sticky)",
        &[
            (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
            (226, "CUDA_ERROR_CONTAINED"),
            (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
            (702, "CUDA_ERROR_LAUNCH_TIMEOUT"),
            (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
            (710, "CUDA_ERROR_ASSERT"),
            (714, "CUDA_ERROR_HARDWARE_STACK_ERROR"),
            (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"),
            (716, "CUDA_ERROR_MISALIGNED_ADDRESS"),
            (717, "CUDA_ERROR_INVALID_ADDRESS_SPACE"),
            (718, "CUDA_ERROR_INVALID_PC"),
            (719, "CUDA_ERROR_LAUNCH_FAILED"),
        ],
    ),
    (
        "kernels/compile/nvrtc.rs",
        "SUCCESS: NvrtcCode = NvrtcCode(0);|INVALID_OPTION: NvrtcCode = NvrtcCode(5);|COMPILATION: NvrtcCode = NvrtcCode(6);",
        &[(0, "NVRTC_SUCCESS"), (5, "NVRTC_ERROR_INVALID_OPTION"), (6, "NVRTC_ERROR_COMPILATION")],
    ),
    (
        "libraries/cublaslt/mod.rs",
        "Kind::F32 | Kind::Tf32 => 0,|Kind::F64 => 1,|Kind::F16 => 2,|Kind::BF16 => 14,",
        &[(0, "CUDA_R_32F"), (1, "CUDA_R_64F"), (2, "CUDA_R_16F"), (14, "CUDA_R_16BF")],
    ),
    (
        "libraries/cublaslt/mod.rs",
        "Kind::F64 => (70, 1),|Kind::Tf32 => (77, 0),|_ => (68, 0),",
        &[
            (70, "CUBLAS_COMPUTE_64F"),
            (77, "CUBLAS_COMPUTE_32F_FAST_TF32"),
            (68, "CUBLAS_COMPUTE_32F"),
        ],
    ),
    (
        "libraries/cublaslt/mod.rs",
        "Epilogue::Plain => 1,|Epilogue::Bias => 4,|Epilogue::LeftSums => 512,|Epilogue::RightSums => 256,|\
         Epilogue::Active(Activation::Relu) => 134,|Epilogue::Active(Activation::GeluTanh) => 164,|\
         Epilogue::Backward(Activation::Relu) => 152,|Epilogue::Backward(Activation::GeluTanh) => 208,",
        &[
            (134, "CUBLASLT_EPILOGUE_RELU_AUX_BIAS"),
            (164, "CUBLASLT_EPILOGUE_GELU_AUX_BIAS"),
            (152, "CUBLASLT_EPILOGUE_DRELU_BGRAD"),
            (208, "CUBLASLT_EPILOGUE_DGELU_BGRAD"),
            (1, "CUBLASLT_EPILOGUE_DEFAULT"),
            (4, "CUBLASLT_EPILOGUE_BIAS"),
            (512, "CUBLASLT_EPILOGUE_BGRADB"),
            (256, "CUBLASLT_EPILOGUE_BGRADA"),
        ],
    ),
    (
        "libraries/cublaslt/mod.rs",
        "TURN_A: c_int = 3;|TURN_B: c_int = 4;|EPILOGUE: c_int = 7;|BIAS_POINTER: c_int = 8;|\
         KEPT_POINTER: c_int = 11;|KEPT_STEP: c_int = 12;|BIAS_TYPE: c_int = 26;",
        &[
            (11, "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER"),
            (12, "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD"),
            (3, "CUBLASLT_MATMUL_DESC_TRANSA"),
            (4, "CUBLASLT_MATMUL_DESC_TRANSB"),
            (7, "CUBLASLT_MATMUL_DESC_EPILOGUE"),
            (8, "CUBLASLT_MATMUL_DESC_BIAS_POINTER"),
            (26, "CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE"),
        ],
    ),
    (
        "libraries/cublaslt/mod.rs",
        "SetAttribute(layout.object, 5, at,|SetAttribute(layout.object, 6, step,",
        &[
            (5, "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT"),
            (6, "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET"),
        ],
    ),
    (
        "libraries/cublaslt/mod.rs",
        "set(1, (&raw const WORKSPACE)|in (5..).zip(&alignment)",
        &[
            (1, "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES"),
            (5, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES"),
            (6, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES"),
            (7, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES"),
            (8, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES"),
        ],
    ),
    (
        "libraries/cublaslt/table.rs",
        "SUCCESS: Status = Status(0);|NOT_SUPPORTED: Status = Status(15);|Status(3) => Err(Error::OutOfMemory",
        &[
            (0, "CUBLAS_STATUS_SUCCESS"),
            (15, "CUBLAS_STATUS_NOT_SUPPORTED"),
            (3, "CUBLAS_STATUS_ALLOC_FAILED"),
        ],
    ),
    (
        "libraries/cudnn/lie.rs",
        "Kind::F32 => 0,|Kind::F64 => 1,|Kind::F16 => 2,|Kind::BF16 => 9,",
        &[
            (0, "CUDNN_DATA_FLOAT"),
            (1, "CUDNN_DATA_DOUBLE"),
            (2, "CUDNN_DATA_HALF"),
            (9, "CUDNN_DATA_BFLOAT16"),
        ],
    ),
    (
        "libraries/cudnn/proposal.rs",
        "const JSON: c_int = 2702;",
        &[(2702, "CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION")],
    ),
    (
        "libraries/cudnn/table.rs",
        "SUCCESS: Status = Status(0);|Status(4003 | 4004)|(3000..4000)",
        &[
            (0, "CUDNN_STATUS_SUCCESS"),
            (3000, "CUDNN_STATUS_NOT_SUPPORTED"),
            (4003, "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
            (4004, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        ],
    ),
    (
        "libraries/cudnn/descriptor.rs",
        "Pointwise = 0,|Convolution = 1,|Engine = 2,|EngineConfig = 3,|Heuristics = 4,|Plan = 5,|Forward = 10,|\
         Filters = 11,|Data = 12,|PointwiseOperation = 13,|Graph = 15,|Pack = 16,|Tensor = 17,|Matmul = 18,|\
         MatmulOperation = 19,|Reduction = 21,|ReductionOperation = 22,|Reshape = 31,|Properties = 38,",
        &[
            (0, "CUDNN_BACKEND_POINTWISE_DESCRIPTOR"),
            (1, "CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR"),
            (2, "CUDNN_BACKEND_ENGINE_DESCRIPTOR"),
            (3, "CUDNN_BACKEND_ENGINECFG_DESCRIPTOR"),
            (4, "CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR"),
            (5, "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR"),
            (10, "CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR"),
            (11, "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR"),
            (12, "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR"),
            (13, "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR"),
            (15, "CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR"),
            (16, "CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR"),
            (17, "CUDNN_BACKEND_TENSOR_DESCRIPTOR"),
            (18, "CUDNN_BACKEND_MATMUL_DESCRIPTOR"),
            (19, "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR"),
            (21, "CUDNN_BACKEND_REDUCTION_DESCRIPTOR"),
            (22, "CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR"),
            (31, "CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR"),
            (38, "CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR"),
        ],
    ),
    (
        "libraries/cudnn/descriptor.rs",
        "DataType = Number<1>|Mode = Number<7>|HeuristicMode = Number<8>|Note = Number<11>|PointwiseMode = Number<14>|\
         Fold = Number<18>|Handle = 0, bool = 2, i64 = 3, f32 = 4, f64 = 5, Address = 6, Object = 15, u8 = 24",
        &[
            (1, "CUDNN_TYPE_DATA_TYPE"),
            (7, "CUDNN_TYPE_CONVOLUTION_MODE"),
            (8, "CUDNN_TYPE_HEUR_MODE"),
            (11, "CUDNN_TYPE_NUMERICAL_NOTE"),
            (14, "CUDNN_TYPE_POINTWISE_MODE"),
            (18, "CUDNN_TYPE_REDUCTION_OPERATOR_TYPE"),
            (0, "CUDNN_TYPE_HANDLE"),
            (2, "CUDNN_TYPE_BOOLEAN"),
            (3, "CUDNN_TYPE_INT64"),
            (4, "CUDNN_TYPE_FLOAT"),
            (5, "CUDNN_TYPE_DOUBLE"),
            (6, "CUDNN_TYPE_VOID_PTR"),
            (15, "CUDNN_TYPE_BACKEND_DESCRIPTOR"),
            (24, "CUDNN_TYPE_CHAR"),
        ],
    ),
    (
        "libraries/cudnn/plan.rs",
        "HEURISTICS: [HeuristicMode; 2] = [Number(3), Number(2)]|TENSOR_CORES: Note = Number(0)|\
         DOWN_CONVERTS: Note = Number(1)|REDUCED_SUMS: Note = Number(2)|NONDETERMINISTIC: Note = Number(4)",
        &[
            (3, "CUDNN_HEUR_MODE_A"),
            (2, "CUDNN_HEUR_MODE_FALLBACK"),
            (0, "CUDNN_NUMERICAL_NOTE_TENSOR_CORE"),
            (1, "CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS"),
            (2, "CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION"),
            (4, "CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC"),
        ],
    ),
    (
        "libraries/cudnn/plan.rs",
        "heuristics.set(200, &[mode])|heuristics.set(201, &[graph|heuristics.get::<Object>(202|\
         heuristics.set(204, &[properties|proposal.get(300, &mut [engine|plan.set(400, &[Handle(|\
         plan.set(401, &[parts|descriptor.get(402, &mut workspace)|plan.set(407, &[properties|\
         .get(1301, &mut number)|engine.get(1303, &mut notes)",
        &[
            (200, "CUDNN_ATTR_ENGINEHEUR_MODE"),
            (201, "CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH"),
            (202, "CUDNN_ATTR_ENGINEHEUR_RESULTS"),
            (204, "CUDNN_ATTR_ENGINEHEUR_DEVICEPROP"),
            (300, "CUDNN_ATTR_ENGINECFG_ENGINE"),
            (400, "CUDNN_ATTR_EXECUTION_PLAN_HANDLE"),
            (401, "CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG"),
            (402, "CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE"),
            (407, "CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP"),
            (1301, "CUDNN_ATTR_ENGINE_GLOBAL_INDEX"),
            (1303, "CUDNN_ATTR_ENGINE_NUMERICAL_NOTE"),
        ],
    ),
    (
        "libraries/cudnn/kept.rs",
        "pack.set(1000, work.names)|pack.set(1001, work.at)|pack.set(1003, &[Address(workspace",
        &[
            (1000, "CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS"),
            (1001, "CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS"),
            (1003, "CUDNN_ATTR_VARIANT_PACK_WORKSPACE"),
        ],
    ),
    (
        "libraries/cudnn/convolution.rs",
        "window.set(100, &[kind.compute()])|window.set::<Mode>(101, &[Number(1)])|window.set(102, &problem.dilation|\
         window.set(103, &problem.stride|window.set(104, &problem.padding|window.set(105, &problem.padding|\
         window.set(106, &[spatial",
        &[
            (1, "CUDNN_CROSS_CORRELATION"),
            (100, "CUDNN_ATTR_CONVOLUTION_COMP_TYPE"),
            (101, "CUDNN_ATTR_CONVOLUTION_CONV_MODE"),
            (102, "CUDNN_ATTR_CONVOLUTION_DILATIONS"),
            (103, "CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES"),
            (104, "CUDNN_ATTR_CONVOLUTION_POST_PADDINGS"),
            (105, "CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS"),
            (106, "CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS"),
        ],
    ),
    (
        "libraries/cudnn/convolution.rs",
        "the convolution, x, w, y, alpha, beta|(Type::Forward, [702, 704, 703, 705, 700, 701])|\
         (Type::Data, [708, 710, 709, 711, 706, 707])|(Type::Filters, [714, 716, 715, 717, 712, 713])",
        &[
            (702, "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC"),
            (704, "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X"),
            (703, "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W"),
            (705, "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y"),
            (700, "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA"),
            (701, "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA"),
            (708, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC"),
            (710, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX"),
            (709, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W"),
            (711, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY"),
            (706, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA"),
            (707, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA"),
            (714, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC"),
            (716, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X"),
            (715, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW"),
            (717, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY"),
            (712, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA"),
            (713, "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA"),
        ],
    ),
    (
        "libraries/cudnn/operations.rs",
        "F32: DataType = Number(0)|I32: DataType = Number(4)|TRUTH: DataType = Number(11)|ADD: PointwiseMode = Number(0)|\
         MULTIPLY: PointwiseMode = Number(1)|DIVIDE: PointwiseMode = Number(6)|SUBTRACT: PointwiseMode = Number(9)|\
         EXP: PointwiseMode = Number(13)|LOG: PointwiseMode = Number(15)|IDENTITY: PointwiseMode = Number(21)|\
         AT_LEAST: PointwiseMode = Number(303)|INDEX: PointwiseMode = Number(501)|SELECT: PointwiseMode = Number(601)|\
         SUM: Fold = Number(0)|MAXIMUM: Fold = Number(3)",
        &[
            (0, "CUDNN_DATA_FLOAT"),
            (4, "CUDNN_DATA_INT32"),
            (11, "CUDNN_DATA_BOOLEAN"),
            (0, "CUDNN_POINTWISE_ADD"),
            (1, "CUDNN_POINTWISE_MUL"),
            (6, "CUDNN_POINTWISE_DIV"),
            (9, "CUDNN_POINTWISE_SUB"),
            (13, "CUDNN_POINTWISE_EXP"),
            (15, "CUDNN_POINTWISE_LOG"),
            (21, "CUDNN_POINTWISE_IDENTITY"),
            (303, "CUDNN_POINTWISE_CMP_GE"),
            (501, "CUDNN_POINTWISE_GEN_INDEX"),
            (601, "CUDNN_POINTWISE_BINARY_SELECT"),
            (0, "CUDNN_REDUCE_TENSOR_ADD"),
            (3, "CUDNN_REDUCE_TENSOR_MAX"),
        ],
    ),
    (
        "libraries/cudnn/operations.rs",
        "tensor.set(900, &[alignment])|tensor.set(901, &[of])|tensor.set(902, sizes)|tensor.set(903, strides)|\
         tensor.set(906, &[name])|tensor.set(907, &[true])|tensor.set(908, &[true])|graph.set(800, &[Handle(|\
         graph.set(801, &self.operations)",
        &[
            (900, "CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT"),
            (901, "CUDNN_ATTR_TENSOR_DATA_TYPE"),
            (902, "CUDNN_ATTR_TENSOR_DIMENSIONS"),
            (903, "CUDNN_ATTR_TENSOR_STRIDES"),
            (906, "CUDNN_ATTR_TENSOR_UNIQUE_ID"),
            (907, "CUDNN_ATTR_TENSOR_IS_VIRTUAL"),
            (908, "CUDNN_ATTR_TENSOR_IS_BY_VALUE"),
            (800, "CUDNN_ATTR_OPERATIONGRAPH_HANDLE"),
            (801, "CUDNN_ATTR_OPERATIONGRAPH_OPS"),
        ],
    ),
    (
        "libraries/cudnn/operations.rs",
        "operator.set(0, &[mode])|operator.set(1, &[compute])|operator.set(9, &[axis])|Some((750, operator))|\
         &[(751, x), (753, y)]|(752, b)|(758, &seen)|operator.set(1500, &[F32])|[(1520, a), (1521, b), (1522, c)]|\
         Some((1523, operator))|operator.set(1600, &[how])|operator.set(1601, &[F32])|\
         Some((1612, operator)), &[(1610, x), (1611, y)]|&[(2200, x), (2201, &y)]",
        &[
            (0, "CUDNN_ATTR_POINTWISE_MODE"),
            (1, "CUDNN_ATTR_POINTWISE_MATH_PREC"),
            (9, "CUDNN_ATTR_POINTWISE_AXIS"),
            (750, "CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR"),
            (751, "CUDNN_ATTR_OPERATION_POINTWISE_XDESC"),
            (752, "CUDNN_ATTR_OPERATION_POINTWISE_BDESC"),
            (753, "CUDNN_ATTR_OPERATION_POINTWISE_YDESC"),
            (758, "CUDNN_ATTR_OPERATION_POINTWISE_TDESC"),
            (1500, "CUDNN_ATTR_MATMUL_COMP_TYPE"),
            (1520, "CUDNN_ATTR_OPERATION_MATMUL_ADESC"),
            (1521, "CUDNN_ATTR_OPERATION_MATMUL_BDESC"),
            (1522, "CUDNN_ATTR_OPERATION_MATMUL_CDESC"),
            (1523, "CUDNN_ATTR_OPERATION_MATMUL_DESC"),
            (1600, "CUDNN_ATTR_REDUCTION_OPERATOR"),
            (1601, "CUDNN_ATTR_REDUCTION_COMP_TYPE"),
            (1610, "CUDNN_ATTR_OPERATION_REDUCTION_XDESC"),
            (1611, "CUDNN_ATTR_OPERATION_REDUCTION_YDESC"),
            (1612, "CUDNN_ATTR_OPERATION_REDUCTION_DESC"),
            (2200, "CUDNN_ATTR_OPERATION_RESHAPE_XDESC"),
            (2201, "CUDNN_ATTR_OPERATION_RESHAPE_YDESC"),
        ],
    ),
    (
        "libraries/nccl/table.rs",
        "SUCCESS: NcclCode = NcclCode(0);|IN_PROGRESS: NcclCode = NcclCode(7);|I8 = 0,|U8 = 1,|I32 = 2,|I64 = 4,|F16 = 6,|\
         F32 = 7,|F64 = 8,|BF16 = 9,|Sum = 0,|Product = 1,|Max = 2,|Min = 3,|Avg = 4,",
        &[
            (0, "ncclSuccess"),
            (7, "ncclInProgress"),
            (0, "ncclInt8"),
            (1, "ncclUint8"),
            (2, "ncclInt32"),
            (4, "ncclInt64"),
            (6, "ncclFloat16"),
            (7, "ncclFloat32"),
            (8, "ncclFloat64"),
            (9, "ncclBfloat16"),
            (0, "ncclSum"),
            (1, "ncclProd"),
            (2, "ncclMax"),
            (3, "ncclMin"),
            (4, "ncclAvg"),
        ],
    ),
];

//! A model on paper of sharded training on up to 1,024 GPUs: what of gathers and reductions computing does not hide.
//! Everything about GPUs and networks in here is an assumption.

/// GPUs that NVLink joins.
const NODE: usize = 8;
/// Bytes per second and GPU: NVLink 4 as collectives use it, of 450 GB/s; InfiniBand NDR, of 50 GB/s.
const NVLINK: f64 = 370e9;
const NETWORK: f64 = 45e9;
/// Seconds for a message to the next GPU of a ring, in a node and to another.
const HOPS: [f64; 2] = [2e-6, 6e-6];
/// Multiply-adds and additions per second: 40% of 989 TFLOP/s in bf16.
const FLOPS: f64 = 0.4 * 989e12;

/// A transformer whose blocks are sharded one by one.
struct Model {
    name: &'static str,
    blocks: usize,
    /// Weights of a block, and of what is around the blocks.
    block: f64,
    rest: f64,
    /// Of a step, on each GPU.
    tokens: &'static [f64],
}

/// Llama 3.1's.
const MODELS: [Model; 2] = [
    Model {
        name: "8 billion weights",
        blocks: 32,
        block: 218.1e6,
        rest: 1050.7e6,
        tokens: &[16384.0, 1024.0],
    },
    Model {
        name: "70 billion weights",
        blocks: 80,
        block: 855.7e6,
        rest: 2101.3e6,
        tokens: &[4096.0],
    },
];

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Shards over all GPUs, given back after forward.
    Full,
    /// Shards over all GPUs, kept until backward.
    Keep,
    /// Shards in a node, and replicas of it.
    Hybrid,
}

/// An all-gather or a reduce-scatter of so many bytes in a ring over `n` GPUs. Every byte reaches each node once, through
/// all its adapters, and each GPU by NVLink.
fn ring(bytes: f64, n: usize) -> f64 {
    let nodes = n.div_ceil(NODE);
    let share = |count: usize| (count as f64 - 1.0) / count as f64;
    let inside = bytes * share(n) / NVLINK;
    let between = bytes * share(nodes) / (NETWORK * NODE as f64);
    let hops = (n - nodes) as f64 * HOPS[0] + (nodes - 1) as f64 * HOPS[1];
    inside.max(between) + hops
}

/// An all-reduce of each GPU's part with its like in other nodes.
fn between_replicas(bytes: f64, nodes: usize) -> f64 {
    let share = 2.0 * (nodes as f64 - 1.0) / nodes as f64;
    let tree = 2.0 * (nodes as f64).log2().ceil() * HOPS[1];
    if nodes == 1 { 0.0 } else { share * bytes / NODE as f64 / NETWORK + tree }
}

/// Seconds of a step's communication, of what of it is exposed, and of computing.
fn step(model: &Model, way: Way, n: usize, tokens: f64) -> (f64, f64, f64) {
    let over = if way == Way::Hybrid { n.min(NODE) } else { n };
    let nodes = if way == Way::Hybrid { n.div_ceil(NODE) } else { 1 };
    let groups = std::iter::once(model.rest).chain(std::iter::repeat_n(model.block, model.blocks));
    let groups: Vec<f64> = groups.collect();
    let forward = |weights: f64| 2.0 * weights * tokens / FLOPS;
    // Weights travel in bf16, gradients in f32.
    let gather = |weights: f64| ring(2.0 * weights, over);
    let reduce = |weights: f64| ring(4.0 * weights, over) + between_replicas(4.0 * weights, nodes);
    let (mut all, mut exposed, mut compute) = (0.0, 0.0, 0.0);
    for (place, &weights) in groups.iter().enumerate() {
        // The first gather, and the reduction of the group that backward reaches last, have nothing to hide behind. Any
        // other goes on while its neighbour computes.
        let again = if way == Way::Full && place > 0 { gather(weights) } else { 0.0 };
        let (ahead, back) = (gather(weights), again + reduce(weights));
        let (own, twice) = (forward(weights), 2.0 * forward(weights));
        all += ahead + back;
        compute += own + twice;
        exposed += if place == 0 { ahead + reduce(weights) } else { (ahead - own).max(0.0) };
        exposed += if place == 0 { 0.0 } else { (back - twice).max(0.0) };
    }
    (all, exposed, compute)
}

/// Gigabytes of a GPU: shards of weights, gradients and Adam's averages in f32, and two gathered blocks in bf16 with the
/// gradient of one in f32.
fn memory(model: &Model, way: Way, n: usize) -> f64 {
    let over = if way == Way::Hybrid { n.min(NODE) } else { n };
    let weights = model.rest + model.blocks as f64 * model.block;
    let gathered = match way {
        Way::Keep => 2.0 * weights,
        _ => 2.0 * model.rest + 4.0 * model.block,
    };
    (16.0 * weights / over as f64 + gathered + 4.0 * model.block) / 1e9
}

/// Prints the tables.
pub fn print() {
    for model in &MODELS {
        for &tokens in model.tokens {
            println!("\n{}, {tokens} tokens per GPU\n", model.name);
            println!(
                "| GPUs | computing | given back: communication | exposed | efficiency | GB | kept: exposed | \
                 efficiency | GB | in a node, replicas: exposed | efficiency | GB |"
            );
            println!("| {} |", ["---"; 12].join(" | "));
            for n in [8, 64, 256, 1024] {
                let [full, keep, hybrid] = [Way::Full, Way::Keep, Way::Hybrid].map(|way| {
                    let (all, exposed, compute) = step(model, way, n, tokens);
                    let slowest = 1.0 + super::paper::slowest(n);
                    (
                        all,
                        exposed,
                        compute,
                        compute / (compute * slowest + exposed),
                        memory(model, way, n),
                    )
                });
                let (all, compute) = (full.0 * 1e3, full.2 * 1e3);
                let shown = |(_, exposed, _, efficiency, memory): (f64, f64, f64, f64, f64)| {
                    format!("{:.0} ms | {efficiency:.3} | {memory:.0}", exposed * 1e3)
                };
                println!(
                    "| {n} | {compute:.0} ms | {all:.0} ms | {} | {} | {} |",
                    shown(full),
                    shown(keep),
                    shown(hybrid)
                );
            }
        }
    }
}

//! The graph of a result as a picture (torchviz's `make_dot`): in DOT, for Graphviz and others, and as SVG.
//!
//! Time goes down: leaves stand above the ops that use them, the result stands below all.

mod layout;

use std::collections::HashMap;
use std::fmt::Write;

use super::node::{Kind, Node};
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// What stands at a point of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A leaf: name and shape.
    Leaf,
    /// A recorded op.
    Op,
    /// The result.
    Output,
}

#[derive(Debug)]
struct Vertex {
    role: Role,
    /// Lines.
    label: Vec<String>,
}

/// Points, and arrows from what is computed first.
#[derive(Debug, Default)]
struct Graph {
    vertices: Vec<Vertex>,
    edges: Vec<(usize, usize)>,
}

impl Graph {
    fn add(&mut self, role: Role, label: Vec<String>) -> usize {
        self.vertices.push(Vertex { role, label });
        self.vertices.len() - 1
    }

    #[track_caller]
    fn of(call: &str, output: &Tensor, params: &[(String, Tensor)]) -> Graph {
        let Some(root) = output.gradient_edge() else {
            throw(Error::Autograd(format!(
                "{call}: the tensor does not require a gradient and has no history: there is no graph"
            )))
        };
        let names: HashMap<usize, &str> =
            params.iter().map(|(name, tensor)| (tensor.identity(), name.as_str())).collect();
        let mut graph = Graph::default();
        let mut known: HashMap<*const (), usize> = HashMap::new();
        let key = |node: &Node| node.0.as_ptr().cast::<()>();
        let bottom = graph.add(Role::Output, vec![format!("{:?}", output.shape())]);
        let top = graph.add(Role::Op, vec![root.node.name().to_owned()]);
        graph.edges.push((top, bottom));
        known.insert(key(&root.node), top);
        let mut open = vec![(root.node, root.leaf, top)];
        while let Some((node, leaf, place)) = open.pop() {
            if matches!(node.0.kind, Kind::Accumulate(_)) {
                let mut label = Vec::new();
                if let Some(leaf) = leaf.or_else(|| node.leaf()) {
                    let name = names.get(&leaf.identity()).map(|name| (*name).to_owned());
                    label.extend(name.or_else(|| leaf.name_hint()));
                    label.push(format!("{:?}", leaf.shape()));
                }
                let above = graph.add(Role::Leaf, label);
                graph.edges.push((above, place));
            }
            for edge in node.0.edges.iter().flatten() {
                let above = *known.entry(key(&edge.node)).or_insert_with(|| {
                    let new = graph.add(Role::Op, vec![edge.node.name().to_owned()]);
                    open.push((edge.node.clone(), edge.leaf.clone(), new));
                    new
                });
                graph.edges.push((above, place));
            }
        }
        // Two arrows between two points, as of `x * x`, are one.
        let mut seen = std::collections::HashSet::new();
        graph.edges.retain(|edge| seen.insert(*edge));
        graph
    }
}

/// The graph that computed `output`, in the language of Graphviz (`torchviz.make_dot`). `params` gives leaves their
/// names, as [`named_parameters`](crate::nn::Module::named_parameters) does; without, leaves have those that their model
/// gave them.
///
/// ```
/// use torchrs::{Dtype::F32, Tensor, autograd::graph, nn::{Forward, Linear, Module}};
/// let layer = Linear::new(3, 2);
/// let loss = layer.forward(&Tensor::ones([4, 3], F32)).exp().sum();
/// let dot = graph::to_dot(&loss, &layer.named_parameters());
/// assert!(dot.contains(r#"label="weight\n[2, 3]""#) && dot.contains(r#"label="exp""#));
/// ```
///
/// # Panics
/// Throws [`Error::Autograd`] for a tensor without history.
#[track_caller]
pub fn to_dot(output: &Tensor, params: &[(String, Tensor)]) -> String {
    let graph = Graph::of("graph::to_dot", output, params);
    let mut text =
        "digraph {\n    graph [rankdir=TB]\n    node [align=left fontname=monospace fontsize=10 \
                    height=0.2 ranksep=0.1 shape=box style=filled]\n"
            .to_owned();
    for (i, vertex) in graph.vertices.iter().enumerate() {
        let label = vertex.label.join("\n").replace('\\', "\\\\").replace('"', "\\\"");
        let label = label.replace('\n', "\\n");
        let _ = writeln!(text, "    n{i} [label=\"{label}\" fillcolor={}]", color(vertex.role).0);
    }
    for (from, to) in &graph.edges {
        let _ = writeln!(text, "    n{from} -> n{to}");
    }
    text + "}\n"
}

/// The same graph as a picture, without a program that draws it.
///
/// ```
/// use torchrs::{Tensor, autograd::graph};
/// let w = Tensor::from([2f32]).requires_grad_(true);
/// let svg = graph::to_svg(&(&w * 3.0).sum(), &[("w".to_owned(), w.clone())]);
/// assert!(svg.starts_with("<svg") && svg.contains(">w</text>") && svg.contains(">mul</text>"));
/// ```
///
/// # Panics
/// As [`to_dot`].
#[track_caller]
pub fn to_svg(output: &Tensor, params: &[(String, Tensor)]) -> String {
    layout::svg(&Graph::of("graph::to_svg", output, params))
}

/// A role's color by Graphviz's name and as a number.
fn color(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::Leaf => ("lightblue", "#add8e6"),
        Role::Op => ("lightgrey", "#d3d3d3"),
        Role::Output => ("darkolivegreen1", "#caff70"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Dtype::F32;

    #[test]
    fn all_arrows_end_at_points_and_all_points_lead_to_the_result() {
        let w = Tensor::ones([3, 2], F32).requires_grad_(true);
        let b = Tensor::ones([2], F32).requires_grad_(true);
        let x = Tensor::ones([4, 3], F32);
        let y = x.matmul(&w) + &b;
        let loss = (&y * &y + y.exp()).sum();
        let params = [("a \"w\"".to_owned(), w.clone()), ("b".to_owned(), b.clone())];
        let dot = to_dot(&loss, &params);
        let lines: Vec<&str> = dot.lines().map(str::trim).collect();
        let points: Vec<&str> = lines
            .iter()
            .filter_map(|l| l.split_once(" [label=").map(|(name, _)| name))
            .filter(|name| name.starts_with('n') && name[1..].parse::<usize>().is_ok())
            .collect();
        let arrows: Vec<(&str, &str)> = lines.iter().filter_map(|l| l.split_once(" -> ")).collect();
        assert!(arrows.iter().all(|(a, b)| points.contains(a) && points.contains(b)), "{dot}");
        let ends: Vec<&&str> =
            points.iter().filter(|p| arrows.iter().all(|(a, _)| a != *p)).collect();
        assert_eq!(ends, [&"n0"], "{dot}");
        let starts = points.iter().filter(|p| arrows.iter().all(|(_, b)| b != *p));
        assert_eq!(starts.count(), 2, "{dot}");
        assert!(dot.contains("label=\"a \\\"w\\\"\\n[3, 2]\" fillcolor=lightblue"), "{dot}");
        assert_eq!(dot.matches("label=\"accumulate_grad\"").count(), 2);
        assert_eq!(dot.matches("label=\"mm\"").count(), 1);
        assert_eq!(lines.len() - 4, points.len() + arrows.len());
    }

    #[test]
    fn a_long_chain_and_no_graph_at_all() {
        let w = Tensor::ones([1], F32).requires_grad_(true);
        let mut y = w.clone();
        for _ in 0..5000 {
            y = y.sin();
        }
        assert_eq!(to_dot(&y, &[]).matches("label=\"sin\"").count(), 5000);
        assert_eq!(to_svg(&y, &[]).matches("<rect").count(), 5003);
        let error = crate::error::catch(|| to_dot(&w.detach(), &[])).unwrap_err();
        assert!(error.to_string().contains("there is no graph"), "{error}");
        // A leaf is its own graph.
        assert!(to_dot(&w, &[("w".to_owned(), w.clone())]).contains("label=\"w\\n[1]\""));
    }

    /// `TORCHRS_TEST_WRITE_DOCS=1` draws it anew.
    #[test]
    fn the_books_picture_is_what_is_drawn() {
        use crate::nn::{Forward, Linear, Module};
        let layer = Linear::new(3, 2);
        let loss = layer.forward(&Tensor::ones([4, 3], F32)).exp().sum();
        let svg = to_svg(&loss, &layer.named_parameters());
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/graph.svg");
        if std::env::var_os("TORCHRS_TEST_WRITE_DOCS").is_some() {
            std::fs::write(path, &svg).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), svg);
    }
}

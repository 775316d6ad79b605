//! A graph in layers: each point below all that lead to it, in each layer near those that it hangs on (Sugiyama, Tagawa
//! and Toda, 1981).

use std::fmt::Write;

use super::{Graph, color};

/// Of a letter, of a line and between boxes, in pixels.
const LETTER: f64 = 6.6;
const LINE: f64 = 14.0;
const GAP: [f64; 2] = [24.0, 34.0];
/// How often layers are ordered by their neighbours.
const SWEEPS: usize = 8;

/// The picture.
pub(super) fn svg(graph: &Graph) -> String {
    let sizes: Vec<[f64; 2]> = graph
        .vertices
        .iter()
        .map(|vertex| {
            let longest = vertex.label.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            [longest as f64 * LETTER + 14.0, vertex.label.len().max(1) as f64 * LINE + 8.0]
        })
        .collect();
    let layers = layers(graph);
    let places = places(graph, &layers, &sizes);
    let right = places.iter().zip(&sizes).map(|(at, size)| at[0] + size[0] / 2.0);
    let bottom = places.iter().zip(&sizes).map(|(at, size)| at[1] + size[1]);
    let (width, height) = (right.fold(0.0, f64::max) + 10.0, bottom.fold(0.0, f64::max) + 10.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"monospace\" font-size=\"11\">\n<defs><marker id=\"arrow\" markerWidth=\"8\" markerHeight=\"8\" \
         refX=\"7\" refY=\"3\" orient=\"auto\"><path d=\"M0,0 L7,3 L0,6 z\"/></marker></defs>\n"
    );
    for &(from, to) in &graph.edges {
        let ([x, y], [tx, ty]) = (places[from], places[to]);
        let y = y + sizes[from][1];
        let middle = (y + ty) / 2.0;
        let _ = writeln!(
            text,
            "<path d=\"M{x:.1},{y:.1} C{x:.1},{middle:.1} {tx:.1},{middle:.1} {tx:.1},{ty:.1}\" fill=\"none\" \
             stroke=\"#555\" marker-end=\"url(#arrow)\"/>"
        );
    }
    for ((vertex, [x, y]), [w, h]) in graph.vertices.iter().zip(&places).zip(&sizes) {
        let _ = writeln!(
            text,
            "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{}\" stroke=\"#555\"/>",
            x - w / 2.0,
            color(vertex.role).1
        );
        for (i, line) in vertex.label.iter().enumerate() {
            let line = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let y = y + LINE * (i + 1) as f64;
            let _ = writeln!(
                text,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{line}</text>"
            );
        }
    }
    text + "</svg>\n"
}

/// The points of each layer. A point's layer is the length of the longest way from it to the result, from below.
fn layers(graph: &Graph) -> Vec<Vec<usize>> {
    let count = graph.vertices.len();
    let (mut above, mut left) = (vec![Vec::new(); count], vec![0; count]);
    for &(from, to) in &graph.edges {
        above[to].push(from);
        left[from] += 1;
    }
    let mut depth = vec![0; count];
    let mut open: Vec<usize> = (0..count).filter(|&i| left[i] == 0).collect();
    while let Some(i) = open.pop() {
        for &j in &above[i] {
            depth[j] = depth[j].max(depth[i] + 1);
            left[j] -= 1;
            if left[j] == 0 {
                open.push(j);
            }
        }
    }
    let last = depth.iter().copied().max().unwrap_or(0);
    let mut layers = vec![Vec::new(); last + 1];
    for (i, depth) in depth.into_iter().enumerate() {
        layers[last - depth].push(i);
    }
    layers
}

/// The middle of each point's upper side.
fn places(graph: &Graph, layers: &[Vec<usize>], sizes: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let mut neighbours = vec![Vec::new(); graph.vertices.len()];
    for &(from, to) in &graph.edges {
        neighbours[from].push(to);
        neighbours[to].push(from);
    }
    let mut places = vec![[0.0; 2]; graph.vertices.len()];
    let mut layers = layers.to_vec();
    let mut y = 10.0;
    for layer in &layers {
        for &i in layer {
            places[i][1] = y;
        }
        y += layer.iter().map(|&i| sizes[i][1]).fold(0.0, f64::max) + GAP[1];
    }
    spread(&layers, sizes, &mut places, None);
    for sweep in 0..SWEEPS {
        let order: Vec<usize> = match sweep % 2 {
            0 => (0..layers.len()).rev().collect(),
            _ => (0..layers.len()).collect(),
        };
        for l in order {
            let wanted = |i: usize| {
                let all = &neighbours[i];
                all.iter().map(|&j| places[j][0]).sum::<f64>() / all.len().max(1) as f64
            };
            let mut keyed: Vec<(f64, usize)> = layers[l].iter().map(|&i| (wanted(i), i)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            layers[l] = keyed.iter().map(|&(_, i)| i).collect();
            let wishes: Vec<f64> = keyed.iter().map(|&(x, _)| x).collect();
            spread(&layers[l..=l], sizes, &mut places, Some(&wishes));
        }
    }
    let least =
        places.iter().zip(sizes).map(|(at, size)| at[0] - size[0] / 2.0).fold(f64::MAX, f64::min);
    places.iter_mut().for_each(|at| at[0] += 10.0 - least);
    places
}

/// Gives the points of each layer places beside each other, as near to their wishes as they fit, or around 0.
fn spread(
    layers: &[Vec<usize>],
    sizes: &[[f64; 2]],
    places: &mut [[f64; 2]],
    wishes: Option<&[f64]>,
) {
    for layer in layers {
        let mut right = f64::MIN;
        let mut moved = 0.0;
        let whole: f64 = layer.iter().map(|&i| sizes[i][0] + GAP[0]).sum();
        let mut next = -whole / 2.0;
        for (k, &i) in layer.iter().enumerate() {
            let wish = wishes.map_or(next + sizes[i][0] / 2.0, |wishes| wishes[k]);
            let x = wish.max(right + sizes[i][0] / 2.0);
            places[i][0] = x;
            moved += x - wish;
            right = x + sizes[i][0] / 2.0 + GAP[0];
            next += sizes[i][0] + GAP[0];
        }
        // Those that were pushed to the right take the others half of the way back with them.
        let back = moved / layer.len().max(1) as f64;
        layer.iter().for_each(|&i| places[i][0] -= back);
    }
}

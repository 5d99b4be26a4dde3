//! Layered layout of a graph: each box comes after all boxes that it depends on.
//!
//! The longest path to a box determines its layer. Within a layer, boxes are sorted by the mean position of their
//! neighbours, in several sweeps, to reduce crossings. Then each box is moved as close to its neighbours as the order
//! allows. An arrow that spans several layers has a lane in each. The layout is deterministic.

use super::row_placement::place_in_row;
use crate::chart::number;

/// Number of forward and backward sweeps that reduce crossings.
const SWEEPS: usize = 4;
/// Maximum boxes per row of a layer; a larger layer is wrapped into several rows.
const ROW_BOXES: usize = 20;
const ROW_BOXES_TOP_DOWN: usize = 8;
/// Minimum number of layers for a graph that is drawn top-down.
const TOP_DOWN_LAYERS_MIN: usize = 10;
/// Maximum number of lanes. With more, arrows are drawn behind the boxes.
const LANES_MAX: usize = 1_200;
/// Distances between layers, between the rows of a wrapped layer, and to the edge.
const LAYER_GAP: f64 = 44.0;
const WRAP_GAP: f64 = 12.0;
const EDGE: f64 = 6.0;
/// Width of a lane.
const LANE: f64 = 8.0;

#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) gap: f64,
}

/// Corner of a box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spot {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// Layout of a graph.
#[derive(Debug, PartialEq)]
pub(super) struct Layout {
    /// One spot per box.
    pub(super) spots: Vec<Spot>,
    /// Points of each arrow, two per layer that it touches.
    pub(super) paths: Vec<Vec<(f64, f64)>>,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Whether the direction is top-down instead of left to right.
    pub(super) top_down: bool,
}

/// Layer of each box: one after the last layer of its dependencies, which have lower indexes.
pub(super) fn layers(needs: &[Vec<usize>]) -> Vec<usize> {
    let mut layers: Vec<usize> = Vec::with_capacity(needs.len());
    for (index, needs) in needs.iter().enumerate() {
        let before = needs.iter().filter(|need| **need < index).filter_map(|need| layers.get(*need)).max();
        layers.push(before.map_or(0, |before| before + 1));
    }
    layers
}

/// An item in a layer.
struct Node {
    layer: usize,
    /// Whether it is the lane of an arrow instead of a box.
    is_lane: bool,
    before: Vec<usize>,
    after: Vec<usize>,
    /// Centre across the direction of the drawing, and start and end along it.
    middle: f64,
    from: f64,
    to: f64,
}

/// Intermediate state of a layout.
struct Draft {
    nodes: Vec<Node>,
    /// Nodes of each layer in order.
    order: Vec<Vec<usize>>,
    /// Nodes of each arrow, from start to end.
    chains: Vec<Vec<usize>>,
}

/// Computes the layout. `needs` contains the indexes that each box depends on, all of them lower than its own.
pub(super) fn lay_out(needs: &[Vec<usize>], size: Size) -> Layout {
    let layer_of = layers(needs);
    let mut draft = Draft::new(needs, &layer_of);
    for _ in 0..SWEEPS {
        draft.sweep(true);
        draft.sweep(false);
    }
    let boxes = |layer: &Vec<usize>| layer.iter().filter(|node| !draft.nodes[**node].is_lane).count();
    let widest = draft.order.iter().map(boxes).max().unwrap_or(0);
    let top_down = draft.order.len() >= TOP_DOWN_LAYERS_MIN && draft.order.len() > widest;
    let (along, across, row) = if top_down {
        (size.height, size.width, ROW_BOXES_TOP_DOWN)
    } else {
        (size.width, size.height, ROW_BOXES)
    };
    let length = draft.put_along(along, row);
    let breadth = draft.put_across(across, size.gap, row);
    draft.finish(needs.len(), &Measure { along, across, length, breadth, top_down })
}

struct Measure {
    along: f64,
    across: f64,
    length: f64,
    breadth: f64,
    top_down: bool,
}

impl Draft {
    fn new(needs: &[Vec<usize>], layer_of: &[usize]) -> Self {
        let count = layer_of.iter().max().map_or(0, |last| last + 1);
        let node = |layer, is_lane| Node {
            layer,
            is_lane,
            before: Vec::new(),
            after: Vec::new(),
            middle: 0.0,
            from: 0.0,
            to: 0.0,
        };
        let mut nodes: Vec<Node> = layer_of.iter().map(|layer| node(*layer, false)).collect();
        let arrows = || {
            needs.iter().enumerate().flat_map(|(to, needs)| {
                needs.iter().filter(move |from| **from < to).map(move |from| (*from, to))
            })
        };
        let lanes: usize = arrows().map(|(from, to)| layer_of[to] - layer_of[from] - 1).sum();
        let mut chains = Vec::new();
        for (from, to) in arrows() {
            let mut chain = vec![from];
            if lanes <= LANES_MAX {
                for layer in layer_of[from] + 1..layer_of[to] {
                    chain.push(nodes.len());
                    nodes.push(node(layer, true));
                }
            }
            chain.push(to);
            for pair in chain.windows(2) {
                nodes[pair[0]].after.push(pair[1]);
                nodes[pair[1]].before.push(pair[0]);
            }
            chains.push(chain);
        }
        let mut order = vec![Vec::new(); count];
        for (index, node) in nodes.iter().enumerate() {
            order[node.layer].push(index);
        }
        Self { nodes, order, chains }
    }

    /// Sorts each layer by the mean position of its neighbours on one side.
    fn sweep(&mut self, forward: bool) {
        let count = self.order.len();
        let mut position = vec![0.0; self.nodes.len()];
        for layer in &self.order {
            record_positions(&mut position, layer);
        }
        for step in 0..count {
            let layer = if forward { step } else { count - 1 - step };
            let mut keyed: Vec<(f64, usize)> = self.order[layer]
                .iter()
                .map(|node| {
                    let sides = &self.nodes[*node];
                    let others = if forward { &sides.before } else { &sides.after };
                    (mean(others, &position).unwrap_or(position[*node]), *node)
                })
                .collect();
            // The sort is stable, so the result is deterministic.
            keyed.sort_by(|one, other| one.0.total_cmp(&other.0));
            self.order[layer] = keyed.into_iter().map(|(_, node)| node).collect();
            record_positions(&mut position, &self.order[layer]);
        }
    }

    /// Positions all nodes along the direction of the drawing. Returns the total length.
    fn put_along(&mut self, along: f64, row: usize) -> f64 {
        let mut from = EDGE;
        for layer in &self.order {
            let boxes: Vec<usize> = layer.iter().copied().filter(|node| !self.nodes[*node].is_lane).collect();
            let rows = boxes.len().div_ceil(row).max(1);
            let per_row = boxes.len().div_ceil(rows).max(1);
            let deep = along * to_f64(rows) + WRAP_GAP * to_f64(rows - 1);
            for node in layer {
                (self.nodes[*node].from, self.nodes[*node].to) = (from, from + deep);
            }
            for (index, node) in boxes.iter().enumerate() {
                let begin = from + (along + WRAP_GAP) * to_f64(index / per_row);
                (self.nodes[*node].from, self.nodes[*node].to) = (begin, begin + along);
            }
            from += deep + LAYER_GAP;
        }
        (from - LAYER_GAP).max(EDGE) + EDGE
    }

    /// Positions all nodes across the direction of the drawing. Returns the total breadth.
    fn put_across(&mut self, across: f64, gap: f64, row: usize) -> f64 {
        let layers = self.order.len();
        for layer in 0..layers {
            self.place_layer(layer, &[], across, gap, row);
        }
        for sweep in 0..SWEEPS {
            for step in 0..layers {
                let layer = if sweep % 2 == 0 { step } else { layers - 1 - step };
                let middles: Vec<f64> = self.nodes.iter().map(|node| node.middle).collect();
                self.place_layer(layer, &middles, across, gap, row);
            }
        }
        let half = |node: &Node| if node.is_lane { LANE / 2.0 } else { across / 2.0 };
        let top = self.nodes.iter().map(|node| node.middle - half(node)).fold(f64::INFINITY, f64::min);
        let top = if top.is_finite() { top } else { 0.0 };
        let mut breadth = 0.0_f64;
        for node in &mut self.nodes {
            node.middle += EDGE - top;
            breadth = breadth.max(node.middle + half(node));
        }
        breadth + EDGE
    }

    /// Places the nodes of a layer as close as possible to their neighbours.
    fn place_layer(&mut self, layer: usize, middles: &[f64], across: f64, gap: f64, row: usize) {
        let nodes = self.order[layer].clone();
        let boxes: Vec<usize> = nodes.iter().copied().filter(|node| !self.nodes[*node].is_lane).collect();
        let desired = |node: usize| {
            let sides = &self.nodes[node];
            let all: Vec<usize> = sides.before.iter().chain(&sides.after).copied().collect();
            mean(&all, middles)
        };
        if boxes.len() <= row {
            let widths: Vec<f64> = nodes
                .iter()
                .map(|node| if self.nodes[*node].is_lane { LANE } else { across + gap })
                .collect();
            let targets: Vec<f64> = nodes.iter().map(|node| desired(*node).unwrap_or(0.0)).collect();
            for (node, middle) in nodes.iter().zip(place_in_row(&targets, &widths)) {
                self.nodes[*node].middle = middle;
            }
            return;
        }
        // A wrapped layer is a block around the centre of its neighbours; lanes run below it.
        let rows = boxes.len().div_ceil(row);
        let per_row = boxes.len().div_ceil(rows);
        let targets: Vec<f64> = boxes.iter().filter_map(|node| desired(*node)).collect();
        let centre =
            if targets.is_empty() { 0.0 } else { targets.iter().sum::<f64>() / to_f64(targets.len()) };
        let top = centre - (across + gap) * to_f64(per_row - 1) / 2.0;
        for (index, node) in boxes.iter().enumerate() {
            self.nodes[*node].middle = top + (across + gap) * to_f64(index % per_row);
        }
        let below = top + (across + gap) * to_f64(per_row) - across / 2.0;
        let lanes = nodes.iter().filter(|node| !boxes.contains(node));
        for (index, node) in lanes.enumerate() {
            self.nodes[*node].middle = below + LANE * to_f64(index);
        }
    }

    fn finish(self, count: usize, measure: &Measure) -> Layout {
        let turn = |along: f64, across: f64| if measure.top_down { (across, along) } else { (along, across) };
        let spot = |node: &Node| {
            let (x, y) = turn(node.from, node.middle - measure.across / 2.0);
            Spot { x, y }
        };
        debug_assert!(measure.along > 0.0, "the size of a box must be positive");
        let paths = self.chains.iter().map(|chain| {
            let last = chain.len() - 1;
            let points = chain.iter().enumerate().flat_map(|(index, node)| {
                let node = &self.nodes[*node];
                let (enter, leave) = (turn(node.from, node.middle), turn(node.to, node.middle));
                match index {
                    0 => vec![leave],
                    index if index == last => vec![enter],
                    _ => vec![enter, leave],
                }
            });
            points.collect()
        });
        let (width, height) = turn(measure.length, measure.breadth);
        Layout {
            paths: paths.collect(),
            spots: self.nodes.iter().take(count).map(spot).collect(),
            width,
            height,
            top_down: measure.top_down,
        }
    }
}

fn record_positions(position: &mut [f64], layer: &[usize]) {
    for (number, node) in layer.iter().enumerate() {
        position[*node] = to_f64(number);
    }
}

fn mean(nodes: &[usize], positions: &[f64]) -> Option<f64> {
    let known: Vec<f64> = nodes.iter().filter_map(|node| positions.get(*node).copied()).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / to_f64(known.len()))
}

fn to_f64(count: usize) -> f64 {
    number(i64::try_from(count).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;

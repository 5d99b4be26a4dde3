//! Where the boxes of a graph are drawn: in layers, each after everything that it needs.
//!
//! A box is in the layer that the longest path to it gives. Within a layer, boxes are put into an order by the
//! means of the places of their neighbours, a few times over, so that few arrows cross; then each is moved as
//! close to its neighbours as its place in the order lets it. An arrow that passes over layers has a lane of its
//! own in each. The same graph is always drawn the same way.

use super::lanes::settle;
use crate::picture::number;

/// Sweeps over all layers, there and back, that look for an order with few crossings.
const SWEEPS: usize = 4;
/// Boxes of a layer that stand in one row; a layer with more of them is folded.
const ROW_RIGHT: usize = 20;
const ROW_DOWN: usize = 8;
/// Layers from which on a graph that is longer than wide is drawn downwards.
const LONG: usize = 10;
/// Lanes that are kept; where more were needed, arrows pass beneath the boxes.
const LANES_MAX: usize = 1_200;
/// Room between layers, between the rows of a folded layer, and around everything.
const BETWEEN: f64 = 44.0;
const FOLD: f64 = 12.0;
const EDGE: f64 = 6.0;
/// How much room a lane takes.
const LANE: f64 = 8.0;

/// How large boxes are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Room between neighbours.
    pub(super) gap: f64,
}

/// A box, by its corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spot {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// A drawing without its words.
#[derive(Debug, PartialEq)]
pub(super) struct Layout {
    /// A spot for each box, in their order.
    pub(super) spots: Vec<Spot>,
    /// The way of each arrow: points, two for each layer that it touches.
    pub(super) ways: Vec<Vec<(f64, f64)>>,
    /// The size of the whole.
    pub(super) width: f64,
    pub(super) height: f64,
    /// Whether it goes down, and not to the right.
    pub(super) down: bool,
}

/// The layer of each box: one more than the latest of those that it needs. What is needed has a lower place.
pub(super) fn layers(needs: &[Vec<usize>]) -> Vec<usize> {
    let mut layers: Vec<usize> = Vec::with_capacity(needs.len());
    for (place, needs) in needs.iter().enumerate() {
        let before = needs.iter().filter(|need| **need < place).filter_map(|need| layers.get(*need)).max();
        layers.push(before.map_or(0, |before| before + 1));
    }
    layers
}

/// Something that takes room in a layer.
struct Node {
    layer: usize,
    /// The box; without one, it is the lane of an arrow.
    is_lane: bool,
    before: Vec<usize>,
    after: Vec<usize>,
    /// Its middle across the direction of the drawing, and where it begins and ends along it.
    middle: f64,
    from: f64,
    to: f64,
}

/// A graph on its way to a drawing.
struct Draft {
    nodes: Vec<Node>,
    /// The nodes of each layer, in order.
    order: Vec<Vec<usize>>,
    /// The nodes that each arrow passes, from end to end.
    chains: Vec<Vec<usize>>,
}

/// Lays a graph out. `needs` has the places that each place needs, all of them lower.
pub(super) fn lay_out(needs: &[Vec<usize>], size: Size) -> Layout {
    let layer_of = layers(needs);
    let mut draft = Draft::new(needs, &layer_of);
    for _ in 0..SWEEPS {
        draft.sweep(true);
        draft.sweep(false);
    }
    let boxes = |layer: &Vec<usize>| layer.iter().filter(|node| !draft.nodes[**node].is_lane).count();
    let widest = draft.order.iter().map(boxes).max().unwrap_or(0);
    let down = draft.order.len() >= LONG && draft.order.len() > widest;
    let (along, across, row) =
        if down { (size.height, size.width, ROW_DOWN) } else { (size.width, size.height, ROW_RIGHT) };
    let length = draft.put_along(along, row);
    let breadth = draft.put_across(across, size.gap, row);
    draft.finish(needs.len(), &Measure { along, across, length, breadth, down })
}

/// What is known of the whole when everything has its place.
struct Measure {
    along: f64,
    across: f64,
    length: f64,
    breadth: f64,
    down: bool,
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
        for (place, node) in nodes.iter().enumerate() {
            order[node.layer].push(place);
        }
        Self { nodes, order, chains }
    }

    /// Puts each layer into the order of the means of its neighbours on one side.
    fn sweep(&mut self, forward: bool) {
        let count = self.order.len();
        let mut place = vec![0.0; self.nodes.len()];
        for layer in &self.order {
            note(&mut place, layer);
        }
        for step in 0..count {
            let layer = if forward { step } else { count - 1 - step };
            let mut keyed: Vec<(f64, usize)> = self.order[layer]
                .iter()
                .map(|node| {
                    let sides = &self.nodes[*node];
                    let others = if forward { &sides.before } else { &sides.after };
                    (mean(others, &place).unwrap_or(place[*node]), *node)
                })
                .collect();
            // Sorting keeps the order of equals, so nothing depends on chance.
            keyed.sort_by(|one, other| one.0.total_cmp(&other.0));
            self.order[layer] = keyed.into_iter().map(|(_, node)| node).collect();
            note(&mut place, &self.order[layer]);
        }
    }

    /// Gives each node its place along the direction of the drawing; how long the whole is.
    fn put_along(&mut self, along: f64, row: usize) -> f64 {
        let mut from = EDGE;
        for layer in &self.order {
            let boxes: Vec<usize> = layer.iter().copied().filter(|node| !self.nodes[*node].is_lane).collect();
            let folds = boxes.len().div_ceil(row).max(1);
            let per_fold = boxes.len().div_ceil(folds).max(1);
            let deep = along * whole(folds) + FOLD * whole(folds - 1);
            for node in layer {
                (self.nodes[*node].from, self.nodes[*node].to) = (from, from + deep);
            }
            for (place, node) in boxes.iter().enumerate() {
                let begin = from + (along + FOLD) * whole(place / per_fold);
                (self.nodes[*node].from, self.nodes[*node].to) = (begin, begin + along);
            }
            from += deep + BETWEEN;
        }
        (from - BETWEEN).max(EDGE) + EDGE
    }

    /// Gives each node its place across it; how broad the whole is.
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

    /// Places the nodes of a layer as close as can be to where their neighbours are.
    fn place_layer(&mut self, layer: usize, middles: &[f64], across: f64, gap: f64, row: usize) {
        let nodes = self.order[layer].clone();
        let boxes: Vec<usize> = nodes.iter().copied().filter(|node| !self.nodes[*node].is_lane).collect();
        let wish = |node: usize| {
            let sides = &self.nodes[node];
            let all: Vec<usize> = sides.before.iter().chain(&sides.after).copied().collect();
            mean(&all, middles)
        };
        if boxes.len() <= row {
            let room: Vec<f64> = nodes
                .iter()
                .map(|node| if self.nodes[*node].is_lane { LANE } else { across + gap })
                .collect();
            let wishes: Vec<f64> = nodes.iter().map(|node| wish(*node).unwrap_or(0.0)).collect();
            for (node, middle) in nodes.iter().zip(settle(&wishes, &room)) {
                self.nodes[*node].middle = middle;
            }
            return;
        }
        // A folded layer is a block around the middle of its neighbours; lanes pass beneath it.
        let folds = boxes.len().div_ceil(row);
        let per_fold = boxes.len().div_ceil(folds);
        let wishes: Vec<f64> = boxes.iter().filter_map(|node| wish(*node)).collect();
        let centre = if wishes.is_empty() { 0.0 } else { wishes.iter().sum::<f64>() / whole(wishes.len()) };
        let top = centre - (across + gap) * whole(per_fold - 1) / 2.0;
        for (place, node) in boxes.iter().enumerate() {
            self.nodes[*node].middle = top + (across + gap) * whole(place % per_fold);
        }
        let below = top + (across + gap) * whole(per_fold) - across / 2.0;
        let lanes = nodes.iter().filter(|node| !boxes.contains(node));
        for (place, node) in lanes.enumerate() {
            self.nodes[*node].middle = below + LANE * whole(place);
        }
    }

    fn finish(self, count: usize, measure: &Measure) -> Layout {
        let turn = |along: f64, across: f64| if measure.down { (across, along) } else { (along, across) };
        let spot = |node: &Node| {
            let (x, y) = turn(node.from, node.middle - measure.across / 2.0);
            Spot { x, y }
        };
        debug_assert!(measure.along > 0.0, "boxes have a size");
        let ways = self.chains.iter().map(|chain| {
            let last = chain.len() - 1;
            let points = chain.iter().enumerate().flat_map(|(place, node)| {
                let node = &self.nodes[*node];
                let (enter, leave) = (turn(node.from, node.middle), turn(node.to, node.middle));
                match place {
                    0 => vec![leave],
                    place if place == last => vec![enter],
                    _ => vec![enter, leave],
                }
            });
            points.collect()
        });
        let (width, height) = turn(measure.length, measure.breadth);
        Layout {
            ways: ways.collect(),
            spots: self.nodes.iter().take(count).map(spot).collect(),
            width,
            height,
            down: measure.down,
        }
    }
}

fn note(place: &mut [f64], layer: &[usize]) {
    for (number, node) in layer.iter().enumerate() {
        place[*node] = whole(number);
    }
}

fn mean(nodes: &[usize], places: &[f64]) -> Option<f64> {
    let known: Vec<f64> = nodes.iter().filter_map(|node| places.get(*node).copied()).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / whole(known.len()))
}

fn whole(count: usize) -> f64 {
    number(i64::try_from(count).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;

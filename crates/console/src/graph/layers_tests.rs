//! Invariants of the layout for graphs of many shapes.

use super::*;
use std::time::Instant;

const SIZE: Size = Size { width: 150.0, height: 24.0, gap: 6.0 };

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// Graphs of many shapes, as dependency lists.
fn shapes() -> Vec<(String, Vec<Vec<usize>>)> {
    let chain = (0..200_usize).map(|index| index.checked_sub(1).into_iter().collect()).collect();
    let mut fan: Vec<Vec<usize>> = vec![vec![]];
    fan.extend((1..199).map(|_| vec![0]));
    fan.push((1..199).collect());
    let apart = vec![vec![]; 200];
    let mut shapes = vec![("chain".to_owned(), chain), ("fan".to_owned(), fan), ("apart".to_owned(), apart)];
    shapes.push(("one".to_owned(), vec![vec![]]));
    shapes.push(("none".to_owned(), vec![]));
    for seed in 0..40 {
        let mut random = Random(seed);
        let count = 2 + random.below(199);
        let reach = 1 + random.below(count);
        let mut needs = vec![Vec::new(); count];
        for (index, needs) in needs.iter_mut().enumerate().skip(1) {
            for _ in 0..random.below(4) {
                let need = index - 1 - random.below(reach.min(index));
                if !needs.contains(&need) {
                    needs.push(need);
                }
            }
        }
        shapes.push((format!("random {seed}"), needs));
    }
    shapes
}

#[test]
fn boxes_do_not_overlap_and_lie_within_the_bounds() {
    for (name, needs) in shapes() {
        let layout = lay_out(&needs, SIZE);
        assert_eq!(layout.spots.len(), needs.len(), "{name}");
        for (index, one) in layout.spots.iter().enumerate() {
            assert!(one.x >= 0.0 && one.x + SIZE.width <= layout.width, "{name}: {one:?}");
            assert!(one.y >= 0.0 && one.y + SIZE.height <= layout.height, "{name}: {one:?}");
            for other in &layout.spots[index + 1..] {
                let apart = (one.x - other.x).abs() >= SIZE.width - 0.01
                    || (one.y - other.y).abs() >= SIZE.height - 0.01;
                assert!(apart, "{name}: {one:?} and {other:?}");
            }
        }
    }
}

#[test]
fn arrows_point_forward() {
    for (name, needs) in shapes() {
        let layout = lay_out(&needs, SIZE);
        assert_eq!(layout.paths.len(), needs.iter().map(Vec::len).sum::<usize>(), "{name}");
        for path in &layout.paths {
            let along = |point: &(f64, f64)| if layout.top_down { point.1 } else { point.0 };
            assert!(path.windows(2).all(|pair| along(&pair[0]) <= along(&pair[1])), "{name}: {path:?}");
            assert!(along(&path[0]) < along(&path[path.len() - 1]), "{name}: {path:?}");
        }
    }
}

#[test]
fn layer_is_the_first_one_after_all_dependencies() {
    for (name, needs) in shapes() {
        let layers = layers(&needs);
        for (index, needs) in needs.iter().enumerate() {
            let latest = needs.iter().map(|need| layers[*need] + 1).max().unwrap_or(0);
            assert_eq!(layers[index], latest, "{name}: {index}");
        }
    }
}

#[test]
fn layout_is_deterministic() {
    for (name, needs) in shapes() {
        assert_eq!(lay_out(&needs, SIZE), lay_out(&needs, SIZE), "{name}");
    }
}

#[test]
fn avoidable_crossings_are_avoided() {
    // Three chains whose boxes are interleaved.
    let needs = vec![vec![], vec![], vec![], vec![2], vec![0], vec![1], vec![5], vec![3], vec![4]];
    let layout = lay_out(&needs, SIZE);
    for path in &layout.paths {
        assert!((path[0].1 - path[1].1).abs() < 0.01, "each chain is a straight line: {path:?}");
    }
}

#[test]
fn long_graph_is_drawn_top_down_and_wide_layer_is_wrapped() {
    let shapes: std::collections::HashMap<_, _> = shapes().into_iter().collect();
    let chain = lay_out(&shapes["chain"], SIZE);
    assert!(chain.top_down && chain.width < 200.0, "{} wide", chain.width);
    let fan = lay_out(&shapes["fan"], SIZE);
    assert!(!fan.top_down && fan.height < 700.0, "{} high", fan.height);
}

#[test]
fn layout_of_two_hundred_jobs_is_fast() {
    let slowest = shapes().into_iter().map(|(name, needs)| {
        // The minimum of three runs excludes most of the machine's other load.
        let times = (0..3).map(|_| {
            let started = Instant::now();
            let layout = lay_out(&needs, SIZE);
            assert!(layout.width > 0.0);
            started.elapsed()
        });
        (times.min().unwrap(), name)
    });
    let (slowest, name) = slowest.max().unwrap();
    assert!(slowest.as_millis() < 50, "{name} took {slowest:?}");
}

//! Graphs of many shapes, and what must hold of every drawing.

use super::*;
use std::time::Instant;

const SIZE: Size = Size { width: 150.0, height: 24.0, gap: 6.0 };

/// Numbers that look like chance and are always the same.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// Graphs of many shapes, each by what its boxes need.
fn shapes() -> Vec<(String, Vec<Vec<usize>>)> {
    let chain = (0..200_usize).map(|place| place.checked_sub(1).into_iter().collect()).collect();
    let mut fan: Vec<Vec<usize>> = vec![vec![]];
    fan.extend((1..199).map(|_| vec![0]));
    fan.push((1..199).collect());
    let apart = vec![vec![]; 200];
    let mut shapes = vec![("chain".to_owned(), chain), ("fan".to_owned(), fan), ("apart".to_owned(), apart)];
    shapes.push(("one".to_owned(), vec![vec![]]));
    shapes.push(("none".to_owned(), vec![]));
    for seed in 0..40 {
        let mut chance = Chance(seed);
        let count = 2 + chance.below(199);
        let reach = 1 + chance.below(count);
        let mut needs = vec![Vec::new(); count];
        for (place, needs) in needs.iter_mut().enumerate().skip(1) {
            for _ in 0..chance.below(4) {
                let need = place - 1 - chance.below(reach.min(place));
                if !needs.contains(&need) {
                    needs.push(need);
                }
            }
        }
        shapes.push((format!("chance {seed}"), needs));
    }
    shapes
}

#[test]
fn no_box_lies_on_another_and_all_lie_within_the_whole() {
    for (name, needs) in shapes() {
        let layout = lay_out(&needs, SIZE);
        assert_eq!(layout.spots.len(), needs.len(), "{name}");
        for (place, one) in layout.spots.iter().enumerate() {
            assert!(one.x >= 0.0 && one.x + SIZE.width <= layout.width, "{name}: {one:?}");
            assert!(one.y >= 0.0 && one.y + SIZE.height <= layout.height, "{name}: {one:?}");
            for other in &layout.spots[place + 1..] {
                let apart = (one.x - other.x).abs() >= SIZE.width - 0.01
                    || (one.y - other.y).abs() >= SIZE.height - 0.01;
                assert!(apart, "{name}: {one:?} and {other:?}");
            }
        }
    }
}

#[test]
fn arrows_go_forward_from_end_to_end() {
    for (name, needs) in shapes() {
        let layout = lay_out(&needs, SIZE);
        assert_eq!(layout.ways.len(), needs.iter().map(Vec::len).sum::<usize>(), "{name}");
        for way in &layout.ways {
            let along = |point: &(f64, f64)| if layout.down { point.1 } else { point.0 };
            assert!(way.windows(2).all(|pair| along(&pair[0]) <= along(&pair[1])), "{name}: {way:?}");
            assert!(along(&way[0]) < along(&way[way.len() - 1]), "{name}: {way:?}");
        }
    }
}

#[test]
fn each_box_is_after_everything_that_it_needs_and_no_later_than_it_must() {
    for (name, needs) in shapes() {
        let layers = layers(&needs);
        for (place, needs) in needs.iter().enumerate() {
            let latest = needs.iter().map(|need| layers[*need] + 1).max().unwrap_or(0);
            assert_eq!(layers[place], latest, "{name}: {place}");
        }
    }
}

#[test]
fn the_same_graph_is_drawn_the_same_way() {
    for (name, needs) in shapes() {
        assert_eq!(lay_out(&needs, SIZE), lay_out(&needs, SIZE), "{name}");
    }
}

#[test]
fn arrows_that_need_not_cross_do_not() {
    // Three chains, whose boxes come in an order that mixes them.
    let needs = vec![vec![], vec![], vec![], vec![2], vec![0], vec![1], vec![5], vec![3], vec![4]];
    let layout = lay_out(&needs, SIZE);
    for way in &layout.ways {
        assert!((way[0].1 - way[1].1).abs() < 0.01, "each chain is a straight line: {way:?}");
    }
}

#[test]
fn a_graph_that_is_longer_than_wide_goes_down_and_a_wide_layer_is_folded() {
    let shapes: std::collections::HashMap<_, _> = shapes().into_iter().collect();
    let chain = lay_out(&shapes["chain"], SIZE);
    assert!(chain.down && chain.width < 200.0, "{} wide", chain.width);
    let fan = lay_out(&shapes["fan"], SIZE);
    assert!(!fan.down && fan.height < 700.0, "{} high", fan.height);
}

#[test]
fn two_hundred_jobs_take_little_time() {
    let slowest = shapes().into_iter().map(|(name, needs)| {
        // The best of three: what else the machine does is not what is measured.
        let times = (0..3).map(|_| {
            let begun = Instant::now();
            let layout = lay_out(&needs, SIZE);
            assert!(layout.width > 0.0);
            begun.elapsed()
        });
        (times.min().unwrap(), name)
    });
    let (slowest, name) = slowest.max().unwrap();
    assert!(slowest.as_millis() < 50, "{name} took {slowest:?}");
}

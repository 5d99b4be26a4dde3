//! What every lifecycle has in common: it is a function from a state and an event to a state.

/// Every legal change of state, once each: what the database's guard is generated from. An arrow from a state to
/// itself changes nothing, and is left out.
pub(crate) fn pairs<S: Copy + PartialEq, E: Copy>(
    states: &[S],
    events: &[E],
    next: impl Fn(S, E) -> Option<S>,
) -> Vec<(S, S)> {
    let mut pairs = Vec::new();
    for &from in states {
        for &event in events {
            if let Some(to) = next(from, event)
                && from != to
                && !pairs.contains(&(from, to))
            {
                pairs.push((from, to));
            }
        }
    }
    pairs
}

//! A sequence that shares its beginning with the sequence of another turn.

/// What one turn adds to the sequence of its parent: the first `shared` items are the parent's, `own` follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delta<T> {
    shared: usize,
    own: Box<[T]>,
}

impl<T: Copy + PartialEq> Delta<T> {
    pub(super) fn new(shared: usize, full: &[T]) -> Self {
        let shared = shared.min(full.len());
        Self {
            shared,
            own: full[shared..].into(),
        }
    }

    pub(super) fn shared(&self) -> usize {
        self.shared
    }

    pub(super) fn own(&self) -> &[T] {
        &self.own
    }

    pub(super) fn len(&self) -> usize {
        self.shared + self.own.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.own)
    }
}

/// Number of leading items that both have.
pub(super) fn common_prefix<T: PartialEq>(left: &[T], right: &[T]) -> usize {
    const BLOCK: usize = 64;
    let longest = left.len().min(right.len());
    let mut at = 0;
    while at + BLOCK <= longest && left[at..at + BLOCK] == right[at..at + BLOCK] {
        at += BLOCK;
    }
    while at < longest && left[at] == right[at] {
        at += 1;
    }
    at
}

/// The first `wanted` items of a sequence, put together from the chain of deltas that ends in it. `link(turn)` gives a turn's own
/// items, how many it shares with its parent, and the parent.
pub(super) fn materialize<'a, T: Copy + Default + 'a>(
    start: usize,
    wanted: usize,
    link: impl Fn(usize) -> (usize, [&'a [T]; 2], Option<usize>),
) -> Vec<T> {
    let mut full = vec![T::default(); wanted];
    let mut filled_from = wanted;
    let mut turn = Some(start);
    while let Some(at) = turn
        && filled_from > 0
    {
        let (shared, own, parent) = link(at);
        let mut offset = shared;
        for part in own {
            let end = (offset + part.len()).min(filled_from);
            if end > offset {
                full[offset..end].copy_from_slice(&part[..end - offset]);
            }
            offset += part.len();
        }
        filled_from = filled_from.min(shared);
        turn = parent;
    }
    full
}

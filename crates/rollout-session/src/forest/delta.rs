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

    /// The same of a sequence that is given away: it is not copied when nothing of it is shared.
    pub(super) fn of(shared: usize, full: Vec<T>) -> Self {
        if shared == 0 {
            return Self {
                shared,
                own: full.into(),
            };
        }
        Self::new(shared, &full)
    }

    /// A sequence of which `shared` items are the parent's.
    pub(super) fn from_parts(shared: usize, own: Vec<T>) -> Self {
        Self {
            shared,
            own: own.into(),
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
    // Large enough that comparing memory is worth a call.
    let block = 1024 / size_of::<T>();
    let longest = left.len().min(right.len());
    // Most pieces are repeated whole, and many are shorter than a block.
    if left[..longest] == right[..longest] {
        return longest;
    }
    let mut at = 0;
    while at + block <= longest && left[at..at + block] == right[at..at + block] {
        at += block;
    }
    while at < longest && left[at] == right[at] {
        at += 1;
    }
    at
}

/// One turn's own items: how many it shares with its parent, what follows, and the parent.
pub(super) struct Link<'a, T> {
    pub(super) shared: usize,
    pub(super) own: [&'a [T]; 2],
    pub(super) parent: Option<usize>,
}

/// The pieces that together are the first `wanted` items of a turn's sequence, from first to last.
pub(super) fn pieces<'a, T>(
    start: usize,
    wanted: usize,
    link: impl Fn(usize) -> Link<'a, T>,
) -> Vec<&'a [T]> {
    let mut pieces = Vec::new();
    let mut end = wanted;
    let mut turn = Some(start);
    while let Some(at) = turn
        && end > 0
    {
        let Link {
            shared,
            own: [first, second],
            parent,
        } = link(at);
        let wanted = end.saturating_sub(shared);
        let of_first = wanted.min(first.len());
        let of_second = (wanted - of_first).min(second.len());
        pieces.push(&second[..of_second]);
        pieces.push(&first[..of_first]);
        end = end.min(shared);
        turn = parent;
    }
    pieces.reverse();
    pieces
}

/// Number of leading items that the joined pieces and `other` both have.
pub(super) fn common_prefix_of_pieces<T: PartialEq>(pieces: &[&[T]], other: &[T]) -> usize {
    let mut at = 0;
    for piece in pieces {
        let common = common_prefix(piece, &other[at..]);
        at += common;
        if common < piece.len() {
            break;
        }
    }
    at
}

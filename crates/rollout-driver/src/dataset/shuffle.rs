//! The order of an epoch, bit for bit the order that a Python trainer would see.
//!
//! A trainer that shuffles with `random.seed(seed + epoch); random.shuffle(order)` walks a known order. A run that moves here, or
//! that is compared with one there, must meet the same prompts at the same step, so this module repeats `CPython`'s three parts: the
//! Mersenne Twister MT19937, `init_by_array` seeding from the words of the integer, and `shuffle` by `getrandbits` with rejection.
//!
//! Inputs: a seed and a length. Guarantee: pure, the same on every platform. Caveat: lengths up to `u32::MAX`.

const STATE: usize = 624;
const SHIFT: usize = 397;

/// MT19937 as `CPython`'s `random.Random` seeds and reads it.
struct MersenneTwister {
    state: [u32; STATE],
    next: usize,
}

impl MersenneTwister {
    /// `random.seed(n)` for an integer: the sign is dropped, the 32-bit words (lowest first) are the key.
    fn from_integer(seed: i128) -> Self {
        let mut rest = seed.unsigned_abs();
        let mut key = Vec::with_capacity(4);
        loop {
            key.push(low_word(rest));
            rest >>= 32;
            if rest == 0 {
                break;
            }
        }
        Self::from_key(&key)
    }

    fn from_number(number: u32) -> Self {
        let mut state = [0; STATE];
        state[0] = number;
        let mut previous = number;
        for (position, slot) in (1_u32..).zip(state.iter_mut().skip(1)) {
            previous = 1_812_433_253_u32
                .wrapping_mul(previous ^ (previous >> 30))
                .wrapping_add(position);
            *slot = previous;
        }
        Self { state, next: STATE }
    }

    fn from_key(key: &[u32]) -> Self {
        let mut twister = Self::from_number(19_650_218);
        let state = &mut twister.state;
        let mut at = 1;
        let mut words = (0_u32..).zip(key).cycle();
        for _ in 0..STATE.max(key.len()) {
            let Some((position, word)) = words.next() else {
                break;
            };
            let before = state[at - 1];
            state[at] = (state[at] ^ (before ^ (before >> 30)).wrapping_mul(1_664_525))
                .wrapping_add(*word)
                .wrapping_add(position);
            at = wrap(state, at);
        }
        for _ in 0..STATE - 1 {
            let before = state[at - 1];
            state[at] = (state[at] ^ (before ^ (before >> 30)).wrapping_mul(1_566_083_941))
                .wrapping_sub(low_word(at as u128));
            at = wrap(state, at);
        }
        state[0] = 0x8000_0000;
        twister
    }

    fn refill(&mut self) {
        for at in 0..STATE {
            let high = self.state[at] & 0x8000_0000;
            let low = self.state[(at + 1) % STATE] & 0x7fff_ffff;
            let mixed = high | low;
            let odd = if mixed & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[at] = self.state[(at + SHIFT) % STATE] ^ (mixed >> 1) ^ odd;
        }
        self.next = 0;
    }

    fn next_word(&mut self) -> u32 {
        if self.next == STATE {
            self.refill();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// A number below `bound` (which is at least 1): as many bits as `bound` has, drawn again while too large.
    fn below(&mut self, bound: u32) -> u32 {
        let unused = bound.leading_zeros();
        loop {
            let drawn = self.next_word() >> unused;
            if drawn < bound {
                return drawn;
            }
        }
    }
}

fn wrap(state: &mut [u32; STATE], at: usize) -> usize {
    if at + 1 < STATE {
        return at + 1;
    }
    state[0] = state[STATE - 1];
    1
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the low 32 bits are what is asked for"
)]
fn low_word(number: u128) -> u32 {
    number as u32
}

/// The order of one epoch: `0..rows` as `random.Random(seed).shuffle` leaves it.
pub(super) fn permutation(rows: u32, seed: i128) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows).collect();
    let mut twister = MersenneTwister::from_integer(seed);
    for last in (1..rows).rev() {
        let other = twister.below(last + 1);
        order.swap(last as usize, other as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn orders_are_those_of_cpython() {
        assert_eq!(permutation(10, 42), [7, 3, 2, 8, 5, 6, 9, 4, 0, 1]);
        assert_eq!(permutation(10, 43), [8, 1, 5, 6, 9, 7, 3, 2, 4, 0]);
        assert_eq!(permutation(10, 44), [4, 5, 0, 2, 9, 3, 7, 1, 8, 6]);
        assert_eq!(permutation(3, 42), [1, 0, 2]);
    }

    #[test]
    fn seeds_of_any_sign_and_width_are_those_of_cpython() {
        assert_eq!(permutation(6, 0), [4, 2, 1, 0, 5, 3]);
        assert_eq!(permutation(6, -7), [4, 0, 5, 3, 1, 2]);
        assert_eq!(permutation(6, (1 << 32) + 5), [5, 0, 4, 2, 3, 1]);
        assert_eq!(permutation(6, (1 << 70) + 3), [0, 3, 4, 5, 2, 1]);
    }

    #[test]
    fn a_long_order_passes_the_refill_of_the_generator() {
        let order = permutation(1000, 42);
        assert_eq!(order[..5], [776, 507, 895, 922, 33]);
        assert_eq!(order[995..], [281, 759, 25, 114, 654]);
        let checksum: u64 = (0_u64..)
            .zip(&order)
            .map(|(at, row)| at * u64::from(*row))
            .sum();
        assert_eq!(checksum, 250_181_598);
    }

    #[test]
    fn nothing_and_one_row_have_one_order() {
        assert_eq!(permutation(0, 1), Vec::<u32>::new());
        assert_eq!(permutation(1, 1), [0]);
    }

    proptest! {
        #[test]
        fn an_order_holds_every_row_once(rows in 0_u32..3000, seed in any::<i64>()) {
            let mut order = permutation(rows, i128::from(seed));
            order.sort_unstable();
            prop_assert_eq!(order, (0..rows).collect::<Vec<_>>());
        }
    }
}

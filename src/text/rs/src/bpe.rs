//! Byte-pair merging over ids: the table of merges and the loop that applies them.
//!
//! The loop always merges the pair of lowest rank, and of equal ranks the leftmost. Short words scan; long ones
//! (a megabyte of one letter is one word) keep a heap, so that no input costs more than n log n.

use crate::vocab::{mix, reduce};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy)]
struct Slot {
    left: u32,
    right: u32,
    rank: u32,
    id: u32,
}

const NONE: u32 = u32::MAX;

/// (left id, right id) to (rank, merged id); open addressing, 20 bytes a merge.
pub struct Merges {
    slots: Vec<Slot>,
    free: usize,
}

impl Merges {
    pub fn with_room_for(n: usize) -> Merges {
        let size = n + n / 4 + 2;
        Merges { slots: vec![Slot { left: NONE, right: NONE, rank: NONE, id: NONE }; size], free: n + 1 }
    }

    fn at(&self, left: u32, right: u32) -> usize {
        let mut at = reduce(mix((left as u64) << 32 | right as u64), self.slots.len());
        while self.slots[at].left != NONE && (self.slots[at].left, self.slots[at].right) != (left, right) {
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
        at
    }

    /// A pair that is named twice keeps its first (lower) rank. More than the promised number is a bug.
    pub fn insert(&mut self, left: u32, right: u32, rank: u32, id: u32) {
        let at = self.at(left, right);
        if self.slots[at].left == NONE {
            assert!(self.free > 0, "more merges than promised");
            self.free -= 1;
            self.slots[at] = Slot { left, right, rank, id };
        }
    }

    fn get(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let s = &self.slots[self.at(left, right)];
        (s.left != NONE).then_some((s.rank, s.id))
    }

    /// Merges the symbols of one word in place.
    pub fn apply(&self, word: &mut Vec<u32>) {
        if word.len() <= 48 {
            self.apply_short(word)
        } else {
            self.apply_long(word)
        }
    }

    fn apply_short(&self, word: &mut Vec<u32>) {
        // ranks[i] is the merge of word[i] with word[i + 1].
        let mut ranks = [(NONE, NONE); 48];
        let mut n = word.len();
        for i in 1..n {
            ranks[i - 1] = self.get(word[i - 1], word[i]).unwrap_or((NONE, NONE));
        }
        while n > 1 {
            let mut best = 0;
            for i in 1..n - 1 {
                if ranks[i].0 < ranks[best].0 {
                    best = i;
                }
            }
            if ranks[best].0 == NONE {
                break;
            }
            word[best] = ranks[best].1;
            word.copy_within(best + 2..n, best + 1);
            ranks.copy_within(best + 1..n - 1, best);
            n -= 1;
            if best + 1 < n {
                ranks[best] = self.get(word[best], word[best + 1]).unwrap_or((NONE, NONE));
            }
            if best > 0 {
                ranks[best - 1] = self.get(word[best - 1], word[best]).unwrap_or((NONE, NONE));
            }
        }
        word.truncate(n);
    }

    fn apply_long(&self, word: &mut Vec<u32>) {
        let n = word.len();
        let mut next: Vec<u32> = (1..=n as u32).collect();
        let mut prev: Vec<u32> = (0..n as u32).map(|i| i.wrapping_sub(1)).collect();
        let mut heap = BinaryHeap::with_capacity(n);
        for i in 1..n {
            if let Some((rank, _)) = self.get(word[i - 1], word[i]) {
                heap.push(Reverse((rank as u64) << 32 | (i - 1) as u64));
            }
        }
        while let Some(Reverse(top)) = heap.pop() {
            let (rank, i) = ((top >> 32) as u32, (top & 0xffff_ffff) as usize);
            let j = next[i] as usize;
            if word[i] == NONE || j >= n {
                continue;
            }
            // The entry may be from before a neighbour merged: only the table knows what the pair is now.
            let id = match self.get(word[i], word[j]) {
                Some((r, id)) if r == rank => id,
                _ => continue,
            };
            word[i] = id;
            word[j] = NONE;
            next[i] = next[j];
            if (next[j] as usize) < n {
                prev[next[j] as usize] = i as u32;
                if let Some((r, _)) = self.get(id, word[next[j] as usize]) {
                    heap.push(Reverse((r as u64) << 32 | i as u64));
                }
            }
            if prev[i] != NONE {
                if let Some((r, _)) = self.get(word[prev[i] as usize], id) {
                    heap.push(Reverse((r as u64) << 32 | prev[i] as u64));
                }
            }
        }
        word.retain(|&id| id != NONE);
    }
}

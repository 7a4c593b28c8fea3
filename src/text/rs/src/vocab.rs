//! Byte strings by id, and ids by byte string, without one allocation a token.
//!
//! A vocabulary has 50 to 250 thousand entries. As `HashMap<String, u32>` twice (the usual shape) it costs about
//! 130 bytes an entry; here it is the text once, a 4-byte offset, and a 4-byte slot at 3/4 load.

/// Byte strings numbered 0..n, stored end to end.
pub struct Table {
    arena: Vec<u8>,
    offs: Vec<u32>, // n + 1 offsets into arena
}

impl Table {
    pub fn with_capacity(n: usize, bytes: usize) -> Table {
        let mut offs = Vec::with_capacity(n + 1);
        offs.push(0);
        Table { arena: Vec::with_capacity(bytes), offs }
    }

    /// Appends one entry. The caller has checked that the sum stays below 4 GiB.
    pub fn push(&mut self, s: &[u8]) {
        self.arena.extend_from_slice(s);
        self.offs.push(self.arena.len() as u32);
    }

    pub fn get(&self, i: usize) -> &[u8] {
        &self.arena[self.offs[i] as usize..self.offs[i + 1] as usize]
    }

    pub fn len(&self) -> usize {
        self.offs.len() - 1
    }

    pub fn shrink(&mut self) {
        self.arena.shrink_to_fit();
        self.offs.shrink_to_fit();
    }

    /// (bytes, offsets) for the C side, valid as long as the table is neither changed nor dropped.
    pub fn raw(&self) -> (*const u8, *const u32) {
        (self.arena.as_ptr(), self.offs.as_ptr())
    }
}

/// Maps a 64-bit hash to 0..n without a division, from its high half.
pub fn reduce(hash: u64, n: usize) -> usize {
    (((hash >> 32) * n as u64) >> 32) as usize
}

pub fn mix(h: u64) -> u64 {
    let h = (h ^ (h >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (h ^ (h >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn hash_bytes(s: &[u8]) -> u64 {
    let mut h = 0x9e37_79b9_7f4a_7c15u64 ^ s.len() as u64;
    for c in s.chunks(8) {
        let mut w = [0u8; 8];
        w[..c.len()].copy_from_slice(c);
        h = mix(h ^ u64::from_le_bytes(w));
    }
    h
}

const FREE: u32 = u32::MAX;

/// Open addressing over the entries of a `Table`, which is given again at every call.
pub struct Index {
    slots: Vec<u32>,
}

impl Index {
    /// Of entries with equal text the last one is found, as in a JSON object that lists them in order.
    pub fn new(t: &Table) -> Index {
        let mut ix = Index { slots: vec![FREE; t.len() + t.len() / 3 + 1] };
        for i in 0..t.len() {
            let mut at = reduce(hash_bytes(t.get(i)), ix.slots.len());
            while ix.slots[at] != FREE && t.get(ix.slots[at] as usize) != t.get(i) {
                at = if at + 1 == ix.slots.len() { 0 } else { at + 1 };
            }
            ix.slots[at] = i as u32;
        }
        ix
    }

    pub fn find(&self, t: &Table, s: &[u8]) -> Option<u32> {
        let mut at = reduce(hash_bytes(s), self.slots.len());
        while self.slots[at] != FREE {
            if t.get(self.slots[at] as usize) == s {
                return Some(self.slots[at]);
            }
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
        None
    }
}

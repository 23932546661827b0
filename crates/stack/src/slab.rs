//! Slots with numbers that stay, in chunks that never move.

/// Values by slot number, with a generation per slot so that a number kept too long finds nothing.
///
/// Grows by chunks of 64 up to its limit and never copies what it holds. Insert and remove take
/// constant time; the slot freed last is used first.
pub struct Slab<T> {
    chunks: Vec<Box<[Slot<T>; CHUNK]>>,
    free: Vec<u32>,
    len: usize,
    limit: usize,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

const CHUNK: usize = 64;

/// Bytes that a slot takes beside its value: generation, presence, and its place in the list of
/// free ones.
pub const SLOT_OVERHEAD_BYTES: usize = 12;

impl<T> Slab<T> {
    /// An empty slab that holds `limit` values at most.
    pub fn new(limit: usize) -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0, limit }
    }

    /// Values held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Numbers that slots have: all below this.
    pub fn slots(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Values that it holds at most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns true if one more value would be refused.
    pub fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// Stores `value` and names its slot, or gives it back when the limit is reached.
    pub fn insert(&mut self, value: T) -> Result<u32, T> {
        if self.is_full() {
            return Err(value);
        }
        if self.free.is_empty() {
            self.grow();
        }
        let Some(index) = self.free.pop() else { return Err(value) };
        self.slot_mut(index).value = Some(value);
        self.len += 1;
        Ok(index)
    }

    fn grow(&mut self) {
        let base = (self.chunks.len() * CHUNK) as u32;
        let chunk: Box<[_]> = (0..CHUNK).map(|_| Slot { generation: 0, value: None }).collect();
        let Ok(chunk) = chunk.try_into() else { return };
        self.chunks.push(chunk);
        self.free.extend((base..base + CHUNK as u32).rev());
    }

    fn slot_mut(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    /// Takes the value out; its slot's generation changes.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        if index as usize / CHUNK >= self.chunks.len() {
            return None;
        }
        let slot = self.slot_mut(index);
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        self.len -= 1;
        Some(value)
    }

    /// The slot's generation, 0 for one that was never made.
    pub fn generation(&self, index: u32) -> u32 {
        self.chunks
            .get(index as usize / CHUNK)
            .map_or(0, |chunk| chunk[index as usize % CHUNK].generation)
    }

    /// The value in a slot.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.chunks.get(index as usize / CHUNK)?[index as usize % CHUNK].value.as_ref()
    }

    /// The value in a slot, to change.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.chunks.get_mut(index as usize / CHUNK)?[index as usize % CHUNK].value.as_mut()
    }

    /// All slots in use, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .enumerate()
            .filter_map(|(index, slot)| Some((index as u32, slot.value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_and_generations_change() {
        let mut slab = Slab::new(100);
        let slots: Vec<u32> = (0..100).map(|value| slab.insert(value).expect("room")).collect();
        assert_eq!(slab.insert(7), Err(7));
        assert_eq!(slab.get(slots[42]), Some(&42));
        let before = slab.generation(slots[42]);
        assert_eq!(slab.remove(slots[42]), Some(42));
        assert_eq!(slab.get(slots[42]), None);
        assert_eq!(slab.insert(1000), Ok(slots[42]));
        assert_ne!(slab.generation(slots[42]), before);
        assert_eq!(slab.iter().count(), 100);
        assert_eq!(slab.remove(5000), None);
    }
}

//! Containers for entries that are made in order, and most of which are soon gone.

use alloc::collections::VecDeque;

/// Entries by rising numbers, in a row of places from the oldest present entry. A removed entry takes a place until all
/// before it are gone.
#[derive(Debug)]
pub(crate) struct Window<T> {
    /// Number of the first place.
    first: u64,
    places: VecDeque<Option<T>>,
    len: usize,
}

impl<T> Default for Window<T> {
    fn default() -> Window<T> {
        Window { first: 0, places: VecDeque::new(), len: 0 }
    }
}

impl<T> Window<T> {
    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts an entry behind all others.
    ///
    /// # Panics
    /// If its number is not the next one, unless the window is empty.
    pub(crate) fn push(&mut self, number: u64, thing: T) {
        if self.places.is_empty() {
            self.first = number;
        }
        assert_eq!(number, self.first.wrapping_add(self.places.len() as u64), "numbers rise by one");
        self.places.push_back(Some(thing));
        self.len += 1;
    }

    fn place(&self, number: u64) -> usize {
        usize::try_from(number.wrapping_sub(self.first)).unwrap_or(usize::MAX)
    }

    /// Returns the entry with this number.
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.places.get(self.place(number))?.as_ref()
    }

    /// Returns the same entry, mutably.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place(number);
        self.places.get_mut(place)?.as_mut()
    }

    /// Takes the entry out.
    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number);
        let thing = self.places.get_mut(place)?.take()?;
        self.len -= 1;
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        Some(thing)
    }

    /// Returns all entries with their numbers, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let numbered = self.places.iter().enumerate();
        numbered.filter_map(|(place, thing)| Some((self.first.wrapping_add(place as u64), thing.as_ref()?)))
    }
}

/// A few rising numbers; as a rule one, which is stored in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Few {
    one: Option<u64>,
    /// All numbers behind the first.
    more: VecDeque<u64>,
}

impl Few {
    /// Adds a number behind the others.
    pub(crate) fn push(&mut self, number: u64) {
        match self.one {
            None => self.one = Some(number),
            Some(_) => self.more.push_back(number),
        }
    }

    /// Takes a number out, if it is there.
    pub(crate) fn remove(&mut self, number: u64) {
        if self.one == Some(number) {
            self.one = self.more.pop_front();
        } else if let Some(place) = self.more.iter().position(|other| *other == number) {
            self.more.remove(place);
        }
    }

    /// Returns the first number.
    pub(crate) fn first(&self) -> Option<u64> {
        self.one
    }

    /// Returns how many numbers there are.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.more.len()
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.one.is_none()
    }

    /// Returns all numbers, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.one.into_iter().chain(self.more.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_window_forgets_what_is_gone() {
        let mut window = Window::default();
        let first = u64::MAX - 1;
        (0..4).for_each(|step| window.push(first.wrapping_add(step), step));
        assert_eq!(window.remove(0), Some(2));
        assert_eq!((window.len(), window.places.len()), (3, 4));
        assert_eq!((window.get(0), window.get(u64::MAX), window.get(7)), (None, Some(&1), None));
        assert_eq!(window.iter().map(|(number, _)| number).collect::<Vec<_>>(), vec![first, u64::MAX, 1]);
        assert_eq!((window.remove(first), window.remove(u64::MAX)), (Some(0), Some(1)));
        assert_eq!((window.first, window.places.len()), (1, 1), "those before are gone");
        assert_eq!((window.remove(1), window.remove(1)), (Some(3), None));
        assert_eq!(window.len(), 0);
        window.push(100, 9);
        assert_eq!(window.get_mut(100), Some(&mut 9));
    }

    #[test]
    fn a_few_are_in_order() {
        let mut few = Few::default();
        [3, 5, 9].into_iter().for_each(|number| few.push(number));
        few.remove(4);
        few.remove(3);
        assert_eq!((few.first(), few.len(), few.iter().collect::<Vec<_>>()), (Some(5), 2, vec![5, 9]));
        few.remove(9);
        few.remove(5);
        assert!(few.is_empty());
    }
}

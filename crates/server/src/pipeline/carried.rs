//! How a query carries its [`Extras`]: in a box that is used again. What a proxy passes on has extras every time, and so costs no
//! allocation (invariant I13).

use super::extras::Extras;
use arrayvec::ArrayVec;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// Boxes that a thread keeps for its next queries. In flight there may be any number; this is how far those that come and
/// those that go may differ for a while.
const KEPT: usize = 256;

thread_local! {
    static SPARE: RefCell<ArrayVec<Box<Extras>, KEPT>> = const { RefCell::new(ArrayVec::new_const()) };
}

/// What a query carries along: nothing, most of the time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Carried(
    /// Emptied by [`Drop`]: who drops nothing, as most do, looks once.
    ManuallyDrop<Option<Box<Extras>>>,
);

impl Carried {
    pub const NOTHING: Carried = Carried(ManuallyDrop::new(None));

    /// What it is, nothing being left.
    #[inline]
    pub fn take(&mut self) -> Carried {
        Carried(ManuallyDrop::new(self.0.take()))
    }

    /// What it is, made if it is nothing.
    #[inline]
    pub fn get_or_insert_default(&mut self) -> &mut Extras {
        self.0.get_or_insert_with(spare)
    }

    /// Puts the box where the next query finds it.
    #[cold]
    fn give_back(&mut self) {
        let Some(mut extras) = self.0.take() else {
            return;
        };
        extras.clear();
        // A thread that ends keeps nothing, nor does one that has enough.
        let _ = SPARE.try_with(|spare| spare.borrow_mut().try_push(extras).is_ok());
    }
}

#[cold]
fn spare() -> Box<Extras> {
    let kept = SPARE.try_with(|spare| spare.borrow_mut().pop());
    kept.ok().flatten().unwrap_or_default()
}

impl Drop for Carried {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            self.give_back();
        }
    }
}

impl Deref for Carried {
    type Target = Option<Box<Extras>>;

    #[inline]
    fn deref(&self) -> &Option<Box<Extras>> {
        &self.0
    }
}

impl DerefMut for Carried {
    #[inline]
    fn deref_mut(&mut self) -> &mut Option<Box<Extras>> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_used_again_and_is_as_new() {
        let mut first = Carried::NOTHING;
        let extras = first.get_or_insert_default();
        extras.set_tag(b"key", b"value");
        extras.renamed = true;
        extras.proxy_values.add(1, b"value");
        let place: *const Extras = extras;
        let copy = first.clone();
        let taken = first.take();
        assert!(first.is_none() && taken == copy);
        drop((first, taken));
        let mut second = Carried::NOTHING;
        let extras = second.get_or_insert_default();
        assert_eq!(*extras, Extras::default());
        assert!(std::ptr::eq(place, extras));
        assert!(copy.as_ref().is_some_and(|extras| extras.renamed));
    }

    #[test]
    fn no_more_are_kept_than_so_many() {
        let all: Vec<Carried> = std::iter::repeat_with(|| {
            let mut carried = Carried::NOTHING;
            carried.get_or_insert_default();
            carried
        })
        .take(KEPT + 10)
        .collect();
        drop(all);
        assert_eq!(SPARE.with(|spare| spare.borrow().len()), KEPT);
    }
}

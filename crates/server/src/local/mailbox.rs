//! Where a zone's orders wait for its task. There are as many as zones, and most are never written to: so it is a few words long, where a
//! channel of the runtime takes 800 octets before anything is in it.

use super::order::{Letter, Order};
use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Orders that may wait: the task looks at the newest state, so more would tell it nothing.
const ROOM: usize = 32;

/// The orders of one zone, which its task takes.
#[derive(Default)]
pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    came: Notify,
}

#[derive(Default)]
struct Waiting {
    letters: VecDeque<Box<Letter>>,
    /// Places that somebody has and has put nothing in yet.
    reserved: usize,
}

impl Mailbox {
    /// A place for one letter, if there is one left.
    pub(super) fn reserve(&self) -> Option<Place<'_>> {
        let mut waiting = self.lock();
        if waiting.letters.len() + waiting.reserved >= ROOM {
            return None;
        }
        waiting.reserved += 1;
        Some(Place(self))
    }

    /// Takes an order in that may be lost; whether there was a place left.
    pub(super) fn offer(&self, order: Order) -> bool {
        let place = self.reserve();
        place.map(|place| place.put(order.into())).is_some()
    }

    /// Takes an order in that must not be lost. One of its kind that still waits gives way to it, so that there is one more than there
    /// are places, at most, of each kind.
    pub(super) fn insist(&self, order: Order) {
        let mut waiting = self.lock();
        let kind = discriminant(&order);
        let is_alike = |letter: &&mut Box<Letter>| {
            discriminant(&letter.order) == kind && letter.ticket.is_none()
        };
        match waiting.letters.iter_mut().find(is_alike) {
            Some(older) => older.order = order,
            None => waiting.letters.push_back(order.into()),
        }
        drop(waiting);
        self.came.notify_one();
    }

    /// The oldest letter, when there is one. Nothing is lost when whoever waits is dropped.
    pub(super) async fn take(&self) -> Box<Letter> {
        loop {
            let oldest = self.lock().letters.pop_front();
            match oldest {
                Some(letter) => return letter,
                None => self.came.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place for one letter: it is given back when nothing is put in it.
pub(super) struct Place<'m>(&'m Mailbox);

impl Place<'_> {
    /// Puts the letter behind all others.
    pub(super) fn put(self, letter: Box<Letter>) {
        self.0.lock().letters.push_back(letter);
        self.0.came.notify_one();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.lock().reserved -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::apex;
    use super::super::settings::ZoneSettings;
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::timeout;

    fn settings(journal_octets: u64) -> Order {
        let mut settings = ZoneSettings::new(apex());
        settings.journal_octets = journal_octets;
        Order::Settings(Arc::new(settings), Arc::default())
    }

    /// What waits now, the oldest first.
    async fn taken(mailbox: &Mailbox) -> Vec<Order> {
        let mut orders = Vec::new();
        while let Ok(letter) = timeout(Duration::from_millis(1), mailbox.take()).await {
            orders.push(letter.order);
        }
        orders
    }

    #[tokio::test(start_paused = true)]
    async fn letters_come_in_their_order_and_no_more_than_there_are_places() {
        let mailbox = Mailbox::default();
        assert!(mailbox.offer(Order::Reload));
        let places: Vec<Place<'_>> = (1..ROOM).map_while(|_| mailbox.reserve()).collect();
        assert_eq!(places.len(), ROOM - 1);
        assert!(!mailbox.offer(Order::Notify), "all are taken");
        let mut places = places.into_iter();
        places.next().unwrap().put(Order::Thaw.into());
        drop(places);
        assert!(mailbox.offer(Order::Freeze), "they were given back");
        let orders = taken(&mailbox).await;
        assert!(
            matches!(orders[..], [Order::Reload, Order::Thaw, Order::Freeze]),
            "{orders:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_not_be_lost_waits_once_and_as_it_was_said_last() {
        let mailbox = Mailbox::default();
        while mailbox.offer(Order::Reload) {}
        for octets in 1..=3 {
            mailbox.insist(settings(octets));
            mailbox.insist(Order::MayWrite);
        }
        let orders = taken(&mailbox).await;
        assert_eq!(orders.len(), ROOM + 2);
        let last = &orders[ROOM..];
        assert!(
            matches!(last, [Order::Settings(last, _), Order::MayWrite] if last.journal_octets == 3),
            "{last:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_woken_and_who_gave_up_has_taken_nothing() {
        let mailbox = Arc::new(Mailbox::default());
        for _ in 0..2 {
            let waiting = timeout(Duration::from_secs(1), mailbox.take());
            assert!(waiting.await.is_err());
        }
        let other = Arc::clone(&mailbox);
        let task = tokio::spawn(async move { other.take().await.order });
        tokio::task::yield_now().await;
        mailbox.insist(Order::MayWrite);
        assert!(matches!(task.await, Ok(Order::MayWrite)));
    }
}

//! Memory that an engine holds, counted by the allocator of the tests.
//!
//! Each allocation is charged to the engine that is being called, and credited to it wherever it
//! is freed: what an engine has handed out is its own until it is dropped.

#![expect(unsafe_code, reason = "an allocator can be written in no other way")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use engine::{Completion, Deadline, Effect, Engine, Input, Time, Transmit, TxBuf};

/// Bytes allocated and not freed yet.
#[derive(Debug, Default)]
struct Account(AtomicUsize);

/// `None` outside the calls of engines.
type Owner = Option<&'static Account>;

thread_local! {
    static OWNER: Cell<Owner> = const { Cell::new(None) };
}

/// Writes the owner of each allocation in front of it.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Layout with room for the owner, and the length of that room.
fn with_owner(layout: Layout) -> Option<(Layout, usize)> {
    Layout::new::<Owner>().extend(layout).ok()
}

/// Places the owner in front of an allocation, and returns the allocation.
///
/// # Safety
/// `start` is null, or an allocation with `room` bytes, at least those of an owner, in front of
/// the user's.
unsafe fn owned(start: *mut u8, room: usize, bytes: usize) -> *mut u8 {
    if start.is_null() {
        return start;
    }
    let owner = OWNER.try_with(Cell::get).ok().flatten();
    if let Some(account) = owner {
        account.0.fetch_add(bytes, Ordering::Relaxed);
    }
    // SAFETY: the room is part of the allocation, and its end is aligned for an owner.
    unsafe {
        let user = start.add(room);
        user.cast::<Owner>().sub(1).write(owner);
        user
    }
}

/// Owner of an allocation.
///
/// # Safety
/// `user` was returned by [`owned`].
unsafe fn owner_of(user: *mut u8) -> Owner {
    // SAFETY: the owner is in front of each allocation.
    unsafe { user.cast::<Owner>().sub(1).read() }
}

// SAFETY: all calls go to the system's allocator with a layout that is larger by the owner, at the
// same place for equal alignments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((whole, room)) = with_owner(layout) else { return std::ptr::null_mut() };
        // SAFETY: the layout has bytes for an owner at least, and `room` is in it.
        unsafe { owned(System.alloc(whole), room, layout.size()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some((whole, room)) = with_owner(layout) else { return std::ptr::null_mut() };
        // SAFETY: as in `alloc`.
        unsafe { owned(System.alloc_zeroed(whole), room, layout.size()) }
    }

    /// An allocation that grows keeps its owner, or gets one.
    unsafe fn realloc(&self, user: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let larger = Layout::from_size_align(size, layout.align()).ok();
        let larger = larger.and_then(with_owner);
        let (Some((whole, room)), Some((larger, _))) = (with_owner(layout), larger) else {
            return std::ptr::null_mut();
        };
        // SAFETY: as in `dealloc`; the room depends on the alignment alone.
        unsafe {
            let owner = owner_of(user);
            let start = System.realloc(user.sub(room), whole, larger.size());
            if start.is_null() {
                return start;
            }
            let Some(account) = owner else { return owned(start, room, size) };
            account.0.fetch_sub(layout.size(), Ordering::Relaxed);
            account.0.fetch_add(size, Ordering::Relaxed);
            start.add(room)
        }
    }

    unsafe fn dealloc(&self, user: *mut u8, layout: Layout) {
        let Some((whole, room)) = with_owner(layout) else { return };
        // SAFETY: `alloc` returned `user` for this layout, `room` bytes after the beginning.
        unsafe {
            if let Some(account) = owner_of(user) {
                account.0.fetch_sub(layout.size(), Ordering::Relaxed);
            }
            System.dealloc(user.sub(room), whole);
        }
    }
}

/// Engine with a count of the memory that it holds on the heap.
///
/// Calls as an [`Engine`] and by [`Counted::charge`] are charged to it. What it allocates in other
/// calls, by [`DerefMut`], is charged once it grows.
#[derive(Debug)]
pub struct Counted<E> {
    engine: E,
    account: &'static Account,
}

impl<E> Counted<E> {
    /// Creates an engine.
    pub fn new(create: impl FnOnce() -> E) -> Self {
        // An account outlives its engine, some of whose allocations may outlive it, too.
        let account = Box::leak(Box::default());
        Self { engine: charged_to(account, create), account }
    }

    /// Calls the engine.
    pub fn charge<T>(&mut self, call: impl FnOnce(&mut E) -> T) -> T {
        charged_to(self.account, || call(&mut self.engine))
    }

    /// Bytes that it holds.
    pub fn memory(&self) -> usize {
        self.account.0.load(Ordering::Relaxed)
    }
}

fn charged_to<T>(account: &'static Account, call: impl FnOnce() -> T) -> T {
    /// Restores the owner, also after a panic.
    struct Former(Owner);

    impl Drop for Former {
        fn drop(&mut self) {
            OWNER.set(self.0);
        }
    }

    let _former = Former(OWNER.replace(Some(account)));
    call()
}

/// Earlier allocations of the engine are not charged to it.
impl<E> From<E> for Counted<E> {
    fn from(engine: E) -> Self {
        Self::new(|| engine)
    }
}

impl<E> Deref for Counted<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.engine
    }
}

impl<E> DerefMut for Counted<E> {
    fn deref_mut(&mut self) -> &mut E {
        &mut self.engine
    }
}

impl<E: Engine> Engine for Counted<E> {
    type Indication = E::Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.charge(|engine| {
            // What a store has read is the engine's from now on.
            let input = match input {
                Input::Done(ticket, Ok(Completion::Read(bytes))) => {
                    Input::Done(ticket, Ok(Completion::Read(Bytes::copy_from_slice(&bytes))))
                }
                input => input,
            };
            engine.handle_input(now, input);
        });
    }

    fn handle_timeout(&mut self, now: Time) {
        self.charge(|engine| engine.handle_timeout(now));
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.charge(|engine| engine.poll_transmit(now, tx))
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.charge(E::poll_effect)
    }

    fn poll_indication(&mut self) -> Option<E::Indication> {
        self.charge(E::poll_indication)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.engine.poll_timeout()
    }
}

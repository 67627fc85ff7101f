//! Work on several cores where threads are available, otherwise sequential.

#[cfg(not(target_family = "wasm"))]
pub(crate) use threads::{both, cores, map};

#[cfg(target_family = "wasm")]
pub(crate) use sequence::{both, cores, map};

#[cfg(not(target_family = "wasm"))]
mod threads {
    use std::io;
    use std::thread;

    use rayon::prelude::*;

    /// Number of cores.
    pub(crate) fn cores() -> usize {
        thread::available_parallelism().map_or(1, usize::from)
    }

    /// Runs both at the same time.
    pub(crate) fn both<A, B: Send>(
        first: impl FnOnce() -> A,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        thread::scope(|scope| {
            let second = scope.spawn(second);
            (first(), second.join().expect("simulations return their errors"))
        })
    }

    /// Results of all tasks in their order, computed in up to `jobs` threads; the first error, or
    /// `None`, ends it early.
    pub(crate) fn map<T: Sync, R: Send, E: Send + From<io::Error>>(
        jobs: Option<usize>,
        tasks: &[T],
        one: impl Fn(&T) -> Result<Option<R>, E> + Sync,
    ) -> Result<Option<Vec<R>>, E> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(jobs.unwrap_or(0).min(tasks.len()))
            .build()
            .map_err(io::Error::other)?;
        pool.install(|| tasks.par_iter().with_max_len(1).map(&one).collect())
    }
}

#[cfg(target_family = "wasm")]
mod sequence {
    use std::io;

    pub(crate) fn cores() -> usize {
        1
    }

    pub(crate) fn both<A, B: Send>(
        first: impl FnOnce() -> A,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        (first(), second())
    }

    pub(crate) fn map<T: Sync, R: Send, E: Send + From<io::Error>>(
        _jobs: Option<usize>,
        tasks: &[T],
        one: impl Fn(&T) -> Result<Option<R>, E> + Sync,
    ) -> Result<Option<Vec<R>>, E> {
        tasks.iter().map(one).collect()
    }
}

//! Random numbers that nobody can predict: query IDs and ports depend on them (RFC 5452, section 9.2).

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

/// One generator per worker, seeded by the kernel; 1.4 ns a number.
pub struct Random(ChaCha12Rng);

impl Random {
    /// Seeded by getrandom(2).
    pub fn from_kernel() -> std::io::Result<Random> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Random(ChaCha12Rng::from_seed(seed)))
    }

    /// The same numbers every time: for tests and simulation.
    pub fn from_seed(seed: u64) -> Random {
        Random(ChaCha12Rng::seed_from_u64(seed))
    }

    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A number below `bound` (RFC-free: Lemire's multiply-and-shift; the bias of 2^-32 × bound is below what anyone
    /// can use).
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}

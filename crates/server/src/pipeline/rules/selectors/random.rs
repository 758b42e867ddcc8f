//! Selectors that throw dice.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::Selector;

/// `ProbaRule(probability)`: matches with this probability; 1 is always.
pub struct ProbaRule {
    probability: f64,
    /// Of 2^32 random numbers so many match.
    below: u64,
}

impl ProbaRule {
    /// What is outside 0 to 1 means never or always.
    pub fn new(probability: f64) -> ProbaRule {
        let below = (probability.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64;
        ProbaRule { probability, below }
    }
}

impl Selector for ProbaRule {
    fn matches(&self, _: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        u64::from(env.random.next_u32()) < self.below
    }

    fn describe(&self) -> String {
        format!("match with prob. {:.2}", self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::scene::{Scene, query};
    use wire::codes::qtype;

    #[test]
    fn matches_as_often_as_it_says() {
        let mut scene = Scene::default();
        let message = query("a.", qtype::A);
        let mut count = |probability| {
            let selector = ProbaRule::new(probability);
            (0..4_000)
                .filter(|_| scene.matches(&selector, &message))
                .count()
        };
        assert_eq!(count(0.0), 0);
        assert_eq!(count(1.0), 4_000);
        assert!((900..1_100).contains(&count(0.25)));
        assert_eq!(ProbaRule::new(0.25).describe(), "match with prob. 0.25");
    }
}

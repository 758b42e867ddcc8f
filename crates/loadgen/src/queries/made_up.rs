//! Queries that are made up: names that all differ, or few names of which some are asked far more often than others.

use super::{Asked, Edns, Writer};
use crate::failure::{During, Outcome};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::io::Write;
use wire::name::NameBuf;

/// What made-up queries have in common.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Names are in this domain; without the dot at its end for the root.
    pub suffix: String,
    /// The first label of each name begins with this.
    pub prefix: String,
    pub edns: Edns,
    /// Types, each as often as any other.
    pub qtypes: Vec<u16>,
    /// The same seed makes the same queries.
    pub seed: u64,
}

/// Letters of labels; 32, so that five bits choose one.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

impl Shape {
    fn name(&self, label: &str) -> Outcome<NameBuf> {
        let name = format!("{}{label}.{}", self.prefix, self.suffix);
        name.parse().during(format!("making the name {name}"))
    }

    fn asked(&self, label: &str, random: &mut impl Rng) -> Outcome<Asked> {
        Ok(Asked {
            name: self.name(label)?,
            qtype: self.qtypes[random.next_u32() as usize % self.qtypes.len()],
            edns: self.edns,
        })
    }
}

/// Writes `count` queries for names of which no two are the same.
///
/// # Errors
/// The file cannot be written, or the suffix makes no name.
pub fn random(count: u64, shape: &Shape, writer: &mut Writer<impl Write>) -> Outcome<()> {
    let mut random = ChaCha12Rng::seed_from_u64(shape.seed);
    // A multiple of an odd number, modulo 2^60, hits every number once: no two labels are the same.
    let factor = random.next_u64() | 1;
    let start = random.next_u64();
    for number in 0..count {
        let scattered = number.wrapping_mul(factor).wrapping_add(start);
        writer.write(&shape.asked(&label(scattered), &mut random)?)?;
    }
    Ok(())
}

/// Writes `count` queries for `names` names; the one of rank r is asked in proportion to 1 / r^`exponent` (Zipf's law).
///
/// # Errors
/// The file cannot be written, or the suffix makes no name.
pub fn zipf(
    names: u32,
    count: u64,
    exponent: f64,
    shape: &Shape,
    writer: &mut Writer<impl Write>,
) -> Outcome<()> {
    let mut random = ChaCha12Rng::seed_from_u64(shape.seed);
    let all = (0..names)
        .map(|rank| shape.asked(&format!("name{rank}"), &mut random))
        .collect::<Outcome<Vec<_>>>()?;
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=names)
        .map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        })
        .collect();
    for _ in 0..count {
        // 53 random bits: what a float holds.
        let point = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        let rank = sums.partition_point(|sum| *sum <= point).min(all.len() - 1);
        writer.write(&all[rank])?;
    }
    Ok(())
}

/// Twelve letters from the lower 60 bits.
fn label(mut bits: u64) -> String {
    let letters = (0..12).map(|_| {
        let letter = LETTERS[(bits & 31) as usize];
        bits >>= 5;
        char::from(letter)
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    fn shape() -> Shape {
        Shape {
            suffix: "flood.example".to_owned(),
            prefix: String::new(),
            edns: Edns::None,
            qtypes: vec![1, 28],
            seed: 7,
        }
    }

    fn lines(make: impl FnOnce(&mut Writer<&mut Vec<u8>>) -> Outcome<()>) -> Vec<String> {
        let mut octets = Vec::new();
        make(&mut Writer::new(&mut octets, false)).unwrap();
        let text = String::from_utf8(octets).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn random_names_all_differ_and_come_again_from_the_same_seed() {
        let some = lines(|writer| random(5000, &shape(), writer));
        let names: HashSet<&str> = some
            .iter()
            .map(|line| line.split(' ').next().unwrap())
            .collect();
        assert_eq!(names.len(), 5000);
        assert!(names.iter().all(|name| name.ends_with(".flood.example.")));
        assert_eq!(some, lines(|writer| random(5000, &shape(), writer)));
        let other = Shape { seed: 8, ..shape() };
        assert_ne!(some, lines(|writer| random(5000, &other, writer)));
    }

    #[test]
    fn types_are_as_frequent_as_each_other() {
        let some = lines(|writer| random(5000, &shape(), writer));
        let aaaa = some.iter().filter(|line| line.ends_with(" AAAA")).count();
        assert!((2300..2700).contains(&aaaa), "{aaaa}");
    }

    #[test]
    fn popularity_falls_with_rank() {
        let some = lines(|writer| zipf(100, 50_000, 1.0, &shape(), writer));
        let mut counts: HashMap<String, f64> = HashMap::new();
        for line in some {
            let name = line.split('.').next().unwrap().to_owned();
            *counts.entry(name).or_default() += 1.0;
        }
        let ratio = |one: &str, other: &str| counts[one] / counts[other];
        assert!((1.8..2.2).contains(&ratio("name0", "name1")));
        assert!((8.0..12.5).contains(&ratio("name0", "name9")));
        assert_eq!(counts.len(), 100);
    }
}

//! What `newPacketCache` was given: the contract between the configuration and the packet cache.

use std::time::Duration;

/// Options of a packet cache, times in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// maxEntries.
    pub maximum_entries: usize,
    /// maxTTL: no record is kept longer.
    pub maximum_ttl: u32,
    /// minTTL: what lives shorter is not kept.
    pub minimum_ttl: u32,
    /// maxNegativeTTL: for NXDOMAIN and NODATA.
    pub maximum_negative_ttl: u32,
    /// temporaryFailureTTL: for SERVFAIL and REFUSED.
    pub temporary_failure_ttl: u32,
    /// staleTTL: the TTL of what is served past its time (setStaleCacheEntriesTTL).
    pub stale_ttl: u32,
    /// truncatedTTL: for answers with TC and no records; 0 does not keep them.
    pub truncated_ttl: u32,
    /// dontAge: TTLs are served as they came.
    pub dont_age: bool,
    /// keepStaleData: nothing is removed while a pool of the cache has no server that is up.
    pub keep_stale_data: bool,
    /// parseECS: answers for all networks are kept once.
    pub parse_subnet: bool,
    /// cookieHashing: EDNS cookies are a part of the key.
    pub cookie_hashing: bool,
    /// shuffle: addresses are served in another order each time.
    pub shuffle: bool,
    /// skipOptions: EDNS options that are no part of the key; the cookie is in here unless `cookie_hashing`.
    pub skip_options: Vec<u16>,
    /// payloadRanks: UDP payload sizes in ascending order; to the key a size is the greatest of them that it is not below.
    pub payload_ranks: Vec<u16>,
    /// maximumEntrySize, in bytes.
    pub maximum_entry_size: usize,
}

impl CacheOptions {
    /// dnsdist's defaults.
    pub fn new(maximum_entries: usize) -> CacheOptions {
        CacheOptions {
            maximum_entries,
            maximum_ttl: 86_400,
            minimum_ttl: 0,
            maximum_negative_ttl: 3_600,
            temporary_failure_ttl: 60,
            stale_ttl: 60,
            truncated_ttl: 0,
            dont_age: false,
            keep_stale_data: false,
            parse_subnet: false,
            cookie_hashing: false,
            shuffle: false,
            skip_options: vec![
                wire::codes::edns_option::COOKIE,
                wire::codes::edns_option::PADDING,
            ],
            payload_ranks: Vec::new(),
            maximum_entry_size: 4_096,
        }
    }

    /// What a client's UDP payload size is to the key; itself where no rank is that low.
    pub fn rank_of(&self, payload_size: u16) -> u16 {
        let ranks = &self.payload_ranks;
        let above = ranks.partition_point(|rank| *rank <= payload_size);
        let rank = above.checked_sub(1).map(|at| ranks[at]);
        rank.unwrap_or(payload_size)
    }
}

/// When caches are looked through for what has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaning {
    /// setCacheCleaningDelay: how often; zero is never.
    pub delay: Duration,
    /// setCacheCleaningPercentage: how much of a cache is to be free then, if so much has expired.
    pub percentage: u8,
}

impl Default for Cleaning {
    /// dnsdist's defaults.
    fn default() -> Cleaning {
        Cleaning {
            delay: Duration::from_secs(60),
            percentage: 100,
        }
    }
}

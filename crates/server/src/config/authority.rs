//! What is written of answers from zones (`setServerID`, `millrace.setVersion`, `millrace.setCookies`,
//! `millrace.setResponseRateLimit`), and what becomes of it.

use super::Config;
use super::spec::Spec;
use crate::clock::{Now, unix};
use crate::pipeline::acl::Netmask;
use crate::pipeline::authority::Authority;
use crate::pipeline::authority::cookies::{Cookies, Secrets};
use crate::pipeline::authority::limit::{LimitOptions, ResponseRateLimit};
use crate::pipeline::authority::pools::ZonePools;
use crate::pipeline::authority::statistics::Statistics;
use crate::random::Random;
use std::sync::Arc;
use wire::cookie::Secret;

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthoritySpec {
    /// millrace.setVersion; `None`: the program's own.
    pub version: Option<String>,
    pub cookies: CookieSpec,
    pub limit: Option<LimitSpec>,
}

/// millrace.setCookies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieSpec {
    pub enabled: bool,
    /// Empty: one of our own.
    pub secrets: Vec<Secret>,
}

impl Default for CookieSpec {
    fn default() -> CookieSpec {
        CookieSpec {
            enabled: true,
            secrets: Vec::new(),
        }
    }
}

/// millrace.setResponseRateLimit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSpec {
    pub options: LimitOptions,
    pub allow: Vec<Netmask>,
}

/// The longest server ID and version, in octets: an answer with either fits every client.
pub const TEXT_LENGTH_MAX: usize = 128;

/// What workers read; secrets of our own and counts are those of `previous`. Statistics come with the zones.
pub(super) fn resolve(spec: &Spec, previous: Option<&Config>) -> Authority {
    let previous = previous.map(|previous| &previous.authority);
    let authority = &spec.authority;
    let version = authority.version.clone();
    Authority {
        identity: spec.server_id.clone().unwrap_or_else(host_name).into(),
        version: version.unwrap_or_else(program).into(),
        cookies: cookies(&authority.cookies, previous),
        limit: authority.limit.as_ref().map(|limit| {
            let allowed = limit.allow.iter().copied().collect();
            let previous = previous.and_then(|previous| previous.limit.as_deref());
            Arc::new(ResponseRateLimit::new(limit.options, allowed, previous))
        }),
        pools: ZonePools::default(),
        statistics: Statistics::default(),
    }
}

fn program() -> String {
    concat!("millrace ", env!("CARGO_PKG_VERSION")).to_owned()
}

/// What other servers of zones say when nobody gave them a name. Empty where the kernel does not tell.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().chars().take(TEXT_LENGTH_MAX).collect()
}

fn cookies(spec: &CookieSpec, previous: Option<&Authority>) -> Option<Arc<Cookies>> {
    if !spec.enabled {
        return None;
    }
    let previous = previous.and_then(|previous| previous.cookies.as_ref());
    let kept = previous.filter(|previous| match previous.secrets() {
        Secrets::Shared(secrets) => *secrets == spec.secrets,
        Secrets::Own(_) => spec.secrets.is_empty(),
    });
    if let Some(kept) = kept {
        return Some(Arc::clone(kept));
    }
    let secrets = match spec.secrets.is_empty() {
        true => Secrets::Own(new_secret()?),
        false => Secrets::Shared(spec.secrets.clone()),
    };
    Some(Arc::new(Cookies::new(secrets, unix(), Now::read())))
}

/// `None` where the kernel has no random numbers: then there are no cookies.
fn new_secret() -> Option<Secret> {
    let mut random = Random::from_kernel().ok()?;
    let mut secret = [0; 16];
    for part in secret.chunks_exact_mut(4) {
        part.copy_from_slice(&random.next_u32().to_le_bytes());
    }
    Some(Secret(secret))
}

impl Config {
    /// To be called when [`Config::local`] is there: each zone finds its pools and its counters, for so many shards; those
    /// of `previous` are kept.
    pub(super) fn count_zones(&mut self, shards: usize, previous: Option<&Config>) {
        let zones = self.local.zones();
        let own: Vec<_> = self
            .zone_options
            .iter()
            .filter(|zone| zone.statistics)
            .collect();
        let own: Vec<_> = own.into_iter().map(|zone| zone.apex.clone()).collect();
        let previous = previous.map(|previous| &previous.authority.statistics);
        self.authority.statistics = Statistics::new(&own, zones, shards, previous);
        let pools = self
            .zone_options
            .iter()
            .map(|zone| (zone.apex.as_name(), &zone.pools[..]));
        self.authority.pools = ZonePools::new(pools, zones);
    }
}

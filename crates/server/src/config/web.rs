//! The web server: `webserver`, `setWebserverConfig` and `setAPIWritable`.

use super::secret::Secret;
use crate::pipeline::acl::{Netmask, Netmasks};
use axum::http::{HeaderName, HeaderValue};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What people wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSpec {
    pub address: Option<SocketAddr>,
    pub acl: Vec<Netmask>,
    pub options: WebOptions,
}

/// What the server reads.
#[derive(Debug, Clone)]
pub struct Webserver {
    pub address: SocketAddr,
    pub acl: Netmasks,
    pub options: WebOptions,
}

/// Whom it lets in to what, and how it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebOptions {
    pub password: Option<Secret>,
    pub api_key: Option<Secret>,
    /// `hashPlaintextCredentials`: neither of them stays readable in memory.
    pub hash_credentials: bool,
    /// `/metrics` and `/jsonstat`.
    pub stats_require_authentication: bool,
    /// `/api`.
    pub api_requires_authentication: bool,
    /// `/`.
    pub dashboard_requires_authentication: bool,
    /// `customHeaders`: instead of ours of the same name; an empty value takes ours away.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub allow_cross_origin_requests: bool,
    /// `prometheusAddInstanceLabel`: every row of /metrics says whose it is.
    pub add_instance_label: bool,
    /// `maxConcurrentConnections`; 0 is no limit.
    pub maximum_connections: usize,
    pub api: ApiWrites,
    /// registerWebHandler: paths of pages that functions of the configuration make.
    pub pages: BTreeSet<String>,
}

/// `setAPIWritable(allow [, directory])`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiWrites {
    pub allowed: bool,
    /// Where what the API changed is written too, as a file of the configuration.
    pub directory: Option<PathBuf>,
}

impl Default for WebOptions {
    /// dnsdist's defaults.
    fn default() -> WebOptions {
        WebOptions {
            password: None,
            api_key: None,
            hash_credentials: false,
            stats_require_authentication: true,
            api_requires_authentication: true,
            dashboard_requires_authentication: true,
            headers: Vec::new(),
            allow_cross_origin_requests: false,
            add_instance_label: false,
            maximum_connections: 100,
            api: ApiWrites::default(),
            pages: BTreeSet::new(),
        }
    }
}

impl Default for WebSpec {
    fn default() -> WebSpec {
        WebSpec {
            address: None,
            acl: super::defaults::web_acl(),
            options: WebOptions::default(),
        }
    }
}

impl WebSpec {
    /// `None` where there is no server.
    pub fn derive(&self) -> Option<Webserver> {
        Some(Webserver {
            address: self.address?,
            acl: self.acl.iter().copied().collect(),
            options: self.options.clone(),
        })
    }
}

//! Every drop has a name (invariant I11): one enum feeds the counters (`/metrics`, `millrace stats`), the mirror,
//! `millrace explain` and the tests.

/// Why a frame, a query or a response went no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
// As long as what other verdicts hold: see `Verdict`.
#[repr(usize)]
pub enum DropReason {
    /// The frame is not a well-formed UDP datagram (lengths, headers).
    FrameMalformed,
    /// An IP or UDP checksum is wrong, or an IPv6 datagram has none (RFC 8200, section 8.1).
    FrameChecksum,
    /// The source address or port cannot be answered (martian, port 0).
    FrameSource,
    /// The client's address is not in the ACL.
    Acl,
    /// No header of the PROXY protocol from whom one is required, or one that cannot be used.
    ProxyProtocolInvalid,
    /// Shorter than a DNS header.
    TooShort,
    /// A datagram longer than the door's room.
    TooLong,
    /// A response (QR set) came to a listener.
    NotQuery,
    /// An empty query and `setDropEmptyQueries(true)`.
    EmptyQuery,
    /// An action said so.
    Rule,
    /// No server of the pool is up, and `setServFailWhenNoServer(false)`.
    NoServer,
    /// All slots for queries in flight are taken.
    ExchangesFull,
    /// The kernel did not take the query or the answer (socket buffer full, no route, an interface that has gone).
    SendFailed,
    /// The TX ring has no room.
    RingFull,
    /// The runtime's queue is full.
    HandOverFull,
    /// TCP clients and backends asked over TCP hold as many bytes as they may.
    TcpMemoryFull,
    /// The allocator has nothing for what this takes.
    OutOfMemory,
    /// The backend has as many TCP connections as maxConcurrentTCPConnections allows, and no place on them; or there is no
    /// connection to be had for it: all servers together have as many as may be, or descriptors or ports are gone.
    BackendConnections,
    /// A response matched no query that waits.
    ResponseUnexpected,
    /// A response for a query that waits, but from a wrong address or for another question.
    ResponseMismatch,
    /// A response that cannot be parsed.
    ResponseMalformed,
    /// A response whose query timed out or was answered before.
    ResponseLate,
    /// Another server that was asked the same had answered before: the loser of a race.
    ResponseLost,
    /// An error that another server of the race may better: it is kept until that has answered or timed out.
    ResponseHeld,
    /// A response action said so.
    ResponseRule,
    /// A rule discarded it to ask again (`dr:restart`).
    ResponseRestarted,
    /// An answer from a zone above millrace.setResponseRateLimit.
    ResponseRate,
    /// A function has suspended it (`dr:suspend`): it may be sent later.
    ResponseSuspended,
    /// A function dropped what was suspended (AsynchronousObject:drop).
    SuspendedDropped,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [DropReason; 29] = [
        DropReason::FrameMalformed,
        DropReason::FrameChecksum,
        DropReason::FrameSource,
        DropReason::Acl,
        DropReason::ProxyProtocolInvalid,
        DropReason::TooShort,
        DropReason::TooLong,
        DropReason::NotQuery,
        DropReason::EmptyQuery,
        DropReason::Rule,
        DropReason::NoServer,
        DropReason::ExchangesFull,
        DropReason::SendFailed,
        DropReason::RingFull,
        DropReason::HandOverFull,
        DropReason::TcpMemoryFull,
        DropReason::OutOfMemory,
        DropReason::BackendConnections,
        DropReason::ResponseUnexpected,
        DropReason::ResponseMismatch,
        DropReason::ResponseMalformed,
        DropReason::ResponseLate,
        DropReason::ResponseLost,
        DropReason::ResponseHeld,
        DropReason::ResponseRule,
        DropReason::ResponseRestarted,
        DropReason::ResponseRate,
        DropReason::ResponseSuspended,
        DropReason::SuspendedDropped,
    ];

    /// Whether the response that is dropped was one to a query that waited for it: its server and the way there are well.
    pub fn has_come(self) -> bool {
        use DropReason::{
            ResponseHeld, ResponseLost, ResponseRestarted, ResponseRule, ResponseSuspended,
        };
        matches!(
            self,
            ResponseLost | ResponseHeld | ResponseRule | ResponseRestarted | ResponseSuspended
        )
    }

    /// Whether the response that is dropped is one that its server made of a query, and no client gets: it came late, or is wrong.
    pub fn is_of_its_server(self) -> bool {
        use DropReason::{ResponseLate, ResponseMalformed, ResponseMismatch};
        matches!(self, ResponseLate | ResponseMalformed | ResponseMismatch)
    }

    /// The label of the counter, and what the mirror and `explain` say.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::FrameMalformed => "frame-malformed",
            DropReason::FrameChecksum => "frame-checksum",
            DropReason::FrameSource => "frame-source",
            DropReason::Acl => "acl",
            DropReason::ProxyProtocolInvalid => "proxy-protocol-invalid",
            DropReason::TooShort => "too-short",
            DropReason::TooLong => "too-long",
            DropReason::NotQuery => "not-query",
            DropReason::EmptyQuery => "empty-query",
            DropReason::Rule => "rule",
            DropReason::NoServer => "no-server",
            DropReason::ExchangesFull => "exchanges-full",
            DropReason::SendFailed => "send-failed",
            DropReason::RingFull => "ring-full",
            DropReason::HandOverFull => "hand-over-full",
            DropReason::TcpMemoryFull => "tcp-memory-full",
            DropReason::OutOfMemory => "out-of-memory",
            DropReason::BackendConnections => "backend-connections",
            DropReason::ResponseUnexpected => "response-unexpected",
            DropReason::ResponseMismatch => "response-mismatch",
            DropReason::ResponseMalformed => "response-malformed",
            DropReason::ResponseLate => "response-late",
            DropReason::ResponseLost => "response-lost",
            DropReason::ResponseHeld => "response-held",
            DropReason::ResponseRule => "response-rule",
            DropReason::ResponseRestarted => "response-restarted",
            DropReason::ResponseRate => "response-rate",
            DropReason::ResponseSuspended => "response-suspended",
            DropReason::SuspendedDropped => "suspended-dropped",
        }
    }
}

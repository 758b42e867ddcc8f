//! One exchange of signed messages: a request, and the answer or the many messages of a transfer.

use super::algorithm::Digest;
use super::record::{Fields, Malformed, Tsig, find, mac_length_least, unsigned_header};
use super::{FUDGE_SECONDS, Key};
use std::fmt;
use std::sync::Arc;
use wire::codes::rcode;
use wire::message::{HEADER_LENGTH, Header};
use wire::name::{Name, NameBuf};

/// RFC 8945 §5.3.1: a client "MUST accept up to 99 intermediary messages without a TSIG".
const UNSIGNED_MAX: u32 = 99;

/// Both sides' state between the messages of one exchange. Made by [`sign_request`] at the client, by
/// [`verify_request`] at the server.
pub struct Session {
    key: Arc<Key>,
    /// The MAC that the next one builds on.
    previous_mac: Vec<u8>,
    /// An answer was signed or verified: those that follow carry timers only.
    is_later: bool,
    /// Messages without a signature since the last one with: fed, not yet verified.
    pending: Option<Digest>,
    pending_count: u32,
    original_id: u16,
    /// Octets of the request without its TSIG record; 0 at the client.
    request_length: usize,
}

/// Why a message that should be signed is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TsigError {
    /// No whole message, or a TSIG record that is none.
    Malformed,
    /// There is no TSIG record where one is needed.
    Unsigned,
    /// Signed with another key or algorithm, or the peer does not know ours.
    BadKey,
    /// The MAC is wrong, or the peer finds ours wrong.
    BadSignature,
    /// The clocks differ by more than the fudge. The peer's time, seconds since 1970.
    BadTime(u64),
    /// The MAC is right but shorter than the key allows.
    BadTruncation,
    /// The peer answers an error that has no other name here.
    Peer(u16),
}

impl fmt::Display for TsigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TsigError::Malformed => f.write_str(
                "malformed message or TSIG record: exactly one, the last of the message, is right",
            ),
            TsigError::Unsigned => {
                f.write_str("no signature: a TSIG record made with the key agreed on is needed")
            }
            TsigError::BadKey => f.write_str(
                "BADKEY: key name or algorithm unknown to one side: both must have the same key",
            ),
            TsigError::BadSignature => {
                f.write_str("BADSIG: wrong MAC: both sides must have the same secret")
            }
            TsigError::BadTime(time) => write!(
                f,
                "BADTIME: the peer's clock says {time} seconds since 1970: clocks may differ by {FUDGE_SECONDS} seconds"
            ),
            TsigError::BadTruncation => {
                f.write_str("BADTRUNC: the MAC is shorter than this key allows")
            }
            TsigError::Peer(error) => write!(f, "the peer answers TSIG error {error}"),
        }
    }
}

impl std::error::Error for TsigError {}

/// A request that is to be refused: what is wrong, and what signs the answer that says so.
pub struct Refusal {
    pub error: TsigError,
    key_name: NameBuf,
    algorithm_name: Vec<u8>,
    original_id: u16,
    /// When the client signed, and when that was read.
    signed_at: u64,
    read_at: u64,
    /// Where the MAC was right, the answer is signed (RFC 8945 §5.2.3, §5.2.2.1).
    session: Option<Session>,
    /// Octets of the request without its TSIG record.
    pub request_length: usize,
}

// --------------------------------------------------------------------------------------------- client

/// Signs a request, whose header holds its final ID, at `now`. What is returned verifies the answers.
#[must_use]
pub fn sign_request(message: &mut Vec<u8>, key: &Arc<Key>, now: u64) -> Session {
    let id = Header::read(message).map_or(0, |header| header.id());
    let mut session = Session::new(key, id, 0);
    session.append(message, now, 0, &[], false);
    session
}

impl Session {
    /// One that has signed and verified nothing.
    fn new(key: &Arc<Key>, original_id: u16, request_length: usize) -> Session {
        Session {
            key: Arc::clone(key),
            previous_mac: Vec::new(),
            is_later: false,
            pending: None,
            pending_count: 0,
            original_id,
            request_length,
        }
    }

    /// Verifies the next answer at `now`; gives its length without the TSIG record. Up to 99 answers in a row may come
    /// without one, which the next with one vouches for; until then nothing of them may be used for good, and the last
    /// one must have one: see [`Session::is_verified`].
    ///
    /// # Errors
    /// What is wrong. The message is no answer of the peer's then.
    pub fn verify(&mut self, message: &[u8], now: u64) -> Result<usize, TsigError> {
        let Some(tsig) = find(message).map_err(|Malformed| TsigError::Malformed)? else {
            return self.unsigned(message);
        };
        let is_ours =
            tsig.key_name == self.key.name() && tsig.algorithm == Some(self.key.algorithm());
        // RFC 8945 §5.4: errors of key and signature come without a MAC.
        match tsig.error {
            rcode::BADKEY => return Err(TsigError::BadKey),
            // BADSIG has the number of BADVERS.
            rcode::BADVERS => return Err(TsigError::BadSignature),
            _ if !is_ours => return Err(TsigError::BadKey),
            _ => {}
        }
        let digest = self.digest(message, &tsig)?;
        check_mac(&self.key, &tsig, digest)?;
        self.check_answer_error(&tsig)?;
        check_time(&tsig, now)?;
        check_truncation(&self.key, &tsig)?;
        self.previous_mac = tsig.mac.to_vec();
        self.is_later = true;
        self.pending_count = 0;
        Ok(tsig.start)
    }

    /// Whether all messages so far are vouched for.
    #[must_use]
    pub const fn is_verified(&self) -> bool {
        self.is_later && self.pending_count == 0
    }

    /// RFC 8945 §5.3.1: the first message has a TSIG record; those between two that have are fed to the MAC whole.
    fn unsigned(&mut self, message: &[u8]) -> Result<usize, TsigError> {
        if !self.is_later || self.pending_count >= UNSIGNED_MAX {
            return Err(TsigError::Unsigned);
        }
        self.pending_count += 1;
        let mut digest = self.started();
        digest.update(message);
        self.pending = Some(digest);
        Ok(message.len())
    }

    fn check_answer_error(&self, tsig: &Tsig<'_>) -> Result<(), TsigError> {
        match tsig.error {
            0 => Ok(()),
            rcode::BADTIME => {
                let [a, b, c, d, e, f] = *tsig.other.first_chunk().ok_or(TsigError::Malformed)?;
                Err(TsigError::BadTime(u64::from_be_bytes([
                    0, 0, a, b, c, d, e, f,
                ])))
            }
            rcode::BADTRUNC => Err(TsigError::BadTruncation),
            error => Err(TsigError::Peer(error)),
        }
    }

    // ----------------------------------------------------------------------------------------- server

    /// Signs the next answer at `now`.
    pub fn sign(&mut self, message: &mut Vec<u8>, now: u64) {
        self.append(message, now, 0, &[], self.is_later);
        self.is_later = true;
    }

    /// The key of this exchange.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Octets of the request without its TSIG record; 0 at the client.
    #[must_use]
    pub const fn request_length(&self) -> usize {
        self.request_length
    }

    /// Octets that a signature adds to a message.
    #[must_use]
    pub fn signature_length(&self) -> usize {
        let algorithm = self.key.algorithm();
        self.key.name().len() + 10 + algorithm.wire_name().len() + 16 + algorithm.mac_length()
    }

    fn append(
        &mut self,
        message: &mut Vec<u8>,
        now: u64,
        error: u16,
        other: &[u8],
        timers_only: bool,
    ) {
        let key = self.key.clone();
        let fields = Fields {
            key_name: key.name().as_bytes(),
            algorithm_name: key.algorithm().wire_name(),
            time: now,
            fudge: FUDGE_SECONDS,
            original_id: self.original_id,
            error,
            other,
        };
        let mut digest = self.started();
        // RFC 8945 §5.3: the ID in the MAC is the original one.
        digest.update(&self.original_id.to_be_bytes());
        digest.update(message.get(2..).unwrap_or_default());
        digest.update(&fields.variables(timers_only));
        let mac = digest.finish();
        fields.append(message, &mac);
        self.previous_mac = mac;
    }

    // --------------------------------------------------------------------------------------- both sides

    /// A MAC that was fed what comes before the message: the MAC before, and messages without one.
    fn started(&mut self) -> Digest {
        if let Some(pending) = self.pending.take() {
            return pending;
        }
        let mut digest = self.key.algorithm().keyed(&self.key.secret);
        if !self.previous_mac.is_empty() {
            digest.update(&(self.previous_mac.len() as u16).to_be_bytes());
            digest.update(&self.previous_mac);
        }
        digest
    }

    /// The MAC that `message` should have.
    fn digest(&mut self, message: &[u8], tsig: &Tsig<'_>) -> Result<Digest, TsigError> {
        let timers_only = self.is_later;
        let mut digest = self.started();
        let header = unsigned_header(message, tsig).ok_or(TsigError::Malformed)?;
        digest.update(&header);
        digest.update(&message[HEADER_LENGTH..tsig.start]);
        let fields = Fields {
            key_name: tsig.key_name.as_name().as_bytes(),
            algorithm_name: &tsig.algorithm_name,
            time: tsig.time,
            fudge: tsig.fudge,
            original_id: tsig.original_id,
            error: tsig.error,
            other: tsig.other,
        };
        digest.update(&fields.variables(timers_only));
        Ok(digest)
    }
}

fn check_mac(key: &Key, tsig: &Tsig<'_>, digest: Digest) -> Result<(), TsigError> {
    let lengths = mac_length_least(key.algorithm())..=key.algorithm().mac_length();
    // RFC 8945 §5.2.2.1: longer than the algorithm's, or shorter than the least: FORMERR.
    if !lengths.contains(&tsig.mac.len()) {
        return Err(TsigError::Malformed);
    }
    digest
        .verify(tsig.mac)
        .then_some(())
        .ok_or(TsigError::BadSignature)
}

fn check_time(tsig: &Tsig<'_>, now: u64) -> Result<(), TsigError> {
    if now.abs_diff(tsig.time) > u64::from(tsig.fudge) {
        return Err(TsigError::BadTime(tsig.time));
    }
    Ok(())
}

fn check_truncation(key: &Key, tsig: &Tsig<'_>) -> Result<(), TsigError> {
    if tsig.mac.len() < key.mac_length_min {
        return Err(TsigError::BadTruncation);
    }
    Ok(())
}

// --------------------------------------------------------------------------------------------- server

/// Verifies a request at `now` with the key that `key_of` has for its name. `Ok(None)`: it is not signed. What is
/// returned otherwise signs the answers.
///
/// # Errors
/// A refusal that answers the request: see [`Refusal::rcode`]. Where the message is malformed, its answer has no TSIG.
pub fn verify_request(
    message: &[u8],
    key_of: impl FnOnce(Name<'_>) -> Option<Arc<Key>>,
    now: u64,
) -> Result<Option<Session>, Box<Refusal>> {
    let tsig = match find(message) {
        Ok(None) => return Ok(None),
        Ok(Some(tsig)) => tsig,
        Err(Malformed) => return Err(Box::new(Refusal::malformed(message))),
    };
    let refuse = |error, session| {
        Box::new(Refusal {
            error,
            key_name: tsig.key_name.clone(),
            algorithm_name: tsig.algorithm_name.clone(),
            original_id: tsig.original_id,
            signed_at: tsig.time,
            read_at: now,
            session,
            request_length: tsig.start,
        })
    };
    let key = key_of(tsig.key_name.as_name()).filter(|key| tsig.algorithm == Some(key.algorithm()));
    let key = key.ok_or_else(|| refuse(TsigError::BadKey, None))?;
    let mut session = Session::new(&key, tsig.original_id, tsig.start);
    let digest = session
        .digest(message, &tsig)
        .map_err(|error| refuse(error, None))?;
    check_mac(&key, &tsig, digest).map_err(|error| refuse(error, None))?;
    session.previous_mac = tsig.mac.to_vec();
    // RFC 8945 §5.2: key, MAC, time, truncation, in this order.
    match check_time(&tsig, now).and_then(|()| check_truncation(&key, &tsig)) {
        Ok(()) => Ok(Some(session)),
        Err(error) => Err(refuse(error, Some(session))),
    }
}

impl Refusal {
    fn malformed(message: &[u8]) -> Refusal {
        Refusal {
            error: TsigError::Malformed,
            key_name: Name::ROOT.to_owned(),
            algorithm_name: Vec::new(),
            original_id: 0,
            signed_at: 0,
            read_at: 0,
            session: None,
            request_length: message.len(),
        }
    }

    /// The response code of the answer: NOTAUTH, or FORMERR.
    #[must_use]
    pub const fn rcode(&self) -> u16 {
        match self.error {
            TsigError::Malformed => rcode::FORMERR,
            _ => rcode::NOTAUTH,
        }
    }

    /// The error that the answer's TSIG record says; `None`: the answer has no such record.
    #[must_use]
    pub const fn tsig_error(&self) -> Option<u16> {
        match self.error {
            TsigError::BadKey => Some(rcode::BADKEY),
            TsigError::BadTime(_) => Some(rcode::BADTIME),
            TsigError::BadTruncation => Some(rcode::BADTRUNC),
            // BADSIG has the number of BADVERS.
            TsigError::BadSignature => Some(rcode::BADVERS),
            TsigError::Malformed | TsigError::Unsigned | TsigError::Peer(_) => None,
        }
    }

    /// Appends the TSIG record to the answer that refuses the request.
    pub fn sign(self, message: &mut Vec<u8>) {
        let Some(error) = self.tsig_error() else {
            return;
        };
        // RFC 8945 §5.2.3: "it SHOULD include the client's current time in the Time Signed field, the server's current time
        // (an unsigned 48-bit integer) in the Other Data field".
        let [_, _, server_time @ ..] = self.read_at.to_be_bytes();
        let (time, other) = match error {
            rcode::BADTIME => (self.signed_at, &server_time[..]),
            _ => (self.read_at, &[][..]),
        };
        if let Some(mut session) = self.session {
            return session.append(message, time, error, other, false);
        }
        let fields = Fields {
            key_name: self.key_name.as_name().as_bytes(),
            algorithm_name: &self.algorithm_name,
            time,
            fudge: FUDGE_SECONDS,
            original_id: self.original_id,
            error,
            other,
        };
        // RFC 8945 §5.2.1, §5.2.2: answers to an unknown key or a wrong MAC "MUST be unsigned".
        fields.append(message, &[]);
    }
}

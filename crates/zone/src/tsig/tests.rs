use super::*;
use data_encoding::HEXLOWER;
use proptest::prelude::*;
use std::sync::Arc;
use wire::message::Header;
use wire::message::parse_query;

const SECRET: &[u8] = b"secret of the mill race 12345678";
const NOW: u64 = 1_800_000_000;

fn name(text: &str) -> NameBuf {
    text.parse().unwrap()
}

fn key(algorithm: Algorithm) -> Arc<Key> {
    Arc::new(Key::new(name("mill.key").as_name(), algorithm, SECRET))
}

fn request() -> Vec<u8> {
    crate::transfer::query::axfr(0x1234, name("example.com").as_name())
}

/// An answer without anything.
fn answer(id: u16) -> Vec<u8> {
    let mut header = Header::default();
    header.set_id(id);
    header.set_qr(true);
    header.as_bytes().to_vec()
}

fn verified(message: &[u8], key: &Arc<Key>, now: u64) -> Session {
    match verify_request(message, |_| Some(key.clone()), now) {
        Ok(Some(session)) => session,
        Ok(None) => panic!("not signed"),
        Err(refusal) => panic!("{}", refusal.error),
    }
}

fn refused(message: &[u8], key: Option<&Arc<Key>>, now: u64) -> Box<Refusal> {
    match verify_request(message, |_| key.cloned(), now) {
        Err(refusal) => refusal,
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn what_kdig_and_dig_signed_is_verified_and_signed_the_same() {
    for line in include_str!("requests.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [program, algorithm, message] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let algorithm = Algorithm::of_name(algorithm).unwrap();
        let message = HEXLOWER.decode(message.as_bytes()).unwrap();
        let tsig = record::find(&message).ok().flatten().unwrap();
        let session = verified(&message, &key(algorithm), tsig.time + 300);
        assert_eq!(session.request_length(), tsig.start);
        let refusal = refused(&message, Some(&key(algorithm)), tsig.time + 301);
        assert_eq!(refusal.error, TsigError::BadTime(tsig.time), "{program}");

        let mut ours = message[..tsig.start].to_vec();
        let mut header = Header::read(&ours).unwrap();
        header.set_additional_count(header.additional_count() - 1);
        header.write(&mut ours).unwrap();
        let _ = sign_request(&mut ours, &key(algorithm), tsig.time);
        assert_eq!(ours, message, "{program} {}", algorithm.name());
    }
}

#[test]
fn names_of_algorithms() {
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::of_name(algorithm.name()), Some(algorithm));
        let wire = Name::parse(algorithm.wire_name()).unwrap().to_string();
        assert_eq!(Algorithm::of_name(&wire), Some(algorithm), "{wire}");
    }
    assert_eq!(Algorithm::of_name("HMAC-SHA256."), Some(Algorithm::Sha256));
    assert_eq!(Algorithm::of_name("hmac-md4"), None);
    let debug = format!("{:?}", key(Algorithm::Sha1));
    assert_eq!(debug, "Key(mill.key. hmac-sha1)");
}

#[test]
fn a_chain_of_answers_holds_together() {
    for algorithm in Algorithm::ALL {
        let key = key(algorithm);
        let mut message = request();
        let mut client = sign_request(&mut message, &key, NOW);
        assert!(parse_query(&message).is_ok());
        let mut server = verified(&message, &key, NOW + 5);
        assert_eq!(server.request_length(), request().len());
        for _ in 0..4 {
            let plain = answer(0x1234);
            let mut signed = plain.clone();
            server.sign(&mut signed, NOW + 5);
            assert_eq!(signed.len(), plain.len() + server.signature_length());
            assert_eq!(client.verify(&signed, NOW + 10), Ok(plain.len()));
            assert!(client.is_verified());
        }
    }
}

#[test]
fn a_message_that_was_changed_anywhere_is_not_believed() {
    let key = key(Algorithm::Sha256);
    let mut message = request();
    let _ = sign_request(&mut message, &key, NOW);
    for at in 0..message.len() {
        let mut changed = message.clone();
        changed[at] ^= 1;
        let is_signed = verify_request(
            &changed,
            |name| (name == key.name()).then(|| key.clone()),
            NOW,
        );
        // The ID of the header may change on the way: the original one is in the record (RFC 8945 §4.3.2).
        assert!(at < 2 || !matches!(is_signed, Ok(Some(_))), "octet {at}");
    }
}

#[test]
fn refusals_are_understood() {
    let (ours, other) = (key(Algorithm::Sha256), key(Algorithm::Sha512));
    let signed = |now| {
        let mut message = request();
        let session = sign_request(&mut message, &ours, now);
        (message, session)
    };
    let refusal_read = |refusal: Box<Refusal>, mut client: Session, now| {
        let mut message = answer(0x1234);
        assert_eq!(refusal.rcode(), wire::codes::rcode::NOTAUTH);
        refusal.sign(&mut message);
        client.verify(&message, now)
    };
    let (message, client) = signed(NOW);
    assert_eq!(
        refusal_read(refused(&message, None, NOW), client, NOW),
        Err(TsigError::BadKey)
    );
    let (message, client) = signed(NOW);
    assert_eq!(
        refusal_read(refused(&message, Some(&other), NOW), client, NOW),
        Err(TsigError::BadKey)
    );
    let secretless = Arc::new(Key::new(ours.name(), ours.algorithm(), b"else"));
    let (message, client) = signed(NOW);
    assert_eq!(
        refusal_read(refused(&message, Some(&secretless), NOW), client, NOW),
        Err(TsigError::BadSignature)
    );
    // The client's clock is behind; it learns what the server's says, in an answer that it can verify.
    let (message, client) = signed(NOW - 1_000);
    assert_eq!(
        refusal_read(refused(&message, Some(&ours), NOW), client, NOW - 1_000),
        Err(TsigError::BadTime(NOW))
    );
}

#[test]
fn truncated_macs_do_where_the_key_says_so() {
    let cut = |length: usize| {
        let mut message = request();
        let _ = sign_request(&mut message, &key(Algorithm::Sha256), NOW);
        let tsig = record::find(&message).ok().flatten().unwrap();
        let fields = record::Fields {
            key_name: b"\x04mill\x03key\x00",
            algorithm_name: Algorithm::Sha256.wire_name(),
            time: tsig.time,
            fudge: tsig.fudge,
            original_id: tsig.original_id,
            error: 0,
            other: &[],
        };
        let mut cut = request();
        fields.append(&mut cut, &tsig.mac[..length]);
        cut
    };
    let whole = key(Algorithm::Sha256);
    let shorter = Arc::new(Key::clone(&whole).accept_truncated(20));
    assert_eq!(
        refused(&cut(20), Some(&whole), NOW).error,
        TsigError::BadTruncation
    );
    assert_eq!(
        refused(&cut(19), Some(&shorter), NOW).error,
        TsigError::BadTruncation
    );
    // Below half of the hash nothing does.
    assert_eq!(
        refused(&cut(15), Some(&shorter), NOW).error,
        TsigError::Malformed
    );
    let _ = verified(&cut(20), &shorter, NOW);
    let _ = verified(&cut(32), &shorter, NOW);
    let least = Arc::new(Key::clone(&whole).accept_truncated(0));
    let _ = verified(&cut(16), &least, NOW);
}

#[test]
fn the_record_is_the_last_and_the_only_one() {
    let key = key(Algorithm::Sha1);
    let mut message = request();
    let _ = sign_request(&mut message, &key, NOW);
    let _ = sign_request(&mut message, &key, NOW);
    assert_eq!(
        refused(&message, Some(&key), NOW).error,
        TsigError::Malformed
    );
    let mut message = request();
    let mut session = sign_request(&mut message, &key, NOW);
    assert_eq!(
        session.verify(&answer(0x1234), NOW),
        Err(TsigError::Unsigned)
    );
    assert!(matches!(
        verify_request(&request(), |_| None, NOW),
        Ok(None)
    ));
    assert!(refused(&message[..message.len() - 1], Some(&key), NOW).error == TsigError::Malformed);
}

#[test]
fn messages_between_signed_ones_are_vouched_for_by_the_next() {
    let key = key(Algorithm::Sha256);
    let mut message = request();
    let mut client = sign_request(&mut message, &key, NOW);
    let mut server = verified(&message, &key, NOW);
    let mut first = answer(0x1234);
    server.sign(&mut first, NOW);
    assert!(client.verify(&first, NOW).is_ok());
    // A server that signs every hundredth: RFC 8945 §5.3.1.
    for _ in 0..99 {
        let between = answer(0x1234);
        // What the server feeds to its MAC is what the client does.
        assert_eq!(server.verify(&between, NOW), Ok(between.len()));
        assert_eq!(client.verify(&between, NOW), Ok(between.len()));
        assert!(!client.is_verified());
    }
    let mut signed = answer(0x1234);
    server.sign(&mut signed, NOW);
    let mut strayed = client_of(&key, &first);
    assert_eq!(strayed.verify(&signed, NOW), Err(TsigError::BadSignature));
    assert_eq!(client.verify(&signed, NOW), Ok(12));
    assert!(client.is_verified());
}

/// A client that has seen the first answer only.
fn client_of(key: &Arc<Key>, first: &[u8]) -> Session {
    let mut request = request();
    let mut client = sign_request(&mut request, key, NOW);
    assert!(client.verify(first, NOW).is_ok());
    client
}

proptest! {
    #[test]
    fn any_octets_are_no_trouble(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        let key = key(Algorithm::Sha256);
        let is_signed = verify_request(&octets, |_| Some(key.clone()), NOW);
        prop_assert!(!matches!(is_signed, Ok(Some(_))));
    }

    /// RFC 8945 §4.3.2, §4.3.3: the first ID is in the record, and names are in the MAC in lower case. §5.3.1: of the second
    /// answer on the MAC has the timers alone, and the record is the peer's all the same.
    #[test]
    fn only_the_id_and_the_case_of_names_may_change_on_the_way(
        answers in 0..3_usize,
        place in any::<prop::sample::Index>(),
        flipped in prop_oneof![Just(0x20), any::<u8>()],
    ) {
        let key = key(Algorithm::Sha256);
        let mut message = request();
        let mut client = sign_request(&mut message, &key, NOW);
        let mut server = verified(&message, &key, NOW);
        let mut start = server.request_length();
        for number in 0..answers {
            prop_assert!(number == 0 || client.verify(&message, NOW).is_ok());
            message = answer(0x1234);
            start = message.len();
            server.sign(&mut message, NOW);
        }
        let at = place.index(message.len());
        let before = message[at];
        message[at] ^= flipped;
        let key_of = |name: Name<'_>| (name == key.name()).then(|| key.clone());
        let is_believed = match answers {
            0 => matches!(verify_request(&message, key_of, NOW), Ok(Some(_))),
            _ => client.verify(&message, NOW).is_ok() && client.is_verified(),
        };
        let key_name = start..start + key.name().len();
        let algorithm = key_name.end + 10;
        let algorithm = algorithm..algorithm + key.algorithm().wire_name().len();
        let is_case = (key_name.contains(&at) || algorithm.contains(&at))
            && before.eq_ignore_ascii_case(&message[at]);
        prop_assert_eq!(is_believed, flipped == 0 || at < 2 || is_case, "octet {}", at);
    }
}

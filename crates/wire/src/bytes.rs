//! Numbers in network byte order at a checked place.

/// The 16-bit number at `at`, or `None` where the bytes end before it does.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*field))
}

/// The 32-bit number at `at`, or `None` where the bytes end before it does.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*field))
}

/// Writes `value` at `at`. Where there is no room nothing is written, and the answer is `None`.
#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}

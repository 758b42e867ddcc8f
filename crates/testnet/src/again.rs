//! System calls that the kernel ended early, made again.

use std::io;

/// Attempts of one call, at most: each has the caller's whole time-out again, so that a bound there must be.
const ATTEMPTS_MAX: usize = 100;

/// Makes a system call again when it ends with EINTR, a hundred times at most.
///
/// That needs no signal handler. signal(7), "Interruption of system calls and library functions by stop signals": "On Linux, even
/// in the absence of signal handlers, certain blocking interfaces can fail with the error EINTR after the process is stopped by
/// one of the stop signals and then resumed via SIGCONT"; among them are those that receive or accept on a socket with
/// SO_RCVTIMEO, those that send or connect on one with SO_SNDTIMEO, and epoll_wait. A machine that is frozen for a snapshot does
/// the same to its processes. Of std, `read_exact`, `read_to_end`, `read_line` and `write_all` go on by themselves, and `connect`
/// and `accept` of TCP; `read`, `peek`, `recv`, `recv_from`, `write`, `send` and `send_to` do not.
///
/// # Errors
/// The call's own; EINTR when the last attempt was interrupted too.
pub fn again_if_interrupted<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..ATTEMPTS_MAX {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// How a call ends that is interrupted so often and then ends with `last`, and how often it is made.
    fn made(interruptions: usize, last: Result<u8, ErrorKind>) -> (Result<u8, ErrorKind>, usize) {
        let mut calls = 0;
        let outcome = again_if_interrupted(|| {
            calls += 1;
            match calls <= interruptions {
                true => Err(ErrorKind::Interrupted.into()),
                false => last.map_err(io::Error::from),
            }
        });
        (outcome.map_err(|error| error.kind()), calls)
    }

    #[test]
    fn an_interrupted_call_is_made_again_and_no_other_is() {
        assert_eq!(made(0, Ok(7)), (Ok(7), 1));
        assert_eq!(made(2, Ok(7)), (Ok(7), 3));
        let late = Err(ErrorKind::WouldBlock);
        assert_eq!(made(0, late), (late, 1));
        assert_eq!(made(2, late), (late, 3));
    }

    #[test]
    fn who_is_always_interrupted_is_told_at_last() {
        let interrupted = Err(ErrorKind::Interrupted);
        assert_eq!(made(usize::MAX, Ok(7)), (interrupted, ATTEMPTS_MAX));
    }
}

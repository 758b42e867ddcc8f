//! Filters of system calls (seccomp(2)), as systemd makes them of a unit's settings: classic BPF over `struct seccomp_data`.
//! What has no filter is allowed; of several that a process has, the strictest decides.

use libc::sock_filter;

/// What a process and all that it starts are refused. It is made before the fork: to install it allocates nothing.
#[derive(Debug, Clone)]
pub struct Filter(Vec<sock_filter>);

// struct seccomp_data (linux/seccomp.h): the call's number, the architecture, the address that it comes from, six arguments of
// 8 octets.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// AUDIT_ARCH_X86_64 (linux/audit.h): EM_X86_64, 64 bits, little-endian.
const X86_64: u32 = 0xc000_003e;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

impl Filter {
    /// Refuses these calls, by number, with this error number.
    pub fn calls(numbers: &[u32], error: i32) -> Filter {
        let mut program = vec![load(NUMBER)];
        for &number in numbers {
            program.extend([jump(IF_EQUAL, number, 0, 1), refuse(error)]);
        }
        program.push(allow());
        Filter(program)
    }

    /// Refuses all calls but these; one of another architecture's numbers (32 bits) ends the process, as
    /// `SystemCallArchitectures=native` does.
    pub fn calls_but(numbers: &[u32], error: i32) -> Filter {
        let mut program = vec![
            load(ARCHITECTURE),
            jump(IF_EQUAL, X86_64, 1, 0),
            give(libc::SECCOMP_RET_KILL_PROCESS),
            load(NUMBER),
        ];
        program.extend(only(numbers, error));
        Filter(program)
    }

    /// Refuses one call where its argument (0 is the first) has this value in its lower half.
    pub fn argument(number: u32, (index, value): (u8, u32), error: i32) -> Filter {
        judged(number, index, jump(IF_EQUAL, value, 0, 1), error)
    }

    /// Refuses one call where its argument (0 is the first) has any of these bits in its lower half.
    pub fn argument_bits(number: u32, (index, bits): (u8, u32), error: i32) -> Filter {
        judged(number, index, jump(IF_ANY_BIT, bits, 0, 1), error)
    }

    /// Refuses one call where its argument (0 is the first) has none of these values in its lower half.
    pub fn argument_but(number: u32, (index, values): (u8, &[u32]), error: i32) -> Filter {
        let mut program = vec![
            load(NUMBER),
            jump(IF_EQUAL, number, 1, 0),
            allow(),
            load(place(index)),
        ];
        program.extend(only(values, error));
        Filter(program)
    }

    /// The program.
    pub(crate) fn instructions(&self) -> &[sock_filter] {
        &self.0
    }
}

/// One call, refused where a test of one argument says so.
fn judged(number: u32, index: u8, test: sock_filter, error: i32) -> Filter {
    Filter(vec![
        load(NUMBER),
        jump(IF_EQUAL, number, 0, 3),
        load(place(index)),
        test,
        refuse(error),
        allow(),
    ])
}

/// Allows these values of what is loaded and refuses the rest. Each has its own end beside it: a jump goes 255 instructions far.
fn only(values: &[u32], error: i32) -> Vec<sock_filter> {
    let allowed = |&value| [jump(IF_EQUAL, value, 0, 1), allow()];
    let mut program: Vec<sock_filter> = values.iter().flat_map(allowed).collect();
    program.push(refuse(error));
    program
}

/// Where the lower half of an argument lies, on little-endian machines.
fn place(index: u8) -> u32 {
    16 + 8 * u32::from(index)
}

fn load(offset: u32) -> sock_filter {
    instruction(LOAD, (0, 0), offset)
}

/// Instructions to leave out, where it is so and where it is not.
fn jump(test: u16, value: u32, so: u8, otherwise: u8) -> sock_filter {
    instruction(test, (so, otherwise), value)
}

fn refuse(error: i32) -> sock_filter {
    give(libc::SECCOMP_RET_ERRNO | error as u32)
}

fn allow() -> sock_filter {
    give(libc::SECCOMP_RET_ALLOW)
}

fn give(verdict: u32) -> sock_filter {
    instruction(RETURN, (0, 0), verdict)
}

fn instruction(code: u16, (jt, jf): (u8, u8), k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Denied, deny_here};
    use nix::errno::Errno;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

    const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

    /// What becomes of a call of this number, architecture and first two arguments, instruction by instruction as the kernel does.
    fn verdict(filter: &Filter, [number, architecture, first, second]: [u32; 4]) -> u32 {
        let words = [number, architecture, 0, 0, first, 0, second, 0];
        let (mut place, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = filter.0[place];
            place += 1;
            let is_so = match code {
                LOAD => {
                    loaded = words[k as usize / 4];
                    continue;
                }
                RETURN => return k,
                IF_EQUAL => loaded == k,
                _ => loaded & k != 0,
            };
            place += usize::from(if is_so { jt } else { jf });
        }
    }

    #[test]
    fn calls_are_refused_or_all_the_others_are() {
        let native = |number| [number, X86_64, 0, 0];
        let some = Filter::calls(&[7, 9], libc::EPERM);
        // More than one jump reaches over.
        let many: Vec<u32> = (0..400).map(|number| 2 * number).collect();
        let others = Filter::calls_but(&many, libc::EPERM);
        for (filter, number, expected) in [
            (&some, 7, REFUSED),
            (&some, 8, libc::SECCOMP_RET_ALLOW),
            (&some, 9, REFUSED),
            (&others, 0, libc::SECCOMP_RET_ALLOW),
            (&others, 7, REFUSED),
            (&others, 798, libc::SECCOMP_RET_ALLOW),
            (&others, 800, REFUSED),
        ] {
            assert_eq!(verdict(filter, native(number)), expected, "{number}");
        }
        // AUDIT_ARCH_I386.
        let foreign = verdict(&others, [0, 0x4000_0003, 0, 0]);
        assert_eq!(foreign, libc::SECCOMP_RET_KILL_PROCESS);
    }

    #[test]
    fn an_argument_decides() {
        let value = Filter::argument(5, (1, 2), libc::EPERM);
        let bits = Filter::argument_bits(5, (0, 0b110), libc::EPERM);
        let others = Filter::argument_but(5, (0, &[1, 2]), libc::EPERM);
        for (filter, number, arguments, is_refused) in [
            (&value, 5, [0, 2], true),
            (&value, 5, [2, 3], false),
            (&value, 6, [0, 2], false),
            (&bits, 5, [0b1010, 0], true),
            (&bits, 5, [0b1001, 6], false),
            (&bits, 6, [0b1010, 0], false),
            (&others, 5, [2, 7], false),
            (&others, 5, [3, 1], true),
            (&others, 6, [3, 1], false),
        ] {
            let [first, second] = arguments;
            let verdict = verdict(filter, [number, X86_64, first, second]);
            assert_eq!(verdict == REFUSED, is_refused, "{number} {arguments:?}");
        }
    }

    /// A filter holds the thread that installs it and no other.
    #[test]
    fn the_kernel_does_as_the_filter_says() {
        let refused = std::thread::spawn(|| {
            nix::sys::prctl::set_no_new_privs().expect("no_new_privs");
            let families = [libc::AF_UNIX as u32, libc::AF_INET as u32];
            let number = libc::SYS_socket as u32;
            let filter = Filter::argument_but(number, (0, &families), libc::EAFNOSUPPORT);
            deny_here(&[Denied::Calls(filter)]).expect("a filter");
            let open = |family| socket(family, SockType::Datagram, SockFlag::empty(), None);
            (
                open(AddressFamily::Inet).err(),
                open(AddressFamily::Inet6).err(),
            )
        });
        let refused = refused.join().expect("a thread");
        assert_eq!(refused, (None, Some(Errno::EAFNOSUPPORT)));
    }
}

//! The bpf() system call, as far as libbpf-rs does not wrap it or its types would tie us to an open object.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_sys as raw;

/// A map by its descriptor.
pub(crate) struct Map {
    descriptor: OwnedFd,
    key_size: usize,
    /// Octets that a look-up fills: for a per-CPU map, those of all CPUs.
    value_size: usize,
    /// How many it has room for.
    entries: u32,
}

impl Map {
    /// Asks the kernel how long key and value are: so many octets it will read and write.
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Map> {
        let facts = describe_map(&descriptor)?;
        let value_size = match facts.kind {
            raw::BPF_MAP_TYPE_PERCPU_ARRAY | raw::BPF_MAP_TYPE_PERCPU_HASH => {
                facts.value_size.next_multiple_of(8) * possible_cpus()?
            }
            _ => facts.value_size,
        };
        Ok(Map {
            descriptor,
            key_size: facts.key_size,
            value_size,
            entries: facts.entries,
        })
    }

    /// How many entries it has room for.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Makes an array that can be mapped into memory.
    pub(crate) fn mappable_array(name: &CStr, value_size: u32, entries: u32) -> io::Result<Map> {
        let options = raw::bpf_map_create_opts {
            sz: size_of::<raw::bpf_map_create_opts>() as raw::size_t,
            map_flags: raw::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let kind = raw::BPF_MAP_TYPE_ARRAY;
        // SAFETY: the name lives through the call, and libbpf reads at most `sz` octets of the options.
        let made =
            unsafe { raw::bpf_map_create(kind, name.as_ptr(), 4, value_size, entries, &options) };
        Map::new(owned(made)?)
    }

    /// Inserts or replaces.
    pub(crate) fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(
            (key.len(), value.len()),
            (self.key_size, self.value_size),
            "octets of key and value"
        );
        // SAFETY: the kernel reads as many octets as the map's key and value have: checked.
        result(unsafe {
            raw::bpf_map_update_elem(
                self.descriptor.as_raw_fd(),
                key.as_ptr().cast(),
                value.as_ptr().cast(),
                raw::BPF_ANY.into(),
            )
        })
    }

    /// Removes; that there is none is an error of number ENOENT.
    pub(crate) fn delete(&self, key: &[u8]) -> io::Result<()> {
        assert_eq!(key.len(), self.key_size, "octets of the key");
        // SAFETY: the kernel reads as many octets as the map's key has: checked.
        result(unsafe {
            raw::bpf_map_delete_elem(self.descriptor.as_raw_fd(), key.as_ptr().cast())
        })
    }

    pub(crate) fn lookup(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        assert_eq!(key.len(), self.key_size, "octets of the key");
        let mut value = vec![0; self.value_size];
        // SAFETY: the kernel reads the key and writes the value in the sizes of the map: checked, and made so.
        result(unsafe {
            raw::bpf_map_lookup_elem(
                self.descriptor.as_raw_fd(),
                key.as_ptr().cast(),
                value.as_mut_ptr().cast(),
            )
        })?;
        Ok(value)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// What the kernel says of a map.
pub(crate) struct MapFacts {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    /// How many it has room for.
    pub(crate) entries: u32,
    /// Its first 15 octets.
    pub(crate) name: String,
}

pub(crate) fn describe_map(map: &OwnedFd) -> io::Result<MapFacts> {
    let mut info = raw::bpf_map_info::default();
    // SAFETY: a bpf_map_info is integers, and the descriptor a map's (any other kind would be refused or fill less).
    unsafe { object_info(map, &mut info)? };
    Ok(MapFacts {
        kind: info.type_,
        id: info.id,
        key_size: info.key_size as usize,
        value_size: info.value_size as usize,
        entries: info.max_entries,
        name: text(&info.name),
    })
}

/// What the kernel says of a program.
pub(crate) struct ProgramFacts {
    /// Its first 15 octets.
    pub(crate) name: String,
    /// What its instructions hash to: the same wherever it is loaded.
    pub(crate) tag: [u8; 8],
    /// The ids of the maps that it uses.
    pub(crate) maps: Vec<u32>,
}

/// The ids of the maps that a program uses.
pub(crate) fn program_maps(program: &OwnedFd) -> io::Result<Vec<u32>> {
    Ok(describe_program(program)?.maps)
}

pub(crate) fn describe_program(program: &OwnedFd) -> io::Result<ProgramFacts> {
    let mut ids = vec![0u32; 64];
    // SAFETY: a bpf_prog_info is integers: zero is a value of each.
    let mut info: raw::bpf_prog_info = unsafe { std::mem::zeroed() };
    info.nr_map_ids = ids.len() as u32;
    info.map_ids = ids.as_mut_ptr() as u64;
    // SAFETY: the one address in it points to as many ids as it says; all other counts are zero.
    unsafe { object_info(program, &mut info)? };
    ids.truncate(info.nr_map_ids as usize);
    Ok(ProgramFacts {
        name: text(&info.name),
        tag: info.tag,
        maps: ids,
    })
}

/// A name of the kernel's, as far as the first octet of zero.
fn text(name: &[c_char]) -> String {
    let octets = name.iter().map(|octet| octet.to_ne_bytes()[0]);
    let octets: Vec<u8> = octets.take_while(|&octet| octet != 0).collect();
    String::from_utf8_lossy(&octets).into_owned()
}

/// The interface that an XDP link is on; 0: none any more.
pub(crate) fn link_interface(link: &OwnedFd) -> io::Result<u32> {
    Ok(describe_link(link)?.0)
}

/// The same, and the id of the link's program.
pub(crate) fn describe_link(link: &OwnedFd) -> io::Result<(u32, u32)> {
    // SAFETY: a bpf_link_info is integers in unions: zero is a value of each.
    let mut info: raw::bpf_link_info = unsafe { std::mem::zeroed() };
    // SAFETY: it holds no addresses for an XDP link.
    unsafe { object_info(link, &mut info)? };
    // SAFETY: the kernel has filled this member of the union for a link of this kind; any bits are a number.
    let interface = unsafe { info.__bindgen_anon_1.xdp.ifindex };
    Ok((interface, info.prog_id))
}

/// # Safety
/// `T` is the info structure of the descriptor's kind, all integers, and each address in it points to memory as large as
/// it says.
unsafe fn object_info<T>(object: &OwnedFd, info: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as u32;
    let at = std::ptr::from_mut(info).cast();
    // SAFETY: the kernel writes at most `length` octets to `info`; for the rest the caller vouches.
    result(unsafe { raw::bpf_obj_get_info_by_fd(object.as_raw_fd(), at, &mut length) })
}

/// libbpf returns -1 with errno, or a negative error number.
fn result(returned: i32) -> io::Result<()> {
    match returned {
        0.. => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

fn owned(returned: i32) -> io::Result<OwnedFd> {
    result(returned)?;
    // SAFETY: the call has just opened it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(returned) })
}

pub(crate) fn possible_cpus() -> io::Result<usize> {
    // SAFETY: no memory is involved.
    let count = unsafe { raw::libbpf_num_possible_cpus() };
    result(count)?;
    Ok(count as usize)
}

/// Whether this kernel lets XDP programs call a helper.
pub(crate) fn has_xdp_helper(helper: raw::bpf_func_id) -> bool {
    // SAFETY: no memory is involved.
    unsafe { raw::libbpf_probe_bpf_helper(raw::BPF_PROG_TYPE_XDP, helper, std::ptr::null()) == 1 }
}

/// The XDP program on an interface, by its id; `None`: there is none.
pub(crate) fn attached_program(interface: u32) -> io::Result<Option<u32>> {
    let mut options = raw::bpf_xdp_query_opts {
        sz: size_of::<raw::bpf_xdp_query_opts>() as raw::size_t,
        ..Default::default()
    };
    // SAFETY: libbpf writes at most `sz` octets of the options.
    result(unsafe { raw::bpf_xdp_query(interface as i32, 0, &mut options) })?;
    let ids = [
        options.prog_id,
        options.drv_prog_id,
        options.skb_prog_id,
        options.hw_prog_id,
    ];
    Ok(ids.into_iter().find(|&id| id != 0))
}

/// Whether the program on an interface is in the driver.
pub(crate) fn is_native(interface: u32) -> io::Result<bool> {
    let mut options = raw::bpf_xdp_query_opts {
        sz: size_of::<raw::bpf_xdp_query_opts>() as raw::size_t,
        ..Default::default()
    };
    // SAFETY: libbpf writes at most `sz` octets of the options.
    result(unsafe { raw::bpf_xdp_query(interface as i32, 0, &mut options) })?;
    Ok(options.drv_prog_id != 0 || options.hw_prog_id != 0)
}

/// Gives a link another program, in one step: no frame meets neither.
pub(crate) fn update_link(link: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    let (link, program) = (link.as_raw_fd(), program.as_raw_fd());
    // SAFETY: no memory is involved: without options nothing is read.
    result(unsafe { raw::bpf_link_update(link, program, std::ptr::null()) })
}

/// Takes a link's program off its interface now. When the last reference to a link goes the kernel does that too, but a moment
/// later. Linux 5.9.
pub(crate) fn detach_link(link: &OwnedFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    result(unsafe { raw::bpf_link_detach(link.as_raw_fd()) })
}

/// Pins a link, program or map at a path of bpffs.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: reads a string that lives through the call.
    result(unsafe { raw::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) })
}

/// Attaches a program by a link; closing the link detaches. `flags`: XDP_FLAGS_DRV_MODE or XDP_FLAGS_SKB_MODE.
pub(crate) fn link(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let options = raw::bpf_link_create_opts {
        sz: size_of::<raw::bpf_link_create_opts>() as raw::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: libbpf reads at most `sz` octets of the options, in which all addresses are null.
    owned(unsafe {
        raw::bpf_link_create(
            program.as_raw_fd(),
            interface as i32,
            raw::BPF_XDP,
            &options,
        )
    })
}

pub(crate) fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    owned(unsafe { raw::bpf_prog_get_fd_by_id(id) })
}

pub(crate) fn map_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    owned(unsafe { raw::bpf_map_get_fd_by_id(id) })
}

/// Opens what is pinned at a path of bpffs.
pub(crate) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: reads a string that lives through the call.
    owned(unsafe { raw::bpf_obj_get(path.as_ptr()) })
}

/// Runs an XDP program over a frame; returns its verdict and the frame after. `receiver`: interface and queue that it
/// seems to come from (Linux 5.15), else queue 0 of `lo`.
pub(crate) fn test_run(
    program: &OwnedFd,
    frame: &[u8],
    receiver: Option<(u32, u32)>,
) -> io::Result<(u32, Vec<u8>)> {
    let mut after = vec![0; frame.len() + 512];
    let context = receiver.map(|(interface, queue)| raw::xdp_md {
        data_end: frame.len() as u32,
        ingress_ifindex: interface,
        rx_queue_index: queue,
        ..Default::default()
    });
    let mut options = raw::bpf_test_run_opts {
        sz: size_of::<raw::bpf_test_run_opts>() as raw::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: after.as_mut_ptr().cast(),
        data_size_out: after.len() as u32,
        ctx_in: context.as_ref().map_or(std::ptr::null(), |context| {
            std::ptr::from_ref(context).cast()
        }),
        ctx_size_in: if context.is_some() {
            size_of::<raw::xdp_md>() as u32
        } else {
            0
        },
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: frame, context and the room for the frame after live through the call and are as large as said.
    result(unsafe { raw::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) })?;
    after.truncate(options.data_size_out as usize);
    Ok((options.retval, after))
}

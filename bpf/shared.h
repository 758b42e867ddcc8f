/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the kernel program and the daemon share: sizes, keys and values of the maps, names of the verdicts.
 * The Rust half is crates/xsk/src/layout.rs; a test reads both and compares. Whoever changes a layout here raises LAYOUT.
 */
#ifndef SHARED_H
#define SHARED_H

#include <linux/types.h>

#define LAYOUT 2

#define QUEUES 256	  /* RX queues per interface that can have a socket */
#define DESTINATIONS 4096 /* addresses and ports served */
#define BACKENDS 16384	  /* (our address, backend, its port) */
#define LOCALS 16	  /* our addresses towards backends: 8 kB of port bitmap each */
#define SERVED LOCALS	  /* index of one bitmap more: ports that any destination has */
#define WORKERS 256	  /* workers whose kernel sockets are spread over */
#define TRIES 16	  /* workers in a row that may be stalled before the kernel chooses */
#define RECENT 8	  /* look-ups remembered by each CPU, of either kind */
#define ROOM 1792	  /* bytes of a 2,048-byte chunk after XDP's 256 of headroom; a longer frame is dropped silently */

/* An address and port that we serve. IPv4 uses the first four octets of the address, the rest is zero. */
struct destination {
	__u8 address[16];
	__be16 port;
	__u16 version; /* 4 or 6, host order */
} __attribute__((aligned(4)));

/* Who may answer to which of our addresses. The value is the index of our address's bitmap in `ports`. */
struct backend {
	__u8 local[16];
	__u8 remote[16];
	__be16 port; /* the backend's */
	__u16 version;
} __attribute__((aligned(4)));

/* One bit per UDP port, of one of our addresses or of all that we serve: port p is bit p % 64 of word p / 64. */
struct ports {
	__u64 words[1024];
};

/* A worker's sign of life for one queue; a cache line, so that workers do not share one. */
struct heartbeat {
	__u64 count;
	__u64 passed; /* the program's: frames that were passed for want of life; one CPU at a time serves a queue */
	__u64 unused[6];
};

/* What the program remembers of a heartbeat. Times in jiffies64. */
struct remembered {
	__u64 count; /* the heartbeat when it last changed */
	__u64 first; /* when that was seen */
	__u64 probe; /* when a frame was last redirected although the owner seemed stalled */
};

/* Constants that the loader sets before the program is verified. */
struct settings {
	__u64 stall_jiffies; /* 100 ms: no sign of life for longer means stalled */
	__u64 probe_jiffies; /* 1 s: between frames that ask a stalled owner for one */
	__u32 has_buffers;   /* the kernel gives frames of several buffers (5.18): loaded with BPF_F_XDP_HAS_FRAGS */
	__u32 workers;	     /* spread.bpf.c: from 0 to this number less one */
};

/* What the program is told about itself while it runs. */
struct device {
	__u8 mac[6]; /* the interface's own */
	__u8 unused[2];
	__u64 generation; /* rises after an entry of `destinations` or `backends` was removed or replaced */
};

/* Why a frame went where it went: one counter per CPU each. The first three are redirects, all others PASS. */
enum reason {
	TAKE_QUERY = 0,	   /* to an address and port that we serve */
	TAKE_ANSWER = 1,   /* from a backend to one of our ports */
	TAKE_PROBE = 2,	   /* once a second to an owner that seems stalled: it may only have been idle */
	PASS_SHORT = 3,	   /* ends inside a header */
	PASS_MAC = 4,	   /* to another station, a group or everybody */
	PASS_BUFFERS = 5,  /* in more than one buffer */
	PASS_PROTOCOL = 6, /* not IP: ARP, VLAN tags and the like */
	PASS_OPTIONS = 7,  /* IPv4 options or a malformed first octet */
	PASS_FRAGMENT = 8, /* IPv4 fragment */
	PASS_TRANSPORT = 9, /* not UDP; for IPv6 also any extension header */
	PASS_LENGTH = 10,  /* lengths of IP, UDP and frame contradict each other */
	PASS_OTHER = 11,   /* an address and port that are not ours */
	PASS_PORT = 12,	   /* from a backend, to a port that is not open */
	PASS_DNS = 13,	   /* ours, but less than a DNS header */
	PASS_LARGE = 14,   /* ours, but longer than a chunk's room */
	PASS_SOCKET = 15,  /* ours, but no socket on this queue */
	PASS_STALLED = 16, /* ours, but the socket's owner shows no life */
	REASONS = 17
};

/* Who chose a datagram's socket: one counter per CPU each. */
enum spread {
	SPREAD_BY_HASH = 0,	 /* its hash, as the kernel would */
	SPREAD_PAST_STALLED = 1, /* its hash, past workers that show no life or have no socket */
	SPREAD_BY_KERNEL = 2,	 /* nobody shows life: the kernel, over all sockets */
	SPREADS = 3
};

/*
 * Look-ups that succeeded lately, on one CPU. A hash map costs a call of 40 ns, comparing with a recent key 3; most frames
 * go to one of a few addresses and come from one of a few backends. What is of another generation does not count.
 */
struct recent_destination {
	struct destination key;
	__u32 generation;
};

struct recent_backend {
	struct backend key;
	__u32 generation;
	__u32 bitmap;
};

/* What each CPU has for itself. */
struct cpu {
	__u64 verdicts[REASONS];
	struct recent_destination destinations[RECENT];
	struct recent_backend backends[RECENT];
};

#endif

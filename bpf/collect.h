/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the generator's kernel program and the generator share. The Rust half is crates/xsk/src/collector.rs; a test reads
 * both and compares.
 */
#ifndef COLLECT_H
#define COLLECT_H

#include <linux/types.h>

#include "shared.h"

#define TARGETS 64	/* servers under test: addresses and ports */
#define NO_VLAN 0xffff

/* Source addresses of one version of IP: those that equal `address` where `mask` is set. Both as in the frame; in words. */
struct sources {
	__u32 address[4];
	__u32 mask[4];
};

/* Constants that the loader sets before the program is verified. */
struct collection {
	__u16 mac[3];			/* where answers are sent to on the link; as in the frame */
	__u16 vlan;			/* the tag they carry, or NO_VLAN */
	__u16 first_port, last_port;	/* our source ports; host order */
	__u32 drop;			/* count answers and throw them away */
	struct sources ipv4, ipv6;
	struct destination only; /* the server under test; of several, none is here (version 0): they are in a map */
};

/* What became of a frame: one counter per CPU each. */
enum collected {
	ANSWER_TAKEN = 0,   /* to the socket of its queue */
	ANSWER_DROPPED = 1, /* an answer, but answers are not wanted */
	ANSWER_LARGE = 2,   /* an answer, but longer than a chunk's room, or the first of its fragments: passed to the kernel */
	ANSWER_SOCKET = 3,  /* an answer, but its queue has no socket: passed to the kernel */
	NO_ANSWER = 4,	    /* anything else: passed to the kernel */
	OTHER_SOURCE = 5,   /* to one of our addresses and ports, but from no server under test: passed to the kernel */
	COLLECTED = 6
};

#endif

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the yardsticks in the kernel share: a DNS query in a frame, and turning it around where it lies. */
#ifndef TURN_H
#define TURN_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "../../bpf/parse.h"

#define DNS_PORT 53
#define QR 0x80 /* of the header's third octet */

/* The first octets of a DNS message. */
struct dns {
	__be16 id;
	__u8 flags[2];
	__be16 questions, answers, authorities, additionals;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} answered SEC(".maps"); /* look with bpftool whether it was the limit */

static __always_inline void count(void)
{
	__u32 zero = 0;
	__u64 *number = bpf_map_lookup_elem(&answered, &zero);

	if (number)
		++*number;
}

/* The message of a query to port 53, and where the rest of it is; NULL: the frame is something else. */
static __always_inline struct dns *query_in(struct xdp_md *ctx, struct datagram *in)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = (void *)(long)ctx->data;
	struct dns *dns;

	if ((void *)(ethernet + 1) > end || parse(ethernet, end, in) != PARSED || in->udp->dest != bpf_htons(DNS_PORT))
		return 0;
	dns = (void *)(in->udp + 1);
	if ((void *)(dns + 1) > end || dns->flags[0] & QR)
		return 0;
	return dns;
}

static __always_inline void swap(void *one, void *other, const __u32 length)
{
	__u8 kept[16];

	__builtin_memcpy(kept, one, length);
	__builtin_memcpy(one, other, length);
	__builtin_memcpy(other, kept, length);
}

/* Exchanges both ends. No checksum changes: sums do not know the order of what is summed. */
static __always_inline void exchange_ends(struct ethhdr *ethernet, const struct datagram *in)
{
	struct udphdr *udp = (struct udphdr *)in->udp;

	swap(ethernet->h_source, ethernet->h_dest, ETH_ALEN);
	if (in->version == 4)
		swap((void *)in->source, (void *)in->destination, 4);
	else
		swap((void *)in->source, (void *)in->destination, 16);
	swap(&udp->source, &udp->dest, sizeof udp->source);
}

char _license[] SEC("license") = "Dual MIT/GPL";

#endif

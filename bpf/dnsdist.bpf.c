/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Steers by the maps that dnsdist 1.9 and newer fill, for `millrace xdp load --dnsdist`: a dnsdist that is started then finds what
 * its own loader would have left, without the filters. Names, sizes and layouts of the maps are that loader's, and one set of
 * them is for one interface. Never DROP, never ABORTED: dnsdist that has ended leaves its destinations, not its sockets, and
 * what is for it goes to the kernel then. crates/xsk/src/dnsdist.rs pins the maps.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "parse.h"
#include "shared.h"

#define THEIR_QUEUES 64
#define THEIR_DESTINATIONS 1024

struct served_v4 {
	__u8 address[4];
	__be16 port;
	__u16 zero;
} __attribute__((aligned(4)));

struct served_v6 {
	__u8 address[16];
	__be16 port;
	__u16 zero;
} __attribute__((aligned(4)));

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, THEIR_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} xsk_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THEIR_DESTINATIONS);
	__type(key, struct served_v4);
	__type(value, __u8);
} xskDestinationsV4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THEIR_DESTINATIONS);
	__type(key, struct served_v6);
	__type(value, __u8);
} xskDestinationsV6 SEC(".maps");

static __always_inline int is_served_v4(const struct datagram *in)
{
	struct served_v4 key = { .port = in->udp->dest };

	__builtin_memcpy(key.address, in->destination, sizeof key.address);
	return !!bpf_map_lookup_elem(&xskDestinationsV4, &key);
}

static __always_inline int is_served_v6(const struct datagram *in)
{
	struct served_v6 key = { .port = in->udp->dest };

	__builtin_memcpy(key.address, in->destination, sizeof key.address);
	return !!bpf_map_lookup_elem(&xskDestinationsV6, &key);
}

SEC("xdp") int dnsdist(struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *ethernet = (const void *)(long)ctx->data;
	struct datagram in;

	if ((const void *)(ethernet + 1) > end || parse(ethernet, end, &in) != PARSED)
		return XDP_PASS;
	if (!(in.version == 4 ? is_served_v4(&in) : is_served_v6(&in)))
		return XDP_PASS;
	if (bpf_ntohs(in.udp->len) < sizeof *in.udp + DNS_HEADER || (const void *)ethernet + ROOM < end)
		return XDP_PASS;
	/* No socket on this queue: PASS. */
	return bpf_redirect_map(&xsk_map, ctx->rx_queue_index, XDP_PASS);
}

char _license[] SEC("license") = "Dual MIT/GPL";

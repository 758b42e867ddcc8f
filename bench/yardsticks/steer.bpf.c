/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The least that leads DNS, queries and answers, into AF_XDP sockets: what echo and forward are steered by. */
#include "turn.h"

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp") int steer(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = (void *)(long)ctx->data;
	struct datagram in;

	if ((void *)(ethernet + 1) > end || parse(ethernet, end, &in) != PARSED)
		return XDP_PASS;
	if (in.udp->dest != bpf_htons(DNS_PORT) && in.udp->source != bpf_htons(DNS_PORT))
		return XDP_PASS;
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
}

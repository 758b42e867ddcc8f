/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A stand-in for dnsdist's XDP program, for tests: its three maps by name and layout, and nothing of its filters. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct destination_v4 {
	__be32 address;
	__be16 port;
	__u16 zero;
};

struct destination_v6 {
	__u8 address[16];
	__be16 port;
	__u16 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} xskmap SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct destination_v4);
	__type(value, __u8);
} destinations_v4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct destination_v6);
	__type(value, __u8);
} destinations_v6 SEC(".maps");

SEC("xdp") int foreign(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct ipv6hdr *ip6 = (void *)(ethernet + 1);
	void *found = 0;

	if ((void *)(ip6 + 1) + sizeof(struct udphdr) > end)
		return XDP_PASS;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP) && ip->protocol == IPPROTO_UDP) {
		struct destination_v4 key = { .address = ip->daddr, .port = ((struct udphdr *)(ip + 1))->dest };

		found = bpf_map_lookup_elem(&destinations_v4, &key);
	} else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6) && ip6->nexthdr == IPPROTO_UDP) {
		struct destination_v6 key = { .port = ((struct udphdr *)(ip6 + 1))->dest };

		__builtin_memcpy(key.address, &ip6->daddr, 16);
		found = bpf_map_lookup_elem(&destinations_v6, &key);
	}
	/* No fallback, as there: a destination without a socket loses its frames. */
	return found ? bpf_redirect_map(&xskmap, ctx->rx_queue_index, 0) : XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";

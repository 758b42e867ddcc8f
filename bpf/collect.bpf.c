/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Collects the answers to floodgate's queries into AF_XDP sockets and leaves everything else to the kernel, so that an
 * ordinary client on the same interface goes on working. An answer comes from a server under test (address and port), to
 * our MAC address, one of our source addresses and one of our source ports; the message itself is judged in user space.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "collect.h"
#include "parse.h"
#include "shared.h"

#define VLAN_LENGTH 4
#define VLAN_ID 0x0fff /* of the tag's second word; the rest is priority */
#define MORE_FRAGMENTS 0x2000 /* of IPv4's fragment word: without an offset, the first of several */

const volatile struct collection collection = { .vlan = NO_VLAN };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TARGETS);
	__type(key, struct destination);
	__type(value, __u8);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COLLECTED);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline int is_own_mac(const struct ethhdr *ethernet)
{
	const __u16 *mac = (const void *)ethernet->h_dest;

	return mac[0] == collection.mac[0] && mac[1] == collection.mac[1] && mac[2] == collection.mac[2];
}

/*
 * The header that the EtherType of the IP packet belongs to: the frame's own or, behind a tag, one that starts four octets
 * later, whose MAC addresses are not to be looked at. NULL: not tagged as we tag.
 */
static __always_inline const struct ethhdr *untagged(const struct ethhdr *ethernet, const void *end)
{
	const __be16 *tag = (const void *)(ethernet + 1);

	if (collection.vlan == NO_VLAN)
		return ethernet;
	if ((const void *)tag + VLAN_LENGTH > end || ethernet->h_proto != bpf_htons(ETH_P_8021Q) ||
	    (bpf_ntohs(*tag) & VLAN_ID) != collection.vlan)
		return 0;
	return (const void *)ethernet + VLAN_LENGTH;
}

/* RFC 8200 section 4.5. */
struct fragment_header {
	__u8 next, reserved;
	__be16 offset; /* in units of eight octets, in the upper 13 bits; the lowest bit: more follow */
	__be32 id;
};

static __always_inline int is_first_of_ipv4(const struct iphdr *ip, const void *end, struct datagram *out)
{
	if ((const void *)(ip + 1) > end || ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP)
		return 0;
	if ((ip->frag_off & bpf_htons(MORE_FRAGMENTS_OR_OFFSET)) != bpf_htons(MORE_FRAGMENTS))
		return 0;
	out->source = &ip->saddr;
	out->destination = &ip->daddr;
	out->version = 4;
	out->udp = (const void *)(ip + 1);
	return 1;
}

static __always_inline int is_first_of_ipv6(const struct ipv6hdr *ip, const void *end, struct datagram *out)
{
	const struct fragment_header *fragment = (const void *)(ip + 1);

	if ((const void *)(fragment + 1) > end || ip->version != 6 || ip->nexthdr != IPPROTO_FRAGMENT)
		return 0;
	if (fragment->next != IPPROTO_UDP || fragment->offset != bpf_htons(1))
		return 0;
	out->source = &ip->saddr;
	out->destination = &ip->daddr;
	out->version = 6;
	out->udp = (const void *)(fragment + 1);
	return 1;
}

/* Of a datagram in fragments the first has the ports. The kernel puts it together; nobody waits for it there. */
static __always_inline int is_first_fragment(const struct ethhdr *ethernet, const void *end, struct datagram *out)
{
	int is_first = 0;

	if (ethernet->h_proto == bpf_htons(ETH_P_IP))
		is_first = is_first_of_ipv4((const void *)(ethernet + 1), end, out);
	else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		is_first = is_first_of_ipv6((const void *)(ethernet + 1), end, out);
	return is_first && (const void *)(out->udp + 1) <= end;
}

static __always_inline int is_own_address(const struct datagram *in)
{
	const volatile struct sources *own = in->version == 6 ? &collection.ipv6 : &collection.ipv4;
	__u32 address[4] = { 0 };
	int i;

	copy_address(address, in->destination, in->version);
	for (i = 0; i < 4; i++)
		if ((address[i] ^ own->address[i]) & own->mask[i])
			return 0;
	return 1;
}

/* One server is the rule, and to compare with it takes a third of the time that to look it up takes. */
static __always_inline int is_target(const struct destination *key)
{
	const volatile __u32 *only = (const void *)&collection.only;
	const __u32 *words = (const void *)key;
	int i;

	if (!collection.only.version)
		return bpf_map_lookup_elem(&targets, key) != 0;
	for (i = 0; i < (int)(sizeof *key / sizeof *words); i++)
		if (words[i] != only[i])
			return 0;
	return 1;
}

static __always_inline int is_to_us(const struct datagram *in)
{
	__u16 port = bpf_ntohs(in->udp->dest);

	return port >= collection.first_port && port <= collection.last_port && is_own_address(in);
}

static __always_inline int is_from_target(const struct datagram *in)
{
	struct destination key = { .port = in->udp->source, .version = in->version };

	copy_address(key.address, in->source, in->version);
	return is_target(&key);
}

static __always_inline int judge(struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *frame = (const void *)(long)ctx->data, *ethernet;
	struct datagram in;
	int is_whole;

	if ((const void *)(frame + 1) > end || !is_own_mac(frame))
		return NO_ANSWER;
	ethernet = untagged(frame, end);
	if (!ethernet)
		return NO_ANSWER;
	is_whole = parse(ethernet, end, &in) == PARSED;
	if ((!is_whole && !is_first_fragment(ethernet, end, &in)) || !is_to_us(&in))
		return NO_ANSWER;
	if (!is_from_target(&in))
		return OTHER_SOURCE;
	if (collection.drop)
		return ANSWER_DROPPED;
	if (!is_whole || (const void *)frame + ROOM < end)
		return ANSWER_LARGE;
	if (bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS) != XDP_REDIRECT)
		return ANSWER_SOCKET;
	return ANSWER_TAKEN;
}

SEC("xdp") int collect(struct xdp_md *ctx)
{
	__u32 what = judge(ctx);
	__u64 *count = bpf_map_lookup_elem(&counters, &what);

	if (count)
		++*count;
	return what == ANSWER_TAKEN ? XDP_REDIRECT : what == ANSWER_DROPPED ? XDP_DROP : XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";

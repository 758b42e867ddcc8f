/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * From a frame to a UDP datagram (RFC 768, 791, 8200), or the reason why it is none that we read. No maps and no helpers,
 * so that it compiles outside the kernel too.
 */
#ifndef PARSE_H
#define PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

#include "shared.h"

#define DNS_HEADER 12
#define MORE_FRAGMENTS_OR_OFFSET 0x3fff /* of IPv4's fragment word; leaves out DF and the reserved bit */

struct datagram {
	const void *source, *destination; /* addresses, in the frame */
	const struct udphdr *udp;
	__u16 version; /* 4 or 6 */
};

#define PARSED -1 /* no reason to pass */

/* `length` is what IP says UDP's part is. The two must agree: the kernel would trim, our reader need not. */
static __always_inline int parse_udp(const struct udphdr *udp, __u16 length, const void *end, struct datagram *out)
{
	if ((const void *)(udp + 1) > end)
		return PASS_SHORT;
	if (bpf_ntohs(udp->len) != length || length < sizeof *udp || (const void *)udp + length > end)
		return PASS_LENGTH;
	out->udp = udp;
	return PARSED;
}

static __always_inline int parse_ipv4(const struct iphdr *ip, const void *end, struct datagram *out)
{
	if ((const void *)(ip + 1) > end)
		return PASS_SHORT;
	if (ip->version != 4 || ip->ihl != 5)
		return PASS_OPTIONS;
	if (ip->frag_off & bpf_htons(MORE_FRAGMENTS_OR_OFFSET))
		return PASS_FRAGMENT;
	if (ip->protocol != IPPROTO_UDP)
		return PASS_TRANSPORT;
	if (bpf_ntohs(ip->tot_len) < sizeof *ip)
		return PASS_LENGTH;
	out->source = &ip->saddr;
	out->destination = &ip->daddr;
	out->version = 4;
	return parse_udp((const void *)(ip + 1), bpf_ntohs(ip->tot_len) - sizeof *ip, end, out);
}

/* A payload length of zero announces a jumbogram (RFC 2675): its UDP length cannot agree, so it passes. */
static __always_inline int parse_ipv6(const struct ipv6hdr *ip, const void *end, struct datagram *out)
{
	if ((const void *)(ip + 1) > end)
		return PASS_SHORT;
	if (ip->version != 6)
		return PASS_OPTIONS;
	if (ip->nexthdr != IPPROTO_UDP)
		return PASS_TRANSPORT;
	out->source = &ip->saddr;
	out->destination = &ip->daddr;
	out->version = 6;
	return parse_udp((const void *)(ip + 1), bpf_ntohs(ip->payload_len), end, out);
}

/* Everything above Ethernet; the caller has checked that the Ethernet header is there. */
static __always_inline int parse(const struct ethhdr *ethernet, const void *end, struct datagram *out)
{
	if (ethernet->h_proto == bpf_htons(ETH_P_IP))
		return parse_ipv4((const void *)(ethernet + 1), end, out);
	if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		return parse_ipv6((const void *)(ethernet + 1), end, out);
	return PASS_PROTOCOL;
}

/* Into sixteen octets: IPv4's four go first; the rest stays as it is. */
static __always_inline void copy_address(void *to, const void *from, __u16 version)
{
	if (version == 6)
		__builtin_memcpy(to, from, 16);
	else
		__builtin_memcpy(to, from, 4);
}

#endif

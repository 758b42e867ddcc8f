/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A backend that is never the limit: answers in the kernel, over IPv4. A: one address, which is the FNV-1a hash of the name
 * in lower case (its octets on the wire without the root's), TTL 3600, so that a client can tell whose answer it got.
 * Other types: no data. EDNS is left out. Names up to NAME_MAX octets; longer ones go to the kernel.
 */
#include "turn.h"

#define NAME_MAX 100
#define RA 0x80 /* of the header's fourth octet */
#define TTL 3600
#define FNV_START 2166136261u
#define FNV_PRIME 16777619u
#define TYPE_A 1
#define CLASS_IN 1
#define POINTER_TO_QUESTION 0xc00c

/* What the frame of an answer begins with. */
struct frame {
	struct ethhdr ethernet;
	struct iphdr ip;
	struct udphdr udp;
	struct dns dns;
} __attribute__((packed));

/* What stands behind the name of a question. */
struct question {
	__be16 type, class;
};

struct record {
	__be16 name, type, class;
	__be32 ttl;
	__be16 length;
	__be32 address;
} __attribute__((packed));

/* Length of the name at `name` without the root's octet, and its hash; -1: it does not end soon enough. */
static __always_inline int hash_name(const __u8 *name, const void *end, __u32 *hash)
{
	int at;

	*hash = FNV_START;
	for (at = 0; at < NAME_MAX; at++) {
		__u8 octet;

		if ((const void *)(name + at + 1) > end)
			return -1;
		octet = name[at];
		if (!octet)
			return at;
		if (octet >= 'A' && octet <= 'Z')
			octet |= 0x20;
		*hash = (*hash ^ octet) * FNV_PRIME;
	}
	return -1;
}

/* New lengths, and IPv4's checksum over them (RFC 1624); UDP goes without. */
static __always_inline void set_lengths(struct iphdr *ip, struct udphdr *udp, __u16 udp_length)
{
	__u16 total = udp_length + sizeof *ip;
	__u32 sum = (__u16)~bpf_ntohs(ip->check) + (__u16)~bpf_ntohs(ip->tot_len) + total;

	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = bpf_htons(~(sum + (sum >> 16)));
	ip->tot_len = bpf_htons(total);
	udp->len = bpf_htons(udp_length);
	udp->check = 0;
}

/* Makes the answer of a frame that has its new length. -1: it lies outside the frame, which cannot be. */
static __always_inline int fill(struct xdp_md *ctx, __u32 name, __u32 hash, int is_a)
{
	void *end = (void *)(long)ctx->data_end;
	struct frame *frame = (void *)(long)ctx->data;
	struct record *record;
	struct datagram in;

	if ((void *)(frame + 1) > end || name >= NAME_MAX)
		return -1;
	if (is_a) {
		record = (void *)(frame + 1) + name + 1 + sizeof(struct question);
		if ((void *)(record + 1) > end)
			return -1;
		*record = (struct record){ bpf_htons(POINTER_TO_QUESTION), bpf_htons(TYPE_A), bpf_htons(CLASS_IN),
					   bpf_htonl(TTL), bpf_htons(sizeof record->address), bpf_htonl(hash) };
	}
	in = (struct datagram){ &frame->ip.saddr, &frame->ip.daddr, &frame->udp, 4 };
	exchange_ends(&frame->ethernet, &in);
	set_lengths(&frame->ip, &frame->udp, end - (void *)&frame->udp);
	frame->dns.flags[0] |= QR;
	frame->dns.flags[1] = RA;
	frame->dns.answers = bpf_htons(is_a);
	frame->dns.authorities = frame->dns.additionals = 0;
	return 0;
}

SEC("xdp") int answer(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct datagram in;
	struct dns *dns = query_in(ctx, &in);
	struct question *question;
	__u32 hash;
	int name, length, is_a;

	if (!dns || in.version != 4)
		return XDP_PASS;
	name = hash_name((void *)(dns + 1), end, &hash);
	if (name < 0)
		return XDP_PASS;
	question = (void *)(dns + 1) + name + 1;
	if ((void *)(question + 1) > end)
		return XDP_PASS;
	is_a = question->type == bpf_htons(TYPE_A);
	length = sizeof(struct frame) + name + 1 + sizeof *question + (is_a ? sizeof(struct record) : 0);
	if (bpf_xdp_adjust_tail(ctx, length - (int)(ctx->data_end - ctx->data)))
		return XDP_PASS;
	if (fill(ctx, name, hash, is_a))
		return XDP_DROP;
	count();
	return XDP_TX;
}

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The limit of the kernel: every DNS query leaves where it came from, as its own answer (XDP_TX). */
#include "turn.h"

SEC("xdp") int reflect(struct xdp_md *ctx)
{
	struct datagram in;
	struct dns *dns = query_in(ctx, &in);
	struct udphdr *udp;

	if (!dns)
		return XDP_PASS;
	exchange_ends((void *)(long)ctx->data, &in);
	dns->flags[0] |= QR;
	udp = (struct udphdr *)in.udp;
	if (udp->check) {
		/* RFC 1624: one word has grown by 0x8000. No checksum is 0: that means none. */
		__u32 sum = (__u16)~bpf_ntohs(udp->check) + (__u32)QR * 256;

		sum = ~(sum + (sum >> 16)) & 0xffff;
		udp->check = bpf_htons(sum ? sum : 0xffff);
	}
	count();
	return XDP_TX;
}

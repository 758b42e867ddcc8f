/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Passes everything. On a veth its presence makes the interface poll (NAPI), which what the other end sends by XDP needs. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp") int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";

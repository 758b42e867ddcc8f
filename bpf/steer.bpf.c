/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Steers the DNS that is ours into AF_XDP sockets and leaves everything else to the kernel. README.md has the table
 * frame -> verdict. One object per interface. Never DROP, never ABORTED: whatever is odd is PASS.
 *
 * Cost of a query: look-ups in `device`, `destinations`, `sockets`, the two heartbeat arrays and the counters; no loop,
 * no lock. Needs Linux 5.10; what is newer stands behind a constant that the loader sets, and is dead code without it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "parse.h"
#include "shared.h"

const volatile struct settings settings = { .stall_jiffies = 25, .probe_jiffies = 250 }; /* at 250 Hz */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct device);
} device SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DESTINATIONS);
	__type(key, struct destination);
	__type(value, __u8);
} destinations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BACKENDS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct backend);
	__type(value, __u32);
} backends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCALS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct ports);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct heartbeat);
} heartbeats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, struct remembered);
} memory SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} verdicts SEC(".maps");

static __always_inline int is_own_mac(const struct ethhdr *ethernet)
{
	__u32 zero = 0;
	const struct device *own = bpf_map_lookup_elem(&device, &zero);
	__u16 difference;

	if (!own)
		return 0;
	difference = *(__u16 *)(ethernet->h_dest) ^ *(__u16 *)(own->mac);
	difference |= *(__u16 *)(ethernet->h_dest + 2) ^ *(__u16 *)(own->mac + 2);
	difference |= *(__u16 *)(ethernet->h_dest + 4) ^ *(__u16 *)(own->mac + 4);
	return !difference && !(ethernet->h_dest[0] & 1);
}

/* Whether the frame goes on after `data_end`: only the first buffer can be read, and a socket would get it in pieces. */
static __always_inline int has_more_buffers(struct xdp_md *ctx, const void *frame, const void *end)
{
	__u64 length;

	if (!settings.has_buffers)
		return 0;
	length = bpf_xdp_get_buff_len(ctx);
	return length > 0xffff || frame + length > end;
}

static __always_inline int is_served(const struct datagram *in)
{
	struct destination key = { .port = in->udp->dest, .version = in->version };

	copy_address(key.address, in->destination, in->version);
	return bpf_map_lookup_elem(&destinations, &key) != 0;
}

/* Not to an address and port that we serve: from one of our backends to one of our ports, then? */
static __always_inline int judge_answer(const struct datagram *in)
{
	struct backend key = { .port = in->udp->source, .version = in->version };
	__u16 port = bpf_ntohs(in->udp->dest);
	const __u32 *index;
	const struct ports *open;

	copy_address(key.local, in->destination, in->version);
	copy_address(key.remote, in->source, in->version);
	index = bpf_map_lookup_elem(&backends, &key);
	if (!index)
		return PASS_OTHER;
	open = bpf_map_lookup_elem(&ports, index);
	if (!open || !(open->words[port / 64] >> port % 64 & 1))
		return PASS_PORT;
	return TAKE_ANSWER;
}

/*
 * Dead means PASS: an empty slot. Stalled means PASS too: the worker adds one to its heartbeat after each batch, so the
 * count differs from what is remembered unless frames were redirected that nobody has taken. A redirected frame that the
 * full rings drop wakes nobody: without a probe now and then an idle, healthy worker would stay passed for ever.
 */
static __always_inline int judge_owner(__u32 queue, int taken)
{
	const struct heartbeat *beat = bpf_map_lookup_elem(&heartbeats, &queue);
	struct remembered *seen = bpf_map_lookup_elem(&memory, &queue);
	__u64 now, count;

	if (!beat || !seen || bpf_redirect_map(&sockets, queue, XDP_PASS) != XDP_REDIRECT)
		return PASS_SOCKET;
	now = bpf_jiffies64();
	count = *(const volatile __u64 *)&beat->count;
	if (count != seen->count) {
		seen->count = count;
		seen->first = now;
		return taken;
	}
	if (now - seen->first <= settings.stall_jiffies)
		return taken;
	if (now - seen->probe >= settings.probe_jiffies) {
		seen->probe = now;
		return TAKE_PROBE;
	}
	return PASS_STALLED;
}

static __always_inline int judge(struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *ethernet = (const void *)(long)ctx->data;
	struct datagram in;
	int reason;

	if ((const void *)(ethernet + 1) > end)
		return PASS_SHORT;
	if (!is_own_mac(ethernet))
		return PASS_MAC;
	if (has_more_buffers(ctx, ethernet, end))
		return PASS_BUFFERS;
	reason = parse(ethernet, end, &in);
	if (reason != PARSED)
		return reason;
	reason = is_served(&in) ? TAKE_QUERY : judge_answer(&in);
	if (reason != TAKE_QUERY && reason != TAKE_ANSWER)
		return reason;
	if (bpf_ntohs(in.udp->len) < sizeof *in.udp + DNS_HEADER)
		return PASS_DNS;
	if ((const void *)ethernet + ROOM < end)
		return PASS_LARGE;
	return judge_owner(ctx->rx_queue_index, reason);
}

SEC("xdp") int steer(struct xdp_md *ctx)
{
	__u32 reason = judge(ctx);
	__u64 *count = bpf_map_lookup_elem(&verdicts, &reason);

	if (count)
		++*count;
	return reason <= TAKE_PROBE ? XDP_REDIRECT : XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Steers the DNS that is ours into AF_XDP sockets and leaves everything else to the kernel. README.md has the table
 * frame -> verdict. One object per interface. Never DROP, never ABORTED: whatever is odd is PASS.
 *
 * Cost of a query: five look-ups in arrays, which the kernel compiles inline, a redirect, and a hash only where the key is
 * none of the last ones; no loop, no lock. About 35 ns, 70 with the hash each time (Linux 6.18, test run less its overhead).
 * Needs Linux 5.10; what is newer stands behind a constant that the loader sets, and is dead code without it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "heartbeat.h"
#include "parse.h"
#include "shared.h"

/* The only constant: the loader sets this section as a whole. */
const volatile struct settings settings = { .stall_jiffies = 25, .probe_jiffies = 250 }; /* at 250 Hz */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
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
	__uint(max_entries, LOCALS + 1);
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
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

static __always_inline int is_own_mac(const struct ethhdr *ethernet, const struct device *nic)
{
	__u16 difference;

	difference = *(__u16 *)(ethernet->h_dest) ^ *(__u16 *)(nic->mac);
	difference |= *(__u16 *)(ethernet->h_dest + 2) ^ *(__u16 *)(nic->mac + 2);
	difference |= *(__u16 *)(ethernet->h_dest + 4) ^ *(__u16 *)(nic->mac + 4);
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

/* Whether two keys, a whole number of words, are the same. */
static __always_inline int is_same(const void *one, const void *other, int length)
{
	const __u32 *a = one, *b = other;
	__u32 difference = 0;

#pragma unroll
	for (int i = 0; i < length / 4; i++)
		difference |= a[i] ^ b[i];
	return !difference;
}

static __always_inline int is_open(__u32 bitmap, __be16 port)
{
	const struct ports *open = bpf_map_lookup_elem(&ports, &bitmap);
	__u16 bit = bpf_ntohs(port);

	return open && open->words[bit / 64] >> bit % 64 & 1;
}

/* The bitmap comes first: it spares answers of backends, and everything else, the hash. */
static __always_inline int is_served(const struct datagram *in, struct cpu *cpu, __u32 generation)
{
	struct destination key = { .port = in->udp->dest, .version = in->version };
	struct recent_destination *recent;

	if (!is_open(SERVED, key.port))
		return 0;
	copy_address(key.address, in->destination, in->version);
	recent = &cpu->destinations[(key.address[3] + key.address[15] + key.version) % RECENT];
	if (recent->generation == generation && is_same(&recent->key, &key, sizeof key))
		return 1;
	if (!bpf_map_lookup_elem(&destinations, &key))
		return 0;
	recent->key = key;
	recent->generation = generation;
	return 1;
}

/* The index of the bitmap of our address, for a backend that may answer to it; -1: none of ours. */
static __always_inline int find_bitmap(const struct datagram *in, struct cpu *cpu, __u32 generation)
{
	struct backend key = { .port = in->udp->source, .version = in->version };
	struct recent_backend *recent;
	const __u32 *bitmap;

	copy_address(key.local, in->destination, in->version);
	copy_address(key.remote, in->source, in->version);
	recent = &cpu->backends[(key.remote[3] + key.remote[15] + bpf_ntohs(key.port)) % RECENT];
	if (recent->generation == generation && is_same(&recent->key, &key, sizeof key))
		return recent->bitmap;
	bitmap = bpf_map_lookup_elem(&backends, &key);
	if (!bitmap)
		return -1;
	recent->key = key;
	recent->generation = generation;
	recent->bitmap = *bitmap;
	return *bitmap;
}

/* Not to an address and port that we serve: from one of our backends to one of our ports, then? */
static __always_inline int judge_answer(const struct datagram *in, struct cpu *cpu, __u32 generation)
{
	int bitmap = find_bitmap(in, cpu, generation);

	if (bitmap < 0)
		return PASS_OTHER;
	return is_open(bitmap, in->udp->dest) ? TAKE_ANSWER : PASS_PORT;
}

/* Dead means PASS: an empty slot. Stalled means PASS too, see heartbeat.h. */
static __always_inline int judge_owner(__u32 queue, int taken)
{
	struct heartbeat *beat = bpf_map_lookup_elem(&heartbeats, &queue);
	struct remembered *seen = bpf_map_lookup_elem(&memory, &queue);

	if (!beat || !seen || bpf_redirect_map(&sockets, queue, XDP_PASS) != XDP_REDIRECT)
		return PASS_SOCKET;
	switch (judge_life(beat, seen, &settings)) {
	case ALIVE:
		return taken;
	case PROBED:
		return TAKE_PROBE;
	default:
		++beat->passed;
		return PASS_STALLED;
	}
}

static __always_inline int judge(struct xdp_md *ctx, struct cpu *cpu)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *ethernet = (const void *)(long)ctx->data;
	__u32 generation, only = 0;
	const struct device *nic = bpf_map_lookup_elem(&device, &only);
	struct datagram in;
	int reason;

	if (!nic || (const void *)(ethernet + 1) > end)
		return PASS_SHORT;
	if (!is_own_mac(ethernet, nic))
		return PASS_MAC;
	if (has_more_buffers(ctx, ethernet, end))
		return PASS_BUFFERS;
	reason = parse(ethernet, end, &in);
	if (reason != PARSED)
		return reason;
	/* Before any look-up: an entry that is removed after it is not remembered for longer than this frame. */
	generation = *(const volatile __u64 *)&nic->generation;
	reason = is_served(&in, cpu, generation) ? TAKE_QUERY : judge_answer(&in, cpu, generation);
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
	__u32 reason, only = 0;
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &only);

	if (!cpu)
		return XDP_PASS;
	reason = judge(ctx, cpu);
	if (reason < REASONS) /* always; the verifier cannot know */
		++cpu->verdicts[reason];
	return reason <= TAKE_PROBE ? XDP_REDIRECT : XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";

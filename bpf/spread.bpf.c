/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Spreads the datagrams of one address and port over the kernel sockets of our workers (SO_REUSEPORT), as the kernel would,
 * but not to a worker that shows no sign of life: the kernel goes on hashing to a stopped one, and a frame that the XDP
 * program passed because of it would be lost here. One object per group of sockets; the heartbeats are shared by all groups.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "heartbeat.h"
#include "shared.h"

/* The only constant: the loader sets this section as a whole. */
const volatile struct settings settings = { .stall_jiffies = 25, .probe_jiffies = 250, .workers = 1 };

struct {
	__uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	__uint(max_entries, WORKERS);
	__type(key, __u32);
	__type(value, __u64);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WORKERS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct heartbeat);
} pulses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WORKERS);
	__type(key, __u32);
	__type(value, struct remembered);
} memory SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SPREADS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline int is_taken_by(struct sk_reuseport_md *ctx, __u32 worker)
{
	const struct heartbeat *beat = bpf_map_lookup_elem(&pulses, &worker);
	struct remembered *seen = bpf_map_lookup_elem(&memory, &worker);

	if (!beat || !seen || judge_life(beat, seen, &settings) == STALLED)
		return 0;
	return bpf_sk_select_reuseport(ctx, &sockets, &worker, 0) == 0;
}

static __always_inline __u32 choose(struct sk_reuseport_md *ctx)
{
	for (__u32 tries = 0; tries < TRIES; tries++)
		if (is_taken_by(ctx, (ctx->hash + tries) % settings.workers))
			return tries ? SPREAD_PAST_STALLED : SPREAD_BY_HASH;
	return SPREAD_BY_KERNEL;
}

SEC("sk_reuseport") int spread(struct sk_reuseport_md *ctx)
{
	__u32 how = choose(ctx);
	__u64 *count = bpf_map_lookup_elem(&counters, &how);

	if (count)
		++*count;
	return SK_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Whether somebody who is handed frames or datagrams takes them: `struct heartbeat` and what is remembered of it. */
#ifndef HEARTBEAT_H
#define HEARTBEAT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "shared.h"

enum life {
	ALIVE,
	STALLED,
	PROBED, /* stalled, but this one is handed over to see: it may only have been idle */
};

/*
 * The owner adds one after each batch that it has taken, so the count differs from what is remembered unless something was
 * handed over that nobody has taken. What full rings or buffers drop wakes nobody: without a probe now and then an idle,
 * healthy owner would be passed by for ever. `first` is stored before `count`: another CPU must not see the new count with
 * the old time.
 */
static __always_inline enum life judge_life(const struct heartbeat *beat, struct remembered *seen,
					    const volatile struct settings *settings)
{
	__u64 now = bpf_jiffies64();
	__u64 count = *(const volatile __u64 *)&beat->count;

	if (count != *(volatile __u64 *)&seen->count) {
		*(volatile __u64 *)&seen->first = now;
		*(volatile __u64 *)&seen->count = count;
		return ALIVE;
	}
	if (now - seen->first <= settings->stall_jiffies)
		return ALIVE;
	if (now - seen->probe < settings->probe_jiffies)
		return STALLED;
	seen->probe = now;
	return PROBED;
}

#endif

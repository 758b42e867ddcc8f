/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Takes the place of libbpf's header of this name when the kernel program is compiled for user space: maps stay plain
 * variables, helpers are functions of steer.c.
 */
#ifndef BPF_HELPERS_H
#define BPF_HELPERS_H

#include <linux/bpf.h>
#include <sys/cdefs.h> /* __always_inline */

#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value) *name

static void *bpf_map_lookup_elem(const void *map, const void *key);
static long bpf_redirect_map(const void *map, __u64 key, __u64 flags);
static __u64 bpf_jiffies64(void);
static __u64 bpf_xdp_get_buff_len(struct xdp_md *ctx);

#endif

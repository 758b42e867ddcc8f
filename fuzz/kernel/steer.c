/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel program in user space: the same source, with maps of our own. Its frames end where a page begins that
 * nobody may read, so that one octet past `data_end` is a crash.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "../../bpf/steer.bpf.c"

#define ENTRIES 8	/* of either hash map */
#define FRAME_ROOM 8192 /* a whole number of pages */

static struct {
	struct device device;
	struct destination destinations[ENTRIES];
	struct backend backends[ENTRIES];
	__u32 bitmaps[ENTRIES]; /* values of `backends` */
	__u32 destinations_count, backends_count;
	struct ports ports[LOCALS + 1];
	struct heartbeat heartbeat;
	struct remembered memory;
	struct cpu cpu;
} kernel;

static __u8 *end_of_frames;

static void *find(const void *entries, __u32 count, __u32 size, const void *key)
{
	for (__u32 i = 0; i < count; i++)
		if (!memcmp((const __u8 *)entries + i * size, key, size))
			return (void *)((const __u8 *)entries + i * size);
	return NULL;
}

static void *bpf_map_lookup_elem(const void *map, const void *key)
{
	static __u8 served;
	struct backend *entry;
	__u32 index = *(const __u32 *)key;

	if (map == &device)
		return index == 0 ? &kernel.device : NULL;
	if (map == &cpus)
		return index == 0 ? &kernel.cpu : NULL;
	if (map == &ports)
		return index <= LOCALS ? &kernel.ports[index] : NULL;
	if (map == &heartbeats)
		return index == 0 ? &kernel.heartbeat : NULL;
	if (map == &memory)
		return index == 0 ? &kernel.memory : NULL;
	if (map == &destinations)
		return find(kernel.destinations, kernel.destinations_count, sizeof(struct destination), key) ? &served
													     : NULL;
	entry = find(kernel.backends, kernel.backends_count, sizeof(struct backend), key);
	return entry ? &kernel.bitmaps[entry - kernel.backends] : NULL;
}

/* Queue 0 has a socket, and its owner has just shown life. */
static long bpf_redirect_map(const void *map, __u64 key, __u64 flags)
{
	if (map != &sockets || key != 0)
		return flags;
	kernel.heartbeat.count++;
	return XDP_REDIRECT;
}

static __u64 bpf_jiffies64(void)
{
	return 1000;
}

static __u64 bpf_xdp_get_buff_len(struct xdp_md *ctx)
{
	return ctx->data_end - ctx->data;
}

/* As after a load; the first generation is 1, because what was never remembered says 0. Below 4 GiB, for `struct xdp_md`. */
int kernel_load(const __u8 mac[6])
{
	__u8 *room;

	memset(&kernel, 0, sizeof kernel);
	memcpy(kernel.device.mac, mac, 6);
	kernel.device.generation = 1;
	if (end_of_frames)
		return 0;
	room = mmap(NULL, 2 * FRAME_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (room == MAP_FAILED || mprotect(room + FRAME_ROOM, FRAME_ROOM, PROT_NONE))
		return -1;
	end_of_frames = room + FRAME_ROOM;
	return 0;
}

static void write_port(__u32 bitmap, __u16 port, int open)
{
	__u64 bit = 1ULL << port % 64, *word = &kernel.ports[bitmap].words[port / 64];

	*word = open ? *word | bit : *word & ~bit;
}

void kernel_open_port(__u32 bitmap, __u16 port)
{
	write_port(bitmap, port, 1);
}

void kernel_close_port(__u32 bitmap, __u16 port)
{
	write_port(bitmap, port, 0);
}

/* Addresses have 16 octets, those of IPv4 in front. Ports are in host order. */
void kernel_serve(const __u8 *address, __u16 version, __u16 port)
{
	struct destination *entry = &kernel.destinations[kernel.destinations_count++ % ENTRIES];

	memcpy(entry->address, address, 16);
	entry->version = version;
	entry->port = bpf_htons(port);
	kernel_open_port(SERVED, port);
}

/* Forgets the destination served last. Its port stays in the bitmap, as it does while another address has it. */
void kernel_unserve(void)
{
	if (kernel.destinations_count) {
		kernel.destinations_count--;
		kernel.device.generation++;
	}
}

void kernel_trust(const __u8 *local, const __u8 *remote, __u16 version, __u16 port, __u32 bitmap)
{
	struct backend *entry = &kernel.backends[kernel.backends_count % ENTRIES];

	memcpy(entry->local, local, 16);
	memcpy(entry->remote, remote, 16);
	entry->version = version;
	entry->port = bpf_htons(port);
	kernel.bitmaps[kernel.backends_count++ % ENTRIES] = bitmap;
}

/* The reason counted for a frame, or -1: none or several were counted, or the verdict does not belong to it. */
int kernel_steer(const __u8 *frame, __u32 length)
{
	struct xdp_md ctx = { 0 };
	int verdict, reason = -1;

	if (length > FRAME_ROOM)
		return -1;
	memcpy(end_of_frames - length, frame, length);
	ctx.data = (__u32)(unsigned long)(end_of_frames - length);
	ctx.data_end = (__u32)(unsigned long)end_of_frames;
	memset(kernel.cpu.verdicts, 0, sizeof kernel.cpu.verdicts);
	verdict = steer(&ctx);
	for (int i = 0; i < REASONS; i++) {
		if (!kernel.cpu.verdicts[i])
			continue;
		if (reason != -1 || kernel.cpu.verdicts[i] != 1)
			return -1;
		reason = i;
	}
	return verdict == (reason <= TAKE_PROBE ? XDP_REDIRECT : XDP_PASS) ? reason : -1;
}

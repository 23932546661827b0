/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/* Latencies by powers of two; crates/observe/src/bpf/histogram.rs reads them. */
#ifndef MILLSTREAM_HISTOGRAM_H
#define MILLSTREAM_HISTOGRAM_H

#include "kernel.h"

#define BUCKETS 32

/* Every latency has a place in the histograms: vector, interrupt, system call. */
struct histogram {
	u64 count;
	u64 total_ns;
	u64 buckets[BUCKETS]; /* bucket n: from 2^n ns on; the last one has no end, the first has 0, too */
};

INLINE u32 log2_of(u64 v)
{
	u32 n = 0;
	if (v >> 32)
		return BUCKETS - 1;
	if (v >> 16) { n += 16; v >>= 16; }
	if (v >> 8) { n += 8; v >>= 8; }
	if (v >> 4) { n += 4; v >>= 4; }
	if (v >> 2) { n += 2; v >>= 2; }
	if (v >> 1) { n += 1; }
	return n;
}

INLINE void add_to(struct histogram *h, u64 ns)
{
	u32 bucket = log2_of(ns);
	h->count += 1;
	h->total_ns += ns;
	if (bucket < BUCKETS)
		h->buckets[bucket] += 1;
}

INLINE void note(void *map, u32 place, u64 ns)
{
	struct histogram *h = map_lookup(map, &place);
	if (h)
		add_to(h, ns);
}

#endif

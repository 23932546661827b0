/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * System calls, counted and timed for a part of the time.
 *
 * While either program is attached, every system call of the machine takes the slow way into the kernel. So the loader attaches
 * both only for windows of some milliseconds, and tells here which part of a window it is. A call is timed where it begins
 * in the early part and ends less than late_ns later, which is before the late part is over: so each call that is shorter has
 * the same chance to be timed, and what is left over was longer.
 *
 * Counting makes calls longer, so that a load has fewer of them. In every second window each call is made longer still, by a
 * known time: from how the load answers to that, the loader knows how it answered to the counting.
 */
#include "kernel.h"
#include "histogram.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* Set by the loader before the programs are loaded. */
const volatile u32 want_times = 0;
const volatile u64 late_ns = 0; /* how long the late part is, at least */

enum part { CLOSED, EARLY, LATE };

struct window {
	u64 part;
	u64 number; /* of the window, so that what an earlier one left over is known */
	u64 extra_ns; /* by which each call is made longer */
};

/* Turns of the wait for extra_ns, at most. */
#define TURNS 64

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct window);
} window SEC(".maps");

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} counted SEC(".maps");

#define NUMBERS 512 /* the last place is for system calls from 511 on */

struct times {
	u64 begun; /* in early parts */
	struct histogram ended;
};

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, NUMBERS);
	TYPE(key, u32);
	TYPE(value, struct times);
} times SEC(".maps");

struct call {
	u64 began;
	u64 window;
	u32 number;
	u32 unused;
};

/* Threads that end in a call leave their entry behind; the oldest gives way. */
struct {
	UINT(type, MAP_LRU_HASH);
	UINT(max_entries, 16384);
	TYPE(key, u32); /* thread */
	TYPE(value, struct call);
} calls SEC(".maps");

INLINE u32 place_of(u64 number)
{
	return number < NUMBERS - 1 ? number : NUMBERS - 1;
}

SEC("tp_btf/sys_enter")
int sys_enter(u64 *ctx)
{
	u32 zero = 0;
	struct window *now = map_lookup(&window, &zero);
	u64 *count = map_lookup(&counted, &zero);
	if (!now || !count || now->part == CLOSED)
		return 0;
	*count += 1;
	u64 extra = now->extra_ns;
	if (extra) {
		u64 until = now_ns() + extra;
		for (u32 i = 0; i < TURNS && now_ns() < until; i++)
			;
	}
	if (!want_times || now->part != EARLY)
		return 0;
	u32 thread = (u32)current_ids(), number = place_of(ctx[1]);
	struct times *of = map_lookup(&times, &number);
	if (!of)
		return 0;
	struct call *known = map_lookup(&calls, &thread);
	if (known) {
		known->window = now->number;
		known->number = number;
		known->began = now_ns();
		of->begun += 1;
	} else {
		struct call call = { .began = now_ns(), .window = now->number, .number = number };
		if (!map_update(&calls, &thread, &call, BPF_ANY))
			of->begun += 1;
	}
	return 0;
}

/* Only for times. */
SEC("tp_btf/sys_exit")
int sys_exit(u64 *ctx)
{
	u32 zero = 0;
	struct window *now = map_lookup(&window, &zero);
	if (!now || now->part == CLOSED)
		return 0;
	u32 thread = (u32)current_ids();
	struct call *call = map_lookup(&calls, &thread);
	if (!call || !call->began || call->window != now->number)
		return 0;
	u64 ns = now_ns() - call->began;
	call->began = 0;
	if (ns >= late_ns)
		return 0;
	u32 number = call->number;
	struct times *of = map_lookup(&times, &number);
	if (of)
		add_to(&of->ended, ns);
	return 0;
}

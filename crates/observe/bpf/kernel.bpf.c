/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * What each CPU does, counted where it happens and read by millstream-observe at intervals.
 *
 * Every program adds to an entry of a per-CPU map; no event goes to user space. Each program is loaded and attached by
 * itself: where one is refused, what it counts is "not measured". The kernel runs none of them inside itself on one CPU.
 */
#include "kernel.h"
#include "histogram.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* Places in struct counters; crates/observe/src/bpf/counters.rs has the same list. */
enum {
	SWITCHES,
	INVOLUNTARY_SWITCHES,
	WAKEUP_IPIS,
	CALL_IPIS,
	MUTEX_SPINS,
	RW_SPINS,
	NAPI_POLLS,
	NAPI_PACKETS,
	NAPI_FULL,
	IRQS,
	IRQ_NS,
	SOFTIRQ_ALL_NS,
	LOCK_WAITS,
	LOCK_WAIT_NS,
	LOST_SAMPLES,
	SOFTIRQS, /* one per vector */
	SOFTIRQ_NS = SOFTIRQS + 10,
	COUNTERS = SOFTIRQ_NS + 10,
};

#define VECTORS 10

struct counters {
	u64 value[COUNTERS];
	/* Of the handler that runs now on this CPU. */
	u64 softirq_began;
	u64 softirq_irq_ns;
	u64 irq_began;
	u64 cross_calls;
	u64 waits;
};

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct counters);
} counters SEC(".maps");

/* Set by the loader before the programs are loaded: the verifier takes out what is not wanted. */
const volatile u32 want_histograms = 0;
const volatile u32 only_inside = 0; /* functions are timed inside the first one alone */
const volatile u32 cpu_words = 1;  /* words of a CPU mask that hold CPUs of this machine */
const volatile u32 argument_at = 0; /* where struct pt_regs has the argument of functions that is counted; 0: none is */

INLINE struct counters *mine(void)
{
	u32 zero = 0;
	return map_lookup(&counters, &zero);
}

/*
 * A stack takes some 4 us. Of waits for locks the first have theirs taken, of cross-calls one of 16; then one of 32 and of 128,
 * so that a CPU with 100,000 in a second gives some hundredths of its time.
 */
#define FIRST_ONES 1024

/* ---- histograms ---- */

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, VECTORS);
	TYPE(key, u32);
	TYPE(value, struct histogram);
} softirq_times SEC(".maps");

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 256); /* the last place is for interrupts from 255 on */
	TYPE(key, u32);
	TYPE(value, struct histogram);
} irq_times SEC(".maps");

/* Place 0: waits for locks that are held; place 1: the function of the kernel; then the functions of programs. */
#define KERNEL_FUNCTION 1
#define FIRST_FUNCTION 2
struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, FIRST_FUNCTION); /* the loader adds the functions */
	TYPE(key, u32);
	TYPE(value, struct histogram);
} other_times SEC(".maps");

/* ---- the scheduler ---- */

/* By destination; the CPU that decides is often neither of the two. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} arrivals SEC(".maps");

SEC("tp_btf/sched_switch")
int sched_switch(u64 *ctx)
{
	struct task_struct *before = (void *)ctx[1];
	int preempted = (u8)ctx[0];
	u32 state = (u32)ctx[3];
	struct counters *c = mine();
	if (!c)
		return 0;
	c->value[SWITCHES] += 1;
	if ((preempted || !state) && before->pid)
		c->value[INVOLUNTARY_SWITCHES] += 1;
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int sched_migrate_task(u64 *ctx)
{
	u32 to = (u32)ctx[1];
	u64 *count = map_lookup(&arrivals, &to);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

/* ---- packets that are dropped ---- */

/* By reason (enum skb_drop_reason). Reasons of single subsystems have larger numbers, and are not counted. */
struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 256);
	TYPE(key, u32);
	TYPE(value, u64);
} drops SEC(".maps");

SEC("tp_btf/kfree_skb")
int kfree_skb(u64 *ctx)
{
	u32 reason = (u32)ctx[2];
	u64 *count = map_lookup(&drops, &reason);
	if (count)
		*count += 1;
	return 0;
}

/* ---- interrupts and soft interrupts ---- */

SEC("tp_btf/irq_handler_entry")
int irq_handler_entry(u64 *ctx)
{
	struct counters *c = mine();
	if (c) {
		c->value[IRQS] += 1;
		c->irq_began = now_ns();
	}
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int irq_handler_exit(u64 *ctx)
{
	struct counters *c = mine();
	if (!c || !c->irq_began)
		return 0;
	u64 ns = now_ns() - c->irq_began;
	c->irq_began = 0;
	c->value[IRQ_NS] += ns;
	/* Always: this is how long each device's handler runs. */
	u32 number = (u32)ctx[0];
	note(&irq_times, number < 255 ? number : 255, ns);
	return 0;
}

SEC("tp_btf/softirq_entry")
int softirq_entry(u64 *ctx)
{
	struct counters *c = mine();
	if (c) {
		c->softirq_began = now_ns();
		c->softirq_irq_ns = c->value[IRQ_NS];
	}
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_exit(u64 *ctx)
{
	u64 vector = (u32)ctx[0];
	struct counters *c = mine();
	/* The verifier is to see the same register compared and used. */
	asm volatile("" : "+r"(vector));
	if (!c || !c->softirq_began || vector >= VECTORS)
		return 0;
	u64 ns = now_ns() - c->softirq_began;
	/* Interrupts that came meanwhile have their own time. */
	u64 inside = c->value[IRQ_NS] - c->softirq_irq_ns;
	ns = ns > inside ? ns - inside : 0;
	c->softirq_began = 0;
	c->value[SOFTIRQ_ALL_NS] += ns;
	c->value[SOFTIRQS + vector] += 1;
	c->value[SOFTIRQ_NS + vector] += ns;
	if (want_histograms)
		note(&softirq_times, vector, ns);
	return 0;
}

SEC("tp_btf/napi_poll")
int napi_poll(u64 *ctx)
{
	int work = (int)ctx[1], budget = (int)ctx[2];
	struct counters *c = mine();
	if (!c || work < 0)
		return 0;
	c->value[NAPI_POLLS] += 1;
	c->value[NAPI_PACKETS] += (u32)work;
	if (budget > 0 && work >= budget)
		c->value[NAPI_FULL] += 1;
	return 0;
}

/* ---- programs: who had the kernel do something, and who called a function ---- */

struct caller {
	u32 process;
	u32 place; /* of the function, as in other_times; 0: it was the kernel */
	u64 what;  /* the argument; the number of the kernel's stack */
	s64 stack;
};

/* The top of the stack has return addresses that frame pointers do not lead to. */
#define TOP 16

struct calls {
	u64 count;
	u64 top[TOP];
};

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 8192);
	TYPE(key, struct caller);
	TYPE(value, struct calls);
} callers SEC(".maps");

struct {
	UINT(type, MAP_STACK_TRACE);
	UINT(max_entries, 8192);
	UINT(key_size, 4);
	UINT(value_size, 8 * 24);
} caller_stacks SEC(".maps");

/* Calls of functions that found no room. */
u64 left_out = 0;

INLINE void note_caller(void *ctx, u32 place, u64 what)
{
	struct caller key = { .process = current_ids() >> 32, .place = place, .what = what };
	struct calls first = { .count = 1 }, *calls;
	struct pt_regs *regs = registers_of(current_task());
	key.stack = program_stack(ctx, &caller_stacks, regs);
	if (!place && key.stack < 0)
		return; /* a thread of the kernel */
	calls = map_lookup(&callers, &key);
	if (!calls) {
		if (key.stack >= 0)
			read_user(first.top, sizeof(first.top), (void *)regs->sp);
		if (!map_update(&callers, &key, &first, BPF_NOEXIST))
			return;
		calls = map_lookup(&callers, &key); /* of another CPU meanwhile */
	}
	if (calls)
		__sync_fetch_and_add(&calls->count, 1);
	else if (place)
		__sync_fetch_and_add(&left_out, 1);
}

/* ---- cross-calls: interrupts from one CPU to others ---- */

struct sender {
	u64 site;      /* where in the kernel it is sent */
	u64 callback;  /* what the other CPU is to run; 0: only to wake up */
	u64 requested; /* 0: an interrupt; 1: a function put into a CPU's queue, which has an interrupt follow where it was empty */
};

struct {
	UINT(type, MAP_PERCPU_HASH);
	UINT(max_entries, 1024);
	TYPE(key, struct sender);
	TYPE(value, u64);
} senders SEC(".maps");

struct {
	UINT(type, MAP_STACK_TRACE);
	UINT(max_entries, 4096);
	UINT(key_size, 4);
	UINT(value_size, 8 * 24);
} stacks SEC(".maps");

struct sender_stack {
	struct sender sender;
	u64 stack;
};

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 2048);
	TYPE(key, struct sender_stack);
	TYPE(value, u64); /* those among the ones whose stack was taken */
} sender_stacks SEC(".maps");

INLINE void list(u64 *ctx, struct counters *c, struct sender *key, u64 targets)
{
	u64 *count = map_lookup(&senders, key);
	if (count)
		*count += targets;
	else
		map_update(&senders, key, &targets, BPF_ANY);
	u64 nth = c->cross_calls++;
	if (nth & (nth < FIRST_ONES ? 15 : 127))
		return;
	long id = stack_id(ctx, &stacks, BPF_F_FAST_STACK_CMP);
	if (id < 0)
		return;
	note_caller(ctx, 0, id);
	struct sender_stack with = { .sender = *key, .stack = (u64)id };
	u64 *seen = map_lookup(&sender_stacks, &with);
	if (seen) {
		__sync_fetch_and_add(seen, 1);
	} else {
		u64 one = 1;
		map_update(&sender_stacks, &with, &one, BPF_ANY);
	}
}

INLINE void sent(u64 *ctx, u64 site, u64 callback, u64 targets)
{
	struct counters *c = mine();
	if (!c)
		return;
	if (callback)
		c->value[CALL_IPIS] += targets;
	else
		c->value[WAKEUP_IPIS] += targets;
	struct sender key = { .site = site, .callback = callback };
	list(ctx, c, &key, targets);
}

/* Not a program of a BTF tracepoint, as those may not read an argument that is a function. */
/* What is asked for: the interrupt that follows says only that there is something in the queue. */
SEC("raw_tp/csd_queue_cpu")
int csd_queue_cpu(u64 *ctx)
{
	struct counters *c = mine();
	if (!c)
		return 0;
	struct sender key = { .site = ctx[1], .callback = ctx[2], .requested = 1 };
	list(ctx, c, &key, 1);
	return 0;
}

SEC("tp_btf/ipi_send_cpu")
int ipi_send_cpu(u64 *ctx)
{
	sent(ctx, ctx[1], ctx[2], 1);
	return 0;
}

INLINE u64 ones(u64 v)
{
	v = v - ((v >> 1) & 0x5555555555555555ull);
	v = (v & 0x3333333333333333ull) + ((v >> 2) & 0x3333333333333333ull);
	v = (v + (v >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (v * 0x0101010101010101ull) >> 56;
}

SEC("tp_btf/ipi_send_cpumask")
int ipi_send_cpumask(u64 *ctx)
{
	const u64 *mask = (void *)ctx[0];
	u64 targets = 0;
	for (u32 i = 0; i < 128; i++) { /* 8192 CPUs, the most that the kernel can be built for */
		u64 word = 0;
		if (i >= cpu_words)
			break;
		read_kernel(&word, sizeof(word), mask + i);
		targets += ones(word);
	}
	sent(ctx, ctx[1], ctx[2], targets);
	return 0;
}

/* ---- waiting for locks ---- */

struct waiting {
	u64 began;
	u64 lock;
	u64 stack;
	u64 flags;
	u64 stands_for; /* waits whose stacks are not taken, and itself; 0: it is one of them */
};

/* Who runs here. */
struct runner {
	u32 thread;
	u32 cpu; /* for the idle threads, which share a number; 0 otherwise */
};

INLINE struct runner me(void)
{
	struct runner who = { .thread = (u32)current_ids() };
	if (!who.thread)
		who.cpu = this_cpu();
	return who;
}

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 16384);
	TYPE(key, struct runner);
	TYPE(value, struct waiting);
} waiters SEC(".maps");

struct lock_place {
	u64 stack;
	u64 flags;
};

struct lock_times {
	u64 count;
	u64 total_ns;
	u64 longest_ns;
};

struct {
	UINT(type, MAP_PERCPU_HASH);
	UINT(max_entries, 2048);
	TYPE(key, struct lock_place);
	TYPE(value, struct lock_times);
} lock_waits SEC(".maps");

SEC("tp_btf/contention_begin")
int contention_begin(u64 *ctx)
{
	u32 flags = (u32)ctx[1];
	struct counters *c = mine();
	if (!c)
		return 0;
	c->value[flags & (LCB_F_READ | LCB_F_WRITE | LCB_F_PERCPU) ? RW_SPINS : MUTEX_SPINS] += 1;
	struct runner who = me();
	struct waiting *before = map_lookup(&waiters, &who);
	if (before && before->lock)
		return 0; /* Spins for a part of the lock that it waits for, or in an interrupt: the outer wait has the time. */
	u64 nth = c->waits++;
	struct waiting waiting = {
		.began = now_ns(),
		.lock = ctx[0],
		.flags = flags,
		.stands_for = nth < FIRST_ONES ? 1 : nth & 31 ? 0 : 32,
	};
	if (waiting.stands_for) {
		long id = stack_id(ctx, &stacks, BPF_F_FAST_STACK_CMP);
		waiting.stack = id < 0 ? ~0ull : (u64)id;
		if (id >= 0)
			note_caller(ctx, 0, id);
	}
	map_update(&waiters, &who, &waiting, BPF_ANY);
	return 0;
}

SEC("tp_btf/contention_end")
int contention_end(u64 *ctx)
{
	struct runner who = me();
	struct waiting *waiting = map_lookup(&waiters, &who);
	if (!waiting || waiting->lock != ctx[0])
		return 0;
	u64 ns = now_ns() - waiting->began;
	struct lock_place place = { .stack = waiting->stack, .flags = waiting->flags };
	u64 stands_for = waiting->stands_for;
	map_delete(&waiters, &who);
	struct counters *c = mine();
	if (c) {
		c->value[LOCK_WAITS] += 1;
		c->value[LOCK_WAIT_NS] += ns;
	}
	if (want_histograms)
		note(&other_times, 0, ns);
	if (!stands_for)
		return 0;
	struct lock_times *times = map_lookup(&lock_waits, &place);
	if (times) {
		times->count += stands_for;
		times->total_ns += stands_for * ns;
		if (ns > times->longest_ns)
			times->longest_ns = ns;
	} else {
		struct lock_times first = { .count = stands_for, .total_ns = stands_for * ns, .longest_ns = ns };
		map_update(&lock_waits, &place, &first, BPF_ANY);
	}
	return 0;
}

/* ---- where the CPUs are: a sample of both stacks at each tick of the CPU clock ---- */

struct sample {
	u32 process;
	u32 thread;
	s64 kernel; /* number of the stack, or an error below zero */
	s64 user;
};

struct {
	UINT(type, MAP_PERCPU_HASH);
	UINT(max_entries, 8192);
	TYPE(key, struct sample);
	TYPE(value, u64);
} samples SEC(".maps");

struct {
	UINT(type, MAP_STACK_TRACE);
	UINT(max_entries, 16384);
	UINT(key_size, 4);
	UINT(value_size, 8 * 64);
} sample_stacks SEC(".maps");

SEC("perf_event")
int cpu_clock(void *ctx)
{
	u64 ids = current_ids();
	struct sample key = { .process = (u32)(ids >> 32), .thread = (u32)ids };
	key.kernel = stack_id(ctx, &sample_stacks, BPF_F_FAST_STACK_CMP);
	key.user = stack_id(ctx, &sample_stacks, BPF_F_FAST_STACK_CMP | BPF_F_USER_STACK);
	u64 one = 1;
	u64 *count = map_lookup(&samples, &key);
	if (count) {
		*count += 1;
	} else if (map_update(&samples, &key, &one, BPF_ANY)) {
		struct counters *c = mine();
		if (c)
			c->value[LOST_SAMPLES] += 1;
	}
	return 0;
}

/* ---- functions of programs, and one of the kernel: from their entry to their return ---- */

struct call {
	struct runner who;
	u32 place;
};

struct entry {
	u64 began;
	u64 inside; /* calls of itself that run now */
};

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 16384);
	TYPE(key, struct call);
	TYPE(value, struct entry);
} entered SEC(".maps");

INLINE int enter(u32 place)
{
	struct call call = { .who = me(), .place = place };
	struct entry *outer = map_lookup(&entered, &call);
	if (outer) {
		outer->inside += 1;
		return 0;
	}
	struct entry entry = { .began = now_ns() };
	map_update(&entered, &call, &entry, BPF_ANY);
	return 0;
}

INLINE int leave(u32 place)
{
	struct call call = { .who = me(), .place = place };
	struct entry *entry = map_lookup(&entered, &call);
	if (!entry)
		return 0;
	/* Of calls inside itself the outermost is timed. */
	if (entry->inside) {
		entry->inside -= 1;
		return 0;
	}
	note(&other_times, place, now_ns() - entry->began);
	map_delete(&entered, &call);
	return 0;
}

/* The cookie is the number of the function. */
SEC("uprobe")
int function_entry(void *ctx)
{
	struct call around = { .who = me(), .place = FIRST_FUNCTION };
	u32 place = FIRST_FUNCTION + (u32)attach_cookie(ctx);
	if (only_inside && place != FIRST_FUNCTION && !map_lookup(&entered, &around))
		return 0;
	if (argument_at && !(only_inside && place == FIRST_FUNCTION)) {
		u64 argument = 0;
		read_kernel(&argument, sizeof(argument), (u8 *)registers_of(current_task()) + argument_at);
		note_caller(ctx, place, argument);
	}
	return enter(place);
}

SEC("uretprobe")
int function_return(void *ctx)
{
	return leave(FIRST_FUNCTION + (u32)attach_cookie(ctx));
}

/* The loader names the function. */
SEC("fentry/any")
int kernel_entry(void *ctx)
{
	return enter(KERNEL_FUNCTION);
}

SEC("fexit/any")
int kernel_return(void *ctx)
{
	return leave(KERNEL_FUNCTION);
}

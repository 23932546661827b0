/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Where the time of each thread goes: on a CPU, ready without one, or asleep, and then in which system call, for which
 * descriptor or lock, and who woke it. Sums are made here; crates/observe/src/bpf/kernel/budget.rs reads them at the end.
 *
 * A thread's system call and its arguments are read from the registers that it entered the kernel with, when it falls
 * asleep: no program is attached to system calls, which would make every one of them slower. What a thread does on its
 * CPU is sampled by the CPU clock.
 */
#include "kernel.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* What the arguments of a system call say, by its number; set by the loader. */
enum { OTHER, DESCRIPTOR, FUTEX, POLL };
#define CALLS 512
const volatile u8 uses[CALLS] = {};

/* When the budget began; 0 before and after it. Set while the programs are attached. */
u64 began = 0;

enum { RUNS, READY, ASLEEP, BLOCKED, ENDED };
enum { NOTHING, FILE, PIPE, DEVICE, ANONYMOUS, UNIX_SOCKET, TCP_SOCKET, UDP_SOCKET, OTHER_SOCKET, LOCK, HELD };

/* In the place of a thread: a timer of the sleeping one itself. */
#define CLOCK 0xffffffff

/* In the place of a system call. */
#define FAULT 0xffff
#define KERNEL_THREAD 0xfffe
#define USER 0xfffd

/* The scheduler reads its clock some 1 us after a switch is told: only more than this was stolen. */
#define STOLEN_LEAST_NS 50000

/* An idle CPU wakes up sooner: a thread that waits so long for one is held back (a quota). */
#define HELD_LEAST_NS 1000000

#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_DEAD 0x80
#define PF_KTHREAD 0x00200000
#define NAME 16

#define S_IFMT 0xf000
#define S_IFSOCK 0xc000
#define S_IFREG 0x8000
#define S_IFBLK 0x6000
#define S_IFDIR 0x4000
#define S_IFCHR 0x2000
#define S_IFIFO 0x1000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
/* Local ports of connecting sockets begin here (net.ipv4.ip_local_port_range). */
#define EPHEMERAL 32768

struct reason {
	u32 thread;
	u32 by; /* asleep: who woke it; ready: who had the CPU; 0: nobody, or an interrupt; CLOCK */
	u16 call;
	u8 kind;
	u8 state;
	u16 near; /* ports; that of a connecting socket is left out beside a listening one's */
	u16 far;
	u64 what[2]; /* a name, an inode number, an IPv6 address, or the address of a lock */
};

struct sum {
	u64 ns;
	u64 count;
};

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 16384);
	TYPE(key, struct reason);
	TYPE(value, struct sum);
} sums SEC(".maps");

/* The reason met last, whose sum is not in the map yet. */
struct last {
	struct reason why;
	struct sum sum;
};

struct thread {
	u64 since; /* of the state */
	u64 born;  /* or the beginning of the budget */
	u64 ended;
	u64 on_ns;
	u64 lost_ns; /* no room in the map of sums */
	struct last asleep;
	struct last ready;
	struct reason now; /* of the sleep that goes on */
	u32 process;
	u32 parent;
	u32 state;
	u32 number; /* 0: the place is free */
	char name[NAME];
	u64 inode; /* of the descriptor in `now`, which is looked up again where it is another one */
	u64 ran_before; /* by the scheduler's account, when it got its CPU; 0: not known */
	u64 ran_ns;     /* the part of on_ns that the scheduler counts: without what a hypervisor took */
	u64 slept_ns;   /* since its stack was taken */
	struct last ticks; /* sleeps that its own time-out ended, and after which it has woken nobody yet */
};

/* A thread has one of the PROBES places from its number on: that is found sooner than by a hash. */
#define THREADS 8192
#define PROBES 4

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, struct thread);
} threads SEC(".maps");

/* Threads that found no room. */
u64 left_out = 0;

/* A thread that has slept so long has its stack taken when it falls asleep the next time: some 1 us for 1 ms. */
#define STACK_EVERY_NS 1000000

struct {
	UINT(type, MAP_STACK_TRACE);
	UINT(max_entries, 1); /* the loader says how many */
	UINT(key_size, 4);
	UINT(value_size, 8 * 24);
} stacks SEC(".maps");

struct sleeper {
	struct reason why; /* without who woke it */
	u64 stack;
};

/*
 * The top of the stack has the address behind the call of the function that made the system call: that one mostly keeps no
 * frame pointer, so that who called it is not among the frames.
 */
#define TOP 16

struct asleep {
	u64 count;
	u64 top[TOP];
};

/* Stacks of threads as they fell asleep, and how often. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 8192);
	TYPE(key, struct sleeper);
	TYPE(value, struct asleep);
} sleepers SEC(".maps");

struct in6_addr {
	u64 words[2];
};

struct sock_common {
	u32 skc_daddr;
	u16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	struct in6_addr skc_v6_daddr;
} KERNEL_TYPE;

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
} KERNEL_TYPE;

struct socket {
	struct sock *sk;
} KERNEL_TYPE;

struct inode {
	u16 i_mode;
	unsigned long i_ino;
} KERNEL_TYPE;

struct qstr {
	const u8 *name;
} KERNEL_TYPE;

struct dentry {
	struct qstr d_name;
} KERNEL_TYPE;

struct path {
	struct dentry *dentry;
} KERNEL_TYPE;

struct file {
	void *private_data;
	struct inode *f_inode;
	struct path f_path;
} KERNEL_TYPE;

struct fdtable {
	u32 max_fds;
	struct file **fd;
} KERNEL_TYPE;

struct files_struct {
	struct fdtable *fdt;
} KERNEL_TYPE;

#define READ(to, from) read_kernel(&(to), sizeof(to), &(from))

INLINE void clear(struct reason *why)
{
	why->kind = NOTHING;
	why->near = why->far = 0;
	why->what[0] = why->what[1] = 0;
}

INLINE void of_socket(struct reason *why, struct file *file, u64 inode)
{
	struct socket *socket = 0;
	struct sock *sk = 0;
	u16 family = 0, protocol = 0, far = 0;
	READ(socket, file->private_data);
	READ(sk, socket->sk);
	READ(family, sk->__sk_common.skc_family);
	if (family != AF_INET && family != AF_INET6) {
		why->kind = family == AF_UNIX ? UNIX_SOCKET : OTHER_SOCKET;
		why->what[0] = inode;
		return;
	}
	READ(protocol, sk->sk_protocol);
	why->kind = protocol == IPPROTO_TCP ? TCP_SOCKET : protocol == IPPROTO_UDP ? UDP_SOCKET : OTHER_SOCKET;
	READ(why->near, sk->__sk_common.skc_num);
	READ(far, sk->__sk_common.skc_dport);
	why->far = __builtin_bswap16(far);
	if (family == AF_INET) {
		u32 address = 0;
		READ(address, sk->__sk_common.skc_daddr);
		why->what[1] = (u64)address << 32 | 0xffff0000; /* ::ffff:ADDRESS */
	} else {
		read_kernel(why->what, sizeof(why->what), &sk->__sk_common.skc_v6_daddr);
	}
	/* One row for all connections of a listener, and for all to one. */
	if (why->far >= EPHEMERAL && why->near < EPHEMERAL)
		why->far = 0;
	else if (why->near >= EPHEMERAL && why->far && why->far < EPHEMERAL)
		why->near = 0;
}

/* `seen` is the inode that `why` has; returns the one that it has now. */
INLINE u64 of_descriptor(struct reason *why, struct task_struct *task, u64 number, u64 seen)
{
	struct file **all = 0, *file = 0;
	struct inode *inode = 0;
	struct files_struct *files = task->files;
	if (!files)
		return 0;
	struct fdtable *table = files->fdt;
	if (number >= table->max_fds)
		return 0;
	all = table->fd;
	read_kernel(&file, sizeof(file), all + number);
	if (!file)
		return 0;
	u16 mode = 0;
	unsigned long ino = 0;
	READ(inode, file->f_inode);
	READ(ino, inode->i_ino);
	if (seen && ino == seen)
		return seen;
	clear(why);
	READ(mode, inode->i_mode);
	mode &= S_IFMT;
	if (mode == S_IFSOCK) {
		of_socket(why, file, ino);
	} else if (mode == S_IFIFO || !mode) {
		why->kind = mode ? PIPE : ANONYMOUS;
		why->what[0] = mode ? ino : 0;
	} else {
		struct dentry *dentry = 0;
		const u8 *name = 0;
		why->kind = mode == S_IFCHR ? DEVICE : FILE;
		READ(dentry, file->f_path.dentry);
		READ(name, dentry->d_name.name);
		read_kernel_text(why->what, sizeof(why->what), name);
	}
	return ino;
}

INLINE u16 call_of(struct task_struct *task, struct pt_regs **regs)
{
	if (task->flags & PF_KTHREAD)
		return KERNEL_THREAD;
	*regs = registers_of(task);
	u64 call = (*regs)->orig_ax;
	return call < USER ? call : FAULT;
}

/* Notes why `task`, which runs here if `is_here`, falls asleep. */
INLINE void note_reason(struct task_struct *task, struct thread *t, int is_here)
{
	struct reason *why = &t->now;
	struct pt_regs *regs = 0;
	u64 call = call_of(task, &regs);
	/* Of another file system's inode of that number the call is another one, mostly. */
	u64 seen = call == why->call ? t->inode : 0;
	t->inode = 0;
	why->call = call;
	why->by = 0;
	u8 use = OTHER;
	asm volatile("" : "+r"(call));
	if (call < CALLS && regs)
		use = uses[call];
	u32 descriptor = 0;
	if (use == DESCRIPTOR) {
		descriptor = regs->di;
	} else if (use != POLL || !is_here || regs->si != 1
		   || read_user(&descriptor, sizeof(descriptor), (void *)regs->di)) {
		clear(why);
		if (use == FUTEX) {
			why->kind = LOCK;
			why->what[0] = regs->di;
		}
		return;
	}
	t->inode = of_descriptor(why, task, descriptor, seen);
	if (!t->inode)
		clear(why);
}

INLINE void add(struct thread *t, struct last *last, const struct reason *why, u64 ns, u64 count)
{
	const u64 *one = (void *)why, *other = (void *)&last->why;
	if (one[0] != other[0] || one[1] != other[1] || one[2] != other[2] || one[3] != other[3]) {
		if (last->sum.count) {
			struct sum *sum = map_lookup(&sums, &last->why);
			if (sum) {
				sum->ns += last->sum.ns;
				sum->count += last->sum.count;
			} else if (map_update(&sums, &last->why, &last->sum, BPF_ANY)) {
				t->lost_ns += last->sum.ns;
			}
		}
		last->why = *why;
		last->sum.ns = last->sum.count = 0;
	}
	last->sum.ns += ns;
	last->sum.count += count;
}

/* Takes a place for a thread that is met for the first time: it has been in `state` since the budget began. */
static __attribute__((noinline)) struct thread *place(struct task_struct *task, u32 state)
{
	u32 number = task->pid;
	struct thread *t = 0;
	for (u32 i = 0; i < PROBES; i++) {
		u32 at = (number + i) & (THREADS - 1);
		t = map_lookup(&threads, &at);
		if (t && t->number == number && t->state != ENDED)
			return t;
	}
	for (u32 i = 0; i < PROBES; i++) {
		u32 at = (number + i) & (THREADS - 1);
		t = map_lookup(&threads, &at);
		if (!t)
			return 0;
		u32 before = t->number;
		if (before && t->state != ENDED)
			continue;
		if (__sync_val_compare_and_swap(&t->number, before, number) == before)
			break;
		t = 0;
	}
	if (!t || t->number != number) {
		__sync_fetch_and_add(&left_out, 1);
		return 0;
	}
	u64 start = task->start_time;
	__builtin_memset(t, 0, __builtin_offsetof(struct thread, state));
	t->inode = t->ran_before = t->ran_ns = 0;
	t->ticks.sum.ns = t->ticks.sum.count = 0;
	t->slept_ns = STACK_EVERY_NS;
	t->born = t->since = start > began ? start : began;
	t->process = task->tgid;
	t->parent = task->real_parent->tgid;
	t->state = state;
	t->now.thread = number;
	t->now.state = state;
	read_kernel(t->name, sizeof(t->name), task->comm);
	if (state == ASLEEP)
		note_reason(task, t, 0);
	return t;
}

INLINE struct thread *thread_of(struct task_struct *task, u32 state)
{
	u32 number = task->pid, at = number & (THREADS - 1);
	struct thread *t = map_lookup(&threads, &at);
	if (t && t->number == number && t->state != ENDED)
		return t;
	return place(task, state);
}

/* The stack of `task`, which falls asleep here. */
INLINE void note_stack(u64 *ctx, struct task_struct *task, struct thread *t)
{
	struct pt_regs *regs = registers_of(task);
	long id = program_stack(ctx, &stacks, regs);
	struct sleeper key = { .why = t->now, .stack = id };
	struct asleep first = { .count = 1 }, *asleep;
	t->slept_ns = 0;
	if (id < 0)
		return;
	asleep = map_lookup(&sleepers, &key);
	if (asleep) {
		asleep->count += 1; /* of this thread alone */
	} else if (!read_user(first.top, sizeof(first.top), (void *)regs->sp)) {
		map_update(&sleepers, &key, &first, BPF_NOEXIST);
	}
}

INLINE void tell_ticks(struct thread *t)
{
	add(t, &t->asleep, &t->ticks.why, t->ticks.sum.ns, t->ticks.sum.count);
	t->ticks.sum.ns = t->ticks.sum.count = 0;
}

/*
 * A thread that waits for several may look at its clock again and again meanwhile: its own time-out ends the sleep, it wakes
 * nobody, and sleeps in the same call again. Who ends the last of these sleeps is whom all of them waited for.
 */
static __attribute__((noinline)) int slept(struct thread *t, u64 ns)
{
	struct reason *why = &t->now;
	t->slept_ns += ns;
	if (why->by == CLOCK && (why->kind == NOTHING || why->kind == ANONYMOUS)) {
		if (t->ticks.sum.count && t->ticks.why.call != why->call)
			tell_ticks(t);
		t->ticks.why = *why;
		t->ticks.sum.ns += ns;
		t->ticks.sum.count += 1;
		return 0;
	}
	if (t->ticks.sum.count) {
		if (t->ticks.why.call == why->call && why->by) {
			ns += t->ticks.sum.ns;
			t->ticks.sum.ns = t->ticks.sum.count = 0;
		} else {
			tell_ticks(t);
		}
	}
	add(t, &t->asleep, why, ns, 1);
	return 0;
}

struct cpu {
	u64 in_timer; /* the interrupt of the CPU's timer is being dealt with */
	u64 woke;     /* what runs there has woken somebody, since a thread with ticks got the CPU */
};

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct cpu);
} cpus SEC(".maps");

INLINE struct cpu *mine(void)
{
	u32 zero = 0;
	return map_lookup(&cpus, &zero);
}

SEC("tp_btf/sched_switch")
int sched_switch(u64 *ctx)
{
	struct task_struct *before = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	u32 state = (u32)ctx[3];
	int could_go_on = (u8)ctx[0] || !state;
	if (!began)
		return 0;
	u64 now = now_ns();
	struct thread *t = before->pid ? thread_of(before, RUNS) : 0;
	if (t) {
		u64 ns = now - t->since, ran = before->se.sum_exec_runtime - t->ran_before;
		t->on_ns += ns;
		t->ran_ns += t->ran_before && ran + STOLEN_LEAST_NS < ns ? ran : ns;
		t->since = now;
		if (t->ticks.sum.count) {
			struct cpu *cpu = mine();
			if (cpu && cpu->woke)
				tell_ticks(t);
		}
		if (could_go_on) {
			t->state = READY;
		} else if (state & TASK_DEAD) {
			t->ended = now;
			t->state = ENDED;
			read_kernel(t->name, sizeof(t->name), before->comm);
		} else {
			t->now.state = state & TASK_UNINTERRUPTIBLE ? BLOCKED : ASLEEP;
			note_reason(before, t, 1);
			if (t->slept_ns >= STACK_EVERY_NS && !(before->flags & PF_KTHREAD))
				note_stack(ctx, before, t);
			t->state = ASLEEP;
		}
	}
	t = next->pid ? thread_of(next, READY) : 0;
	if (t) {
		u64 ns = now - t->since;
		if (t->state == READY) {
			struct reason why = { .thread = next->pid, .by = before->pid, .state = READY };
			if (!why.by && ns > HELD_LEAST_NS)
				why.kind = HELD;
			add(t, &t->ready, &why, ns, 1);
		} else if (t->state == ASLEEP) {
			slept(t, ns);
		}
		t->since = now;
		t->ran_before = next->se.sum_exec_runtime;
		t->state = RUNS;
		if (t->ticks.sum.count) {
			struct cpu *cpu = mine();
			if (cpu)
				cpu->woke = 0;
		}
	}
	return 0;
}

INLINE int set_in_timer(u64 is)
{
	struct cpu *cpu = mine();
	if (cpu)
		cpu->in_timer = is;
	return 0;
}

SEC("tp_btf/local_timer_entry")
int local_timer_entry(u64 *ctx)
{
	return set_in_timer(1);
}

SEC("tp_btf/local_timer_exit")
int local_timer_exit(u64 *ctx)
{
	return set_in_timer(0);
}

SEC("tp_btf/sched_waking")
int sched_waking(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	if (!began)
		return 0;
	struct thread *t = thread_of(task, ASLEEP);
	if (!t || t->state != ASLEEP)
		return 0;
	u64 now = now_ns();
	struct cpu *cpu = mine();
	struct task_struct *waker = current_task();
	struct pt_regs *regs = 0;
	/* An interrupt may find anybody on the CPU. */
	if (cpu && cpu->in_timer) {
		t->now.by = CLOCK;
	} else {
		if (cpu)
			cpu->woke = 1;
		if (call_of(waker, &regs) != FAULT)
			t->now.by = waker->pid;
	}
	slept(t, now - t->since);
	t->since = now;
	t->state = READY;
	return 0;
}

/* ---- what they do on their CPUs ---- */

struct sample {
	u32 thread;
	u32 call;
	u64 address; /* of the program's own code */
};

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 16384);
	TYPE(key, struct sample);
	TYPE(value, u64);
} samples SEC(".maps");

/* The registers of struct bpf_perf_event_data that are read, by their places on this processor. */
struct interrupted {
	u64 others[16];
	u64 ip;
	u64 cs;
};

SEC("perf_event")
int cpu_clock(struct interrupted *ctx)
{
	struct task_struct *task = current_task();
	struct pt_regs *regs = 0;
	struct sample key = { .thread = task->pid };
	u64 one = 1;
	if (!began || !key.thread)
		return 0;
	if (ctx->cs & 3) {
		key.call = USER;
		key.address = ctx->ip;
	} else {
		key.call = call_of(task, &regs);
	}
	u64 *count = map_lookup(&samples, &key);
	if (!count && key.address && map_update(&samples, &key, &one, BPF_NOEXIST)) {
		key.address = 0; /* no more room for addresses */
		count = map_lookup(&samples, &key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		map_update(&samples, &key, &one, BPF_NOEXIST);
	return 0;
}
